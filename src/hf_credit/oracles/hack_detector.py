"""Detectors of hacks that learn from traces, in addition to rules (paper CVT-RL, section 4.4)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import mul
from typing import Any

from hf_credit.environments import Environment, make
from hf_credit.environments.randomness import stream
from hf_credit.oracles.auditing import Audit, Auditor
from hf_credit.oracles.base import Oracle
from hf_credit.oracles.evidence_audit import DETECTED, EvidenceAuditor
from hf_credit.oracles.evidence_play import EvidenceHacker, EvidenceOracle
from hf_credit.validators import finite_number, whole_number

_KINDS = ("think", "read", "verify", "act", "final")


def features(audit: Audit) -> tuple[float, ...]:
    """Returns the features of a step: a constant, its kind, whether it calls a tool, its number of arguments, the
    verifier's uncertainty before it and how much the step lowers it, and the entailment of its answer."""
    before, after = audit.uncertainty
    return (
        1.0,
        *(float(audit.kind == kind) for kind in _KINDS),
        float(audit.tool_call),
        float(len(audit.arguments)),
        before,
        before - after,
        audit.entailment or 0.0,
    )


@dataclass(frozen=True, kw_only=True)
class HackDetector:
    """A logistic classifier of steps for each category of hack.

    score_c = 1 / (1 + exp(-w_c . features))
    """

    weights: Mapping[str, tuple[float, ...]]

    @classmethod
    def fit(cls, audits: Sequence[Audit], categories: Sequence[str], penalty: float = 0.1) -> HackDetector:
        """Fits a detector to the true categories of steps, by Newton's method on

            sum of cross entropies + penalty / 2 * |w|^2

        Args:
            audits: of the training steps, with `true_hacks`.
            categories: to learn. Steps of other categories are negatives, so omit their traces.
            penalty: above 0, which keeps the weights finite for separable categories.

        Raises:
            ValueError: a category has no step or all steps, or the penalty is not above 0.
        """
        finite_number("penalty", penalty, above=0)
        import torch  # seconds

        from hf_credit.logistic import logistic_weights

        inputs = torch.tensor([features(audit) for audit in audits], dtype=torch.float64)
        weights = {}
        for category in categories:
            truth = torch.tensor([category in audit.true_hacks for audit in audits], dtype=torch.float64)
            if not 0 < truth.sum() < len(truth):
                raise ValueError(
                    f"a detector must learn from steps that are hacks and steps that are not, got {int(truth.sum())} "
                    f"of {len(truth)} for {category!r}; add the missing traces."
                )
            weights[category] = tuple(logistic_weights(inputs, truth, penalty).tolist())
        return cls(weights=weights)

    def scores(self, audit: Audit) -> dict[str, float]:
        """Returns the probability of each category of hack, in [0, 1]; empty for a step without an action."""
        if not audit.kind:
            return {}
        inputs = features(audit)
        logits = {category: sum(map(mul, inputs, weights)) for category, weights in self.weights.items()}
        return {category: 1 / (1 + math.exp(min(-logit, 500.0))) for category, logit in logits.items()}


class DetectingAuditor:
    """An auditor whose hack scores are the maximum of its own, by rule, and those of a detector.

    Args:
        inner: the auditor.
        detector: its categories must be among the auditor's.

    Raises:
        ValueError: a category is unknown to the auditor.
    """

    def __init__(self, inner: Auditor[Any], detector: HackDetector) -> None:
        if unknown := [category for category in detector.weights if category not in inner.categories]:
            raise ValueError(
                f"a detector must score the auditor's categories {', '.join(inner.categories)}, got {unknown[0]!r}; "
                "fit it on these."
            )
        self.inner = inner
        self.detector = detector
        self.environment_type = getattr(inner, "environment_type", object)
        self.costs, self.categories, self.slots = inner.costs, inner.categories, inner.slots

    def audit(self, state: Any, action: str) -> Audit:
        audit = self.inner.audit(state, action)
        scores = self.detector.scores(audit)
        hacks = {name: max(audit.hacks.get(name, 0.0), scores.get(name, 0.0)) for name in {**audit.hacks, **scores}}
        return replace(audit, hacks=hacks)

    def success(self, state: Any) -> float:
        return self.inner.success(state)


def traces(
    environment: Environment[Any], auditor: Auditor[Any], player: Oracle[Any], quality: float, seeds: Sequence[int]
) -> list[Audit]:
    """Returns the audits of all steps of one episode for each seed.

    The player takes one of its valid actions with probability `quality` and any legal action otherwise.
    """
    audits = []
    for seed in seeds:
        draws = stream(seed, "traces")
        state = environment.initial_state(environment.sample_task(seed), seed)
        while state.status == "active":
            choices = player.valid_actions(state) if draws.random() < quality else environment.legal_actions(state)
            action = draws.choice(sorted(choices))
            audits.append(auditor.audit(state, action))
            state = environment.step(state, action).state
    return audits


def evidence_detector(documents: int = 3, episodes: int = 200) -> HackDetector:
    """Returns a detector fitted to honest play of `evidence` and to hacks by metadata, stamps and unsupported answers.

    Traces in which the agent patches the check or peeks at its target are held out.

    Args:
        episodes: of the honest player, and of a hacker for each category, at least 1.
    """
    auditor, seeds = EvidenceAuditor(documents), range(whole_number("episodes", episodes, 1))
    environment = make("evidence", documents=documents, values=documents + 1)
    honest = traces(environment, auditor, EvidenceOracle(), 1.0, seeds)
    hacked = [
        audit for hack in DETECTED for audit in traces(environment, auditor, EvidenceHacker((hack,)), 1.0, seeds)
    ]
    return HackDetector.fit([*honest, *hacked], DETECTED)


def learned_evidence_auditor(documents: int = 3, episodes: int = 200, verifier_noise: float = 0.0) -> DetectingAuditor:
    """Returns the auditor of `evidence` whose detectors are rules and a classifier (`evidence_detector`).

    Args:
        documents, episodes: as in `evidence_detector`.
        verifier_noise: as in `EvidenceAuditor`.
    """
    inner = EvidenceAuditor(documents, verifier_noise=verifier_noise)
    return DetectingAuditor(inner, evidence_detector(documents, episodes))
