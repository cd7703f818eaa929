"""How much likelier one policy makes a continuation than the policy that played it (paper CVT-RL, eq. 5)."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Real
from torch import Tensor

from hf_credit.credit.inputs import as_mask, result_dtype


def continuation_ratio(
    target: Float[Tensor, "continuations tokens"],
    behaviour: Float[Tensor, "continuations tokens"],
    mask: Bool[Tensor, "continuations tokens"] | Real[Tensor, "continuations tokens"],
    low: float = 0.2,
    high: float = 5.0,
) -> Float[Tensor, " continuations"]:
    """The ratio of a continuation's probabilities, clipped after the product is taken (paper CVT-RL, eq. 5).

        rho = clip(exp(sum_{s > t} log mu(a_s | h_s) - sum_{s > t} log pi_b(a_s | h_s)), low, high)

    The sum runs over the action tokens of all decisions after the one that is credited: not over its own, nor over
    what the world said. A continuation without any has the ratio 1. With `low=0` and `high=inf` nothing is clipped.

    Args:
        target: log-probabilities under mu, in nats; read where `mask` is true.
        behaviour: those under the policy that played, of the same tokens.
        mask: the action tokens of later decisions.
        low, high: the bounds, 0 <= low <= 1 <= high.

    Raises:
        ValueError: a bound is out of range, or a log-probability in the mask is not finite.
    """
    if not 0 <= low <= 1 <= high or math.isnan(high):
        raise ValueError(
            f"the bounds must hold 0 <= low <= 1 <= high, got {low} and {high}; the paper's are 0.2 and 5."
        )
    mask = as_mask(mask)
    for name, logprobs in (("target", target), ("behaviour", behaviour)):
        wrong = mask & ~logprobs.isfinite()
        if bool(wrong.any()):
            raise ValueError(
                f"log-probabilities must be finite where the mask is true, got {logprobs[wrong][0].item()} in {name}; "
                "leave out what the policy cannot have said."
            )
    summed = torch.where(mask, target.double() - behaviour.double(), 0).sum(dim=1)
    return summed.exp().clamp(low, high).to(result_dtype(target))
