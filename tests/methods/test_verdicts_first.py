"""The weight between verdicts and outcomes: by hand, and for every method that takes it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from hf_credit import methods
from hf_credit.credit import sure_share
from hf_credit.methods import METHODS
from hf_credit.methods.memory import from_plain, to_plain
from hf_credit.options import options_of
from hf_credit.rollouts import Ending, LocalContext

OPTIONS: dict[str, dict[str, Any]] = {
    name: {"turn_scores": "verdict"} if "turn_scores" in options_of(methods.find(name)) else {}
    for name in METHODS
    if "outcome_weight" in options_of(methods.find(name))
}
EVERY = pytest.mark.parametrize("name", OPTIONS)
SEEN = (30.0, 100.0)


def of(name: str, weight: Any) -> Any:
    return methods.make(name, outcome_weight=weight, **OPTIONS[name])


def credited(method: Any, batch: Any, memory: Any = None, context: LocalContext | None = None) -> Any:
    found = method.estimator(batch, context or LocalContext(), memory or method.memory)
    return found.memory, [found.decisions.get(one.id) for own in batch.episodes for one in own.decisions]


@pytest.fixture
def batch(hand: Any) -> Any:
    """Two tasks with two episodes each: the first's success has worse verdicts, the second's better ones."""

    def played(outcome: float, *verdicts: float) -> Any:
        return hand.episode(*(hand.decision(verdict=one) for one in verdicts), outcome=outcome)

    episodes = played(1.0, 0.0, 1.0), played(0.0, 1.0, 1.0), played(1.0, 1.0), played(0.0, 0.0, 1.0)
    return hand.collected(*episodes, instances=(0, 0, 1, 1))


def test_every_method_with_rewards_from_verdicts_takes_it() -> None:
    of_verdicts = {name for name in METHODS if "turn_scores" in options_of(methods.find(name))}
    assert OPTIONS.keys() == {*of_verdicts, "draco", "verifiable_process"}


@EVERY
def test_without_a_weight_the_method_is_its_own(name: str) -> None:
    assert of(name, 0.0).estimator == methods.make(name, **OPTIONS[name]).estimator


@EVERY
def test_a_weight_is_the_share_of_the_outcome(name: str, batch: Any) -> None:
    own, half, whole = (credited(of(name, weight), batch)[1] for weight in (0.0, 0.5, 1.0))
    # Two successes of four episodes: 1/2 above the mean, in deviations of 1/2; of the sample in a task, 1/sqrt(2).
    size = 1 if name == "verifiable_process" else math.sqrt(0.5)
    assert whole == pytest.approx([size, size, -size, -size, size, -size, -size], rel=1e-3)
    assert half == pytest.approx([(a + b) / 2 for a, b in zip(own, whole, strict=True)])


@EVERY
def test_a_measured_weight_is_what_earlier_updates_are_sure_of(name: str, batch: Any) -> None:
    method, context = of(name, "measured"), LocalContext()
    memory, first = credited(method, batch, context=context)
    assert first == pytest.approx(credited(of(name, 0.0), batch)[1])
    # In groups one of two successes is behind its failure; over the update a success of mean 1/2 is behind 1 and level
    # with 1/2, and one of mean 1 is level with 1 and ahead: (3/2 + 1/2) of four pairs, twice.
    assert memory == (1.0, 2.0)
    _, later = credited(method, batch, SEEN, context)
    assert later == pytest.approx(credited(of(name, sure_share(30.0, 100.0)), batch)[1])
    assert context.metrics == {
        **context.metrics,
        "outcome/weight": [0.0, sure_share(30.0, 100.0)],
        "outcome/disagreement": [0.5, 0.5],
    }


@EVERY
def test_the_weight_stays_0_where_successes_are_the_episodes_with_the_best_verdicts(name: str, hand: Any) -> None:
    method, own = of(name, "measured"), of(name, 0.0)
    memory = method.memory
    for length in range(2, 9):
        right = hand.episode(*(hand.decision(verdict=1.0) for _ in range(length)), outcome=1.0)
        wrong = hand.episode(*(hand.decision(verdict=float(at > 0)) for at in range(length)), outcome=0.0)
        batch = hand.collected(right, wrong, wrong)
        memory, found = credited(method, batch, memory)
        assert found == credited(own, batch)[1]
    assert memory == (0.0, 7.0)


@EVERY
def test_the_weight_is_memory_that_a_checkpoint_holds(name: str, batch: Any) -> None:
    method = of(name, "measured")
    memory, _ = credited(method, batch)
    assert from_plain(to_plain(memory), method.memory) == memory
    assert method.fingerprint() != of(name, 0.5).fingerprint()


def part_of(batch: Any, task: int) -> Any:
    own = (replace(one, instance=0) for one in batch.rollouts if one.instance == task)
    return replace(batch, rollouts=tuple(own), rows=1)


class OfTwo(LocalContext):
    """The context of one of two processes, which has a row, and gathers what it was told, or no episodes."""

    def __init__(self, process: int, others: list[list[Any]]) -> None:
        super().__init__()
        self.process, self.others, self.own = process, others, list[list[Any]]()

    def gather(self, items: Any) -> list[Any]:
        self.own.append(list(items))
        other = self.others[len(self.own) - 1] if self.others else [1 if isinstance(items[0], int) else []]
        return [*items, *other] if self.process == 0 else [*other, *items]


@EVERY
def test_every_process_has_the_memory_of_one_with_all_episodes(name: str, batch: Any) -> None:
    method, halves = of(name, "measured"), [part_of(batch, own) for own in (0, 1)]
    alone = [OfTwo(process, []) for process in (0, 1)]
    for half, context in zip(halves, alone, strict=True):
        credited(method, half, context=context)
    together = [OfTwo(process, alone[1 - process].own) for process in (0, 1)]
    found = [credited(method, half, SEEN, context) for half, context in zip(halves, together, strict=True)]
    memory, credits = credited(method, batch, SEEN)
    assert [own for own, _ in found] == [memory, memory]
    assert [*found[0][1], *found[1][1]] == pytest.approx(credits)


def test_failed_episodes_and_unknown_outcomes_are_not_compared(hand: Any) -> None:
    won, lost = (hand.episode(hand.decision(verdict=1 - one), outcome=one) for one in (1.0, 0.0))
    unknown = hand.episode(hand.decision(verdict=0.0), outcome=math.nan)
    failed = hand.episode(hand.decision(verdict=0.0), outcome=1.0, ending=Ending.ERROR)
    unjudged = hand.episode(hand.decision(), outcome=1.0)
    memory, _ = credited(of("verifiable_process", "measured"), hand.collected(won, lost, unknown, failed, unjudged))
    assert memory == (1.0, 1.0)


def test_outcomes_are_compared_with_those_after_as_many_steps(hand: Any) -> None:
    first = [hand.episode(hand.decision(verdict=1.0), outcome=outcome) for outcome in (1.0, 0.0, 1.0, 0.0)]
    later = [hand.episode(replace(hand.decision(verdict=1.0), step=11), outcome=1.0) for _ in range(4)]
    _, found = credited(of("verifiable_process", 1.0), hand.collected(*first, *later))
    assert found == pytest.approx([1, -1, 1, -1, 0, 0, 0, 0])


def test_episodes_alone_at_their_start_are_compared_with_all_as_by_the_outcome_alone(hand: Any) -> None:
    episodes = [
        hand.episode(replace(hand.decision(verdict=1.0), step=step), outcome=float(step % 2)) for step in range(6)
    ]
    batch = hand.collected(*episodes)
    batch = replace(batch, rollouts=tuple(replace(one, later=True) for one in batch.rollouts))
    _, found = credited(of("verifiable_process", 1.0), batch)
    assert found == pytest.approx([-1, 1, -1, 1, -1, 1])
    plain = methods.make("outcome_reward").estimator(batch, LocalContext(), None).decisions
    assert [*plain.values()] == pytest.approx(found)


def test_outcomes_of_alternatives_that_are_not_committed_are_not_compared(hand: Any) -> None:
    episodes = [hand.episode(hand.decision(verdict=1.0), outcome=outcome) for outcome in (1.0, 0.0, 0.4)]
    batch = hand.collected(*episodes)
    last = replace(batch.rollouts[2], counted=False)
    _, found = credited(of("verifiable_process", 1.0), replace(batch, rollouts=(*batch.rollouts[:2], last)))
    assert found == pytest.approx([1, -1, 0])


def test_state_groups_take_it_with_replies_of_the_policy_alone() -> None:
    with pytest.raises(ValueError, match=r"outcome_weight must be 0 in state groups with commit='best', got 0\.5"):
        methods.make("verifiable_process", state_group_size=4, outcome_weight=0.5)
    method = methods.make("verifiable_process", state_group_size=4, commit="random", outcome_weight="measured")
    assert method.estimator.needs == {"verdicts", "alternatives"}


@pytest.mark.parametrize("name", ["arew", "mt_grpo", "turn_credit", "draco"])
def test_it_needs_verdicts(name: str) -> None:
    other = {"criteria": "task"} if name == "draco" else {"turn_scores": "reward"}
    with pytest.raises(ValueError, match=r"outcome_weight must be 0 without verdicts, got 0\.5"):
        methods.make(name, outcome_weight=0.5, **other)
