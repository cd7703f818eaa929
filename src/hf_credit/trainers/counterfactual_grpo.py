"""`CounterfactualGRPOTrainer`: the method of paper CCPO, ready-made."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel

from hf_credit.methods import Method, make
from hf_credit.methods.counterfactual_grpo import PAPER, counterfactual_grpo
from hf_credit.rollouts import Interaction
from hf_credit.trainers import arguments
from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.credit import CreditTrainer


@dataclass
class CounterfactualGRPOConfig(CreditConfig):
    """The paper's settings (CCPO, Table 4 and Appendix B); see `docs/paper_index.md` for each.

    Args:
        group_size, reward, use_history, decay, order, min_samples, alpha, eta, eps, variance_floor, solver_signal,
            solo_pairing, allocation, cut_replies, train_solo, bonus, bonus_weight: as for
            `hf_credit.methods.counterfactual_grpo.counterfactual_grpo`.
        role_adapters: `None` stands for every role of the team while the schedule is alternating, and for one policy
            for all roles while it is synchronous.
    """

    group_size: int = field(default=4, metadata={"help": "Whole episodes of each task row."})
    reward: str = field(default="counterfactual", metadata={"help": "counterfactual, shared or bonus."})
    use_history: bool = field(default=True, metadata={"help": "False: contributions as they are, without moments."})
    decay: float = field(default=0.99, metadata={"help": "Of the moving averages of moments."})
    order: str = field(default="current", metadata={"help": "current or previous moments shape a batch."})
    min_samples: int = field(default=50, metadata={"help": "Rollouts seen before moments shape anything."})
    alpha: float = field(default=1.0, metadata={"help": "Sensitivity of the shaping."})
    eta: float = field(default=1.0, metadata={"help": "Sharpness of the last speaker's trust."})
    eps: float = field(default=1e-6, metadata={"help": "Added to deviations."})
    variance_floor: float = field(default=1e-6, metadata={"help": "Deviation 1 at variances up to this."})
    solver_signal: str = field(default="fused", metadata={"help": "Of the last speaker: fused or joint."})
    solo_pairing: str = field(default="index", metadata={"help": "index, mean or common."})
    allocation: str = field(default="direct", metadata={"help": "direct, or weighted for some votes."})
    cut_replies: str = field(default="score", metadata={"help": "score, or zero for a reward of 0."})
    train_solo: bool = field(default=False, metadata={"help": "Whether replies without the others are trained on."})
    bonus: str = field(default="events", metadata={"help": "With reward bonus: events or difference."})
    bonus_weight: float = field(default=0.2, metadata={"help": "With reward bonus: its weight."})

    role_schedule: str = field(default="alternating", metadata={"help": "alternating or synchronous."})
    instances_per_update: int | None = field(default=64, metadata={"help": "Task rows of one update."})
    beta: float = 0.0
    temperature: float = 1.0
    max_completion_length: int = 2048
    max_context_tokens: int | None = 4096

    def __post_init__(self) -> None:
        super().__post_init__()
        self.method()  # refuses its own settings

    def method(self) -> Method:
        """The method that these settings make."""
        names = inspect.signature(counterfactual_grpo).parameters
        return make("counterfactual_grpo", **{name: getattr(self, name) for name in names})


class CounterfactualGRPOTrainer(CreditTrainer):
    """Trains a team, each agent on what the team gains by it.

    Of each task row the team plays several episodes, and the same without each agent: what was said before it stays,
    what was said by those who heard it is said anew, and a vote is counted again. What the team gained by the agent
    (eq. 1), in remembered moments (eqs. 2 to 4), compared within the task row (eq. 5), is the advantage of all tokens
    of the agent's message (eq. 6). The last speaker of a sequence is rewarded by a mixture of what it achieves in
    company and alone (Appendix B.2).

    Each agent has an adapter of its own on the one base model. One learns at a time, by turns.

    Args:
        model: a model id, a model or a PEFT model, as in TRL.
        interaction: a team, such as `hf_credit.collaborations.make("think_solve", ...)` or `"voting"`, or any
            Interaction that says what it is without a role.
        args: the settings; the paper's if `None`.
        train_dataset: task rows; the Interaction's own training tasks if `None`.
        **kwargs: as in [`CreditTrainer`], such as `peft_config`, the adapter of each agent.

    Raises:
        ValueError: a setting is out of range, or the method does not fit the team.
    """

    _name = "CCPO"
    _tag_names = ["trl", "hf-credit", "ccpo"]  # noqa: RUF012 (TRL's own convention)
    _paper = PAPER

    def __init__(
        self,
        model: str | PreTrainedModel,
        interaction: Interaction[Any],
        args: CounterfactualGRPOConfig | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        **kwargs: Any,
    ) -> None:
        args = args or CounterfactualGRPOConfig()
        arguments.require(interaction, args, CounterfactualGRPOConfig)
        method = args.method().bind(interaction)  # refuses what is no team before adapters are asked for
        if args.role_adapters is None and args.role_schedule == "alternating":
            args.role_adapters = list(interaction.roles)
        super().__init__(model, interaction, args, train_dataset, method=method, **kwargs)
