"""The posterior-based oracle of Minesweeper (paper VPR, section 2.2, eq. 3), in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from math import comb
from typing import NamedTuple

from hf_credit.environments import minesweeper as game
from hf_credit.environments.minesweeper import Board, Cell, Minesweeper, MinesweeperState
from hf_credit.oracles.base import ValidSetOracle

_UNFLAGGED = str.maketrans({game.FLAG: game.HIDDEN, game.MINE: game.HIDDEN})
_BITS = 4  # a digit is at most 8


class MinesweeperPosteriorOracle(ValidSetOracle[MinesweeperState]):
    """Accepts to reveal a hidden cell of minimum posterior, and to flag a cell whose posterior is 1.

    Among the layouts that agree with the revealed digits and the number of mines, the posterior of a cell is the share
    in which it has a mine (paper VPR, eq. 3); the agent's flags are no evidence. The minimum may be positive, ties are
    valid, and comparisons are exact. To flag a flagged mine is not valid, since that removes the flag.
    """

    name = "minesweeper_posterior"
    environment_type = Minesweeper

    def valid_actions(self, state: MinesweeperState) -> frozenset[str]:
        if state.status != "active":
            return frozenset()
        posterior = self.mine_probabilities(state)
        least = min(posterior.values())
        reveals = (f"reveal {row} {column}" for (row, column), mine in posterior.items() if mine == least)
        flags = (
            f"flag {row} {column}"
            for (row, column), mine in posterior.items()
            if mine == 1 and state.board[row - 1][column - 1] != game.FLAG
        )
        return frozenset((*reveals, *flags))

    def mine_probabilities(self, state: MinesweeperState) -> dict[Cell, Fraction]:
        """Returns the posterior of every hidden cell, by (row, column) from 1; a revealed mine counts as hidden."""
        return dict(_posterior(tuple(row.translate(_UNFLAGGED) for row in state.board), len(state.mines)))


class _Group(NamedTuple):
    """Hidden cells next to the same digits, so that only the number of mines among them matters."""

    cells: tuple[int, ...]  # counted row by row from 0
    digits: tuple[int, ...]  # the revealed cells next to them; none for the cells away from the frontier


@lru_cache(maxsize=2**12)
def _posterior(board: Board, mines: int) -> dict[Cell, Fraction]:
    """The posterior of every hidden cell of a board without flags. The result is cached: do not change it.

    The layouts of a board factor. Let `N_i(m)` be the number of placements of `m` mines in the i-th independent
    component (the cells next to no digit are one, with binomial weights). The number of layouts is the coefficient of
    `x^mines` in `prod_i sum_m N_i(m) x^m`. With the i-th factor weighted by the mines of a group, it is the number of
    pairs of a layout and a mine in that group, and its share per cell of the group is the posterior.
    """
    text = "".join(board)
    components = _components(_groups(text, game.neighbours(len(board), len(board[0]))))
    hidden = text.count(game.HIDDEN)
    # Polynomials are integers with their coefficients side by side (Kronecker substitution), so that integer sums and
    # products add and multiply them. A field has room for the subsets of a number of mines, counted once per mine.
    width = (comb(hidden, min(mines, hidden // 2)) * max(mines, 1)).bit_length()
    keep = (1 << width * (mines + 1)) - 1  # powers beyond x^mines never matter
    counts = [_count(component, text, mines, width) for component in components]
    before = list(accumulate((factor for factor, _ in counts), lambda a, b: a * b & keep, initial=1))
    after = list(accumulate((factor for factor, _ in reversed(counts)), lambda a, b: a * b & keep, initial=1))[::-1]
    total = before[-1] >> width * mines
    if not total:
        raise ValueError(f"a board must agree with some layout of its {mines} mines, got {board}; check its digits.")
    posterior: dict[int, Fraction] = {}
    for index, (component, (_, weighted)) in enumerate(zip(components, counts, strict=True)):
        others = before[index] * after[index + 1] & keep
        for group, pairs in zip(component, weighted, strict=True):
            mine = Fraction((pairs * others & keep) >> width * mines, total * len(group.cells))
            posterior.update(dict.fromkeys(group.cells, mine))
    columns = len(board[0])
    return {(cell // columns + 1, cell % columns + 1): posterior[cell] for cell in sorted(posterior)}


def _groups(text: str, around: tuple[tuple[int, ...], ...]) -> list[_Group]:
    cells: dict[tuple[int, ...], list[int]] = {}
    for cell, mark in enumerate(text):
        if mark == game.HIDDEN:
            digits = tuple([other for other in around[cell] if text[other] != game.HIDDEN])
            cells.setdefault(digits, []).append(cell)
    return [_Group(tuple(members), digits) for digits, members in cells.items()]


def _components(groups: list[_Group]) -> list[list[_Group]]:
    """Splits the groups into parts that share no digit, each in an order that keeps few digits in use at once.

    The cost of counting grows with the number of digits between their first and last group. So the next digit to
    finish is always the one in use with the fewest groups ahead.
    """
    seen_by: dict[int, list[_Group]] = {}
    for group in groups:
        for digit in group.digits:
            seen_by.setdefault(digit, []).append(group)
    components = [[group] for group in groups if not group.digits]
    ahead = {digit: len(members) for digit, members in seen_by.items()}
    done: set[_Group] = set()
    while ahead:
        component: list[_Group] = []
        in_use = {min(ahead, key=ahead.__getitem__)}
        while in_use:
            digit = min(in_use, key=lambda digit: (ahead[digit], digit))
            for group in seen_by[digit]:
                if group not in done:
                    done.add(group)
                    component.append(group)
                    for other in group.digits:
                        ahead[other] -= 1
                        in_use.add(other)
            finished = {digit for digit in in_use if not ahead[digit]}
            in_use -= finished
            for digit in finished:
                del ahead[digit]
        components.append(component)
    return components


def _count(component: list[_Group], text: str, mines: int, width: int) -> tuple[int, list[int]]:
    """Counts the placements in a component by number of mines, and for each group weighted by the mines in it.

    Dynamic programming over the groups. A state is the number of mines that every digit still needs, packed into one
    integer. Placements with the same state are counted together, forward from the digits and backward from 0.
    """
    keep = (1 << width * (mines + 1)) - 1
    shifts = {
        digit: _BITS * index for index, digit in enumerate({digit for group in component for digit in group.digits})
    }
    ahead = dict.fromkeys(shifts, 0)  # cells of the groups ahead
    for group in component:
        for digit in group.digits:
            ahead[digit] += len(group.cells)
    layer = {sum(int(text[digit]) << shift for digit, shift in shifts.items()): 1}
    layers, links = [layer], []
    for group in component:
        size = len(group.cells)
        for digit in group.digits:
            ahead[digit] -= size
        views = [(shifts[digit], ahead[digit]) for digit in group.digits]
        unit = sum(1 << shift for shift, _ in views)
        weights = [comb(size, count) for count in range(min(size, mines) + 1)]
        layer, link = {}, []
        for state, ways in layers[-1].items():
            least, most = 0, len(weights) - 1
            for shift, left in views:
                needed = state >> shift & 15
                least, most = max(least, needed - left), min(most, needed)
            for count in range(least, most + 1):
                following = state - count * unit
                layer[following] = layer.get(following, 0) + ((ways * weights[count] << width * count) & keep)
                link.append((state, count, following))
        layers.append(layer)
        links.append((weights, link))
    backward = {0: 1}
    weighted = []
    for layer, (weights, link) in zip(layers[-2::-1], reversed(links), strict=True):
        earlier: dict[int, int] = {}
        pairs = 0
        for state, count, following in link:
            rest = (backward.get(following, 0) * weights[count] << width * count) & keep
            earlier[state] = earlier.get(state, 0) + rest
            pairs += count * layer[state] * rest & keep
        weighted.append(pairs)
        backward = earlier
    return layers[-1].get(0, 0), weighted[::-1]
