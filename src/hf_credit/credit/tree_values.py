"""Values of the states of a tree of rollouts, and what each branch changes (CARL)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from hf_credit.credit.inputs import result_dtype


def branch_advantages(
    parents: Int[Tensor, " vertices"], outcomes: Shaped[Tensor, " vertices"]
) -> tuple[Float[Tensor, " vertices"], Int[Tensor, " vertices"]]:
    """What the branch to a vertex changed in value (CARL, arXiv:2512.04949).

        V(v) = outcome of a leaf, else the plain mean of V over the children,    A(u -> v) = V(v) - V(u)

    Every child weighs the same, however many leaves are under it.

    Args:
        parents: the index of each vertex's parent, which comes before it; -1 for a root.
        outcomes: of the leaves, finite, in the unit of the reward; anything on the others.

    Returns:
        The advantage of the branch to each vertex, exactly 0 where the siblings are worth the same and for roots, in
        the dtype of `outcomes`, torch's default for integers and booleans; and how many siblings it has, itself
        included, 0 for roots.

    Raises:
        ValueError: a parent does not come before its child.
    """
    if bool((parents >= torch.arange(len(parents))).any()):
        raise ValueError("a parent must come before its children, got one behind; order vertices from the roots on.")
    above, values = parents.tolist(), outcomes.double().tolist()
    children: list[list[int]] = [[] for _ in above]
    for vertex, parent in enumerate(above):
        if parent >= 0:
            children[parent].append(vertex)
    advantages, siblings = [0.0] * len(above), [0] * len(above)
    for vertex in reversed(range(len(above))):
        if own := children[vertex]:
            # Relative to the lowest, so that equal values have a mean that equals them.
            lowest = min(values[child] for child in own)
            beyond = sum(values[child] - lowest for child in own) / len(own)
            values[vertex] = lowest + beyond
            for child in own:
                advantages[child], siblings[child] = values[child] - lowest - beyond, len(own)
    dtype = result_dtype(outcomes)
    return torch.tensor(advantages, dtype=dtype), torch.tensor(siblings, dtype=torch.long)
