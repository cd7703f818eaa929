"""The papers' claims as hypotheses on CreditBench: written down first, tested on seeds that nothing was chosen on.

python evaluation/bench/claims.py register   # writes claims.md: hypotheses and power, from pilot seeds
python evaluation/bench/claims.py run        # fills claims.jsonl, resumable
python evaluation/bench/claims.py report     # writes claims_results.md
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from hf_credit.evaluation.markdown import Markup, table
from hf_credit.evaluation.statistics import holm, mean_interval, permutation_test
from hf_credit_bench import cells

HERE = Path(__file__).parent
RESULTS = HERE / "claims.jsonl"
SEEDS = range(10_000, 10_064)
PILOT = range(2_000, 2_012)
STEPS = (0.05, 0.15, 0.5)
"""The step sizes to choose from, of all that was registered; the bench has larger ones since."""
FIRST_UPDATES = 15
"""Learning at equal updates is the mean of J over so many."""


@dataclass(frozen=True)
class Arm:
    """A method, its options beside the bench's, and what its critic says."""

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
    # Beside the family: what the numbers above are made of.
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


def _job(arm: Arm, problem: str, dials: Mapping[str, Any]) -> cells.Job:
    asked = {"method": arm.method, "options": arm.options, "critic": arm.critic, "problem": problem, "dials": dials}
    # Scores are no part of it, but the number of their updates is in the key.
    return cells.Job(**asked, updates=200, steps=STEPS)


def read(path: Path) -> dict[str, dict[str, Any]]:
    """The finished lines of a file, by their keys; none if it is missing."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return {one["key"]: one for one in map(json.loads, lines)}


def _key(job: cells.Job, rows: cells.Job, seeds: Iterable[int]) -> str:
    """A run that takes its task rows from another arm is another run."""
    return json.dumps([job.key, rows.key if rows.key != job.key else None, [*seeds]])


def _runs(claims: Sequence[Claim]) -> dict[tuple[str, str], tuple[cells.Job, cells.Job]]:
    """Each arm at each point, and the arm whose task rows it has: cuts are compared at equal updates of equal rows."""
    runs = {}
    for claim in claims:
        for dials in claim.points:
            other = _job(claim.other, claim.problem, dials)
            arm = _job(claim.arm, claim.problem, dials)
            for one in (arm, other):
                rows = other if "truncation" in claim.arm.options else one
                runs[one.key, rows.key] = (one, rows)
    return runs


def _fill(job: cells.Job, rows: cells.Job, seeds: Sequence[int]) -> dict[str, Any]:
    result = cells.learned(job, seeds, cells.instances_of(rows))
    gain = result.end - result.start
    early = [
        (sum(value for _, value in curve[1 : FIRST_UPDATES + 1]) / FIRST_UPDATES - result.start) / gain
        for curve in result.curves
    ]
    if min(map(len, result.curves)) <= FIRST_UPDATES:
        raise ValueError(f"learning must have {FIRST_UPDATES} updates, got fewer of {job.method} in {job.problem}.")
    return {
        "key": _key(job, rows, seeds),
        "method": job.method,
        "problem": job.problem,
        "dials": job.dials,
        "step": result.step,
        "tokens": result.areas(),
        "updates": early,
    }


def fill(claims: Sequence[Claim], seeds: Sequence[int], path: Path, processes: int | None = None) -> None:
    """Plays what a file lacks."""
    done = read(path)
    waiting = [run for run in _runs(claims).values() if _key(*run, seeds) not in done]
    count = min(processes or os.cpu_count() or 1, max(len(waiting), 1))
    with path.open("a") as file, ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        for place, future in enumerate(as_completed([pool.submit(_fill, *run, seeds) for run in waiting]), start=1):
            cell = future.result()
            file.write(json.dumps(cell) + "\n")
            file.flush()
            print(f"{place} of {len(waiting)}: {cell['method']} in {cell['problem']} {cell['dials']}", flush=True)


def statistics(claim: Claim, seeds: Sequence[int], filled: Mapping[str, Any]) -> np.ndarray:
    """A number a seed: the difference of the two arms, or its slope over the dial by least squares."""
    columns = []
    for dials in claim.points:
        arm, other = _job(claim.arm, claim.problem, dials), _job(claim.other, claim.problem, dials)
        rows = other if "truncation" in claim.arm.options else arm
        of_arm = filled[_key(arm, rows, seeds)][claim.over]
        of_other = filled[_key(other, other, seeds)][claim.over]
        columns.append(np.array(of_arm) - np.array(of_other))
    differences = np.stack(columns, axis=1)
    if claim.turned is None:
        return differences.mean(axis=1)
    centred = np.array(claim.turned) - np.mean(claim.turned)
    return differences @ centred / (centred**2).sum()


def detectable(deviation: float, count: int, family: int, alpha: float = 0.05, power: float = 0.8) -> float:
    """The mean that a two-sided test of `count` seeds finds with this power where Holm is strictest."""
    return deviation * float(stats.norm.ppf(1 - alpha / family / 2) + stats.norm.ppf(power)) / math.sqrt(count)


def _file(family: str, ending: str = "") -> Path:
    return HERE / f"claims{'' if family == 'papers' else f'_{family}'}{ending}.md"


def register(family: str, processes: int | None) -> None:
    """Writes the hypotheses, and what the seeds can tell."""
    primaries = [claim for claim in CLAIMS if claim.primary and claim.family == family]
    path = HERE / "claims_pilot.jsonl"
    fill(primaries, PILOT, path, processes)
    filled = read(path)
    rows = []
    for claim in primaries:
        values = statistics(claim, PILOT, filled)
        deviation = float(values.std(ddof=1))
        least = detectable(deviation, len(SEEDS), len(primaries))
        rows.append(
            [
                claim.name,
                claim.says,
                Markup(f"{claim.arm} less {claim.other}"),
                Markup(f"`{claim.problem}`: {', '.join(map(str, claim.points))}".replace("{}", "as it is")),
                f"{'slope' if claim.turned else 'difference'}, {claim.over}",
                "> 0" if claim.sign > 0 else "< 0",
                f"{deviation:.3f}",
                f"{least:.3f}",
            ]
        )
    header = ["claim", "says", "arms", "problem", "statistic", "sign", "s.d. in the pilot", "found with power .8"]
    text = f"""# The papers' claims, as they were registered

