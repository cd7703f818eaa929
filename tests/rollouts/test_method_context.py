"""The context without a trainer: rollouts, costs, draws and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from hf_credit.rollouts import (
    CriticInput,
    Decision,
    Engine,
    EveryEpisodeFailedError,
    Generation,
    Interaction,
    LocalContext,
    Request,
    RolloutRequest,
)


class Once(Interaction[str]):
    def start(self, task: Any, seed: int) -> str:
        return str(task.get("name", ""))

    def pending(self, state: str) -> tuple[Request, ...]:
        return (Request(role="agent", messages=[{"role": "user", "content": state}]),) if state != "said" else ()

    def advance(self, state: str, replies: Any) -> str:
        if state == "broken":
            raise RuntimeError("gone")
        return "said"

    def outcome(self, state: str) -> float:
        return 1.0


@pytest.fixture
def context(chat: Any) -> LocalContext:
    ids = chat.tokenizer("ok<|end|>", add_special_tokens=False)["input_ids"]
    return LocalContext(Engine(Once(), chat, lambda contexts: [Generation(ids=ids)] * len(contexts)))


def test_played_episodes_are_in_the_ledger(context: LocalContext) -> None:
    context.play([RolloutRequest(task={"name": "a"}), RolloutRequest(task={"name": "b"}, scored=False)])
    context.play([])
    assert (context.ledger.scoring_events, context.ledger.completion_tokens) == (1, 6)


def test_only_the_failure_of_all_episodes_is_raised(context: LocalContext) -> None:
    context.play([])
    with pytest.raises(EveryEpisodeFailedError, match="got 2 of 2 with errors, the first with RuntimeError"):
        context.play([RolloutRequest(task={"name": "broken"})] * 2)
    assert len(context.play([RolloutRequest(task={"name": name}) for name in ("a", "broken")])) == 2


def test_all_episodes_of_a_later_call_in_an_update_may_fail(context: LocalContext) -> None:
    context.play([RolloutRequest(task={"name": "a"})])
    assert len(context.play([RolloutRequest(task={"name": "broken"})])) == 1
    context.update = 2
    with pytest.raises(EveryEpisodeFailedError):
        context.play([RolloutRequest(task={"name": "broken"})])


def test_draws_differ_by_purpose_and_update_and_are_reproducible(context: LocalContext) -> None:
    first = context.draws("contexts", 1).random()
    assert context.draws("contexts", 1).random() == first
    assert context.draws("contexts", 2).random() != first
    context.update = 2
    assert context.draws("contexts", 1).random() != first


def test_missing_parts_are_refused_in_one_sentence(context: LocalContext) -> None:
    decision = Decision(role="a", state=None, context_ids=(1,), action_ids=(2,), logprobs=None, action_text="")
    with pytest.raises(ValueError, match="those of the sampler, got none under 'current'"):
        context.logprobs([decision])
    with pytest.raises(ValueError, match="playing the frozen policy needs an engine"):
        context.play([RolloutRequest(task={"name": "a"})], "frozen")
    with pytest.raises(ValueError, match="must be run with it, got none named 'critic'"):
        context.values([CriticInput(ids=(1,), at=(1,))])


def test_a_mean_of_no_values_is_not_logged_and_a_total_is() -> None:
    context = LocalContext()
    context.mean("buckets/alternatives", [])
    context.mean("buckets/alone", [0.0, 1.0, 1.0])
    context.total("buckets/count", 3)
    assert context.metrics == {"buckets/alone": [pytest.approx(2 / 3)], "buckets/count": [3]}
