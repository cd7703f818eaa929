"""The claims of paper T3 on belief traps, checked by enumeration, including those that fail."""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.credit import generalized_advantages

_SPEC = importlib.util.spec_from_file_location(
    "belief_traps", Path(__file__).resolve().parents[2] / "evaluation" / "t3" / "belief_traps.py"
)
assert _SPEC is not None
assert _SPEC.loader is not None
traps = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(traps)

SEEDS = st.integers(0, 10_000)
LEAST = 0.1


def world(seed: int, states: int = 4) -> tuple[np.random.Generator, np.ndarray, int]:
    draws = np.random.default_rng(seed)
    return draws, traps.random_channel(states, 3, 3, LEAST, draws), int(draws.integers(states))


# Beliefs


@given(SEEDS)
def test_the_posterior_is_that_of_the_joint_distribution(seed: int) -> None:
    draws, channel, _ = world(seed)
    prior = draws.dirichlet(np.ones(4))
    observed = [(0, 1), (2, 0), (1, 2)]
    joint = {s: prior[s] * math.prod(channel[a, s, o] for a, o in observed) for s in range(4)}
    belief = prior
    for action, observation in observed:
        belief = traps.posterior(belief, channel, action, observation)
    assert belief == pytest.approx([joint[s] / sum(joint.values()) for s in range(4)])


@given(SEEDS)
def test_informativeness_is_the_expected_fall_of_the_potential_and_bounded(seed: int) -> None:
    draws, channel, truth = world(seed)
    assert channel.min() >= LEAST
    belief = draws.dirichlet(np.ones(4)) + 1e-6
    belief /= belief.sum()
    for action in range(3):
        after = [traps.potential(traps.posterior(belief, channel, action, o), truth) for o in range(3)]
        fall = traps.potential(belief, truth) - float(channel[action, truth] @ after)
        found = traps.informativeness(belief, channel, action, truth)
        assert found == pytest.approx(fall, abs=1e-9)
        assert -1e-12 <= found <= -math.log(LEAST)


@given(SEEDS)
def test_informativeness_is_lipschitz_in_the_belief_and_in_the_policy(seed: int) -> None:
    draws, channel, truth = world(seed)
    one, other = draws.dirichlet(np.ones(4), size=2)
    gains = [[traps.informativeness(belief, channel, action, truth) for action in range(3)] for belief in (one, other)]
    for mine, theirs in zip(*gains, strict=True):  # Lemma 1
        assert abs(mine - theirs) <= np.abs(one - other).sum() / LEAST + 1e-12
    policy, another = draws.dirichlet(np.ones(3), size=2)
    distance = np.abs(policy - another).sum() / 2
    assert abs((policy - another) @ gains[0]) <= -math.log(LEAST) * distance + 1e-12  # Lemma 2


# The trap

GROWTH, OFFSET = 2.0, 0.5


def drift(belief: np.ndarray, channel: np.ndarray, truth: int) -> float:
    """The expected change of the potential of an agent that asks uniformly."""
    before = traps.potential(belief, truth)
    after = [
        channel[a, truth, o]
        * traps.potential(
            traps.trapped_update(traps.posterior(belief, channel, a, o), truth, before, GROWTH, OFFSET), truth
        )
        for a, o in itertools.product(range(3), range(3))
    ]
    return sum(after) / 3 - before


@given(SEEDS, st.floats(0, 20))
def test_beyond_the_threshold_there_is_no_progress_on_average(seed: int, beyond: float) -> None:
    draws, channel, truth = world(seed)
    threshold = traps.trap_threshold(math.log(4), LEAST, 0.0, GROWTH, OFFSET)
    belief = draws.dirichlet(np.ones(4))
    belief[truth] = 0
    belief *= (1 - math.exp(-threshold - beyond)) / belief.sum()
    belief[truth] = math.exp(-threshold - beyond)
    assert drift(belief, channel, truth) >= 0


def test_the_trap_absorbs_only_on_average_as_noisy_updates_leave_it() -> None:
    draws, channel, truth = world(5)
    threshold = traps.trap_threshold(math.log(4), LEAST, 0.0, GROWTH, OFFSET)
    first = np.full(4, (1 - math.exp(-threshold)) / 3)
    first[truth] = math.exp(-threshold)
    shares = {
        noise: traps.shares_that_leave(channel, first, truth, threshold, GROWTH, OFFSET, noise, 4, 200, draws)
        for noise in (0.0, 60.0)
    }
    assert shares[0.0] == 0
    assert 0.3 < shares[60.0] < 0.8  # while the mean drift is the same


