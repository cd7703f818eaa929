"""`hf-credit diagnose`: is the credit of a policy's decisions any good?"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hf_credit.cli.evaluate import spec_for, warn_of_own_replies, warn_unlike
from hf_credit.cli.options import (
    AsJson,
    BatchSizeOption,
    DatasetOption,
    DeviceOption,
    EnvironmentOptions,
    FirstTaskOption,
    HistoryOption,
    InstructionsOption,
    MaxNewTokensOption,
    MaxTurnsOption,
    OracleOption,
    OracleOptions,
    RoleModels,
    SplitOption,
    TaskOption,
    TopKOption,
    TopPOption,
    TrustOption,
    given,
    named_oracle,
    parse_options,
    parse_role_models,
    typed_code,
)
from hf_credit.cli.progress import Progress, print_table

if TYPE_CHECKING:
    from hf_credit.diagnostics.diagnosis import Diagnosis
    from hf_credit.diagnostics.training_credit import TrainingDiagnosis
    from hf_credit.methods import Method

PROTOCOLS = ("buckets", "training")


def diagnose(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder with a policy, or an id on the Hub.")],
    beside: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="Another policy to set beside it; give it several times."),
    ] = None,
    task: TaskOption = None,
    episodes: Annotated[
        int | None,
        typer.Option(help="Tasks to draw decisions from; 256, or all of a dataset, if left out.", min=1),
    ] = None,
    dataset: DatasetOption = None,
    split: SplitOption = "test",
    option: EnvironmentOptions = None,
    protocol: Annotated[
        str,
        typer.Option(
            help="buckets: replies are laid out for every method; training: a method plays an update of its own."
        ),
    ] = "buckets",
    method: Annotated[
        list[str] | None,
        typer.Option(help="A method, or module:factory, whose credit to measure too; give it several times."),
    ] = None,
    method_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the one method that is named.")
    ] = None,
    buckets: Annotated[int, typer.Option(help="Decisions to look at (S).", min=1)] = 100,
    candidates: Annotated[int, typer.Option(help="Different replies to compare at each (J).", min=1)] = 8,
    replays: Annotated[int, typer.Option(help="Replays of each reply (c).", min=1)] = 4,
    value_actions: Annotated[
        int, typer.Option(help="Further replies for the baseline alone (J_V); 0: no estimated fidelity.", min=0)
    ] = 8,
    event: Annotated[
        list[str] | None, typer.Option(help="Look at this event type only; give it several times.")
    ] = None,
    credit_replays: Annotated[
        int, typer.Option(help="Replays that credit is made of where the others make the target.", min=1)
    ] = 1,
    common_random_numbers: Annotated[
        bool, typer.Option(help="Whether replays of different replies meet the same randomness.")
    ] = True,
    exact: Annotated[
        float | None,
        typer.Option(
            metavar="FLOOR",
            help="True values too, by enumeration of all replies at least this probable; for tiny policies.",
        ),
    ] = None,
    attempts: Annotated[
        int, typer.Option(help="Episodes at each task for pass@k, and a greedy one; 0 plays none.", min=0)
    ] = 10,
    oracle: OracleOption = None,
    oracle_option: OracleOptions = None,
    role_model: RoleModels = None,
    history: HistoryOption = None,
    instructions: InstructionsOption = None,
    max_turns: MaxTurnsOption = None,
    max_new_tokens: MaxNewTokensOption = None,
    temperature: Annotated[float | None, typer.Option(help="Of the sampling. As in training.")] = None,
    top_p: TopPOption = None,
    top_k: TopKOption = None,
    first_task: FirstTaskOption = 0,
    seed: Annotated[int, typer.Option(help="Of the choice of decisions and of the sampling.", min=0)] = 0,
    batch_size: BatchSizeOption = 256,
    device: DeviceOption = None,
    trust_remote_code: TrustOption = False,
    examples: Annotated[int, typer.Option(help="Decisions to write out in full.", min=0)] = 12,
    output: Annotated[
        Path | None, typer.Option(help="The folder to write; `diagnosis` in the model's folder if left out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tries other replies at decisions of a policy, and tells how good credit for them would be.

    At each decision several replies are replayed to the end. What they lead to says what each was worth; the table
    says how well the credit of methods agrees with that, how much it varies, how far messages influence their answers,
    and what went wrong. Tables, plots, numbers, example decisions and all replays are written to a folder. Measured
    are the method that the policy was trained with, C3, MAGRPO, outcome reward, VPR where there is an oracle, and
    those that are named.

    With `--protocol training` the method plays an update with its own collector on `--episodes` tasks, and the credit
    that its decisions get is held against replays of them.

    \b
    Examples:
      hf-credit diagnose runs/relay_micro --exact 1e-4
      hf-credit diagnose runs/relay_micro --beside runs/relay_micro_mappo --beside runs/relay_micro_magrpo
      hf-credit diagnose runs/sudoku_vpr --buckets 50 --replays 8 --attempts 0
      hf-credit diagnose runs/math_c3 --dataset math500.jsonl --event reasoner --buckets 64 --episodes 200
      hf-credit diagnose runs/sudoku_vpr --protocol training --episodes 64
      hf-credit diagnose runs/relay_micro --protocol training --method magrpo --method-option group_size=4
    """
    from hf_credit.cli.quiet import be_quiet

    be_quiet()  # before the libraries that have something to say when they are imported
    from hf_credit.diagnostics.bucket_sampling import BucketPlan
    from hf_credit.diagnostics.diagnosis import mean_with_interval
    from hf_credit.diagnostics.diagnosis_report import write_diagnosis
    from hf_credit.diagnostics.saved import (
        Tasks,
        diagnose_model,
        diagnose_model_training,
        replies_at_most,
        training_replies_at_most,
    )
    from hf_credit.diagnostics.training_report import write_training_credit
    from hf_credit.evaluation.plots import require_matplotlib

    if protocol not in PROTOCOLS:
        raise ValueError(f"a protocol must be one of {', '.join(PROTOCOLS)}, got {protocol!r}; pick one.")
    models = [model, *(beside or [])]
    if len(set(models)) < len(models):
        raise ValueError(f"policies must be different, got {', '.join(models)}; name each once.")
    if output is None and not Path(model).is_dir():
        raise ValueError(f"a diagnosis of a policy from the Hub needs --output, got {model!r} without; name a folder.")
    options = parse_options(option)
    shown = given(history=history, instructions=instructions, max_turns=max_turns)
    drawn = given(max_new_tokens=max_new_tokens, temperature=temperature, top_p=top_p, top_k=top_k)
    setups = []
    for one in models:
        setup = spec_for(one, task, options, trust_remote_code, typed_code([*(method or []), *(method_option or [])]))
        setups.append(replace(setup, **shown, sampling=replace(setup.sampling, **drawn)))
        warn_unlike(setups[-1], setup, one)
    plan = BucketPlan(
        buckets=buckets,
        candidates=candidates,
        replays=replays,
        value_actions=value_actions,
        events=tuple(event or ()),
        draws=8 * candidates,
        common_random_numbers=common_random_numbers,
        seed=seed,
    )
    judge = named_oracle(oracle, oracle_option)
    speakers = parse_role_models(role_model)
    asked = _methods(method, method_option)
    tasks = Tasks(episodes=episodes, first_task=first_task, dataset=dataset, split=split)
    mean_with_interval([0.0, 1.0])  # what is missing is told before the work, not after it
    if protocol == "training":
        if judge is not None:
            raise ValueError(
                f"--oracle judges the replies of buckets, got {oracle!r} for the credit of training, whose method "
                "knows its own; leave it out."
            )
        measured: list[TrainingDiagnosis] = []
        with Progress() as progress:
            for one, setup in zip(models, setups, strict=True):
                most = training_replies_at_most(plan, setup.build().max_replies or 1)
                bar = progress.task(f"replies of {one}", most)
                measured += diagnose_model_training(
                    one,
                    setup,
                    plan,
                    tasks=tasks,
                    methods=asked,
                    exact_floor=exact,
                    role_models=speakers,
                    max_concurrent=batch_size,
                    device=device,
                    trust_remote_code=trust_remote_code,
                    on_replies=bar.advance,
                )
                bar.finish()
        path = write_training_credit(measured, output or Path(model) / "diagnosis")
        (_print_training_json if as_json else _print_training)(measured)
        typer.echo(f"Wrote {path}", err=as_json)
        warn_of_own_replies(measured[0].about if measured else {})
        return
    require_matplotlib()
    found: list[Diagnosis] = []
    with Progress() as progress:
        for one, setup in zip(models, setups, strict=True):
            most = setup.build().max_replies or 1
            bar = progress.task(f"replies of {one}", replies_at_most(episodes or 256, most, plan, attempts))
            found.append(
                diagnose_model(
                    one,
                    setup,
                    plan,
                    tasks=tasks,
                    methods=asked,
                    attempts=attempts,
                    credit_replays=credit_replays,
                    exact_floor=exact,
                    oracle=judge,
                    role_models=speakers,
                    max_concurrent=batch_size,
                    device=device,
                    trust_remote_code=trust_remote_code,
                    on_replies=bar.advance,
                )
            )
            bar.finish()
    path = write_diagnosis(found, output or Path(model) / "diagnosis", examples)
    (_print_json if as_json else _print_table)(found)
    typer.echo(f"Wrote {path}", err=as_json)
    warn_of_own_replies(found[0].about)


