"""Policies that share one base model: every role has an adapter of its own on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftConfig, PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from hf_credit.loading import ADAPTER_CONFIG, load_adapter, load_model, role_folders
from hf_credit.policies.generation import Replies, sampler
from hf_credit.rollouts import GenerateFn, Generation

_MIXABLE = ("Linear", "Embedding", "Linear4bit", "Linear8bitLt")  # PEFT's layers over torch's and bitsandbytes'


def use_adapter(model: PeftModel, name: str) -> None:
    """Makes an adapter the one that a model reads and writes with.

    What is trained of the model stays as it is, while PEFT's own `set_adapter` would freeze every other adapter.

    Args:
        model: has the adapter.
        name: of the adapter.
    """
    trained = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    model.set_adapter(name)
    for parameter, flag in trained:
        parameter.requires_grad_(flag)


@contextmanager
def using(model: PeftModel, name: str) -> Iterator[PeftModel]:
    """`use_adapter` within, where the model is given, and the adapter of before afterwards, after an error as well."""
    before = model.active_adapter
    use_adapter(model, name)
    try:
        yield model
    finally:
        use_adapter(model, before)


class RoleSampler:
    """A `GenerateFn` of one role: another one, called while the role's adapter is in use.

    Args:
        generate: samples from the model, for this role alone if it remembers keys and values. Where it has a method
            `seeded`, so has this one.
        model: has the adapter.
        role: the name of the role and of its adapter.
    """

    def __init__(self, generate: GenerateFn, model: PeftModel, role: str) -> None:
        self.generate = generate
        self.model = model
        self.role = role
        self.seeded = self._seeded if getattr(generate, "seeded", None) is not None else None

    def __call__(self, contexts: Sequence[Sequence[int]]) -> Sequence[Generation]:
        with using(self.model, self.role):
            return self.generate(contexts)

    def _seeded(self, contexts: Sequence[Sequence[int]], seeds: Sequence[int | None]) -> Sequence[Generation]:
        with using(self.model, self.role):
            return self.generate.seeded(contexts, seeds)  # type: ignore[attr-defined]


class MixedRoles(Mapping[str, GenerateFn]):
    """The `GenerateFn` of each role, and replies of several roles in one call of the model, `together`.

    Args:
        alone: the sampler of each role, which remembers what that role alone was asked.
        generate: samples for several, and remembers what they were asked together.
        model: has their adapters, and `can_mix` holds for it.
    """

    def __init__(self, alone: Mapping[str, GenerateFn], generate: Replies, model: PeftModel) -> None:
        self.alone = dict(alone)
        self.generate = generate
        self.model = model

    def __getitem__(self, role: str) -> GenerateFn:
        return self.alone[role]

    def __iter__(self) -> Iterator[str]:
        return iter(self.alone)

    def __len__(self) -> int:
        return len(self.alone)

    def together(
        self, roles: Sequence[str], contexts: Sequence[Sequence[int]], seeds: Sequence[int | None] | None
    ) -> Sequence[Generation]:
        """The reply of each role to its context.

        Args:
            roles: who replies to each context.
            contexts: at least one.
            seeds: one for each context, `None` where it names no random numbers; or none at all.
        """
        if len(set(roles)) == 1:
            own: Any = self.alone[roles[0]]
            return own(contexts) if seeds is None else own.seeded(contexts, seeds)
        with using(self.model, roles[0]):
            return self.generate.mixed(contexts, roles, seeds)


def can_mix(model: PeftModel) -> bool:
    """Whether one pass of a model may read rows with different adapters: all are plain LoRA, and none is merged.

    PEFT refuses it for DoRA and other variants and for merged weights, and knows one adapter alone for biases, other
    modules and tokens that are trained whole.
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
    model: str | Any | None = None,
    device: str | None = None,
    trust_remote_code: bool = False,
    **sampling: Any,
) -> tuple[PeftModel, Mapping[str, GenerateFn]]:
    """The policies of a run with `role_adapters`, as its `save_model` or a checkpoint of it left them.

    Args:
        folder: holds a folder for each role, with its adapter, and the tokenizer.
        model: the base model, or its id or folder; the one that the adapters name if `None`.
        device: where the model goes; it stays where it was loaded if `None`.
        trust_remote_code: whether code that lies beside the base model is run.
        **sampling: as in `hf_credit.policies.generation.sampler`.

    Returns:
        The model with all adapters, and the sampler of each role, which an `Engine` takes as they are.

    Raises:
        ValueError: the folder holds no adapters of roles, or files lack a tensor.
    """
    found = role_folders(folder)
    if not found:
        raise ValueError(
            f"a folder of role policies must hold a folder with {ADAPTER_CONFIG} for each role, got {folder} without "
            "any; name one that a trainer with role_adapters saved."
        )
    if model is None:
        model = PeftConfig.from_pretrained(str(found[0])).base_model_name_or_path
    base: Any = model
    if isinstance(model, str | Path):
        base = load_model(model, dtype="auto", trust_remote_code=trust_remote_code)
    for path in found:
        base = load_adapter(base, path, path.name)
    policies: PeftModel = base
    if device is not None:
        policies.to(device)
    policies.eval()
    tokenizer = AutoTokenizer.from_pretrained(str(folder), padding_side="left", trust_remote_code=trust_remote_code)
    return policies, role_samplers(policies, [path.name for path in found], tokenizer, **sampling)


def role_samplers(
    model: PeftModel, roles: Iterable[str], tokenizer: PreTrainedTokenizerBase, **sampling: Any
) -> Mapping[str, GenerateFn]:
    """The sampler of each role of a model that nobody is training, all in one call where `can_mix` holds.

    Args:
        model: has an adapter of each role.
        roles: their names.
        tokenizer, **sampling: as in `hf_credit.policies.generation.sampler`.
    """

    def new() -> Any:
        return sampler(model, tokenizer, **sampling)  # type: ignore[arg-type]

    alone = {one: RoleSampler(new(), model, one) for one in roles}
    return MixedRoles(alone, new(), model) if can_mix(model) else alone
