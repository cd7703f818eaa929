"""A critic that training saved beside a policy, as a function that diagnoses can ask."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from peft import LoraConfig, PeftConfig, PeftModel
from safetensors import safe_open
from transformers import AutoModelForCausalLM, PreTrainedTokenizerBase

from hf_credit.critics.critic import Critic, CriticConfig
from hf_credit.critics.readings import ReadingCritic
from hf_credit.evaluation.runs import CONFIG_FILE
from hf_credit.policies.generation import room_for_context
from hf_credit.rollouts.runner import Reading
from hf_credit.untrusted import read_yaml

_WEIGHTS = Path("critic") / "critic.safetensors"
_OF_AN_ADAPTER = re.compile(r"\.critic(\.|$)")


def saved_critic(
    folder: str | Path, policy: Any, tokenizer: PreTrainedTokenizerBase, device: str | None = None
) -> Callable[[Sequence[Reading]], list[tuple[float, ...]]] | None:
    """The critic that was trained beside a policy, for the `critics` of a `LocalRunner`.

    It reads as much as in training. It is loaded when it is first asked.

    Args:
        folder: of a policy.
        policy: the policy itself, loaded.
        tokenizer: the policy's.
        device: where it goes, as for the policy.

    Returns:
        `None` where the folder holds no critic: neither an id on the Hub nor a run of a method without one does.
    """
    folder = Path(folder)
    if not (folder / _WEIGHTS).is_file():
        return None
    room = room_for_context(policy, _settings(folder).get("max_completion_length", 0))

    @functools.cache
    def critic() -> ReadingCritic:
        return ReadingCritic(_load(folder, policy, tokenizer, device), room)

    return lambda readings: critic()(readings)


def _load(folder: Path, policy: Any, tokenizer: PreTrainedTokenizerBase, device: str | None) -> Critic:
    accelerator = Accelerator(cpu=str(device or policy.device).startswith("cpu"))
    backbone: str | LoraConfig
    with safe_open(folder / _WEIGHTS, "pt") as weights:  # type: ignore[no-untyped-call]
        is_adapter = any(_OF_AN_ADAPTER.search(name) for name in weights.keys())  # noqa: SIM118 (not a mapping)
    if is_adapter:
        # What transformers loads with an adapter is no PEFT model, to which another adapter could be added.
        policy = policy if isinstance(policy, PeftModel) else _peft_policy(folder, accelerator)
        config = policy.peft_config[policy.active_adapter]
        assert isinstance(config, LoraConfig)
        backbone = config
    else:
        # The weights of a backbone are saved whole, so any model of its kind will hold them: the policy is one.
        backbone = _settings(folder).get("critic_model") or str(folder)
    critic = Critic(backbone, policy, tokenizer, accelerator, CriticConfig(gradient_checkpointing=False))
    critic.load(folder)
    return critic


def _peft_policy(folder: Path, accelerator: Accelerator) -> PeftModel:
    base = AutoModelForCausalLM.from_pretrained(
        PeftConfig.from_pretrained(str(folder)).base_model_name_or_path, dtype="auto"
    )
    return PeftModel.from_pretrained(base.to(accelerator.device), str(folder))


def _settings(folder: Path) -> dict[str, Any]:
    """The settings of the run, none where there are none beside the policy."""
    path = folder / CONFIG_FILE
    values = read_yaml(path) if path.is_file() else None
    return values if isinstance(values, dict) else {}
