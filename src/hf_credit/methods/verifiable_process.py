"""VPR: process rewards of turns, normalised over the trajectories that are active at the turn (the paper VPR), or over
several replies at the same state (its public code, thu-nics/VPR@7fa8008).

    A[i, t] = (r[i, t] - mean_{j active at t} r[j, t]) / (std_{j active at t} r[j, t] + eps)    (eq. 4)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from hf_credit.collectors import Collector, Continuations, Rollout, RolloutBatch, Verified
from hf_credit.collectors.base import TaskRow
from hf_credit.credit import (
    discounted_returns,
    full_mean,
    pad_to_matrix,
    trajectory_advantages,
    turn_group_advantages,
    value_differences,
)
from hf_credit.methods import base
from hf_credit.methods.base import Credit, Estimator, Method, paper, verdict_score
from hf_credit.methods.groups import Turns
from hf_credit.methods.verdicts_first import OutcomeWeight, placed_advantages, weighed
from hf_credit.options import (
    Count,
    NotNegative,
    Options,
    Share,
    filled_by_factory,
    refuse_without_effect,
    with_parts,
)
from hf_credit.oracles import OracleLike, resolve
from hf_credit.rollouts import Decision, Ending, Episode, Interaction, continued
from hf_credit.rollouts.method_context import MethodContext

PAPER = paper("Verifiable Process Rewards for Agentic Reasoning", url="https://github.com/thu-nics/VPR")

TurnRewards = Sequence[Sequence[float | None]]
"""The reward of each turn of each trained episode; NaN if it is unknown, `None` for a turn of another role."""


@dataclass(frozen=True, kw_only=True)
class TurnGroup(Options):
    """Discounted returns of turn rewards, normalised over all trajectories of the update at the same turn (eq. 4).

    A turn whose return includes an unknown reward gets no credit and is not compared: after a failure of the oracle or
    the world, with `gamma` above 0 also the turns before it.

    Args:
        gamma: discount factor per turn; turns of untrained roles count.
        min_active: minimum number of active trajectories at a turn for statistics of this turn alone.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"verdicts"})

    gamma: Share = 0.0
    min_active: Count = 4
    bonus: NotNegative = filled_by_factory(0.0)

    def rewards(self, collected: RolloutBatch) -> TurnRewards:
        """Returns the rewards of turns, and for a failed episode NaN for the rest that it lacks."""
        return [
            [*_rewards(episode, self.bonus), *([math.nan] if episode.ending == Ending.ERROR else [])]
            for episode in collected.episodes
        ]

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        advantages = self._advantages(_steps_before(collected), self.rewards(collected), context)
        return Credit(
            decisions=base.mean_by_decision(
                (decision, None if decision.observed or math.isnan(value) else value)
                for episode, values in zip(collected.episodes, advantages.tolist(), strict=True)
                for decision, value in zip(episode.decisions, values, strict=False)
            )
        )

    def _advantages(self, before: Sequence[int], turn_rewards: TurnRewards, context: MethodContext) -> Tensor:
        # A turn is compared with those after as many steps, wherever their episodes began.
        placed = [[*[None] * steps, *own] for steps, own in zip(before, turn_rewards, strict=True)]
        rows, local = base.all_gather_with_slice(placed, context)
        rewards, active = pad_to_matrix(rows)
        known = rewards[active & ~rewards.isnan()]
        if len(known):
            context.log("process_reward/mean", known.mean().item())
            context.log("process_reward/std", known.std(correction=0).item())
        returns = discounted_returns(rewards, active, self.gamma)
        unknown = returns.isnan()
        found = turn_group_advantages(returns, active & ~unknown, self.min_active).masked_fill(unknown, math.nan)
        from_starts = [row.roll(-steps) for row, steps in zip(found[local], before, strict=True)]
        return torch.stack(from_starts) if from_starts else found[local]


