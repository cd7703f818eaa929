"""What is logged of an update, counted by hand."""

from __future__ import annotations

import hashlib
import math
import pickle
from dataclasses import replace

import pytest
import torch

from hf_credit.credit.surrogate import TokenLosses
from hf_credit.rollouts import Decision, Ending, Episode
from hf_credit.rollouts.reply_ends import was_cut
from hf_credit.trainers.metrics import (
    DecisionSummary,
    EpisodeSummary,
    LossMetrics,
    largest_difference,
    mean,
    summarise,
    update_metrics,
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
        "cut": (),
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
        cut=(False, True, True),
        advantages=(1.5, 0.0),
        decisions=tuple(
            of_reply("agent", "agent", advantage, length, hashlib.blake2b(b"", digest_size=8).digest())
            for advantage, length in ((1.5, 2), (None, 3), (0.0, 0))
        ),
    )


def test_an_inherited_decision_is_counted_only_in_its_first_episode():
    decisions = (decision(3, (5, END)), decision(6, (5, 5, 5)))
    episode = Episode(decisions=decisions, outcome=0.0, ending=Ending.FINISHED, prefix_length=1)
    found = summarise(episode, [None, 2.0], {END})
    assert ([one.length for one in found.decisions], found.cut) == ([3], (True,))
    assert update_metrics([found])["replies/cut"] == 1.0


def test_a_judges_replies_are_no_turns_and_are_counted_separately():
    asks, verdict = (
        decision(3, (5, END)),
        replace(decision(6, (5, 5, 5, 5)), role="judge", event="judge", observed=True),
    )
    episode = Episode(decisions=(asks, verdict, replace(asks, trained=False)), outcome=0.0, ending=Ending.FINISHED)
    found = update_metrics([summarise(episode, [1.0, None, None], {END})])
    assert (found["turns/mean"], found["replies/cut"], found["replies/length"]) == (2.0, 0.0, 2.0)
    assert (found["advantages/trained"], found["replies/distinct"]) == (0.5, 0.5)
    assert (found["roles/judge/replies/length"], found["roles/agent/replies/length"]) == (4.0, 2.0)


def test_an_episode_without_decisions_has_a_summary():
    episode = Episode(decisions=(), outcome=0.0, ending=Ending.ERROR, error="it broke")
    assert summarise(episode, [], {END}) == summary(outcome=0.0, ending=Ending.ERROR, turns=0, generated=0, context=0)


def test_processes_can_exchange_summaries():
    own = summary(metrics={"success": 1.0}, advantages=(0.5,))
    assert pickle.loads(pickle.dumps(own)) == own


@pytest.mark.parametrize(
    ("reply", "cut"), [((), True), ((5,), True), ((5, END), False), ((END,), False), ((END, 5), True), ((8,), False)]
)
def test_a_reply_is_truncated_unless_its_last_token_is_an_end_token(reply, cut):
    assert was_cut(reply, {8, END}) == cut


def test_the_metrics_of_an_update_are_those_of_all_its_episodes():
    metrics = update_metrics(
        [
            summary(
                outcome=1.0, metrics={"success": 1.0, "return": 1.0}, turns=3, generated=10, context=50,
                cut=(True, False), advantages=(1.0, -1.0, 0.0),
            ),
            summary(
                outcome=0.0, ending=Ending.INVALID_ACTION, metrics={"success": 0.0}, turns=1, generated=4, context=20,
                cut=(True,), advantages=(2.0,),
            ),
            summary(outcome=0.5, metrics={"success": 0.0}, turns=4, generated=6, context=90),
            summary(outcome=math.nan, ending=Ending.ERROR, metrics={}, turns=0, generated=0, context=0),
        ]
    )  # fmt: skip
    assert metrics == pytest.approx(
        {
            "reward": 1.5 / 3,
            "endings/finished": 2 / 4,
            "endings/truncated": 0,
            "endings/cut": 0,
            "endings/turn_limit": 0,
            "endings/invalid_action": 1 / 4,
            "endings/error": 1 / 4,
            "success": 1 / 3,
            "return": 1.0,
            "turns/mean": 2.0,
            "replies/cut": 2 / 3,
            "tokens/generated": 20,
            "tokens/context": 160,
            "advantages/mean": 0.5,
            "advantages/std": math.sqrt(5) / 2,
            "advantages/zero": 1 / 4,
        }
    )