def _methods(names: list[str] | None, options: list[str] | None) -> dict[str, Method]:
    """The named methods by their names.

    Raises:
        ValueError: there is no such method, it refuses an option, or it is not clear whose option it is.
    """
    from hf_credit import methods

    if options and len(names or ()) != 1:
        raise ValueError(
            f"--method-option needs one --method, got {', '.join(names or ()) or 'none'}; name the one that it is of."
        )
    chosen = parse_options(options)
    return {name: methods.make(name, **chosen) for name in names or ()}


def _print_training_json(found: list[TrainingDiagnosis]) -> None:
    from hf_credit.diagnostics.training_report import training_numbers

    typer.echo(json.dumps(training_numbers(found), indent=2))


def _print_training(found: list[TrainingDiagnosis]) -> None:
    from hf_credit.diagnostics.training_report import training_table

    header, rows = training_table(found)
    _print_one("Credit of training", header, rows, int(len({one.name for one in found}) == 1))


def _print_json(found: list[Diagnosis]) -> None:
    from hf_credit.diagnostics.diagnosis_report import numbers

    typer.echo(json.dumps(numbers(found), indent=2))


def _print_table(found: list[Diagnosis]) -> None:
    from hf_credit.diagnostics.diagnosis_report import tables

    for title, (header, rows) in tables(found).items():
        _print_one(title, header, rows, int(len(found) == 1))
    for one in found:
        for label, sentence in one.not_measured.items():
            typer.echo(f"{one.name}, credit of {label}: {sentence}", err=True)


def _print_one(title: str, header: list[str], rows: list[list[str]], named: int) -> None:
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    # Where there is one policy it need not be told apart, and terminals are narrow.
    table = Table(*map(escape, header[named:]), title=title, box=box.SIMPLE_HEAD, title_justify="left")
    for row in rows:
        table.add_row(*map(escape, row[named:]))
    print_table(table)
