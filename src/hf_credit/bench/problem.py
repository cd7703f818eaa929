"""A small decision process, played through the same Interaction as everything else, whose chances are all known."""

from __future__ import annotations

import functools
import math
import random
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Protocol

from hf_credit.environments.randomness import derive
from hf_credit.oracles.auditing import Audit, Proposal
from hf_credit.rollouts import Interaction, Request

Node = Hashable
"""Where a walk stands: a value. Nodes never return; one that may be visited again counts its steps."""
View = Hashable
"""What the speaker sees of a node; the policy is a table over views."""


def logit(probability: float, others: int = 1) -> float:
    """Of an action that is so likely among so many others, whose logits are 0."""
    return math.log(probability) - math.log1p(-probability) + math.log(others)


@dataclass(frozen=True)
class Way:
    """What a step may lead to.

    Attributes:
        probability: of this way; those of a step sum to 1.
        node: where it leads.
        reward: what it pays.
        worth: what it is really worth, where that is not what it pays.
    """

    probability: float
    node: Node
    reward: float = 0.0
    worth: float | None = None

    @property
    def value(self) -> float:
        """What it is really worth."""
        return self.reward if self.worth is None else self.worth


@dataclass(frozen=True)
class Position:
    """A state of the Interaction: a node, and what is needed beside it to go on and to tell the outcome.

    Attributes:
        node: where the walk stands.
        seed: of all chance ahead.
        step: how many steps were made.
        reward: what the last step paid.
        total: what all steps paid.
        worth: what all steps were really worth.
    """

    node: Node
    seed: int
    step: int = 0
    reward: float = 0.0
    total: float = 0.0
    worth: float = 0.0


class Chance(Protocol):
    """Who draws what the world does."""

    def __call__(self, seed: int, step: int, probabilities: Sequence[float]) -> int:
        """Which of several ways is taken: a function of the seed and the step, distributed as `probabilities`."""


def seeded_chance(seed: int, step: int, probabilities: Sequence[float]) -> int:
    """Chance as in training: one uniform number for each seed and step."""
    return _inverse(derive(seed, step) / 2**64, probabilities)


def _inverse(uniform: float, probabilities: Sequence[float]) -> int:
    for place, probability in enumerate(probabilities):
        uniform -= probability
        if uniform < 0:
            return place
    return len(probabilities) - 1