@dataclass(frozen=True, kw_only=True)
class ValueDifferences(TurnGroup):
    """`TurnGroup` with changes of the state's Monte Carlo value as rewards (the MC-PR baseline, section 3.1).

    A turn is a step: simultaneous decisions share one state, and the reward.

    Args:
        gamma: discount factor per turn; turns of untrained roles count.
        min_active: minimum number of active trajectories at a turn for statistics of this turn alone.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"continuations"})

    def rewards(self, collected: RolloutBatch) -> TurnRewards:
        """Returns V(s') - V(s) of each turn, with the outcome as the last V(s'); without failed episodes.

        It is NaN if one of the values is unknown (`continuation_values`).
        """
        played = Turns(collected, base.without_errors(collected))
        values, active = played.values()
        changes = value_differences(values, played.outcomes, active).tolist()
        rewards: list[list[float | None]] = [[None] * len(episode.steps) for episode in played.episodes]
        for row, turns, of_turns in zip(rewards, played.turns, changes, strict=True):
            for turn, change in zip(turns, of_turns, strict=False):
                row[turn.start] = change
        return rewards

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        played, before = Turns(collected, base.without_errors(collected)), _steps_before(collected)
        advantages = self._advantages([before[row] for row in played.rows], self.rewards(collected), context)
        places = [[turn.start for turn in turns] for turns in played.turns]
        of_turns = [[row[place] for place in own] for row, own in zip(advantages.tolist(), places, strict=True)]
        return Credit(decisions=played.credit(pad_to_matrix(of_turns)[0]))


@dataclass(frozen=True, kw_only=True)
class TrajectoryOutcome:
    """Every decision of an episode gets its outcome, normalised over the update (eq. 1); without one no credit."""

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        before = _steps_before(collected)
        outcomes = [
            None if one.ending == Ending.ERROR or math.isnan(one.outcome) or not one.decisions else one.outcome
            for one in collected.episodes
        ]
        pairs, local = base.all_gather_with_slice([*zip(outcomes, before, strict=True)], context)
        found = placed_advantages(*zip(*pairs, strict=True))[local] if pairs else []
        given = [None if one is None else value for one, value in zip(outcomes, found, strict=True)]
        return Credit(decisions=base.broadcast_to_decisions(collected, given))


@dataclass(frozen=True, kw_only=True)
class StateGroups:
    """Several replies at every visited state, one of which is committed: the episode goes on from it.

    The others are rollouts that end with their reply; their `source` is the committed one. A reply whose step or
    verdict fails is not committed, unless all fail.

    Attributes:
        size: number of replies at each state.
        commit: `"best"`, one of those with the largest reward, drawn at random; `"random"`, any.
        bonus: weight of the outcome in the reward of a step that ends the episode.
        judge: gives the verdicts.
    """

    gives: ClassVar[frozenset[str]] = frozenset({"verdicts", "alternatives"})
    replaying: ClassVar[bool] = True

    size: int
    commit: Literal["best", "random"] = "best"
    bonus: float = 0.0
    judge: Verified = field(default_factory=Verified)

    @property
    def oracle(self) -> Any:
        """The source of verdicts."""
        return self.judge.oracle

    def bind(self, interaction: Interaction[Any]) -> StateGroups:
        """Binds the oracle to one Interaction."""
        return replace(self, judge=self.judge.bind(interaction))

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        step: Any = {"fanout": (self.size,), "most_steps": 1}
        live = {instance: context.begin(row, instance, **step) for instance, row in enumerate(rows)}
        episodes: dict[int, Episode] = {}
        others: list[Rollout] = []
        for number in itertools.count():
            if not any(context.gather([bool(live)])):
                break
            instances, groups = [*live], {instance: list[Episode]() for instance in live}
            for one in self.judge.verified(context.play([*live.values()]), context):
                groups[instances[one.start]].append(one)
            live = {}
            for instance, replies in groups.items():
                chosen = self._chosen(replies, context.draws("commit", instance, number))
                before = episodes[instance].decisions if instance in episodes else ()
                first = episodes.get(instance) or chosen
                begun: Any = {"start": instance, "conversations": first.conversations, "earned": first.earned}
                for one in replies:
                    whole = replace(one, decisions=(*before, *one.decisions), branch=(), num_leaves=1, **begun)
                    if one is chosen:
                        episodes[instance] = whole
                    elif one.decisions and chosen.decisions:
                        others.append(_beside(chosen.decisions[0], replace(whole, prefix_length=len(before))))
                if chosen.ending == Ending.TRUNCATED and math.isnan(chosen.outcome):  # only stopped after a step
                    live[instance] = continued(context.interaction, episodes[instance], **step)
        committed = (Rollout(episode=episodes[instance], instance=instance) for instance in range(len(rows)))
        return RolloutBatch(rollouts=(*committed, *others), rows=len(rows))

    def _chosen(self, replies: Sequence[Episode], draws: Random) -> Episode:
        sound = [one for one in replies if one.ending != Ending.ERROR]
        if not sound:
            return replies[0]
        rewards = [sum(reward for reward in _rewards(one, self.bonus) if reward is not None) for one in sound]
        most = max((reward for reward in rewards if not math.isnan(reward)), default=math.nan)
        best = [one for one, reward in zip(sound, rewards, strict=True) if reward == most]
        chosen: Episode = draws.choices(best if best and self.commit == "best" else sound)[0]
        return chosen


@dataclass(frozen=True, kw_only=True)
class StateGroup:
    """The reward of a reply minus the mean of its state group; replies of a group with equal rewards get no credit.

    A group is the decisions of a task at one step with one context.

    Attributes:
        whiten: whether the remaining advantages are divided by their deviation over the update.
        bonus: as in `StateGroups`.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"verdicts", "alternatives"})
    revision: ClassVar[int] = 2

    whiten: bool = True
    bonus: float = 0.0

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        groups: dict[Any, dict[str, float]] = {}
        known = set[str]()  # a decision that episodes share is told apart by its context, which is long, only once
        for rollout in collected.trained:
            episode = rollout.episode
            # A reply at the limit of tokens has no bonus, as others at its state have no outcome.
            bonus = self.bonus * (episode.ending != Ending.TRUNCATED)
            for one, reward in zip(episode.decisions, _rewards(episode, bonus), strict=True):
                if one.id not in known and reward is not None and not math.isnan(reward):
                    known.add(one.id)
                    of_state = groups.setdefault((rollout.instance, one.event, one.step, one.context_ids), {})
                    of_state[one.id] = reward
        context.mean("process_reward/mean", [reward for group in groups.values() for reward in group.values()])
        telling = [group for group in groups.values() if len({*group.values()}) > 1]
        context.mean("state_groups/equal", [1.0] * (len(groups) - len(telling)) + [0.0] * len(telling))
        every, local = base.all_gather_with_slice([[*group.values()] for group in telling], context)
        sizes = [len(group) for group in every]
        numbers = torch.arange(len(every)).repeat_interleave(torch.tensor(sizes, dtype=torch.long))
        advantages = full_mean(torch.tensor([*itertools.chain(*every)], dtype=torch.float64), numbers)
        if self.whiten:
            advantages = trajectory_advantages(advantages, torch.ones_like(advantages))
        credits = [value for of_group in advantages.split(sizes)[local] for value in of_group.tolist()]
        return Credit(decisions=dict(zip(itertools.chain(*telling), credits, strict=True)), per_start=True)


