"""Where replays lower the cost of signal: how many branches to hold alive at each depth, and what is gained at most.

With b[j] the variance that arises at depth j of an unbranched walk, c[j] the tokens played there and N[j] branches
alive, the variance of a gradient is sum b[j] / N[j] and its tokens are sum c[j] N[j], where N never falls: a branch
goes on until it ends. This is Neyman's allocation under the constraint of a tree.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Real
from torch import Tensor


def replay_blocks(noise: Real[Tensor, " depths"], tokens: Real[Tensor, " depths"]) -> list[int]:
    """How many depths each block of equal branching holds: the isotonic regression of b / c with weights c.

    Neighbours are pooled while the mean of the earlier block is not below that of the later.

    Args:
        noise: b, the variance that arises at each depth, at least 0.
        tokens: c, played at each depth of an unbranched walk, at least 0.

    Returns:
        The sizes of the blocks, in order; none without depths.

    Raises:
        ValueError: a number is negative or not finite.
    """
    return [size for _, _, size in _pooled(noise, tokens)]


def replay_ratio(noise: Real[Tensor, " depths"], tokens: Real[Tensor, " depths"]) -> float:
    """The cost of signal under the best branching, divided by the cost without: variance times tokens.

        rho = (sum over blocks of sqrt(B C))^2 / (sum b sum c),   B, C the sums of b and c in a block

    1 where b / c does not rise, 8/9 in the limit where b grows in proportion to depth.

    Args:
        noise, tokens: as for `replay_blocks`.

    Returns:
        In (0, 1]; 1 where there is no noise or no token.

    Raises:
        ValueError: as `replay_blocks`.
    """
    whole = float(noise.sum()) * float(tokens.sum())
    least = sum(math.sqrt(b * c) for b, c, _ in _pooled(noise, tokens))
    return min(least**2 / whole, 1.0) if whole > 0 else 1.0


def replay_branches(noise: Real[Tensor, " depths"], tokens: Real[Tensor, " depths"]) -> Float[Tensor, " depths"]:
    """The best number of branches alive at each depth, for one at the first: N = sqrt(B / C) of its block.

    Args:
        noise, tokens: as for `replay_blocks`.

    Returns:
        At least 1, never falling; infinite behind a first block without noise, all 1 where there is none anywhere.

    Raises:
        ValueError: as `replay_blocks`.
    """
    blocks = _pooled(noise, tokens)
    means = [b / c if c else math.inf if b else 0.0 for b, c, _ in blocks]
    alive = [1.0 if mean == means[0] else math.sqrt(mean / means[0]) if means[0] else math.inf for mean in means]
    return torch.tensor(
        [one for one, (_, _, size) in zip(alive, blocks, strict=True) for _ in range(size)], dtype=torch.float64
    )


def _pooled(noise: Tensor, tokens: Tensor) -> list[tuple[float, float, int]]:
    """B, C and size of each block."""
    for name, values in (("noise", noise), ("tokens", tokens)):
        if not bool((values.isfinite() & (values >= 0)).all()):
            raise ValueError(
                f"{name} must be finite and at least 0 at every depth, got {values.tolist()}; correct it."
            )
    blocks: list[tuple[float, float, int]] = []
    for one in zip(noise.tolist(), tokens.tolist(), [1] * len(noise), strict=True):
        blocks.append(one)
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            b, c, size = blocks.pop()
            blocks[-1] = (blocks[-1][0] + b, blocks[-1][1] + c, blocks[-1][2] + size)
    return blocks
