"""What other libraries would write between the lines of a command, which its user cannot act on."""

from __future__ import annotations

import logging
import warnings

# TRL 1.16 still says gradient_checkpointing where transformers 5.23 wants activation_checkpointing.
_KNOWN = (
    (r"`gradient_checkpointing` is deprecated", r"transformers\.training_args"),
    (r"`(is_gradient_checkpointing|gradient_checkpointing_(en|dis)able)` is", r"transformers\.modeling_utils"),
)


def be_quiet() -> None:
    """Keeps off the terminal: known warnings of libraries about each other, and bars for writing and reading files."""
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    # bitsandbytes, where it is installed, misses a kernel for 4-bit weights on processors as soon as it is imported.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    for message, module in _KNOWN:
        warnings.filterwarnings("ignore", message=message, category=FutureWarning, module=module)
