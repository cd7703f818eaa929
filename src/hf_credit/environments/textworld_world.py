"""TextWorld: generated text adventures with rooms, objects and a quest."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_credit.environments.actions import plain_action, tag
from hf_credit.environments.randomness import stream
from hf_credit.environments.replayed import ReplayedEnvironment, ReplayedState
from hf_credit.environments.tasks import SEEDS_PER_SPLIT
from hf_credit.optional_packages import needed

# Commands to the interpreter of a story file instead of moves in the game.
_ORDERS = frozenset(
    (
        *("again", "g", "oops", "o", "undo", "restart", "restore", "save", "quit", "q"),
        *("script", "unscript", "transcript", "recording", "replay", "verify", "version", "notify"),
        *("brief", "superbrief", "verbose", "normal", "full", "short", "score", "nouns", "pronouns", "then"),
        *("option", "restrict", "tw"),  # of TextWorld, which show the hidden world
    )
)
_MOVE = re.compile(r"[a-z0-9 ,'-]{1,200}")
_KEPT = 2**16  # states whose next command is kept
_FACTS = ("admissible_commands", "policy_commands", "objective", "description", "score", "max_score", "won", "lost")


def make_games(folder: str | Path, count: int, rooms: int = 2, things: int = 3, quest: int = 2, seed: int = 0) -> None:
    """Generates games with TextWorld, each a story file and its description in JSON; takes a few seconds a game.

    Args:
        folder, count: where to write, and how many games.
        rooms, things, quest: the number of rooms, of objects, and of steps of the quest of a game.
        seed: the seed of the first game; game i has `seed + i`.
    """
    _textworld()
    from textworld import GameOptions
    from textworld.generator import compile_game, make_game

    Path(folder).mkdir(parents=True, exist_ok=True)
    for place in range(count):
        options = GameOptions()
        options.seeds = seed + place
        options.nb_rooms, options.nb_objects, options.quest_length = rooms, things, quest
        options.path = str(Path(folder) / f"game-{rooms}-{things}-{quest}-{seed + place}.z8")
        options.force_recompile = True
        compile_game(make_game(options), options)


class TextWorld(ReplayedEnvironment):
    """TextWorld's games in a folder. A task names one of them.

    Outcome: the points scored, as a share of the maximum. With five games or more, held-out tasks draw every fifth
    game, and training tasks the others. States are restored by playing their actions again, as TextWorld takes longer
    to copy a game than to play about twenty steps. Its oracle is TextWorld's own solver.

    Args:
        games: a folder with `.z8` files and their `.json` files, as `tw-make` and `make_games` write them.
        turns: the most actions of an episode.
        sessions: the most live games.

    Raises:
        ValueError: there are no games, or the extra `textworld` is missing.
    """

    name = "textworld"
    acts = False
    task_columns = ("game",)
    instructions = (
        "You play a text adventure. End your reply with one command, such as "
        f"{tag('look')}, {tag('go north')}, {tag('take key')} or {tag('open box')}"
    )

    def __init__(self, games: str, turns: int = 50, sessions: int = 64) -> None:
        super().__init__(sessions, turns)
        _textworld()
        self.games = str(games)
        self._solver = TextWorldSolver(self)
        self.slow_steps = 1  # TextWorld computes, and is not thread-safe
        self._names = tuple(
            sorted(path.name for path in Path(games).glob("*.z8") if path.with_suffix(".json").exists())
        )
        if not self._names:
            raise ValueError(
                f"games must be a folder with .z8 files and their .json files, got {self.games!r} without; make some "
                "with hf_credit.environments.textworld_world.make_games."
            )

    def sample_task(self, seed: int) -> dict[str, Any]:
        held_out = seed >= SEEDS_PER_SPLIT
        drawn = [name for place, name in enumerate(self._names) if (place % 5 == 4) == held_out]
        return {"game": stream(seed, self.name, "task").choice(drawn if len(self._names) >= 5 else self._names)}

    def initial_state(self, task: Mapping[str, Any], seed: int) -> ReplayedState:
        if task["game"] not in self._names:
            raise ValueError(f"a game must be a file in {self.games!r}, got {task['game']!r}; pick one.")
        return super().initial_state(task, seed)

    def open_world(self) -> TextWorldGame:
        return TextWorldGame(Path(self.games), self._solver)

    def default_oracle(self) -> TextWorldSolver:
        return self._solver

    def read_action(self, reply: str) -> str:
        return plain_action(super().read_action(reply))

    def understands(self, state: ReplayedState, action: str) -> bool:
        return _MOVE.fullmatch(action) is not None and _ORDERS.isdisjoint(re.findall("[a-z]+", action))


class TextWorldSolver:
    """Accepts the next command of the quest, as TextWorld gives it after every command, and no other.

    Where several orders win, it accepts one of them; where none can win any more, nothing. What games told is kept,
    so that a move is judged without playing it again.
    """

    name = "textworld_solver"
    environment_type = TextWorld

    def __init__(self, world: TextWorld) -> None:
        self.world = world
        self.next: dict[tuple[str, tuple[str, ...]], frozenset[str]] = {}

    def valid_actions(self, state: ReplayedState) -> frozenset[str]:
        place = json.loads(state.task)["game"], state.actions
        if state.status != "active":
            return frozenset()
        if place not in self.next:
            self.world.legal_actions(state)  # which plays the state again
        return self.next[place]

    def score(self, state: ReplayedState, action: str) -> float:
        return float(plain_action(action) in self.valid_actions(state))

    def keep(self, place: tuple[str, tuple[str, ...]], commands: Sequence[str] | None) -> None:
        if len(self.next) >= _KEPT:
            self.next.clear()
        self.next[place] = frozenset(map(plain_action, (commands or ())[:1]))


class TextWorldGame:
    """One live game of a folder of story files."""

    def __init__(self, folder: Path, solver: TextWorldSolver) -> None:
        self.folder, self.solver = folder, solver
        self.actions: tuple[str, ...] = ()
        self.game: Any = None
        self.name = ""
        self.state: Any = None

    def reset(self, task: Mapping[str, Any], seed: int) -> str:
        if self.name != task["game"]:
            self.close()
            wanted = _textworld().EnvInfos(**dict.fromkeys(_FACTS, True))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Jericho warns that it has no scores; TextWorld has them
                self.game = _textworld().start(str(self.folder / task["game"]), wanted)
            self.name = task["game"]
        self.state, self.actions = self.game.reset(), ()
        self.solver.keep((self.name, self.actions), self.state.policy_commands)
        return f"{_prose(self.state.objective)}\n\n{_prose(self.state.description)}"

    def step(self, action: str) -> tuple[str, float, bool, Mapping[str, Any]]:
        before = self.state.score or 0
        self.state, score, done = self.game.step(action)
        self.actions += (action,)
        self.solver.keep((self.name, self.actions), self.state.policy_commands)
        reward = ((score or 0) - before) / max(self.state.max_score or 1, 1)
        return _prose(self.state.feedback), reward, bool(done), {"success": bool(self.state.won)}

    def legal_actions(self) -> list[str]:
        self.solver.keep((self.name, self.actions), self.state.policy_commands)
        return sorted(set(map(plain_action, self.state.admissible_commands)))

    def close(self) -> None:
        if self.game is not None:
            self.game.close()
        self.game, self.name = None, ""


def _prose(shown: str) -> str:
    """The text of a story file, without its prompt and its status line."""
    text = shown.rpartition("\n>")[0] or shown
    return re.sub(r"\n{3,}", "\n\n", text.partition("Would you like to RESTART")[0]).strip()


def _textworld() -> Any:
    return needed("TextWorld's games need", "textworld", "textworld")
