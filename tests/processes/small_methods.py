"""Methods with small numbers, and games of Sudoku that they play and credit without a trainer."""

from __future__ import annotations

import functools
import json
import math
import random
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from hf_credit import make, methods
from hf_credit.collectors import RolloutBatch
from hf_credit.environments.sudoku import solution_of
from hf_credit.methods import Credit, Method
from hf_credit.options import options_of
from hf_credit.oracles.auditing import Audit, Proposal
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import (
    Chat,
    Engine,
    EnvironmentInteraction,
    Generation,
    Interaction,
    LocalContext,
    Request,
)
from hf_credit.rollouts.scripts import random_texts

# Where a method's own numbers would play more than these tests need.
OPTIONS: dict[str, dict[str, Any]] = {
    "active_replay": {"group_size": 2, "branches": (1, 2)},
    "arew": {"group_size": 3, "strength": 0.5},
    "at2po": {"initial": 2, "forks": 3, "forks_per_round": 2},
    "carl": {"initial": 2, "forks": 3},
    "constrained_counterfactual": {
        "group_size": 3,
        "steps": 2,
        "branches": 2,
        "families": {"paraphrase": 1.0},
        "gate": False,
        "refresh_every": 1,
        "evidence": 0.0,
        "meta": 0.0,
        "belief": 0.0,
        "hack": 0.0,
        "gamma": 1.0,
        "limits": {"budget": 0.1},
    },
    "counterfactual_grpo": {"group_size": 3, "min_samples": 1},
    "grpo": {"group_size": 3, "scale": "batch"},
    "gspo": {"group_size": 3, "scale": "batch"},
    "igpo": {"group_size": 3, "normalise": "separate"},
    "mappo": {"group_size": 2},
    "mc_process_reward": {"rollouts": 2},
    "mt_grpo": {"group_size": 3, "turn_scores": "verdict", "outcome_weight": 0.5},
    "ppo": {"group_size": 2, "whiten": True},
    "reinforce_plus_plus": {"group_size": 2, "group_mean": True, "gamma": 0.9},
    "replay_loo": {"budget": 4, "alternatives": (2, 2)},
    "trace": {"group_size": 3, "refresh_every": 1},
    "sepo": {"group_size": 3, "max_tokens": 96},
    "tree_grpo": {"trees": 2, "expansions": 1},
    "turn_credit": {"group_size": 3, "turn_scores": "verdict", "outcome_weight": "measured"},
    "verifiable_process in state groups": {"state_group_size": 3, "bonus": 0.5},
    "vineppo": {"group_size": 2, "rollouts": 2},
}
NEED_A_TEAM = {"counterfactual_grpo", "sepo"}


def small_options(name: str) -> dict[str, Any]:
    """The options of a method here; the words after its name tell apart those with several."""
    method, _, _ = name.partition(" ")
    small = {"group_size": 3} if "group_size" in options_of(methods.find(method)) else {}
    return OPTIONS.get(name, small)


def made(name: str) -> Method:
    """A method with its options here."""
    return methods.make(name.partition(" ")[0], **small_options(name))


class Watched:
    """An auditor of Sudoku: steps in odd columns have costs, and grids have different verified successes."""

    costs: tuple[str, ...] = ("budget",)
    categories = ("guess",)
    slots: Mapping[str, int] = MappingProxyType({"phase": 2})

    def audit(self, state: Any, action: str) -> Audit:
        words = action.split()
        odd = len(words) > 2 and int(words[2]) % 2
        return Audit(kind="read", tool_call=True, costs={"budget": float(odd)}, beliefs={"phase": (0.5, 0.5)})

    def success(self, state: Any) -> float:
        return sum(place * ord(cell) for place, cell in enumerate(state.cells)) % 3 / 2


class InOtherWords:
    """Replacements with the same action after a word."""

    families: tuple[str, ...] = ("paraphrase",)

    def applies(self, state: Any, action: str, family: str) -> bool:
        return True

    def propose(self, state: Any, action: str, family: str, draws: random.Random) -> Proposal:
        return Proposal(action=action, text=f"1 <action>{action}</action>")

    def evidence(self, state: Any) -> str:
        return ""


class Uneven(EnvironmentInteraction):
    """4x4 Sudoku whose outcome differs from grid to grid, so that any policy's episodes differ in worth.

    The reply `boom` breaks it.
    """

    def __init__(self, max_turns: int = 3, history: str = "current") -> None:
        super().__init__(make("sudoku", size=4, blanks=4), history, instructions=False, max_turns=max_turns)

    def advance(self, state: Any, replies: Sequence[str]) -> Any:
        if replies[0] == "boom":
            raise RuntimeError("the world broke")
        return super().advance(state, replies)

    def outcome(self, state: Any) -> float:
        return sum(place * ord(cell) for place, cell in enumerate(state.world.cells, state.turns)) % 5 / 4

    knows_answers = True

    def gold_answer(self, state: Any) -> tuple[str, str]:
        return "<action>", "fill 1 1 1"

    def default_auditor(self) -> Any:
        return Watched()

    def default_interventions(self) -> Any:
        return InOtherWords()


@dataclass(frozen=True)
class Turns:
    """Where the team stands.

    Attributes:
        origin, now: states of the game.
        left: the roles that have not spoken.
    """

    origin: Any
    now: Any
    left: tuple[str, ...]


