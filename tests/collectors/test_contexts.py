"""Algorithm 1 of C3: reference rollouts, contexts that they visited, alternatives there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from hf_credit.collectors import VisitedContexts
from hf_credit.rollouts import Engine, Generation, Interaction, LocalContext, Request


@dataclass(frozen=True, kw_only=True)
class Talk:
    told: tuple[str, ...] = ()


class Chatter(Interaction[Talk]):
    """Three turns of one event type, each in view of the reply before it."""

    def start(self, task: Any, seed: int) -> Talk:
        return Talk()

    def pending(self, state: Talk) -> tuple[Request, ...]:
        if len(state.told) == 3:
            return ()
        seen = "".join(state.told)
        return (Request(role="agent", messages=[{"role": "user", "content": f"{seen}?"}]),)

    def advance(self, state: Talk, replies: Any) -> Talk:
        return replace(state, told=(*state.told, *replies))

    def outcome(self, state: Talk) -> float:
        return float(len("".join(state.told)))


class Letters:
    """Another letter with every reply."""

    def __init__(self, chat: Any) -> None:
        self.chat, self.count = chat, 0

    def __call__(self, contexts: Any) -> list[Generation]:
        replies = []
        for _ in contexts:
            letter = "defghijklmnpqrstuvwxyz"[self.count % 22]
            self.count += 1
            replies.append(
                Generation(ids=self.chat.tokenizer(f"{letter}<|end|>", add_special_tokens=False)["input_ids"])
            )
        return replies


@pytest.fixture
def context(chat: Any) -> LocalContext:
    return LocalContext(Engine(Chatter(), chat, Letters(chat)))


def collector(**changed: Any) -> VisitedContexts:
    return VisitedContexts(**{"references": 2, "contexts": 3, "alternatives": 2, "replays": 2, **changed})


def test_reference_rollouts_are_unscored_and_never_trained_on(context: LocalContext) -> None:
    collected = collector()([{}, {}], context)
    references = collected.of_kind("reference")
    assert [(sample.instance, sample.trained, sample.episode.scored) for sample in references] == [
        (0, False, False),
        (0, False, False),
        (1, False, False),
        (1, False, False),
    ]
    assert context.metrics["tokens/reference_rollouts"] == [4 * 3 * 2]
    scored = [sample for sample in collected.rollouts if sample.episode.scored]
    assert context.ledger.scoring_events == len(scored) == len(collected.trained)


def test_each_context_is_drawn_once_however_many_there_are_of_its_event(context: LocalContext) -> None:
    collected = collector(contexts=4)([{}], context)
    contexts = {sample.episode.decisions[0].context_ids for sample in collected.trained}
    # The first context is the same in both references, so five are visited; four are drawn.
    assert len(contexts) == 4
    assert len(collector(contexts=9)([{}], context).trained) == 4 + 4 + 4 + 2 + 2  # the last turn has no replay


def test_each_update_and_each_instance_draws_contexts_of_its_own(context: LocalContext) -> None:
    one = collector(references=1, contexts=1, alternatives=2, replays=1)

    def turns() -> list[int]:
        """At which turn the context of each of twelve instances was."""
        played = one([{}] * 12, context).trained
        return [len(played[place].episode.decisions) for place in range(0, 24, 2)]

    first = turns()
    assert len(set(first)) > 1
    assert turns() == first
    context.update = 2
    assert turns() != first


def test_an_instance_over_its_budget_is_rejected(context: LocalContext) -> None:
    with pytest.raises(RuntimeError, match="at most 3 terminal scores"):
        collector(budget=3)([{}], context)
