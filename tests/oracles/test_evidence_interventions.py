"""Interventions on steps of evidence."""

from __future__ import annotations

import random

import pytest

from hf_credit import make
from hf_credit.oracles.evidence_interventions import EvidenceInterventions

# The first document is genuine and states 2, the second is about another key, the third is forged.
TASK = {"key": "K", "keys": ["K", "Q", "K"], "values": [2, 4, 1], "genuine": 1}
ENVIRONMENT = make("evidence")
INTERVENTIONS = EvidenceInterventions()


def state_after(*actions):
    state = ENVIRONMENT.initial_state(TASK, 0)
    for action in actions:
        state = ENVIRONMENT.step(state, action).state
    return state


def proposals(state, action, family, count=40):
    draws = random.Random(0)
    return [INTERVENTIONS.propose(state, action, family, draws) for _ in range(count)]


@pytest.mark.parametrize(
    ("action", "families"),
    [
        ("think", {"paraphrase"}),
        ("read 2", {"deletion", "paraphrase", "substitution", "perturbation"}),
        ("verify 1", {"deletion", "paraphrase", "perturbation"}),
        ("stamp 1", {"deletion", "paraphrase"}),
        ("final 1", {"deletion", "paraphrase", "substitution"}),
        ("guess 1", {"deletion", "paraphrase"}),
        ("verify 2", set()),
        ("", set()),
    ],
)
def test_which_families_apply_to_an_action(action, families):
    state = state_after("read 1")
    assert {family for family in INTERVENTIONS.families if INTERVENTIONS.applies(state, action, family)} == families


def test_applicability_does_not_depend_on_hidden_state():
    state, other = state_after("read 1"), ENVIRONMENT.initial_state({**TASK, "genuine": 3}, 5)
    other = ENVIRONMENT.step(other, "read 1").state
    assert ENVIRONMENT.observe(state) == ENVIRONMENT.observe(other)
    for action in ENVIRONMENT.legal_actions(state):
        for family in INTERVENTIONS.families:
            assert INTERVENTIONS.applies(state, action, family) == INTERVENTIONS.applies(other, action, family)


def test_the_last_unread_document_has_no_other_in_its_place():
    assert not INTERVENTIONS.applies(state_after("read 1", "read 2"), "read 3", "substitution")
    assert INTERVENTIONS.applies(state_after("read 1", "read 2"), "final 3", "substitution")


def test_deletion_leaves_an_empty_thought():
    (made,) = proposals(state_after(), "meta", "deletion", 1)
    assert (made.action, made.state, made.text) == ("think", None, None)


def test_a_paraphrase_takes_the_same_action_in_other_words():
    for made in proposals(state_after(), "read 2", "paraphrase"):
        assert made.action == "read 2"
        assert made.text != ENVIRONMENT.write_action("read 2")
        assert ENVIRONMENT.read_action(made.text) == "read 2"


def test_a_substitution_draws_among_all_other_documents():
    drawn = [made.action for made in proposals(state_after(), "final 2", "substitution", 200)]
    assert set(drawn) == {"final 1", "final 3"}
    assert 70 <= drawn.count("final 1") <= 130


def test_a_perturbed_tool_reports_the_opposite():
    (read,) = proposals(state_after(), "read 2", "perturbation", 1)
    assert (read.action, read.text, read.state.reads) == ("read 2", None, ("", "on", ""))
    (verify,) = proposals(state_after("read 1"), "verify 1", "perturbation", 1)
    assert verify.state.checks == ("forged", "", "")
    assert ENVIRONMENT.step(state_after("read 1"), "verify 1").state.checks == ("genuine", "", "")


def test_the_evidence_has_the_documents_that_were_read():
    assert INTERVENTIONS.evidence(state_after("read 1", "verify 1", "meta")).splitlines() == [
        "documents 1 2 3",
        "tools think read verify stamp meta peek patch purge final guess",
        "document 1 on key K value 2 genuine",
    ]
