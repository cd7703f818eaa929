"""The papers' claims as hypotheses on CreditBench: written down first, tested on seeds that nothing was chosen on.

python evaluation/bench/claims.py report     # writes claims_results.md

The hypotheses, their pilot and their runs are those of commit 8288327e, whose bench had a budget of 20 updates, three
step sizes of .05 to .5 and a bound of .5 for the change of a logit. `claims.jsonl` has what it measured. Nothing is
played here: a report takes these lines, and for what today's bench says the cells of `cells.parquet`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from hf_credit.evaluation.markdown import Markup, table
from hf_credit.evaluation.statistics import holm, mean_interval, paired_difference, permutation_test
from hf_credit_bench import fields
from hf_credit_bench.cells import from_rows

HERE = Path(__file__).parent
RESULTS, CELLS = HERE / "claims.jsonl", HERE / "cells.parquet"
SEEDS = range(10_000, 10_064)
STEPS = (0.05, 0.15, 0.5)
"""The step sizes to choose from, of all that was registered."""


@dataclass(frozen=True)
class Arm:
    """A method, its options besides the bench's, and what its critic says."""

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    critic: str = "exact"

    def __str__(self) -> str:
        cut = " cut" if "truncation" in self.options else ""
        others = "".join(f", {name}={value}" for name, value in self.options.items() if name != "truncation")
        critic = f", {self.critic} critic" if self.critic != "exact" else ""
        return f"`{self.method}`{cut}{others}{critic}"


@dataclass(frozen=True)
class Claim:
    """That one arm learns more than another, or the more so the further a dial is turned.

    Attributes:
        name: by which it is known.
        says: in words.
        arm, other: what is compared.
        problem: that is played.
        points: dials of each point.
        turned: how far the dial is turned at each; `None` takes the mean over the points in place of the slope.
        sign: that is expected.
        over: `"tokens"` or `"updates"`.
        primary: whether it is in the family that is corrected.
        family: which that is.
    """

    name: str
    says: str
    arm: Arm
    other: Arm
    problem: str
    points: Sequence[Mapping[str, Any]]
    turned: Sequence[float] | None = None
    sign: int = 1
    over: str = "tokens"
    primary: bool = True
    family: str = "papers"


CUT = {"truncation": {"name": "metric", "options": {"metric": "known", "window": 2}}}
VPR, OUTCOME = Arm("verifiable_process"), Arm("outcome_reward")
C3, MAGRPO = Arm("replay_loo"), Arm("magrpo")
MAPPO = Arm("mappo", critic="noisy")
CCPO, SHARED = Arm("counterfactual_grpo"), Arm("grpo")
PPO = Arm("ppo", critic="noisy")
CVT = "constrained_counterfactual"
CVT_RIVALS = {
    "compute-matched": {"baseline": "compute_matched"},
    "information-matched": {"baseline": "information_matched"},
    "PPO on the verified outcome": {"baseline": "ppo_rlvr", "answer_by": "verified"},
}
HORIZONS = [{"horizon": horizon} for horizon in (4, 8, 16)]
ERRORS = [{"error": error} for error in (0.0, 0.15, 0.3, 0.45)]
DEPTHS = [{"depth": depth} for depth in (2, 4, 6, 8)]
NOISES = [{"noise": noise} for noise in (0.0, 0.05, 0.1, 0.15)]
TRAP = {"horizon": 16, "blind": True}


def _dial(points: Sequence[Mapping[str, float]], logarithm: bool = False) -> list[float]:
    values = [value for point in points for value in point.values()]
    return [math.log2(value) for value in values] if logarithm else values


@dataclass(frozen=True)
class Today:
    """What cells of today's bench say of claims: the gain of a method over another on some rungs.

    Attributes:
        claims: their names.
        method, other: whose areas are compared.
        rungs: the problems, with the field if it is one of several.
        ratios: of the judge's errors to the policy's, of the same rung.
        says: of the claims.
    """

    claims: str
    method: str = ""
    other: str = "outcome_reward"
    rungs: Sequence[tuple[str, tuple[int, float] | None]] = ()
    ratios: Sequence[float] = (0.0,)
    says: str = ""


