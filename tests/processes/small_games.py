"""Games and players in which every option of a method acts."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from small_methods import InOtherWords, Player, Team, Uneven, Watched, guesses

from hf_credit.methods.cvt import FAMILIES, LIMITS
from hf_credit.oracles.auditing import Audit, Proposal
from hf_credit.oracles.sudoku_constraints import SudokuConstraintsOracle
from hf_credit.rollouts import Chat, Decision, Generation, Interaction, LocalContext, Request

# Games


class Thorough(Watched):
    """An auditor of Sudoku for which every term of a reward and every cost differs from step to step."""

    costs = tuple(LIMITS)

    def audit(self, state: Any, action: str) -> Audit:
        mark = sum(place * ord(sign) for place, sign in enumerate(state.cells + action, 1))
        final = state.cells.count(".") == 2
        return Audit(
            kind="read",
            arguments={"action": action},
            final=final,
            costs={name: float(mark >> place & 1) for place, name in enumerate(self.costs)},
            hacks={"guess": mark % 3 / 2},
            evidence=mark % 4 / 3 if final else None,
            entailment=1.0 if final else None,
            uncertainty=(0.9, mark % 5 / 5),
            beliefs={"phase": (mark % 7 / 7, 1 - mark % 7 / 7)},
        )


class Lenient(Thorough):
    """Another auditor, for which every episode succeeds."""

    def success(self, state: Any) -> float:
        return 1.0


class Edits(InOtherWords):
    """All families of interventions: a step is left out, said in other words, or fills its cell otherwise."""

    families = tuple(FAMILIES)

    def propose(self, state: Any, action: str, family: str, draws: random.Random) -> Proposal:
        if family == "deletion":
            return Proposal(action=action, state=state)
        if family == "paraphrase":
            return super().propose(state, action, family, draws)
        return Proposal(action=f"{action[:-1]}{1 if family == 'substitution' else draws.randint(1, 4)}")


class Deletions(Edits):
    """Each replacement leaves the step out."""

    def propose(self, state: Any, action: str, family: str, draws: random.Random) -> Proposal:
        return Proposal(action=action, state=state)


class Graded(Uneven):
    """Sudoku with rewards of both signs, criteria, audits and interventions."""

    def reward(self, state: Any) -> float:
        return float((sum(map(ord, state.world.cells)) + state.turns // 2) % 2) - 0.5

    def criteria(self, state: Any) -> Mapping[str, tuple[bool, frozenset[int]]]:
        return {
            str(step): (state.world.cells.count(digit) % 2 == 0, frozenset({step})) for step, digit in enumerate("123")
        }

    def default_auditor(self) -> Any:
        return Thorough()

    def default_interventions(self) -> Any:
        return Edits()


def longer() -> Interaction[Any]:
    return Graded(max_turns=4)


class Even(Graded):
    """The outcome of every game is the same."""

    def outcome(self, state: Any) -> float:
        return 0.5


class Peers(Team):
    """Two agents, each of which can be left out."""

    removable = ("thinker", "agent")

    def without(self, state: Any, role: str) -> Any:
        return replace(state, now=state.origin, left=tuple(one for one in self.roles if one != role))


@dataclass(frozen=True)
class Place:
    """Where a walker is, after how many steps, and how many of them went right."""

    place: int
    turns: int = 0
    right: int = 0


class Ring(Interaction[Place]):
    """A walk on three places in a circle, where the same place, and the same context, is reached on several ways."""

    roles = ("agent",)

    def start(self, task: Mapping[str, Any], seed: int) -> Place:
        return Place(seed % 3)

    def pending(self, state: Place) -> tuple[Request, ...]:
        if state.turns == 5 or (state.turns > 1 and state.place == 2):
            return ()
        shown = [{"role": "user", "content": str(one)} for one in (state.turns // 2, state.place)]
        return (Request(role="agent", messages=shown),)

    def advance(self, state: Place, replies: Sequence[str]) -> Place:
        right = int(replies[0] == "right")
        return Place((state.place + (1 if right else 2)) % 3, state.turns + 1, state.right + right)

    def outcome(self, state: Place) -> float:
        return (3 * state.right + state.turns) % 5 / 4

    def reward(self, state: Place) -> float:
        return state.right % 2 / 4


class Contrary(SudokuConstraintsOracle):
    """Approves of what the oracle rejects."""

    def score(self, state: Any, action: str) -> float:
        return 1 - super().score(state, action)


# Players


class Walker(Player):
    """Goes left or right on a `Ring`."""

    def reply(self, shown: str) -> Generation:
        return self.said("right" if self.draws.random() < self.right else "left")


class CutShort(Player):
    """Some of its replies lack their end."""

    def reply(self, shown: str) -> Generation:
        whole = super().reply(shown)
        if self.draws.random() < 0.5:
            return whole
        return replace(whole, ids=whole.ids[:-1], logprobs=(whole.logprobs or ())[:-1])


class Seeded(Player):
    """Honours seeds."""

    def seeded(self, contexts: Sequence[Sequence[int]], seeds: Sequence[int | None]) -> list[Generation]:
        replies = []
        for context, seed in zip(contexts, seeds, strict=True):
            own = copy.copy(self)
            own.draws = self.draws if seed is None else random.Random(seed)
            replies += own([context])
        return replies


class Hurried(Player):
    """Plays badly where the template says that there is little time."""

    def __init__(self, chat: Chat) -> None:
        tokenizer = copy.deepcopy(chat.tokenizer)
        tokenizer.chat_template = "{% if hurry is defined %}<|user|>hurry<|end|>{% endif %}" + tokenizer.chat_template
        super().__init__(Chat(tokenizer))

    def reply(self, shown: str) -> Generation:
        self.right = 0.0 if "hurry" in shown else 0.6
        return super().reply(shown)


class WithAnOlderCopy(LocalContext):
    """The frozen copy gives replies other probabilities than the policy."""

    def logprobs(self, decisions: Sequence[Decision], policy: Any = "current") -> list[tuple[float, ...]]:
        found = super().logprobs(decisions)
        if policy == "current":
            return found
        scales = [0.5 + sum(one.context_ids) % 2 for one in decisions]
        return [tuple(scale * token for token in one) for scale, one in zip(scales, found, strict=True)]


def suspects(inputs: Sequence[Any]) -> list[tuple[float, ...]]:
    """A critic of beliefs in two values."""
    shares = [(1 + value) / 2 for (value,) in guesses(inputs)]
    return [(share, 1 - share) for share in shares]
