"""`TruncatedPPOTrainer`: the method of paper T3, ready-made: PPO, GRPO or GSPO over turns, cut at belief traps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hf_credit.collectors import RolloutBatch
from hf_credit.methods import DecisionCredit, Method, make
from hf_credit.methods.base import paper
from hf_credit.methods.t3 import CUTS, Rule, Truncated, hypotheses_left, make_rule
from hf_credit.rollouts import Interaction
from hf_credit.trainers.preset import OPTION, PresetConfig, PresetTrainer, mapping
from hf_credit.validators import one_of

PAPER = paper("T3: Reducing Belief Deviation in Reinforcement Learning for Active Reasoning", arxiv="2510.12264")

# What the paper sets for each algorithm (section C.3): weight of the KL penalty, clipping, episodes of a task.
ALGORITHMS: dict[str, dict[str, Any]] = {
    "ppo": {"beta": 0.001, "epsilon": 0.2, "epsilon_high": 0.2, "group_size": 1},
    "grpo": {"beta": 0.001, "epsilon": 0.2, "epsilon_high": 0.2, "group_size": 5},
    "gspo": {"beta": 0.0, "epsilon": 0.0003, "epsilon_high": 0.0004, "group_size": 5},
}

# Settings that go with a rule alone, as they are without one.
OF_A_RULE: dict[str, Any] = {
    "truncation_options": {},
    "window": None,
    "min_progress": None,
    "cut": "hard",
    "train_stalled": True,
    "cut_value": "zero",
}


@dataclass
class TruncatedPPOConfig(PresetConfig, method="ppo"):
    """The paper's settings (T3, section C.3); see `docs/paper_index.md` for each.

    Args:
        algorithm: `"ppo"`, `"grpo"` or `"gspo"`. It sets `beta`, `epsilon`, `epsilon_high` and `group_size` where
            these are left out, and the ratio of `importance_sampling_level`.
        truncation: the rule that cuts, as for `hf_credit.methods.t3.make_rule`: one of `RULES` there, or
            `"module:factory"`. `None` trains without: the plain algorithm over many turns. So does `"none"`, as on a
            command line, which also takes back what a recipe says of its rule.
        truncation_options: its options, a mapping.
        window, min_progress: of the rule, in place of its own.
        cut: `"hard"`, `"soft"` or `"mask"`, and
        train_stalled: whether replies that stalled are trained on; both as for `hf_credit.methods.t3.Truncated`.
        cut_value: of PPO, the value behind a hard cut, `"zero"` or `"bootstrap"`, as for
            `hf_credit.methods.ppo.TokenAdvantages`.
        group_size: episodes of each task row.
        gamma, lam, gae_level, whiten: of PPO, as for `hf_credit.methods.ppo.ppo`.
        advantage_eps: of GRPO and GSPO, added to the deviation of a group.
    """

    algorithm: str = field(default="ppo", metadata={"help": "ppo, grpo or gspo."})
    truncation: str | None = field(default=None, metadata={"help": "The rule that cuts, or module:factory; or none."})
    truncation_options: dict | str | None = field(default=None, metadata={"help": "Its options, a mapping."})
    window: int | None = field(default=None, metadata={"help": "How many steps must stall; the rule's own if None."})
    min_progress: float | None = field(
        default=None, metadata={"help": "What a step must reach not to stall; the rule's own if None."}
    )
    cut: str = field(default="hard", metadata={"help": "hard: stop; soft: ask for the answer; mask: no loss after."})
    train_stalled: bool = field(default=True, metadata={"help": "Whether replies that stalled are trained on."})
    cut_value: str = field(default="zero", metadata={"help": "PPO's value behind a cut: zero or bootstrap."})
    group_size: int | None = field(default=None, metadata={"help": "Episodes of each task; 1 for PPO, else 5."})
    gamma: float = OPTION
    lam: float = OPTION
    gae_level: str = OPTION
    whiten: bool = OPTION
    advantage_eps: float = field(default=1e-6, metadata={"help": "Added to the deviation of a group."})

    beta: float | None = None  # type: ignore[assignment]
    epsilon: float | None = None  # type: ignore[assignment]
    epsilon_high: float | None = None
    importance_sampling_level: str | None = None  # type: ignore[assignment]
    aggregation: str = "sequence"
    max_steps: int = 200
    learning_rate: float = 1e-6
    lr_scheduler_type: str = "constant"
    temperature: float = 1.0
    top_p: float = 0.95
    max_completion_length: int = 512

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
        if self.truncation == "none":  # a command line has no null, and cannot take a recipe's fields out
            self.truncation = None
            for name, value in OF_A_RULE.items():
                setattr(self, name, value)
        self.truncation_options = self._options()
        super().__post_init__()
        if self.truncation is None:
            self._refuse_what_only_a_rule_has()
        else:
            one_of("cut", self.cut, CUTS)
        if self.cut_value != "zero" and self.algorithm != "ppo":
            raise ValueError(
                f"cut_value={self.cut_value!r} asks a critic, got algorithm={self.algorithm!r}, which has none; take "
                "ppo, or leave it out."
            )
        if self.cut_value != "zero" and self.cut != "hard":
            raise ValueError(
                f"cut_value={self.cut_value!r} is of an episode that a cut stops, got cut={self.cut!r}, which plays "
                "on; take a hard cut, or leave it out."
            )
        self.rule()  # refuses its own settings

    def method(self) -> Method:
        """The method that these settings make."""
        if self.algorithm != "ppo":
            return make(self.algorithm, group_size=self.group_size, eps=self.advantage_eps)
        return super().method()

    def rule(self) -> Rule | None:
        """The rule that cuts, `None` without truncation.

        Raises:
            ValueError: its name or an option is not possible.
        """
        if self.truncation is None:
            return None
        own = {"window": self.window, "min_progress": self.min_progress}
        options = {**self._options(), **{name: value for name, value in own.items() if value is not None}}
        return make_rule(self.truncation, **options)

    def truncated(self, interaction: Interaction[Any]) -> Interaction[Any]:
        """What training plays in place of an Interaction.

        Raises:
            ValueError: the rule is of another task, or the cut is not possible.
        """
        rule = self.rule()
        return interaction if rule is None else Truncated(interaction, rule, self.cut, self.train_stalled)

    def _options(self) -> dict[str, Any]:
        return dict(mapping("truncation_options", self.truncation_options, '{"ties": true}') or {})

    def _refuse_what_only_a_rule_has(self) -> None:
        for name, value in OF_A_RULE.items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name} is of a rule that cuts, got {getattr(self, name)!r} without truncation; name the rule, "
                    "or leave it out."
                )


class TruncatedPPOTrainer(PresetTrainer):
    """Trains an agent that asks and answers over many turns, with trajectories cut where its belief is trapped.

    An episode is played turn by turn; a rule says after each whether it still makes progress. Where it does not, the
    episode is cut, so that the tail neither costs tokens nor spoils the credit of what came before (section 2,
    Corollary 1). Credit is PPO's, by a critic over tokens (eq. 61), or that of the group (GRPO, eq. 62; GSPO, eq. 64).
    Evaluation is never cut.

    Without a rule this is PPO, GRPO or GSPO over many turns, on any Interaction.

    Args:
        model: a model id, a model or a PEFT model, as in TRL.
        interaction: what is played, uncut.
        args: the settings; the paper's if `None`.
        train_dataset: task rows; the Interaction's own training tasks if `None`.
        **kwargs: as in [`CreditTrainer`].

    Raises:
        ValueError: a setting is out of range, or the rule or the cut is not for this Interaction.
    """

    _name = "T3"
    _tag_names = ["trl", "hf-credit", "t3"]  # noqa: RUF012 (TRL's own convention)
    _paper = PAPER
    config_class = TruncatedPPOConfig

    @staticmethod
    def prepared(interaction: Interaction[Any], args: TruncatedPPOConfig) -> Interaction[Any]:
        return args.truncated(interaction)

    def credit(self, collected: RolloutBatch) -> Mapping[str, DecisionCredit]:
        if self.model.training:
            sizes = self.ranks.gather(hypotheses_left(self.interaction, collected.episodes))
            if sizes:
                self.log_metric("beliefs/hypotheses", sum(sizes) / len(sizes))
        return super().credit(collected)
