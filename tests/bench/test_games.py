"""Games of the library as problems: their values are those that other modules of the library enumerate."""

from __future__ import annotations

import dataclasses

import pytest

from hf_credit.collaborations.exact_coalitions import vote_values
from hf_credit.environments import make
from hf_credit.evaluation.exact_actions import ExactPlay
from hf_credit.methods import make as make_method
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit_bench import TablePolicy, Truth, make_problem, score
from hf_credit_bench.games import Team, World


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


@pytest.mark.parametrize(("name", "dials"), [("tic_tac_toe", {}), ("evidence", {"turns": 3})])
def test_values_of_a_world_are_those_of_its_rules(name: str, dials: dict[str, int]) -> None:
    world = make_problem(name, **dials)
    assert isinstance(world, World)
    policy = TablePolicy(world)
    worth = {"outcome": world.environment.outcome}
    if world.hackable:
        worth["verified"] = world.check_auditor(None).auditor.success

    def shares(states: list[object]) -> list[dict[str, float]]:
        return [
            dict(
                zip(
                    world.environment.legal_actions(state),
                    policy.of(world.view(state, "agent")).tolist(),
                    strict=True,
                )
            )
            for state in states
        ]

    exact = ExactPlay(world.environment, shares, worth)  # type: ignore[arg-type]
    (opening,) = world.openings
    assert Truth(policy).start == pytest.approx(exact.value(opening, "verified" if world.hackable else "outcome"))
    assert Truth(policy, paid=True).start == pytest.approx(exact.value(opening, "outcome"))


def test_an_auditor_of_evidence_verifies_what_the_check_does_not() -> None:
    world = make_problem("evidence", turns=2)
    auditor = world.check_auditor(None)
    legal = world.environment.legal_actions(world.openings[0])  # type: ignore[attr-defined]
    patched = world.advance(world.start({}, 0), [str(legal.index("patch"))])
    assert auditor.audit(world.start({}, 0), str(legal.index("patch"))).true_hacks == {"evaluator"}
    over = world.advance(patched, [str(world.environment.legal_actions(patched.node).index("final 1"))])  # type: ignore[attr-defined]
    assert (over.total, over.worth, auditor.success(over)) == (1.0, 0.0, 0.0)


def test_tasks_that_cannot_be_enumerated_are_refused() -> None:
    with pytest.raises(ValueError, match="must be enumerable, got 'sudoku'"):
        Team(EnvironmentInteraction(make("sudoku")), ("{}",), ("1",), 0.5)
    with pytest.raises(ValueError, match=r"must have a method ways\(.*, got 'sudoku'"):
        World(make("sudoku"), ())


def test_worlds_with_equal_openings_and_other_rules_are_other_problems() -> None:
    random, search = (make("tic_tac_toe", opponent=opponent, agent="first") for opponent in ("random", "mcts"))
    opening = random.initial_state({"agent": "first", "opponent": "random"}, 0)
    openings = (dataclasses.replace(opening, board="XO..X...O"),)
    assert World(random, openings) != World(search, openings)  # or they would share a layout and a policy
