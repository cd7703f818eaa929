"""The backbone of a critic: a separate model, or an adapter on the policy's base."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from accelerate.utils import DistributedType
from peft import LoraConfig, PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from hf_credit.loading import half_precision, load_tokenizer, require_whole

ADAPTER = "critic"
"""The default name of a critic's adapter on the policy's base."""


@contextmanager
def _unchanged(root: Any) -> Iterator[None]:
    """Restores the mode of each module and the `requires_grad` of each parameter on exit, also on errors."""
    modes = [(module, module.training) for module in root.modules()]
    trained = [(parameter, parameter.requires_grad) for parameter in root.parameters()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for parameter, flag in trained:
            parameter.requires_grad_(flag)


class Backbone:
    """A causal model without its head, and the parameters of it that a critic trains.

    Args:
        root: the model, or one with adapters.
        adapter: the adapter that is active and trained; `None` for no change, and for all parameters that require a
            gradient.

    Attributes:
        model: maps token ids to hidden states.
        width: the size of a hidden state.
        trained: the trained parameters, by name.
        attention: the implementation that reads padded rows; the model's if `None`.
    """

    def __init__(self, root: PreTrainedModel | PeftModel, adapter: str | None = None) -> None:
        bare: Any = root.get_base_model() if isinstance(root, PeftModel) else root
        self.model: PreTrainedModel = bare.base_model
        self.width: int = bare.config.get_text_config().hidden_size
        self._root: Any = root if isinstance(root, PeftModel) else self.model
        self._adapter = adapter
        self.attention: str | None = None
        self.trained: dict[str, nn.Parameter] = {
            name: parameter
            for name, parameter in self._root.named_parameters()
            if (parameter.requires_grad if adapter is None else re.search(rf"\.{adapter}(\.|$)", name))
        }

    def hidden_states(self, ids: Tensor, mask: Tensor) -> Tensor:
        """Returns the last layer's hidden states, of shape (rows, tokens, width); call it inside `reading`."""
        positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
        return self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False
        ).last_hidden_state

    @contextmanager
    def reading(self, training: bool) -> Iterator[None]:
        """Activates the critic's adapter and, with `training`, the gradients of only its parameters.

        On exit, including after an error, it restores the mode of each module, the `requires_grad` of each parameter,
        the implementation of attention and the active adapter.
        """
        ids = set(map(id, self.trained.values()))
        with _unchanged(self._root), self._own_attention(), self._own_adapter():
            self._root.train(training)
            for parameter in self._root.parameters():
                parameter.requires_grad_(training and id(parameter) in ids)
            yield

    @contextmanager
    def _own_attention(self) -> Iterator[None]:
        config = self.model.config
        before = config._attn_implementation
        config._attn_implementation = self.attention or before
        try:
            yield
        finally:
            config._attn_implementation = before

    @contextmanager
    def _own_adapter(self) -> Iterator[None]:
        if self._adapter is None:
            yield
            return
        tuner = self._root.base_model
        active_adapter, active = self._root.active_adapter, tuner.active_adapters
        disabled = any(layer.disable_adapters for layer in tuner.modules() if isinstance(layer, BaseTunerLayer))
        try:
            self._root.set_adapter(self._adapter)
            tuner.enable_adapter_layers()
            yield
        finally:
            tuner.set_adapter(active)
            self._root.active_adapter = active_adapter
            if disabled:
                tuner.disable_adapter_layers()


