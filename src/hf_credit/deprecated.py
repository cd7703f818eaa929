"""Names of earlier releases that a user's code may still hold."""

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


def renamed_arguments(names: Mapping[str, str]) -> Callable[[F], F]:
    """A decorator of a function whose arguments are still given by the names they had before, with a warning.

    Args:
        names: what an argument is called now, by the name it had.
    """

    def decorate(function: F) -> F:
        where = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def accept(*args: Any, **values: Any) -> Any:
            for name in names.keys() & values.keys():
                _warn(where, name, names[name])
                values[names[name]] = values.pop(name)  # `dataclasses.replace` has given a field by its new name too
            return function(*args, **values)

        return cast(F, accept)

    return decorate


def renamed_fields(names: Mapping[str, str]) -> Callable[[type[T]], type[T]]:
    """A decorator of a dataclass whose fields are still given and read by the names they had before, with a warning.

    Args:
        names: what a field is called now, by the name it had.
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
