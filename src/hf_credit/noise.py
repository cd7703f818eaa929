"""Silences warnings of other libraries about each other, on which no user can act."""

from __future__ import annotations

import logging
import warnings

# TRL 1.16 uses gradient_checkpointing, which transformers 5.23 renamed to activation_checkpointing.
_KNOWN = (
    (r"`gradient_checkpointing` is deprecated", r"transformers\.training_args"),
    (r"`(is_gradient_checkpointing|gradient_checkpointing_(en|dis)able)` is", r"transformers\.modeling_utils"),
)


def silence_known_warnings() -> None:
    """Silences these warnings, and no others."""
    for message, module in _KNOWN:
        warnings.filterwarnings("ignore", message=message, category=FutureWarning, module=module)


def silence_missing_kernel() -> None:
    """Silences a warning of bitsandbytes at its import.

    On CPUs with AVX512-BF16 it lacks a kernel for 4-bit weights, which concerns only users of such weights, and
    uses its own code instead: the same numbers, more slowly.
    """
    logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(_is_no_missing_kernel)


def _is_no_missing_kernel(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Failed to load CPU gemm_4bit_forward")
