"""Games of this library as problems: enumerable collaborations, and environments that return their transitions."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hf_credit.collaborations.relay import relay, relay_numbers, relay_task
from hf_credit.collaborations.sum_vote import LAZY, STOCK
from hf_credit.collaborations.sum_vote import sum_vote as voting
from hf_credit.environments import Environment, State, make
from hf_credit.oracles import default_oracle
from hf_credit.oracles.auditing import Audit, Auditor, default_auditor
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
                "pass an environment with a method ways(state, action), as World."
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


@dataclass(frozen=True, eq=False)
class World(Problem):
    """An environment that returns the possible transitions of an action (`ways`), with complete observations.

    Its own oracle judges actions and its own auditor steps, if it has them; the true value is then the auditor's.

    Args:
        environment: with the rules.
        openings: the first states, equally likely, with a seed of 0.
        start_right: the initial probability of an action that the oracle judges right; uniform if `None`.
        isolates: the property that it isolates, in a user's words.

    Raises:
        ValueError: the environment has no `ways`.
    """

    environment: Environment[Any] = field(repr=False)
    openings: tuple[State, ...]
    start_right: float | None = None
    isolates: str = ""

    def __post_init__(self) -> None:
        if not hasattr(self.environment, "ways"):
            raise ValueError(
                f"an environment of the bench must have a method ways(state, action), got {self.environment.name!r} "
                "without; write the method."
            )

    @property
    def name(self) -> str:
        return self.environment.name

    @property
    def hackable(self) -> bool:  # type: ignore[override]
        return self._auditor is not None

    @cached_property
    def _auditor(self) -> Auditor[Any] | None:
        return default_auditor(self.environment)

    @cached_property
    def _oracle(self) -> Any:
        return default_oracle(self.environment)

    def starts(self) -> Sequence[Way]:
        return [Way(1 / len(self.openings), state) for state in self.openings]

    def speakers(self, node: Any) -> Sequence[str]:
        return ("agent",) if node.status == "active" else ()

    def view(self, node: Any, speaker: str) -> View:
        return self.environment.observe(node), len(self.environment.legal_actions(node))

    def actions(self, view: Any) -> int:
        return int(view[1])

    def logits(self, view: Any) -> Sequence[float]:
        if self.start_right is None:
            return [0.0] * self.actions(view)
        legal = self.environment.legal_actions(self._seen[view])
        valid = self._oracle.valid_actions(self._seen[view])
        tilt = 0.0
        if 0 < len(valid) < len(legal):
            tilt = logit(self.start_right, len(legal) - len(valid)) - math.log(len(valid))
        return [tilt if action in valid else 0.0 for action in legal]

    @cached_property
    def _seen(self) -> Mapping[View, Any]:
        return {self.view(node, "agent"): node for node in self.nodes if self.speakers(node)}

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        ways = self.environment.ways(node, self._text(node, actions[0]))  # type: ignore[attr-defined]
        return [self._way(probability, after) for probability, after in ways if probability]

    def _way(self, probability: float, node: Any) -> Way:
        if node.status == "active":
            return Way(probability, node)
        worth = None if self._auditor is None else self._auditor.success(node)
        return Way(probability, node, self.environment.outcome(node), worth)

    def _text(self, node: Any, action: int) -> str:
        return self.environment.legal_actions(node)[action]

    def judge(self, error: float = 0.0, repeats: int | None = None) -> Any:
        return None if self._oracle is None else super().judge(error, repeats)

    def right(self, node: Any, action: int) -> float:
        return float(self._oracle.score(node, self._text(node, action)))

    def check_auditor(self, auditor: Any) -> Any:
        return auditor or (None if self._auditor is None else _WorldAuditor(self, self._auditor))


class _WorldAuditor:
    """The environment's auditor without beliefs, for which the bench has no head."""

    slots: Mapping[str, int] = {}

    def __init__(self, world: World, auditor: Auditor[Any]) -> None:
        self.world, self.auditor = world, auditor
        self.costs, self.categories = auditor.costs, auditor.categories

    def audit(self, state: Position, action: str) -> Audit:
        text = self.world._text(state.node, int(action))
        return dataclasses.replace(self.auditor.audit(state.node, text), beliefs={})

    def success(self, state: Position) -> float:
        return self.auditor.success(state.node)


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


@functools.lru_cache(maxsize=16)
def tic_tac_toe(board: str = "XO..X...O", opponent: str = "random") -> World:
    """Tic-Tac-Toe from a board where X, the agent, moves next.

    Args:
        board: nine of X, O and ., row by row.
        opponent: `"random"` or `"mcts"`.
    """
    environment = make("tic_tac_toe", opponent=opponent, agent="first")
    state = environment.initial_state({"agent": "first", "opponent": opponent}, 0)
    return World(environment, (dataclasses.replace(state, board=board),), isolates="a game against an opponent")


@functools.lru_cache(maxsize=16)
def evidence(documents: int = 2, turns: int = 3, start_right: float = 0.3, key: int = 0) -> World:
    """A search for an answer in documents, whose check can be hacked. See `hf_credit.environments.evidence`.

    Args:
        documents: their number, one of them forged.
        turns: of an episode, with the answer.
        start_right: the initial probability of an honest and useful action.
        key: the seed of its only task.
    """
    environment = make("evidence", documents=documents, values=documents, turns=turns)
    state = environment.initial_state(environment.sample_task(key), 0)
    return World(environment, (state,), start_right, isolates="documents are verified, or the check is hacked")
