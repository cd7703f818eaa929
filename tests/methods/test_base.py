"""Helpers of estimators: credit by decision, and exchange between processes."""

from __future__ import annotations

import dataclasses
import math
import re
import sys
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from hf_credit import TruncatedPPOTrainer, methods
from hf_credit.methods import METHODS, Credit
from hf_credit.methods.base import (
    all_gather_with_slice,
    broadcast_to_decisions,
    compare_outcomes,
    mean_over_shared,
    outcomes_of,
    trained,
    weighted,
    without_errors,
)
from hf_credit.rollouts import Ending, LocalContext


class SecondOfThree(LocalContext):
    """A context with the given items of two other processes."""

    def __init__(self, before, after):
        super().__init__()
        self.process, self.before, self.after = 1, before, after

    def gather(self, items):
        return [*self.before, *items, *self.after]


def test_every_paper_is_cited_in_bibtex():
    papers = [methods.make(name).paper for name in METHODS] + [TruncatedPPOTrainer._paper]
    cited = [one for one in papers if one]
    assert len(cited) > 5
    for one in cited:
        assert one["citation"].startswith("@misc{")
        assert f"title = {{{{{one['title']}}}}}" in one["citation"]


REVISIONS = {
    "active_replay": 2,  # branches of one start are weighed without roles that do not learn
    "alive_baseline": 2,  # in a tree, the other episodes are those without the decision
    "all_turns_baseline": 3,  # likewise; rewards of other roles are no return of later turns
    "draco": 2,  # replies of no tokens have no part in the redistribution
    "mt_grpo": 3,  # rewards of turns do not also count in the outcome; the first score counts
    "reinforce_plus_plus": 2,  # tokens that are not trained are in no mean
    "replay_loo": 2,  # messages that follow each other are not compared
    "rloo": 2,  # as alive_baseline
    "constrained_counterfactual": 2,  # costs of episodes that share a decision are no baseline of it
    "counterfactual_grpo": 2,  # with a bonus the last of three roles is trained
    "vineppo": 2,  # as reinforce_plus_plus
    "turn_credit": 2,  # rewards are increments of the outcome
}


def test_a_changed_formula_changes_the_fingerprint_of_its_method():
    method = methods.make("grpo")

    @dataclass(frozen=True, kw_only=True)
    class Changed(type(method.estimator)):
        revision: ClassVar[int] = 2

    Changed.__qualname__ = type(method.estimator).__qualname__
    changed = dataclasses.replace(method, estimator=Changed())
    assert changed.fingerprint()["estimator"] == {**method.fingerprint()["estimator"], "revision": 2}


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_quotes_its_formula_where_it_is(name):
    text = sys.modules[methods.find(name).__module__].__doc__
    assert re.search(r"^ *\w.* = ", text, re.MULTILINE), f"{name}: add its formula, with its source, to its module"


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_fingerprint_has_the_revision_of_the_formula(name):
    assert methods.make(name).fingerprint()["estimator"].get("revision", 1) == REVISIONS.get(name, 1)


def test_a_shared_decision_gets_the_mean_of_its_episodes(hand):
    trunk, left, right = hand.decision(tokens=2), hand.decision(), hand.decision()
    split = hand.collected(hand.episode(trunk, left), hand.episode(trunk, right))
    assert broadcast_to_decisions(split, [1.0, 0.0]) == {trunk.id: 0.5, left.id: 1.0, right.id: 0.0}
    assert broadcast_to_decisions(split, [None, 0.25]) == {trunk.id: 0.25, right.id: 0.25}
    assert mean_over_shared(split, [[1.0, None], [3.0, 5.0]]) == {trunk.id: 2.0, right.id: 5.0}
    assert mean_over_shared(split, [[(1.0, 2.0), None], [(3.0, 6.0), None]]) == {trunk.id: (2.0, 4.0)}


def test_credit_in_lists_is_refused():
    with pytest.raises(ValueError, match=r"credit must map ids of decisions to credit, got a list; return Credit\("):
        Credit(decisions=[[0.5]])


def test_failed_episodes_are_not_compared(hand):
    one, failed, other = hand.decision(), hand.decision(), hand.decision()
    episodes = (
        hand.episode(one, outcome=1.0),
        hand.episode(failed, ending=Ending.ERROR),
        hand.episode(other, outcome=3.0),
    )
    played = hand.collected(*episodes, instances=(0, 0, 4))
    rows = without_errors(played)
    outcomes, groups = outcomes_of(played, rows)
    assert (rows, outcomes.tolist(), groups.tolist()) == ([0, 2], [1.0, 3.0], [0, 4])
    assert compare_outcomes(played, lambda outcomes, _: outcomes) == {one.id: 1.0, other.id: 3.0}


def test_an_unknown_advantage_leaves_a_shared_decision_to_its_other_episodes(hand):
    trunk, left, right = hand.decision(), hand.decision(), hand.decision()
    split = hand.collected(hand.episode(trunk, left, outcome=math.nan), hand.episode(trunk, right, outcome=2.0))
    assert compare_outcomes(split, lambda outcomes, _: outcomes) == {trunk.id: 2.0, right.id: 2.0}


def test_of_replies_that_reached_their_limit_no_credit_is_trained(hand):
    whole, cut = replace(hand.decision(), action_ids=(2, 9)), replace(hand.decision(), action_ids=(2, 2))
    masked = replace(whole, id="masked", trained=False)
    played, credit = hand.collected(hand.episode(whole, cut, masked)), {whole.id: 1.0, cut.id: 2.0, "masked": 3.0}
    assert trained(played, credit) == {whole.id: 1.0, cut.id: 2.0}
    assert trained(played, credit, {9}) == {whole.id: 1.0}


def test_items_are_in_the_order_of_processes():
    assert all_gather_with_slice([5], SecondOfThree([[1, 2]], [[]])) == ([1, 2, 5], slice(2, 3))
    assert all_gather_with_slice([], SecondOfThree([[1, 2]], [[3]])) == ([1, 2, 3], slice(2, 2))


def test_instances_are_numbered_over_all_processes(hand):
    own = hand.collected(hand.episode(hand.decision()), hand.episode(hand.decision()), instances=(0, 1))

    class WithoutEpisodesElsewhere(SecondOfThree):
        def gather(self, items):
            return [[], *items, []] if isinstance(items[0], list) else super().gather(items)

    context = WithoutEpisodesElsewhere([3], [9])
    assert [*compare_outcomes(own, lambda _, groups: groups, context).values()] == [3, 4]


def test_credit_in_numpys_numbers_becomes_pythons_which_a_checkpoint_can_hold() -> None:
    given = Credit(decisions={"a": np.float64(2.0), "b": (np.float64(1.0),)}, weights={"a": 0.5})
    found = weighted(given)
    assert found == {"a": 1.0, "b": (1.0,)}
    assert [type(one) for one in (found["a"], *found["b"])] == [float, float]  # type: ignore[misc]
    context = LocalContext(None)
    context.mean("spread", [np.float64(1.0), np.float64(2.0)])
    assert [type(one) for one in context.metrics["spread"]] == [float]


@pytest.mark.parametrize("value", [math.nan, math.inf, (0.5, -math.inf)])
def test_credit_that_is_not_finite_ends_the_run_before_it_is_trained_on(value) -> None:
    with pytest.raises(ValueError, match=r"credit of the decision 'a' must be a finite number, got -?(nan|inf); "):
        weighted(Credit(decisions={"a": value}, weights={}))
