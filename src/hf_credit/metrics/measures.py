"""The metrics as modules of `evaluate`, each of which `hf_credit.metrics.build` gathers with all that it needs."""

from __future__ import annotations

import abc
import math
import statistics
from collections.abc import Mapping
from typing import Any

import datasets
import evaluate

from hf_credit.diagnostics import (
    belief_deviation,
    belief_potential,
    constraint_violation,
    context_variance,
    credit_fidelity,
    cut_quality,
    evidence_f1,
    free_rider_index,
    hack_rate,
    influence,
    influence_by_chance,
    intervention_validity,
    kl_compliance,
    mean_pass_at_k,
    overlap,
    pccc_fidelity,
    vote_contribution,
)
from hf_credit.verifiers.text_overlap import token_f1

CARD = ""
"""The card of the metric, without its metadata, once it is built."""


class Measure(evaluate.Metric, abc.ABC):
    """A metric that its card describes: its purpose, then how to use it, and the BibTeX entry of the paper.

    Args:
        inputs: class argument: the type of each input by name: the name of a type of `datasets`, a list of one type
            for lists, or a mapping.
    """

    _inputs: Mapping[str, Any]

    def __init_subclass__(cls, *, inputs: Mapping[str, Any]) -> None:
        cls._inputs = inputs

    def _info(self) -> evaluate.MetricInfo:
        description, _, rest = CARD.partition("## How to use\n")
        usage, _, citation = rest.partition("## Citation\n\n```bibtex\n")
        return evaluate.MetricInfo(
            description=description.strip(),
            citation=citation.partition("```")[0],
            inputs_description=usage.strip(),
            features=datasets.Features(_features(self._inputs)),
        )

    @abc.abstractmethod
    def _compute(self, **inputs: Any) -> Mapping[str, Any]:
        """Returns the results by name."""


def _features(kind: Any) -> Any:
    if isinstance(kind, str):
        return datasets.Value(kind)
    if isinstance(kind, list):
        return datasets.Sequence(_features(kind[0]))
    return {name: _features(one) for name, one in kind.items()}


class AnswerF1Metric(Measure, inputs={"predictions": "string", "references": "string"}):
    def _compute(self, predictions, references):
        words, characters = (
            [token_f1(answer, story, level) for answer, story in zip(predictions, references, strict=True)]
            for level in ("word", "character")
        )
        exact = [float(one == 1) for one in words]
        found = {"f1_word": words, "f1_character": characters, "exact": exact}
        return {name: statistics.fmean(values or [math.nan]) for name, values in found.items()}


class BeliefDeviationMetric(Measure, inputs={"predictions": ["float64"], "references": ["float64"]}):
    def _compute(self, predictions, references, **options):
        return vars(belief_deviation(predictions, references, **options))


class BeliefPotentialMetric(
    Measure, inputs={"predictions": ["string"], "references": {"truth": "string", "possible": ["string"]}}
):
    def _compute(self, predictions, references, **options):
        found = belief_potential(
            predictions, [one["possible"] for one in references], [one["truth"] for one in references], **options
        )
        return {
            "potential": found.potential,
            "oracle_potential": found.oracle_potential,
            "distance": found.distance,
            "states": len(found.by_state),
        }


class ConstraintViolationMetric(Measure, inputs={"predictions": "float64"}):
    def _compute(self, predictions, limit=0.0):
        return vars(constraint_violation(predictions, limit))


class ContextVarianceMetric(Measure, inputs={"predictions": ["float64"]}):
    def _compute(self, predictions):
        found = context_variance(predictions)
        return {
            "context_variance": found.within,
            "between_contexts": found.between,
            "buckets": found.buckets,
            "alone": found.alone,
        }


class CreditFidelityMetric(Measure, inputs={"predictions": ["float64"], "references": ["float64"]}):
    def _compute(self, predictions, references):
        found = credit_fidelity(predictions, references)
        return {
            "credit_fidelity": found.rho,
            "status": str(found.status),
            "candidates": found.candidates,
            "buckets": found.buckets,
            "alone": found.alone,
        }


class CutQualityMetric(Measure, inputs={"predictions": ["bool"], "references": ["float64"]}):
    def _compute(self, predictions, references, **options):
        return vars(cut_quality(predictions, references, **options))


class EvidenceF1Metric(Measure, inputs={"predictions": ["string"], "references": ["string"]}):
    def _compute(self, predictions, references, **options):
        return vars(evidence_f1(predictions, references, **options))


class FreeRiderIndexMetric(Measure, inputs={"predictions": "float64", "references": "float64"}):
    def _compute(self, predictions, references):
        return {"free_rider_index": free_rider_index(predictions, references)}


class HackRateMetric(Measure, inputs={"predictions": "bool"}):
    def _compute(self, predictions, **options):
        return vars(hack_rate(predictions, **options))


class InfluenceMetric(Measure, inputs={"predictions": [["string"]]}):
    def _compute(self, predictions, **options):
        found = influence(predictions, **options)
        return {
            "influence": found.mean,
            "by_chance": influence_by_chance(predictions, **options),
            "buckets": found.buckets,
            "alone": found.alone,
        }


class InterventionValidityMetric(Measure, inputs={"predictions": "bool", "references": "string"}):
    def _compute(self, predictions, references, **options):
        found = intervention_validity(references, predictions, **options)
        names = ("invalid", "out_of_distribution", "proposals")
        return {f"{name}/{family}": getattr(own, name) for family, own in found.items() for name in names}


class KlComplianceMetric(Measure, inputs={"predictions": "float64"}):
    def _compute(self, predictions, radius=0.025):
        return vars(kl_compliance(predictions, radius))


class OverlapMetric(Measure, inputs={"predictions": "float64"}):
    def _compute(self, predictions, **options):
        return vars(overlap(predictions, **options))


class PassAtKMetric(Measure, inputs={"predictions": ["float64"]}):
    def _compute(self, predictions, k=(1,), threshold=1.0):
        return {f"pass@{one}": mean_pass_at_k(predictions, one, threshold) for one in k}


class PcccFidelityMetric(Measure, inputs={"predictions": "float64", "references": "float64"}):
    def _compute(self, predictions, references):
        return vars(pccc_fidelity(predictions, references))


class VoteContributionMetric(Measure, inputs={"predictions": ["string"], "references": "string"}):
    def _compute(self, predictions, references, **options):
        return vars(vote_contribution(predictions, references, **options))
