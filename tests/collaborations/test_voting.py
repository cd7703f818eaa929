"""Votes and their collaboration: every distinct answer is scored once, ties as told."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.collaborations.sum_vote import number_key, sum_vote
from hf_credit.collaborations.voting import plurality, vote_score, voting
from hf_credit.tasks import TaskSpec

RIGHT = {"a": 1.0, "b": 0.0, "c": 0.0}
VOTES = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=5)


def scores_without(votes, scores, ties="expected"):
    """The score of the vote without each voter in turn: R_not_i of CCPO, section 4.1."""
    return [vote_score([*votes[:voter], *votes[voter + 1 :]], scores, ties) for voter in range(len(votes))]


def test_the_plurality_wins_and_abstentions_do_not_count():
    assert plurality(["b", "a", "b"]) == ("b",)
    assert plurality(["b", None, "a", None, None]) == ("b", "a")
    assert plurality([None, None]) == ()


@pytest.mark.parametrize(("ties", "worth"), [("expected", 0.5), ("first", 0.0), ("none", 0.0)])
def test_the_rule_determines_the_score_of_a_tie(ties, worth):
    assert vote_score(["b", "a"], RIGHT, ties) == worth
    assert vote_score(["a", "b"], RIGHT, "first") == 1.0


def test_a_vote_without_votes_scores_0():
    assert vote_score([None, None, None], RIGHT) == vote_score([], RIGHT) == 0.0
    assert scores_without(["a"], RIGHT) == [0.0]


def test_two_of_three_voters_may_tie():
    assert scores_without(["a", "a", "b"], RIGHT) == [0.5, 0.5, 1.0]
    assert scores_without(["a", "a", "b"], RIGHT, "none") == [0.0, 0.0, 1.0]


@given(VOTES, st.sampled_from(["expected", "first", "none"]))
def test_an_abstention_changes_nothing(votes, ties):
    whole = vote_score(votes, RIGHT, ties)
    for vote, rest in zip(votes, scores_without(votes, RIGHT, ties), strict=True):
        assert vote is not None or rest == whole


@given(VOTES, st.randoms())
def test_expected_ties_treat_all_voters_alike(votes, draws):
    order = list(range(len(votes)))
    draws.shuffle(order)
    before = scores_without(votes, RIGHT)
    assert scores_without([votes[place] for place in order], RIGHT) == [before[place] for place in order]


def test_an_unknown_rule_is_refused():
    with pytest.raises(ValueError, match="ties must be one of expected, first, none, got 'last'; "):
        vote_score(["a"], RIGHT, "last")


def test_the_vote_without_an_agent_is_a_strong_baseline():
    """Three who are right half of the time: Var(g R) = 0.1094 and Var(g Delta) = 0.0156 for a logit of one of them.

    The score function g of a Bernoulli(1/2) in its logit is 1/2 or -1/2.
    """
    shared, counterfactual = [], []
    for votes in product("ab", repeat=3):
        score = 0.5 if votes[0] == "a" else -0.5
        outcome = vote_score(votes, RIGHT)
        shared.append(score * outcome)
        counterfactual.append(score * (outcome - scores_without(votes, RIGHT)[0]))

    def variance(values):
        mean = sum(values) / len(values)
        return sum((value - mean) ** 2 for value in values) / len(values)

    assert sum(shared) == sum(counterfactual) == 1.0  # no bias (Theorem 5.3)
    assert variance(shared) == pytest.approx(0.109375)
    assert variance(counterfactual) == pytest.approx(0.015625)


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
    assert team.state_from_json(team.state_to_json(state)) == state
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
    team, draws = sum_vote(6), random.Random(0)
    play, pairs = team.scripted_player(0.7), team.numbers("train")
    right = dict.fromkeys(team.roles, 0)
    for place in range(300):
        state = team.start(team.row(pairs[place % len(pairs)]), 0)
        state = team.advance(state, [play(state, request, draws) for request in team.pending(state)])
        for role, answer in state.ballots:
            right[role] += answer == state.row["answer"]
    assert right["first"] / 300 == pytest.approx(0.75, abs=0.1)
    assert right["third"] < 120
    with pytest.raises(ValueError, match=r"quality must be in \[0, 1\], got -1"):
        team.scripted_player(-1)
    with pytest.raises(ValueError, match="size must be a whole number from 3 to 10, got 2"):
        sum_vote(2)
