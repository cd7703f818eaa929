"""Checks the arguments of a trainer before a model is loaded, and fills in those that are left out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from datasets import Dataset
from peft import PeftModel
from transformers import TrainerCallback
from transformers.integrations import INTEGRATION_TO_CALLBACK, get_available_reporting_integrations

from hf_credit.environments import ENVIRONMENTS, Environment
from hf_credit.files import OwnFolder
from hf_credit.loading import load_processing_class, require_whole_files
from hf_credit.optional_packages import how_to_install
from hf_credit.rollouts import Chat, EveryEpisodeFailedError, Interaction, RolloutRequest, Row
from hf_credit.rollouts.capabilities import ContextStyle, Replayable, TaskSource, TrainedRoles, evaluated
from hf_credit.rollouts.dry_run import dry_run, first_rows
from hf_credit.rollouts.samplers import require_untrained
from hf_credit.trust import installed
from hf_credit.validators import one_of

logger = logging.getLogger(__name__)

_HELD_OUT_TASKS = 256  # as `hf-credit evaluate` plays them
_ONE_ROW = "importance_sampling_level='sequence' needs episodes of one row"


def require(interaction: Any, args: Any, config: type) -> None:
    """Checks the types of a trainer's Interaction and settings."""
    require_config(args, config)
    if isinstance(interaction, Interaction):
        return
    got = f"an object of type {type(interaction).__name__}"
    remedy = "a Collaboration, an EnvironmentInteraction or another Interaction"
    if isinstance(interaction, str):
        name = interaction if interaction in ENVIRONMENTS else "name"
        got, remedy = f"the str {interaction!r}", f"EnvironmentInteraction(hf_credit.make({name!r}))"
    elif isinstance(interaction, Environment):
        remedy = "EnvironmentInteraction(the environment)"
    raise TypeError(f"interaction must be an Interaction, got {got}; pass {remedy}.")


def require_samplers(interaction: Interaction[Any], args: Any, samplers: Mapping[str, Any]) -> None:
    """Refuses samplers of roles whose replies must come from the policy."""
    require_untrained(interaction, samplers)
    if samplers and args.role_adapters is not None:
        raise ValueError(
            f"role_adapters reply for every role, got samplers of {', '.join(samplers)} as well; leave one out."
        )


def require_one_row(interaction: Interaction[Any], args: Any) -> None:
    """Refuses an Interaction whose episodes are several rows, if the settings use the ratio of sequences."""
    if args.importance_sampling_level != "sequence":
        return
    untrained = TrainedRoles(interaction).untrained
    learning = [role for role in interaction.roles if role not in untrained]
    if len(learning) > 1:
        raise ValueError(f"{_ONE_ROW}, got the roles {', '.join(learning)}; take 'token'.")
    if (history := ContextStyle(interaction).history) != "append":
        raise ValueError(f"{_ONE_ROW}, got history={history!r}; take history='append', or 'token'.")


def refuse_several_rows(rows_of: Sequence[Sequence[Row]]) -> None:
    """Refuses episodes of several rows."""
    most = max(map(len, rows_of), default=0)
    if most > 1:
        raise ValueError(f"{_ONE_ROW}, got {most}, as a context does not extend the one before; take 'token'.")


def require_config(args: Any, wanted: type) -> None:
    """Checks the class of a trainer's settings, which may be TRL's own by mistake."""
    if not isinstance(args, wanted):
        base = next(one.__name__ for one in wanted.__mro__ if one.__module__.startswith("trl."))
        raise TypeError(
            f"args must be of class {wanted.__name__}, got {type(args).__name__}; make one with the same settings, as "
            f"it also takes those of TRL's {base}."
        )


def tokenizer_of(model: Any, args: Any) -> Any:
    """Loads the tokenizer of a model id or of a model, or the processor of one that sees.

    Raises:
        ValueError: the model was made in memory, so no folder has its tokenizer.
    """
    name = model if isinstance(model, str) else model.config._name_or_path
    if not name:
        raise ValueError(
            "a model made in memory needs a tokenizer, got none; pass processing_class=, or save both and pass the "
            "folder."
        )
    return load_processing_class(name, args.trust_remote_code, (args.model_init_kwargs or {}).get("revision"))


@contextmanager
def reference_at_hand(model: Any, args: Any, adapted: bool) -> Iterator[None]:
    """Context in which TRL can make a reference policy: a model made in memory has a folder to load it from, and of
    adapters of roles none is copied, as the reference is the base model."""
    if args.role_adapters is not None and isinstance(model, PeftModel):
        beta, args.beta = args.beta, 0.0
        try:
            yield
        finally:
            args.beta = beta
        return
    if not args.beta or adapted or isinstance(model, str | PeftModel) or model.config._name_or_path:
        yield
        return
    with OwnFolder() as folder:
        model.save_pretrained(folder)
        model.config._name_or_path = str(folder)
        try:
            yield
        finally:
            model.config._name_or_path = ""


def prepare_roles(args: Any, interaction: Interaction[Any], model: Any, peft_config: Any) -> dict[str, Any]:
    """Checks how roles learn, and returns the arguments of vLLM's engine; see `role_adapters.prepare_roles`."""
    refuse_schedule(args)
    if args.role_adapters is None:
        return {}
    from hf_credit.trainers import role_adapters

    return role_adapters.prepare_roles(args, interaction, model, peft_config)


