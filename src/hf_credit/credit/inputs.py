"""Dtypes, masks and checks that the estimators share."""

from __future__ import annotations

import torch
from torch import Tensor

from hf_credit.credit.shapes import Bool, Real, Shaped


def result_dtype(values: Tensor) -> torch.dtype:
    """The dtype of results computed from `values`: theirs, or torch's default dtype if it is not a floating dtype.

    Rewards of 0 and 1 come as integers or booleans; credit cast back to these would be all zeros.
    """
    return values.dtype if values.is_floating_point() else torch.get_default_dtype()


def working_dtype(values: Tensor) -> torch.dtype:
    """The dtype to compute in: that of the result, at least float32."""
    return torch.promote_types(result_dtype(values), torch.float32)


def as_mask(mask: Bool[Tensor, "*shape"] | Real[Tensor, "*shape"], name: str = "the mask") -> Shaped[Tensor, "*shape"]:
    """The mask as booleans.

    Args:
        mask: booleans, or 0 and 1 of any dtype.
        name: of the argument, for the error.

    Raises:
        ValueError: the mask holds another number.
    """
    if mask.dtype == torch.bool:
        return mask
    require((mask == 0) | (mask == 1), mask, f"{name} must be true or false, or 1 or 0", "compare it first")
    return mask == 1


def require(valid: Tensor, values: Tensor, rule: str, remedy: str) -> None:
    """Raises a `ValueError` with the rule, the first of `values` that is not `valid`, and the remedy."""
    if not bool(valid.all()):
        raise ValueError(f"{rule}, got {values[~valid][0].item()}; {remedy}.")
