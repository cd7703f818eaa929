"""Policies of roles that share a base model: each role has its own adapter."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import PreTrainedTokenizerBase

from hf_credit.loading import ADAPTER_CONFIG, load_adapter, load_base, load_model, load_tokenizer, role_folders
from hf_credit.policies.generation import PrefixSampler, sampler
from hf_credit.rollouts import Context, GenerateFn, Generation

_MIXABLE = ("Linear", "Embedding", "Linear4bit", "Linear8bitLt")  # PEFT's layers over torch's and bitsandbytes'


def use_adapter(model: PeftModel, name: str) -> None:
    """Activates an adapter without freezing the others, as PEFT's `set_adapter` does."""
    requires_grad = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    model.set_adapter(name)
    for parameter, flag in requires_grad:
        parameter.requires_grad_(flag)


@contextmanager
def using(model: PeftModel, name: str) -> Iterator[PeftModel]:
    """`use_adapter`, and the previous adapter again on exit, also on errors."""
    before = model.active_adapter
    use_adapter(model, name)
    try:
        yield model
    finally:
        use_adapter(model, before)


class RoleSampler:
    """The `GenerateFn` of one role, which generates with the role's adapter.

    Args:
        generate: samples from the model; if it caches keys and values, it must be for this role only. This sampler
            has a method `seeded` if `generate` has one.
        role: the name of the role and of its adapter.
    """

    def __init__(self, generate: GenerateFn, model: PeftModel, role: str) -> None:
        self.generate = generate
        self.model = model
        self.role = role
        self.seeded = self._seeded if getattr(generate, "seeded", None) is not None else None

    def __call__(self, contexts: Sequence[Context]) -> Sequence[Generation]:
        with using(self.model, self.role):
            return self.generate(contexts)

    def _seeded(self, contexts: Sequence[Context], seeds: Sequence[int | None]) -> Sequence[Generation]:
        with using(self.model, self.role):
            return self.generate.seeded(contexts, seeds)  # type: ignore[attr-defined]


class MixedRoles(dict[str, GenerateFn]):
    """The `GenerateFn` of each role; `together` generates for several roles in one batch.

    Args:
        alone: the sampler of each role, with its own cache.
        generate: the sampler of batches of several roles, with its own cache.
        model: has their adapters; `can_mix` holds for it.
    """

    def __init__(self, alone: Mapping[str, GenerateFn], generate: PrefixSampler, model: PeftModel) -> None:
        super().__init__(alone)
        self.generate, self.model = generate, model

    def together(
        self, roles: Sequence[str], contexts: Sequence[Context], seeds: Sequence[int | None] | None
    ) -> Sequence[Generation]:
        """One reply to each context.

        Args:
            roles: the role that replies to each context.
            contexts: at least one.
            seeds: one for each context, `None` to draw from torch's random generator; or `None` for all.
        """
        if len(set(roles)) == 1:
            sampler_of_role: Any = self[roles[0]]
            return sampler_of_role(contexts) if seeds is None else sampler_of_role.seeded(contexts, seeds)
        with using(self.model, roles[0]):
            return self.generate.mixed(contexts, roles, seeds)


def can_mix(model: PeftModel) -> bool:
    """Whether the rows of one batch may have different adapters: all are plain LoRA, and none is merged.

    PEFT refuses this for DoRA and other variants and for merged weights, and supports only one adapter that trains
    biases, whole modules or tokens.
    """
    configs: list[Any] = list(model.peft_config.values())
    for config in configs:
        plain = isinstance(config, LoraConfig) and config.bias == "none"
        if not plain or config.modules_to_save or config.trainable_token_indices:
            return False
    layers: list[Any] = [module for module in model.modules() if isinstance(module, BaseTunerLayer)]
    return all(type(layer).__name__ in _MIXABLE and not layer.merged and not layer.lora_variant for layer in layers)


def load_role_policies(
    folder: str | Path,
    model: str | Path | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    **sampling: Any,
) -> tuple[PeftModel, Mapping[str, GenerateFn]]:
    """Loads the policies of a run with `role_adapters`, from its saved model or a checkpoint.

    Args:
        folder: has a folder with the adapter of each role, and the tokenizer.
        model: the id or folder of the base model; the one that the adapters name if `None`.
        device: of the model; if `None`, it stays where it was loaded.
        trust_remote_code: whether code in the base model's repository is run.
        **sampling: as in `hf_credit.policies.generation.sampler`.

    Returns:
        The model with all adapters, and the samplers of the roles, as an `Engine` takes them.

    Raises:
        ValueError: the folder has no adapters of roles, or files lack a tensor.
    """
    found = role_folders(folder)
    if not found:
        raise ValueError(
            f"a folder of role policies must hold a folder with {ADAPTER_CONFIG} for each role, got {folder} without "
            "any; pass the folder of a run with role_adapters."
        )
    loading: Any = {"dtype": "auto", "trust_remote_code": trust_remote_code}
    base: Any = load_base(found[0], **loading) if model is None else load_model(model, **loading)
    for path in found:
        base = load_adapter(base, path, path.name)
    policies: PeftModel = base
    if device is not None:
        policies.to(device)
    policies.eval()
    tokenizer = load_tokenizer(folder, trust_remote_code)
    return policies, role_samplers(policies, [path.name for path in found], tokenizer, **sampling)


def role_samplers(
    model: PeftModel, roles: Iterable[str], tokenizer: PreTrainedTokenizerBase, **sampling: Any
) -> Mapping[str, GenerateFn]:
    """The samplers of the roles of a model that is not being trained; a batch may mix roles if `can_mix` holds.

    Args:
        model: has an adapter for each of the roles.
        tokenizer, **sampling: as in `hf_credit.policies.generation.sampler`.
    """
    new: Any = functools.partial(sampler, model, tokenizer, **sampling)  # type: ignore[arg-type]
    alone = {role: RoleSampler(new(), model, role) for role in roles}
    return MixedRoles(alone, new(), model) if can_mix(model) else alone
