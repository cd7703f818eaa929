"""Shapes of tensors in signatures. Only people and tests read them: without jaxtyping they say nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Real, Shaped
else:
    try:
        from jaxtyping import Bool, Float, Int, Real, Shaped
    except ModuleNotFoundError:

        class _Unchecked:
            def __class_getitem__(cls, shape: Any) -> Any:
                return cls

        Bool = Float = Int = Real = Shaped = _Unchecked

__all__ = ["Bool", "Float", "Int", "Real", "Shaped"]
