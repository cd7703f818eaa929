"""Exact values of small problems, against numbers worked out by hand and against differences of J."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hf_credit_bench import PROBLEMS, Problem, TablePolicy, Truth, best, make_problem
from hf_credit_bench.network import policy_at_start
from hf_credit_bench.problems import Chain, Key, Late, Relay, Vote
from hf_credit_bench.rules import Rules

SMALL = {
    "key": {"horizon": 3},
    "vote": {"agents": 3, "lazy": 2},
    "revisit": {"length": 2, "horizon": 5},
}


def small(name: str) -> Problem:
    return make_problem(name, **SMALL.get(name, {}))


@pytest.mark.parametrize("name", PROBLEMS)
def test_gradient_is_the_derivative_of_the_value(name: str) -> None:
    policy = TablePolicy(small(name))
    gradient = Truth(policy).gradient
    for place in np.argwhere(np.isfinite(policy.logits)):
        step = np.zeros_like(gradient)
        step[tuple(place)] = 1e-4
        slope = (Truth(policy.moved(step)).start - Truth(policy.moved(-step)).start) / 2e-4
        assert gradient[tuple(place)] == pytest.approx(slope, abs=1e-7)


@pytest.mark.parametrize("name", PROBLEMS)
def test_ways_are_probabilities_and_seeded_play_takes_them(name: str) -> None:
    problem = small(name)
    assert sum(way.probability for way in problem.starts()) == pytest.approx(1)
    for node in problem.nodes:
        for actions in problem.joint_actions(node):
            assert sum(way.probability for way in problem.ways(node, actions)) == pytest.approx(1)
    state = problem.start({}, seed=3)
    while requests := problem.pending(state):
        state = problem.advance(state, ["0"] * len(requests))
        assert state.node in problem.nodes


def test_values_of_a_chain() -> None:
    truth = Truth(TablePolicy(Chain(length=2, start_right=0.5)))
    assert truth.start == 0.25
    assert truth.values[(1, 1), ()] == 0.5
    assert truth.values[(1, 0), ()] == 0
    assert truth.advantages((0, 1), 0).tolist() == [-0.25, 0.25]
    assert truth.reached[(1, 1), ()] == 0.5


def test_values_of_late_know_chance_and_policy() -> None:
    truth = Truth(TablePolicy(Late(horizon=3, good=0.9, bad=0.3, start_right=0.2)))
    assert truth.start == pytest.approx(0.2 * 0.9 + 0.8 * 0.3)


def test_advantage_of_one_voter_leaves_the_others_to_the_policy() -> None:
    vote = Vote(agents=3, lazy=0)
    truth = Truth(TablePolicy(vote))
    node = (1, (1, 1, 1), ())
    shares = [truth.policy.of(vote.view(node, role)) for role in vote.speakers(node)]
    by_hand = [
        sum(shares[0][a] * shares[2][c] * vote.worth(1, (a, b, c)) for a in (0, 1) for c in (0, 1)) for b in (0, 1)
    ]
    value = float(shares[1] @ np.array(by_hand))
    assert truth.advantages(node, 1) == pytest.approx(np.array(by_hand) - value)


def test_a_critic_that_reads_one_view_averages_over_all_nodes_with_that_view() -> None:
    relay = Relay(depth=2, noise=0.0, start_right=0.75)
    policy = TablePolicy(relay)
    truth = Truth(policy)
    heard = policy.places[(1, 1)]
    # The second speaker heard 1: the truth is 1 with probability .75, and it passes 1 on with probability .75.
    assert truth.value_read((heard,)) == pytest.approx(0.75 * 0.75 + 0.25 * 0.25)


def test_critic_that_read_everything_knows_more() -> None:
    relay = Relay(depth=2, noise=0.0, start_right=0.75)
    policy = TablePolicy(relay)
    actions = len(relay.views)
    seen, heard = policy.places[(0, 0)], policy.places[(1, 1)]
    # The first speaker saw 0 and said 1, so the second is right with probability .25.
    assert Truth(policy).value_read((seen, actions + 1, heard)) == pytest.approx(0.25)


def test_the_best_value_is_that_of_what_the_views_tell() -> None:
    assert best(TablePolicy(Chain(length=2))) == pytest.approx(1, abs=1e-3)
    # Two of three voters see a hint that is right with .8; nobody sees the truth.
    assert best(TablePolicy(Vote(agents=3, lazy=2))) == pytest.approx(0.8**3 + 3 * 0.8**2 * 0.2, abs=1e-3)
    assert best(policy_at_start(Rules(length=3, tasks=2))) == 1


def test_noise_of_a_key_leaves_its_value() -> None:
    assert Truth(TablePolicy(Key(horizon=4, noise=2.0))).start == pytest.approx(0.2)


@pytest.mark.parametrize("dials", [{"length": 128}, {"length": 8, "options": 64, "start_right": 1 / 64}])
def test_the_maximum_is_found_from_a_start_that_hardly_ever_succeeds(dials: dict[str, Any]) -> None:
    assert best(policy_at_start(make_problem("chain", **dials))) == pytest.approx(1, abs=1e-4)


def test_the_range_of_outcomes_is_that_of_the_longest_problem_too() -> None:
    assert make_problem("chain", length=256).outcome_range == (0, 1)
