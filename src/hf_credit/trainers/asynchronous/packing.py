"""An update in few forward passes: rows with a shared beginning become trees, and trees micro-batches."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hf_credit.rollouts import Row

Integers = npt.NDArray[np.int64]


class TooManyPassesError(ValueError):
    """The samples of an update need more forward passes than it has."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """A row as arrays, which ends with the last token that is trained on.

    Attributes:
        ids: its tokens, of which all but the last are read.
        targets: the positions of the tokens in the loss, increasing, at least 1; predicted one position earlier.
        logprobs: the sampler's, of the targets, in nats.
        advantages: of the targets.
        role: whose reply it is.
    """

    ids: Integers
    targets: Integers
    logprobs: npt.NDArray[np.float32]
    advantages: npt.NDArray[np.float32]
    role: str = ""

    @classmethod
    def of(cls, row: Row) -> Sample | None:
        """The sample of a row; `None` for one without tokens in the loss.

        Raises:
            ValueError: the row has no prompt, or no log-probabilities.
        """
        chosen = np.flatnonzero(np.asarray(row.loss_mask))
        if not len(chosen):
            return None
        if not row.prompt_ids or row.logprobs is None:
            missing = "prompt" if not row.prompt_ids else "log-probabilities of its sampler"
            raise ValueError(f"a row must have a prompt and log-probabilities, got one without a {missing}; add it.")
        targets = len(row.prompt_ids) + chosen
        return cls(
            ids=np.array(row.prompt_ids + row.completion_ids[: int(chosen[-1]) + 1], dtype=np.int64),
            targets=targets,
            logprobs=np.array(row.logprobs, dtype=np.float32)[chosen],
            advantages=np.array(row.advantages, dtype=np.float32)[chosen],
            role=row.role,
        )

    @property
    def read(self) -> int:
        """The number of tokens that are read: the last is only predicted."""
        return len(self.ids) - 1

    def silenced(self) -> Sample:
        """Its shortest part with a loss, with weight 0: for a process without other work."""
        return Sample(
            ids=self.ids[: self.targets[0] + 1],
            targets=self.targets[:1],
            logprobs=self.logprobs[:1],
            advantages=np.zeros(1, dtype=np.float32),
            role=self.role,
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Update:
    """The forward passes of one update.

    Attributes:
        rows: the samples of each pass, ordered so that those with a shared beginning are neighbours. The passes of one
            micro-batch, one for each process, are neighbours too and cost about the same.
        trained: number of tokens in the loss.
        read: number of tokens that all passes read.
        apart: number of tokens that would be read with one pass for each sample.
    """

    rows: tuple[tuple[Sample, ...], ...]
    trained: int
    read: int
    apart: int


def plan(samples: Sequence[Sample], passes: int, budget: int, per_token: float = 0.0, by_role: bool = False) -> Update:
    """Distributes the samples of an update over forward passes such that the maximum cost of a pass is minimal.

    Samples are sorted by their tokens and cut into runs, so that those with a shared beginning stay together. A run is
    read as a tree, in which a sample costs what it does not share with the sample before it:

        cost[i] = sum over d from shared[i] to read[i] of (per_token + d)

    Args:
        samples: at least one, each of at most `budget` tokens read.
        passes: number of passes, at least 1. With fewer samples, the other passes repeat part of one with weight 0.
        budget: maximum number of tokens of a pass, at least 1.
        per_token: cost of a token without attention, in units of one token's attention to one other: for a dense
            transformer about 6 times the size of its hidden states (8 x 12 h^2 over 16 h operations a layer).
        by_role: whether a pass reads samples of one role only.

    Raises:
        TooManyPassesError: the samples do not fit.
    """

    def role(one: Sample) -> str:
        return one.role if by_role else ""

    samples = sorted(samples, key=lambda one: (role(one), one.ids.astype(">u4").tobytes()))
    groups = [list(group) for _, group in itertools.groupby(samples, key=role)]
    runs = [
        _Runs(np.array([one.read for one in group]), np.array(shared_lengths(group)), per_token) for group in groups
    ]
    needed = [len(one.cut(np.inf, budget) or ()) for one in runs]
    if sum(needed) > passes:
        raise TooManyPassesError(
            f"an update must take at most {passes} forward passes of token_budget={budget} tokens, got one of "
            f"{sum(needed)}; raise gradient_accumulation_steps or token_budget, or lower the tasks of an update."
        )
    order = sorted(_shared_out(runs, needed, passes, budget), key=lambda run: -run[0].cost(*run[1:]))
    rows = [tuple(groups[runs.index(of)][first:last]) for of, first, last in order]
    shortest = min(samples, key=lambda one: one.targets[0])
    rows += [(shortest.silenced(),)] * (passes - len(rows))
    return Update(
        rows=tuple(rows),
        trained=sum(len(one.targets) for one in samples),
        read=sum(of.tokens(first, last) for of, first, last in order),
        apart=sum(one.read for one in samples),
    )


def _shared_out(
    runs: Sequence[_Runs], needed: Sequence[int], passes: int, budget: int
) -> list[tuple[_Runs, int, int]]:
    """The runs of each group. One group has all passes; of several, the group with the costliest run gets more."""
    counts = [passes] if len(runs) == 1 else list(needed)
    found = [one.runs(count, budget) for one, count in zip(runs, counts, strict=True)]
    while sum(counts) < passes:
        costs = [
            max(one.cost(*run) for run in own) if len(own) < len(one) else 0.0
            for one, own in zip(runs, found, strict=True)
        ]
        if not any(costs):
            break
        place = costs.index(max(costs))
        counts[place] += 1
        found[place] = runs[place].runs(counts[place], budget)
    return [(one, *run) for one, own in zip(runs, found, strict=True) for run in own]


def shared_lengths(samples: Sequence[Sample]) -> list[int]:
    """The number of first tokens that each sample shares with the sample before it, in what it reads and predicts."""
    found = [0]
    for one, other in zip(samples[1:], samples[:-1], strict=True):
        both = min(len(one.ids), len(other.ids))
        differs = one.ids[:both] != other.ids[:both]
        first = int(differs.argmax()) if differs.any() else both
        found.append(max(first - 1, 0))
    return found


def pack(samples: Sequence[Sample]) -> dict[str, Tensor]:
    """Samples as one packed tree, in the fields of `TreeRow.pack` of TRL 1.16.

    The tokens that each sample does not share with the sample before it follow one another: for sorted samples this is
    a depth-first traversal of the tree. They form one segment, and the path of the segment is the whole sample. Both
    samples predict the same from a shared token, so it has one label.

    Args:
        samples: of one forward pass, ordered by their tokens.
    """
    ids, positions, paths, segments = [], [], [], [0]
    labels = np.full(sum(one.read for one in samples), -100)
    index, path = [], np.zeros(0, dtype=np.int64)
    whole = []
    for one, shared in zip(samples, shared_lengths(samples), strict=True):
        begun, added = segments[-1], one.read - shared
        path = np.concatenate([path[:shared], np.arange(begun, begun + added)])
        if added:
            ids.append(one.ids[shared:-1])
            positions.append(np.arange(shared, one.read))
            paths.append(path)
            segments.append(begun + added)
        at = path[one.targets - 1]
        labels[at] = one.ids[one.targets]
        index.append(at)
        whole.append(len(at))
    ends = np.cumsum([0, *map(len, paths)])
    return {
        "input_ids": torch.from_numpy(np.concatenate(ids)),
        "position_ids": torch.from_numpy(np.concatenate(positions)),
        "shift_labels": torch.from_numpy(labels[: segments[-1]]),
        "tree_kv_index": torch.from_numpy(np.concatenate(paths)),
        "tree_cu_seqlens_q": torch.tensor(segments, dtype=torch.int32),
        "tree_cu_seqlens_k": torch.from_numpy(ends.astype(np.int32)),
        "tree_max_seqlens": torch.tensor([int(np.diff(segments).max()), max(map(len, paths))]),
        "token_index": torch.from_numpy(np.concatenate(index)),
        "old_log_probs": torch.from_numpy(np.concatenate([one.logprobs for one in samples])),
        "advantages": torch.from_numpy(np.concatenate([one.advantages for one in samples])),
        "segment_id": torch.from_numpy(np.repeat(np.arange(len(samples)), whole)),
    }


class _Runs:
    """Runs of sorted samples, by the index of their first sample and the index after their last."""

    def __init__(self, read: Integers, shared: Integers, per_token: float) -> None:
        def cost(tokens: Integers) -> npt.NDArray[np.float64]:
            return tokens * per_token + tokens * (tokens + 1) / 2

        # Of a sample that opens a run, and of all that are added to the ones before them, summed up.
        self._opens, self._tokens = cost(read), read
        self._costs = np.concatenate([[0.0], np.cumsum(cost(read) - cost(shared))])
        self._added = np.concatenate([[0], np.cumsum(read - shared)])

    def __len__(self) -> int:
        return len(self._opens)

    def cost(self, first: int, last: int) -> float:
        return float(self._opens[first] + self._costs[last] - self._costs[first + 1])

    def tokens(self, first: int, last: int) -> int:
        return int(self._tokens[first] + self._added[last] - self._added[first + 1])

    def cut(self, most: float, budget: int, passes: int | None = None) -> list[int] | None:
        """The first indices of the fewest runs within a cost and a budget of tokens; `None` if there are too many."""
        bounds: list[int] = []
        first, end = 0, len(self._opens)
        while first < end:
            room = most - self._opens[first] + self._costs[first + 1]
            fits = budget - self._tokens[first] + self._added[first + 1]
            last = min(
                int(np.searchsorted(self._costs, room, side="right")) - 1,
                int(np.searchsorted(self._added, fits, side="right")) - 1,
            )
            if last <= first or (passes is not None and len(bounds) == passes):
                return None
            bounds.append(first)
            first = last
        return bounds

    def balanced(self, passes: int, budget: int) -> list[int] | None:
        """As `cut`, into `passes` runs, or one for each sample if there are fewer, with minimal maximum cost."""
        low, high = 0.0, float(self._opens.sum())
        found = self.cut(high, budget, passes)
        if found is None:
            return None
        while high - low > 1e-3 * high:
            middle = (low + high) / 2
            closer = self.cut(middle, budget, passes)
            found, low, high = (found, middle, high) if closer is None else (closer, low, middle)
        while len(found) < min(passes, len(self._opens)):
            found = self._with_one_more(found)
        return found

    def runs(self, passes: int, budget: int) -> list[tuple[int, int]]:
        """As `balanced`, where it is known that they fit."""
        bounds = self.balanced(passes, budget)
        assert bounds is not None
        return list(zip(bounds, [*bounds[1:], len(self)], strict=True))

    def _with_one_more(self, bounds: list[int]) -> list[int]:
        """With the costliest run of several samples cut where the maximum cost of its halves is minimal."""
        runs = zip(bounds, [*bounds[1:], len(self._opens)], strict=True)
        first, last = max((run for run in runs if run[1] - run[0] > 1), key=lambda run: self.cost(*run))
        between = min(range(first + 1, last), key=lambda at: max(self.cost(first, at), self.cost(at, last)))
        return sorted([*bounds, between])
