"""All voters answer simultaneously, each answer is scored once, and a vote without a voter needs no new replies."""

from __future__ import annotations

import random

import pytest

from hf_credit.collaborations.sum_vote import number_key, stock_player, sum_pairs, sum_task, sum_vote
from hf_credit.collaborations.voting import VotingState, voting
from hf_credit.tasks import TaskSpec

ROW = {"problem": "1 and 1", "answer": "2"}


def vote(*replies, ties="expected", scorer=None, extract=number_key):
    team = voting(scorer or (lambda task, text: float(text == task["answer"])), extract, len(replies), ties)
    return team, team.advance(team.start(ROW, 0), replies)


def test_all_see_the_bare_problem_at_once():
    team = voting(lambda task, text: 1.0, number_key)
    requests = team.pending(team.start(ROW, 0))
    assert [request.role for request in requests] == ["voter_1", "voter_2", "voter_3"]
    assert {request.messages[1]["content"] for request in requests} == {"1 and 1"}


def test_a_vote_without_a_voter_is_over_without_new_replies():
    team, state = vote("2", "2", "3")
    assert team.outcome(state) == 1.0
    left = {role: team.without(state, role) for role in team.roles}
    assert all(team.pending(one) == () for one in left.values())
    assert [team.outcome(one) for one in left.values()] == [0.5, 0.5, 1.0]
    assert team.outcome(team.without(team.without(state, "voter_1"), "voter_2")) == 0.0


def test_each_distinct_answer_is_scored_once_also_without_a_voter():
    calls = []
    team, state = vote("3", "2", "2", scorer=lambda task, text: calls.append(text) or float(text == "2"))
    assert [team.outcome(one) for one in (state, *(team.without(state, role) for role in team.roles))]
    assert calls == ["3", "2"]
    assert team.scores(state) == 2
    assert team.scores(team.without(state, "voter_1")) == 0


def test_a_reply_without_an_answer_abstains():
    team, state = vote("", "about two", "2")
    assert state.ballots == (("voter_1", None), ("voter_2", None), ("voter_3", "2"))
    assert team.outcome(state) == 1.0
    assert team.metrics(state) == {
        "votes/tied": 0.0,
        "votes/abstained": pytest.approx(2 / 3),
        "votes/score/voter_1": 0.0,
        "votes/score/voter_2": 0.0,
        "votes/score/voter_3": 1.0,
    }
    team, state = vote("", "", "")
    assert team.outcome(state) == 0.0
    assert team.scores(state) == 0


def test_ties_go_by_the_rule():
    for ties, worth in (("expected", 0.5), ("first", 0.0), ("none", 0.0)):
        team, state = vote("3", "2", ties=ties)
        assert team.outcome(state) == worth


def test_a_state_survives_json_and_an_unfinished_vote_scores_0():
    team, state = vote("2", "", "3")
    assert VotingState.from_json(state.to_json()) == state
    assert team.outcome(team.start(ROW, 0)) == 0.0
    assert team.metrics(team.start(ROW, 0)) == {}


def test_a_vote_that_starts_without_somebody_goes_on_without():
    team = voting(lambda task, text: float(text == "2"), number_key)
    start = team.without(team.start(ROW, 0), "voter_2")
    assert [request.role for request in team.pending(start)] == ["voter_1", "voter_3"]
    assert team.scores(team.advance(start, ["2", "3"])) == 2


def test_a_single_voter_cannot_be_removed():
    team, state = vote("2")
    assert team.outcome(state) == 1.0
    assert team.removable == ()


def test_a_text_names_one_voter():
    assert tuple(voting(lambda task, text: 1.0, number_key, "alone").roles) == ("alone",)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"voters": 0}, "a vote must have a voter, got none; "),
        ({"voters": ("a", "a")}, "voters must have different names, got a, a; "),
        ({"ties": "last"}, "ties must be one of expected, first, none, got 'last'; "),
        ({"extract": "nowhere:at_all"}, "function must be importable"),
        (
            {"scorer": lambda task, text, transcript: 1.0},
            "the scorer of a vote must be a function of a task and a text, got one with a transcript; ",
        ),
    ],
)
def test_impossible_votes_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        voting(**{"scorer": lambda task, text: 1.0, "extract": number_key, **options})


def test_an_extractor_without_a_text_and_a_score_out_of_range_are_refused():
    with pytest.raises(ValueError, match="an extractor must return a text or None, got 2 from int; "):
        vote("2", "3", extract=int)
    with pytest.raises(ValueError, match=r"a score must be a number in \[0, 1\], got 2.0"):
        vote("2", "3", scorer=lambda task, text: 2.0)


def test_its_spec_rebuilds_it():
    team = sum_vote(6, ties="first")
    assert TaskSpec.of(team).build().ties == "first"
    made = voting("hf_credit.collaborations.sum_vote:sum_score", "hf_credit.collaborations.sum_vote:number_key", 5)
    again = TaskSpec.of(made).build()
    assert list(again.roles) == [f"voter_{place}" for place in range(1, 6)]
    assert again.extract is number_key


def test_two_players_of_the_sum_vote_are_mostly_right_and_the_third_sends_a_stock_number():
    team, draws, play = sum_vote(6), random.Random(0), stock_player(0.7)
    right = dict.fromkeys(team.roles, 0)
    for place in range(300):
        one, other = sum_pairs("train")[place % len(sum_pairs("train"))]
        state = team.start(sum_task(one, other), 0)
        state = team.advance(state, [play(state, request, draws) for request in team.pending(state)])
        for role, answer in state.ballots:
            right[role] += answer == state.row["answer"]
    assert right["first"] / 300 == pytest.approx(0.75, abs=0.1)
    assert right["third"] < 120
    with pytest.raises(ValueError, match=r"quality must be in \[0, 1\], got -1"):
        stock_player(-1)
    with pytest.raises(ValueError, match="size must be a whole number from 3 to 10, got 2"):
        sum_vote(2)