Written by `python evaluation/bench/claims.py register{_option(family)}` before any of the seeds that decide was run.

- **Measure**: area under the exact J, 0 at the start and 1 at the best there is. *tokens*: over the bench's budget of
  tokens, replays and comparison episodes included. *updates*: the mean of J over the first {FIRST_UPDATES} updates of
  equal task rows. Each arm has the step size, of {len(STEPS)}, that did best on seeds 1000 and 1001.
- **Statistic**: one number a seed: the difference of the two arms, or its slope over the dial by least squares
  (horizons by their logarithm to base 2).
- **Test**: the paired sign-flip test, two-sided, over seeds {SEEDS[0]} to {SEEDS[-1]} ({len(SEEDS)}); Holm over the
  {len(primaries)} primaries. With 10,000 patterns the least p is .0002, which Holm makes .002 at most. *Supported*:
  p < .05 after Holm with the expected sign; *refuted*: with the other; else *not decided*.
- **Power**: the standard deviation of a seed's number in a pilot of {len(PILOT)} other seeds, and the mean that is
  found with a power of .8 where Holm is strictest.
- **Family**: {"all papers but CVT-RL" if family == "papers" else "CVT-RL, registered after the others had run"}.

{table(header, rows)}
"""
    _file(family).write_text(text, encoding="utf-8")


def _option(family: str) -> str:
    return "" if family == "papers" else f" --family {family}"


def report(family: str) -> None:
    """Writes what came out."""
    filled = read(RESULTS)
    claims = [claim for claim in CLAIMS if claim.family == family]
    primaries = [claim for claim in claims if claim.primary]
    numbers = {claim.name: statistics(claim, SEEDS, filled) for claim in claims}
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
    _file(family, "_results").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("register", "run", "report"))
    parser.add_argument("--family", choices=("papers", "cvt"), default="papers")
    parser.add_argument("--processes", type=int, help="at once; by default one a core")
    args = parser.parse_args()
    if args.command == "register":
        register(args.family, args.processes)
    elif args.command == "run":
        fill([claim for claim in CLAIMS if claim.family == args.family], SEEDS, RESULTS, args.processes)
    else:
        report(args.family)


if __name__ == "__main__":
    main()
