"""What is logged of an update, counted by hand."""

from __future__ import annotations

import math
import pickle

import pytest
import torch

from hf_credit import make
from hf_credit.policies.micro import build_tokenizer
from hf_credit.rollouts import Decision, Ending, Episode
from hf_credit.trainers.metrics import (
    EpisodeLog,
    EpisodeSummary,
    LossMetrics,
    episode_log,
    largest_difference,
    mean,
    summarise,
    update_metrics,
    was_cut,
    without_cut_replies,
)

END = 9


def decision(context, action):
    return Decision(
        role="agent", state=None, context_ids=(1,) * context, action_ids=action, logprobs=None, action_text=""
    )


def summary(**changes):
    values = {
        "outcome": 1.0,
        "ending": Ending.FINISHED,
        "metrics": {},
        "turns": 1,
        "generated": 1,
        "context": 1,
        "cut": 0,
        "advantages": (),
    }
    return EpisodeSummary(**values | changes)


def test_a_summary_counts_turns_tokens_and_cut_replies():
    episode = Episode(
        decisions=(decision(3, (5, END)), decision(6, (5, 5, 5)), decision(9, ())),
        outcome=0.5,
        ending=Ending.TRUNCATED,
        metrics={"success": 0.0},
    )
    assert summarise(episode, [1.5, None, 0.0], {END}) == EpisodeSummary(
        outcome=0.5,
        ending=Ending.TRUNCATED,
        metrics={"success": 0.0},
        turns=3,
        generated=5,
        context=18,
        cut=2,
        advantages=(1.5, 0.0),
    )


def test_an_episode_without_decisions_has_a_summary():
    episode = Episode(decisions=(), outcome=0.0, ending=Ending.ERROR, error="it broke")
    assert summarise(episode, [], {END}) == summary(outcome=0.0, ending=Ending.ERROR, turns=0, generated=0, context=0)


def test_processes_can_exchange_summaries():
    own = summary(metrics={"success": 1.0}, advantages=(0.5,))
    assert pickle.loads(pickle.dumps(own)) == own


@pytest.mark.parametrize(
    ("reply", "cut"), [((), True), ((5,), True), ((5, END), False), ((END,), False), ((END, 5), True), ((8,), False)]
)
def test_a_reply_was_cut_unless_its_last_token_is_an_end_token(reply, cut):
    assert was_cut(reply, {8, END}) == cut


def test_the_metrics_of_an_update_are_those_of_all_its_episodes():
    metrics = update_metrics(
        [
            summary(
                outcome=1.0, metrics={"success": 1.0, "return": 1.0}, turns=3, generated=10, context=50, cut=1,
                advantages=(1.0, -1.0, 0.0),
            ),
            summary(
                outcome=0.0, ending=Ending.INVALID_ACTION, metrics={"success": 0.0}, turns=1, generated=4, context=20,
                cut=1, advantages=(2.0,),
            ),
            summary(outcome=0.5, metrics={"success": 0.0}, turns=4, generated=6, context=90),
            summary(outcome=0.0, ending=Ending.ERROR, metrics={}, turns=0, generated=0, context=0),
        ]
    )  # fmt: skip
    assert metrics == pytest.approx(
        {
            "reward": 1.5 / 4,
            "endings/finished": 2 / 4,
            "endings/truncated": 0,
            "endings/turn_limit": 0,
            "endings/invalid_action": 1 / 4,
            "endings/error": 1 / 4,
            "success": 1 / 3,
            "return": 1.0,
            "turns/mean": 2.0,
            "replies/cut": 2 / 8,
            "tokens/generated": 20,
            "tokens/context": 160,
            "advantages/mean": 0.5,
            "advantages/std": math.sqrt(5) / 2,
            "advantages/zero": 1 / 4,
        }
    )


def test_an_update_of_failed_episodes_has_metrics_all_the_same():
    metrics = update_metrics([summary(outcome=0.0, ending=Ending.ERROR, turns=0, generated=0, context=0)] * 2)
    assert metrics["endings/error"] == 1
    assert metrics["replies/cut"] == 0
    assert not any(name.startswith("advantages") for name in metrics)
    assert all(math.isfinite(value) for value in metrics.values())


def test_the_shares_of_the_endings_sum_to_one():
    metrics = update_metrics([summary(ending=ending) for ending in (*Ending, Ending.FINISHED)])
    assert sum(value for name, value in metrics.items() if name.startswith("endings/")) == pytest.approx(1)


def test_a_single_advantage_has_no_spread():
    metrics = update_metrics([summary(advantages=(0.25,))])
    assert (metrics["advantages/mean"], metrics["advantages/std"], metrics["advantages/zero"]) == (0.25, 0, 0)


def test_the_mean_of_nothing_is_no_number():
    assert math.isnan(mean([]))
    assert mean([1, 2, 6]) == 3


def test_an_episode_is_told_by_its_first_context_and_its_replies():
    tokenizer = build_tokenizer(make("sudoku", size=4, blanks=4), episodes=2)
    ids = tuple(tokenizer.encode("R1 1 2"))
    decisions = tuple(
        Decision(role="agent", state=None, context_ids=ids * turn, action_ids=(5,), logprobs=None, action_text=text)
        for turn, text in ((1, "first"), (2, "second"), (3, "third"))
    )
    episode = Episode(decisions=decisions, outcome=0.5, ending=Ending.TRUNCATED)
    told = EpisodeLog(
        prompt=tokenizer.decode(list(ids)),
        replies="first\nsecond\nthird",
        outcome=0.5,
        ending="truncated",
        advantage=0.75,
    )
    assert episode_log(episode, [0.5, None, 1.0], tokenizer) == told
    silent = episode_log(Episode(decisions=(), outcome=0.0, ending=Ending.ERROR, error="it broke"), [], tokenizer)
    assert (silent.prompt, silent.replies, silent.ending) == ("", "", "error")
    assert math.isnan(silent.advantage)


def test_cut_replies_lose_their_advantages():
    episodes = [
        Episode(decisions=(decision(1, (5, END)), decision(2, (5, 5))), outcome=0.0, ending=Ending.FINISHED),
        Episode(decisions=(decision(1, (END,)),), outcome=0.0, ending=Ending.FINISHED),
    ]
    assert without_cut_replies(episodes, [[1.0, 2.0], [None]], {END}) == [[1.0, None], [None]]


def test_the_largest_difference_is_taken_where_both_are_known():
    first = torch.tensor([[1.0, 2.0, 3.0, 9.0]])
    second = torch.tensor([[1.5, math.nan, 1.0, 0.0]])
    assert largest_difference(first, second, torch.tensor([[1, 1, 1, 0]])).item() == 2.0
    assert largest_difference(first, second, torch.tensor([[0, 1, 0, 0]])).item() == 0.0


def test_what_the_loss_says_is_averaged_over_tokens():
    said = LossMetrics()
    said.add({"entropy": 1.0, "clip_ratio/low_min": 0.5, "clip_ratio/high_max": 0.5}, 30)
    said.add({"entropy": 2.0, "clip_ratio/low_min": 0.25, "clip_ratio/high_max": 0.25}, 10)
    said.add({"entropy": 9.0, "clip_ratio/low_min": 0.0, "clip_ratio/high_max": 9.0}, 0)  # rows without loss
    said.add({"entropy": 1.25, "clip_ratio/low_min": math.nan, "clip_ratio/high_max": math.nan}, 40)
    assert said.taken() == {"entropy": 1.25, "clip_ratio/low_min": 0.25, "clip_ratio/high_max": 0.5}
    assert said.taken() == {}
