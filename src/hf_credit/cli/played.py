"""The options of `evaluate`, `diagnose` and `warm-up` for the task and the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_credit.cli.options import (
    DatasetOption,
    DeviceOption,
    EnvironmentOptions,
    OracleOptions,
    SplitOption,
    given,
    named_oracle,
    parse_options,
)
from hf_credit.trust import NO_CONSENT, Consent, search_here

if TYPE_CHECKING:
    from hf_credit.oracles import Oracle
    from hf_credit.tasks import TaskSpec

ModelArgument = Annotated[str, typer.Argument(metavar="MODEL", help="A folder with a policy, or an id on the Hub.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the numbers as JSON on stdout.")]


@dataclass(frozen=True, kw_only=True)
class Prompted:
    """Options of a command for the task, its prompts and its sampling: each field is one, with its default."""

    task: Annotated[
        str | None,
        typer.Option(
            "--task",
            "--environment",
            metavar="TASK",
            help="Environment or collaboration; by default as recorded in the model's folder.",
        ),
    ] = None
    option: EnvironmentOptions = None
    history: Annotated[
        str | None,
        typer.Option(
            help="append: prompts contain all earlier turns; rendered: what the chat template keeps of them; current: "
            "only the current observation. By default as in training."
        ),
    ] = None
    instructions: Annotated[
        bool | None, typer.Option(help="Start prompts with the instructions; by default as in training.")
    ] = None
    max_turns: Annotated[
        int | None, typer.Option(help="Maximum number of actions per episode; by default as in training.")
    ] = None
    max_new_tokens: Annotated[
        int | None, typer.Option(help="Maximum length of a reply in tokens; by default as in training.")
    ] = None
    temperature: Annotated[
        float | None, typer.Option(help="Sampling temperature; 0 is greedy. By default as in training.")
    ] = None
    top_p: Annotated[
        float | None, typer.Option(help="Probability mass of nucleus sampling; 1 is off. By default as in training.")
    ] = None
    top_k: Annotated[
        int | None,
        typer.Option(help="Number of likeliest tokens to sample from; 0 is off. By default as in training."),
    ] = None
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code",
            help="Run the code of the model, the task and the method that a policy's folder or repository contains or "
            "names.",
        ),
    ] = False

    def spec(self, model: str, consent: Consent = NO_CONSENT) -> TaskSpec:
        """Returns the task of a policy, changed by these options. Warns on stderr if prompts differ from training.

        Args:
            model: a folder or an id on the Hub.
            consent: to further code that the user named, so that the spec may name it.

        Raises:
            ValueError: as `spec_for`, or an option is invalid.
        """
        from hf_credit.tasks import TaskSpec

        known = spec_for(model, self.task, parse_options(self.option), self.trust_remote_code, consent)
        prompt = given(history=self.history, instructions=self.instructions, max_turns=self.max_turns)
        names = ("max_new_tokens", "temperature", "top_p", "top_k")
        sampling = given(**{name: getattr(self, name) for name in names})
        spec = replace(known, **prompt, sampling=replace(known.sampling, **sampling))
        if (difference := spec.shown_unlike(TaskSpec.load(model), model)) is not None:
            typer.echo(f"Warning: {difference}", err=True)
        return spec


@dataclass(frozen=True, kw_only=True)
class Played(Prompted):
    """Options of a command that plays a task with a policy."""

    dataset: DatasetOption = None
    split: SplitOption = "test"
    first_task: Annotated[int, typer.Option(help="Index of the first task.", min=0)] = 0
    oracle: Annotated[
        str | None, typer.Option(help="Oracle that judges the actions; by default that of the environment.")
    ] = None
    oracle_option: OracleOptions = None
    role_model: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=MODEL", help="Model of an untrained role, such as a judge; repeatable."),
    ] = None
    batch_size: Annotated[int, typer.Option(help="Number of parallel episodes.", min=1)] = 256
    device: DeviceOption = None

    def judge(self) -> Oracle[Any] | None:
        """Makes the oracle of `--oracle`; returns `None` if there is none.

        Raises:
            ValueError: as `named_oracle`.
        """
        return named_oracle(self.oracle, self.oracle_option)

    def loading(self) -> dict[str, Any]:
        """Returns the arguments of `evaluate_model` and `load_subject` for loading and playing the policy."""
        return {
            "role_models": {role: str(name) for role, name in parse_options(self.role_model).items()},
            "max_concurrent": self.batch_size,
            "device": self.device,
            "trust_remote_code": self.trust_remote_code,
        }


def spec_for(
    model: str,
    task: str | None,
    options: dict[str, Any],
    trust_remote_code: bool = False,
    consent: Consent = NO_CONSENT,
) -> TaskSpec:
    """Returns the task spec in a model's folder, with changed options, or the spec of another task.

    Args:
        model: a folder or an id on the Hub.
        task: the name of the task; by default that of the model's spec.
        options: from the user, so they may name code.
        trust_remote_code: whether the model's spec may name code, too.
        consent: to further code that the user named, so that the spec may name it.

    Raises:
        ValueError: the model does not exist, is a run that was stopped, or neither it nor the caller names a task.
    """
    from hf_credit.loading import refuse_stopped, require_model
    from hf_credit.tasks import TASK_FILE, TaskSpec

    require_model(model)
    known = TaskSpec.load(model)
    if known is None:
        refuse_stopped(Path(model))
        if task is None:
            raise ValueError(f"a policy needs a task, got {model!r} without {TASK_FILE}; add --task.")
        return TaskSpec.of_name(task, options)
    known = replace(known, trusted=trust_remote_code, consent=consent.to_code(task))
    if trust_remote_code:
        search_here(known.code())
    if task not in (None, known.name):
        return known.on(task, options)
    return known.with_options(options)


def warn_of_own_replies(about: Mapping[str, Any]) -> None:
    """Warns of untrained roles that the policy itself played."""
    for role, name in about.get("role_models", {}).items():
        if name is None:
            typer.echo(
                f"Warning: the policy itself played the role {role!r}; set --role-model {role}=MODEL.", err=True
            )
