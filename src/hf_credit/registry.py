"""Finding a class or a factory by name and building it from options: environments, oracles, methods and the like."""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
from collections.abc import Callable, Mapping
from typing import Any


def find(kind: str, known: Mapping[str, str], name: str) -> Callable[..., Any]:
    """What `name` names, imported only now.

    Args:
        kind: what is looked for, in the singular: an entry point is of the group `hf_credit.<kind>s`.
        known: the library's own, by name, as `"module:attribute"`.
        name: one of these, the name of an entry point of an installed package, or `"package.module:attribute"`.
            Importing runs code, so name only code that you trust.

    Raises:
        ValueError: nothing has this name, or it cannot be imported, in one sentence.
    """
    target = known.get(name) or _entry_points(kind).get(name) or name
    module, _, attribute = target.partition(":")
    if not (module and attribute):
        names = ", ".join(sorted({*known, *_entry_points(kind)}))
        raise ValueError(f"{kind} must be one of {names}, or 'module:object', got {name!r}; pick one of these.")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"{kind} must be importable as 'module:object', got {name!r} ({error}); correct the name or install the "
            "package."
        ) from error
    if not callable(found):
        raise ValueError(f"{kind} must be a class or a factory, got {name!r}, a {type(found).__name__}; name another.")
    return found


def build(kind: str, known: Mapping[str, str], name: str, options: Mapping[str, Any]) -> Any:
    """Builds what `name` names, as for `find`, from options.

    Raises:
        ValueError: `name` or an option is unknown, in one sentence that lists what is known; or the class refuses
            an option's value.
    """
    factory = find(kind, known, name)
    refuse_unknown_options(kind, factory, name, options)
    return factory(**options)


def refuse_unknown_options(kind: str, factory: Callable[..., Any], name: str, options: Mapping[str, Any]) -> None:
    """Refuses options that a factory does not take.

    Raises:
        ValueError: there is one, in one sentence that lists what is known.
    """
    parameters = inspect.signature(factory).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return
    for option in options:
        if option not in parameters:
            raise ValueError(
                f"{kind} {name!r} takes the options {', '.join(parameters) or '(none)'}, got {option!r}; "
                "remove it or use one of these."
            )


def _entry_points(kind: str) -> dict[str, str]:
    return {one.name: one.value for one in importlib.metadata.entry_points(group=f"hf_credit.{kind}s")}
