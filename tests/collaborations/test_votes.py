"""Votes are counted, also without each voter."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.collaborations.votes import plurality, scores_without, vote_score

RIGHT = {"a": 1.0, "b": 0.0, "c": 0.0}
VOTES = st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=5)


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