@with_parts
def verifiable_process(
    estimator: TurnGroup = TurnGroup(),
    oracle: OracleLike | None = None,
    state_group_size: Count = 1,
    commit: Literal["best", "random"] = "best",
    whiten: bool = True,
    bonus: NotNegative = 0.0,
    outcome_weight: OutcomeWeight = 0.0,
) -> Method:
    """VPR: an oracle's verdicts as rewards, normalised over the trajectories active at the turn (the paper VPR).

    Args:
        oracle: the source of verdicts; the environment's oracle if `None`.
        state_group_size: number of replies at every visited state, which are compared with each other and one of which
            the episode goes on from; 4 in the public code. 1 for the paper's groups of turns.
        commit: the episode of state groups goes on from one of the replies with the largest reward (`"best"`), or from
            any (`"random"`), which keeps the states those of the policy.
        whiten: whether advantages in state groups are divided by their deviation over the update.
        bonus: weight of the episode's outcome, which is added to the reward of its last turn.
        outcome_weight: weight w of `outcome_reward` in the credit of every decision, with 1 - w for the verdicts; or
            `"measured"`, which begins at 0 and rises as far as it is sure that verdicts and outcomes disagree.

    Raises:
        ValueError: an option is out of range; in state groups `gamma` is not 0, or `outcome_weight` is not and
            the best reply is committed, so that outcomes are not the policy's.
    """
    oracle = resolve(oracle)  # one for all, which may keep its answers
    evaluation = Verified(oracle=oracle, required=False)
    collector: Collector = Verified(oracle=oracle)
    verdicts: Estimator = replace(estimator, bonus=bonus)
    if state_group_size == 1:
        refuse_without_effect("without state_group_size", commit=(commit, "best"))
    else:
        refuse_without_effect("in state groups", min_active=(estimator.min_active, TurnGroup.min_active))
        if estimator.gamma:
            raise ValueError(
                f"gamma must be 0 in state groups, whose replies have no later turns, got {estimator.gamma}; leave it "
                "out, or state_group_size."
            )
        if outcome_weight and commit == "best":
            raise ValueError(
                f"outcome_weight must be 0 in state groups with commit='best', got {outcome_weight!r}; use 'random'."
            )
        collector = StateGroups(size=state_group_size, commit=commit, bonus=bonus, judge=Verified(oracle=oracle))
        verdicts = StateGroup(whiten=whiten, bonus=bonus)
    parts = weighed(verdicts, outcome_weight)
    return Method(name="verifiable_process", collector=collector, **parts, evaluation=evaluation, paper=PAPER)


