"""New critics for a method, and critics that training saved in a policy's folder."""

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
from peft import LoraConfig, PeftModel
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_credit.critics.belief_head import BeliefHead
from hf_credit.critics.critic import Critic, CriticConfig
from hf_credit.critics.inputs import CriticSpec
from hf_credit.critics.weights import weights_file
from hf_credit.loading import load_adapter, load_base
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
    """Returns a new critic for a spec of a method.

    Args:
        spec, name: as in `Method.critic_specs`.
        backbone, policy, tokenizer, max_tokens, model_init_kwargs: as for `Critic`.
        config: the training settings; the spec determines the loss.
        accelerator: the accelerator of the run; `None` for a single process on the device of the policy.

    Raises:
        ValueError: as for `Critic`.
    """
    accelerator = accelerator or cast(Accelerator, _SingleProcess(policy.device))
    if spec.output == "beliefs":
        return BeliefHead(policy, cast(int, tokenizer.pad_token_id), accelerator, config, spec.slots, max_tokens)
    if spec.output == "probability":
        config = dataclasses.replace(config, loss="cross_entropy")
    return Critic(backbone, policy, tokenizer, accelerator, config, model_init_kwargs, name, max_tokens)


@dataclasses.dataclass(eq=False, repr=False)
class SavedCritic:
    """A saved critic for `hf_credit.rollouts.LocalContext`, loaded on first use onto the device of the policy.

    Args:
        folder: the folder of the policy.
        name: the name of the critic, as in `Method.critics`.
        kind: what it predicts, as in `Method.critic_specs`; a value if `None`.
        model: the id or folder of its backbone, if training was given one.
        max_tokens: only the last so many tokens of a text are read, as in training; all if `None`.
    """

    folder: str | Path
    policy: Any
    tokenizer: PreTrainedTokenizerBase
    name: str = "critic"
    _: dataclasses.KW_ONLY
    kind: CriticSpec | None = None
    model: str | None = None
    max_tokens: int | None = None

    def __post_init__(self) -> None:
        self._kind = self.kind or CriticSpec()
        self._critic: Critic | BeliefHead | None = None

    def __call__(self, inputs: Sequence[CriticInput]) -> list[tuple[float, ...]]:
        """Returns the predictions at each position of each input."""
        if self._critic is None:
            self._critic = self._load()
        return self._critic(inputs)

    def _load(self) -> Critic | BeliefHead:
        # All weights of a backbone are saved, so any model of its architecture, such as the policy, can load them.
        policy, backbone = self.policy, cast(Any, self.model or str(self.folder))
        if self._is_adapter():
            # transformers loads an adapter without a PeftModel, which a second adapter needs.
            if not isinstance(policy, PeftModel):
                policy = load_adapter(load_base(self.folder, dtype="auto").to(policy.device), self.folder)
            backbone = policy.peft_config[policy.active_adapter]
        config = CriticConfig(gradient_checkpointing=False)
        critic = make_critic(self._kind, self.name, backbone, policy, self.tokenizer, config, self.max_tokens)
        critic.load(self.folder, self.name)
        return critic

    def _is_adapter(self) -> bool:
        if self._kind.output == "beliefs" or not has_critic(self.folder, self.name):
            return False
        of_adapter = re.compile(rf"\.{re.escape(self.name)}(\.|$)")
        with safe_open(weights_file(self.folder, self.name), "pt") as weights:  # type: ignore[no-untyped-call]
            return any(of_adapter.search(key) for key in weights.keys())  # noqa: SIM118 (not a mapping)


def has_critic(folder: str | Path, name: str = "critic") -> bool:
    """Returns whether a local folder holds a critic of this name."""
    return weights_file(folder, name).is_file()


class _SingleProcess:
    """The members of `Accelerator` that critics use, for a single process on any device.

    An `Accelerator` shares its state with all others of the process, so a policy that is diagnosed after a training in
    the same process could not use another device.
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
