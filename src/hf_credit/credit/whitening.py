"""Values standardised to mean 0 and variance 1, weighted by tokens."""

from __future__ import annotations

import torch
from jaxtyping import Float, Real, Shaped
from torch import Tensor

from hf_credit.credit.inputs import require, result_dtype
from hf_credit.validators import finite_number


def whitened(
    values: Shaped[Tensor, " members"],
    weights: Real[Tensor, " members"] | None = None,
    eps: float = 1e-8,
    correction: int = 1,
) -> Float[Tensor, " members"]:
    """Subtracts the mean of the values, and divides by their standard deviation.

        A[i] = (x[i] - m) / sqrt(v + eps),    v = sum_i w[i] (x[i] - m)^2 / (sum_i w[i] - correction)

    with the weighted mean m. The weight of a value is the number of tokens that share it: w tokens count as w members.

    Args:
        values: finite; integers and booleans are promoted.
        weights: at least 0; 1 each if `None`.
        eps: added to the variance, at least 0.
        correction: 1 for the sample variance, as in TRL and verl; 0 for the population variance, as in OpenRLHF.

    Returns:
        In the dtype of `values`, torch's default for integers and booleans; exactly 0 if all values of positive
        weight are equal.

    Raises:
        ValueError: `eps` is below 0, or a value is not finite.
    """
    finite_number("eps", eps, 0)
    require(values.isfinite(), values, "values must be finite", "leave out members without a value")
    weights = torch.ones(len(values), dtype=torch.float64) if weights is None else weights.double()
    dtype = result_dtype(values)
    counted = weights > 0
    if not counted.any():
        return torch.zeros(len(values), dtype=dtype)
    shifted = values.double() - values.double()[counted].min()  # equal values are exactly 0, and so is their deviation
    centred = shifted - (weights * shifted).sum() / weights.sum()
    variance = (weights * centred**2).sum() / (weights.sum() - correction).clamp(min=1)
    differ = bool((shifted[counted] > 0).any())
    return (centred / (variance + eps).sqrt() if differ else torch.zeros_like(centred)).to(dtype)
