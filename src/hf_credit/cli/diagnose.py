"""`hf-credit diagnose`: measures how accurate the credit of a policy's decisions is."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from hf_credit.cli.options import parse_options, typed_code, with_options
from hf_credit.cli.played import AsJson, ModelArgument, Played, warn_of_own_replies
from hf_credit.cli.progress import Progress, print_rows
from hf_credit.cli.quiet import be_quiet
from hf_credit.trust import Consent
from hf_credit.validators import one_of

PROTOCOLS = ("buckets", "training", "replays")


@with_options("played", Played)
def diagnose(
    model: ModelArgument,
    beside: Annotated[
        list[str] | None, typer.Option(metavar="MODEL", help="Another policy to compare with; repeatable.")
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
            "replays: the gain that replays could bring, estimated without replays."
        ),
    ] = "buckets",
    method: Annotated[
        list[str] | None, typer.Option(help="Also measure the credit of this method, or module:factory; repeatable.")
    ] = None,
    method_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the only --method; repeatable.")
    ] = None,
    buckets: Annotated[int, typer.Option(help="Number of decisions (S).", min=1)] = 100,
    candidates: Annotated[int, typer.Option(help="Different replies to compare at each decision (J).", min=1)] = 8,
    replays: Annotated[int, typer.Option(help="Replays of each reply (c).", min=1)] = 4,
    value_actions: Annotated[
        int,
        typer.Option(
            help="Further replies that only estimate the baseline (J_V); 0 gives no estimate of fidelity.", min=0
        ),
    ] = 8,
    event: Annotated[list[str] | None, typer.Option(help="Only decisions of this event type; repeatable.")] = None,
    credit_replays: Annotated[
        int,
        typer.Option(help="Replays of each reply that credit is computed from; the others give the target.", min=1),
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
            help="Also compute exact values, from all replies with at least this probability; for tiny policies.",
        ),
    ] = None,
    attempts: Annotated[
        int, typer.Option(help="Episodes per task for pass@k, besides a greedy one; 0 plays none.", min=0)
    ] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the choice of decisions and of the sampling.", min=0)] = 0,
    examples: Annotated[int, typer.Option(help="Number of example decisions to write in full.", min=0)] = 12,
    output: Annotated[
        Path | None, typer.Option(help="Output folder; by default `diagnosis` in the model's folder.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Samples other replies at decisions of a policy, and measures how accurate their credit is.

    At each decision several replies are replayed to the end, which estimates the value of each. The tables show how
    well the credit of each method agrees with these values, its variance, the influence of messages on responses,
    and kinds of failures. The methods are that of the policy's training, C3, MAGRPO, outcome reward, VPR if there is
    an oracle, and each --method. Tables, plots, numbers, example decisions and all replays are written to a folder.

    With `--protocol training` each method plays an update with its own collector on `--episodes` tasks, and the credit
    of its decisions is compared with replays of them. With `--protocol replays` each task is played once; the noise of
    each decision determines how much replays could lower the cost of signal, and which decisions to replay.

    \b
    Examples:
      hf-credit diagnose runs/relay_micro --exact 1e-4
      hf-credit diagnose runs/relay_micro --beside runs/relay_micro_mappo --beside runs/relay_micro_magrpo
      hf-credit diagnose runs/sudoku_micro --buckets 50 --replays 8 --attempts 0
      hf-credit diagnose runs/qwen3_4b_math --dataset math500/test --event reasoner --buckets 64 --episodes 200
      hf-credit diagnose runs/sudoku_micro --protocol training --episodes 64
      hf-credit diagnose runs/relay_micro --protocol training --method magrpo --method-option group_size=4
      hf-credit diagnose runs/sudoku_micro --protocol replays --episodes 512
    """
    be_quiet()  # before the imports that print warnings
    from hf_credit import methods
    from hf_credit.diagnostics import diagnosis_report as report
    from hf_credit.diagnostics import policy as policies
    from hf_credit.diagnostics.bucket_sampling import BucketPlan
    from hf_credit.diagnostics.replay_walks import diagnose_replays
    from hf_credit.evaluation.plots import require_matplotlib
    from hf_credit.evaluation.statistics import mean_interval
    from hf_credit.rollouts.capabilities import Oracled

    one_of("--protocol", protocol, PROTOCOLS)
    models = [model, *(beside or [])]
    if len(set(models)) < len(models):
        raise ValueError(f"policies must be different, got {', '.join(models)}; name each once.")
    if output is None and not Path(model).is_dir():
        raise ValueError(f"a diagnosis of a policy from the Hub needs --output, got {model!r} without; name a folder.")
    consent = Consent(code=typed_code([*(method or []), *(method_option or [])]))
    setups = {name: played.spec(name, consent) for name in models}
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
    tasks = policies.Tasks(episodes=episodes, first_task=played.first_task, dataset=played.dataset, split=played.split)
    if method_option and len(method or ()) != 1:
        raise ValueError(
            f"--method-option needs exactly one --method, got {', '.join(method or ()) or 'none'}; name one."
        )
    asked = {name: methods.make(name, **parse_options(method_option)) for name in method or ()}
    if protocol != "buckets" and judge is not None:
        raise ValueError(
            f"--oracle needs --protocol buckets, got {played.oracle!r} with --protocol {protocol}; omit --oracle."
        )
    if protocol == "replays" and (method or exact is not None):
        option = "--method" if method else "--exact"
        raise ValueError(f"--protocol replays needs only a policy, got {option}; omit {option}.")
    mean_interval([0.0, 1.0], resamples=1)  # a missing library is an error before the work
    if protocol == "buckets":
        require_matplotlib()
    found: list[Any] = []
    with Progress() as progress:
        for name, setup in setups.items():
            interaction = setup.build()
            judged = Oracled(interaction).check_oracle(judge) if protocol == "buckets" else None
            most = interaction.max_replies or 1
            total = {
                "buckets": policies.replies_at_most(episodes or 256, most, plan, attempts),
                "training": policies.training_replies_at_most(plan, most),
                "replays": (episodes or 256) * most,
            }[protocol]
            loading = {"tasks": tasks, "exact_floor": exact, **played.loading()}
            with progress.playing(f"replies of {name}", total):
                subject, starts = policies.load_subject(name, setup, plan, **loading)
                if protocol == "buckets":
                    more: dict[str, Any] = {"attempts": attempts, "credit_replays": credit_replays}
                    found.append(policies.diagnose_policy(subject, starts, plan, methods=asked, oracle=judged, **more))
                elif protocol == "training":
                    found += policies.diagnose_training(subject, starts, plan, asked)
                else:
                    found.append(diagnose_replays(subject, starts, most=branches, seed=seed))
    reports: dict[str, tuple[Any, Any]] = {
        "buckets": (partial(report.write_diagnosis, examples=examples), report.tables),
        "training": (report.write_training_credit, report.training_tables),
        "replays": (report.write_replays, report.replay_tables),
    }
    write, tables = reports[protocol]
    path = write(found, output or Path(model) / "diagnosis")
    if as_json:
        typer.echo(json.dumps(report.numbers(found), indent=2))
    else:
        # Terminals are narrow: omit the column with the name if there is only one policy.
        first = int(len({one.name for one in found}) == 1)
        for title, (header, rows) in tables(found).items():
            print_rows(header[first:], [row[first:] for row in rows], title)
        for one in found if protocol == "buckets" else ():
            for label, sentence in one.not_measured.items():
                typer.echo(f"{one.name}, credit of {label}: {sentence}", err=True)
    for one in found if protocol == "replays" else ():
        if one.warning:
            typer.echo(one.warning, err=True)
    typer.echo(f"Wrote {path}", err=as_json)
    warn_of_own_replies(found[0].about if found else {})
