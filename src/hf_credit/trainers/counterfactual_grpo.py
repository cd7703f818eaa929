"""`CounterfactualGRPOTrainer`, the preset of paper CCPO."""

from __future__ import annotations

from typing import Any

from hf_credit.rollouts import Interaction
from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.preset import Preset, PresetTrainer


class CounterfactualGRPOConfig(
    Preset,
    CreditConfig,
    method="counterfactual_grpo",
    defaults={
        "role_schedule": "alternating",
        "instances_per_update": 64,
        "beta": 0.0,
        "temperature": 1.0,
        "max_completion_length": 2048,
        "max_context_tokens": 4096,
    },
):
    """The paper's settings (CCPO, Table 4 and Appendix B); see `docs/paper_index.md` for each.

    The options of `hf_credit.methods.counterfactual_grpo.counterfactual_grpo` are fields. `role_adapters=None` gives
    every role of the team an adapter if the schedule is alternating, and all roles one policy if it is synchronous.
    """

    def complete(self, interaction: Interaction[Any]) -> None:
        self.method().bind(interaction)  # refuses an Interaction that is no team, before its adapters are checked
        if self.role_adapters is None and self.role_schedule == "alternating":
            self.role_adapters = list(interaction.roles)


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
    config_class = CounterfactualGRPOConfig
