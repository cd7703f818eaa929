"""Active replay: branches at states that add most variance to the gradient; all are trained on, weighted by 1/n.

Before a reply at a state s is sampled, n(s) >= 1 is fixed from s, the path to it and earlier updates. n branches
continue independently from s. With a critic V and delta = r + V(s') - V(s), V(end) = 0,

    U(s) = mean over branches of (delta + lam U(s')),   U(end) = 0,   credit c = delta + lam U(s')

and the weight of a decision is the product of 1 / n over the states of its path, including its own. With lam = 1 this
is unbiased for any V and n: E[U(s) | s] = V_pi(s) - V(s), so E[c | s, a] = Q(s, a) - V(s), and V(s) is a baseline;
given the past, branches are identically distributed and their weights sum to that of the decision before them. It is
biased if n depends on the draws of the branch itself. With n = 1 everywhere it is `ppo` with `gae_level="decision"`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, variance
from typing import Annotated, ClassVar

from hf_credit.boundary import Range
from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.collectors.base import TaskRow, played
from hf_credit.collectors.forks import fork
from hf_credit.critics.inputs import policy_inputs
from hf_credit.methods import replay_plan as plans
from hf_credit.methods.base import Credit, CriticTargets, Method
from hf_credit.methods.groups import step_rewards
from hf_credit.methods.replay_plan import START, Plan, Profile, ReplayMemory, StateKey, Sums, ratio_of
from hf_credit.methods.trees import StepTrees
from hf_credit.options import Count, Options, Share, filled_by_factory, with_parts
from hf_credit.rollouts import Decision, Ending
from hf_credit.rollouts.method_context import CriticInput, MethodContext


@dataclass(frozen=True, kw_only=True)
class PlannedBranches(Options):
    """Episodes that branch where earlier updates predict a lower variance at the same cost in tokens.

    Args:
        most: maximum number of live branches per start, in a plan.
        plan_below: branches are planned if the ratio rho of the start (`replay_ratio`) is below this.
        branches: the number of branches at each decision, in place of a plan; the first must be 1. A fractional number
            is rounded up or down at random, unbiased.
    """

    gives: ClassVar[frozenset[str]] = frozenset({"branches"})
    replaying: ClassVar[bool] = True

    most: Annotated[float, Range(1)] = 2.0
    plan_below: Share = 0.8
    branches: tuple[Annotated[float, Range(1)], ...] | None = None
    group_size: Count = filled_by_factory(1)
    state_key: StateKey = filled_by_factory("depth")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.branches and self.branches[0] != 1:
            raise ValueError(
                f"branches must be 1 at the first decision, got {self.branches[0]}; raise group_size for more starts."
            )

    def plan(self, memory: ReplayMemory) -> Plan:
        """Returns the plan of branches for the next update."""
        profiles = memory.profiles
        start = profiles.get(START, Profile())
        if self.branches is not None or start.visits < plans.LEAST_VISITS or ratio_of(start) >= self.plan_below:
            profiles = {}
        return Plan(most=self.most, fixed=self.branches, profiles=profiles)

    def __call__(
        self, rows: Sequence[TaskRow], context: MethodContext, memory: ReplayMemory | None = None
    ) -> RolloutBatch:
        memory = memory or ReplayMemory()
        plan = self.plan(memory)
        collected = self._starts(rows, context, self._growth(plan, memory))
        context.log("replays/rho", ratio_of(memory.profiles.get(START, Profile())))
        fresh = [(rollout, 1.0) for rollout in collected.rollouts]
        tokens, prefixes = 0, 0
        for number in itertools.count():
            origins, alive = self._branching(fresh, plan, context, number)
            if not any(context.gather([bool(origins)])):
                break
            seeds = range(len(collected.rollouts), len(collected.rollouts) + len(origins))
            forks = [replace(one, counted=False) for one in fork(origins, seeds, context)]
            tokens += sum(one.episode.generated_tokens for one in forks)
            prefixes += sum(
                len(one.episode.own_decisions[0].context_ids) for one in forks if one.episode.own_decisions
            )
            fresh = list(zip(forks, alive, strict=True))
            collected = replace(collected, rollouts=(*collected.rollouts, *forks))
        context.total("tokens/replays", tokens)
        context.total("tokens/replayed_prefixes", prefixes)
        return collected

    def _growth(self, plan: Plan, memory: ReplayMemory) -> float:
        """The expected tokens of a start with branches, divided by those without."""
        if self.branches is not None or self.state_key == "depth":
            return plan.growth(memory.profiles.get(START, Profile()).tokens)
        return memory.generated / memory.unbranched if memory.unbranched else 1.0

    def _starts(self, rows: Sequence[TaskRow], context: MethodContext, growth: float) -> RolloutBatch:
        """As many episodes as the budget allows besides the branches, spread evenly over the rows."""
        number = max(len(rows) * self.group_size / max(growth, 1.0), 1.0)
        count = _rounded_at_random(number, context, "starts") if rows else 0
        each, rest = divmod(count, len(rows) or 1)
        larger = set(context.draws("rows").sample(range(len(rows)), rest)) if rest else set()
        sizes = {row: each + (row in larger) for row in range(len(rows))}
        instances = [row for row, size in sizes.items() if size]
        starts = [context.begin(rows[row], row, fanout=(sizes[row],) if sizes[row] > 1 else ()) for row in instances]
        return played(context.play(starts), instances, len(rows))

    def _branching(
        self, fresh: Sequence[tuple[Rollout, float]], plan: Plan, context: MethodContext, number: int
    ) -> tuple[list[tuple[Rollout, int]], list[float]]:
        """The rollout and decision of each new branch, and the number of live branches of its start.

        Nothing after a state affects its number of branches, so it is as if fixed before the reply was sampled.
        """
        origins: list[tuple[Rollout, int]] = []
        alive: list[float] = []
        for place, (rollout, live) in enumerate(fresh):
            index = 0
            for depth, step in enumerate(rollout.episode.steps if rollout.episode.ending != Ending.ERROR else ()):
                in_prefix = rollout.source and index <= rollout.episode.prefix_length
                if not in_prefix and not _observed(step):
                    planned = plan.branches(plans.key_of(step, depth, self.state_key), depth, live)
                    count = _rounded_at_random(planned, context, "branches", number, place, depth)
                    live *= count
                    origins += [(rollout, index)] * (count - 1)
                    alive += [live] * (count - 1)
                index += len(step)
        return origins, alive


def _rounded_at_random(number: float, context: MethodContext, *purpose: int | str) -> int:
    """A number rounded up or down at random, with the number as its mean."""
    low = math.floor(number)
    share = number - low
    return low if share < 1e-9 else context.draws(*purpose).choices((low, low + 1), (1 - share, share))[0]


def _observed(step: Sequence[Decision]) -> bool:
    return all(one.observed for one in step)


@dataclass(kw_only=True)
class _Vertex:
    """A step, or the root of an instance, with the state after it."""

    step: tuple[Decision, ...] = ()  # empty for a root
    reward: float = 0.0
    depth: int = 0  # steps up to the state
    squared_gradient: float = 0.0  # the sum of |grad log pi|^2 over the path, including the step
    children: list[_Vertex] = field(default_factory=list)
    value: float = 0.0  # V of the state; 0 at the end
    residual: float = 0.0  # U of the state
    weight: float = 1.0  # the product of 1 / n over the path

    @property
    def observed(self) -> bool:
        """Whether only untrained roles act in the state."""
        return bool(self.children) and _observed(self.children[0].step)

    @property
    def tokens(self) -> int:
        """The number of tokens that trained roles generated in the step."""
        return sum(len(one.action_ids) for one in self.step if not one.observed)


@dataclass(frozen=True, kw_only=True)
class BranchAdvantages(Options):
    """delta + lam U, with U a mean over branches, weighted by 1 / n; the loss divides by the sum of weights.

    The baseline is the critic's value, or the mean of the other branches if, in earlier updates, the critic's squared
    error exceeded the variance of a branch's return divided by n - 1. Failed episodes get no credit and do not count
    as branches. The critic reads the policy's context before each reply; its target is the mean return.

    Args:
        lam: lambda of GAE; below 1 the gradient has a bias proportional to the critic's error.
        forgetting: the decay of running statistics per update.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"branches"})
    revision: ClassVar[int] = 2

    lam: Share = 1.0
    forgetting: Share = 0.8
    state_key: StateKey = filled_by_factory("depth")

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: ReplayMemory | None = None) -> Credit:
        memory = memory or ReplayMemory()
        vertices = _step_trees(collected)
        targets = self._values(collected, vertices, context)
        profiles = memory.profiles
        credits: dict[str, float] = {}
        weights: dict[str, float] = {}
        for vertex in vertices:
            count = len(vertex.children)
            siblings = count > 1 and profiles.get(self._key(vertex), Profile()).prefers_siblings(count)
            for one in vertex.children:
                one.weight = vertex.weight / count if vertex.step else 1.0
                credit = self._follows(vertex, one)
                if siblings:
                    credit = (credit - vertex.residual) * count / (count - 1)
                if not vertex.observed:
                    credits |= {decision.id: credit for decision in one.step}
                    weights |= {decision.id: one.weight for decision in one.step}
        memory = self._updated(vertices, memory, context)
        return Credit(decisions=credits, weights=weights, memory=memory, critic_targets=[targets], per_start=True)

    def _follows(self, vertex: _Vertex, one: _Vertex) -> float:
        """delta + lam U of a branch."""
        return one.reward + one.value - vertex.value + self.lam * one.residual

    def _key(self, vertex: _Vertex) -> str:
        return plans.key_of(vertex.children[0].step, vertex.depth, self.state_key) if vertex.children else ""

    def _values(self, collected: RolloutBatch, vertices: Sequence[_Vertex], context: MethodContext) -> CriticTargets:
        """Sets the critic's prediction of every state, and returns its targets: V + U."""
        inputs: list[CriticInput] = []
        states: list[list[_Vertex]] = []  # by input and position
        state_of = {one.id: vertex for vertex in vertices for child in vertex.children[:1] for one in child.step}
        for episode in collected.episodes:
            decisions = tuple(one for one in episode.decisions if one.id in state_of and not one.observed)
            texts, places = policy_inputs(replace(episode, decisions=decisions), tokens=False)
            of_episode: list[list[_Vertex]] = [[] for _ in texts]
            for decision, ((text, _),) in zip(decisions, places.of_decisions, strict=True):
                of_episode[text].append(state_of.pop(decision.id))
            inputs += texts
            states += of_episode
        predicted = context.values(inputs)
        values: dict[int, list[float]] = {}
        for own, of_input in zip(states, predicted, strict=True):
            for vertex, value in zip(own, of_input, strict=True):
                values.setdefault(id(vertex), []).append(value)
        for vertex in reversed(vertices):
            if vertex.observed:  # replies of untrained roles are part of the step before
                vertex.value = fmean(one.reward + one.value for one in vertex.children)
            elif vertex.children:
                vertex.value = fmean(values[id(vertex)])
            if vertex.children:
                vertex.residual = fmean(self._follows(vertex, one) for one in vertex.children)
        targets = [tuple(vertex.value + vertex.residual for vertex in own) for own in states]
        return CriticTargets(inputs=inputs, targets=targets, values=predicted)

    def _updated(self, vertices: Sequence[_Vertex], memory: ReplayMemory, context: MethodContext) -> ReplayMemory:
        """The running statistics, updated with those of this update over all processes.

        The noise of depth j is delta[j]^2 sum over t <= j of |grad log pi[t]|^2. The sum of 1 - p over the tokens of a
        reply estimates |grad log pi|^2 in the logits: its mean is 1 - sum p^2.
        """
        _set_squared_gradients(vertices, context)
        profiles_here: dict[str, Profile] = {}
        later: dict[int, tuple[Sums, Sums]] = {}
        for vertex in reversed(vertices):
            noise, tokens = later[id(vertex)] = self._noise_and_tokens(vertex, later)
            if not vertex.children or vertex.observed:
                continue
            count = len(vertex.children)
            within = variance(self._follows(vertex, one) for one in vertex.children) if count > 1 else 0.0
            visits = 1 if vertex.step else count
            all_noise, all_tokens = (tuple(visits * one for one in own) for own in (noise, tokens))
            error = vertex.residual**2 - within / count if count > 1 else 0.0
            profile = Profile(visits, all_noise, all_tokens, float(count > 1), within, error)
            for key in {self._key(vertex)} | ({START} if vertex.depth == 0 else set()):
                profiles_here[key] = profiles_here.get(key, Profile()).plus(profile)
        steps = [one for vertex in vertices for one in vertex.children]
        tokens_of_process = sum(one.tokens for one in steps), sum(one.weight * one.tokens for one in steps)
        profiles: dict[str, Profile] = {}
        generated = unbranched = 0.0
        for of_process, more, weighted in context.gather([(profiles_here, *tokens_of_process)]):
            for key, profile in of_process.items():
                profiles[key] = profiles.get(key, Profile()).plus(profile)
            generated, unbranched = generated + more, unbranched + weighted
        return memory.plus(profiles, generated, unbranched, self.forgetting)

    def _noise_and_tokens(self, vertex: _Vertex, later: Mapping[int, tuple[Sums, Sums]]) -> tuple[Sums, Sums]:
        noise, tokens = [], []
        for one in vertex.children:
            delta = one.reward + one.value - vertex.value
            noise.append((delta**2 * one.squared_gradient, *later[id(one)][0]))
            tokens.append((float(one.tokens), *later[id(one)][1]))
        return _mean_by_depth(noise), _mean_by_depth(tokens)


