"""Finding a class by its public name and building it from options, for environments and oracles alike."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping
from typing import Any


def build(kind: str, classes: Mapping[str, str], name: str, options: Mapping[str, Any]) -> Any:
    """Builds the class that `classes` names as `"module:Class"`, imported only now.

    Raises:
        ValueError: `name` or an option is unknown, in one sentence that lists what is known; or the class refuses
            an option's value.
    """
    if name not in classes:
        raise ValueError(f"{kind} must be one of {', '.join(sorted(classes))}, got {name!r}; pick one of these.")
    module, _, attribute = classes[name].partition(":")
    factory = getattr(importlib.import_module(module), attribute)
    known = list(inspect.signature(factory).parameters)
    for option in options:
        if option not in known:
            raise ValueError(
                f"{kind} {name!r} takes the options {', '.join(known) or '(none)'}, got {option!r}; "
                "remove it or use one of these."
            )
    return factory(**options)
