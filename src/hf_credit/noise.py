"""What other libraries say of each other, which nobody here can act on."""

from __future__ import annotations

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
