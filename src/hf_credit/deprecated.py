"""Aliases, with a warning, for names of earlier releases."""

from __future__ import annotations

import functools
import importlib
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def renamed(module: str, names: Mapping[str, str], moved: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """Returns a `__getattr__` for a module that finds renamed members, with a warning.

    Args:
        module: its `__name__`.
        names: new names by old names.
        moved: for members that moved, their new module by name; found without a warning, and imported on first use.
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


def renamed_arguments(names: Mapping[str, str]) -> Callable[[F], F]:
    """Decorates a function so that it also accepts old names of its arguments, with a warning.

    Args:
        names: new names by old names.
    """

    def decorate(function: F) -> F:
        where = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def accept(*args: Any, **values: Any) -> Any:
            for name in names.keys() & values.keys():
                _warn(where, name, names[name])
                values[names[name]] = values.pop(
                    name
                )  # overrides the new name, which `dataclasses.replace` passes too
            return function(*args, **values)

        return cast(F, accept)

    return decorate


def renamed_fields(names: Mapping[str, str]) -> Callable[[type[T]], type[T]]:
    """Decorates a dataclass so that its fields can also be set and read by old names, with a warning.

    Args:
        names: new names by old names.
    """

    def decorate(owner: type[T]) -> type[T]:
        changed: Any = owner
        changed.__init__ = renamed_arguments(names)(changed.__init__)
        for name, now in names.items():
            setattr(changed, name, _old_field(changed, name, now))
        return owner

    return decorate


def _old_field(owner: type, name: str, now: str) -> property:
    def read(self: Any) -> Any:
        _warn(owner.__name__, name, now)
        return getattr(self, now)

    return property(read)


def _warn(where: str, name: str, now: str) -> None:
    text = f"{where}.{name} is now called {now} and will be removed in 1.0; use the new name."
    warnings.warn(text, DeprecationWarning, stacklevel=3)
