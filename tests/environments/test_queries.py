"""Replies that query or answer, and the common rules of the environments of paper T3."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.environments.guess_numbers import GuessNumbers
from hf_credit.environments.queries import first_act, parse
from hf_credit.environments.tasks import SEEDS_PER_SPLIT, split_of, task_seed
from hf_credit.oracles.hypotheses import HypothesesOracle
from hf_credit.rollouts import EnvironmentInteraction

GAME = GuessNumbers()
ROW = {"digits": 3, "symbols": 4, "secret": "231", "first_guess": "123"}


def start(turns=10):
    game = GuessNumbers(turns=turns)
    return game, game.initial_state(ROW, 0)


@pytest.mark.parametrize(
    ("reply", "action"),
    [
        ("", ""),
        ("123", ""),
        ("<interact>123</interact>", "interact 123"),
        ("<answer> 123\n</answer>", "answer 123"),
        ("so <interact>Is it\n A?</interact> or <answer>B</answer>", "interact Is it A?"),
        ("<answer>1</answer> <answer>2</answer>", "answer 1"),
        ("<interact>12 and then <answer>3</answer>", "answer 3"),
        ("<interact>12</answer> <interact>4</interact>", "interact 4"),
        ("<answer></answer>", "answer"),
        ("<ANSWER>1</ANSWER>", ""),
        ("<answer>1", ""),
        ("<think>Could be <answer>123</answer>, too early.</think><interact>145</interact>", "interact 145"),
        ("Could be <answer>123</answer></think> Not yet.", ""),
        ("<think><answer>123</answer>", ""),
    ],
)
def test_the_first_closed_tag_is_the_action_and_case_is_kept(reply, action):
    assert first_act(reply) == action


@given(
    st.text(alphabet="<>/ interactsw12\n")
    | st.lists(st.sampled_from(["<interact>", "</interact>", "<answer>", "</answer>", "a"])).map("".join)
)
def test_reading_a_written_action_returns_it(reply):
    action = first_act(reply)
    if action:
        assert first_act(GAME.write_action(action)) == action
        assert parse(action) == parse(GAME.write_action(action))


@pytest.mark.parametrize("text", ["", "123", "guess 123", "<interact>", "interacting 1"])
def test_text_without_a_closed_tag_is_no_action(text):
    assert parse(text) is None


@given(st.integers(0, SEEDS_PER_SPLIT - 1), st.sampled_from(["train", "held_out"]))
def test_a_seed_determines_split_and_index(index, split):
    assert split_of(task_seed(split, index)) == (split, index)
    assert split_of(task_seed(split, index) - 2**32) == (split, index)


def test_an_answer_ends_the_game_and_only_it_is_rewarded():
    game, state = start()
    guessed = game.step(state, "interact 231")
    assert (guessed.reward, guessed.terminated, guessed.info["action"]) == (0.0, False, "interact 231")
    answered = game.step(guessed.state, "<think>sure</think><answer>231</answer>")
    assert (answered.reward, answered.terminated, answered.state.status) == (1.0, True, "finished")
    assert game.metrics(answered.state) == {"success": 1.0, "answered": 1.0, "queries": 1.0}


def test_an_answer_in_thoughts_does_not_end_the_game_and_oracle_and_rules_agree():
    game, state = start()
    reply = "<think>Could be <answer>123</answer>.</think><interact>231</interact>"
    assert game.read_action(reply) == game.step(state, reply).info["action"] == "interact 231"
    oracle = HypothesesOracle()
    assert oracle.score(state, reply) == oracle.score(state, "interact 231") == 1.0


def test_turns_count_replies_including_the_answer():
    game, state = start(turns=2)
    last = game.step(state, "interact 231").state
    assert (last.left, last.status) == (1, "active")
    over = game.step(last, "interact 231")
    assert (over.reward, over.state.status, over.state.left) == (0.0, "finished", 0)
    assert game.step(last, "answer 231").reward == 1.0


def test_a_forced_answer_leaves_one_reply():
    game, state = start()
    force_answer = game.force_answer(game.step(state, "interact 321").state)
    assert game.observe(force_answer) == game.observe(game.step(state, "interact 321").state)
    assert game.step(force_answer, "interact 321").state.status == "finished"
    assert "<answer>" in game.answer_prompt(force_answer)


def test_an_unreadable_reply_ends_the_game_as_invalid_and_keeps_the_state():
    game, state = start()
    for reply in ("", "231", "<interact>9</interact>", "<answer>232 </answer> <answer>231</answer>"):
        after = game.step(state, reply)
        assert after.reward == 0.0
        assert after.state.status == ("finished" if "232" in reply else "invalid")
    assert game.step(state, "").state == type(state)(**{**vars(state), "status": "invalid"})


def test_later_observations_are_feedback_so_the_current_one_is_not_enough():
    with pytest.raises(
        ValueError,
        match="history must be 'append' or 'rendered' for an environment whose observations are not",
    ):
        EnvironmentInteraction(GAME, history="current")
