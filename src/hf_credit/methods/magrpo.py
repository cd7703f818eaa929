"""MAGRPO: an episode's return less the mean of its task's, for each of its decisions (a baseline of paper C3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hf_credit.collectors import Group, RolloutBatch
from hf_credit.credit import full_mean, group_scaled
from hf_credit.methods.base import Credit, Method, broadcast_to_decisions, outcomes_of, scatter_rows, without_errors
from hf_credit.rollouts.method_context import MethodContext


@dataclass(frozen=True, kw_only=True)
class GroupMean:
    """A = R - mean of the group's R (paper C3, Appendix H). Episodes that failed get no credit.

    Args:
        normalise: whether the credits of a group are divided by their standard deviation.
        return_clip: returns are clipped to [-return_clip, return_clip].
    """

    needs: ClassVar[frozenset[str]] = frozenset({"groups"})

    normalise: bool = False
    return_clip: float = 10.0

    def __post_init__(self) -> None:
        if not self.return_clip > 0:
            raise ValueError(f"return_clip must be above 0, got {self.return_clip}; the paper clips to 10.")

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: None = None) -> Credit:
        rows = without_errors(collected)
        returns, groups = outcomes_of(collected, rows)
        centred = full_mean(returns.clamp(-self.return_clip, self.return_clip), groups)
        centred = group_scaled(centred, groups) if self.normalise else centred
        return Credit(decisions=broadcast_to_decisions(collected, scatter_rows(collected, rows, centred)))


def magrpo(group_size: int = 8, normalise_credit: bool = False, return_clip: float = 10.0) -> Method:
    """The method.

    Args:
        group_size: episodes of each task row.
        normalise_credit, return_clip: as in `GroupMean`.
    """
    estimator = GroupMean(normalise=normalise_credit, return_clip=return_clip)
    return Method(name="magrpo", collector=Group(size=group_size), estimator=estimator)
