"""`TruncatedPPOTrainer`, the preset of paper T3: PPO, GRPO or GSPO over turns, cut at belief traps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from hf_credit.collectors import RolloutBatch
from hf_credit.methods import DecisionCredit, Method, make
from hf_credit.methods.base import paper
from hf_credit.methods.t3 import hypotheses_left
from hf_credit.options import refuse_without_effect
from hf_credit.safe_io import as_mapping
from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.preset import Preset, PresetTrainer
from hf_credit.validators import one_of

PAPER = paper("T3: Reducing Belief Deviation in Reinforcement Learning for Active Reasoning", arxiv="2510.12264")

ALGORITHMS: dict[str, dict[str, Any]] = {
    "ppo": {"beta": 0.001, "epsilon": 0.2, "epsilon_high": 0.2, "group_size": 1},
    "grpo": {"beta": 0.001, "epsilon": 0.2, "epsilon_high": 0.2, "group_size": 5},
    "gspo": {"beta": 0.0, "epsilon": 0.0003, "epsilon_high": 0.0004, "group_size": 5},
}
"""The paper's settings of each algorithm (section C.3): weight of the KL penalty, clipping, episodes of a task."""

_OF_PPO = ("gamma", "lam", "gae_level", "whiten")


class TruncatedPPOConfig(
    Preset,
    CreditConfig,
    method="ppo",
    defaults={
        "aggregation": "sequence",
        "max_steps": 200,
        "learning_rate": 1e-6,
        "lr_scheduler_type": "constant",
        "temperature": 1.0,
        "top_p": 0.95,
        "max_completion_length": 512,
    },
):
    """The paper's settings (T3, section C.3); see `docs/paper_index.md` for each.

    The options of PPO, `hf_credit.methods.ppo.ppo`, are fields. `truncation` is as for every
    trainer: `None` trains the plain algorithm over many turns. So does `"none"`, as on a command line, which also
    resets the recipe's settings of its rule.

    Args:
        algorithm: `"ppo"`, `"grpo"` or `"gspo"`. It sets `importance_sampling_level`, and those of `beta`, `epsilon`,
            `epsilon_high` and `group_size` that are left out.
        window: how many steps must stall for a cut; the rule's own number if `None`.
        min_progress: progress below which a step stalls; the rule's own number if `None`.
        cut_value: PPO's value after a hard cut, `"zero"` or `"bootstrap"`. As for
            `hf_credit.methods.ppo.TokenAdvantages`.
        group_size: episodes of each task row; 1 for PPO and 5 otherwise if `None`.
        advantage_eps: added to the standard deviation of a group, in GRPO and GSPO.
    """

    of_a_rule: ClassVar[dict[str, Any]] = {
        **CreditConfig.of_a_rule,
        "window": None,
        "min_progress": None,
        "cut_value": "zero",
    }

    algorithm: str = "ppo"
    window: int | None = None
    min_progress: float | None = None
    cut_value: str = "zero"
    group_size: int | None = None
    advantage_eps: float = 1e-6

    beta: float | None = None  # type: ignore[assignment]
    epsilon: float | None = None  # type: ignore[assignment]
    epsilon_high: float | None = None

    def __post_init__(self) -> None:
        one_of("algorithm", self.algorithm, ALGORITHMS)
        for name, value in ALGORITHMS[self.algorithm].items():
            if getattr(self, name) is None:
                setattr(self, name, value)
        level = "sequence" if self.algorithm == "gspo" else "token"
        if self.importance_sampling_level not in (None, level):
            raise ValueError(
                f"importance_sampling_level of {self.algorithm} is {level!r}, got {self.importance_sampling_level!r}; "
                "leave it out, or take the other algorithm."
            )
        self.importance_sampling_level = level
        if self.truncation == "none":  # a command line has no null, and cannot remove a recipe's fields
            self.truncation = None
            for name, value in self.of_a_rule.items():
                setattr(self, name, value)
        self.truncation_options = as_mapping("truncation_options", self.truncation_options, '{"ties": true}')
        super().__post_init__()
        idle = ("advantage_eps",) if self.algorithm == "ppo" else _OF_PPO
        of_others = {name: (getattr(self, name), getattr(type(self), name)) for name in idle}
        refuse_without_effect(f"with algorithm {self.algorithm!r}", **of_others)
        if self.cut_value != "zero" and self.algorithm != "ppo":
            raise ValueError(
                f"cut_value={self.cut_value!r} needs a critic, got algorithm={self.algorithm!r}, which has none; take "
                "ppo, or leave it out."
            )
        if self.cut_value != "zero" and self.cut != "hard":
            raise ValueError(
                f"cut_value={self.cut_value!r} needs a cut that ends the episode, got cut={self.cut!r}, which plays "
                "on; take a hard cut, or leave it out."
            )

    def method(self, **objects: Any) -> Method:
        if self.algorithm != "ppo":
            return make(self.algorithm, group_size=self.group_size, eps=self.advantage_eps)
        return super().method()

    def parts(self) -> dict[str, Any]:
        parts = super().parts()
        if "truncation" in parts:
            rule = {"window": self.window, "min_progress": self.min_progress}
            parts["truncation"]["options"] |= {name: value for name, value in rule.items() if value is not None}
        return parts


class TruncatedPPOTrainer(PresetTrainer):
    """Trains an agent that asks and answers over many turns, with trajectories cut where its belief is trapped.

    After each turn a rule decides whether the episode still makes progress, and cuts it if not: the tail then costs no
    tokens, and does not distort the credit of the turns before it (section 2, Corollary 1). The advantage is PPO's,
    from a critic over tokens (eq. 61), or relative to the group (GRPO, eq. 62; GSPO, eq. 64). Evaluation is never cut.

    Without a rule this is PPO, GRPO or GSPO over many turns, on any Interaction.

    Args:
        interaction: what is played, uncut.
        args: the settings; the paper's if `None`.
        model, train_dataset, **kwargs: as in [`CreditTrainer`].

    Raises:
        ValueError: a setting is out of range, or the rule or the cut does not fit the Interaction.
    """

    _name = "T3"
    _tag_names = ["trl", "hf-credit", "t3"]  # noqa: RUF012 (TRL's own convention)
    _paper = PAPER
    config_class = TruncatedPPOConfig

    def credit(self, collected: RolloutBatch) -> Mapping[str, DecisionCredit]:
        if self.model.training:
            self.context.mean("beliefs/hypotheses", hypotheses_left(self.interaction, collected.episodes))
        return super().credit(collected)
