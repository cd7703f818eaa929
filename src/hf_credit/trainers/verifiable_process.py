"""`VerifiableProcessTrainer`, the preset of paper VPR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel

from hf_credit.environments import Environment
from hf_credit.methods import Method, make
from hf_credit.methods.verifiable_process import PAPER
from hf_credit.oracles import OracleLike
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit.rollouts.environment_interaction import HISTORIES
from hf_credit.trainers import arguments
from hf_credit.trainers.credit import CreditTrainer
from hf_credit.trainers.preset import OPTION, PresetConfig
from hf_credit.validators import one_of


@dataclass
class VerifiableProcessConfig(PresetConfig, method="verifiable_process"):
    """The paper's settings (VPR, Appendix F), where its text gives them; see `docs/paper_index.md` for each.

    Fields with the default `OPTION` are options of `hf_credit.methods.verifiable_process.verifiable_process`.

    Args:
        history: `"append"` shows the policy the whole conversation, `"rendered"` what the chat template keeps of it
            (mostly no earlier thoughts), `"current"` the current observation only.
        instructions: whether prompts open with the environment's instructions.
        max_turns: maximum number of actions of an episode; the environment's limit if `None`.
    """

    gamma: float = OPTION
    min_active: int = OPTION
    state_group_size: int = OPTION
    commit: str = OPTION
    whiten: bool = OPTION
    bonus: float = OPTION
    history: str = "append"
    instructions: bool = True
    max_turns: int | None = None

    instances_per_update: int | None = 128
    max_steps: int = 100
    lr_scheduler_type: str = "cosine"
    warmup_steps: float = 5
    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("history", self.history, HISTORIES)

    def method(self, oracle: OracleLike | None = None) -> Method:
        """The method with the options of these settings.

        Args:
            oracle: verifies the actions; the environment's own if `None`.
        """
        return make(self.method_name, **self.method_options(), oracle=oracle)


class VerifiableProcessTrainer(CreditTrainer):
    """Trains an agent with a reward for every turn, normalised over the trajectories still active at that turn.

    The loss is the clipped surrogate of the paper's eq. 5, a mean over the tokens of an update; each token has the
    advantage of its decision.

    Args:
        model: a model id, a model or a PEFT model, as in TRL.
        environment: an Environment, or an `EnvironmentInteraction` with its own `history`, `instructions` and
            `max_turns`.
        args: the settings; the paper's if `None`.
        train_dataset: task rows (see `hf_credit.environments.tasks`); the environment's training tasks if `None`.
        oracle: verifies the actions; the environment's own if `None`.
        **kwargs: as in [`CreditTrainer`].

    Raises:
        ValueError: the oracle does not fit the environment, the dataset lacks a column that a task needs, or a
            setting is out of range.
    """

    _name = "VPR"
    _tag_names = ["trl", "hf-credit", "vpr"]  # noqa: RUF012 (TRL's own convention)
    _paper = PAPER

    def __init__(
        self,
        model: str | PreTrainedModel,
        environment: Environment[Any] | EnvironmentInteraction,
        args: VerifiableProcessConfig | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        oracle: OracleLike | None = None,
        **kwargs: Any,
    ) -> None:
        args = args or VerifiableProcessConfig()
        arguments.require_environment(environment)
        arguments.require_config(args, VerifiableProcessConfig)
        if isinstance(environment, EnvironmentInteraction):
            interaction = environment
        else:
            interaction = EnvironmentInteraction(environment, args.history, args.instructions, args.max_turns)
        for dataset in (train_dataset, kwargs.get("eval_dataset")):
            interaction.require_columns(getattr(dataset, "column_names", None))
        self.environment = interaction.environment
        super().__init__(model, interaction, args, train_dataset, method=args.method(oracle), **kwargs)
