"""Values of the states of a tree of rollouts, and the change of value in each branch (CARL, AT2PO)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from hf_credit.credit.inputs import require, result_dtype


def turn_values(parents: Int[Tensor, " vertices"], leaves: Shaped[Tensor, " vertices"]) -> Float[Tensor, " vertices"]:
    """The value of each vertex of a tree (CARL, arXiv:2512.04949; AT2PO, arXiv:2601.04767).

        V(v) = the value of a leaf, else the plain mean of V over the children

    Every child has the same weight, whatever its number of leaves.

    Args:
        parents: the index of each vertex's parent, which comes before it; -1 for a root.
        leaves: the values of the leaves, finite; other entries are ignored.

    Returns:
        In 64 bits; a vertex whose children have equal values has exactly their value.

    Raises:
        ValueError: a parent does not come before its child.
    """
    vertices = torch.arange(len(parents))
    require(parents < vertices, parents, "a parent must come before its children", "order vertices from the roots on")
    children: list[list[float]] = [[] for _ in parents]
    values = leaves.double().tolist()
    for vertex, parent in reversed(list(enumerate(parents.tolist()))):
        if below := children[vertex]:
            lowest = min(below)  # relative to it, equal values have a mean that equals them
            values[vertex] = lowest + sum(value - lowest for value in reversed(below)) / len(below)
        if parent >= 0:
            children[parent].append(values[vertex])
    return torch.tensor(values, dtype=torch.float64)


def branch_advantages(
    parents: Int[Tensor, " vertices"], outcomes: Shaped[Tensor, " vertices"]
) -> tuple[Float[Tensor, " vertices"], Int[Tensor, " vertices"]]:
    """The change of value in the branch to each vertex (CARL, arXiv:2512.04949).

        A(u -> v) = V(v) - V(u),    V as in `turn_values`

    Args:
        parents: as in `turn_values`.
        outcomes: of the leaves, finite, in the unit of the reward; other entries are ignored.

    Returns:
        The advantage of the branch to each vertex, exactly 0 for roots and if all siblings have the same value, in the
        dtype of `outcomes`, torch's default for integers and booleans; and its number of siblings, itself included, 0
        for roots.

    Raises:
        ValueError: a parent does not come before its child.
    """
    values = turn_values(parents, outcomes)
    root = parents < 0
    advantages = torch.where(root, 0, values - values[parents])
    siblings = torch.where(root, 0, torch.bincount(parents + 1, minlength=len(parents) + 1)[parents + 1])
    return advantages.to(result_dtype(outcomes)), siblings