def test_the_share_of_earlier_thoughts_in_contexts_is_logged():
    def decision(context, ids, text, event="agent"):
        return Decision(
            role="agent", event=event, state=None, context_ids=context, action_ids=ids, logprobs=None, action_text=text
        )

    first = decision((1, 2), (3, 4, 5, 6), "<think>" + "ab" * 15 + "</think>" + "a" * 15)  # half of it is thought
    later = decision((1, 2, 3, 4, 5, 6, 7, 8), (9,), "a")
    anew = decision((1, 2, 6, 7, 8, 9), (9,), "a")
    for second, share in ((later, 2 / 10), (anew, None)):
        episode = Episode(decisions=(first, second), outcome=1.0, ending=Ending.FINISHED)
        logged = update_metrics([summarise(episode, [1.0, 1.0], {9})])
        assert logged.get("context/earlier_thoughts") == share


def test_an_update_of_failed_episodes_has_metrics():
    metrics = update_metrics([summary(outcome=0.0, ending=Ending.ERROR, turns=0, generated=0, context=0)] * 2)
    assert metrics["endings/error"] == 1
    assert metrics["replies/cut"] == 0
    assert not any(name.startswith("advantages") for name in metrics)
    assert all(math.isfinite(value) for value in metrics.values())


def test_the_shares_of_the_endings_sum_to_one():
    metrics = update_metrics([summary(ending=ending) for ending in (*Ending, Ending.FINISHED)])
    assert sum(value for name, value in metrics.items() if name.startswith("endings/")) == pytest.approx(1)


def test_a_single_advantage_has_no_standard_deviation():
    metrics = update_metrics([summary(advantages=(0.25,))])
    assert (metrics["advantages/mean"], metrics["advantages/std"], metrics["advantages/zero"]) == (0.25, 0, 0)


def test_the_mean_of_no_values_is_nan():
    assert math.isnan(mean([]))
    assert mean([1, 2, 6]) == 3


def of_reply(role, event, advantage, length, text):
    return DecisionSummary(role=role, event=event, advantage=advantage, length=length, reply=text)


def test_credit_and_replies_are_logged_by_role_and_by_event():
    smith = [of_reply("smith", "draft", 0.0, 2, b"attic")] * 3 + [of_reply("smith", "final", None, 6, b"attic")]
    poet = [of_reply("poet", "rhyme", 1.0, 1, b"a"), of_reply("poet", "rhyme", -1.0, 3, b"b")]
    metrics = update_metrics([summary(decisions=(*smith, poet[0])), summary(decisions=(poet[1],))])
    found = {name: value for name, value in metrics.items() if name.startswith("roles/smith/")}
    assert found == {
        "roles/smith/advantages/mean": 0.0,
        "roles/smith/advantages/std": 0.0,
        "roles/smith/advantages/zero": 1.0,
        "roles/smith/advantages/trained": 3 / 4,
        "roles/smith/replies/length": 3.0,
        "roles/smith/replies/distinct": 1 / 4,
    }
    assert metrics["roles/poet/advantages/std"] == metrics["events/rhyme/advantages/std"] == 1.0
    assert metrics["events/draft/replies/length"] == 2.0
    assert "events/final/advantages/mean" not in metrics  # nothing to take the mean of
    assert metrics["events/final/advantages/trained"] == 0.0
    assert metrics["advantages/trained"] == 5 / 6
    assert metrics["replies/distinct"] == 3 / 6


