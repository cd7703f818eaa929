"""A small decision process, played through the same Interaction as everything else, whose chances are all known."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from hf_credit.environments.randomness import derive
from hf_credit.rollouts import Interaction, Request

Node = Hashable
"""Where a walk stands: a value. Nodes never return; one that may be visited again counts its steps."""
View = Hashable
"""What the speaker sees of a node; the policy is a table over views."""


@dataclass(frozen=True)
class Way:
    """What a step may lead to.

    Attributes:
        probability: of this way; those of a step sum to 1.
        node: where it leads.
        reward: what it pays.
    """

    probability: float
    node: Node
    reward: float = 0.0


@dataclass(frozen=True)
class Position:
    """A state of the Interaction: a node, and what is needed beside it to go on and to tell the outcome.

    Attributes:
        node: where the walk stands.
        seed: of all chance ahead.
        step: how many steps were made.
        reward: what the last step paid.
        total: what all steps paid.
    """

    node: Node
    seed: int
    step: int = 0
    reward: float = 0.0
    total: float = 0.0


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
    """

    isolates: str = ""
    chance: Chance = staticmethod(seeded_chance)
    seeded = True

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
        """What an oracle says of an action, in [0, 1]; a problem without one is not played by methods that need it."""
        raise NotImplementedError

    # The Interaction

    @property
    def roles(self) -> Sequence[str]:  # type: ignore[override]
        return tuple(dict.fromkeys(role for node in self.nodes for role in self.speakers(node)))

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All that can be reached, in the order of a walk."""
        known: dict[Node, None] = {}
        level = dict.fromkeys(way.node for way in self.starts())
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
        ways = self.ways(state.node, [int(reply) for reply in replies])
        step = state.step + 1
        way = ways[0] if len(ways) == 1 else ways[self.chance(state.seed, step, [one.probability for one in ways])]
        return Position(way.node, state.seed, step, way.reward, state.total + way.reward)

    def reward(self, state: Position) -> float:
        return state.reward

    def outcome(self, state: Position) -> float:
        return state.total

    def reseed(self, state: Position, seed: int) -> Position:
        return replace(state, seed=derive(state.seed, "reseed", seed))

    # What VPR asks for

    def check_oracle(self, oracle: Any) -> Any:
        """The problem's own oracle, where it has one."""
        try:
            node = next(node for node in self.nodes if self.speakers(node))
            self.right(node, 0)
        except NotImplementedError:
            return oracle
        return oracle or _Oracle(self)

    def action_of(self, state: Position, reply: str) -> tuple[Position, str]:
        """The state and the action of a reply."""
        return state, reply


@dataclass(frozen=True)
class _Oracle:
    problem: Problem

    def valid_actions(self, state: Position) -> frozenset[str]:
        actions = range(self.problem.actions(self.problem.view(state.node, self.problem.speakers(state.node)[0])))
        scores = {str(action): self.problem.right(state.node, action) for action in actions}
        return frozenset(action for action, score in scores.items() if score == max(scores.values()))

    def score(self, state: Position, action: str) -> float:
        return self.problem.right(state.node, int(action))