def own_backbone(
    source: str | PreTrainedModel | PeftModel,
    policy: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    device: torch.device,
    checkpointing: bool,
    model_init_kwargs: dict[str, Any] | None = None,
) -> Backbone:
    """Returns a backbone that shares no weights with the policy.

    Args:
        source: a model id or folder, loaded in float32, or a model; its parameters that require a gradient are
            trained.
        checkpointing: whether activations are recomputed in the backward pass to save memory.
        model_init_kwargs: arguments of `from_pretrained`, if `source` is an id or folder.

    Raises:
        ValueError: the source shares weights with the policy, has another vocabulary, or would be trained in half
            precision.
    """
    options = {"trust_remote_code": False, **(model_init_kwargs or {})}
    name = source if isinstance(source, str) else getattr(source.config, "_name_or_path", "")
    model: Any = source
    if isinstance(source, str):
        loading = {"dtype": torch.float32, **options, "output_loading_info": True, "ignore_mismatched_sizes": True}
        model, found = AutoModel.from_pretrained(source, **loading)
        require_whole(source, found["missing_keys"], mismatched=found["mismatched_keys"])  # without heads
    of_policy = set(map(id, policy.parameters()))
    if any(id(parameter) in of_policy for parameter in model.parameters()):
        raise ValueError(
            f"a critic's backbone must share no weights with the policy, got {type(model).__name__} of the policy; "
            "pass a separate model, or a LoraConfig for an adapter on the policy's base."
        )
    known = {key: options[key] for key in ("revision", "trust_remote_code") if key in options}
    try:
        own = load_tokenizer(name, **known)
        fits, size, expected = own.get_vocab() == tokenizer.get_vocab(), len(own), len(tokenizer)
    except (OSError, ValueError):  # without a tokenizer only sizes can be compared
        size, expected = (part.config.get_text_config().vocab_size for part in (model, policy))
        fits = size == expected
    if not fits:
        raise ValueError(
            f"a critic's backbone must have the policy's vocabulary, got {name or type(model).__name__} with {size} "
            f"tokens for {expected} of the policy; use a model of the policy's family."
        )
    backbone = Backbone(cast(Any, model).to(device))
    if half := half_precision(backbone.trained.values()):
        raise ValueError(
            f"the trained weights of a critic must be float32, got {half}, in which small updates are lost; load its "
            "backbone in float32 and set bf16=True, which computes in half precision."
        )
    if checkpointing and backbone.model.supports_gradient_checkpointing:
        # transformers before 5.23 has only the second name.
        enable = getattr(backbone.model, "activation_checkpointing_enable", None)
        (enable or backbone.model.gradient_checkpointing_enable)({"use_reentrant": False})
    return backbone


def adapter_backbone(
    config: LoraConfig, policy: PreTrainedModel | PeftModel, seed: int, name: str = ADAPTER
) -> Backbone:
    """Adds an adapter for a critic to the base of a policy, and returns it as a backbone.

    The outputs, the weights and the trained parameters of the policy do not change.

    Args:
        policy: a policy with an adapter of the same type, so that its base is frozen.
        seed: the seed of the adapter's initial weights.

    Raises:
        ValueError: the policy has no adapter of this type, or already an adapter of this name.
    """
    if not isinstance(policy, PeftModel) or policy.peft_type != config.peft_type:
        got = "an adapter of another type" if isinstance(policy, PeftModel) else "a whole model"
        raise ValueError(
            f"a critic can be an adapter only if the policy is one of the same type, got {got} as policy, whose "
            "training would change the base; train the policy with a LoraConfig, or use a separate critic model."
        )
    if name in policy.peft_config:
        raise ValueError(
            f"the policy must have no adapter named {name!r}, which is the critic's, got "
            f"{sorted(policy.peft_config)}; delete it with policy.delete_adapter."
        )
    before = set(map(id, policy.modules()))
    with _unchanged(policy), torch.random.fork_rng(devices=[]):  # does not change the policy's random numbers
        torch.default_generator.manual_seed(seed)
        policy.add_adapter(name, config)
    backbone = Backbone(policy, name)
    for parameter in backbone.trained.values():
        parameter.requires_grad_(False)
    for module in policy.modules():
        if id(module) not in before:
            module.training = policy.training
    return backbone


def refuse_training_that(distributed_type: DistributedType, mixed_precision: str) -> None:
    """Rejects training set-ups that a replicated critic does not support.

    Raises:
        ValueError: DeepSpeed, FSDP or Megatron, or fp16.
    """
    if distributed_type in (DistributedType.DEEPSPEED, DistributedType.FSDP, DistributedType.MEGATRON_LM):
        raise ValueError(
            f"a critic must be replicated on every process, got {distributed_type.value}, which shards models; train "
            "with data parallelism only, and with LoRA if memory is short."
        )
    if mixed_precision == "fp16":
        raise ValueError(
            "a critic must be trained in bf16 or float32, got fp16, whose gradients underflow; set bf16=True."
        )