def test_a_single_role_and_events_named_like_roles_are_logged_once():
    of_one = update_metrics([summary(decisions=(of_reply("agent", "agent", 1.0, 2, b"x"),))])
    of_two = update_metrics([summary(decisions=(of_reply("a", "a", 1.0, 2, b"x"), of_reply("b", "b", 1.0, 2, b"x")))])
    assert not any(name.startswith(("roles/", "events/")) for name in of_one)
    assert {name.split("/")[0] for name in of_two} >= {"roles"}
    assert not any(name.startswith("events/") for name in of_two)


def test_the_maximum_difference_is_over_pairs_with_both_values():
    first = torch.tensor([[1.0, 2.0, 3.0, 9.0]])
    second = torch.tensor([[1.5, math.nan, 1.0, 0.0]])
    assert largest_difference(first, second, torch.tensor([[1, 1, 1, 0]])).item() == 2.0
    assert largest_difference(first, second, torch.tensor([[0, 1, 0, 0]])).item() == 0.0


class Processes:
    """An accelerator whose processes add the sums of others to what this one has."""

    def __init__(self, *others: list[float]) -> None:
        self.others = [torch.tensor(other, dtype=torch.float64) for other in others]

    def gather(self, own: torch.Tensor) -> torch.Tensor:
        return torch.cat([own, *self.others])


def clipped(low: list[list[int]], high: list[list[int]]) -> TokenLosses:
    nothing = torch.zeros(len(low), len(low[0]))
    return TokenLosses(nothing, nothing, torch.tensor(low).bool(), torch.tensor(high).bool())


def test_loss_metrics_are_means_over_the_tokens_of_all_passes():
    metrics = LossMetrics()
    metrics.add("entropy", torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1, 1, 1]]))
    metrics.add("entropy", torch.tensor([[6.0, math.nan, 9.0]]), torch.tensor([[1, 0, 0]]))
    metrics.add("entropy", torch.tensor([[9.0]]), torch.tensor([[0]]))  # rows without loss
    metrics.add("projected", torch.tensor([True, False]))
    assert metrics.taken(Processes()) == {"entropy": 3.0, "projected": 0.5}
    assert metrics.taken(Processes()) == {}


def test_loss_metrics_of_several_processes_are_means_over_all_tokens():
    metrics = LossMetrics()
    metrics.add("entropy", torch.tensor([[1.0, 1.0, 1.0]]), torch.tensor([[1, 1, 1]]))
    assert metrics.taken(Processes([5.0, 1.0])) == {"entropy": 2.0}


def test_clipping_is_counted_by_token_and_its_extremes_by_row():
    metrics = LossMetrics()
    mask = torch.tensor([[1, 1], [1, 0], [0, 0]])  # the last row fills a place
    metrics.add_clipping(clipped([[1, 0], [1, 0], [1, 1]], [[0, 1], [0, 1], [1, 1]]), mask, "dapo")
    metrics.add_clipping(clipped([[1, 0]], [[0, 0]]), torch.tensor([[1, 1]]), "dapo")
    names = ("low_mean", "high_mean", "region_mean", "low_min", "high_max")
    expected = dict(zip(names, (3 / 5, 1 / 5, 4 / 5, 0.5, 0.5), strict=True))
    assert metrics.taken(Processes()) == pytest.approx({f"clip_ratio/{name}": v for name, v in expected.items()})
    metrics.add_clipping(clipped([[0, 0]], [[1, 0]]), torch.tensor([[1, 1]]), "cispo")
    assert metrics.taken(Processes()) == {"cispo_clip_ratio": 0.5}


def test_a_pass_without_tokens_logs_nothing():
    metrics = LossMetrics()
    metrics.add_clipping(clipped([[0]], [[0]]), torch.tensor([[0]]), "dapo")
    assert metrics.taken(Processes()) == {}


def test_a_metric_of_the_task_does_not_hide_one_of_the_update():
    found = update_metrics([summary(outcome=0.5, metrics={"reward": 9.0, "replies/cut": 9.0, "own": 2.0})])
    assert (found["reward"], found["replies/cut"], found["own"]) == (0.5, 0.0, 2.0)
