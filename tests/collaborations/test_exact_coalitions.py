"""The value of every coalition of a team, against brute force and against episodes of the Engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.collaborations.exact_coalitions import vote_values
from hf_credit.collaborations.exact_values import exact_values
from hf_credit.collaborations.hinted_relay import hinted_relay
from hf_credit.policies.micro import MicroConfig, build_model, tokenizer_of
from hf_credit.rollouts import Chat

SCORES = {"a": 1.0, "b": 0.0}
HALVES = {role: {"a": 0.5, "b": 0.5} for role in "xyz"}


def test_three_voters_who_are_right_half_of_the_time_score_half():
    found = vote_values(HALVES, SCORES)
    assert set(found.values.values()) == {0.0, 0.5}  # of nobody, and of anybody
    assert found.contribution("x") == 0.0
    assert found.shapley("x") == pytest.approx(0.5 / 3)


def test_the_value_of_the_right_majority_is_the_binomial():
    answers = {role: {"a": 0.7, "b": 0.3} for role in "xyz"}
    assert vote_values(answers, SCORES).value == pytest.approx(0.7**3 + 3 * 0.7**2 * 0.3)


@given(st.lists(st.lists(st.floats(0.01, 1), min_size=3, max_size=3), min_size=2, max_size=4))
def test_shapley_values_sum_to_the_value_of_the_team(weights):
    answers = {
        str(place): {key: weight / sum(own) for key, weight in zip(("a", "b", None), own, strict=True)}
        for place, own in enumerate(weights)
    }
    found = vote_values(answers, SCORES)
    assert sum(found.shapley(role) for role in answers) == pytest.approx(found.value)


def untrained(texts):
    tokenizer = tokenizer_of(texts)
    return build_model(tokenizer, MicroConfig(hidden_size=8, layers=1, heads=2)), Chat(tokenizer)


@pytest.fixture(scope="module")
def relay():
    model, chat = untrained(["tell answer secret or Notes of the thinker: \n 0 1 2"])
    return hinted_relay(3), model, chat


def test_each_role_may_have_a_policy_of_its_own(relay):
    from contextlib import nullcontext

    team, model, chat = relay
    other = build_model(chat.tokenizer, MicroConfig(hidden_size=8, layers=1, heads=2, seed=1))
    start = team.start(team.row((2, 1)), 0)
    policies = {"thinker": model, "solver": other}

    def value(policy, state):
        return exact_values(team, chat, policy, [state], max_new_tokens=1)[0].value

    def of_role(role):
        return nullcontext(policies[role])

    alone = team.without(start, "thinker")
    assert value(of_role, alone) == pytest.approx(value(other, alone))
    assert value(of_role, start) != pytest.approx(value(model, start), abs=1e-6)
