"""Cost of signal of active replay and that of unbranched credit, for the table that its specification gives.

    python evaluation/bench/active.py

writes `active.md` next to it. Critics are exact, and the policy stands still at its start. What active replay
remembers of states is taught by 20 updates of 64 task rows, and goes on being forgotten and taught while it is
measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hf_credit.evaluation.markdown import table
from hf_credit.methods import Method
from hf_credit_bench import TablePolicy, make_method, score
from hf_credit_bench.play import Player
from hf_credit_bench.problem import Problem
from hf_credit_bench.problems import Branches, Chain, Key, Late, Paid

PROBLEMS: Mapping[str, Problem] = {
    "key horizon=16": Key(horizon=16),
    "chain length=4": Chain(length=4),
    "paid": Paid(),
    "late horizon=16": Late(horizon=16),
    "branches": Branches(),
}
PILOT = {"key horizon=16": (127, 1390), "chain length=4": (20, 28), "paid": (107, 864), "late horizon=16": (20.6, 492)}
METHODS = {
    "λ = 1 (`ppo`)": ("ppo", {"group_size": 1}),
    "active, by state, most 2": ("active_replay", {"state_key": "state"}),
    "active, by state, most 4": ("active_replay", {"state_key": "state", "most": 4}),
    "active, by depth, most 4": ("active_replay", {"most": 4}),
}
UPDATES, ROWS = 400, 16


def taught(method: Method, problem: Problem) -> Method:
    """With what it remembers after 20 updates at the start."""
    player = Player(method, problem, TablePolicy(problem), instances=64, seed=99)
    for _ in range(20):
        player.update()
    return replace(method, memory=player.memory)


def _shown(value: float, error: float) -> str:
    return f"{value:.4g} ± {float(f'{error:.2g}'):g}"


def main() -> None:
    measured = {
        label: [
            score(taught(make_method(name, **options), one), one, updates=UPDATES, instances=ROWS)
            for one in PROBLEMS.values()
        ]
        for label, (name, options) in METHODS.items()
    }
    first, *_ = measured.values()
    costs = [
        [label, *(f"{_shown(x.along, x.along_error)} / {_shown(x.trace, x.trace_error)}" for x in scores)]
        for label, scores in measured.items()
    ]
    pilot = ["the pilot's last row", *(" / ".join(map(str, PILOT[x])) if x in PILOT else "" for x in PROBLEMS)]
    ratios = [
        [label, *(f"{x.along / y.along:.2f} / {x.trace / y.trace:.2f}" for x, y in zip(scores, first, strict=True))]
        for label, scores in measured.items()
    ]
    tokens = [[label, *(f"{x.tokens:.1f}" for x in scores)] for label, scores in measured.items()]
    text = f"""# Cost of signal of active replay

Tokens until signal-to-noise is 1, along the gradient and by trace, with standard errors; policies at the start, exact
critics, {UPDATES} updates of {ROWS} task rows. The pilot's `branches` had sizes of its own (its λ = 1: 149 / 175), so
its number is left out. Written by `python evaluation/bench/active.py`.

{table(["", *PROBLEMS], [*costs, pilot])}

Divided by those of λ = 1:

{table(["", *PROBLEMS], ratios[1:])}

Tokens of an update, which active replay keeps by playing fewer starts:

{table(["", *PROBLEMS], tokens)}
"""
    Path(__file__).with_name("active.md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
