"""Episodes with verdicts, and the oracles that give them."""

from __future__ import annotations

from typing import Any

import pytest

from hf_credit import make, oracles
from hf_credit.collaborations.relay import relay
from hf_credit.collectors import Verified
from hf_credit.rollouts import Ending, Engine, EnvironmentInteraction, Generation, LocalContext


class Moody:
    """Accepts every action, and fails on tasks with an odd seed."""

    def valid_actions(self, state: Any) -> frozenset[str]:
        return frozenset()

    def score(self, state: Any, action: str) -> float:
        if state.seed % 2:
            raise RuntimeError("not today")
        return 1.0


@pytest.fixture
def context(chat: Any) -> LocalContext:
    game = EnvironmentInteraction(make("sudoku", size=4, blanks=4), history="current", instructions=False)
    reply = chat.tokenizer("<action>1 1 1</action><|end|>", add_special_tokens=False)["input_ids"]
    return LocalContext(Engine(game, chat, lambda contexts: [Generation(ids=reply)] * len(contexts)))


ROWS = [{"seed": 0}, {"seed": 1}]


def test_every_decision_has_the_oracles_verdict_and_keeps_its_identity(context: LocalContext) -> None:
    collected = Verified(oracle=Moody())(ROWS[:1], context)
    (episode,) = collected.episodes
    assert [decision.verdict.score for decision in episode.decisions if decision.verdict] == [1.0] * len(
        episode.decisions
    )
    assert context.metrics["oracle/seconds"][0] >= 0


def test_an_oracle_that_fails_ends_its_episode_and_no_other(context: LocalContext) -> None:
    sound, failed = Verified(oracle=Moody())(ROWS, context).episodes
    assert sound.ending != Ending.ERROR
    assert failed.ending == Ending.ERROR
    assert "not today" in (failed.error or "")


def test_an_oracle_that_only_watches_may_fail(context: LocalContext) -> None:
    episodes = Verified(oracle=Moody(), required=False)(ROWS, context).episodes
    assert all(episode.ending != Ending.ERROR for episode in episodes)


def test_the_environment_brings_its_own_oracle(context: LocalContext) -> None:
    bound = Verified().bind(context.interaction)
    assert type(bound.oracle) is type(oracles.make("sudoku_constraints"))


def test_a_task_without_an_oracle_is_refused_or_has_no_verdicts(context: LocalContext) -> None:
    with pytest.raises(ValueError, match="needs an oracle, got none and 'relay' has no default"):
        Verified().bind(relay())
    assert Verified(required=False).bind(relay()).oracle is None
    with pytest.raises(ValueError, match="needs the actions of an environment, got one for 'relay'"):
        Verified(oracle=Moody(), required=False).bind(relay())
