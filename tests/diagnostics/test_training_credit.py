from __future__ import annotations

import math
import string
from collections.abc import Sequence
from dataclasses import replace

import pytest
from small_teams import plan_and_act

from hf_credit.collaborations.exact_values import exact_values
from hf_credit.collaborations.relay import relay, relay_task
from hf_credit.collectors import Rollout, RolloutBatch, VisitedContexts
from hf_credit.diagnostics.bucket_sampling import BucketPlan
from hf_credit.diagnostics.diagnosis import ALL
from hf_credit.diagnostics.training_credit import (
    TrainedDecision,
    by_event,
    credit_quality,
    credited_decisions,
    exact_advantages,
    training_credit,
)
from hf_credit.methods import Credit, Method, make
from hf_credit.policies.generation import sampler
from hf_credit.policies.micro import MicroConfig, build_model, tokenizer_of
from hf_credit.rollouts import Chat, Decision, Ending, Engine, Episode, Generation
from hf_credit.rollouts.method_context import LocalContext


def credited(credit, instance=0, context=(1,), event="plan") -> TrainedDecision:
    decision = Decision(
        role=event, event=event, state=None, context_ids=context, action_ids=(), logprobs=None, action_text=""
    )
    episode = Episode(decisions=(decision,), outcome=0.0, ending=Ending.FINISHED)
    return TrainedDecision(episode=episode, index=0, instance=instance, credit=credit)


class Counting:
    """Replies with the letters of the alphabet in turn, so that all messages differ."""

    def __init__(self) -> None:
        self.chat = Chat(tokenizer_of([string.printable]))
        self.count = 0

    def __call__(self, contexts: Sequence[Sequence[int]]) -> list[Generation]:
        return [self._reply() for _ in contexts]

    def _reply(self) -> Generation:
        letter = string.ascii_lowercase[self.count % 26]
        self.count += 1
        ids = self.chat.tokenizer(letter, add_special_tokens=False)["input_ids"]
        return Generation(ids=[*ids, self.chat.tokenizer.eos_token_id])


def place_in_alphabet(task, text) -> float:
    return string.ascii_lowercase.index(text) / 25


@pytest.fixture
def context() -> LocalContext:
    speaker = Counting()
    return LocalContext(Engine(plan_and_act(place_in_alphabet), speaker.chat, speaker))


ROWS = [{"problem": "p"}, {"problem": "q"}]
PLAN = BucketPlan(buckets=6, replays=2, value_actions=2)


def test_each_decision_with_credit_counts_once() -> None:
    one, two = (credited(0.0).decision for _ in "ab")
    episodes = [Episode(decisions=own, outcome=0.0, ending=Ending.FINISHED) for own in ((one,), (one, two))]
    collected = RolloutBatch(
        rollouts=(
            Rollout(episode=episodes[0], instance=0, trained=False),
            Rollout(episode=episodes[0], instance=0),
            Rollout(episode=episodes[1], instance=1),
        ),
        rows=2,
    )
    found = credited_decisions(collected, Credit(decisions={one.id: 0.5, two.id: (1.0, 2.0)}))
    assert [(own.instance, own.index, own.credit) for own in found] == [(0, 0, 0.5), (1, 1, 1.5)]


def test_quality_is_of_one_pool_of_all_measured_decisions() -> None:
    decisions = [credited(1.0), credited(0.0), credited(-1.0, 1), credited(0.0, 2, (2,)), credited(3.0, 3, (2,))]
    found = credit_quality("plan", decisions, [0.5, 0.25, 0.0, 1.0, math.nan])
    assert (found.credited, found.measured, found.zeros) == (5, 4, 0.4)
    # Ranks 4 2.5 1 2.5 of credits and 3 2 1 4 of targets: Pearson's correlation of these is 3 / sqrt(4.5 * 5).
    assert found.fidelity.mean == pytest.approx(3 / (4.5 * 5) ** 0.5)
    assert found.squared_error.mean == pytest.approx((0.25 + 0.0625 + 1 + 1) / 4)
    # Of 1 0 -1, and of 0 3.
    assert found.variance.within == pytest.approx((2 / 3 + 2.25) / 2)
    assert found.fidelity.n == 3  # instances
    assert found.squared_error.low <= found.squared_error.mean <= found.squared_error.high
    none = credit_quality("plan", [], [])
    assert (none.credited, none.measured) == (0, 0)
    assert math.isnan(none.fidelity.mean + none.squared_error.mean + none.zeros)
    without = credit_quality("plan", decisions, [0.5, 0.25, 0.0, 1.0, math.nan], resamples=0)
    assert math.isnan(without.fidelity.low)


