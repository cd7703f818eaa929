"""`CounterfactualGRPOTrainer`: the method of paper CCPO, ready-made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hf_credit.methods.counterfactual_grpo import PAPER
from hf_credit.rollouts import Interaction
from hf_credit.trainers.preset import OPTION, PresetConfig, PresetTrainer


@dataclass
class CounterfactualGRPOConfig(PresetConfig, method="counterfactual_grpo"):
    """The paper's settings (CCPO, Table 4 and Appendix B); see `docs/paper_index.md` for each.

    Those of `OPTION` are explained at `hf_credit.methods.counterfactual_grpo.counterfactual_grpo`.

    Args:
        role_adapters: `None` stands for every role of the team while the schedule is alternating, and for one policy
            for all roles while it is synchronous.
    """

    group_size: int = OPTION
    reward: str = OPTION
    use_history: bool = OPTION
    decay: float = OPTION
    order: str = OPTION
    min_samples: int = OPTION
    alpha: float = OPTION
    eta: float = OPTION
    eps: float = OPTION
    variance_floor: float = OPTION
    solver_signal: str = OPTION
    solo_pairing: str = OPTION
    allocation: str = OPTION
    cut_replies: str = OPTION
    train_solo: bool = OPTION
    bonus: str = OPTION
    bonus_weight: float = OPTION

    role_schedule: str = field(default="alternating", metadata={"help": "alternating or synchronous."})
    instances_per_update: int | None = field(default=64, metadata={"help": "Task rows of one update."})
    beta: float = 0.0
    temperature: float = 1.0
    max_completion_length: int = 2048
    max_context_tokens: int | None = 4096


class CounterfactualGRPOTrainer(PresetTrainer):
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
    config_class = CounterfactualGRPOConfig

    @staticmethod
    def prepared(interaction: Interaction[Any], args: CounterfactualGRPOConfig) -> Interaction[Any]:
        args.method().bind(interaction)  # refuses what is no team before adapters are asked for
        if args.role_adapters is None and args.role_schedule == "alternating":
            args.role_adapters = list(interaction.roles)
        return interaction
