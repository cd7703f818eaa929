"""Names of the version before, each read as its new name for one version; scripts and recipes get a warning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

TASK_KEYS = {f"{old}{part}": f"task{part}" for old in ("environment", "collaboration") for part in ("", "_options")}
"""In descriptions of tasks, new names by old ones."""

REMOVED = {
    **dict.fromkeys(("critic_past_updates", "critic_held_out", "critic_whiten"), "it gained nothing; leave it out"),
    **dict.fromkeys(("trust_region_projection", "trust_region_regression"), "eq. 8 projects alone; leave it out"),
}
"""Settings of the version before that are gone, each with the reason and a remedy."""


def warn_of_old_name(old: str, new: str) -> None:
    """Warns of a name that the next version does not know; Python shows each such sentence once."""
    warnings.warn(f"{old} is deprecated and goes with the next version; write {new}.", FutureWarning, stacklevel=3)


def with_new_keys(
    values: Mapping[str, Any], renamed: Mapping[str, str] = TASK_KEYS, warn: bool = False
) -> dict[str, Any]:
    """Returns values under their new names, without old ones that are empty; files of the version before have both.

    Raises:
        ValueError: two that differ have the same new name.
    """
    known = {name: value for name, value in values.items() if name not in renamed}
    for old, new in renamed.items():
        if (value := values.get(old)) in (None, "", {}):
            continue
        if known.get(new) not in (None, "", {}, value):
            raise ValueError(f"{new} must be given once, got {known[new]!r} and {old} {value!r}; leave one out.")
        if warn:
            warn_of_old_name(old, new)
        known[new] = value
    return known


def old_names(module: str, renamed: Mapping[str, str]) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a module, for its old names."""

    def attribute(name: str) -> Any:
        if name not in renamed:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn_of_old_name(f"{module}.{name}", renamed[name])
        return getattr(sys.modules[module], renamed[name])

    return attribute
