"""What `intervention_validity.py` computes with: definitions of hf-credit, so that it runs without."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, kw_only=True)
class InterventionValidity:
    """Of the proposals of a family of interventions.

    Attributes:
        proposals: how many were drawn.
        invalid: the share that failed the gate.
        out_of_distribution: the share of the valid ones whose replies are unlike what the policy says; NaN where none
            can be judged.
        judged: how many of the valid ones could be.
    """

    proposals: int
    invalid: float
    out_of_distribution: float
    judged: int


def intervention_validity(
    families: Sequence[str],
    valid: Sequence[bool],
    kinds: Sequence[str] | None = None,
    logprobs: Sequence[float | None] | None = None,
    sampled_kinds: Sequence[str] = (),
    sampled_logprobs: Sequence[float] = (),
    quantile: float = 0.05,
) -> dict[str, InterventionValidity]:
    """How often proposals are rejected before they are played out, and how often they are out of distribution.

    A proposal is out of distribution where its log-probability a token, under the policy that plays on, is below the
    5th percentile of the replies of its kind that this policy sampled itself; the paper does not define it.

    Args:
        families: of each proposal.
        valid: whether it passed the gate.
        kinds: of the action of each, such as `"read"`.
        logprobs: of each, its mean log-probability a token in nats; `None` where it was not scored.
        sampled_kinds, sampled_logprobs: the same of replies that were sampled.
        quantile: below which a log-probability is unusual, in (0, 1).

    Returns:
        By family, in the order in which they appear.

    Raises:
        ValueError: lengths differ, or the quantile is out of its range.
    """
    if not 0 < quantile < 1:
        raise ValueError(f"quantile must be in (0, 1), got {quantile}; 0.05 is the 5th percentile.")
    count = len(families)
    kinds = [""] * count if kinds is None else kinds
    logprobs = [None] * count if logprobs is None else logprobs
    usual: dict[str, list[float]] = {}
    for kind, sampled in zip(sampled_kinds, sampled_logprobs, strict=True):
        usual.setdefault(kind, []).append(sampled)
    least = {kind: float(np.quantile(values, quantile)) for kind, values in usual.items()}
    passed: dict[str, list[bool]] = {}
    unusual: dict[str, list[bool]] = {}
    for family, ok, kind, logprob in zip(families, valid, kinds, logprobs, strict=True):
        passed.setdefault(family, []).append(bool(ok))
        judged = unusual.setdefault(family, [])
        if ok and logprob is not None and kind in least:
            judged.append(logprob < least[kind])
    return {
        family: InterventionValidity(
            proposals=len(own),
            invalid=1 - sum(own) / len(own),
            out_of_distribution=sum(unusual[family]) / len(unusual[family]) if unusual[family] else math.nan,
            judged=len(unusual[family]),
        )
        for family, own in passed.items()
    }
