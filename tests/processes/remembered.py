"""What a training asks its libraries many times, to the same answer."""

from __future__ import annotations

import functools
import sys

ASKED = [
    ("accelerate.utils.imports", None, "_is_package_available"),  # on the disk, some eighty times a training
    ("jinja2.environment", "Environment", "compile"),  # of the card that each checkpoint gets
    ("trl.trainer.utils", None, "version"),  # five packages' for each card
]


def remember() -> None:
    """Whatever of them was imported keeps its answers."""
    for module, kind, name in ASKED:
        if module in sys.modules:
            owner = getattr(sys.modules[module], kind) if kind else sys.modules[module]
            ask = getattr(owner, name, None)  # other versions of TRL may ask in another way
            if ask is not None and not hasattr(ask, "cache_info"):
                setattr(owner, name, functools.cache(ask))
