"""The theory of belief traps (paper T3, section 2 and Appendix B), as functions that a simulation can check.

An agent that wrongly updates its belief is compared with Bayes' rule in a POMDP whose hidden state does not change:
actions ask, observations answer through a noisy channel. `tests/evaluation/test_belief_traps.py` checks what the paper
claims of it, and shows what does not hold:

- The trap absorbs in the mean only (Prop. 1): where updates are noisy, paths leave it.
- The bound on the entry time (Prop. 2) is one on the expected potential, not on that of a path.
- The step from eq. 40 to eq. 41 needs a linear calibration, or a belief that never rises.
- The condition for inverted advantages (eq. 5) can never hold, since values and beliefs are at most 1. Advantages are
  inverted all the same where values fall, by telescoping; that takes a critic that is wrong on average.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
"""A belief: probabilities of the hidden states."""

Channel = NDArray[np.float64]
"""O(o | s, a), of shape (actions, states, observations), each row summing to 1."""


def random_channel(states: int, actions: int, observations: int, least: float, draws: np.random.Generator) -> Channel:
    """A channel in which no observation is less likely than `least` (Assumption 3).

    Args:
        states, actions, observations: how many there are.
        least: eta in the paper, in (0, 1 / observations].
        draws: random numbers.

    Raises:
        ValueError: `least` is not possible.
    """
    if not 0 < least <= 1 / observations:
        raise ValueError(f"least must be in (0, 1/{observations}], got {least}; a deterministic answer has none.")
    free = draws.dirichlet(np.ones(observations), size=(actions, states))
    return least + (1 - observations * least) * free


def potential(belief: Vector, truth: int) -> float:
    """How far a belief is from the truth, in nats (Def. 3): Psi(b) = -log b(s*), infinite where b(s*) is 0."""
    return math.inf if belief[truth] <= 0 else -math.log(belief[truth])


def posterior(belief: Vector, channel: Channel, action: int, observation: int) -> Vector:
    """Bayes' rule (eq. 1): b'(s) = O(o | s, a) b(s) / p_b(o | a)."""
    weights = channel[action, :, observation] * belief
    return np.asarray(weights / weights.sum())


def informativeness(belief: Vector, channel: Channel, action: int, truth: int) -> float:
    """What an action is expected to take off the potential under Bayes' rule, in nats (Def. 4).

    It is a divergence (eq. 46), KL(O(. | s*, a) || p_b(. | a)), hence in [0, -log eta].
    """
    true, expected = channel[action, truth], belief @ channel[action]
    return float((true * np.log(true / expected)).sum())


def trapped_update(belief: Vector, truth: int, potential_before: float, growth: float, offset: float) -> Vector:
    """The belief of an agent whose update error grows with its potential (Assumption 5).

        Psi' = max(0, Psi(B*) + growth Psi - offset)

    The other states share what is left as they do in B*.

    Args:
        belief: what Bayes' rule makes of the agent's belief.
        truth: the hidden state.
        potential_before: Psi, that of the agent's belief before the step.
        growth, offset: m and c_0 in the paper.
    """
    wanted = math.exp(-max(0.0, potential(belief, truth) + growth * potential_before - offset))
    others = np.where(np.arange(len(belief)) == truth, 0.0, belief)
    total = others.sum()
    found = others * ((1 - wanted) / total) if total > 0 else others
    found[truth] = wanted
    return np.asarray(found)


def drift_constant(least: float, sensitivity: float) -> float:
    """B of Prop. 1: 2 (-log eta L_pi + 1 / eta).

    Args:
        least: eta, in (0, 1].
        sensitivity: L_pi, at least 0: how far the policy moves (in total variation) with the belief (in L1).

    Raises:
        ValueError: one is out of range.
    """
    if not 0 < least <= 1 or sensitivity < 0:
        raise ValueError(
            f"least must be in (0, 1] and sensitivity at least 0, got {least} and {sensitivity}; a channel that rules "
            "anything out for certain has no such bound."
        )
    return 2 * (-math.log(least) * sensitivity + 1 / least)


def trap_threshold(
    first_potential: float, least: float, sensitivity: float, growth: float, offset: float, begins: float = 0.0
) -> float:
    """From which potential on the agent makes no progress on average (Prop. 1).

        U = max(U_0, (Psi_0 + B + c_0) / m)

    Args:
        first_potential: Psi_0, that of the first belief of the oracle, in nats.
        least, sensitivity: as in `drift_constant`.
        growth, offset: m, above 0, and c_0, at least 0, of Assumption 5.
        begins: U_0, the potential from which Assumption 5 holds.

    Raises:
        ValueError: one is out of range.
    """
    if growth <= 0 or offset < 0:
        raise ValueError(f"growth must be above 0 and offset at least 0, got {growth} and {offset}; see Assumption 5.")
    return max(begins, (first_potential + drift_constant(least, sensitivity) + offset) / growth)


def entry_time_bound(threshold: float, growth: float, margin: float, first_gap: float = 0.0) -> int:
    """By which step the expected potential has reached the threshold (Prop. 2), counted from 1.

        1 + ceil(log_{1 + m}((m U + delta) / (m Delta_1 + delta)))

    Args:
        threshold: U, in nats.
        growth: m, above 0.
        margin: delta = m mu - (c_0 + B), where the oracle's potential stays at or above mu until then. It is above 0
            only where the first potential exceeds (c_0 + B) / m.
        first_gap: Delta_1, the agent's first potential less the oracle's.

    Raises:
        ValueError: one is out of range.
    """
    if growth <= 0 or margin <= 0:
        raise ValueError(f"growth and margin must be above 0, got {growth} and {margin}; without, there is no bound.")
    ratio = (growth * threshold + margin) / (growth * first_gap + margin)
    return 1 + max(0, math.ceil(math.log(ratio, 1 + growth)))


def advantage_bound(step: int, entry: int, length: int, gamma: float, lam: float, slope: float, drop: float) -> float:
    """What the expected advantage before the trap is said not to exceed (Thm. 2, eq. 4).

        gamma (S_pre - kappa rho S_tail),   S_pre = sum_{j < t_S - t} q^j,   S_tail = sum_{j = t_S - t}^{T - t - 2} q^j

    with q = gamma lambda. The proof needs values that are a linear function of the belief in the truth.

    Args:
        step: t, before `entry`.
        entry: t_S, the first step in the trap.
        length: T, how many steps there are.
        gamma, lam: of the advantages.
        slope: kappa, the least slope of the values over the belief in the truth.
        drop: rho, how much of that belief is lost in a step of the trap, at least, on average.

    Raises:
        ValueError: the steps are not in order.
    """
    if not 0 <= step < entry <= length:
        raise ValueError(f"steps must be 0 <= step < entry <= length, got {step}, {entry} and {length}; reorder them.")
    decay = gamma * lam
    prefix = sum(decay**j for j in range(entry - step))
    tail = sum(decay**j for j in range(entry - step, length - step - 1))
    return gamma * (prefix - slope * drop * tail)


def shares_that_leave(
    channel: Channel,
    first: Vector,
    truth: int,
    threshold: float,
    growth: float,
    offset: float,
    noise: float,
    steps: int,
    paths: int,
    draws: np.random.Generator,
) -> float:
    """The share of paths that are below the threshold at some step after they were above it.

    The agent asks at random, each action alike, and updates as `trapped_update`, with noise of mean 0 on its
    potential: plus or minus `noise`, each with probability 1/2.

    Args:
        channel: of the POMDP.
        first: the agent's first belief.
        truth: the hidden state.
        threshold, growth, offset: as above.
        noise: in nats, at least 0.
        steps, paths: how many.
        draws: random numbers.
    """
    left = 0
    for _ in range(paths):
        belief, inside = first, False
        for _ in range(steps):
            if potential(belief, truth) >= threshold:
                inside = True
            elif inside:
                left += 1
                break
            action = int(draws.integers(len(channel)))
            observation = int(draws.choice(channel.shape[2], p=channel[action, truth]))
            known = posterior(belief, channel, action, observation)
            shift = noise * (1 if draws.random() < 0.5 else -1)
            # A potential beyond 700 nats is no number any more, and as far from the threshold as can be.
            before = min(potential(belief, truth), 300.0)
            belief = trapped_update(known, truth, before, growth, offset - shift)
            belief[truth] = max(belief[truth], 1e-300)
    return left / paths
