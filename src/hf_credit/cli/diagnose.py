"""`hf-credit diagnose`: is the credit of a policy's decisions any good?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_credit.cli.options import parse_options, typed_code, with_options
from hf_credit.cli.played import AsJson, ModelArgument, Played, warn_of_own_replies
from hf_credit.cli.progress import Progress, print_rows
from hf_credit.validators import one_of

if TYPE_CHECKING:
    from hf_credit.methods import Method

PROTOCOLS = ("buckets", "training", "replays")


@with_options("played", Played)
def diagnose(
    model: ModelArgument,
    beside: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="Another policy to compare with; repeatable."),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(help="Number of tasks to draw decisions from; by default 256, or all of a dataset.", min=1),
    ] = None,
    *,
    played: Played,
    protocol: Annotated[
        str,
        typer.Option(
            help="buckets: the same replies for every method; training: each method plays its own update; "
            "replays: the possible gain of replays, without any."
        ),
    ] = "buckets",
    method: Annotated[
        list[str] | None,
        typer.Option(help="A further method, or module:factory, whose credit to measure; repeatable."),
    ] = None,
    method_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the named method, if there is one.")
    ] = None,
    buckets: Annotated[int, typer.Option(help="Number of decisions (S).", min=1)] = 100,
    candidates: Annotated[int, typer.Option(help="Different replies to compare at each decision (J).", min=1)] = 8,
    replays: Annotated[int, typer.Option(help="Replays of each reply (c).", min=1)] = 4,
    value_actions: Annotated[
        int,
        typer.Option(
            help="Further replies only for the baseline (J_V); with 0 there is no estimated fidelity.", min=0
        ),
    ] = 8,
    event: Annotated[list[str] | None, typer.Option(help="Only this event type; repeatable.")] = None,
    credit_replays: Annotated[
        int, typer.Option(help="Number of replays that credit is computed from; the others give the target.", min=1)
    ] = 1,
    common_random_numbers: Annotated[
        bool, typer.Option(help="Use the same random numbers for replays of different replies.")
    ] = True,
    branches: Annotated[
        float, typer.Option(help="With --protocol replays: maximum number of live branches per start.", min=1)
    ] = 2.0,
    exact: Annotated[
        float | None,
        typer.Option(
            metavar="FLOOR",
            help="Also exact values, by enumeration of all replies with at least this probability; for tiny policies.",
        ),
    ] = None,
    attempts: Annotated[
        int, typer.Option(help="Episodes per task for pass@k, besides a greedy one; 0 plays none.", min=0)
    ] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the choice of decisions and of the sampling.", min=0)] = 0,
    examples: Annotated[int, typer.Option(help="Number of decisions to write out in full.", min=0)] = 12,
    output: Annotated[
        Path | None, typer.Option(help="Output folder; by default `diagnosis` in the model's folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Samples other replies at decisions of a policy, and measures how accurate their credit is.

    At each decision several replies are replayed to the end, which estimates the value of each. The tables show how
    well the credit of methods agrees with these values, its variance, the influence of messages on their answers, and
    kinds of failures. Tables, plots, numbers, example decisions and all replays are written to a folder. Measured are
    the method that the policy was trained with, C3, MAGRPO, outcome reward, VPR if there is an oracle, and the named
    methods.

    With `--protocol training` the method plays an update with its own collector on `--episodes` tasks, and the credit
    of its decisions is compared with replays of them. With `--protocol replays` each task is played once, and the
    noise of each decision gives the maximum gain of replays in the cost of signal, and the decisions to replay.

    \b
    Examples:
      hf-credit diagnose runs/relay_micro --exact 1e-4
      hf-credit diagnose runs/relay_micro --beside runs/relay_micro_mappo --beside runs/relay_micro_magrpo
      hf-credit diagnose runs/sudoku_vpr --buckets 50 --replays 8 --attempts 0
      hf-credit diagnose runs/math_c3 --dataset math500.jsonl --event reasoner --buckets 64 --episodes 200
      hf-credit diagnose runs/sudoku_vpr --protocol training --episodes 64
      hf-credit diagnose runs/relay_micro --protocol training --method magrpo --method-option group_size=4
      hf-credit diagnose runs/sudoku_vpr --protocol replays --episodes 512
    """
    from hf_credit.cli.quiet import be_quiet

    be_quiet()  # before the libraries that have something to say when they are imported
    from hf_credit.diagnostics.bucket_sampling import BucketPlan
    from hf_credit.diagnostics.diagnosis_report import (
        numbers,
        replay_numbers,
        replay_tables,
        tables,
        training_numbers,
        training_table,
        write_diagnosis,
        write_replays,
        write_training_credit,
    )
    from hf_credit.diagnostics.saved import (
        Tasks,
        diagnose_model,
        diagnose_model_replays,
        diagnose_model_training,
        replies_at_most,
        training_replies_at_most,
    )
    from hf_credit.evaluation.plots import require_matplotlib
    from hf_credit.evaluation.statistics import mean_interval

    one_of("a protocol", protocol, PROTOCOLS)
    models = [model, *(beside or [])]
    if len(set(models)) < len(models):
        raise ValueError(f"policies must be different, got {', '.join(models)}; name each once.")
    if output is None and not Path(model).is_dir():
        raise ValueError(f"a diagnosis of a policy from the Hub needs --output, got {model!r} without; name a folder.")
    typed = typed_code([*(method or []), *(method_option or [])])
    setups = {one: played.spec(one, typed) for one in models}
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
    judge = played.judge()
    options = {
        "tasks": Tasks(episodes=episodes, first_task=played.first_task, dataset=played.dataset, split=played.split),
        "methods": _methods(method, method_option),
        "exact_floor": exact,
        **played.loading(),
    }
    if protocol != "buckets" and judge is not None:
        raise ValueError(
            f"--oracle judges the replies of buckets, got {played.oracle!r} with --protocol {protocol}; leave it out."
        )
    if protocol == "replays" and (method or exact is not None):
        raise ValueError(
            f"what replays could gain is asked of a policy alone, got {'--method' if method else '--exact'}; leave it "
            "out."
        )
    mean_interval([0.0, 1.0], resamples=1)  # a library that is missing is named before the work, not after it
    if protocol == "buckets":
        require_matplotlib()
    found: list[Any] = []
    with Progress() as progress:
        for one, setup in setups.items():
            most = setup.build().max_replies or 1
            total = {
                "buckets": replies_at_most(episodes or 256, most, plan, attempts),
                "training": training_replies_at_most(plan, most),
                "replays": (episodes or 256) * most,
            }[protocol]
            bar = progress.task(f"replies of {one}", total)
            if protocol == "training":
                found += diagnose_model_training(one, setup, plan, on_replies=bar.advance, **options)
            elif protocol == "replays":
                loading = {"tasks": options["tasks"], **played.loading()}
                found.append(
                    diagnose_model_replays(one, setup, plan, most=branches, on_replies=bar.advance, **loading)
                )
            else:
                measured: dict[str, Any] = {"attempts": attempts, "credit_replays": credit_replays, "oracle": judge}
                found.append(diagnose_model(one, setup, plan, on_replies=bar.advance, **measured, **options))
            bar.finish()
    folder = output or Path(model) / "diagnosis"
    if protocol == "training":
        path, values = write_training_credit(found, folder), training_numbers(found)
        shown = {"Credit of training": training_table(found)}
    elif protocol == "replays":
        path, values, shown = write_replays(found, folder), replay_numbers(found), replay_tables(found)
    else:
        path, values, shown = write_diagnosis(found, folder, examples), numbers(found), tables(found)
    if as_json:
        typer.echo(json.dumps(values, indent=2))
    else:
        # The name of a single policy is left out: terminals are narrow.
        named = int(len({one.name for one in found}) == 1)
        for title, (header, rows) in shown.items():
            print_rows(header[named:], [row[named:] for row in rows], title)
        for one in found if protocol == "buckets" else ():
            for label, sentence in one.not_measured.items():
                typer.echo(f"{one.name}, credit of {label}: {sentence}", err=True)
    for one in found if protocol == "replays" else ():
        if one.warning:
            typer.echo(one.warning, err=True)
    typer.echo(f"Wrote {path}", err=as_json)
    warn_of_own_replies(found[0].about if found else {})


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
