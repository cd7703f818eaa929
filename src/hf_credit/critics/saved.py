"""A critic that training saved beside a policy, to be asked again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch
from peft import LoraConfig, PeftConfig, PeftModel
from safetensors import safe_open
from transformers import PreTrainedTokenizerBase

from hf_credit.critics.alone import alone_on
from hf_credit.critics.belief_head import BeliefHead
from hf_credit.critics.critic import Critic, CriticConfig
from hf_credit.critics.readings import ReadingCritic
from hf_credit.critics.specs import CriticSpec
from hf_credit.loading import load_adapter, load_model
from hf_credit.rollouts.method_context import CriticInput


class SavedCritic:
    """Says what a saved critic says of readings, as for `hf_credit.rollouts.LocalContext`; loaded when first asked.

    It lies where the policy lies.

    Args:
        folder: of a policy.
        policy: the policy itself, loaded.
        tokenizer: the policy's.
        name: of the critic, as in `Method.critics`.
        kind: what it says, as in `Method.kinds`.
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
        self._where = (Path(folder), policy, tokenizer, name, kind or CriticSpec(), model, max_tokens)
        self._critic: ReadingCritic | BeliefHead | None = None

    def __call__(self, readings: Sequence[CriticInput]) -> list[tuple[float, ...]]:
        if self._critic is None:
            self._critic = _load(*self._where)
        return self._critic(readings)


def has_critic(folder: str | Path, name: str = "critic") -> bool:
    """Whether a folder holds a critic of this name; an id on the Hub does not."""
    return _weights(Path(folder), name).is_file()


def _weights(folder: Path, name: str) -> Path:
    return folder / name / f"{name}.safetensors"


def _load(
    folder: Path,
    policy: Any,
    tokenizer: PreTrainedTokenizerBase,
    name: str,
    kind: CriticSpec,
    model: str | None,
    max_tokens: int | None,
) -> ReadingCritic | BeliefHead:
    accelerator = alone_on(policy.device)
    config = CriticConfig(
        gradient_checkpointing=False, loss="cross_entropy" if kind.output == "probability" else "squared"
    )
    if kind.output == "beliefs":
        head = BeliefHead(policy, cast(int, tokenizer.pad_token_id), accelerator, config, kind.slots, max_tokens)
        head.load(folder, name)
        return head
    backbone: str | LoraConfig
    with safe_open(_weights(folder, name), "pt") as weights:  # type: ignore[no-untyped-call]
        own = re.compile(rf"\.{re.escape(name)}(\.|$)")
        is_adapter = any(own.search(key) for key in weights.keys())  # noqa: SIM118 (not a mapping)
    if is_adapter:
        # What transformers loads with an adapter is no PEFT model, to which another adapter could be added.
        policy = policy if isinstance(policy, PeftModel) else _peft_policy(folder, policy.device)
        own_config = policy.peft_config[policy.active_adapter]
        assert isinstance(own_config, LoraConfig)
        backbone = own_config
    else:
        # The weights of a backbone are saved whole, so any model of its kind will hold them: the policy is one.
        backbone = model or str(folder)
    critic = Critic(backbone, policy, tokenizer, accelerator, config, name=name)
    critic.load(folder, name)
    return ReadingCritic(critic, max_tokens)


def _peft_policy(folder: Path, device: torch.device) -> PeftModel:
    base = load_model(str(PeftConfig.from_pretrained(str(folder)).base_model_name_or_path), dtype="auto")
    return load_adapter(base.to(device), folder)
