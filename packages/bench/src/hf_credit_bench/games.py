"""Games of this library as problems: enumerable collaborations."""

from __future__ import annotations

import dataclasses
import functools
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hf_credit.collaborations.relay import relay, relay_numbers, relay_task
from hf_credit.collaborations.sum_vote import LAZY, STOCK
from hf_credit.collaborations.sum_vote import sum_vote as voting
from hf_credit.rollouts import Interaction
from hf_credit.rollouts.capabilities import Enumerable, Removable, Scripted, fingerprint
from hf_credit_bench.problem import Node, Position, Problem, View, Way, logit


@dataclass(frozen=True)
class Team(Problem):
    """An Interaction without randomness, whose speakers choose among a few replies.

    Args:
        interaction: `Enumerable`, with hashable states.
        rows: task rows, equally likely, each as JSON.
        replies: that a speaker may give.
        start_right: the initial probability of the reply of the task's script.
        stock: of roles with an initial stock reply: role, reply, and its probability.
        isolates: the property that it isolates, in a user's words.

    Raises:
        ValueError: the Interaction is not enumerable.
    """

    interaction: Interaction[Any] = field(compare=False, repr=False)
    rows: tuple[str, ...]
    replies: tuple[str, ...]
    start_right: float
    stock: tuple[tuple[str, str, float], ...] = ()
    isolates: str = ""
    described: str = ""

    def __post_init__(self) -> None:
        if not Enumerable(self.interaction).enumerable:
            raise ValueError(
                f"a problem of the bench must be enumerable, got {self.interaction.name!r}, which draws at random; "
                "write its transitions as a Problem."
            )
        object.__setattr__(self, "described", json.dumps(fingerprint(self.interaction), sort_keys=True))

    @property
    def name(self) -> str:
        return self.interaction.name

    @property
    def removable(self) -> Sequence[str]:
        return tuple(Removable(self.interaction).removable)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """All reachable nodes, and those of episodes without one of the roles."""
        nodes = super().nodes
        without = [
            self.interaction.without(node, role)  # type: ignore[attr-defined]
            for node in nodes
            if not self.speakers(node)
            for role in self.removable
        ]
        return tuple(dict.fromkeys([*nodes, *self.reachable(without)]))

    def starts(self) -> Sequence[Way]:
        share = 1 / len(self.rows)
        return [Way(share, self.interaction.start(json.loads(row), 0)) for row in self.rows]

    def speakers(self, node: Any) -> Sequence[str]:
        return [request.role for request in self.interaction.pending(node)]

    def view(self, node: Any, speaker: str) -> View:
        (request,) = (one for one in self.interaction.pending(node) if one.role == speaker)
        return speaker, tuple(message["content"] for message in request.messages)

    def actions(self, view: View) -> int:
        return len(self.replies)

    def logits(self, view: Any) -> Sequence[float]:
        likely, probability = next(
            ((reply, probability) for role, reply, probability in self.stock if role == view[0]),
            (self._scripted[view], self.start_right),
        )
        return [logit(probability, len(self.replies) - 1) if reply == likely else 0.0 for reply in self.replies]

    @cached_property
    def _scripted(self) -> Mapping[View, str]:
        script = Scripted(self.interaction).scripted_player(1.0) or (lambda *_: "")
        draws = random.Random(0)
        return {
            self.view(node, request.role): script(node, request, draws)
            for node in self.nodes
            for request in self.interaction.pending(node)
        }

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        after = self.interaction.advance(node, [self.replies[action] for action in actions])
        over = not self.interaction.pending(after)
        return [Way(1.0, after, self.interaction.outcome(after) if over else 0.0)]

    def without(self, state: Position, role: str) -> Position:
        """Returns the state without one of the roles."""
        node = self.interaction.without(state.node, role)  # type: ignore[attr-defined]
        total = 0.0 if self.speakers(node) else self.interaction.outcome(node)
        return dataclasses.replace(state, node=node, reward=total, total=total, worth=total)


@functools.lru_cache(maxsize=16)
def number_relay(size: int = 3, speakers: int = 2, start_right: float = 0.5) -> Team:
    """The collaboration `relay`: each speaker adds a number and passes the sum on (`hf_credit.collaborations.relay`).

    Args:
        size: the count of numbers.
        speakers: the count of speakers.
        start_right: the initial probability of the right reply.
    """
    return Team(
        relay(size, speakers),
        tuple(json.dumps(relay_task(*one, size=size)) for one in relay_numbers("train", size, speakers)),
        tuple(map(str, range(size))),
        start_right,
        isolates="a team passes a number on, and each speaker adds its own",
    )


@functools.lru_cache(maxsize=16)
def sum_vote(size: int = 3, start_right: float = 0.5, lazy: float = 0.85) -> Team:
    """The collaboration `sum_vote`: three agents add two numbers and vote; the third mostly gives a stock answer.

    Args:
        size: the count of numbers.
        start_right: the initial probability that each of the others answers the sum.
        lazy: the initial probability of the third's stock answer.
    """
    team = voting(size)
    return Team(
        team,
        tuple(json.dumps(team.row(pair)) for pair in team.numbers("train")),
        tuple(map(str, range(size))),
        start_right,
        stock=((LAZY, STOCK, lazy),),
        isolates="three agents vote on a sum, one gives a fixed answer",
    )
