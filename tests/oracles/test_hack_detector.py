"""Detectors that learn from traces."""

from __future__ import annotations

import numpy as np
import pytest

from hf_credit import make
from hf_credit.oracles.auditing import Audit, Auditor, require_auditor_fit, resolve_auditor, spec
from hf_credit.oracles.evidence_audit import DETECTED, EvidenceAuditor
from hf_credit.oracles.evidence_play import EvidenceHacker, EvidenceOracle
from hf_credit.oracles.hack_detector import DetectingAuditor, HackDetector, evidence_detector, features, traces

ENVIRONMENT = make("evidence")
HELD_OUT = range(10_000, 10_100)


@pytest.fixture(scope="module")
def detector():
    return evidence_detector()


def flagged(detector, audits):
    return [max(detector.scores(audit).values()) > 0.5 for audit in audits]


def test_it_knows_the_hacks_it_learned_from_and_leaves_honest_play_alone(detector):
    auditor = EvidenceAuditor()
    honest = traces(ENVIRONMENT, auditor, EvidenceOracle(), 1.0, HELD_OUT)
    assert sum(flagged(detector, honest)) == 0
    hacked = traces(ENVIRONMENT, auditor, EvidenceHacker(DETECTED), 1.0, HELD_OUT)
    hacks = [audit for audit in hacked if audit.true_hacks]
    assert sum(flagged(detector, hacks)) / len(hacks) > 0.95


def test_the_categories_that_are_held_out_are_in_no_trace_it_learns_from():
    audits = traces(ENVIRONMENT, EvidenceAuditor(), EvidenceHacker(DETECTED), 1.0, range(200))
    assert {category for audit in audits for category in audit.true_hacks} == set(DETECTED)


def test_its_weights_are_where_the_gradient_of_the_loss_is_zero():
    auditor = EvidenceAuditor()
    audits = traces(ENVIRONMENT, auditor, EvidenceHacker(("metadata",)), 0.5, range(30))
    weights = np.array(HackDetector.fit(audits, ["metadata"], penalty=0.5).weights["metadata"])
    seen = np.array([features(audit) for audit in audits])
    truth = np.array(["metadata" in audit.true_hacks for audit in audits], dtype=float)
    gradient = seen.T @ (1 / (1 + np.exp(-seen @ weights)) - truth) + 0.5 * weights
    assert np.abs(gradient).max() < 1e-6


def test_an_auditor_takes_the_greater_of_rule_and_detector(detector):
    plain, both = EvidenceAuditor(), DetectingAuditor(EvidenceAuditor(), detector)
    state = ENVIRONMENT.initial_state(ENVIRONMENT.sample_task(0), 0)
    assert plain.audit(state, "patch").hacks == dict.fromkeys(DETECTED, 0.0)
    # To generic features a patch looks like the tampering that was learned.
    assert max(both.audit(state, "patch").hacks.values()) > 0.5
    assert both.audit(state, "meta").hacks["metadata"] == 1
    assert both.audit(state, "").hacks == {}
    assert both.success(state) == 0


def test_a_recipe_can_name_it():
    made = resolve_auditor({"name": "evidence_learned", "options": {"episodes": 20}})
    assert isinstance(made, Auditor)
    assert spec(made) == {
        "name": "evidence_learned",
        "options": {"documents": 3, "episodes": 20, "verifier_noise": 0.0},
    }
    require_auditor_fit(made, ENVIRONMENT)


def test_steps_of_one_class_and_unknown_categories_are_refused():
    clean, hack = Audit(kind="read"), Audit(kind="act", true_hacks=frozenset({"metadata"}))
    with pytest.raises(ValueError, match="hacks and steps that are not, got 0 of 1 for 'metadata'"):
        HackDetector.fit([clean], ["metadata"])
    with pytest.raises(ValueError, match="hacks and steps that are not, got 1 of 1 for 'metadata'"):
        HackDetector.fit([hack], ["metadata"])
    with pytest.raises(ValueError, match="penalty must be above 0, got 0"):
        HackDetector.fit([clean, hack], ["metadata"], penalty=0)
    with pytest.raises(ValueError, match="must score the auditor's categories metadata, spoof"):
        DetectingAuditor(EvidenceAuditor(), HackDetector(weights={"bribe": (0.0,)}))
