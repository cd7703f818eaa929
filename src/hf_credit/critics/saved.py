"""Critics as a method asks for them: new ones, and those that training saved beside a policy, to be asked again."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from peft import LoraConfig, PeftConfig, PeftModel
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_credit.critics.belief_head import BeliefHead
from hf_credit.critics.critic import Critic, CriticConfig
from hf_credit.critics.specs import CriticSpec
from hf_credit.critics.weights import weights_file
from hf_credit.loading import load_adapter, load_model
from hf_credit.rollouts.method_context import CriticInput


def make_critic(
    spec: CriticSpec,
    name: str,
    backbone: str | PreTrainedModel | LoraConfig,
    policy: Any,
    tokenizer: PreTrainedTokenizerBase,
    config: CriticConfig,
    max_tokens: int | None = None,
    accelerator: Accelerator | None = None,
    model_init_kwargs: dict[str, Any] | None = None,
) -> Critic | BeliefHead:
    """A new critic that says what a method's spec of it asks for.

    Args:
        spec, name: of the critic, as in `Method`.
        backbone, policy, tokenizer, max_tokens, model_init_kwargs: as for `Critic`.
        config: how it is trained; its loss is that of the spec.
        accelerator: of the run; `None` for a process that is alone with the policy, and stays where that is.

    Raises:
        ValueError: as for `Critic`.
    """
    accelerator = accelerator or cast(Accelerator, _Alone(policy.device))
    if spec.output == "beliefs":
        return BeliefHead(policy, cast(int, tokenizer.pad_token_id), accelerator, config, spec.slots, max_tokens)
    if spec.output == "probability":
        config = dataclasses.replace(config, loss="cross_entropy")
    return Critic(backbone, policy, tokenizer, accelerator, config, model_init_kwargs, name, max_tokens)


class SavedCritic:
    """Says what a saved critic says of inputs, as for `hf_credit.rollouts.LocalContext`; loaded when first asked.

    It lies where the policy lies.

    Args:
        folder: of a policy.
        policy: the policy itself, loaded.
        tokenizer: the policy's.
        name: of the critic, as in `Method.critics`.
        kind: what it says, as in `Method.critic_specs`.
        model: the backbone, where it was named in training.
        max_tokens: of a text it reads the last so many, as in training; all if `None`.
    """

    def __init__(
        self,
        folder: str | Path,
        policy: Any,
        tokenizer: PreTrainedTokenizerBase,
        name: str = "critic",
        *,
        kind: CriticSpec | None = None,
        model: str | None = None,
        max_tokens: int | None = None,
    ) -> None:
        self.folder, self.policy, self.tokenizer, self.name = Path(folder), policy, tokenizer, name
        self.kind, self.model, self.max_tokens = kind or CriticSpec(), model, max_tokens
        self._critic: Critic | BeliefHead | None = None

    def __call__(self, inputs: Sequence[CriticInput]) -> list[tuple[float, ...]]:
        if self._critic is None:
            self._critic = self._load()
        return self._critic(inputs)

    def _load(self) -> Critic | BeliefHead:
        # The weights of a backbone are saved whole, so any model of its kind will hold them: the policy is one.
        policy, backbone = self.policy, cast(Any, self.model or str(self.folder))
        if self._is_adapter():
            # What transformers loads with an adapter is no PEFT model, to which another adapter could be added.
            policy = policy if isinstance(policy, PeftModel) else self._peft_policy()
            backbone = policy.peft_config[policy.active_adapter]
        config = CriticConfig(gradient_checkpointing=False)
        critic = make_critic(self.kind, self.name, backbone, policy, self.tokenizer, config, self.max_tokens)
        critic.load(self.folder, self.name)
        return critic

    def _is_adapter(self) -> bool:
        if self.kind.output == "beliefs" or not has_critic(self.folder, self.name):
            return False
        of_adapter = re.compile(rf"\.{re.escape(self.name)}(\.|$)")
        with safe_open(weights_file(self.folder, self.name), "pt") as weights:  # type: ignore[no-untyped-call]
            return any(of_adapter.search(key) for key in weights.keys())  # noqa: SIM118 (not a mapping)

    def _peft_policy(self) -> PeftModel:
        base = load_model(str(PeftConfig.from_pretrained(str(self.folder)).base_model_name_or_path), dtype="auto")
        return load_adapter(base.to(self.policy.device), self.folder)


def has_critic(folder: str | Path, name: str = "critic") -> bool:
    """Whether a folder holds a critic of this name; an id on the Hub does not."""
    return weights_file(folder, name).is_file()


class _Alone:
    """What critics ask of accelerate, for a process that is alone with one policy, on any device.

    accelerate itself knows one device a process and one way to train, which whoever came first has chosen: a policy
    that is diagnosed on another device, after a training in the same process, would be met by critics that lie on the
    first.
    """

    distributed_type = DistributedType.NO
    mixed_precision = "no"
    num_processes = 1
    process_index = 0
    is_main_process = True

    def __init__(self, device: torch.device) -> None:
        self.device = torch.device(device)

    def autocast(self) -> AbstractContextManager[None]:
        return nullcontext()

    def reduce(self, tensor: Tensor, reduction: str) -> Tensor:
        return tensor

    def gather(self, tensor: Tensor) -> Tensor:
        return tensor
