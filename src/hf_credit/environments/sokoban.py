"""Sokoban: push boxes onto targets (VPR's public code, thu-nics/VPR@7fa8008)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from typing import Any

from hf_credit.environments.actions import plain_action, tag
from hf_credit.environments.base import Environment, State, Transition
from hf_credit.environments.randomness import stream
from hf_credit.validators import whole_number

_MARKS = WALL, FLOOR, TARGET, BOX, STORED, PLAYER, PLAYER_ON_TARGET = "#-.$*@+"
MOVES = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
_WALL_SHARE = 0.25
_SIZES, _MOST_BOXES = range(5, 9), 3

Position = tuple[int, int]
"""The player's cell, and the cells of the boxes as bits; cells are counted row by row from 0."""


@dataclass(frozen=True)
class Room:
    """What does not change in an episode: sets of cells, as bits.

    Attributes:
        columns: of the board.
        floor: the cells inside the walls.
        targets: those of `floor` where boxes belong.
    """

    columns: int
    floor: int
    targets: int

    def moved(self, position: Position, move: str) -> Position | None:
        """Returns the position after a move; `None` if a wall or a second box is in the way."""
        player, boxes = position
        step = self._step(move)
        ahead = 1 << player + step
        if not ahead & self.floor:
            return None
        if ahead & boxes:
            behind = 1 << player + 2 * step
            if not behind & self.floor & ~boxes:
                return None
            boxes ^= ahead | behind
        return player + step, boxes

    def before(self, position: Position) -> Iterator[Position]:
        """Yields the positions from which one move leads to this one."""
        player, boxes = position
        for step in map(self._step, MOVES):
            if 1 << player - step & self.floor & ~boxes:
                yield player - step, boxes
                if 1 << player + step & boxes:
                    yield player - step, boxes ^ (1 << player | 1 << player + step)

    def _step(self, move: str) -> int:
        rows, columns = MOVES[move]
        return rows * self.columns + columns


@dataclass(frozen=True, kw_only=True)
class SokobanState(State):
    """The board as the agent sees it, and the length of a shortest solution from the start."""

    # the rows; each character is `#` (a wall), `-` (floor), `.` (a target), `$` (a box), `*` (a box on a target), `@`
    # (the player) or `+` (the player on a target)
    board: tuple[str, ...]
    shortest: int

    def __post_init__(self) -> None:
        # A board of another form could take a search for ever.
        if not is_room(self.board) or self.shortest < 1:
            raise ValueError(
                "a state of Sokoban must have a room of a possible form and a solution of at least 1 move, got "
                f"{self.board!r:.200} and {self.shortest}; use states of the environment."
            )


