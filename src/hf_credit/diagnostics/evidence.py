"""Evidence F1: whether answers cite the documents that support them (paper CVT-RL, section 3.1)."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from statistics import fmean

from hf_credit.credit import harmonic_mean
from hf_credit.verifiers.text_overlap import support_f1


@dataclass(frozen=True, kw_only=True)
class EvidenceF1:
    """Agreement of cited and supporting documents, as means over answers; NaN without answers.

    Attributes:
        f1: the F1 of cited and supporting documents.
        precision: the share of cited documents that support the answer; 0 if none is cited.
        recall: the share of supporting documents that are cited.
        reward: the harmonic mean of F1 and entailment, 0 if either is 0; NaN without entailments.
        n: the number of answers.
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
    """Computes the agreement of the documents that answers cite and those that support them.

        F1 = 2 |cited & support| / (|cited| + |support|),   r_evi = 2 F1 e / (F1 + e)

    Args:
        cited: for each answer, the cited documents.
        support: for each answer, the supporting documents, at least one.
        entailment: for each answer, e, the degree to which the evidence entails it, in [0, 1].

    Raises:
        ValueError: lengths differ, an answer has no support, or an entailment is outside [0, 1].
    """
    pairs = [(set(one), set(other)) for one, other in zip(cited, support, strict=True)]
    scores = [support_f1(one, other) for one, other in pairs]
    if wrong := [value for value in entailment or () if not 0 <= value <= 1]:
        raise ValueError(f"an entailment must be in [0, 1], got {wrong[0]}; scale it.")
    judged = [] if entailment is None else zip(scores, entailment, strict=True)
    rewards = [harmonic_mean(f, e) for f, e in judged]
    return EvidenceF1(
        f1=_mean(scores),
        precision=_mean([len(one & other) / len(one) if one else 0.0 for one, other in pairs]),
        recall=_mean([len(one & other) / len(other) for one, other in pairs]),
        reward=_mean(rewards),
        n=len(pairs),
    )


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else math.nan