def refuse_schedule(args: Any) -> None:
    """Refuses a schedule of roles that cannot be followed."""
    one_of("role_schedule", args.role_schedule, ("synchronous", "alternating"))
    if args.role_schedule == "synchronous":
        return
    if args.role_adapters is None:
        raise ValueError(
            "role_schedule='alternating' must go with role_adapters, got None, with which all roles share one policy; "
            "name the roles, or use 'synchronous'."
        )
    generated = getattr(args, "steps_per_generation", 1) * getattr(args, "num_iterations", 1)
    if generated % args.gradient_accumulation_steps and args.gradient_accumulation_steps % generated:
        raise ValueError(
            f"updates of alternating roles must not straddle generations, got {generated} slices of a generation and "
            f"{args.gradient_accumulation_steps} of an update; make one a multiple of the other."
        )
    updates = max(1, generated // args.gradient_accumulation_steps)
    if args.switch_every % updates:
        raise ValueError(
            f"switch_every must be a multiple of the updates for each generation ({updates} here), got "
            f"{args.switch_every}; change one of them."
        )


def training_tasks(interaction: Interaction[Any], args: Any) -> Dataset:
    """Returns the Interaction's own training tasks, enough for `max_steps` updates.

    Raises:
        ValueError: the Interaction has none.
    """
    try:
        return TaskSource(interaction).tasks("train", args.generation_batch_size * max(args.max_steps, 1))
    except ValueError as error:
        raise ValueError(
            f"training needs task rows, got none for {interaction.name!r}, which has no tasks of its own; pass "
            "train_dataset=."
        ) from error


def held_out_tasks(interaction: Interaction[Any], args: Any) -> Dataset | None:
    """Returns the Interaction's own held-out tasks; `None` if `eval_strategy` asks for no evaluation.

    Raises:
        ValueError: the Interaction has none.
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
    """Checks that the trackers of `report_to` are installed."""
    installed = get_available_reporting_integrations()
    missing = [name for name in args.report_to if name in INTEGRATION_TO_CALLBACK and name not in installed]
    if missing:
        raise ValueError(
            f"report_to must name trackers that are installed, got {', '.join(missing)}; run pip install "
            f"{' '.join(missing)}, or set report_to to none."
        )


def require_vllm(args: Any) -> None:
    """Checks that vLLM is installed if the settings use it, and waits for its server."""
    if not args.use_vllm:
        return
    from hf_credit.trainers.vllm import wait_for_server

    wait_for_server(args)
    if not installed("vllm"):
        raise ImportError(
            f"use_vllm needs vLLM, got none installed; run {how_to_install('vllm')}, or set use_vllm to false."
        )


def prepare(
    trainer: Any,
    model: Any,
    interaction: Interaction[Any],
    args: Any,
    train_dataset: Any,
    eval_dataset: Any,
    tokenizer: Any,
    evaluation_interaction: Interaction[Any] | None,
) -> tuple[Any, Any]:
    """Gives a trainer its Interactions and its `chat`, and checks its task rows and the files of its model.

    The first task row of each dataset is played without the policy, by `hf_credit.rollouts.dry_run.dry_run`.

    Returns:
        The task rows of the evaluation, and the config of a model that is loaded from files.

    Raises:
        ValueError: the training rows are too few for an update, or the files of the model lack a tensor.
        DryRunError: the task's own code raised an error.
    """
    tokenizer = tokenizer_of(model, args) if tokenizer is None else tokenizer
    of_text = "vLLM" if getattr(args, "use_vllm", True) else "a critic" if trainer.method.critics else ""
    if of_text and (inner := getattr(tokenizer, "tokenizer", None)) is not None:
        logger.warning("%s reads text alone here, so that a message with an image ends its episode.", of_text)
        tokenizer = inner
    trainer.interaction, trainer.chat = interaction, Chat(tokenizer, args.chat_template_kwargs)
    args.chat_template_kwargs = trainer.chat.template_kwargs or None  # the date, too; the policy is saved with these
    evaluation = evaluated(interaction) if evaluation_interaction is None else evaluation_interaction
    trainer.evaluation_interaction = evaluation
    eval_dataset = held_out_tasks(evaluation, args) if eval_dataset is None else eval_dataset
    if isinstance(train_dataset, Dataset) and len(train_dataset) < (needed := args.generation_batch_size):
        raise ValueError(
            f"the training dataset must have a row for each task of a generation, got {len(train_dataset)} rows for "
            f"{needed} tasks; add rows, or lower instances_per_update or steps_per_generation."
        )
    for name, played, dataset in (("training", interaction, train_dataset), ("evaluation", evaluation, eval_dataset)):
        for row in first_rows(dataset):
            dry_run(played, trainer.chat, RolloutRequest(task=row), f"the first task row of the {name} dataset")
    if getattr(trainer.method.collector, "replaying", False) or args.starts is not None:
        Replayable(interaction).check_repeats(first_rows(train_dataset, 8))
    if not isinstance(model, str):
        return eval_dataset, None
    loading = {"trust_remote_code": args.trust_remote_code, **(args.model_init_kwargs or {})}
    return eval_dataset, require_whole_files(model, **loading)


class StopOnFailedEvaluation(TrainerCallback):
    """Stops a run if all episodes of an evaluation ended in errors, so that it measured nothing."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        """Raises on every process, as all have the same metrics."""
        errors = (value for name, value in (metrics or {}).items() if name.endswith("_endings/error"))
        if any(share == 1 for share in errors):  # also of one of several evaluation sets
            latest = self.trainer.engine.failures.latest
            raise EveryEpisodeFailedError(
                "at least one episode of an evaluation must end without an error, got errors only, the latest of this "
                f"process {latest!r}; fix the code that the traceback names."
            ) from latest