@with_parts
def outcome_reward(oracle: OracleLike | None = None) -> Method:
    """The OR baseline of paper VPR: every decision has its trajectory's advantage.

    Args:
        oracle: the source of verdicts, for metrics only; the environment's oracle if `None`.
    """
    collector = Verified(oracle=oracle, required=False)
    return Method(name="outcome_reward", collector=collector, estimator=TrajectoryOutcome(), evaluation=collector)


@with_parts
def mc_process_reward(
    rollouts: Count = 100,
    template_kwargs: Mapping[str, Any] | None = None,
    oracle: OracleLike | None = None,
    estimator: ValueDifferences = ValueDifferences(),
) -> Method:
    """The MC-PR baseline of paper VPR: process rewards from rollouts of the policy.

    Args:
        rollouts: number of rollouts from the state before each decision; 100 in the paper.
        template_kwargs: chat template settings of the rollouts; the recorded tokens are continued if `None`.
        oracle: the source of verdicts, for metrics only; the environment's oracle if `None`.
    """
    inner = Verified(oracle=oracle, required=False)
    collector = Continuations(rollouts=rollouts, inner=inner, template_kwargs=template_kwargs)
    return Method(name="mc_process_reward", collector=collector, estimator=estimator, evaluation=inner)


def _steps_before(collected: RolloutBatch) -> list[int]:
    """For each trained episode the number of steps before it, if it began later than at the first state."""
    return [one.episode.steps_before * one.later for one in collected.trained]


def _beside(committed: Decision, episode: Episode) -> Rollout:
    """The rollout of a reply that was not committed."""
    return Rollout(episode=episode, instance=episode.start, counted=False, kind="alternative", source=committed.id)


def _rewards(episode: Episode, bonus: float) -> list[float | None]:
    """The score of each decision's verdict, NaN without one, and `None` of a role that is not trained; with the bonus
    in those of the last step of others."""
    scores = [None if one.observed else verdict_score([one]) for one in episode.decisions]
    if bonus and not math.isnan(episode.outcome):
        steps = [step for step in episode.steps if not all(one.observed for one in step)]
        ended = {one.id for step in steps[-1:] for one in step}
        scores = [
            own if own is None else own + bonus * episode.outcome * (one.id in ended)
            for own, one in zip(scores, episode.decisions, strict=True)
        ]
    return scores
