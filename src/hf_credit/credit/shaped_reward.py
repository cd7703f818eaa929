"""The reward of a step, shaped by the results of verifiers (paper CVT-RL, eq. 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hf_credit.options import NotNegative, Options


@dataclass(frozen=True, kw_only=True)
class RewardWeights(Options):
    """The weights of eq. 3, each at least 0.

    Args:
        answer: lambda_y, of the check of the answer.
        evidence: lambda_e, of the evidence for the answer.
        meta: lambda_m, of steps that reduce the verifier's uncertainty.
        belief: lambda_b, of a belief that agrees with the transcript.
        contribution: lambda_Delta, of the contribution of the step.
        hack: lambda_h, of the detector score as a hack, which is subtracted.

    Raises:
        ValueError: a weight is negative or not finite, or all are 0.
    """

    answer: NotNegative = 1.0
    evidence: NotNegative = 0.45
    meta: NotNegative = 0.18
    belief: NotNegative = 0.25
    contribution: NotNegative = 0.60
    hack: NotNegative = 0.80

    def __post_init__(self) -> None:
        super().__post_init__()
        if not any(vars(self).values()):
            raise ValueError("the weights of a reward must not all be 0, got six zeros; the paper's first is 1.")

    def reward(
        self,
        answer: float = 0.0,
        evidence: float = 0.0,
        meta: float = 0.0,
        belief: float = 0.0,
        contribution: float = 0.0,
        hack: float = 0.0,
    ) -> float:
        """The reward of a step (paper CVT-RL, eq. 3).

        r = l_y answer + l_e evidence + l_m meta + l_b belief + l_Delta contribution - l_h hack
        """
        return (
            self.answer * answer
            + self.evidence * evidence
            + self.meta * meta
            + self.belief * belief
            + self.contribution * contribution
            - self.hack * hack
        )


def harmonic_mean(first: float, second: float) -> float:
    """2 a b / (a + b), of evidence F1 and entailment; 0 if either is 0 (paper CVT-RL, section 3.1).

    Args:
        first, second: in [0, 1].
    """
    return 2 * first * second / (first + second) if first > 0 and second > 0 else 0.0


def belief_reward(
    implied: Mapping[str, Sequence[float]], held: Mapping[str, Sequence[float]], most: float = 2.0
) -> float:
    """The negative divergence of a belief from the one that the transcript implies (paper CVT-RL, section 3.3).

        -mean over slots of clip(KL(b* || b), 0, most)

    It is at most 0, so longer episodes lose more.

    Args:
        implied: b*, a distribution for each slot; missing slots are undefined.
        held: b, of at least the same slots.
        most: the maximum divergence of a slot, in nats.

    Returns:
        0 if no slot is defined.

    Raises:
        ValueError: a held belief is missing or has another length, or an implied one is not a distribution.
    """
    divergences = [min(max(_divergence(name, belief, held), 0.0), most) for name, belief in implied.items()]
    return -sum(divergences) / max(len(divergences), 1)


def _divergence(name: str, implied: Sequence[float], held: Mapping[str, Sequence[float]]) -> float:
    """KL(b* || b), infinite if b excludes a value that b* does not."""
    if len(held.get(name, ())) != len(implied):
        raise ValueError(
            f"every implied slot must have a held belief of as many values, got {len(held.get(name, ()))} for "
            f"{len(implied)} of {name!r}; use the belief head of this auditor."
        )
    if any(share < 0 for share in implied) or not math.isclose(sum(implied), 1, abs_tol=1e-6):
        raise ValueError(f"an implied belief must be a distribution, got {list(implied)} of {name!r}; normalise it.")
    pairs = [(p, q) for p, q in zip(implied, held[name], strict=True) if p > 0]
    return math.inf if any(q <= 0 for _, q in pairs) else sum(p * math.log(p / q) for p, q in pairs)
