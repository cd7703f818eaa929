"""Detectors of hacks that are learned from traces, beside those that go by rule (paper CVT-RL, section 4.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hf_credit.environments import Environment, make
from hf_credit.environments.randomness import stream
from hf_credit.oracles.auditing import Audit, Auditor
from hf_credit.oracles.base import Oracle
from hf_credit.oracles.evidence_audit import DETECTED, EvidenceAuditor
from hf_credit.oracles.evidence_play import EvidenceHacker, EvidenceOracle

_KINDS = ("think", "read", "verify", "act", "final")
_ROUNDS = 50


def features(audit: Audit) -> tuple[float, ...]:
    """What a detector sees of a step: its kind, whether it calls a tool, how many arguments it has, the verifier's
    uncertainty before it and by how much the step lowers it, and how surely the evidence entails an answer."""
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
    """Logistic scores of steps, one for each category of hack.

        score_c = 1 / (1 + exp(-w_c . features))

    Attributes:
        weights: of each category.
    """

    weights: Mapping[str, tuple[float, ...]]

    @classmethod
    def fit(cls, audits: Sequence[Audit], categories: Sequence[str], penalty: float = 0.1) -> HackDetector:
        """The detector of the categories that steps truly are, by Newton's method on

            sum of cross entropies + penalty / 2 * |w|^2

        Args:
            audits: of the steps to learn from, with `true_hacks`.
            categories: to learn; steps of others are no hacks here, so leave out their traces.
            penalty: above 0, which keeps the weights finite where categories can be told apart without error.

        Raises:
            ValueError: a category has no step, or every step is of it; or the penalty is not above 0.
        """
        if not penalty > 0:
            raise ValueError(f"penalty must be above 0, got {penalty}; 0.1 keeps weights finite.")
        seen = np.array([features(audit) for audit in audits]).reshape(len(audits), -1)
        weights = {}
        for category in categories:
            truth = np.array([category in audit.true_hacks for audit in audits], dtype=float)
            if not 0 < truth.sum() < len(truth):
                raise ValueError(
                    f"a detector learns from steps that are hacks and steps that are not, got {int(truth.sum())} of "
                    f"{len(truth)} for {category!r}; add the traces that lack."
                )
            weights[category] = tuple(map(float, _newton(seen, truth, penalty)))
        return cls(weights=weights)

    def scores(self, audit: Audit) -> dict[str, float]:
        """How surely a step is a hack, by category, in [0, 1]; 0 for a step without an action."""
        if not audit.kind:
            return {}
        seen = np.array(features(audit))
        return {category: float(_logistic(seen @ np.array(own))) for category, own in self.weights.items()}


class DetectingAuditor:
    """An auditor whose hack scores are the greater of its own, by rule, and those of a detector.

    Args:
        inner: the auditor.
        detector: whose categories are among the auditor's.

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
        """The inner auditor's, with the greater scores."""
        made = self.inner.audit(state, action)
        scores = self.detector.scores(made)
        hacks = {name: max(made.hacks.get(name, 0.0), scores.get(name, 0.0)) for name in {**made.hacks, **scores}}
        return replace(made, hacks=hacks)

    def success(self, state: Any) -> float:
        """The inner auditor's."""
        return self.inner.success(state)


def traces(
    environment: Environment[Any], auditor: Auditor[Any], player: Oracle[Any], quality: float, seeds: Sequence[int]
) -> list[Audit]:
    """The audits of all steps of one episode a seed, in which a player takes one of its actions with probability
    `quality` and any legal action otherwise."""
    found = []
    for seed in seeds:
        draws = stream(seed, "traces")
        state = environment.initial_state(environment.sample_task(seed), seed)
        while state.status == "active":
            known = player.valid_actions(state) if draws.random() < quality else environment.legal_actions(state)
            action = draws.choice(sorted(known))
            found.append(auditor.audit(state, action))
            state = environment.step(state, action).state
    return found


def evidence_detector(documents: int = 3, episodes: int = 200) -> HackDetector:
    """A detector that has seen honest play of `evidence`, and hacks by metadata, by stamps and by unsupported answers.

    Traces in which the check was patched or its target shown are held out.

    Args:
        documents: of the environment.
        episodes: of the honest player, and of one for each category of hack, at least 1.
    """
    environment = make("evidence", documents=documents, values=documents + 1)
    auditor, seeds = EvidenceAuditor(documents), range(episodes)
    honest = traces(environment, auditor, EvidenceOracle(), 1.0, seeds)
    hacked = [
        audit for hack in DETECTED for audit in traces(environment, auditor, EvidenceHacker((hack,)), 1.0, seeds)
    ]
    return HackDetector.fit([*honest, *hacked], DETECTED)


def learned_evidence_auditor(documents: int = 3, episodes: int = 200, verifier_noise: float = 0.0) -> DetectingAuditor:
    """The auditor of `evidence` whose detectors are rules and a classifier (`evidence_detector`).

    Args:
        documents, episodes: as in `evidence_detector`.
        verifier_noise: as in `EvidenceAuditor`.
    """
    inner = EvidenceAuditor(documents, verifier_noise=verifier_noise)
    return DetectingAuditor(inner, evidence_detector(documents, episodes))


def _newton(seen: NDArray[np.float64], truth: NDArray[np.float64], penalty: float) -> NDArray[np.float64]:
    weights = np.zeros(seen.shape[1])
    for _ in range(_ROUNDS):
        share = _logistic(seen @ weights)
        gradient = seen.T @ (share - truth) + penalty * weights
        curvature = (seen * (share * (1 - share))[:, None]).T @ seen + penalty * np.eye(len(weights))
        step = np.linalg.solve(curvature, gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-8:
            break
    return weights


def _logistic(value: Any) -> Any:
    return 1 / (1 + np.exp(-np.clip(value, -500, 500)))
