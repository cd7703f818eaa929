"""Small decision processes with known probabilities, played through the same Interaction as all other tasks."""

from __future__ import annotations

import bisect
import graphlib
import itertools
import math
import random
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

from hf_credit.environments.randomness import derive
from hf_credit.oracles.auditing import Audit, Proposal
from hf_credit.rollouts import Interaction, Request

Node = Hashable
"""A state of the process: a value. No episode returns to a node; a node of a state that may recur counts its steps."""
View = Hashable
"""A speaker's observation of a node; the policy is a table over views."""


def logit(probability: float, others: int = 1) -> float:
    """Returns the logit of an action with a probability among `others` whose logits are 0."""
    return math.log(probability) - math.log1p(-probability) + math.log(others)


@dataclass(frozen=True)
class Way:
    """A possible transition of a step.

    Attributes:
        probability: of this transition; those of a step sum to 1.
        worth: its true value, where the reward is not that.
    """

    probability: float
    node: Node
    reward: float = 0.0
    worth: float | None = None

    @property
    def value(self) -> float:
        """The true value of the transition."""
        return self.reward if self.worth is None else self.worth


@dataclass(frozen=True)
class Position:
    """A state of the Interaction: a node, and the data to continue the episode and to compute its outcome.

    Attributes:
        node: the present one.
        seed: of all later draws.
        step: the number of steps so far.
        reward: of the last step.
        total: the sum of rewards.
        worth: the sum of true values.
    """

    node: Node
    seed: int
    step: int = 0
    reward: float = 0.0
    total: float = 0.0
    worth: float = 0.0


Chance = Callable[[int, int, Sequence[float]], int]
"""Draws a transition: returns its index, a function of seed and step that is distributed as the probabilities."""


def seeded_chance(seed: int, step: int, probabilities: Sequence[float]) -> int:
    """Draws a transition as in training: by one uniform number for each seed and step."""
    ends = list(itertools.accumulate(probabilities))
    return min(bisect.bisect_right(ends, derive(seed, step) / 2**64), len(ends) - 1)


