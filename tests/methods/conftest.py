"""Episodes written by hand, and the credit of an estimator for them."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.rollouts import Decision, Ending, Episode, LocalContext, Verdict, by_episode


def decision(context: int = 1, tokens: int = 1, reward: float = 0.0, verdict: float | None = None) -> Decision:
    """A decision of the only agent."""
    return Decision(
        role="agent",
        state=None,
        context_ids=(context,),
        action_ids=(2,) * tokens,
        logprobs=None,
        action_text="",
        reward=reward,
        verdict=None if verdict is None else Verdict(score=verdict),
    )


def episode(*decisions: Decision, outcome: float = 0.0, ending: Ending = Ending.FINISHED) -> Episode:
    return Episode(decisions=decisions, outcome=outcome, ending=ending)


def collected(*episodes: Episode, instances: Sequence[int] = ()) -> RolloutBatch:
    """A batch of episodes of one task, or of `instances`."""
    owners = instances or (0,) * len(episodes)
    samples = tuple(Rollout(episode=one, instance=owner) for one, owner in zip(episodes, owners, strict=True))
    return RolloutBatch(rollouts=samples, rows=max(owners, default=-1) + 1)


def credits(estimator: Any, *episodes: Episode, instances: Sequence[int] = ()) -> Any:
    """The credit of each decision, rounded to three places."""
    found = by_episode(episodes, estimator(collected(*episodes, instances=instances), LocalContext(), None).decisions)
    return [[_rounded(one) for one in own] for own in found]


def _rounded(one: Any) -> Any:
    return tuple(map(_rounded, one)) if isinstance(one, Sequence) else None if one is None else round(one, 3) + 0.0


@pytest.fixture(scope="session")
def hand() -> SimpleNamespace:
    """`decision`, `episode`, `collected` and `credits`."""
    return SimpleNamespace(decision=decision, episode=episode, collected=collected, credits=credits)
