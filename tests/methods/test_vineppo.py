"""VinePPO on episodes and continuations written by hand."""

from __future__ import annotations

from dataclasses import replace

from hf_credit import methods
from hf_credit.collectors import Continuations, Group, Rollout, RolloutBatch, Single
from hf_credit.collectors.forks import CONTINUATION
from hf_credit.methods.vineppo import VineValues
from hf_credit.rollouts import Ending, LocalContext, by_episode


def continued(hand, played, values):
    """Two rollouts from each decision whose mean outcome is the value, and one that failed."""
    rest = [
        Rollout(
            episode=hand.episode(outcome=value + off, ending=ending),
            instance=0,
            trained=False,
            kind=CONTINUATION,
            source=decision.id,
        )
        for decision, value in zip(played.rollouts[0].episode.decisions, values, strict=True)
        for off, ending in ((0.1, Ending.FINISHED), (-0.1, Ending.FINISHED), (7.0, Ending.ERROR))
    ]
    return replace(played, rollouts=(*played.rollouts, *rest))


def credits(estimator, played):
    given = by_episode(played.episodes, estimator(played, LocalContext()).decisions)
    return [[None if one is None else round(one, 3) for one in own] for own in given]


def test_the_credit_of_a_decision_is_the_change_in_value(hand):
    played = hand.collected(hand.episode(*(hand.decision() for _ in range(3)), outcome=1.0))
    assert credits(VineValues(whiten=False), continued(hand, played, [0.4, 0.6, 0.9])) == [[0.2, 0.3, 0.1]]


def test_changes_in_value_are_whitened_over_tokens(hand):
    # .2 thrice and .3 once: mean .225, sample variance .0025
    decisions = [hand.decision(tokens=3), hand.decision(tokens=1)]
    played = hand.collected(hand.episode(*decisions, outcome=0.9))
    assert credits(VineValues(), continued(hand, played, [0.4, 0.6])) == [[-0.5, 1.5]]


def test_tokens_that_are_not_trained_are_in_no_mean(hand):
    decisions = [hand.decision(), replace(hand.decision(tokens=98), trained=False), hand.decision()]
    played = hand.collected(hand.episode(*decisions, outcome=0.9))
    first, _, last = credits(VineValues(), continued(hand, played, [0.4, 0.6, 0.6]))[0]
    assert (first, last) == (-0.707, 0.707)


def test_a_failed_episode_gets_no_credit(hand):
    failed = hand.episode(hand.decision(), outcome=5.0, ending=Ending.ERROR)
    sound = hand.collected(hand.episode(hand.decision(), hand.decision(), outcome=1.0), failed)
    assert credits(VineValues(whiten=False), continued(hand, sound, [0.5, 0.25])) == [[-0.25, 0.75], [None]]
    assert VineValues()(RolloutBatch(), LocalContext()).decisions == {}


def test_next_to_an_unknown_value_there_is_no_credit_and_no_mean_counts_it(hand):
    decisions = [hand.decision(tokens=tokens) for tokens in (1, 5, 7, 1)]
    unknown = hand.collected(hand.episode(*decisions, outcome=1.0))
    unknown = continued(hand, unknown, [0.4, 0.6, 0.0, 0.5])
    failed = [
        replace(one, episode=replace(one.episode, ending=Ending.ERROR)) if one.source == decisions[2].id else one
        for one in unknown.rollouts
    ]
    unknown = replace(unknown, rollouts=tuple(failed))
    assert credits(VineValues(whiten=False), unknown) == [[0.2, None, None, 0.5]]
    assert credits(VineValues(), unknown) == [[-0.707, None, None, 0.707]]  # of one token each


def test_the_collector_continues_a_group():
    assert methods.make("vineppo").collector == Continuations(rollouts=9, inner=Group(size=8))
    assert methods.make("vineppo", group_size=1, rollouts=2).collector == Continuations(rollouts=2, inner=Single())
