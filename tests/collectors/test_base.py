"""The episodes for a batch of task rows, and their relations."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from hf_credit.collectors import Group, Rollout, RolloutBatch, Single, Tree
from hf_credit.collectors.base import refuse_over_budget
from hf_credit.rollouts import Ending, Engine, Episode, Generation, Interaction, LocalContext, Request


@dataclass(frozen=True, kw_only=True)
class Talk:
    replies: tuple[str, ...] = ()
    luck: int = 0


class TwoTurns(Interaction[Talk]):
    def start(self, task: Any, seed: int) -> Talk:
        return Talk(luck=seed)

    def pending(self, state: Talk) -> tuple[Request, ...]:
        if len(state.replies) == 2:
            return ()
        return (Request(role="agent", messages=[{"role": "user", "content": str(len(state.replies))}]),)

    def advance(self, state: Talk, replies: Any) -> Talk:
        return replace(state, replies=(*state.replies, *replies))

    def outcome(self, state: Talk) -> float:
        return float(state.luck)

    def reseed(self, state: Talk, seed: int) -> Talk:
        return replace(state, luck=10 * state.luck + seed)


@pytest.fixture
def context(chat: Any) -> LocalContext:
    ids = chat.tokenizer("ok<|end|>", add_special_tokens=False)["input_ids"]
    return LocalContext(Engine(TwoTurns(), chat, lambda contexts: [Generation(ids=ids)] * len(contexts)))


ROWS = [{"seed": 1}, {"seed": 2}]


def test_single_plays_each_row_once(context: LocalContext) -> None:
    collected = Single()(ROWS, context)
    assert [(sample.instance, sample.trained, sample.kind) for sample in collected.rollouts] == [
        (0, True, "policy"),
        (1, True, "policy"),
    ]
    assert [episode.outcome for episode in collected.episodes] == [1, 2]
    assert collected.rows == 2


def test_a_group_starts_alike_and_meets_worlds_of_its_own(context: LocalContext) -> None:
    collected = Group(size=3)(ROWS, context)
    assert collected.instances == [0, 0, 0, 1, 1, 1]
    assert [episode.outcome for episode in collected.episodes] == [1, 11, 12, 2, 21, 22]
    assert len({episode.decisions[0].context_ids for episode in collected.episodes}) == 1


def test_a_tree_splits_at_each_step_and_shares_what_came_before(context: LocalContext) -> None:
    collected = Tree(fanout=(2, 2))(ROWS[:1], context)
    first, second, third, fourth = collected.episodes
    assert first.decisions[0].id == second.decisions[0].id != third.decisions[0].id == fourth.decisions[0].id
    assert len({episode.decisions[1].id for episode in collected.episodes}) == 4


def test_the_ledger_counts_all_that_was_played(context: LocalContext) -> None:
    Tree(fanout=(2, 2))(ROWS, context)
    assert context.ledger.scoring_events == 8
    assert context.ledger.decisions == {"agent": 2 * (2 + 4)}


def test_an_empty_batch_is_played(context: LocalContext) -> None:
    for collector in (Single(), Group(size=2), Tree(fanout=(2, 2))):
        assert collector([], context) == RolloutBatch(rollouts=(), rows=0)


def test_an_instance_over_its_budget_is_rejected(context: LocalContext) -> None:
    with pytest.raises(RuntimeError, match="at most 8 terminal scores, got 12"):
        Tree(fanout=(3, 4), budget=8)(ROWS, context)


def test_samples_for_comparison_take_budget_where_they_are_scored() -> None:
    episode = Episode(decisions=(), outcome=1.0, ending=Ending.FINISHED)
    samples = tuple(
        Rollout(episode=one, instance=0, trained=False) for one in (episode, replace(episode, scored=False))
    )
    refuse_over_budget(RolloutBatch(rollouts=samples, rows=1), 1)
    with pytest.raises(RuntimeError, match="at most 0"):
        refuse_over_budget(RolloutBatch(rollouts=samples, rows=1), 0)


def test_only_trained_samples_are_credited() -> None:
    episode = Episode(decisions=(), outcome=1.0, ending=Ending.FINISHED)
    own, other = (
        Rollout(episode=episode, instance=0),
        Rollout(episode=episode, instance=1, trained=False, kind="other"),
    )
    collected = RolloutBatch(rollouts=(other, own), rows=2)
    assert collected.trained == (own,)
    assert collected.of_kind("other") == (other,)