def test_credit_is_by_event_type_after_all_together() -> None:
    decisions = [credited(1.0), credited(0.0, event="act"), credited(0.0)]
    assert [(one.event, one.credited) for one in by_event(decisions, [0, 0, 0])] == [(ALL, 3), ("plan", 2), ("act", 1)]
    assert [one.event for one in by_event(decisions[:1], [0])] == ["plan"]


def test_credit_of_an_update_is_compared_with_replays_of_its_decisions(context) -> None:
    """The actor's message is its score, so replays of the message return the same."""
    found = training_credit(make("replay_loo"), context, ROWS, replace(PLAN, buckets=100, events=("act",)))
    assert [one.event for one in found.events] == ["act"]
    (act,) = found.events
    # Two instances of 2 plans with 4 answers each, which are all different.
    assert (act.credited, act.measured) == (16, 16)
    assert found.decisions == 2 * (2 + 8)
    assert found.unreplayed == 0
    # Of the update 16 scores; of every context's decisions 4 replies and 2 for the baseline, twice each.
    assert found.cost.scoring_events == 16 + 4 * (4 + 2) * 2
    assert -1 <= act.fidelity.low <= act.fidelity.mean <= act.fidelity.high <= 1


def test_only_as_many_decisions_as_asked_for_are_measured(context) -> None:
    found = training_credit(make("magrpo", group_size=3), context, ROWS, PLAN)
    assert [(one.event, one.credited) for one in found.events] == [(ALL, 12), ("plan", 6), ("act", 6)]
    assert found.events[0].measured == 6
    assert found.method == "magrpo"


def test_credit_of_an_update_is_compared_with_exact_advantages() -> None:
    chat = Chat(tokenizer_of(["0", "1", " ", "tell secret answer mod add Problem: Context: \n"]))
    model = build_model(chat.tokenizer, MicroConfig(hidden_size=8, layers=1, heads=2))
    engine = Engine(relay(2), chat, sampler(model, chat.tokenizer, max_new_tokens=1, top_p=1.0, top_k=0))
    rows = [relay_task(0, 1, size=2), relay_task(1, 1, size=2)]
    seen: list[TrainedDecision] = []

    def exact(decisions):
        seen.extend(decisions)
        model.train()
        found = exact_advantages(relay(2), chat, model, decisions, max_new_tokens=1)
        assert model.training  # as in an update of training
        return found

    found = training_credit(make("replay_loo"), LocalContext(engine), rows, exact=exact)
    assert found.events[0].measured == found.events[0].credited == len(seen)
    errors = []
    for one in seen:
        (truth,) = exact_values(relay(2), chat, model, [one.decision.state], max_new_tokens=1)
        errors.append((one.credit - truth.values[one.decision.action_text] + truth.value) ** 2)
    assert found.events[0].squared_error.mean == pytest.approx(sum(errors) / len(errors))
    rare = exact_advantages(relay(2), chat, model, seen[:1], max_new_tokens=1, floor=0.9)
    assert math.isnan(rare[0])
    assert exact_advantages(relay(2), chat, model, [], max_new_tokens=1) == []


def test_decisions_of_episodes_from_a_recorded_state_are_measured(context) -> None:
    method = make("replay_loo", reference_rollouts=2, alternatives=[2], contexts=2, num_replays=2)
    assert isinstance(method.collector, VisitedContexts)
    found = training_credit(method, context, ROWS, replace(PLAN, buckets=100))
    assert found.events[0].measured == found.events[0].credited > 0


def test_what_cannot_be_measured_is_refused(context) -> None:
    with pytest.raises(
        ValueError, match="an event of a diagnosis must have credit, got critic; those with credit are plan, act"
    ):
        training_credit(make("magrpo"), context, ROWS, replace(PLAN, events=("critic",)))
    with pytest.raises(ValueError, match="value_actions must be at least 1 for the baseline of replays, got 0"):
        training_credit(make("magrpo"), context, ROWS, replace(PLAN, value_actions=0))
    with pytest.raises(ValueError, match="needs a context with an engine, got none"):
        training_credit(make("magrpo"), LocalContext(), ROWS)
    with pytest.raises(ValueError, match="must be run with it, got none named 'critic'"):
        training_credit(make("mappo"), context, ROWS, PLAN)


def test_a_method_without_credit_is_measured(context) -> None:
    def nothing(collected, context, memory):
        return Credit(decisions={})

    silent = Method(name="silent", collector=make("magrpo").collector, estimator=nothing)
    found = training_credit(silent, context, ROWS, PLAN)
    assert [(one.event, one.credited) for one in found.events] == [(ALL, 0)]
