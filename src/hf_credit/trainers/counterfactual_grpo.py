"""`CounterfactualGRPOTrainer`, the preset of paper CCPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hf_credit.methods.counterfactual_grpo import PAPER
from hf_credit.rollouts import Interaction
from hf_credit.trainers.preset import OPTION, PresetConfig, PresetTrainer


@dataclass
class CounterfactualGRPOConfig(PresetConfig, method="counterfactual_grpo"):
    """The paper's settings (CCPO, Table 4 and Appendix B); see `docs/paper_index.md` for each.

    Fields with the default `OPTION` are options of `hf_credit.methods.counterfactual_grpo.counterfactual_grpo`.

    Args:
        role_adapters: `None` gives every role of the team an adapter if the schedule is alternating, and all roles
            one policy if it is synchronous.
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

    role_schedule: str = "alternating"
    instances_per_update: int | None = 64
    beta: float = 0.0
    temperature: float = 1.0
    max_completion_length: int = 2048
    max_context_tokens: int | None = 4096


class CounterfactualGRPOTrainer(PresetTrainer):
    """Trains each agent of a team on its marginal contribution to the team's outcome.

    The team plays several episodes of each task row, and each of them again without each agent: messages before the
    agent's stay, agents that read it reply anew, and votes are counted again. The difference of the outcomes (eq. 1),
    normalised by running moments (eqs. 2 to 4) and within the task row (eq. 5), is the advantage of all tokens of the
    agent's message (eq. 6). The reward of the last speaker of a sequence mixes its outcomes in the team and alone
    (Appendix B.2).

    Each agent has an adapter of its own on the one base model. The agents learn in turns.

    Args:
        interaction: a team, such as `hf_credit.collaborations.make("think_solve", ...)` or `"voting"`, or any
            Interaction that can be played without a role.
        args: the settings; the paper's if `None`.
        model, train_dataset, **kwargs: as in [`CreditTrainer`], such as `peft_config`, the adapter of each agent.

    Raises:
        ValueError: a setting is out of range, or the method does not fit the team.
    """

    _name = "CCPO"
    _tag_names = ["trl", "hf-credit", "ccpo"]  # noqa: RUF012 (TRL's own convention)
    _paper = PAPER
    config_class = CounterfactualGRPOConfig

    @staticmethod
    def prepared(interaction: Interaction[Any], args: CounterfactualGRPOConfig) -> Interaction[Any]:
        args.method().bind(interaction)  # refuses an Interaction that is no team, before its adapters are checked
        if args.role_adapters is None and args.role_schedule == "alternating":
            args.role_adapters = list(interaction.roles)
        return interaction
