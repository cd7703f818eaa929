"""Rows that begin alike, read once: the tree of rows in order, and where to cut them into sequences."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


def shared_lengths(rows: Sequence[Integers]) -> list[int]:
    """The number of first tokens that each row shares with the row before it, in what it reads and predicts.

    The tokens of an image, one negative number in a row, stay together.
    """
    found, images = [0], np.concatenate(rows).min() < 0
    for one, other in zip(rows[1:], rows[:-1], strict=True):
        both = min(len(one), len(other))
        differs = one[:both] != other[:both]
        first = int(differs.argmax()) if differs.any() else both
        last = max(first - 1, 0)
        if images and (rest := one[last:]).min(initial=0) < 0:
            torn = np.isin(one[:last], rest[rest < 0])
            last = int(torn.argmax()) if torn.any() else last
        found.append(last)
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Tree:
    """Rows as one sequence, in which a token that they share is read once.

    The tokens that each row does not share with the row before it follow one another: for sorted rows this is a
    depth-first traversal. Rows predict the same from a shared token. The last token of a row is only predicted.

    Attributes:
        ids, positions: of each place of the sequence the token that is read, and its position in its rows.
        ends: the place after the last one that sees it: place j is seen from i if j <= i < ends[j].
        starts: where the tokens that each row adds begin, and the length of the sequence.
        paths: for each row the places of the tokens that it reads.
    """

    ids: Integers
    positions: Integers
    ends: Integers
    starts: Integers
    paths: Sequence[Integers]

    @property
    def images(self) -> list[int]:
        """The numbers of the images that are read, in order."""
        added = (self.ids[start:end] for start, end in pairwise(self.starts))
        return [number for part in added for number in dict.fromkeys(part[part < 0].tolist())]

    @classmethod
    def of(cls, rows: Sequence[Integers]) -> Tree:
        """The tree of rows, at least one, ordered by their tokens, each of at least one token."""
        shared = shared_lengths(rows)
        starts = np.cumsum([0, *(len(row) - 1 - own for row, own in zip(rows, shared, strict=True))])
        ends = np.full(starts[-1], starts[-1])
        path, paths = np.zeros(0, dtype=np.int64), []
        for own, begun, next_begun in zip(shared, starts[:-1], starts[1:], strict=True):
            ends[path[own:]] = begun
            path = np.concatenate([path[:own], np.arange(begun, next_begun)])
            paths.append(path)
        return cls(
            ids=np.concatenate([row[own:-1] for row, own in zip(rows, shared, strict=True)]),
            positions=np.concatenate([np.arange(own, len(row) - 1) for row, own in zip(rows, shared, strict=True)]),
            ends=ends,
            starts=starts,
            paths=paths,
        )


class Runs:
    """Cuts of sorted rows into runs, each read as a tree, in which a row costs what it adds to the row before it:

        cost[i] = sum over d from shared[i] to read[i] of (per_token + d)

    A run is given by the index of its first row and the index after its last.

    Args:
        rows: at least one, ordered by their tokens.
        per_token: cost of a token without attention, in units of one token's attention to one other: for a dense
            transformer about 6 times the size of its hidden states (8 x 12 h^2 over 16 h operations a layer).
    """

    def __init__(self, rows: Sequence[Integers], per_token: float) -> None:
        def cost(tokens: Integers) -> npt.NDArray[np.float64]:
            return tokens * per_token + tokens * (tokens + 1) / 2

        read, shared = np.array([len(row) - 1 for row in rows]), np.array(shared_lengths(rows))
        # Of a row that opens a run, and of all that are added to the ones before them, summed up; lists are faster.
        self._opens, self._tokens = cost(read).tolist(), read.tolist()
        self._costs = [0.0, *np.cumsum(cost(read) - cost(shared)).tolist()]
        self._added = [0, *np.cumsum(read - shared).tolist()]

    def __len__(self) -> int:
        return len(self._opens)

    def cost(self, first: int, last: int) -> float:
        return self._opens[first] + self._costs[last] - self._costs[first + 1]

    def tokens(self, first: int, last: int) -> int:
        return self._tokens[first] + self._added[last] - self._added[first + 1]

    def cut(self, most: float, budget: int, passes: int | None = None) -> list[int] | None:
        """The first indices of the fewest runs within a cost and a budget of tokens; `None` if there are too many."""
        bounds: list[int] = []
        first, end = 0, len(self._opens)
        while first < end:
            room = most - self._opens[first] + self._costs[first + 1]
            fits = budget - self._tokens[first] + self._added[first + 1]
            last = min(bisect_right(self._costs, room), bisect_right(self._added, fits)) - 1
            if last <= first or (passes is not None and len(bounds) == passes):
                return None
            bounds.append(first)
            first = last
        return bounds

    def balanced(self, passes: int, budget: int) -> list[tuple[int, int]]:
        """`passes` runs within a budget, or one for each row if there are fewer, with minimal maximum cost; none if
        there are too many."""
        low, high = 0.0, sum(self._opens)
        found = self.cut(high, budget, passes)
        if found is None:
            return []
        while high - low > 1e-3 * high:
            middle = (low + high) / 2
            closer = self.cut(middle, budget, passes)
            found, low, high = (found, middle, high) if closer is None else (closer, low, middle)
        while len(found) < min(passes, len(self._opens)):
            found = self._with_one_more(found)
        return list(pairwise([*found, len(self)]))

    def _with_one_more(self, bounds: list[int]) -> list[int]:
        """With the costliest run of several rows cut where the maximum cost of its halves is minimal."""
        runs = pairwise([*bounds, len(self)])
        first, last = max((run for run in runs if run[1] - run[0] > 1), key=lambda run: self.cost(*run))
        between = min(range(first + 1, last), key=lambda at: max(self.cost(first, at), self.cost(at, last)))
        return sorted([*bounds, between])
