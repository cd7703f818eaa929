"""What `evidence_f1.py` computes with: definitions of hf-credit, so that it runs without."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean


def support_f1(cited: Collection[Hashable], support: Collection[Hashable]) -> float:
    """The F1 of documents: 2 |cited & support| / (|cited| + |support|), each counted once.

    Args:
        cited: what an answer rests on.
        support: what it should rest on, at least one.

    Returns:
        In [0, 1]; 0 where nothing is cited.

    Raises:
        ValueError: there is no support.
    """
    rests, should = set(cited), set(support)
    if not should:
        raise ValueError("an answer must have supporting documents, got none; leave it out of the mean.")
    return 2 * len(rests & should) / (len(rests) + len(should))


@dataclass(frozen=True, kw_only=True)
class EvidenceF1:
    """Of answers, means.

    Attributes:
        f1: of the documents cited and those that support the answer.
        precision: the share of what is cited that supports; 0 of an answer that cites nothing.
        recall: the share of what supports that is cited.
        reward: the harmonic mean of F1 and entailment, 0 if either is; NaN where no entailment is given.
        n: how many answers there were; NaN everywhere if there are none.
    """

    f1: float
    precision: float
    recall: float
    reward: float
    n: int


def evidence_f1(
    cited: Sequence[Collection[Hashable]],
    support: Sequence[Collection[Hashable]],
    entailment: Sequence[float] | None = None,
) -> EvidenceF1:
    """How well the documents that answers cite agree with those that support them.

        F1 = 2 |cited & support| / (|cited| + |support|),   r_evi = 2 F1 e / (F1 + e)

    Args:
        cited: the documents of each answer.
        support: those that support it, at least one each.
        entailment: how surely the evidence entails each answer, in [0, 1].

    Raises:
        ValueError: lengths differ, an answer has no support, or an entailment is outside [0, 1].
    """
    pairs = [(set(one), set(other)) for one, other in zip(cited, support, strict=True)]
    scores = [support_f1(one, other) for one, other in pairs]
    if wrong := [value for value in entailment or () if not 0 <= value <= 1]:
        raise ValueError(f"an entailment must be in [0, 1], got {wrong[0]}; scale it.")
    rewards = [] if entailment is None else [_harmonic(f, e) for f, e in zip(scores, entailment, strict=True)]
    return EvidenceF1(
        f1=_mean(scores),
        precision=_mean([len(one & other) / len(one) if one else 0.0 for one, other in pairs]),
        recall=_mean([len(one & other) / len(other) for one, other in pairs]),
        reward=_mean(rewards),
        n=len(pairs),
    )


def _harmonic(one: float, other: float) -> float:
    return 2 * one * other / (one + other) if one and other else 0.0


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else math.nan
