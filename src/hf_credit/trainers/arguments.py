"""What a trainer is handed, checked before a model is loaded."""

from __future__ import annotations

from typing import Any, cast

from transformers import AutoTokenizer, PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState

from hf_credit.environments import ENVIRONMENTS, Environment
from hf_credit.rollouts import Chat, EnvironmentInteraction, EveryEpisodeFailedError, Interaction, Start
from hf_credit.rollouts.dry_run import dry_run, first_rows, require_room
from hf_credit.trainers.config import refuse_short_dataset


def require(interaction: Any, args: Any, config: type) -> None:
    """Refuses what is no Interaction, and settings of another class.

    Args:
        interaction, args: the trainer's.
        config: the class that its settings must be of.

    Raises:
        TypeError: what to pass instead.
    """
    require_config(args, config)
    if not isinstance(interaction, Interaction):
        raise TypeError(
            f"interaction must be an Interaction, got {_named(interaction)}; pass "
            + (
                f"EnvironmentInteraction({_made(interaction)})."
                if isinstance(interaction, Environment | str)
                else "a Collaboration, an EnvironmentInteraction or another Interaction."
            )
        )


def require_environment(environment: Any) -> None:
    """Refuses what is no Environment, nor an Interaction with one.

    Raises:
        TypeError: what to pass instead.
    """
    if not isinstance(environment, Environment | EnvironmentInteraction):
        if isinstance(environment, Interaction):
            remedy = "take CreditTrainer with another method, as an oracle verifies the actions of a game"
        else:
            remedy = f"pass {_made(environment)}"
        raise TypeError(f"environment must be an Environment, got {_named(environment)}; {remedy}.")


def require_config(args: Any, wanted: type) -> None:
    """Refuses settings of another class, such as TRL's own.

    Raises:
        TypeError: which class they must be of.
    """
    if not isinstance(args, wanted):
        raise TypeError(
            f"args must be a {wanted.__name__}, got a {type(args).__name__}; make one with the same settings, as it "
            "takes those of TRL's GRPOConfig too."
        )


def tokenizer_of(model: Any, args: Any) -> PreTrainedTokenizerBase:
    """The tokenizer of a model id or of a model."""
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        model if isinstance(model, str) else model.config._name_or_path,
        revision=cast(dict[str, Any], args.model_init_kwargs or {}).get("revision"),
        padding_side="left",
        trust_remote_code=args.trust_remote_code,
    )
    return tokenizer


def check_rows(
    args: Any,
    chat: Chat,
    interaction: Interaction[Any],
    train_dataset: Any,
    evaluated: Interaction[Any],
    eval_dataset: Any,
) -> None:
    """Plays the first task row of each dataset without the policy, as `hf_credit.rollouts.dry_run.dry_run` does.

    Args:
        args: the settings.
        chat: renders.
        interaction, train_dataset: what is trained on.
        evaluated, eval_dataset: what is evaluated on; of several evaluation datasets each.

    Raises:
        ValueError: there are too few for an update.
        DryRunError: the task's own code raised.
    """
    refuse_short_dataset(train_dataset, args)
    for name, played, dataset in (("training", interaction, train_dataset), ("evaluation", evaluated, eval_dataset)):
        for row in first_rows(dataset):
            dry_run(played, chat, Start(task=row), f"the first task row of the {name} dataset")


def require_room_for_rows(trainer: Any, dataset: Any) -> None:
    """Refuses a limit of contexts that none of the first rows fits, as `hf_credit.rollouts.dry_run.require_room` does.

    Raises:
        ValueError: none fits.
    """
    starts = (Start[Any](task=row) for row in first_rows(dataset, 8))
    require_room(trainer.interaction, trainer.chat, starts, trainer.engine.max_context_tokens)


class StopOnFailedEvaluation(TrainerCallback):
    """Stops a run whose evaluation measured nothing, because each of its episodes ended as an error.

    Args:
        trainer: whose engine knows the failures.
    """

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_evaluate(
        self,
        args: Any,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Raises on every process, as metrics are the same on all."""
        if (metrics or {}).get("eval_endings/error") == 1:
            latest = self.trainer.engine.failures.latest
            raise EveryEpisodeFailedError(
                "some episode of an evaluation must come to an end, got errors alone, the last of this process "
                f"{latest!r}; mend the code that the traceback names."
            ) from latest


def _named(value: Any) -> str:
    kind = type(value).__name__
    return f"the str {value!r}" if isinstance(value, str) else f"an object of type {kind}"


def _made(value: Any) -> str:
    if isinstance(value, str):
        return f"hf_credit.make({value if value in ENVIRONMENTS else 'name'!r})"
    return "the environment" if isinstance(value, Environment) else "hf_credit.make('name')"
