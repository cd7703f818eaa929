"""Names of earlier releases that a user's code may still hold."""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


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


def renamed_fields(names: Mapping[str, str]) -> Callable[[type[T]], type[T]]:
    """A decorator of a dataclass whose fields are still given and read by the names they had before, with a warning.

    Args:
        names: what a field is called now, by the name it had.
    """

    def decorate(owner: type[T]) -> type[T]:
        changed: Any = owner
        initialise = changed.__init__

        @functools.wraps(initialise)
        def accept(self: Any, *args: Any, **values: Any) -> None:
            for name in names.keys() & values.keys():
                _warn_of_field(changed, name, names[name])
                values[names[name]] = values.pop(name)  # `dataclasses.replace` has given the field by its new name too
            initialise(self, *args, **values)

        changed.__init__ = accept
        for name, now in names.items():
            setattr(changed, name, _old_field(changed, name, now))
        return owner

    return decorate


def _old_field(owner: type, name: str, now: str) -> property:
    def read(self: Any) -> Any:
        _warn_of_field(owner, name, now)
        return getattr(self, now)

    return property(read)


def _warn_of_field(owner: type, name: str, now: str) -> None:
    text = f"{owner.__name__}.{name} is now called {now} and will be removed in 1.0; use the new name."
    warnings.warn(text, DeprecationWarning, stacklevel=3)
