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
from hf_credit.rollouts.batches import token_order
from hf_credit.trainers.packing import Integers, Runs, Tree


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
        idle: number of passes, the last ones, that repeat part of a sample with weight 0.
        read: number of tokens that all passes read.
        apart: number of tokens that would be read with one pass for each sample.
    """

    rows: tuple[tuple[Sample, ...], ...]
    idle: int
    read: int
    apart: int


def plan(samples: Sequence[Sample], passes: int, budget: int, per_token: float = 0.0, by_role: bool = False) -> Update:
    """Distributes the samples of an update over forward passes such that the maximum cost of a pass is minimal.

    Samples are sorted by their tokens and cut into `Runs`, so that those with a shared beginning stay together.

    Args:
        samples: at least one, each of at most `budget` tokens read.
        passes: number of passes, at least 1. With fewer samples, the other passes repeat part of one with weight 0.
        budget: maximum number of tokens of a pass, at least 1.
        per_token: as for `Runs`.
        by_role: whether a pass reads samples of one role only.

    Raises:
        TooManyPassesError: the samples do not fit.
    """

    def role(one: Sample) -> str:
        return one.role if by_role else ""

    samples = sorted(samples, key=lambda one: (role(one), token_order(one.ids)))
    groups = [list(group) for _, group in itertools.groupby(samples, key=role)]
    runs = [Runs([one.ids for one in group], per_token) for group in groups]
    needed = [len(one.cut(np.inf, budget) or ()) for one in runs]
    if sum(needed) > passes:
        raise TooManyPassesError(
            f"an update must take at most {passes} forward passes of token_budget={budget} tokens, got one of "
            f"{sum(needed)}; raise gradient_accumulation_steps or token_budget, or lower the tasks of an update."
        )
    order = sorted(_shared_out(runs, needed, passes, budget), key=lambda run: -run[0].cost(*run[1:]))
    rows = [tuple(groups[runs.index(of)][first:last]) for of, first, last in order]
    shortest = min(samples, key=lambda one: one.targets[0])
    return Update(
        rows=(*rows, *[(shortest.silenced(),)] * (passes - len(rows))),
        idle=passes - len(rows),
        read=sum(of.tokens(first, last) for of, first, last in order),
        apart=sum(one.read for one in samples),
    )


def _shared_out(runs: Sequence[Runs], needed: Sequence[int], passes: int, budget: int) -> list[tuple[Runs, int, int]]:
    """The runs of each group. One group has all passes; of several, the group with the costliest run gets more."""
    counts = [passes] if len(runs) == 1 else list(needed)
    found = [one.balanced(count, budget) for one, count in zip(runs, counts, strict=True)]
    while sum(counts) < passes:
        costs = [
            max(one.cost(*run) for run in own) if len(own) < len(one) else 0.0
            for one, own in zip(runs, found, strict=True)
        ]
        if not any(costs):
            break
        place = costs.index(max(costs))
        counts[place] += 1
        found[place] = runs[place].balanced(counts[place], budget)
    return [(one, *run) for one, own in zip(runs, found, strict=True) for run in own]


def pack(samples: Sequence[Sample]) -> dict[str, Tensor]:
    """Samples as one packed tree, in the fields of `TreeRow.pack` of TRL 1.16.

    What each sample adds to the tree is one segment, and the path of the segment is the whole sample.

    Args:
        samples: of one forward pass, ordered by their tokens.
    """
    tree = Tree.of([one.ids for one in samples])
    paths = [tree.paths[index] for index in np.flatnonzero(np.diff(tree.starts)).tolist()]
    segments, ends = np.unique(tree.starts), np.cumsum([0, *map(len, paths)])
    index = [path[one.targets - 1] for one, path in zip(samples, tree.paths, strict=True)]
    labels = np.full(len(tree.ids), -100)
    for one, at in zip(samples, index, strict=True):
        labels[at] = one.ids[one.targets]
    return {
        "input_ids": torch.from_numpy(tree.ids),
        "position_ids": torch.from_numpy(tree.positions),
        "shift_labels": torch.from_numpy(labels),
        "tree_kv_index": torch.from_numpy(np.concatenate(paths)),
        "tree_cu_seqlens_q": torch.from_numpy(segments.astype(np.int32)),
        "tree_cu_seqlens_k": torch.from_numpy(ends.astype(np.int32)),
        "tree_max_seqlens": torch.tensor([int(np.diff(segments).max()), max(map(len, paths))]),
        "token_index": torch.from_numpy(np.concatenate(index)),
        "old_log_probs": torch.from_numpy(np.concatenate([one.logprobs for one in samples])),
        "advantages": torch.from_numpy(np.concatenate([one.advantages for one in samples])),
        "segment_id": torch.from_numpy(np.repeat(np.arange(len(samples)), [len(one.targets) for one in samples])),
    }
