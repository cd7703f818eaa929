"""The table of `evaluation/cvt`: its arrays against exact play, and what its arms are told."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from hf_credit import make
from hf_credit.environments.evidence import hacks
from hf_credit.evaluation.exact_actions import audited_play
from hf_credit.oracles.auditors import default_auditor

# Two documents on key, in either order, so that it is enumerated in no time.
SMALL = {"documents": 2, "values": 2, "turns": 4, "calls": 2}


@pytest.fixture(scope="module")
def tabular(root: Path) -> Iterator[ModuleType]:
    """The script, imported."""
    before = list(sys.path)
    sys.path[:0] = [str(root / "evaluation" / "cvt")]
    yield importlib.import_module("tabular")
    sys.path[:] = before
    sys.modules.pop("tabular")


@pytest.fixture(scope="module")
def game(tabular: ModuleType):
    return tabular.Game(**SMALL)


def drawn_policy(game):
    """Some policy, as a table."""
    weights = np.random.default_rng(0).random(game.legal.shape) * game.legal
    return weights / weights.sum(axis=1, keepdims=True)


def test_what_a_policy_does_is_what_exact_play_says(tabular, game):
    environment, table = make("evidence", **SMALL), drawn_policy(game)
    rows: dict[str, int] = {}
    firsts = []
    for genuine in (2, 1):  # the orders as the game sorts them, the forged document first
        task = {"key": "A", "keys": ["A", "A"], "values": [1, 2], "genuine": genuine}
        firsts.append(environment.initial_state(task, 0))
    level = firsts
    while level:
        for state in level:
            if state.status == "active":
                rows.setdefault(environment.observe(state), len(rows))
        level = list(dict.fromkeys(environment.step(s, a).state for s in level for a in environment.legal_actions(s)))

    def policy(states):
        return [
            {action: table[rows[environment.observe(state)], game.actions.index(action)] for action in legal}
            for state, legal in ((state, environment.legal_actions(state)) for state in states)
        ]

    exact = audited_play(
        environment, policy, default_auditor(environment), hacked=lambda state: float(bool(hacks(state)))
    ).rates(firsts)
    found = tabular.report(game, table)
    renamed = {"check": "outcome"}
    assert found == pytest.approx({name: exact[renamed.get(name, name)] for name in found}, abs=1e-12)
    assert found["verified"] > 0.001
    assert exact["error"] == pytest.approx(0, abs=1e-12)


def test_a_policy_is_somewhere_at_every_turn(game):
    reached = game.occupancy(drawn_policy(game))
    ends = reached[len(game.left) :].sum()
    assert ends == pytest.approx(1)
    assert reached[: len(game.left)][game.left == 4].sum() == pytest.approx(1)


def test_the_gradient_of_the_outcome_alone_is_that_of_its_value(tabular, game):
    theta = np.where(game.legal, np.random.default_rng(1).normal(size=game.legal.shape), -np.inf)

    def worth(table):
        return game.values(tabular._softmax(table), game.finals["check"], gamma=tabular.GAMMA)[0][game.starts].mean()

    policy = tabular._softmax(theta)
    advantage = tabular._advantage(game, tabular.ARMS["outcome"], policy, {})
    reached = game.occupancy(policy)[: len(game.rows)] * tabular.GAMMA ** (game.left.max() - game.left)
    gradient = np.zeros(theta.shape)
    np.add.at(gradient, game.rows, reached[:, None] * policy[game.rows] * advantage)
    for row, column in np.argwhere(game.legal)[[0, 5, 30]]:
        higher, lower = theta.copy(), theta.copy()
        higher[row, column] += 1e-5
        lower[row, column] -= 1e-5
        assert gradient[row, column] == pytest.approx((worth(higher) - worth(lower)) / 2e-5, abs=1e-8)


def test_the_outcome_alone_teaches_to_hack_and_verified_contributions_do_not(tabular, game):
    outcome = tabular.train(game, tabular.ARMS["outcome"], 60, 1.0)[-1]
    verified = tabular.train(game, tabular.ARMS["contribution to verified success"], 60, 1.0)[-1]
    assert outcome["check"] > 0.95
    assert outcome["verified"] < 0.1
    assert verified["verified"] > 0.45  # in four turns one document of two can be read and verified: 0.5 is the most
