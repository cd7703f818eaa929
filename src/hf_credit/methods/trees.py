"""The tree of the episodes of an instance that split: its vertices are steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator

from hf_credit.collectors import RolloutBatch
from hf_credit.methods.base import without_errors
from hf_credit.rollouts import Decision


class StepTrees:
    """The trees of all instances: a vertex for the start of each, and one for each step; parents before children.

    Args:
        collected: of this process, without failed episodes.

    Attributes:
        rows: the indices of the trained rollouts in them.
        parents: the parent of each vertex, -1 for a start.
        ends: the vertex at which the episode of each row ends.
    """

    def __init__(self, collected: RolloutBatch) -> None:
        self.rows = without_errors(collected)
        self.parents: list[int] = []
        self.ends: list[int] = []
        self._vertices: dict[Hashable, int] = {}
        self._steps: dict[str, tuple[tuple[Decision, ...], int]] = {}
        for row in self.rows:
            vertex = self._vertex(collected.instances[row], -1)
            for step in collected.episodes[row].steps:
                vertex = self._vertex(step[0].id, vertex)
                self._steps[step[0].id] = (step, vertex)
            self.ends.append(vertex)

    def _vertex(self, name: Hashable, parent: int) -> int:
        if name not in self._vertices:
            self._vertices[name] = len(self.parents)
            self.parents.append(parent)
        return self._vertices[name]

    def decisions(self) -> Iterator[tuple[Decision, int]]:
        """Every decision once, with the vertex of its step."""
        return ((decision, vertex) for step, vertex in self._steps.values() for decision in step)


def step_weights(collected: RolloutBatch) -> dict[str, float]:
    """Weights of the decisions of episodes that split, by their id, so that all steps of an instance have equal
    weight.

        w(step) = w(step before) / number of steps taken from the same state,    w(start) = number of leaves

    The leaves of an instance are its episodes, or as many as there would be if none had ended before its split.
    Without splits all decisions have weight 1. With these weights, a sum over the decisions of a tree with an unbiased
    advantage has the expectation of the sum over as many separate episodes.

    Args:
        collected: of this process; failed episodes do not count as alternatives.
    """
    trees = StepTrees(collected)
    start_of: list[int] = []
    for vertex, parent in enumerate(trees.parents):
        start_of.append(vertex if parent < 0 else start_of[parent])
    alternatives = Counter(trees.parents)
    weights = [0.0] * len(trees.parents)
    for row, end in zip(trees.rows, trees.ends, strict=True):
        weights[start_of[end]] += collected.episodes[row].num_leaves
    for vertex, parent in enumerate(trees.parents):
        if parent >= 0:
            weights[vertex] = weights[parent] / alternatives[parent]
    return {decision.id: weights[vertex] for decision, vertex in trees.decisions()}
