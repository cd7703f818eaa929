"""Trees of steps, from the episodes of an instance that share their first steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator

from hf_credit.collectors import RolloutBatch
from hf_credit.methods.base import without_errors
from hf_credit.rollouts import Decision


class StepTrees:
    """The trees of all instances. The root of an instance and each of its steps are vertices, parents first.

    Args:
        collected: the rollouts of this process; failed episodes are left out.

    Attributes:
        rows: the indices of the trained rollouts in the trees.
        parents: the parent of each vertex; -1 for a root.
        paths: the vertices of the episode of each row.
    """

    def __init__(self, collected: RolloutBatch) -> None:
        self.rows = without_errors(collected)
        self.parents: list[int] = []
        self.paths: list[list[int]] = []
        self._vertices: dict[Hashable, int] = {}
        self._steps: dict[str, tuple[tuple[Decision, ...], int]] = {}
        for row in self.rows:
            path = [self._vertex(collected.instances[row], -1)]
            for step in collected.episodes[row].steps:
                path.append(self._vertex(step[0].id, path[-1]))
                self._steps[step[0].id] = (step, path[-1])
            self.paths.append(path)

    def _vertex(self, name: Hashable, parent: int) -> int:
        if name not in self._vertices:
            self._vertices[name] = len(self.parents)
            self.parents.append(parent)
        return self._vertices[name]

    def decisions(self) -> Iterator[tuple[Decision, int]]:
        """Yields every decision once, with the vertex of its step."""
        return ((decision, vertex) for step, vertex in self._steps.values() for decision in step)


def step_weights(collected: RolloutBatch) -> dict[str, float]:
    """Returns the weights of decisions, by id, with which all steps of an instance have equal weight.

        w(step) = w(step before) / number of steps taken from the same state,    w(root) = number of leaves

    The leaves of an instance are its episodes, where an episode that ended before a planned fork counts as the leaves
    of that fork. Without forks all weights are 1. With these weights and unbiased advantages, the sum over the
    decisions of a tree has the expectation of the sum over as many independent episodes.
    """
    trees = StepTrees(collected)
    root_of: list[int] = []
    for vertex, parent in enumerate(trees.parents):
        root_of.append(vertex if parent < 0 else root_of[parent])
    alternatives = Counter(trees.parents)
    weights = [0.0] * len(trees.parents)
    for row, (*_, end) in zip(trees.rows, trees.paths, strict=True):
        weights[root_of[end]] += collected.episodes[row].num_leaves
    for vertex, parent in enumerate(trees.parents):
        if parent >= 0:
            weights[vertex] = weights[parent] / alternatives[parent]
    return {decision.id: weights[vertex] for decision, vertex in trees.decisions()}
