"""What a method reads and a task may lack: an update without it is credited by the rest, counted, and told."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hf_credit import methods
from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.collectors.answers import ANSWER
from hf_credit.collectors.ratings import SHARES
from hf_credit.methods.base import absent_inputs
from hf_credit.methods.sepo import RatedShares
from hf_credit.rollouts import LocalContext

INPUTS: dict[tuple[str, str], dict[str, Any]] = {
    ("arew", "rewards before the last turn"): {"turn_scores": "reward"},
    ("arew", "verdicts"): {},
    ("draco", "criteria"): {"criteria": "task"},
    ("draco", "verdicts"): {},
    ("gdpo", "speed"): {"rewards": {"outcome": 1.0, "speed": 1.0}},
    ("gigpo", "states that recur"): {"anchor": "context"},
    ("hgpo", "states that recur"): {"anchor": "context"},
    ("mt_grpo", "rewards before the last turn"): {},
    ("mt_grpo", "verdicts"): {"turn_scores": "verdict"},
    ("replay_loo", "alternatives at a context"): {},
    ("sepo", "ratings"): {},
    ("turn_credit", "rewards before the last turn"): {},
    ("turn_credit", "scores before the last turn"): {"turn_scores": "score"},
    ("turn_credit", "verdicts"): {"turn_scores": "verdict"},
}
"""Methods with each input that a task may lack, and the options with which they read it."""


def batch(hand: Any, given: bool) -> RolloutBatch:
    """Two episodes of a task with every input, or with none but their outcomes."""
    rollouts = []
    for outcome in (1.0, 0.0):
        first, last = (hand.decision(context=turn if given else hash((turn, outcome))) for turn in (1, 2))
        if given:
            first = replace(hand.decision(reward=0.5, verdict=0.5), extras={ANSWER: -1.0})
        episode = hand.episode(first, last, outcome=outcome)
        extras = {SHARES: ((0.5, 0.5), (0.5, 0.5))} if given else {}
        metrics = {"speed": outcome} if given else {}
        criteria = {"tidy": (bool(outcome), (0,))} if given else {}
        whole = replace(episode, metrics=metrics, final_state=criteria)
        rollouts.append(Rollout(episode=whole, instance=0, extras=extras))
    return RolloutBatch(rollouts=tuple(rollouts), rows=1)


def told(hand: Any, name: str, options: dict[str, Any], given: bool) -> list[str]:
    estimator = RatedShares(roles=("agent", "other")) if name == "sepo" else methods.make(name, **options).estimator
    context: Any = LocalContext()
    context.interaction = SimpleNamespace(criteria=lambda state: state)
    credit = estimator(batch(hand, given), context, None)
    assert all(value is None or abs(value) < 9 for value in credit.decisions.values())
    return absent_inputs([{one: values[-1] for one, values in context.metrics.items()}])


@pytest.mark.parametrize(("name", "what"), INPUTS)
def test_an_absent_input_is_told_and_a_present_one_is_not(hand: Any, name: str, what: str) -> None:
    (sentence,) = told(hand, name, INPUTS[name, what], given=False)
    assert sentence.startswith(f"The method reads {what}, which no episode had, so they are no part of its credit;")
    assert told(hand, name, INPUTS[name, what], given=True) == []


def test_an_input_is_absent_only_if_no_update_had_it() -> None:
    assert absent_inputs([{"inputs/speed": 0.0}, {"inputs/speed": 0.25, "reward": 0.0}, {"inputs/speed": None}]) == []
    assert len(absent_inputs([{"inputs/speed": 0.0, "inputs/verdicts": 0.0}, {"inputs/speed": 0.0}])) == 2
    assert absent_inputs([]) == []


def test_rewards_at_the_end_alone_are_no_rewards_on_the_way(hand: Any) -> None:
    played = hand.collected(*(hand.episode(hand.decision(), hand.decision(reward=1.0), outcome=1.0) for _ in "ab"))
    context = LocalContext()
    methods.make("turn_credit").estimator(played, context, None)
    assert context.metrics == {"inputs/rewards before the last turn": [0.0]}
