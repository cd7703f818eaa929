"""Games of the library as problems: their values are those that other modules of the library enumerate."""

from __future__ import annotations

import pytest

from hf_credit.collaborations.exact_coalitions import vote_values
from hf_credit.environments import make
from hf_credit.methods import make as make_method
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit_bench import TablePolicy, Truth, make_problem, score
from hf_credit_bench.games import Team


def test_a_relay_is_right_if_both_are_right_or_one_corrects_the_other() -> None:
    relay = make_problem("number_relay", size=3, speakers=2, start_right=0.5)
    assert Truth(TablePolicy(relay)).start == pytest.approx(0.5 * 0.5 + 0.5 * 0.25)


def test_the_outcome_of_a_vote_follows_its_answers() -> None:
    vote = make_problem("sum_vote", size=3, start_right=0.5, lazy=0.8)
    shares = {"1": {"0": 0.25, "1": 0.5, "2": 0.25}, "0": {"0": 0.5, "1": 0.25, "2": 0.25}}
    lazy = {"0": 0.8, "1": 0.1, "2": 0.1}
    truth = Truth(TablePolicy(vote))
    for way in vote.starts():
        answer = way.node.row["answer"]  # type: ignore[attr-defined]
        if answer in shares:
            answers = {"first": shares[answer], "second": shares[answer], "third": lazy}
            assert truth.values[way.node, ()] == pytest.approx(
                vote_values(answers, {one: float(one == answer) for one in "012"}).value
            )


def test_a_member_of_a_team_can_be_left_out() -> None:
    vote = make_problem("sum_vote")
    state = vote.start({}, 0)
    answer = state.node.row["answer"]  # type: ignore[attr-defined]
    after = vote.advance(state, [answer, "0" if answer != "0" else "1", "0" if answer != "0" else "1"])
    assert after.total == 0
    without = vote.without(vote.without(after, "second"), "third")  # type: ignore[attr-defined]
    assert (without.total, vote.pending(without)) == (1.0, ())
    assert score(make_method("counterfactual_grpo", group_size=2), vote, updates=8, instances=2).tokens > 0


def test_tasks_that_cannot_be_enumerated_are_refused() -> None:
    with pytest.raises(ValueError, match="must be enumerable, got 'sudoku'"):
        Team(EnvironmentInteraction(make("sudoku")), ("{}",), ("1",), 0.5)
