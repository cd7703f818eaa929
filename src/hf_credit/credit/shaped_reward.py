"""The reward of a step that is shaped by what verifiers say of it (paper CVT-RL, eq. 3)."""

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
        evidence: lambda_e, of the evidence that the answer rests on.
        meta: lambda_m, of steps that leave the verifier less uncertain.
        belief: lambda_b, of a belief that follows from the transcript.
        contribution: lambda_Delta, of what a step contributed.
        hack: lambda_h, of what a detector takes for a hack; it is taken off.

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
    """2 a b / (a + b), of the agreement of evidence and of entailment; 0 if either is (paper CVT-RL, section 3.1).

    Args:
        first, second: in [0, 1].
    """
    return 2 * first * second / (first + second) if first > 0 and second > 0 else 0.0


def belief_reward(
    implied: Mapping[str, Sequence[float]], held: Mapping[str, Sequence[float]], most: float = 2.0
) -> float:
    """How far a belief is from what the transcript implies (paper CVT-RL, section 3.3).

        -mean over slots of clip(KL(b* || b), 0, most)

    It is never above 0, so that shorter episodes lose less by it.

    Args:
        implied: b*, by slot, each a distribution; slots that are left out are not defined here.
        held: b, of the same slots at least.
        most: at which a slot's divergence is clipped, in nats.

    Returns:
        0 where no slot is defined.

    Raises:
        ValueError: a belief is missing or of another length, or an implied one is no distribution.
    """
    return -sum(min(max(_divergence(name, own, held), 0.0), most) for name, own in implied.items()) / max(
        len(implied), 1
    )


def _divergence(name: str, implied: Sequence[float], held: Mapping[str, Sequence[float]]) -> float:
    """KL(b* || b), infinite where b rules out what b* does not."""
    if len(held.get(name, ())) != len(implied):
        raise ValueError(
            f"a belief must be held of every slot that is implied, with as many values, got {len(held.get(name, ()))} "
            f"for {len(implied)} of {name!r}; ask the head that was made for this auditor."
        )
    if any(share < 0 for share in implied) or not math.isclose(sum(implied), 1, abs_tol=1e-6):
        raise ValueError(f"an implied belief must be a distribution, got {list(implied)} of {name!r}; normalise it.")
    pairs = [(p, q) for p, q in zip(implied, held[name], strict=True) if p > 0]
    return math.inf if any(q <= 0 for _, q in pairs) else sum(p * math.log(p / q) for p, q in pairs)