class Sokoban(Environment[SokobanState]):
    """Sokoban: reward 1 for having every box on a target, 0 for anything else.

    A move that a wall or a second box prevents is illegal. The episode ends as lost as soon as the room can no longer
    be solved. Rooms are drawn with inner walls, and start in a position that a search backwards from the solved ones
    has reached, with no box on a target. The default room is that of the public code.

    Args:
        rows: number of rows, with the walls around the room, from 5 to 8.
        columns: number of columns, from 5 to 8.
        boxes: number of boxes and of targets, from 1 to 3.
        longest: the most moves of a shortest solution of a task, at least `boxes`.
        turns: the most moves of an episode, at least `longest`.

    Raises:
        ValueError: an option is outside its range.
    """

    name = "sokoban"
    state_type = SokobanState
    task_columns = ("board",)
    reward_range = (0.0, 1.0)

    def __init__(
        self, rows: int = 7, columns: int = 7, boxes: int = 3, longest: int = 25, turns: int | None = None
    ) -> None:
        self.rows = whole_number("rows", rows, _SIZES[0], _SIZES[-1])
        self.columns = whole_number("columns", columns, _SIZES[0], _SIZES[-1])
        self.boxes = whole_number("boxes", boxes, 1, min(_MOST_BOXES, (rows - 2) * (columns - 2) // 4))
        self.longest = whole_number("longest", longest, self.boxes)
        self.turns = whole_number("turns", max(36, longest) if turns is None else turns, longest)

    @property
    def instructions(self) -> str:
        return (
            f"You are playing Sokoban in a room of {self.rows} rows and {self.columns} columns. '#' is a wall, '-' "
            "floor, '.' a target, '$' a box, '*' a box on a target, '@' you, and '+' you on a target. Have every "
            f"box on a target within {self.turns} moves to win. You move one cell at a time, and push a box that is "
            "there one cell further if that cell holds neither a wall nor another box; you cannot pull. An impossible "
            "move loses, and so does a box that can never come to a target again.\n"
            f"Each turn, reply with {tag('up')}, {tag('down')}, {tag('left')} or {tag('right')}."
        )

    @property
    def max_turns(self) -> int:
        """The option `turns`: 36 by default, as in the public code."""
        return self.turns

    def sample_task(self, seed: int) -> dict[str, Any]:
        """Draws a room and a first position: `{"board": [row, ...]}`, in the characters of `SokobanState`."""
        draw = stream(seed, self.name, self.rows, self.columns, self.boxes, self.longest)
        while True:
            floor = self._carved(draw)
            if floor.bit_count() < 2 * self.boxes + 1:
                continue
            room = Room(self.columns, floor, _bits(draw.sample([*_cells(floor)], self.boxes)))
            starts = [
                position
                for position, moves in distances(room).items()
                if moves <= self.longest and not position[1] & room.targets
            ]
            if starts:
                return {"board": [*_drawn(room, draw.choice(starts), self.rows)]}

    def _carved(self, draw: Random) -> int:
        """The floor of a room with inner walls: what can be reached from a free cell."""
        inside = [
            row * self.columns + column
            for row, column in itertools.product(range(1, self.rows - 1), range(1, self.columns - 1))
        ]
        free = [cell for cell in inside if draw.random() >= _WALL_SHARE]
        reached = [draw.choice(free)] if free else []
        for cell in reached:
            around = (cell - self.columns, cell - 1, cell + 1, cell + self.columns)
            reached += [one for one in around if one in free and one not in reached]
        return _bits(reached)

    def initial_state(self, task: Mapping[str, Any], seed: int) -> SokobanState:
        """The state of `task["board"]`.

        Raises:
            ValueError: the board is not a room of the size, with walls around it, one player and `boxes` boxes and
                targets, that has a solution of at most `turns` moves and is not solved.
        """
        value = task.get("board")
        board = tuple(value) if isinstance(value, Sequence) else ()
        fits = is_room(board) and (len(board), len(board[0])) == (self.rows, self.columns)
        moves = left(board) if fits and _count(board, "$*") == self.boxes else None
        if not moves or moves > self.turns:
            raise ValueError(
                f"a Sokoban board must be {self.rows} rows of {self.columns} characters out of '#-.$*@+', walls "
                f"around one player and {self.boxes} boxes and targets, with a solution of 1 to {self.turns} moves, "
                f"got {value!r:.400}; sample the task with the options of this environment."
            )
        return SokobanState(seed=seed, board=board, shortest=moves)

    def observe(self, state: SokobanState) -> str:
        return "\n".join(" ".join(row) for row in state.board)

    def legal_actions(self, state: SokobanState) -> tuple[str, ...]:
        """The possible moves, in the order of `MOVES`."""
        return tuple(after(state)) if state.status == "active" else ()

    def step(self, state: SokobanState, action: str) -> Transition[SokobanState]:
        if state.status != "active":
            return self._transition(state, 0.0, None)
        plain = plain_action(action)
        board = after(state).get(plain)
        if board is None:
            state = replace(state, status="invalid")
        else:
            state = replace(state, board=board, status="active" if left(board) else "finished")
        return self._transition(state, self.outcome(state), plain if plain in MOVES else None)

    def outcome(self, state: SokobanState) -> float:
        """1.0 if every box is on a target, else 0.0."""
        return float(left(state.board) == 0)

    def metrics(self, state: SokobanState) -> dict[str, float]:
        """`success` (the outcome) and `completion`: the share of a shortest solution that is done, as in the public
        code: 0 where it has become longer, or where there is none."""
        moves = left(state.board)
        done = 0.0 if moves is None else max(0.0, 1 - moves / state.shortest)
        return {"success": self.outcome(state), "completion": done}


@lru_cache(maxsize=512)
def distances(room: Room) -> Mapping[Position, int]:
    """The least number of moves to a solution from every position that has one, by a search backwards from the solved
    ones; a position that is missing is a deadlock."""
    queue = [(player, room.targets) for player in _cells(room.floor & ~room.targets)]
    known = dict.fromkeys(queue, 0)
    for position in queue:
        moves = known[position] + 1
        for earlier in room.before(position):
            if earlier not in known:
                known[earlier] = moves
                queue.append(earlier)
    return known


def is_room(board: Sequence[Any]) -> bool:
    """Returns whether a board has a possible size, walls around it, one player, and as many boxes as targets."""
    if not all(isinstance(row, str) and len(row) in _SIZES for row in board) or len(board) not in _SIZES:
        return False
    edges = {*board[0], *board[-1], *(row[0] for row in board), *(row[-1] for row in board)}
    boxes = _count(board, "$*")
    sound = edges == {WALL} and {*"".join(board)} <= {*_MARKS} and len({*map(len, board)}) == 1
    return sound and _count(board, "@+") == 1 and 1 <= boxes == _count(board, ".*+") <= _MOST_BOXES


def _count(board: Sequence[str], marks: str) -> int:
    return sum(row.count(mark) for row in board for mark in marks)


def left(board: tuple[str, ...]) -> int | None:
    """The least number of moves that solve a board; `None` if none do."""
    room, position = _read(board)
    return distances(room).get(position)


def after(state: SokobanState) -> dict[str, tuple[str, ...]]:
    """The board after each possible move, by the move."""
    room, position = _read(state.board)
    moved = {move: room.moved(position, move) for move in MOVES}
    return {move: _drawn(room, one, len(state.board)) for move, one in moved.items() if one is not None}


@lru_cache(maxsize=4096)
def _read(board: tuple[str, ...]) -> tuple[Room, Position]:
    text = "".join(board)
    of = {marks: _bits(cell for cell, mark in enumerate(text) if mark in marks) for marks in ("#", ".*+", "$*", "@+")}
    room = Room(len(board[0]), ~of["#"] & (1 << len(text)) - 1, of[".*+"])
    return room, (of["@+"].bit_length() - 1, of["$*"])


def _drawn(room: Room, position: Position, rows: int) -> tuple[str, ...]:
    player, boxes = position
    text = "".join(
        _mark(bool(room.targets >> cell & 1), cell == player, bool(boxes >> cell & 1))
        if room.floor >> cell & 1
        else WALL
        for cell in range(rows * room.columns)
    )
    return tuple(text[start : start + room.columns] for start in range(0, len(text), room.columns))


def _mark(target: bool, player: bool, box: bool) -> str:
    if player:
        return PLAYER_ON_TARGET if target else PLAYER
    return (STORED if target else BOX) if box else (TARGET if target else FLOOR)


def _bits(cells: Iterable[int]) -> int:
    return sum(1 << cell for cell in cells)


def _cells(bits: int) -> Iterator[int]:
    return (cell for cell in range(bits.bit_length()) if bits >> cell & 1)
