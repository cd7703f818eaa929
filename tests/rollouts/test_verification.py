"""Verdicts on every decision; an oracle that fails ends only its episode."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hf_credit import make
from hf_credit.environments.actions import tag
from hf_credit.oracles import default_oracle
from hf_credit.rollouts import Decision, Ending, EnvironmentInteraction, Episode, Verdict, verify

ENVIRONMENT = make("sudoku", size=4, blanks=4)
ORACLE = default_oracle(ENVIRONMENT)
PLAYED = EnvironmentInteraction(ENVIRONMENT)
PUZZLE = "12343412.14.4..1"  # the blanks are 2, 3, 3 and 2
RIGHT, WRONG = Verdict(score=1.0), Verdict(score=0.0)


def episode(*replies, ending=Ending.FINISHED):
    """An episode of these replies; an invalid reply does not change the state."""
    interaction = EnvironmentInteraction(ENVIRONMENT)
    state, decisions = interaction.start({"puzzle": PUZZLE}, 0), []
    for reply in replies:
        decisions.append(
            Decision(role="agent", state=state, context_ids=(1,), action_ids=(2,), logprobs=None, action_text=reply)
        )
        state = interaction.advance(state, [reply])
    return Episode(decisions=tuple(decisions), outcome=0.5, ending=ending, metrics={"success": 0.0})


def verdicts(episode):
    return [decision.verdict for decision in episode.decisions]


class Judge:
    """An oracle of a user, with `verdict` as the score of each action."""

    def __init__(self, verdict):
        self.verdict = verdict
        self.asked = []

    def valid_actions(self, state):
        return frozenset()

    def score(self, state, action):
        self.asked.append(action)
        return self.verdict(action)


def test_every_decision_is_judged_in_its_state():
    # The digit of one cell is right in it and wrong in the next, whatever was filled before.
    own = episode(tag("fill 3 1 2"), tag("fill 3 4 2"), "well: " + tag("FILL 4 2 3"), tag("fill 4 3 4"))
    (judged,) = verify([own], ORACLE, PLAYED)
    assert verdicts(judged) == [RIGHT, WRONG, RIGHT, WRONG]


def test_only_verdicts_change():
    own = episode(tag("fill 3 1 2"), tag("fill 3 4 2"), ending=Ending.TRUNCATED)
    (judged,) = verify([own], ORACLE, PLAYED)
    bare = replace(judged, decisions=tuple(replace(decision, verdict=None) for decision in judged.decisions))
    assert bare == own
    assert verdicts(own) == [None, None]


@pytest.mark.parametrize("reply", ["", "fill 3 1 2", "<action>fill 3 1 2", "</action><action>", tag("")])
def test_a_reply_without_an_action_scores_0_without_the_oracle(reply):
    judge = Judge(lambda action: 1.0)
    (judged,) = verify([episode(reply, ending=Ending.INVALID_ACTION)], judge, PLAYED)
    assert verdicts(judged) == [WRONG]
    assert judged.ending == Ending.INVALID_ACTION
    assert judge.asked == []


def test_the_oracle_scores_an_illegal_action():
    judge = Judge(lambda action: 0.0)
    verify([episode(tag(" Fill  9 9\n9 "))], judge, PLAYED)
    assert judge.asked == ["fill 9 9 9"]


@pytest.mark.parametrize(("score", "valid"), [(0, False), (0.5, False), (0.51, True), (True, True)])
def test_an_action_is_valid_above_half_of_the_score(score, valid):
    (judged,) = verify([episode(tag("x"))], Judge(lambda action: score), PLAYED)
    assert verdicts(judged) == [Verdict(score=float(score))]
    assert verdicts(judged)[0].valid is valid


def fail(action):
    raise RuntimeError(f"no idea\nof {action}")


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        (fail, "oracle failed at turn 3: RuntimeError: no idea of fill 4 2 3"),
        (lambda action: 2.0, "oracle failed at turn 3: ValueError: the score of an oracle must be in [0, 1], got 2.0"),
        (
            lambda action: -0.1,
            "oracle failed at turn 3: ValueError: the score of an oracle must be in [0, 1], got -0.1",
        ),
        (
            lambda action: math.nan,
            "oracle failed at turn 3: ValueError: the score of an oracle must be in [0, 1], got nan",
        ),
        (lambda action: None, "oracle failed at turn 3: TypeError: "),
    ],
)
def test_an_oracle_that_fails_ends_only_that_episode(verdict, error):
    judge = Judge(lambda action: verdict(action) if action == "fill 4 2 3" else 1.0)
    sound, broken = (
        episode(tag("fill 3 1 2")),
        episode(*map(tag, ("fill 3 1 2", "fill 3 4 3", "fill 4 2 3", "fill 4 3 2"))),
    )
    first, second, third = verify([sound, broken, sound], judge, PLAYED)
    assert first == third
    assert (verdicts(first), first.ending, first.error) == ([RIGHT], Ending.FINISHED, None)
    assert verdicts(second) == [RIGHT, RIGHT, None, None]
    assert second.ending == Ending.ERROR
    assert second.error.startswith(error)
    assert (second.outcome, second.metrics) == (0.5, {"success": 0.0})
    assert judge.asked.count("fill 4 3 2") == 0


def test_the_report_of_a_failure_is_short():
    def fail(action):
        raise RuntimeError("x" * 10_000)

    (judged,) = verify([episode(tag("fill 3 1 2"))], Judge(fail), PLAYED)
    assert len(judged.error) == 500


def test_an_episode_that_ended_in_an_error_keeps_it():
    own = replace(episode(tag("fill 3 1 2"), ending=Ending.ERROR), error="the world ended")
    (judged,) = verify([own], ORACLE, PLAYED)
    assert (verdicts(judged), judged.ending, judged.error) == ([RIGHT], Ending.ERROR, "the world ended")
    (judged,) = verify([own], Judge(fail), PLAYED)
    assert (verdicts(judged), judged.ending, judged.error) == ([None], Ending.ERROR, "the world ended")


def test_no_episodes_have_no_verdicts():
    assert verify([], ORACLE, PLAYED) == []
    assert verify([replace(episode(), ending=Ending.TRUNCATED)], ORACLE, PLAYED)[0].decisions == ()