class Problem(Interaction[Position]):
    """A decision process with dials, small enough for dynamic programming.

    A subclass is a frozen dataclass whose fields are the dials. It defines the speakers, their views, and the
    transitions of a step with their probabilities. A reply is the number of an action.

    Attributes:
        isolates: the property of a task that it isolates, in a user's words.
        first: the first node, where there is one.
        chance: draws the transitions; an enumeration replaces it.
        hackable: whether rewards differ from true values.
        own_errors: whether dials say how often the oracle errs.
        start_right: the initial probability of the right action; uniform if `None`.
        hidden: the units of the network that is the policy, over the features of views; 0 for a table.
        lag: by how many updates old copies of the policy lag, those of methods and the one that plays `stale` updates.
        pace: the change of the policy's logits in each update before the first.
        stale: the fraction of updates with episodes of the old copy.
    """

    isolates: str = ""
    first: Node = (0, 0)
    chance: Chance = staticmethod(seeded_chance)
    seeded = True
    words = False
    hackable: bool = False
    own_errors: bool = False
    start_right: float | None = None
    hidden: int = 0
    lag: int = 0
    pace: float = 0.0
    stale: float = 0.0

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    def starts(self) -> Sequence[Way]:
        """Returns the first nodes with their probabilities; only `first` by default."""
        return [Way(1.0, self.first)]

    def held_out(self) -> Sequence[Way]:
        """Returns the first nodes of tasks that nothing is played from, by whose value learning is judged; none if it
        is judged by that of `starts`."""
        return ()

    def features(self, view: View) -> Sequence[float]:
        """Returns what a network reads of a view. A problem without `hidden` units has no need of it."""
        raise NotImplementedError

    @abstractmethod
    def speakers(self, node: Node) -> Sequence[str]:
        """Returns the roles that act in a node, simultaneously if several; none at the end of the episode."""

    @abstractmethod
    def ways(self, node: Node, actions: Sequence[int]) -> Sequence[Way]:
        """Returns the possible transitions after the actions of all speakers, in their order."""

    def view(self, node: Node, speaker: str) -> View:
        """Returns a speaker's view of a node; all of it by default."""
        return node

    def actions(self, view: View) -> int:
        """Returns the number of actions in a view."""
        return 2

    def logits(self, view: View) -> Sequence[float]:
        """Returns the logits of the initial policy; by default the last action has the probability `start_right`."""
        others = self.actions(view) - 1
        return [0.0] * others + [0.0 if self.start_right is None else logit(self.start_right, others)]

    def right(self, node: Node, action: int) -> float:
        """Returns the probability that an oracle judges an action right. A problem without it has no oracle."""
        raise NotImplementedError

    def gold(self, node: Node) -> int:
        """Returns the action that is the right answer, whoever gives it. A problem without it has no answer."""
        raise NotImplementedError

    def hack(self, node: Node, action: int) -> float:
        """Returns a detector's confidence that an action is a hack, in [0, 1]. A problem without it has no auditor."""
        raise NotImplementedError

    # The Interaction

    @property
    def roles(self) -> Sequence[str]:  # type: ignore[override]
        return tuple(dict.fromkeys(role for node in self.nodes for role in self.speakers(node)))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All reachable nodes, in breadth-first order."""
        return self.reachable(way.node for way in (*self.starts(), *self.held_out()))

    def reachable(self, level: Iterable[Node]) -> tuple[Node, ...]:
        """Returns all nodes reachable from some nodes, in breadth-first order."""
        known = dict.fromkeys(level)
        queue = list(known)
        for node in queue:
            ways = (way for actions in self.joint_actions(node) for way in self.ways(node, actions))
            new = dict.fromkeys(way.node for way in ways if way.node not in known)
            known |= new
            queue += new
        return tuple(known)

    @cached_property
    def views(self) -> tuple[View, ...]:
        """The views of all speakers."""
        return tuple(dict.fromkeys(self.view(node, role) for node in self.nodes for role in self.speakers(node)))

    @property
    def from_the_end(self) -> Sequence[Node]:
        """All nodes, each behind those that may follow it; a node that returns is refused."""
        followers = {
            node: [way.node for actions in self.joint_actions(node) for way in self.ways(node, actions)]
            for node in self.nodes
        }
        try:
            return [*graphlib.TopologicalSorter(followers).static_order()]
        except graphlib.CycleError as error:
            raise ValueError(
                f"an episode must never return to a node, got the cycle {error.args[1]!r:.200}; count steps in the "
                "nodes."
            ) from None

    @cached_property
    def outcome_range(self) -> tuple[float, float]:
        """The lowest and the highest return of an episode."""
        ahead: dict[Node, tuple[float, float]] = {}

        def ends(ways: Iterable[Way]) -> tuple[float, float]:
            ranges = [[way.reward + end for end in ahead[way.node]] for way in ways if way.probability]
            lows, highs = zip(*ranges, strict=True) if ranges else ((0.0,), (0.0,))
            return min(lows), max(highs)

        for node in self.from_the_end:
            ahead[node] = ends(way for actions in self.joint_actions(node) for way in self.ways(node, actions))
        return ends(self.starts())

    def joint_actions(self, node: Node) -> list[tuple[int, ...]]:
        """Returns every combination of actions of a node's speakers; none at the end."""
        choices = [range(self.actions(self.view(node, role))) for role in self.speakers(node)]
        return list(itertools.product(*choices)) if choices else []

    def start(self, task: Mapping[str, Any], seed: int) -> Position:
        ways = self.starts()
        return Position(node=ways[self.chance(seed, 0, [way.probability for way in ways])].node, seed=seed)

    def pending(self, state: Position) -> tuple[Request, ...]:
        return tuple(
            Request(role=role, messages=({"role": "user", "content": repr(self.view(state.node, role))},))
            for role in self.speakers(state.node)
        )

    def advance(self, state: Position, replies: Sequence[str]) -> Position:
        pairs = zip(self.speakers(state.node), replies, strict=True)
        ways = self.ways(state.node, [self._action(state.node, role, reply) for role, reply in pairs])
        step = state.step + 1
        way = ways[0] if len(ways) == 1 else ways[self.chance(state.seed, step, [one.probability for one in ways])]
        return Position(way.node, state.seed, step, way.reward, state.total + way.reward, state.worth + way.value)

    def reward(self, state: Position) -> float:
        return state.reward

    def outcome(self, state: Position) -> float:
        return state.total

    def reseed(self, state: Position, seed: int) -> Position:
        return replace(state, seed=derive(state.seed, "reseed", seed))

    # For VPR and CVT-RL

    def check_oracle(self, oracle: Any) -> Any:
        """Returns the oracle, by default the problem's own, if it has one."""
        return oracle or self.judge()

    def judge(self, error: float = 0.0, repeats: int | None = None) -> Any:
        """Returns the problem's oracle, if it has one.

        Args:
            error: the probability of the opposite verdict, in [0, 0.5]; without effect where a dial says it.
            repeats: the seed of verdicts that are the same whenever a view and an action come again; `None` draws each
                anew.
        """
        error = 0.0 if self.own_errors else error
        return None if type(self).right is Problem.right else _Oracle(self, error, repeats)

    def check_auditor(self, auditor: Any) -> Any:
        """Returns the auditor, by default the problem's own, if it has one."""
        return auditor or (None if type(self).hack is Problem.hack else _Auditor(self))

    @property
    def knows_answers(self) -> bool:
        """Whether there is a right answer, for IGPO and TRACE."""
        return type(self).gold is not Problem.gold

    def gold_answer(self, state: Position) -> tuple[str, str]:
        """Returns the right answer as a reply."""
        return "", str(self.gold(state.node))

    def default_interventions(self) -> Any:
        """Returns the interventions on an action."""
        return _Interventions(self)

    def action_of(self, state: Position, reply: str) -> tuple[Position, str]:
        """Returns the state and the action of a reply of the node's first speaker; the reply itself at the end."""
        speakers = self.speakers(state.node)
        return state, str(self._action(state.node, speakers[0], reply)) if speakers else reply

    def _action(self, node: Node, speaker: str, reply: str) -> int:
        """Returns the number of the action in a reply; 0 for any other text, which only networks write."""
        count = self.actions(self.view(node, speaker))
        return next((action for action in range(count) if reply.strip() == str(action)), 0)

    def write_action(self, action: str) -> str:
        """Returns the reply for an action."""
        return action