def test_numbers_of_the_threshold_and_of_the_entry_time_by_hand() -> None:
    assert traps.drift_constant(0.5, 0.0) == 4
    assert traps.drift_constant(math.exp(-1), 2.0) == pytest.approx(4 + 2 * math.e)
    assert traps.trap_threshold(1.0, 0.5, 0.0, 2.0, 3.0) == 4
    assert traps.trap_threshold(1.0, 0.5, 0.0, 2.0, 3.0, begins=9.0) == 9
    assert traps.entry_time_bound(threshold=7.0, growth=1.0, margin=1.0) == 4  # log2 of 8 / 1
    assert traps.entry_time_bound(threshold=7.0, growth=1.0, margin=1.0, first_gap=1.0) == 3
    assert traps.entry_time_bound(threshold=1.0, growth=1.0, margin=1.0, first_gap=5.0) == 1


@given(SEEDS)
def test_the_expected_potential_has_reached_the_threshold_by_the_bound(seed: int) -> None:
    draws = np.random.default_rng(seed)
    states, least = 40, 0.45  # uninformative observations, so that the oracle is slow
    channel = traps.random_channel(states, 2, 2, least, draws)
    truth, first = 0, math.log(40)
    constant = traps.drift_constant(least, 0.0)
    growth = (constant / first + 1 + constant / first) / 2  # above the minimum, below that with U < Psi_0
    threshold = traps.trap_threshold(first, least, 0.0, growth, 0.0)
    assert threshold > first
    beliefs = [(1.0, np.full(states, 1 / states), np.full(states, 1 / states))]
    expected, lowest = [first], first
    while expected[-1] < threshold:
        following = []
        for share, agent, oracle in beliefs:
            for a, o in itertools.product(range(2), range(2)):
                before = traps.potential(agent, truth)
                after = traps.trapped_update(traps.posterior(agent, channel, a, o), truth, before, growth, 0.0)
                following.append((share * channel[a, truth, o] / 2, after, traps.posterior(oracle, channel, a, o)))
        beliefs = following
        expected.append(sum(share * traps.potential(agent, truth) for share, agent, _ in beliefs))
        if expected[-1] < threshold:
            lowest = min(lowest, *(traps.potential(oracle, truth) for _, _, oracle in beliefs))
    reached = len(expected)
    assert 1 < reached <= traps.entry_time_bound(threshold, growth, margin=growth * lowest - constant)


@given(st.floats(0.01, 20), st.floats(0.05, 0.5), st.floats(0, 3), st.floats(0, 5), st.floats(0.01, 50))
def test_a_margin_asks_for_a_first_potential_beyond_what_an_update_can_lose(
    first: float, least: float, sensitivity: float, offset: float, growth: float
) -> None:
    constant = traps.drift_constant(least, sensitivity)
    if growth * first - (offset + constant) > 0:  # with mu at its most, which is Psi_0
        assert first > (offset + constant) / growth


# Advantages. A process is a binary tree: at each node a belief in the truth, up or down.

STEPS, ENTRY = 5, 2
Tree = dict[tuple[int, ...], float]


def falling_tree(draws: np.random.Generator, drop: float) -> Tree:
    """Random beliefs before `ENTRY` that fall by at least `drop` on average from then on."""
    tree: Tree = {(): draws.uniform(0.6, 0.9)}
    for depth in range(STEPS - 1):
        for path in itertools.product((0, 1), repeat=depth):
            here = tree[path]
            if depth < ENTRY:
                tree[(*path, 0)], tree[(*path, 1)] = draws.uniform(0.6, 0.9, size=2)
            else:
                spread = draws.uniform(0, min(here - drop, 1 - here, 0.05))
                mean = here - drop
                tree[(*path, 0)], tree[(*path, 1)] = mean - spread, mean + spread
    return tree


def expected_advantage(
    tree: Tree, value: Callable[[float], float], gamma: float, lam: float, cut: str | None = None
) -> float:
    """Returns the expected advantage of the first action; the critic's value is the outcome of a leaf, and all paths
    are equally likely."""
    rows = []
    for path in itertools.product((0, 1), repeat=STEPS - 1):
        values = [value(tree[path[:depth]]) for depth in range(STEPS)]
        rewards = [0.0] * (STEPS - 1) + [values[-1]]  # E[R | last] = V, as the proof has it
        if cut is not None:
            values, rewards = values[:ENTRY], [0.0] * ENTRY
            rewards[-1] = gamma * value(tree[path[:ENTRY]]) if cut == "bootstrap" else 0.0
        one = torch.tensor([values], dtype=torch.float64)
        found = generalized_advantages(torch.tensor([rewards]).double(), one, torch.ones_like(one).bool(), gamma, lam)
        rows.append(float(found[0, 0]))
    return sum(rows) / len(rows)


