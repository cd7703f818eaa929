"""What `belief_potential.py` computes with: definitions of hf-credit, so that it runs without."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BeliefPotential:
    """Beliefs at some states.

    Attributes:
        potential: -log of the agent's belief in the truth (Def. 3), in nats, a mean over states.
        oracle_potential: that of the oracle, the log of how many hypotheses are left, a mean over states.
        distance: L1 between the two, in [0, 2], a mean over states.
        by_state: the three for each state.
    """

    potential: float
    oracle_potential: float
    distance: float
    by_state: tuple[tuple[float, float, float], ...]


def belief_potential(
    answers: Sequence[Sequence[Hashable]],
    possible: Sequence[Collection[Hashable]],
    truths: Sequence[Hashable],
    alpha: float = 0.5,
) -> BeliefPotential:
    """The potential of an agent's belief, of the oracle's, and the distance of the two (paper T3, Defs. 3 and B.1).

    The agent's belief is that of its answers: sampled at one state where it was asked for the answer, with a
    pseudo-count for every hypothesis that is possible or was named. The oracle's is uniform over what is possible.

    Args:
        answers: at each state, what the agent answered in each sample.
        possible: at each state, all hypotheses that agree with what was observed; the truth is one.
        truths: at each state.
        alpha: the pseudo-count; with 0 a truth that was never named is infinitely far.

    Raises:
        ValueError: `alpha` is below 0, numbers differ, or a truth is not possible; in one sentence.
    """
    if not (alpha >= 0 and len(answers) == len(possible) == len(truths)):
        raise ValueError(
            "beliefs need alpha >= 0, and answers, hypotheses and a truth for each state, got "
            f"{alpha}, {len(answers)}, {len(possible)} and {len(truths)}; give one of each."
        )
    found = [
        _of_state(Counter(own), frozenset(left), truth, alpha)
        for own, left, truth in zip(answers, possible, truths, strict=True)
    ]
    means = [sum(column) / len(found) if found else math.nan for column in zip(*found, strict=True)] or [math.nan] * 3
    return BeliefPotential(potential=means[0], oracle_potential=means[1], distance=means[2], by_state=tuple(found))


def _of_state(
    named: Counter[Hashable], possible: frozenset[Hashable], truth: Hashable, alpha: float
) -> tuple[float, float, float]:
    if truth not in possible:
        raise ValueError(f"the truth must be among what is possible, got {truth!r} outside; check the hypotheses.")
    support = possible | set(named)
    total = named.total() + alpha * len(support)
    if total == 0:
        raise ValueError("a state must have an answer where alpha is 0, got none; sample one, or raise alpha.")
    belief = {one: (named[one] + alpha) / total for one in support}
    distance = sum(abs(share - (one in possible) / len(possible)) for one, share in belief.items())
    return (
        math.inf if belief[truth] == 0 else -math.log(belief[truth]),
        math.log(len(possible)),
        distance,
    )
