"""Names of the version before: each is read as its new name for one version, with a warning in scripts and recipes."""

from __future__ import annotations

import functools
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

C = TypeVar("C", bound=type[Any])

TASK_KEYS = {
    "environment": "task",
    "environment_options": "task_options",
    "collaboration": "task",
    "collaboration_options": "task_options",
}
"""In descriptions of tasks, new names by old ones."""


def warn_of_old_name(old: str, new: str) -> None:
    """Warns of a name that the next version does not know; Python shows each such sentence once."""
    warnings.warn(f"{old} is deprecated and goes with the next version; write {new}.", FutureWarning, stacklevel=3)


def with_new_keys(
    values: Mapping[str, Any], renamed: Mapping[str, str] = TASK_KEYS, warn: bool = False
) -> dict[str, Any]:
    """Returns values under their new names, without old ones that are empty.

    Args:
        renamed: new names by old ones.
        warn: whether a person wrote the old names; not if a file of the version before has them.

    Raises:
        ValueError: two of them have the same new name.
    """
    known = {name: value for name, value in values.items() if name not in renamed}
    for old, new in renamed.items():
        value = values.get(old)
        if value in (None, "", {}):
            continue
        if known.get(new):
            raise ValueError(f"{new} must be given once, got {known[new]!r} beside {old} {value!r}; leave one out.")
        if warn:
            warn_of_old_name(old, new)
        known[new] = value
    return known


def old_arguments(renamed: Mapping[str, str]) -> Callable[[C], C]:
    """Decorates a class whose keyword arguments had other names."""

    def decorate(kind: C) -> C:
        init: Any = kind.__init__  # type: ignore[misc]

        @functools.wraps(init)
        def with_old_names(self: Any, *args: Any, **values: Any) -> None:
            init(self, *args, **with_new_keys(values, renamed, warn=True))

        type.__setattr__(kind, "__init__", with_old_names)
        return kind

    return decorate


def old_names(module: str, renamed: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a module in which names were others.

    Args:
        renamed: new names by old ones.
    """

    def attribute(name: str) -> Any:
        if name not in renamed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_of_old_name(f"{module}.{name}", renamed[name])
        return getattr(sys.modules[module], renamed[name])

    return attribute