def _mean_by_depth(rows: Sequence[Sums]) -> Sums:
    """The mean over branches, with 0 for those that have ended."""
    return tuple(sum(column) / len(rows) for column in itertools.zip_longest(*rows, fillvalue=0.0))


def _step_trees(collected: RolloutBatch) -> list[_Vertex]:
    trees = StepTrees(collected)
    vertices = [_Vertex() for _ in trees.parents]
    for row, (root, *path) in zip(trees.rows, trees.paths, strict=True):
        episode, parent = collected.episodes[row], vertices[root]
        steps = zip(path, episode.steps, step_rewards(episode), strict=True)
        for depth, (number, step, reward) in enumerate(steps, 1):
            vertex = vertices[number]
            if not vertex.step:
                vertex.step, vertex.reward, vertex.depth = step, reward, depth
                parent.children.append(vertex)
            parent = vertex
    return vertices


def _set_squared_gradients(vertices: Sequence[_Vertex], context: MethodContext) -> None:
    steps = [(vertex, one) for vertex in vertices for one in vertex.children]
    decisions = [decision for _, one in steps for decision in one.step if not decision.observed]
    logprobs = [decision.logprobs for decision in decisions if decision.logprobs is not None]
    if not all(context.gather([len(logprobs) == len(decisions)])):
        logprobs = context.logprobs(decisions)
    rest = iter(logprobs)
    for vertex, one in steps:
        replies = [next(rest) for decision in one.step if not decision.observed]
        squared = sum(max(-math.expm1(token), 0.0) for tokens in replies for token in tokens)
        one.squared_gradient = vertex.squared_gradient + squared


@with_parts
def active_replay(
    group_size: Count = 1,
    state_key: StateKey = "depth",
    collector: PlannedBranches = PlannedBranches(),
    estimator: BranchAdvantages = BranchAdvantages(),
) -> Method:
    """Returns the active-replay method.

    Args:
        group_size: number of starts per task row in an update without branches; with branches there are fewer, so that
            the update costs as many tokens.
        state_key: what identifies a state in the plan: `"depth"`, the number of steps before it; or `"state"`, its
            context, for tasks in which contexts recur in every update.
    """
    return Method(
        name="active_replay",
        collector=replace(collector, group_size=group_size, state_key=state_key),
        estimator=replace(estimator, state_key=state_key),
        critics=("critic",),
        memory=ReplayMemory(),
    )
