"""An audit refuses invalid values. Auditors and interventions by name."""

from __future__ import annotations

import math

import pytest

from hf_credit import make
from hf_credit.oracles.auditing import (
    Audit,
    Auditor,
    Interventions,
    default_auditor,
    default_interventions,
    require_auditor_fit,
    resolve_auditor,
    resolve_interventions,
    spec,
)
from hf_credit.oracles.evidence_audit import EvidenceAuditor


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"costs": {"unsafe": -1.0}}, "a cost must be at least 0, got -1.0 of 'unsafe'"),
        ({"costs": {"unsafe": math.nan}}, "a cost must be at least 0, got nan of 'unsafe'"),
        ({"hacks": {"spoof": 1.5}}, r"an audit's hack score of 'spoof' must be in \[0, 1\], got 1.5"),
        ({"uncertainty": (0.5, -0.1)}, r"uncertainty after the step must be in \[0, 1\], got -0.1"),
        ({"evidence": 2.0}, r"an audit's evidence must be in \[0, 1\], got 2.0"),
        ({"entailment": math.nan}, r"an audit's entailment must be in \[0, 1\], got nan"),
        ({"beliefs": {"phase": (0.5, 0.4)}}, "a belief must be a distribution .* for the slot 'phase'"),
        ({"beliefs": {"phase": (1.5, -0.5)}}, "a belief must be a distribution .* for the slot 'phase'"),
        ({"beliefs": {"phase": ()}}, "a belief must be a distribution .* for the slot 'phase'"),
    ],
)
def test_invalid_values_of_an_audit_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Audit(**values)


def test_an_audit_of_nothing_is_one():
    assert Audit() == Audit(kind="", costs={}, evidence=None, beliefs={})


class Watcher:
    """An auditor of someone else's, for any environment."""

    def __init__(self, success=0.5):
        self.costs, self.categories, self.slots = ("length",), (), {}
        self.given = success

    def audit(self, state, action):
        return Audit(costs={"length": float(len(action))})

    def success(self, state):
        return self.given


def test_an_auditor_is_found_by_its_name_and_options_and_described_by_them():
    made = resolve_auditor({"name": "evidence", "options": {"verifier_noise": 0.1}})
    assert isinstance(made, Auditor)
    assert spec(made) == {
        "name": "evidence",
        "options": {
            "documents": 3,
            "false_positives": 0.0,
            "false_negatives": 0.0,
            "verifier_noise": 0.1,
            "oracle_beliefs": False,
        },
    }
    assert resolve_auditor(spec(made)).verifier_noise == 0.1
    assert resolve_auditor(made) is made
    assert resolve_auditor(None) is None
    named = resolve_auditor("hf_credit.oracles.evidence_audit:EvidenceAuditor")
    assert isinstance(named, EvidenceAuditor)


def test_interventions_are_found_by_their_name():
    made = resolve_interventions("evidence")
    assert isinstance(made, Interventions)
    assert spec(made) == {"name": "evidence", "options": {}}
    assert resolve_interventions(None) is None


def test_an_environment_has_a_default_auditor():
    environment = make("evidence", documents=4, values=6)
    assert default_auditor(environment).slots["evidence"] == 5
    require_auditor_fit(default_auditor(environment), environment)
    assert default_interventions(environment).families[0] == "deletion"
    assert default_auditor(make("sudoku")) is None
    assert default_interventions(make("sudoku")) is None


def test_an_auditor_that_fits_any_environment_is_taken():
    require_auditor_fit(Watcher(), make("sudoku"))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("evidense", "auditor must be one of evidence, evidence_learned, or 'module:object', got"),
        ({"options": {}}, "auditor must be a name, or a mapping of a name and its options"),
        ({"name": "evidence", "options": {"noise": 1}}, "auditor 'evidence' takes the options documents"),
        (
            "hf_credit.environments.sudoku:Sudoku",
            "an auditor must be a hf_credit.oracles.auditing.Auditor, got a Sudoku from .*; give it audit",
        ),
    ],
)
def test_an_invalid_auditor_is_refused(given, message):
    with pytest.raises(ValueError, match=message):
        resolve_auditor(given)


@pytest.mark.parametrize(
    ("auditor", "environment", "message"),
    [
        (EvidenceAuditor(), make("sudoku"), "must be made for the environment 'sudoku', got 'evidence' for Evidence"),
        (EvidenceAuditor(documents=4), make("evidence"), "got ValueError from 'evidence' on 'think'"),
        (Watcher(success=2.0), make("sudoku"), r"an Audit and a success in \[0, 1\], got a Audit and 2.0"),
    ],
)
def test_an_auditor_that_does_not_fit_is_refused(auditor, environment, message):
    with pytest.raises(ValueError, match=message):
        require_auditor_fit(auditor, environment)
