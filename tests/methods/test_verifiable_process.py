"""VPR and its two baselines, with credit computed by hand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit import methods
from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.methods.verifiable_process import StateGroup, TrajectoryOutcome, TurnGroup, ValueDifferences
from hf_credit.rollouts import Decision, Ending, Engine, Episode, LocalContext, Verdict, by_episode
from hf_credit_bench.problem import Problem, Way
from hf_credit_bench.table import TableChat, TablePolicy, TableSampler


def decision(score: float | None) -> Decision:
    verdict = None if score is None else Verdict(score=score)
    return Decision(
        role="agent", state=None, context_ids=(1,), action_ids=(2,), logprobs=None, action_text="", verdict=verdict
    )


def episode(*scores: float | None, outcome: float = 0.0, ending: Ending = Ending.FINISHED) -> Episode:
    return Episode(decisions=tuple(map(decision, scores)), outcome=outcome, ending=ending)


def collected(*episodes: Episode, more: Sequence[Rollout] = ()) -> RolloutBatch:
    rollouts = (Rollout(episode=one, instance=place) for place, one in enumerate(episodes))
    return RolloutBatch(rollouts=(*rollouts, *more), rows=len(episodes))


def credits(estimator: Any, what: RolloutBatch) -> Any:
    return by_episode(what.episodes, estimator(what, LocalContext(), None).decisions)


def test_each_turn_is_normalised_over_the_trajectories_still_active() -> None:
    given = credits(TurnGroup(), collected(episode(1.0, 0.0), episode(0.0), episode(1.0, 1.0), episode(0.0)))
    # Turn 1: mean 1/2, population deviation 1/2. Turn 2 has two trajectories, so the six pairs of the batch stand in:
    # mean 1/2, deviation 1/2.
    assert [[round(value, 6) for value in values] for values in given] == [[1, -1], [-1], [1, 1], [-1]]


def test_a_later_reward_is_discounted() -> None:
    two = collected(episode(0.0, 1.0), episode(0.0, 0.0), episode(0.0, 0.0), episode(0.0, 1.0))
    given = credits(TurnGroup(gamma=0.5), two)
    assert [[round(value, 6) for value in values] for values in given] == [[1, 1], [-1, -1], [-1, -1], [1, 1]]
    assert [values[0] for values in credits(TurnGroup(), two)] == [0, 0, 0, 0]


def then_judged(*scores: float, outcome: float = 0.0) -> Episode:
    """An episode in which another role, without verdicts, speaks after every decision."""
    both = [one for score in scores for one in (decision(score), replace(decision(None), role="judge", observed=True))]
    placed = (replace(one, step=step) for step, one in enumerate(both))
    return Episode(decisions=tuple(placed), outcome=outcome, ending=Ending.FINISHED)


def test_what_other_roles_say_has_no_reward_and_makes_none_unknown() -> None:
    given = credits(TurnGroup(gamma=0.5), collected(*(then_judged(0.0, last) for last in (1.0, 0.0, 0.0, 1.0))))
    assert [[value and round(value, 6) for value in values] for values in given] == [
        [1, None, 1, None],
        [-1, None, -1, None],
        [-1, None, -1, None],
        [1, None, 1, None],
    ]
    paid = credits(TurnGroup(bonus=1.0), collected(*(then_judged(0.5, outcome=one) for one in (1.0, 0.0, 1.0, 0.0))))
    assert [[value and round(value, 6) for value in values] for values in paid] == [[1, None], [-1, None]] * 2


def test_outcome_reward_gives_every_turn_the_advantage_of_its_trajectory() -> None:
    episodes = [episode(0.0, 0.0, outcome=1.0), episode(1.0, outcome=0.0), episode(1.0, 1.0, 1.0, outcome=0.0)]
    # Mean 1/3, population deviation sqrt(2)/3.
    high, low = math.sqrt(2), -math.sqrt(2) / 2
    given = credits(TrajectoryOutcome(), collected(*episodes))
    assert given[0] == pytest.approx([high, high], rel=1e-6)
    assert given[1] == pytest.approx([low], rel=1e-6)
    assert given[2] == pytest.approx([low] * 3, rel=1e-6)


def test_decisions_without_a_verdict_are_in_no_mean() -> None:
    broken = episode(1.0, None, None, ending=Ending.ERROR)
    given = credits(TurnGroup(), collected(broken, episode(0.0), episode(1.0), episode(0.0), episode()))
    assert given == [
        [pytest.approx(1.0), None, None],
        [pytest.approx(-1.0)],
        [pytest.approx(1.0)],
        [pytest.approx(-1.0)],
        [],
    ]


def continuations(of: Episode, *outcomes: Sequence[float]) -> list[Rollout]:
    """For each decision of an episode, the outcomes of rollouts from the state before it."""
    return [
        Rollout(
            episode=episode(None, outcome=outcome), instance=0, trained=False, kind="continuation", source=decision.id
        )
        for decision, own in zip(of.decisions, outcomes, strict=True)
        for outcome in own
    ]


def test_monte_carlo_rewards_are_changes_in_value_and_sum_to_the_outcome_minus_the_first_value() -> None:
    long, short = episode(None, None, outcome=1.0), episode(None, outcome=0.0)
    more = [*continuations(long, (0.0, 0.5), (1.0, 0.5)), *continuations(short, (0.5, 0.5))]
    assert ValueDifferences().rewards(collected(long, short, more=more)) == [[0.5, 0.25], [-0.5]]


def test_an_episode_that_failed_has_no_monte_carlo_reward() -> None:
    failed, sound = episode(None, None, outcome=0.0, ending=Ending.ERROR), episode(None, outcome=1.0)
    rewards = ValueDifferences().rewards(collected(failed, sound, more=continuations(sound, (0.0, 1.0))))
    assert rewards == [[0.5]]
    assert credits(ValueDifferences(), collected(failed, sound, more=continuations(sound, (0.0, 1.0))))[0] == [
        None,
        None,
    ]


@pytest.mark.parametrize(("gamma", "known"), [(0.0, [True, False, False, True]), (0.5, [False, False, False, True])])
def test_a_return_with_an_unknown_value_is_no_credit_and_in_no_mean(gamma: float, known: list[bool]) -> None:
    long, short = episode(None, None, None, None, outcome=1.0), episode(None, outcome=0.0)
    lost = continuations(long, (0.0,), (0.5,), (0.5,), (0.5,))
    lost[2] = replace(lost[2], episode=replace(lost[2].episode, outcome=math.nan, ending=Ending.ERROR))
    batch = collected(long, short, more=[*lost, *continuations(short, (0.5,))])
    context = LocalContext()
    given = ValueDifferences(gamma=gamma, min_active=9)(batch, context).decisions
    assert [one.id in given for one in long.decisions] == known
    assert context.metrics["process_reward/mean"] == [pytest.approx((0.5 + 0.5 - 0.5) / 3)]
    assert all(math.isfinite(value) for value in given.values())


@pytest.mark.parametrize(("gamma", "credited"), [(0.0, [True, True, False]), (0.9, [False, False, False])])
def test_a_return_that_a_failure_of_the_oracle_cuts_off_is_unknown(gamma: float, credited: list[bool]) -> None:
    broken = episode(1.0, 0.0, None, ending=Ending.ERROR)
    given = credits(TurnGroup(gamma=gamma), collected(broken, episode(0.0), episode(1.0)))
    assert [value is not None for value in given[0]] == credited


def test_simultaneous_decisions_share_the_change_of_their_step() -> None:
    def team(outcome: float) -> Episode:
        first, last = object(), object()
        roles = [(first, "left"), (first, "right"), (last, "left")]
        decisions = [replace(decision(None), state=state, role=role, event=role) for state, role in roles]
        return Episode(decisions=tuple(decisions), outcome=outcome, ending=Ending.FINISHED)

    won, lost = team(1.0), team(0.0)
    known = [*continuations(won, (0.5,), (0.5,), (0.75,)), *continuations(lost, (0.5,), (0.5,), (0.25,))]
    # The first step changes the value by +1/4 or -1/4, the second by as much again.
    for gamma in (0.0, 1.0):
        given = credits(ValueDifferences(gamma=gamma, min_active=1), collected(won, lost, more=known))
        assert given == [pytest.approx([1.0] * 3), pytest.approx([-1.0] * 3)]
    assert ValueDifferences().rewards(collected(won, lost, more=known)) == [[0.25, 0.25], [-0.25, -0.25]]


def test_without_episodes_there_is_no_credit() -> None:
    for estimator in (TurnGroup(), ValueDifferences(), TrajectoryOutcome()):
        assert credits(estimator, collected()) == []


def test_discounts_of_state_groups_are_refused() -> None:
    with pytest.raises(ValueError, match=r"gamma must be 0 in state groups, .* got 0.5; leave it out"):
        methods.make("verifiable_process", state_group_size=4, gamma=0.5)


# State groups


def replies_at(*groups: Sequence[float | None]) -> RolloutBatch:
    """A task for each group, with a reply for each score at its first state."""
    episodes = [(task, episode(score)) for task, scores in enumerate(groups) for score in scores]
    rollouts = tuple(Rollout(episode=one, instance=task) for task, one in episodes)
    return RolloutBatch(rollouts=rollouts, rows=len(groups))


def test_a_reply_is_compared_within_its_state_and_scaled_over_the_update() -> None:
    batch = replies_at((1.0, 0.0, 0.0, 0.0), (1.0, 1.0), (1.0, 0.0, None), (0.0,))
    context = LocalContext()
    given = StateGroup()(batch, context, None).decisions
    # Centred: 3/4, -1/4 three times, 1/2, -1/2; the variance of the six is 1.25 / 6. Equal rewards are in no mean.
    deviation = math.sqrt(1.25 / 6)
    centred = [0.75, -0.25, -0.25, -0.25, None, None, 0.5, -0.5, None, None]
    assert [given.get(one.decisions[0].id) for one in batch.episodes] == [
        value if value is None else pytest.approx(value / deviation) for value in centred
    ]
    raw = StateGroup(whiten=False)(batch, LocalContext(), None).decisions
    assert [raw.get(one.decisions[0].id) for one in batch.episodes] == centred
    assert context.metrics["state_groups/equal"] == [0.5]
    assert context.metrics["process_reward/mean"] == [pytest.approx(4 / 9)]


def test_whitening_keeps_the_scale_between_groups_as_in_the_authors_test() -> None:
    batch = replies_at((0.0, 0.5), (0.0, 1.0))  # theirs are 0, 2 and 0, 4
    given: Any = list(StateGroup()(batch, LocalContext(), None).decisions.values())
    assert given[3] == pytest.approx(2 * given[1])
    assert np.std(given) == pytest.approx(1.0)


def test_a_reply_at_the_limit_of_tokens_has_no_bonus_that_others_at_its_state_lack() -> None:
    ended, *beside = (episode(1.0, outcome=outcome) for outcome in (0.5, math.nan, math.nan))
    rollouts = tuple(Rollout(episode=replace(one, ending=Ending.TRUNCATED), instance=0) for one in (ended, *beside))
    assert not StateGroup(bonus=1.0)(RolloutBatch(rollouts=rollouts, rows=1), LocalContext(), None).decisions
    whole = (Rollout(episode=ended, instance=0), *rollouts[1:])
    assert StateGroup(bonus=1.0)(RolloutBatch(rollouts=whole, rows=1), LocalContext(), None).decisions


class Context(tuple[int, ...]):
    """Tokens that count how often they are told apart."""

    hashed = 0

    def __hash__(self) -> int:
        Context.hashed += 1
        return super().__hash__()


def state_tree(scores: Sequence[Sequence[float | None]]) -> RolloutBatch:
    """An episode with a reply for each first score, and beside it one that ends with each other score."""
    before: tuple[Decision, ...] = ()
    others = []
    for step, (first, *rest) in enumerate(scores):
        seen = {"context_ids": Context(range(step + 1)), "step": step}
        others += [(*before, replace(decision(score), **seen)) for score in rest]
        before = (*before, replace(decision(first), **seen))
    episodes = [Episode(decisions=own, outcome=0.0, ending=Ending.FINISHED) for own in (before, *others)]
    return RolloutBatch(rollouts=tuple(Rollout(episode=one, instance=0) for one in episodes), rows=1)


@given(st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0, None]), min_size=1, max_size=4), min_size=1, max_size=6))
def test_state_groups_are_all_decisions_with_one_context_which_is_told_apart_once(
    scores: list[list[float | None]],
) -> None:
    batch = state_tree(scores)
    Context.hashed = 0
    found = StateGroup(whiten=False)(batch, LocalContext(), None).decisions
    assert Context.hashed == sum(score is not None for of_state in scores for score in of_state)
    expected = {}
    everyone = {one.id: one for episode in batch.episodes for one in episode.decisions}.values()
    for one in everyone:
        others = [other.verdict.score for other in everyone if other.verdict and other.context_ids == one.context_ids]
        if one.verdict and len({*others}) > 1:
            expected[one.id] = pytest.approx(one.verdict.score - sum(others) / len(others))
    assert found == expected


@dataclass(frozen=True)
class Digits(Problem):
    """Two steps of three actions; an oracle accepts 1 and 2. The outcome is 1 if the second is 2."""

    def speakers(self, node: Any) -> Sequence[str]:
        return () if node[0] == 2 else ("agent",)

    def actions(self, view: Any) -> int:
        return 3

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        return [Way(1.0, (node[0] + 1, actions[0]), float(node[0] == 1 and actions[0] == 2))]

    def right(self, node: Any, action: int) -> float:
        return float(action > 0)


class Broken(Digits):
    """The same, but its world fails after action 1."""

    def advance(self, state: Any, replies: Sequence[str]) -> Any:
        if replies == ["1"]:
            raise RuntimeError("the world broke")
        return super().advance(state, replies)


def grouped(problem: Problem, tasks: int = 1, seed: int = 0, **options: Any) -> RolloutBatch:
    method = methods.make("verifiable_process", **{"state_group_size": 4, **options}).bind(problem)
    sampler = TableSampler(TablePolicy(problem), seed)
    context = LocalContext(Engine(problem, TableChat(problem), sampler), seed=seed)  # type: ignore[arg-type]
    return method.collector([{"seed": row} for row in range(tasks)], context, None)


def states_of(batch: RolloutBatch) -> list[list[tuple[str, Episode]]]:
    """For each visited state, the replies there with their episodes; the committed one comes first."""
    whole = [one.episode for one in batch.trained if not one.source]
    groups = {one.id: [(one.action_text, episode)] for episode in whole for one in episode.decisions}
    contexts = {one.id: one.context_ids for episode in whole for one in episode.decisions}
    for rollout in batch.trained:
        if rollout.source:
            assert not rollout.counted
            (own,) = rollout.episode.own_decisions
            assert own.context_ids == contexts[rollout.source]
            groups[rollout.source].append((own.action_text, rollout.episode))
    return list(groups.values())


def test_each_visited_state_has_as_many_replies_and_one_of_the_best_goes_on() -> None:
    batch = grouped(Digits(), tasks=40)
    assert [one.episode.turns for one in batch.trained if not one.source] == [2] * 40
    assert [len(group) for group in states_of(batch)] == [4] * 80
    committed = Counter[str]()
    for (action, _), *others in states_of(batch):
        assert action != "0" or all(other == "0" for other, _ in others)
        if {"1", "2"} <= {action, *(other for other, _ in others)}:
            committed[action] += 1
    assert committed.keys() == {"1", "2"}  # ties at random


def test_the_same_seed_draws_the_same_groups_and_commits_the_same_replies() -> None:
    first, again, other = (
        [[action for action, _ in group] for group in states_of(grouped(Digits(), tasks=8, seed=seed))]
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_a_reply_that_only_stops_has_no_outcome_and_one_that_ends_the_episode_has() -> None:
    first, last = states_of(grouped(Digits()))
    assert all(math.isnan(episode.outcome) for _, episode in first[1:])
    assert [episode.outcome for _, episode in last] == [float(action == "2") for action, _ in last]


def test_a_reply_that_breaks_the_world_is_committed_only_if_all_do() -> None:
    broken = [
        [(action, episode.ending == Ending.ERROR) for action, episode in group]
        for group in states_of(grouped(Broken(), tasks=30))
    ]
    assert any(failed for group in broken for _, failed in group[1:])
    for (action, failed), *others in broken:
        assert action != "1" or (failed and all(other == "1" for other, _ in others))


def test_the_bonus_is_the_outcome_in_the_last_turns_reward() -> None:
    won, lost = episode(1.0, 0.0, outcome=1.0), episode(0.0, 1.0, outcome=0.0)
    assert TurnGroup(bonus=0.5).rewards(collected(won, lost)) == [[1.0, 0.5], [0.0, 1.0]]
    last = states_of(grouped(Digits(), tasks=30, bonus=1.0))[1::2]
    assert all(group[0][0] == "2" for group in last if "2" in [action for action, _ in group])