class Team(Interaction[Turns]):
    """4x4 Sudoku that two agents play, one action each; the first can be left out. Any two grids differ in worth.

    The reply `boom` breaks it.
    """

    roles = ("thinker", "agent")
    removable: tuple[str, ...] = ("thinker",)

    def __init__(self, history: str = "current") -> None:
        self.game = EnvironmentInteraction(make("sudoku", size=4, blanks=4), history, instructions=False)

    def start(self, task: Any, seed: int) -> Turns:
        first = self.game.start(task, seed)
        return Turns(first, first, self.roles)

    def pending(self, state: Turns) -> tuple[Request, ...]:
        if not state.left or not self.game.pending(state.now):
            return ()
        return (replace(self.game.pending(state.now)[0], role=state.left[0], event=state.left[0]),)

    def advance(self, state: Turns, replies: Sequence[str]) -> Turns:
        if replies[0] == "boom":
            raise RuntimeError("the world broke")
        return replace(state, now=self.game.advance(state.now, replies), left=state.left[1:])

    def outcome(self, state: Turns) -> float:
        return sum(place * ord(cell) for place, cell in enumerate(state.now.world.cells, 1)) % 5 / 4

    def metrics(self, state: Turns) -> dict[str, float]:
        return {"success": float(not state.left)}

    def scripted_player(self, quality: float) -> Any:
        player: Any = self.game.scripted_player(quality)
        return lambda state, *asked: player(state.now, *asked)

    def without(self, state: Turns, role: str) -> Turns:
        return replace(state, now=state.origin, left=("agent",))


class AtOnce(Team):
    """The same, but both agents act at once, each on the grid before the other's action."""

    removable = ()

    def pending(self, state: Turns) -> tuple[Request, ...]:
        asked = self.game.pending(state.now)
        return tuple(replace(one, role=role, event=role) for one in asked for role in state.left)

    def advance(self, state: Turns, replies: Sequence[str]) -> Turns:
        now = state.now
        for reply in replies:
            now = self.game.advance(now, [reply]) if self.game.pending(now) else now
        return replace(state, now=now, left=())


class Player:
    """Fills the first empty cell of the grid that it is shown, rightly or not, or says `boom`, by chance.

    Args:
        right, boom: how likely each is.
    """

    def __init__(self, chat: Chat, right: float = 0.6, boom: float = 0.0, seed: int = 0) -> None:
        self.chat, self.right, self.boom, self.draws = chat, right, boom, random.Random(seed)

    def __call__(self, contexts: Sequence[Sequence[int]]) -> list[Generation]:
        return [self.reply(str(self.chat.tokenizer.decode(list(context)))) for context in contexts]

    def reply(self, shown: str) -> Generation:
        text = "boom"
        if "Reply with JSON" in shown:
            share = 0.75 if self.draws.random() < self.right else 0.4
            result = "correct" if "result is correct" in shown else "wrong"
            text = json.dumps({"outcome": result, "shares": {"thinker": share, "agent": 1 - share}})
        elif self.draws.random() >= self.boom:
            cells = "".join(re.findall(r"[.1-4]", "".join(re.findall(r"R[1-4] ((?:[.1-4] ?){4})", shown)[-4:])))
            cell = cells.index(".")
            digit = self.digit(cells, cell) if self.draws.random() < self.right else self.draws.choice("1234")
            text = f"<action>fill {cell // 4 + 1} {cell % 4 + 1} {digit}</action>"
        return self.said(text)

    def said(self, text: str) -> Generation:
        ids = self.chat.tokenizer(f"{text}<|end|>", add_special_tokens=False)["input_ids"]
        return Generation(ids=ids, logprobs=[-self.draws.random() for _ in ids])

    def digit(self, cells: str, cell: int) -> str:
        try:
            return solution_of(cells)[cell]
        except ValueError:  # an earlier digit was wrong
            return "1"


@functools.cache
def sudoku_chat() -> Chat:
    texts = random_texts(make("sudoku", size=4, blanks=4), 2)
    return Chat(tokenizer_of([*texts, string.printable]))  # a rating is JSON


def guesses(inputs: Sequence[Any]) -> list[tuple[float, ...]]:
    """A critic with a different value for every text."""
    return [tuple(math.sin(sum(one.ids) + at) for at in one.at) for one in inputs]


def beliefs(decisions: Sequence[Any]) -> list[tuple[float, ...]]:
    """Log-probabilities: those of the sampler, and others for replies that were not sampled, by their contexts."""
    return [one.logprobs or (-1 - math.sin(sum(one.context_ids)),) * len(one.action_ids) for one in decisions]


def task_of(name: str, max_turns: int = 3, history: str = "current") -> Interaction[Any]:
    """The Interaction on which a method is tested."""
    return Team() if name in NEED_A_TEAM else Uneven(max_turns, history)


def local(name: str, chat: Chat, logprobs: Any = beliefs, **player: Any) -> LocalContext:
    context = LocalContext(Engine(task_of(name), chat, Player(chat, **player)), logprobs=logprobs)
    context.frozen = context.engine
    context.critics = dict.fromkeys(("critic", "outcome"), guesses)
    return context


def method_of(name: str) -> Method:
    return made(name).bind(task_of(name))


def play(name: str, context: LocalContext, tasks: int = 4) -> tuple[Method, RolloutBatch]:
    method = method_of(name)
    return method, method.collector([{"seed": seed} for seed in range(tasks)], context, method.memory)


def by_decision(collected: RolloutBatch, credit: Credit) -> dict[str, Any]:
    """The credit of decisions; checks that it has the form that `Credit` documents."""
    lengths = {one.id: len(one.action_ids) for episode in collected.episodes for one in episode.decisions}
    found = {name: value for name, value in credit.decisions.items() if value is not None}
    for name, value in found.items():
        numbers = value if isinstance(value, Sequence) else [value]
        assert all(isinstance(one, float) and math.isfinite(one) for one in numbers)
        assert not isinstance(value, Sequence) or len(value) == lengths[name]
    return found
