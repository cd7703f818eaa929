"""VPR in state groups: what committing the best reply does to the direction of the gradient, exactly.

    python evaluation/bench/state_groups.py

writes `state_groups.md` next to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hf_credit.evaluation.markdown import table
from hf_credit_bench.problem import Node, Problem, Way, logit
from hf_credit_bench.problems import Branches, Chain, Key, Late, Paid, Revisit, Trap
from hf_credit_bench.table import TablePolicy, Vector
from hf_credit_bench.truth import Truth


@dataclass(frozen=True)
class Repair(Problem):
    """A right action succeeds at once; after a wrong one there is a second chance."""

    start_right: float = 0.3

    def speakers(self, node: Any) -> Sequence[str]:
        return ("agent",) if node[0] < 2 and not node[1] else ()

    def logits(self, view: Any) -> Sequence[float]:
        return [0.0, logit(self.start_right)]

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        return [Way(1.0, (node[0] + 1, actions[0]), float(actions[0]))]

    def right(self, node: Any, action: int) -> float:
        return float(action)


PROBLEMS: dict[str, Problem] = {
    "chain length=2 start_right=0.3": Chain(length=2, start_right=0.3),
    "chain": Chain(),
    "branches": Branches(),
    "trap": Trap(),
    "key": Key(),
    "late": Late(),
    "paid": Paid(),
    "revisit": Revisit(),
    "repair (here)": Repair(),
}
SIZES = (2, 4, 8)


def expected_gradient(problem: Problem, policy: TablePolicy, size: int, commit: str) -> Vector:
    """E[g] / (K - 1) = sum over s of d(s) sum over a of pi(a | s) v(s, a) grad log pi(a | s), for verdicts of 0 and 1.

    A test compares it with the enumeration of all draws. With p = pi(right | s), the best of K replies is right with
    probability 1 - (1 - p)^K.
    """
    gradient, places = np.zeros_like(policy.probabilities), {view: place for place, view in enumerate(problem.views)}
    reached: Counter[Node] = Counter()
    for way in problem.starts():
        reached[way.node] += way.probability  # type: ignore[assignment]
    for node in problem.nodes:
        if not problem.speakers(node) or not reached[node]:
            continue
        view = problem.view(node, problem.speakers(node)[0])
        shares = policy.of(view)
        verdicts = np.array([problem.right(node, action) for action in range(len(shares))])
        right = float(shares @ verdicts)
        gradient[places[view], : len(shares)] += reached[node] * shares * (verdicts - right)
        if commit == "best" and 0 < right < 1:
            wrong = (1 - right) ** size
            shares = shares * np.where(verdicts == 1, (1 - wrong) / right, wrong / (1 - right))
        for action, share in enumerate(shares):
            for way in problem.ways(node, [action]):
                reached[way.node] += reached[node] * share * way.probability  # type: ignore[assignment]
    return gradient


def degrees(one: Any, other: Any) -> float:
    """The angle between two vectors."""
    cosine = float((one * other).sum() / (np.linalg.norm(one) * np.linalg.norm(other)))
    return float(np.degrees(np.arccos(min(cosine, 1.0))))


def main() -> None:
    rows = []
    for name, problem in PROBLEMS.items():
        policy = TablePolicy(problem)
        truth, own = Truth(policy).gradient, expected_gradient(problem, policy, 1, "random")
        committed = [expected_gradient(problem, policy, size, "best") for size in SIZES]
        angles = [f"{degrees(one, truth):.1f} ({degrees(one, own):.1f})" for one in committed]
        rows.append([name, f"{degrees(own, truth):.1f}", *angles])
    header = ["problem", "any committed", *(f"best of {size}" for size in SIZES)]
    text = f"""\
# VPR in state groups: the bias of committing the best reply, exactly

The angle in degrees between the expected gradient and the true one; the policy at the start, no whitening, exact
verdicts. If any reply is committed, the states are those of the policy, and the angle is that of verdicts, which know
of no later turn, for any number of replies; in brackets, the angle to that gradient: the bias of committing the best.
In most of these problems it happens to make up for the verdicts' own bias: states after right actions gain weight,
and later actions matter only there. In `repair`, an action right at once or else in a second chance, it adds to it.
Written by `python evaluation/bench/state_groups.py`, whose formula a test compares with an enumeration of all draws.

{table(header, rows)}
"""
    Path(__file__).with_name("state_groups.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
