"""What other libraries say of each other, which nobody here can act on."""

from __future__ import annotations

import logging
import warnings

# TRL 1.16 still says gradient_checkpointing where transformers 5.23 wants activation_checkpointing.
_KNOWN = (
    (r"`gradient_checkpointing` is deprecated", r"transformers\.training_args"),
    (r"`(is_gradient_checkpointing|gradient_checkpointing_(en|dis)able)` is", r"transformers\.modeling_utils"),
)


def silence_known_warnings() -> None:
    """Keeps these warnings, and no others, from being shown."""
    for message, module in _KNOWN:
        warnings.filterwarnings("ignore", message=message, category=FutureWarning, module=module)


def silence_missing_kernel() -> None:
    """Keeps off what bitsandbytes, where it is installed, logs as soon as anything imports it.

    It misses a kernel for 4-bit weights on processors with AVX512-BF16, also where nobody has 4-bit weights, and takes
    its own code instead: the same numbers, more slowly.
    """
    logging.getLogger("bitsandbytes.backends.cpu.ops").addFilter(_is_no_missing_kernel)


def _is_no_missing_kernel(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith("Failed to load CPU gemm_4bit_forward")
