"""The ratio of a continuation's probabilities under two policies (paper CVT-RL, eq. 5)."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from hf_credit.credit.inputs import as_mask, require, result_dtype


def continuation_ratio(
    target: Float[Tensor, "continuations tokens"],
    behaviour: Float[Tensor, "continuations tokens"],
    mask: Bool[Tensor, "continuations tokens"] | Real[Tensor, "continuations tokens"],
    low: float = 0.2,
    high: float = 5.0,
) -> Float[Tensor, " continuations"]:
    """The ratio of a continuation's probabilities, clipped after the product (paper CVT-RL, eq. 5).

        rho = clip(exp(sum_{s > t} log mu(a_s | h_s) - sum_{s > t} log pi_b(a_s | h_s)), low, high)

    The sum is over the action tokens of all decisions after the credited one, without its own tokens and without
    observations. A continuation without tokens has ratio 1. `low=0` and `high=inf` clip nothing.

    Args:
        target: log-probabilities under mu, in nats; read where `mask` is true.
        behaviour: log-probabilities of the same tokens under pi_b, the policy that played.
        mask: the action tokens of later decisions.
        low, high: the bounds, 0 <= low <= 1 <= high.

    Raises:
        ValueError: a bound is out of range, or a log-probability in the mask is not finite.
    """
    if not 0 <= low <= 1 <= high:
        raise ValueError(
            f"the bounds must hold 0 <= low <= 1 <= high, got {low} and {high}; the paper's are 0.2 and 5."
        )
    mask = as_mask(mask)
    for name, logprobs in (("target", target), ("behaviour", behaviour)):
        rule = f"log-probabilities in {name} must be finite where the mask is true"
        require(~mask | logprobs.isfinite(), logprobs, rule, "leave out tokens that the policy cannot generate")
    summed = torch.where(mask, target.double() - behaviour.double(), 0).sum(dim=1)
    return summed.exp().clamp(low, high).to(result_dtype(target))
