"""Numbers brought to mean 0 and variance 1, token by token."""

from __future__ import annotations

import torch
from jaxtyping import Float, Real, Shaped
from torch import Tensor

from hf_credit.credit.inputs import result_dtype


def whitened(
    values: Shaped[Tensor, " members"],
    weights: Real[Tensor, " members"] | None = None,
    eps: float = 1e-8,
    correction: int = 1,
) -> Float[Tensor, " members"]:
    """Values less their mean, divided by their standard deviation.

        A[i] = (x[i] - m) / sqrt(v + eps),    v = sum_i w[i] (x[i] - m)^2 / (sum_i w[i] - correction)

    with m the weighted mean. A weight is how many tokens share the value, so that w tokens weigh as w members would.

    Args:
        values: finite; integers and booleans are promoted.
        weights: at least 0; 1 each if `None`.
        eps: added to the variance, at least 0.
        correction: 1 for the sample's variance, as in TRL and verl; 0 for the population's, as in OpenRLHF.

    Returns:
        In the dtype of `values`, torch's default for integers and booleans; exactly 0 where the values of positive
        weight are equal.

    Raises:
        ValueError: `eps` is below 0, or a value is not finite.
    """
    if eps < 0:
        raise ValueError(f"eps must be at least 0, got {eps}; 1e-8 is usual.")
    if not bool(values.isfinite().all()):
        raise ValueError("values must be finite, got NaN or infinity; leave out what has no value.")
    weights = torch.ones(len(values), dtype=torch.float64) if weights is None else weights.double()
    dtype = result_dtype(values)
    counted = weights > 0
    if not counted.any():
        return torch.zeros(len(values), dtype=dtype)
    shifted = values.double() - values.double()[counted].min()  # equal values are 0, and so is their deviation
    centred = shifted - (weights * shifted).sum() / weights.sum()
    variance = (weights * centred**2).sum() / (weights.sum() - correction).clamp(min=1)
    spread = bool((shifted[counted] > 0).any())
    return (centred / (variance + eps).sqrt() if spread else torch.zeros_like(centred)).to(dtype)