def _choices(problem: Problem, state: Position) -> range:
    return range(problem.actions(problem.view(state.node, problem.speakers(state.node)[0])))


@dataclass(frozen=True)
class _Oracle:
    problem: Problem
    error: float = 0.0
    repeats: int | None = None

    def valid_actions(self, state: Position) -> frozenset[str]:
        scores = {str(action): self.problem.right(state.node, action) for action in _choices(self.problem, state)}
        return frozenset(action for action, score in scores.items() if score == max(scores.values()))

    def score(self, state: Position, action: str) -> float:
        right = self.problem.right(state.node, int(action))
        probability = right + self.error * (1 - 2 * right)
        if probability in (0.0, 1.0):
            return probability
        if self.repeats is None:
            seed, step = derive(state.seed, "oracle", action), state.step
        else:
            view = self.problem.view(state.node, self.problem.speakers(state.node)[0])
            seed, step = derive(self.repeats, "oracle", repr(view), action), 0
        return float(self.problem.chance(seed, step, [1 - probability, probability]))


@dataclass(frozen=True)
class _Auditor:
    """Returns the true success, and the confidence that an action is a hack: a cost that CVT-RL limits."""

    problem: Problem
    costs = ("tampering", "unsupported", "skipped", "unsafe", "budget")
    categories = ("hack",)
    slots: ClassVar[Mapping[str, int]] = {}

    def audit(self, state: Position, action: str) -> Audit:
        confidence = self.problem.hack(state.node, int(action))
        return Audit(kind="act", costs={"tampering": confidence}, hacks={"hack": confidence})

    def success(self, state: Position) -> float:
        return min(max(state.worth, 0.0), 1.0)


@dataclass(frozen=True)
class _Interventions:
    """Replaces an action by action 0, which does least, by itself, or by any other action."""

    problem: Problem
    families: ClassVar[tuple[str, ...]] = ("deletion", "paraphrase", "substitution", "perturbation")

    def applies(self, state: Position, action: str, family: str) -> bool:
        return {"deletion": action != "0", "perturbation": False}.get(family, True)

    def propose(self, state: Position, action: str, family: str, draws: random.Random) -> Proposal:
        others = [str(other) for other in _choices(self.problem, state) if str(other) != action]
        return Proposal(action={"deletion": "0", "paraphrase": action}.get(family) or draws.choice(others))

    def evidence(self, state: Position) -> str:
        return " ".join(map(str, _choices(self.problem, state)))
