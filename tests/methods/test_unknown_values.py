"""A value that is unknown is neither 0 nor in a mean: whatever failed gives no signal, and changes no other credit."""

from __future__ import annotations

import math

import pytest

from hf_credit import methods
from hf_credit.methods.mt_grpo import MultiTurn
from hf_credit.rollouts import Ending, LocalContext
from hf_credit.rollouts.rows import one_number

GROUPS = (
    "grpo", "rloo", "magrpo", "maxrl", "gdpo", "gspo", "mt_grpo", "alive_baseline", "all_turns_baseline", "tree_grpo",
    "at2po", "carl", "replay_loo",
)  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in GROUPS), ("reinforce_plus_plus", {"group_mean": True})]
)
def test_the_only_known_outcome_of_a_group_is_no_signal_and_a_failed_one_changes_no_other(hand, name, options):
    def played(*others):
        alone = hand.episode(hand.decision(), hand.decision(context=7), outcome=1.0)
        group = [hand.episode(hand.decision(), hand.decision(context=8), outcome=value) for value in (1.0, 0.0)]
        given = hand.collected(alone, *group, *others, instances=(0, 1, 1, *(0 for _ in others)))
        made = methods.make(name, **({"group_size": 4} if options else {}), **options)
        credit = made.estimator(given, LocalContext(), made.memory).decisions
        return [[one_number(credit.get(one.id)) for one in episode.decisions] for episode in given.episodes]

    for outcome in (math.nan, 0.0, 5.0):
        failed = hand.episode(hand.decision(tokens=3), outcome=outcome, ending=Ending.ERROR)
        alone, *group, lost = played(failed)
        assert all(credit in (None, 0.0) for credit in alone)
        assert lost == [None]
        assert group == played()[1:]


@pytest.mark.parametrize(
    ("all_turns", "credited"), [(False, [True, True, True, False]), (True, [False, True, True, False])]
)
def test_a_turn_that_needs_a_missing_verdict_has_no_credit(hand, all_turns, credited):
    def episode(*verdicts, outcome):
        return hand.episode(*(hand.decision(verdict=one) for one in verdicts), outcome=outcome)

    long = [episode(1.0, None, 0.0, outcome=1.0), episode(0.0, 1.0, 1.0, outcome=0.0)]
    single = episode(None, outcome=1.0)
    estimator = MultiTurn(turn_scores="verdict", all_turns=all_turns)
    (first, second, third), others, alone = hand.credits(estimator, *long, single, instances=(0, 0, 1))
    found = [one is not None for one in (first, third, third, *alone)]
    assert (found[0], second is not None, third is not None) == (credited[0], not all_turns, True)
    assert all(one is not None for one in others)
