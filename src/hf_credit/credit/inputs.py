"""What every estimator takes: numbers of any real dtype, and masks of 0 and 1."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Real, Shaped
from torch import Tensor


def result_dtype(*numbers: Tensor) -> torch.dtype:
    """The dtype of what is made of `numbers`: that of the first, or torch's default where it is no floating dtype.

    Rewards of 0 and 1 come as integers or booleans, and credit that were cast back to these would be all zeros.
    """
    return numbers[0].dtype if numbers[0].is_floating_point() else torch.get_default_dtype()


def working_dtype(*numbers: Tensor) -> torch.dtype:
    """The dtype to compute in: the result's, and float32 at least."""
    return torch.promote_types(result_dtype(*numbers), torch.float32)


def as_mask(mask: Bool[Tensor, "*shape"] | Real[Tensor, "*shape"], name: str = "the mask") -> Shaped[Tensor, "*shape"]:
    """A mask as booleans; 0 and 1 of any dtype will do.

    Args:
        mask: booleans, or numbers that are 0 or 1.
        name: of the argument, for the error.

    Raises:
        ValueError: it holds another number.
    """
    if mask.dtype == torch.bool:
        return mask
    wrong = (mask != 0) & (mask != 1)
    if bool(wrong.any()):
        raise ValueError(f"{name} must be true or false, or 1 or 0, got {mask[wrong][0].item()}; compare it first.")
    return mask == 1
