"""What a trainer is handed, checked before a model is loaded."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import Any, cast

from datasets import Dataset
from peft import PeftModel
from transformers import AutoTokenizer, PreTrainedTokenizerBase, TrainerCallback, TrainerControl, TrainerState
from transformers.integrations import INTEGRATION_TO_CALLBACK, get_available_reporting_integrations
from trl import add_response_schema

from hf_credit.environments import ENVIRONMENTS, Environment
from hf_credit.rollouts import Chat, EnvironmentInteraction, EveryEpisodeFailedError, Interaction, RolloutRequest
from hf_credit.rollouts.capabilities import ReadsTokens, TaskSource
from hf_credit.rollouts.dry_run import dry_run, first_rows, require_room
from hf_credit.rollouts.samplers import require_untrained
from hf_credit.trainers.config import refuse_short_dataset, tasks_per_update

_HELD_OUT_TASKS = 256  # as `hf-credit evaluate` plays them


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


def require_samplers(interaction: Interaction[Any], args: Any, samplers: Mapping[str, Any]) -> None:
    """Refuses samplers of roles that the policy has to speak for.

    Args:
        interaction, args: the trainer's.
        samplers: by role.

    Raises:
        ValueError: something is learned from a role, or roles have adapters.
    """
    require_untrained(interaction, samplers)
    if samplers and args.role_adapters is not None:
        raise ValueError(
            f"role_adapters speak for every role, got samplers of {', '.join(samplers)} beside them; leave one out."
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
    """The tokenizer of a model id or of a model.

    Raises:
        ValueError: the model was made in memory and knows no folder.
    """
    name = model if isinstance(model, str) else model.config._name_or_path
    if not name:
        raise ValueError(
            "the tokenizer of a model made in memory must be given, got none; pass processing_class=, or save both "
            "and pass the folder."
        )
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
        name,
        revision=cast(dict[str, Any], args.model_init_kwargs or {}).get("revision"),
        padding_side="left",
        trust_remote_code=args.trust_remote_code,
    )
    return tokenizer


def read_calls_of(tokenizer: PreTrainedTokenizerBase, interaction: Interaction[Any]) -> None:
    """Gives a tokenizer the `response_template` of its chat template, where TRL knows it and tool calls are read as
    tokens. It is saved with the policy, so that an evaluation reads them alike."""
    if ReadsTokens(interaction).reads_tokens and getattr(tokenizer, "response_template", None) is None:
        with suppress(ValueError):  # a template that TRL does not know
            add_response_schema(tokenizer)


@contextmanager
def reference_at_hand(model: Any, args: Any, adapted: bool) -> Iterator[None]:
    """Within, a model made in memory has a folder: TRL loads the reference policy from where the model is from.

    Args:
        model: as a trainer was handed it.
        args: the settings.
        adapted: whether an adapter is put on it, without which it is its own reference.
    """
    if not args.beta or adapted or isinstance(model, str | PeftModel) or model.config._name_or_path:
        yield
        return
    with TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        model.config._name_or_path = folder
        try:
            yield
        finally:
            model.config._name_or_path = ""


def training_tasks(interaction: Interaction[Any], args: Any) -> Dataset:
    """What is trained on where no rows are given: the Interaction's own training tasks, for `max_steps` updates.

    Raises:
        ValueError: it has none.
    """
    try:
        return TaskSource(interaction).tasks("train", tasks_per_update(args) * max(args.max_steps, 1))
    except ValueError as error:
        raise ValueError(
            f"the training dataset must hold task rows, got none for {interaction.name!r}, which has no tasks of its "
            "own; pass train_dataset=."
        ) from error


def held_out_tasks(interaction: Interaction[Any], args: Any) -> Dataset | None:
    """What is evaluated on where evaluation is wanted and no rows are given: held-out tasks of the Interaction's own.

    Raises:
        ValueError: it has none.
    """
    if args.eval_strategy == "no":
        return None
    try:
        return TaskSource(interaction).tasks("held_out", _HELD_OUT_TASKS)
    except ValueError:
        raise ValueError(
            f"an evaluation during training needs task rows, got eval_strategy={args.eval_strategy.value!r} for "
            f"{interaction.name!r}, which has no tasks of its own; pass eval_dataset=, or leave eval_strategy out."
        ) from None


def require_trackers(args: Any) -> None:
    """Refuses trackers that are not installed, before anything is loaded.

    Raises:
        ValueError: how to get them.
    """
    installed = get_available_reporting_integrations()
    missing = [name for name in args.report_to if name in INTEGRATION_TO_CALLBACK and name not in installed]
    if missing:
        raise ValueError(
            f"report_to must name trackers that are installed, got {', '.join(missing)}; run pip install "
            f"{' '.join(missing)}, or set report_to to none."
        )


def require_vllm(args: Any) -> None:
    """Refuses settings that generate with vLLM where it is not installed.

    Raises:
        ImportError: how to get it.
    """
    if getattr(args, "use_vllm", False) and importlib.util.find_spec("vllm") is None:
        raise ImportError(
            "use_vllm needs vLLM, got none installed; run pip install 'hf-credit[vllm]', or set use_vllm to false."
        )


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
            dry_run(played, chat, RolloutRequest(task=row), f"the first task row of the {name} dataset")


def require_room_for_rows(trainer: Any, dataset: Any) -> None:
    """Refuses a limit of contexts that none of the first rows fits, as `hf_credit.rollouts.dry_run.require_room` does.

    Raises:
        ValueError: none fits.
    """
    starts = (RolloutRequest[Any](task=row) for row in first_rows(dataset, 8))
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
        errors = (value for name, value in (metrics or {}).items() if name.endswith("_endings/error"))
        if any(share == 1 for share in errors):  # of one of several evaluation sets, too
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
