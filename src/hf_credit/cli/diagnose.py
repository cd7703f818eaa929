"""`hf-credit diagnose`: measures how accurate the credit of a policy's decisions is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hf_credit.cli.options import (
    AsJson,
    MethodOptions,
    ModelArgument,
    Played,
    named_oracle,
    parse_options,
    typed_code,
    warn_of_own_replies,
    with_options,
)
from hf_credit.cli.progress import Progress, be_quiet, print_rows
from hf_credit.trust import Consent

if TYPE_CHECKING:
    from hf_credit.diagnostics.protocols import Protocol


_IGNORED = {  # by protocol, the options of others
    "buckets": ("collections",),
    "training": ("oracle", "collections", "candidates", "attempts", "credit_replays", "examples"),
    "signal": ("oracle", "exact", "attempts", "credit_replays", "examples"),
    "verdicts": ("method", "exact", "collections", "value_actions", "attempts", "credit_replays", "examples"),
}


@dataclass(frozen=True, kw_only=True)
class Diagnosed(Played):
    """Options of `hf-credit diagnose` for what it measures."""

    episodes: Annotated[
        int | None,
        typer.Option(help="Number of tasks to draw decisions from; by default 256, or all of a dataset.", min=1),
    ] = None
    protocol: Annotated[
        str,
        typer.Option(
            help="buckets: the same replies for every method; training: each method plays its own update; "
            "signal: how much signal each method has before a training, and whether it agrees with the outcome; "
            "verdicts: whether the oracle can be trusted, by replays of the moves that it judges."
        ),
    ] = "buckets"
    method: Annotated[
        list[str] | None, typer.Option(help="Also measure the credit of this method, or module:factory; repeatable.")
    ] = None
    method_option: MethodOptions = None
    collections: Annotated[
        int, typer.Option(help="With --protocol signal: collections of each method, of 16 tasks.", min=3)
    ] = 24
    buckets: Annotated[int, typer.Option(help="Number of decisions (S).", min=1)] = 100
    candidates: Annotated[int, typer.Option(help="Different replies to compare at each decision (J).", min=1)] = 8
    replays: Annotated[int, typer.Option(help="Replays of each reply (c).", min=1)] = 4
    value_actions: Annotated[
        int,
        typer.Option(
            help="Further replies that only estimate the baseline (J_V); 0 gives no estimate of fidelity.", min=0
        ),
    ] = 8
    event: Annotated[list[str] | None, typer.Option(help="Only decisions of this event type; repeatable.")] = None
    credit_replays: Annotated[
        int,
        typer.Option(help="Replays of each reply that credit is computed from; the others give the target.", min=1),
    ] = 1
    common_random_numbers: Annotated[
        bool, typer.Option(help="Use the same random numbers for replays of different replies.")
    ] = True
    exact: Annotated[
        float | None,
        typer.Option(
            metavar="FLOOR",
            help="Also compute exact values, from all replies with at least this probability; for tiny policies.",
        ),
    ] = None
    attempts: Annotated[
        int, typer.Option(help="Episodes per task for pass@k, besides a greedy one; 0 plays none.", min=0)
    ] = 10
    seed: Annotated[int, typer.Option(help="Seed of the choice of decisions and of the sampling.", min=0)] = 0
    examples: Annotated[int, typer.Option(help="Number of example decisions to write in full.", min=0)] = 12
    output: Annotated[
        Path | None, typer.Option(file_okay=False, help="Output folder; by default `diagnosis` in the model's folder.")
    ] = None

    def made(self) -> Protocol:
        """Returns the protocol with these options.

        Raises:
            ValueError: options do not go together.
        """
        for name in _IGNORED.get(self.protocol, ()):
            if (got := getattr(self, name)) not in (getattr(Diagnosed, name), []):
                flag = name.replace("_", "-")
                raise ValueError(f"--protocol {self.protocol} takes no --{flag}, got {got}; omit it.")
        names, oracle = self.method or [], named_oracle(self.oracle, self.oracle_option)
        if self.method_option and len(names) != 1:
            raise ValueError(
                f"--method-option needs exactly one --method, got {', '.join(names) or 'none'}; name one."
            )
        from hf_credit import methods, registry

        for name in names:
            registry.target_of("method", methods.METHODS, name)
        # seconds, which what is refused above does not need
        from hf_credit.diagnostics.bucket_sampling import BucketPlan
        from hf_credit.diagnostics.policy import Tasks
        from hf_credit.diagnostics.protocols import Protocol

        make: Any = Protocol
        if self.protocol == "signal":
            from hf_credit.trainers.signal_protocol import SignalProtocol

            make = partial(SignalProtocol, collections=self.collections)

        def own(*names: str) -> dict[str, Any]:
            return {name: getattr(self, name) for name in names}

        plan = own("buckets", "candidates", "replays", "value_actions", "common_random_numbers", "seed")
        return make(
            name=self.protocol,
            plan=BucketPlan(**plan, events=tuple(self.event or ()), draws=8 * self.candidates),
            tasks=Tasks(**own("episodes", "first_task", "dataset", "split")),
            methods={name: methods.make(name, **parse_options(self.method_option)) for name in names},
            oracle=oracle,
            **own("exact", "attempts", "credit_replays", "examples"),
        )


@with_options("diagnosed", Diagnosed)
def diagnose(
    model: ModelArgument,
    beside: Annotated[
        list[str] | None, typer.Option(metavar="MODEL", help="Another policy to compare with; repeatable.")
    ] = None,
    *,
    diagnosed: Diagnosed,
    as_json: AsJson = False,
) -> None:
    """Samples other replies at decisions of a policy, and measures how accurate their credit is.

    At each decision several replies are replayed to the end, which estimates the value of each. The tables show how
    well the credit of each method agrees with these values, its variance, the influence of messages on responses,
    and kinds of failures. The methods are that of the policy's training, C3, MAGRPO, outcome reward, VPR if there is
    an oracle, and each --method. Tables, plots, numbers, example decisions and all replays are written to a folder.

    With `--protocol training` each method plays an update with its own collector on `--episodes` tasks, and the credit
    of its decisions is compared with replays of them. With `--protocol signal` each method plays and credits
    `--collections` updates of an unchanged policy, which tell how many tokens its signal costs. With `--protocol
    verdicts` the oracle judges replies that are replayed.

    \b
    Examples:
      hf-credit diagnose runs/relay_micro --exact 1e-4
      hf-credit diagnose runs/relay_micro --beside runs/relay_micro_mappo --beside runs/relay_micro_magrpo
      hf-credit diagnose runs/sudoku_micro --buckets 50 --replays 8 --attempts 0
      hf-credit diagnose runs/qwen3_4b_math --dataset math500/test --event reasoner --buckets 64 --episodes 200
      hf-credit diagnose runs/sudoku_micro --protocol training --episodes 64
      hf-credit diagnose runs/relay_micro --protocol training --method magrpo --method-option group_size=4
      hf-credit diagnose runs/sudoku_micro_base --protocol signal --method rloo --method verifiable_process
    """
    be_quiet()  # before the imports that print warnings
    models = [model, *(beside or [])]
    if len(set(models)) < len(models):
        raise ValueError(f"policies must be different, got {', '.join(models)}; name each once.")
    if diagnosed.output is None and not Path(model).is_dir():
        raise ValueError(f"a diagnosis of a policy from the Hub needs --output, got {model!r} without; name a folder.")
    consent = Consent(code=typed_code([*(diagnosed.method or []), *(diagnosed.method_option or [])]))
    setups = {name: diagnosed.spec(name, consent) for name in models}
    protocol = diagnosed.made()
    from hf_credit.diagnostics.diagnosis_report import numbers

    found: list[Any] = []
    with Progress() as progress:
        for name, setup in setups.items():
            with progress.playing(f"replies of {name}", protocol.replies(setup)):
                found += protocol.diagnose(name, setup, **diagnosed.loading())
            # After each, so that an error with a later policy loses none.
            path, tables, warnings = protocol.write(found, diagnosed.output or Path(model) / "diagnosis")
    if as_json:
        typer.echo(json.dumps(numbers(found), indent=2))
    else:
        # Terminals are narrow: omit the column with the name if there is only one policy.
        first = int(len(models) == 1)
        for title, (header, rows) in tables.items():
            print_rows(header[first:], [row[first:] for row in rows], title)
    for warning in warnings:
        typer.echo(warning, err=True)
    typer.echo(f"Wrote {path}", err=as_json)
    warn_of_own_replies(found[0].about)