@given(SEEDS, st.floats(0.01, 0.15), st.floats(0.3, 1), st.floats(0.5, 1), st.floats(0.5, 1))
def test_linear_values_satisfy_the_bound_and_a_bootstrapped_cut_the_corollary(
    seed: int, drop: float, slope: float, gamma: float, lam: float
) -> None:
    tree = falling_tree(np.random.default_rng(seed), drop)
    whole = expected_advantage(tree, lambda belief: slope * belief, gamma, lam)
    assert whole <= traps.advantage_bound(0, ENTRY, STEPS, gamma, lam, slope, drop) + 1e-9
    cut = expected_advantage(tree, lambda belief: slope * belief, gamma, lam, cut="bootstrap")
    tail = sum((gamma * lam) ** j for j in range(ENTRY, STEPS - 1))
    assert cut >= whole + gamma * slope * drop * tail - 1e-9


def test_the_bound_fails_for_other_values_where_the_belief_can_rise() -> None:
    # Eqs. 40 and 41: from 1/2 the belief goes to 1 with probability .4, to 0 with .6; so it falls by .1 on average.
    def value(belief: float) -> float:
        return 0.1 * belief + 0.9 * belief**2  # rises, by at least .1 everywhere

    change = 0.4 * value(1.0) + 0.6 * value(0.0) - value(0.5)
    assert change > 0
    assert not change <= -0.1 * 0.1


@given(
    st.integers(0, 8), st.integers(1, 8), st.integers(0, 30), st.floats(0.01, 1), st.floats(0, 1), st.floats(0, 1),
    st.floats(0, 1),
)  # fmt: skip
def test_the_condition_for_inversion_can_never_hold(
    step: int, prefix: int, tail: int, gamma: float, lam: float, slope: float, lost: float
) -> None:
    # Values in [0, 1] have a least slope of at most 1, and a belief that falls by rho in each of L steps loses L rho.
    entry = step + prefix
    drop = lost / max(tail, 1)
    assert traps.advantage_bound(step, entry, entry + tail + 1, gamma, lam, slope, drop) >= 0


def test_advantages_are_inverted_by_telescoping_and_not_with_a_critic_that_is_right_on_average() -> None:
    tree = falling_tree(np.random.default_rng(0), 0.15)
    inverted = expected_advantage(tree, lambda belief: belief, 1.0, 1.0)
    last = [tree[path] for path in itertools.product((0, 1), repeat=STEPS - 1)]
    assert inverted == pytest.approx(sum(last) / len(last) - tree[()])
    assert inverted < 0
    # Fitted: the value of a node is the mean outcome below it. Its advantages are 0 on average, with any lambda.
    fitted = {
        path: sum(tree[leaf] for leaf in leaves) / len(leaves)
        for depth in range(STEPS)
        for path in itertools.product((0, 1), repeat=depth)
        for leaves in [[leaf for leaf in itertools.product((0, 1), repeat=STEPS - 1) if leaf[:depth] == path]]
    }
    for lam in (0.0, 0.5, 1.0):
        assert expected_advantage(fitted, lambda belief: belief, 1.0, lam) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("lam", [1.0, 0.9, 0.5])
def test_a_cut_without_bootstrap_is_a_failure_and_below_lambda_1_less(lam: float) -> None:
    values = torch.tensor([[0.5, 0.6, 0.4, 0.3]], dtype=torch.float64)
    nothing, all_of = torch.zeros_like(values), torch.ones_like(values).bool()
    failed = generalized_advantages(nothing, values, all_of, 1.0, lam)[0, :2]
    cut = generalized_advantages(nothing[:, :2], values[:, :2], all_of[:, :2], 1.0, lam)[0]
    if lam == 1:
        assert cut.tolist() == pytest.approx([-0.5, -0.6])
        assert failed.tolist() == pytest.approx([-0.5, -0.6])
    else:
        assert bool((cut < failed).all())


def test_invalid_arguments_of_the_bounds_are_refused() -> None:
    for call, message in [
        (lambda: traps.random_channel(2, 1, 2, 0.6, np.random.default_rng(0)), "least must be in"),
        (lambda: traps.drift_constant(0.0, 1.0), "least must be in"),
        (lambda: traps.trap_threshold(1.0, 0.5, 0.0, 0.0, 0.0), "growth must be above 0"),
        (lambda: traps.entry_time_bound(1.0, 1.0, 0.0), "growth and margin must be above 0"),
        (lambda: traps.advantage_bound(3, 3, 5, 1.0, 1.0, 1.0, 0.1), "0 <= step < entry <= length"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