TODAY = {
    "papers": [
        Today(
            "VPR 1",
            VPR.method,
            rungs=[("rules", (length, 0.1)) for length in (4, 16, 64)],
            says="agrees: more at 16 decisions than at 4; 16 and 64 are alike",
        ),
        Today(
            "VPR 2",
            VPR.method,
            rungs=[("rules", (16, 0.1))],
            ratios=(0.0, 0.5, 1.0, 2.0),
            says="agrees; verdicts are behind the outcome where a judge errs more often than the policy",
        ),
        Today(
            "C3 1, C3 2", C3.method, rungs=[("relay", None)], says="one depth and noise, so no slope; not ahead there"
        ),
        Today("C3 3, C3 4", C3.method, MAPPO.method, rungs=[("relay", None)], says="the same; its critic is taught"),
        Today(
            "CCPO 1",
            CCPO.method,
            rungs=[("vote", None)],
            says="**does not decide it**: the interval has 0 and the gain of then in it; no groups here",
        ),
        Today("CCPO 2", says="no such vote in today's fields"),
        Today(
            "T3 1, T3 2",
            "exact_advantage",
            rungs=[("trap", (16, 0.1))],
            says="cuts were not measured: the outcome has .90 of 1, so .10 is left for credit and for tokens saved",
        ),
    ],
    "cvt": [
        Today("CVT-RL 1, CVT-RL 2", says="no such baselines in today's fields"),
        Today(
            "CVT-RL 3",
            CVT,
            rungs=[("hack", None)],
            says="no PPO on the verified outcome in today's fields; over what the check pays the auditor gains much",
        ),
        Today(
            "CVT-RL 3",
            CVT,
            "draco",
            rungs=[("hack", None)],
            says="and it is not ahead of verdicts that accept half of the hacks",
        ),
    ],
}


CLAIMS = [
    Claim(
        "VPR 1",
        "the oracle's verdicts gain more over the outcome the longer the episode",
        VPR,
        OUTCOME,
        "verdict",
        HORIZONS,
        _dial(HORIZONS, True),
    ),
    Claim(
        "VPR 2",
        "they gain less the more the oracle errs",
        VPR,
        OUTCOME,
        "verdict",
        ERRORS,
        _dial(ERRORS),
        sign=-1,
    ),
    Claim("C3 1", "replay gains more over MAGRPO the deeper", C3, MAGRPO, "relay", DEPTHS, _dial(DEPTHS)),
    Claim("C3 2", "and the more noise comes after", C3, MAGRPO, "relay", NOISES, _dial(NOISES)),
    Claim("C3 3", "replay gains more over MAPPO the deeper", C3, MAPPO, "relay", DEPTHS, _dial(DEPTHS)),
    Claim("C3 4", "and the more noise comes after", C3, MAPPO, "relay", NOISES, _dial(NOISES)),
    Claim("CCPO 1", "contributions beat the shared reward, three of five lazy", CCPO, SHARED, "vote", [{}]),
    Claim("CCPO 2", "and with four of seven", CCPO, SHARED, "vote", [{"agents": 7, "lazy": 4}]),
    Claim(
        "T3 1",
        "cuts after two idle questions gain at equal tokens",
        dataclasses.replace(PPO, options=CUT),
        PPO,
        "trap",
        [TRAP],
    ),
    Claim(
        "T3 2",
        "and at equal updates",
        dataclasses.replace(PPO, options=CUT),
        PPO,
        "trap",
        [TRAP],
        over="updates",
    ),
    *(
        Claim(
            f"CVT-RL {place}",
            f"counterfactual credit under constraints beats {rival} in a job of which each part can be faked",
            Arm(CVT),
            Arm(CVT, options),
            "hack",
            [{}, {"detection": 0.25}, {"detection": 0.75}],
            family="cvt",
        )
        for place, (rival, options) in enumerate(CVT_RIVALS.items(), start=1)
    ),
    # Outside the family: what the numbers above are made of.
    *(
        Claim(f"C3 over MAGRPO, {dials}", "", C3, MAGRPO, "relay", [dials], primary=False)
        for dials in (*DEPTHS, *NOISES)
    ),
    *(
        Claim(f"C3 over MAPPO, {dials}", "", C3, MAPPO, "relay", [dials], primary=False)
        for dials in (*DEPTHS, *NOISES)
    ),
    *(
        Claim(f"VPR over the outcome, {dials}", "", VPR, OUTCOME, "verdict", [dials], primary=False)
        for dials in (*HORIZONS, *ERRORS)
    ),
    *(
        Claim(
            f"T3 with {arm}, {over}, {dials}",
            "",
            dataclasses.replace(arm, options=CUT),
            arm,
            "trap",
            [dials],
            over=over,
            primary=False,
        )
        for arm, dials in (
            (Arm("grpo"), TRAP),
            (Arm("ppo"), TRAP),
            (Arm("ppo", critic="untaught"), TRAP),
            (PPO, {**TRAP, "absorbs": 0.5}),
            (PPO, {**TRAP, "blind": False}),
        )
        for over in ("tokens", "updates")
    ),
]


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The finished lines of a file, by their keys; none if it is missing."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {one["key"]: one for one in map(json.loads, lines)}


