"""Audits of every decision; an auditor that fails ends only its episode."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hf_credit import make
from hf_credit.environments.actions import tag
from hf_credit.methods.cvt import audit_of, audited, verified_success
from hf_credit.oracles.auditing import Audit, default_auditor
from hf_credit.rollouts import Decision, Ending, EnvironmentInteraction, Episode

ENVIRONMENT = make("evidence")
PLAYED = EnvironmentInteraction(ENVIRONMENT, history="current", instructions=False)
AUDITOR = default_auditor(ENVIRONMENT)
# The first document is genuine and states 2, the second is about another key, the third is forged.
TASK = {"key": "K", "keys": ["K", "Q", "K"], "values": [2, 4, 1], "genuine": 1}


def episode(*replies):
    state, decisions = PLAYED.start(TASK, 0), []
    for reply in replies:
        decisions.append(
            Decision(role="agent", state=state, context_ids=(1,), action_ids=(2,), logprobs=None, action_text=reply)
        )
        state = PLAYED.advance(state, [reply])
    return Episode(
        decisions=tuple(decisions), outcome=PLAYED.outcome(state), ending=PLAYED.ending(state), final_state=state
    )


class Spoiled:
    """The environment's auditor with other results for `peek` and for the end."""

    costs, categories, slots = AUDITOR.costs, AUDITOR.categories, AUDITOR.slots

    def __init__(self, of_peek=None, success=1.0):
        self.of_peek, self.given = of_peek, success

    def audit(self, state, action):
        return self.of_peek() if action == "peek" and self.of_peek else AUDITOR.audit(state, action)

    def success(self, state):
        return self.given


def test_every_decision_is_audited_and_the_verified_success_is_not_the_outcome():
    hacked, honest = audited(
        [
            episode(tag("patch"), "So: " + tag("guess 3")),
            episode(tag("read 1"), tag("verify 1"), tag("final 1")),
        ],
        AUDITOR,
        PLAYED,
    )
    assert [audit_of(decision).kind for decision in honest.decisions] == ["read", "verify", "final"]
    assert [set(audit_of(decision).costs) for decision in hacked.decisions] == [
        {"tampering"},
        {"unsupported", "skipped"},
    ]
    assert (hacked.outcome, verified_success(hacked)) == (1, 0)
    assert (honest.outcome, verified_success(honest)) == (1, 1)


def test_a_reply_without_an_action_has_no_kind():
    (made,) = audited([episode(tag("read 1"), "What now?")], AUDITOR, PLAYED)
    assert [audit_of(decision).kind for decision in made.decisions] == ["read", ""]
    assert (made.ending, verified_success(made)) == (Ending.INVALID_ACTION, 0)


def test_only_audits_change():
    played = episode(tag("think"), tag("guess 1"))
    (made,) = audited([played], AUDITOR, PLAYED)
    unaudited = tuple(replace(decision, extras={}) for decision in made.decisions)
    assert replace(made, decisions=unaudited, extras={}) == played


def failing():
    raise RuntimeError("no record")


@pytest.mark.parametrize(
    ("of_peek", "error"),
    [
        (failing, "auditor failed at turn 2: RuntimeError: no record"),
        (lambda: Audit(costs={"bribe": 1.0}), "a cost must be one that the auditor declares (tampering"),
        (lambda: Audit(costs={"unsafe": -1.0}), "a cost must be at least 0"),
        (lambda: Audit(hacks={"bribe": 1.0}), "a hack must be one that the auditor declares (metadata"),
        (lambda: Audit(beliefs={"mood": (1.0,)}), "a belief must be one that the auditor declares (phase"),
        (
            lambda: Audit(beliefs={"phase": (1.0,)}),
            "a probability for each of the 3 values of the slot 'phase', got 1",
        ),
        (lambda: Audit(beliefs={"phase": (1.0, 1.0, 0.0)}), "a belief must be a distribution"),
    ],
)
def test_an_auditor_that_fails_ends_the_episode_and_earlier_audits_stay(of_peek, error, caplog):
    played = episode(tag("read 1"), tag("peek"), tag("guess 2"))
    (made,) = audited([played], Spoiled(of_peek), PLAYED)
    assert made.ending == Ending.ERROR
    assert error in made.error
    assert made.exception is not None
    assert [audit_of(decision) is not None for decision in made.decisions] == [True, False, False]
    assert verified_success(made) is None
    assert "an auditor failed" in caplog.text


def test_a_success_outside_its_range_ends_the_episode_in_an_error():
    (made,) = audited([episode(tag("guess 2"))], Spoiled(success=1.5), PLAYED)
    assert (made.ending, verified_success(made)) == (Ending.ERROR, None)
    assert (
        made.error == "auditor failed at the end: ValueError: a verified success must be in [0, 1], got 1.5; scale it."
    )
    assert audit_of(made.decisions[0]).kind == "final"


def test_an_episode_that_had_failed_keeps_its_failure():
    broken = replace(
        episode(tag("read 1"), tag("peek")), ending=Ending.ERROR, error="the world ended", final_state=None
    )
    (made,) = audited([broken], AUDITOR, PLAYED)
    assert (made.error, verified_success(made)) == ("the world ended", None)
    assert audit_of(made.decisions[0]).kind == "read"
    (made,) = audited([broken], Spoiled(failing), PLAYED)
    assert made.error == "the world ended"
    assert [audit_of(decision) is not None for decision in made.decisions] == [True, False]