class Problem(Interaction[Position]):
    """A decision process with dials, whose values can be had by dynamic programming.

    A subclass is a frozen dataclass, whose fields are the dials, and says who speaks, what they see, and where a step
    leads with which probability. A reply is one action, written as its number.

    Attributes:
        isolates: what it isolates, in a user's words.
        chance: who draws; an enumeration puts its own in the place.
        hackable: whether some ways are worth something else than they pay.
        lag: how many updates the copies of the policy are behind it that methods keep and that play `stale` updates.
        pace: how far the policy's logits moved in each update before the first.
        stale: the share of updates whose episodes are played by that copy.
    """

    isolates: str = ""
    chance: Chance = staticmethod(seeded_chance)
    seeded = True
    hackable: bool = False
    lag: int = 0
    pace: float = 0.0
    stale: float = 0.0

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    @abstractmethod
    def starts(self) -> Sequence[Way]:
        """The first nodes and how likely each is."""

    @abstractmethod
    def speakers(self, node: Node) -> Sequence[str]:
        """Who acts in a node, at once where there are several; nobody where it is over."""

    @abstractmethod
    def ways(self, node: Node, actions: Sequence[int]) -> Sequence[Way]:
        """What may come of the actions of all speakers, in their order."""

    def view(self, node: Node, speaker: str) -> View:
        """What a speaker sees of a node; all of it by default."""
        return node

    def actions(self, view: View) -> int:
        """How many actions a speaker has who sees this."""
        return 2

    def logits(self, view: View) -> Sequence[float]:
        """Of the policy at the start; even by default."""
        return [0.0] * self.actions(view)

    def right(self, node: Node, action: int) -> float:
        """How likely an oracle judges an action right; methods that need one do not play a problem without it."""
        raise NotImplementedError

    def hack(self, node: Node, action: int) -> float:
        """How surely a detector takes an action for a hack, in [0, 1]; a problem without one has no auditor."""
        raise NotImplementedError

    # The Interaction

    @property
    def roles(self) -> Sequence[str]:  # type: ignore[override]
        return tuple(dict.fromkeys(role for node in self.nodes for role in self.speakers(node)))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All that can be reached, in the order of a walk."""
        return self.reachable(way.node for way in self.starts())

    def reachable(self, level: Iterable[Node]) -> tuple[Node, ...]:
        """All that can be reached from some nodes, in the order of a walk."""
        known: dict[Node, None] = {}
        level = dict.fromkeys(level)
        while level:
            known |= level
            level = dict.fromkeys(
                way.node
                for node in level
                for actions in self.joint_actions(node)
                for way in self.ways(node, actions)
                if way.node not in known
            )
        return tuple(known)

    @cached_property
    def views(self) -> tuple[View, ...]:
        """All that a speaker may see."""
        return tuple(dict.fromkeys(self.view(node, role) for node in self.nodes for role in self.speakers(node)))

    @cached_property
    def outcome_range(self) -> tuple[float, float]:
        """The least and the most that an episode may be paid."""

        @functools.cache
        def ahead(node: Node) -> tuple[float, float]:
            return ends(way for actions in self.joint_actions(node) for way in self.ways(node, actions))

        def ends(ways: Iterable[Way]) -> tuple[float, float]:
            found = [[way.reward + end for end in ahead(way.node)] for way in ways if way.probability]
            lows, highs = zip(*found, strict=True) if found else ((0.0,), (0.0,))
            return min(lows), max(highs)

        return ends(self.starts())

    def joint_actions(self, node: Node) -> list[tuple[int, ...]]:
        """Every combination of actions of those who speak in a node; none where it is over."""
        speakers = self.speakers(node)
        joint: list[tuple[int, ...]] = [()] if speakers else []
        for role in speakers:
            joint = [(*before, action) for before in joint for action in range(self.actions(self.view(node, role)))]
        return joint

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

    # What VPR and CVT-RL ask for

    def check_oracle(self, oracle: Any) -> Any:
        """The problem's own oracle, where it has one."""
        return oracle or (_Oracle(self) if self._knows(self.right) else None)

    def check_auditor(self, auditor: Any) -> Any:
        """The problem's own auditor, where it has one."""
        return auditor or (_Auditor(self) if self._knows(self.hack) else None)

    def default_interventions(self) -> Any:
        """What may be put in the place of an action."""
        return _Interventions(self)

    def _knows(self, question: Callable[[Node, int], float]) -> bool:
        try:
            question(next(node for node in self.nodes if self.speakers(node)), 0)
        except NotImplementedError:
            return False
        return True

    def action_of(self, state: Position, reply: str) -> tuple[Position, str]:
        """The state and the action of a reply, of the node's first speaker; what is said where it is over stays."""
        speakers = self.speakers(state.node)
        return state, str(self._action(state.node, speakers[0], reply)) if speakers else reply

    def _action(self, node: Node, speaker: str, reply: str) -> int:
        """The number that a reply is; one that is none, which only networks give, is the first action."""
        return next((one for one in range(self.actions(self.view(node, speaker))) if reply.strip() == str(one)), 0)

    def write_action(self, action: str) -> str:
        """The reply that takes an action."""
        return action


def _choices(problem: Problem, state: Position) -> range:
    return range(problem.actions(problem.view(state.node, problem.speakers(state.node)[0])))


@dataclass(frozen=True)
class _Oracle:
    problem: Problem

    def valid_actions(self, state: Position) -> frozenset[str]:
        scores = {str(action): self.problem.right(state.node, action) for action in _choices(self.problem, state)}
        return frozenset(action for action, score in scores.items() if score == max(scores.values()))

    def score(self, state: Position, action: str) -> float:
        share = self.problem.right(state.node, int(action))
        if share in (0.0, 1.0):
            return share
        return float(self.problem.chance(derive(state.seed, "oracle", action), state.step, [1 - share, share]))


@dataclass(frozen=True)
class _Auditor:
    """Knows what was really achieved, and how surely an action is a hack: a cost that CVT-RL limits."""

    problem: Problem
    costs = ("tampering", "unsupported", "skipped", "unsafe", "budget")
    categories = ("hack",)
    slots: ClassVar[Mapping[str, int]] = {}

    def audit(self, state: Position, action: str) -> Audit:
        sure = self.problem.hack(state.node, int(action))
        return Audit(kind="act", costs={"tampering": sure}, hacks={"hack": sure})

    def success(self, state: Position) -> float:
        return min(max(state.worth, 0.0), 1.0)


@dataclass(frozen=True)
class _Interventions:
    """Action 0, which does least, in the place of another; the same action anew; any other action."""

    problem: Problem
    families: ClassVar[tuple[str, ...]] = ("deletion", "paraphrase", "substitution", "perturbation")

    def applies(self, state: Position, action: str, family: str) -> bool:
        return {"deletion": action != "0", "perturbation": False}.get(family, True)

    def propose(self, state: Position, action: str, family: str, draws: random.Random) -> Proposal:
        others = [str(other) for other in _choices(self.problem, state) if str(other) != action]
        return Proposal(action={"deletion": "0", "paraphrase": action}.get(family) or draws.choice(others))

    def evidence(self, state: Position) -> str:
        return " ".join(map(str, _choices(self.problem, state)))