def key_of(arm: Arm, problem: str, dials: Mapping[str, Any], rows: Arm) -> str:
    """A run of an arm that takes its task rows from another one is another run."""
    run = {"problem": problem, "dials": dials, **dataclasses.asdict(arm)}
    return json.dumps({**run, "rows": None if rows == arm else dataclasses.asdict(rows)}, sort_keys=True)


def statistics(claim: Claim, filled: Mapping[str, Any]) -> np.ndarray:
    """A number a seed: the difference of the two arms, or its slope over the dial by least squares."""
    columns = []
    for dials in claim.points:
        rows = claim.other if "truncation" in claim.arm.options else claim.arm
        of_arm = filled[key_of(claim.arm, claim.problem, dials, rows)][claim.over]
        of_other = filled[key_of(claim.other, claim.problem, dials, claim.other)][claim.over]
        columns.append(np.array(of_arm) - np.array(of_other))
    differences = np.stack(columns, axis=1)
    if claim.turned is None:
        return differences.mean(axis=1)
    centred = np.array(claim.turned) - np.mean(claim.turned)
    return differences @ centred / (centred**2).sum()


def _file(family: str, ending: str = "") -> Path:
    return HERE / f"claims{'' if family == 'papers' else f'_{family}'}{ending}.md"


def _option(family: str) -> str:
    return "" if family == "papers" else f" --family {family}"


def report(family: str) -> None:
    """Writes what came out."""
    filled = read(RESULTS)
    claims = [claim for claim in CLAIMS if claim.family == family]
    primaries = [claim for claim in claims if claim.primary]
    numbers = {claim.name: statistics(claim, filled) for claim in claims}
    tests = [permutation_test(numbers[claim.name], np.zeros(len(SEEDS))) for claim in primaries]
    rows = []
    for claim, test, adjusted in zip(primaries, tests, holm([test.p_value for test in tests]), strict=True):
        interval = mean_interval(numbers[claim.name])
        found = adjusted < 0.05
        verdict = ("supported" if interval.mean * claim.sign > 0 else "refuted") if found else "not decided"
        shown = f"{interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
        rows.append(
            [claim.name, claim.says, shown, f"{test.p_value:.4f}", f"{adjusted:.4f}", Markup(f"**{verdict}**")]
        )
    others = [
        [Markup(claim.name), claim.over, f"{one.mean:+.3f} [{one.low:+.3f}, {one.high:+.3f}]"]
        for claim in claims
        if not claim.primary
        for one in [mean_interval(numbers[claim.name])]
    ]
    text = f"""# The papers' claims: what came out

As registered in [{_file(family).name}]({_file(family).name}); written by `python evaluation/bench/claims.py
report{_option(family)}` from `claims.jsonl`.
95 % intervals over {len(SEEDS)} seeds.

{table(["claim", "says", "mean", "p", "p after Holm", "verdict"], rows)}
"""
    if others:
        text += f"""
## What they are made of

Not corrected, and no test.

{table(["difference", "over", "mean"], others)}
"""
    text += f"""
## What today's bench says

Areas of the cells of `cells.parquet`, ten seeds each: a free step size, and in `rules` a network (a table elsewhere).
The claims stay as they were decided for the bench that they name.

{table(["claims", "problem", "gain", "over", "mean", "today's bench"], today(family))}
"""
    _file(family, "_results").write_text(text, encoding="utf-8")


def today(family: str) -> list[list[str]]:
    """A row for each of `TODAY` and each of its differences."""
    cells = from_rows(pq.read_table(CELLS).to_pylist())
    rows = []
    for one in TODAY[family]:
        shown: list[list[str]] = [] if one.rungs else [["", "", "", ""]]
        for problem, where in one.rungs:
            rung = next(rung for rung in fields.RUNGS if (rung.problem, rung.field) == (problem, where))
            found, errors = fields.on_rung(cells, rung), fields.own_error(rung) if one.ratios != (0.0,) else 0.0
            base = fields.areas_of(found, one.other)
            for ratio in one.ratios:
                areas = fields.areas_of(found, one.method, round(ratio * errors, 4))
                assert areas is not None
                assert base is not None
                errs = f", judge errs {ratio:g} times as often as the policy" if ratio else ""
                gain = paired_difference(areas, base)
                mean = f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
                place = Markup(f"`{problem}` {rung.said}".strip())
                shown.append([place, Markup(f"`{one.method}`{errs}"), Markup(f"`{one.other}`"), mean])
        rows += [[one.claims, *line, Markup(one.says)] for line in shown]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("report",))
    parser.add_argument("--family", choices=("papers", "cvt"), default="papers")
    report(parser.parse_args().family)


if __name__ == "__main__":
    main()
