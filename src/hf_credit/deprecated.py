"""Names of earlier releases that a user's code may still hold."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any


def renamed(module: str, names: Mapping[str, str], moved: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """The `__getattr__` of a module, which finds what it was called before and warns.

    Args:
        module: its `__name__`.
        names: what is there now, by the name it had.
        moved: by name, the module that holds what was once here; found without a warning, and imported only then.
    """

    def look_up(name: str) -> Any:
        if moved and name in moved:
            return getattr(importlib.import_module(moved[name]), name)
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        text = f"{module}.{name} is now called {names[name]} and will be removed in 1.0; use the new name."
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        now = names[name]
        return look_up(now) if moved and now in moved else getattr(sys.modules[module], now)

    return look_up
