"""The gain from the best number of live branches at each depth of an episode.

Let b[j] be the variance that arises at depth j of an unbranched episode, c[j] the tokens generated there, and N[j] the
number of live branches. The variance of a gradient is sum b[j] / N[j] and its tokens are sum c[j] N[j]. N never
decreases, since a branch continues to its end. This is Neyman's allocation under the constraint of a tree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from torch import Tensor

from hf_credit.credit.inputs import require
from hf_credit.credit.shapes import Real


def replay_ratio(noise: Real[Tensor, " depths"], tokens: Real[Tensor, " depths"]) -> float:
    """The cost (variance times tokens) with the best branching, divided by the cost without branching.

        rho = (sum over blocks of sqrt(B C))^2 / (sum b sum c),   B, C the sums of b and c in a block

    A block is a run of depths of equal branching: b / c is pooled by isotonic regression with weights c. The ratio is
    1 if b / c does not increase, and approaches 8/9 if b grows in proportion to depth.

    Args:
        noise: b, the variance that arises at each depth, at least 0.
        tokens: c, generated at each depth of an unbranched episode, at least 0.

    Returns:
        In (0, 1]; 1 without noise or tokens.

    Raises:
        ValueError: a number is negative or not finite.
    """
    for name, values in (("noise", noise), ("tokens", tokens)):
        valid = values.isfinite() & (values >= 0)
        require(valid, values, f"{name} must be finite and at least 0 at every depth", "correct it")
    blocks = pooled_blocks(zip(noise.tolist(), tokens.tolist(), strict=True))
    whole = float(noise.sum()) * float(tokens.sum())
    least = sum(math.sqrt(b * c) for b, c, _ in blocks)
    return min(least**2 / whole, 1.0) if whole > 0 else 1.0


def pooled_blocks(pairs: Iterable[tuple[float, float]]) -> list[tuple[float, float, int]]:
    """The blocks in which b / c increases, weighted by c: the sums of b and of c, and the number of pairs."""
    blocks: list[tuple[float, float, int]] = []
    for pair in pairs:
        blocks.append((*pair, 1))
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1]:
            b, c, size = blocks.pop()
            blocks[-1] = (blocks[-1][0] + b, blocks[-1][1] + c, blocks[-1][2] + size)
    return blocks
