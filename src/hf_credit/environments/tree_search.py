"""Monte Carlo tree search (UCT) for two-player zero-sum games, optionally with a solver of decided positions.

It belongs to the environments because the moves of Tic-Tac-Toe's opponent are part of the environment.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from random import Random
from typing import Generic, Protocol, TypeVar

from hf_credit.environments.randomness import stream

P = TypeVar("P", bound=Hashable)
M = TypeVar("M", bound=Hashable)

_MAX_PLAYOUTS = 10**6  # of the search for one move: about half a minute


class Game(Protocol[P, M]):
    """A two-player zero-sum game with perfect information and without chance, in which no position recurs.

    A position is a hashable value that contains everything the future depends on, including the player to move.
    """

    def player(self, position: P) -> int:
        """The player to move: 0 or 1."""

    def moves(self, position: P) -> tuple[M, ...]:
        """The legal moves, in a fixed order; at least one before the end of the game."""

    def play(self, position: P, move: M) -> P:
        """The position after `move`."""

    def returns(self, position: P) -> float | None:
        """Player 0's return in [-1, 1] if the game is over (player 1's is its negative), else `None`."""


@dataclass(frozen=True, kw_only=True)
class MoveStatistics:
    """The results of a search for one move, for the player to move at the root."""

    visits: int  # number of simulations that began with this move
    mean: float | None  # their mean return in [-1, 1]; `None` without a visit
    proven: float | None  # the return under perfect play of both players if the search has proven it, else `None`

    @property
    def value(self) -> float | None:
        """The proven return if there is one, else the mean; `None` for an unvisited move without proof."""
        return self.mean if self.proven is None else self.proven


def best_moves(statistics: dict[M, MoveStatistics], tolerance: float = 0.0) -> tuple[M, ...]:
    """The moves with a value within `tolerance` of the best, in the given order."""
    known = {move: found.value for move, found in statistics.items() if found.value is not None}
    best = max(known.values(), default=0.0)
    return tuple(move for move, value in known.items() if value >= best - tolerance)


def check_playouts(simulations: int, rollouts: int, prefix: str = "") -> None:
    """Raises `ValueError`, which names both options with `prefix`, for a search that takes too long."""
    if simulations * rollouts > _MAX_PLAYOUTS:
        raise ValueError(
            f"{prefix}simulations x {prefix}rollouts must be at most {_MAX_PLAYOUTS}, got {simulations} x "
            f"{rollouts}; lower one."
        )


def search(
    game: Game[P, M],
    position: P,
    simulations: int,
    exploration: float,
    rollouts_per_leaf: int = 1,
    solve: bool = False,
    seed: int = 0,
) -> dict[M, MoveStatistics]:
    """Searches `position` with UCT (Kocsis and Szepesvári, 2006, "Bandit based Monte-Carlo planning").

    A simulation descends by `argmax_a Q(s, a) + c * sqrt(ln N(s) / N(s, a))`, where `c` is the exploration constant
    (`2 C_p` in the paper) and untried moves come first, in random order. It stops at the first new position, takes
    the mean return of uniformly random playouts from there, and backs it up into `Q`. As in the paper, counts and
    values belong to a (position, move) pair, so transpositions share them.

    With `solve`, positions whose value under perfect play is known are not searched again (after Winands, Björnsson
    and Saito, 2008, "Monte-Carlo tree search solver"): a position is proven by one move proven to win (return 1), or
    once all its moves are proven. A backed-up value is at least that of the player's best proven move. The search
    stops after `simulations`, or once every move at the root is proven, so that all best moves are found.

    Args:
        game, position: the rules, and the root.
        simulations: number of simulations, at least 1. With fewer than there are moves, some moves stay unvisited.
        exploration: the constant `c`, at least 0.
        rollouts_per_leaf: random playouts for each new position, at least 1.
        solve: whether proven positions are backed up exactly.
        seed: of all random draws; the result depends only on the arguments.

    Returns:
        The statistics of every legal move, in the game's order; empty if the game is over.
    """
    if game.returns(position) is not None:
        return {}
    rng = stream(seed, "uct")
    root = _Node(game, position)
    nodes: dict[P, _Node[P]] = {position: root}
    proven: dict[P, float] = {}  # returns of player 0 under perfect play; empty without `solve`
    for _ in range(simulations):
        if solve and all(child in proven for child in root.children):
            break
        # Descend through visited positions to a new, proven or final one.
        path: list[tuple[_Node[P], int]] = []
        here = position
        while (node := nodes.get(here)) is not None and here not in proven:
            if solve and node is not root and node.settle(proven):
                break
            index = node.select(proven, exploration, rng)
            path.append((node, index))
            here = node.children[index]
        if here in proven:
            value = proven[here]
        elif (final := game.returns(here)) is not None:
            value = final
            if solve:
                proven[here] = final
        else:
            nodes[here] = _Node(game, here)
            value = sum(_playout(game, here, rng) for _ in range(rollouts_per_leaf)) / rollouts_per_leaf
        # Back up.
        for node, index in reversed(path):
            node.visits[index] += 1
            node.totals[index] += value * node.sign
            if solve and node is not root:
                value = proven[node.position] if node.settle(proven) else node.at_least_proven(value, proven)
    return {
        move: MoveStatistics(
            visits=visits,
            mean=total / visits if visits else None,
            proven=proven[child] * root.sign if child in proven else None,
        )
        for move, child, visits, total in zip(
            game.moves(position), root.children, root.visits, root.totals, strict=True
        )
    }


class _Node(Generic[P]):
    """A visited position, with the visits and the sums of returns of its moves.

    `totals` are returns of the player to move; multiplied by `sign`, they are player 0's.
    """

    __slots__ = ("children", "position", "sign", "totals", "untried", "visits")

    def __init__(self, game: Game[P, M], position: P) -> None:
        self.position = position
        self.sign = 1 if game.player(position) == 0 else -1
        self.children = tuple(game.play(position, move) for move in game.moves(position))
        self.visits = [0] * len(self.children)
        self.totals = [0.0] * len(self.children)
        self.untried = list(range(len(self.children)))

    def select(self, proven: dict[P, float], exploration: float, rng: Random) -> int:
        """The index of the next move to try; at least one move must not be proven."""
        untried = self.untried
        while untried:
            chosen = int(rng.random() * len(untried))
            untried[chosen], untried[-1] = untried[-1], untried[chosen]
            index = untried.pop()
            if self.children[index] not in proven:
                return index
        log_visits = math.log(sum(self.visits))
        best, best_bound = -1, -math.inf
        for index, (visits, total) in enumerate(zip(self.visits, self.totals, strict=True)):
            if self.children[index] not in proven:
                bound = total / visits + exploration * math.sqrt(log_visits / visits)
                if bound > best_bound:
                    best, best_bound = index, bound
        return best

    def settle(self, proven: dict[P, float]) -> bool:
        """Adds this position to `proven` if its moves prove its value, and returns whether they do."""
        values = self._proven_values(proven)
        if not values or (max(values) < 1 and len(values) < len(self.children)):
            return False
        proven[self.position] = max(values) * self.sign
        return True

    def at_least_proven(self, value: float, proven: dict[P, float]) -> float:
        """Player 0's `value` of this position, improved to the best proven move of the player to move."""
        return max([value * self.sign, *self._proven_values(proven)]) * self.sign

    def _proven_values(self, proven: dict[P, float]) -> list[float]:
        return [proven[child] * self.sign for child in self.children if child in proven]


def _playout(game: Game[P, M], position: P, rng: Random) -> float:
    while (value := game.returns(position)) is None:
        moves = game.moves(position)
        position = game.play(position, moves[int(rng.random() * len(moves))])
    return value
