"""`VerifiableProcessTrainer`, the preset of paper VPR."""

from __future__ import annotations

from typing import Any

from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel

from hf_credit.environments import Environment
from hf_credit.options import part_of
from hf_credit.oracles import OracleLike
from hf_credit.playing import Prompts
from hf_credit.rollouts import EnvironmentInteraction, Interaction
from hf_credit.rollouts.capabilities import TaskSource
from hf_credit.trainers import arguments
from hf_credit.trainers.config import CreditConfig, PromptSettings
from hf_credit.trainers.credit import CreditTrainer
from hf_credit.trainers.preset import Preset


class VerifiableProcessConfig(
    Preset,
    PromptSettings,
    CreditConfig,
    method="verifiable_process",
    defaults={
        "instances_per_update": 128,
        "max_steps": 100,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 5,
        "temperature": 0.6,
        "top_p": 0.95,
        "top_k": 20,
    },
):
    """The paper's settings (VPR, Appendix F), where its text gives them; see `docs/paper_index.md` for each.

    The options of `hf_credit.methods.verifiable_process.verifiable_process` are fields, and so are those of
    `hf_credit.playing.Prompts`, for an Environment without an Interaction.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        part_of(Prompts, self)  # refuses what does not fit


class VerifiableProcessTrainer(CreditTrainer):
    """Trains an agent with a reward for every turn, normalised over the trajectories still active at that turn.

    The loss is the clipped surrogate of the paper's eq. 5, a mean over the tokens of an update; each token has the
    advantage of its decision.

    Args:
        model: a model id, a model or a PEFT model, as in TRL.
        environment: an Environment; or an Interaction, such as an `EnvironmentInteraction` with its own `history`,
            `instructions` and `max_turns`, a collaboration or a program.
        args: the settings; the paper's if `None`.
        train_dataset: task rows (see `hf_credit.environments.tasks`); the environment's training tasks if `None`.
        oracle: verifies the actions; the task's own if `None`. A judge verifies those of any Interaction.
        **kwargs: as in [`CreditTrainer`].

    Raises:
        ValueError: the oracle does not fit the task, or there is none, the dataset lacks a column that a task needs,
            or a setting is out of range.
    """

    _name = "VPR"
    _tag_names = ["trl", "hf-credit", "vpr"]  # noqa: RUF012 (TRL's own convention)

    def __init__(
        self,
        model: str | PreTrainedModel,
        environment: Environment[Any] | Interaction[Any],
        args: VerifiableProcessConfig | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        oracle: OracleLike | None = None,
        **kwargs: Any,
    ) -> None:
        args = args or VerifiableProcessConfig()
        arguments.require_config(args, VerifiableProcessConfig)
        interaction: Any = environment
        if isinstance(environment, Environment):
            interaction = EnvironmentInteraction(environment, **vars(part_of(Prompts, args)))
        arguments.require(interaction, args, VerifiableProcessConfig)
        for dataset in (train_dataset, kwargs.get("eval_dataset")):
            TaskSource(interaction).require_columns(getattr(dataset, "column_names", None))
        self.environment = getattr(interaction, "environment", None)
        super().__init__(model, interaction, args, train_dataset, method=args.method(oracle=oracle), **kwargs)
