"""Finding a class or a factory by name, building it from options, and saying of what was built how it was."""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib
import importlib.metadata
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

CODE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
"""How code is named, `"package.module:object"`. What is no such name is never imported, so that whoever looks for code
in a file of others (`hf_credit.tasks.spec`) finds all that could be run."""

_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# What papers call their methods.
_ALSO_CALLED = {
    "method": {
        "c3": "replay_loo",
        "ccpo": "counterfactual_grpo",
        "cvt_rl": "constrained_counterfactual",
        "t3": "ppo",
        "vpr": "verifiable_process",
    }
}
_MADE = "_hf_credit_made"  # on what a factory returned: what it was called, and with what


def find(kind: str, known: Mapping[str, str], name: str) -> Callable[..., Any]:
    """What `name` names, imported only now.

    Args:
        kind: what is looked for, in the singular: an entry point is of the group `hf_credit.<kind>s`.
        known: the library's own, by name, as `"module:attribute"`.
        name: one of these, the name of an entry point of an installed package, or `"package.module:attribute"`.
            Importing runs code, so name only code that you trust.

    Raises:
        ValueError: it is no text, nothing has this name, or it cannot be imported, in one sentence.
    """
    if not isinstance(name, str):
        raise ValueError(f"{kind} must be a name, got {name!r}; write the name alone, and its options beside it.")
    target = known.get(name) or _entry_points(kind).get(name) or name
    if not CODE.fullmatch(target):
        remedy = did_you_mean(name, names(kind, known), _ALSO_CALLED.get(kind, {})) or "pick one of these."
        named = ", ".join(names(kind, known))
        raise ValueError(f"{kind} must be one of {named}, or 'module:object', got {name!r}; {remedy}")
    module, _, attribute = target.partition(":")
    try:
        found: Any = functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"{kind} must be importable as 'module:object', got {name!r} ({error}); correct the name or install the "
            "package."
        ) from error
    if not callable(found):
        raise ValueError(f"{kind} must be a class or a factory, got {name!r}, a {type(found).__name__}; name another.")
    return found


def names(kind: str, known: Mapping[str, str]) -> list[str]:
    """Every short name that `find` knows: the library's own, and the entry points of installed packages."""
    return sorted({*known, *_entry_points(kind)})


def did_you_mean(name: str, known: Iterable[str], also_called: Mapping[str, str] | None = None) -> str:
    """A question that ends a refusal of a name: which known one is nearest, by the ratio of difflib; empty if none is.

    Args:
        name: that nothing has.
        known: the names that there are.
        also_called: other names of some of them.
    """
    called = {**{one: one for one in known}, **(also_called or {})}
    close = difflib.get_close_matches(name.lower().replace("-", "_"), called, n=1)
    return f"did you mean {called[close[0]]!r}?" if close else ""


def build(kind: str, known: Mapping[str, str], name: str, options: Mapping[str, Any]) -> Any:
    """Builds what `name` names, as for `find`, from options. A function's result remembers them (see `remember`).

    Raises:
        ValueError: `name` or an option is unknown or missing, in one sentence that lists what is known; or the class
            refuses an option's value.
    """
    factory = find(kind, known, name)
    refuse_options(kind, factory, name, options)
    made = factory(**options)
    if type(made) is not factory:
        remember(made, name, factory, **options)
    return made


def name_and_options(what: str, given: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the name of a part and its options.

    Args:
        what: the part, for the error.
        given: the name, or a mapping of a `name` and its `options`.

    Raises:
        ValueError: `given` is neither.
    """
    if isinstance(given, str):
        return given, {}
    options = (given.get("options") or {}) if isinstance(given, Mapping) else None
    if not isinstance(options, Mapping) or "name" not in given or not given.keys() <= {"name", "options"}:
        raise ValueError(f"{what} must be a name, or a mapping of a name and its options, got {given!r}; correct it.")
    return given["name"], dict(options)


def refuse_options(kind: str, factory: Callable[..., Any], name: str, options: Mapping[str, Any]) -> None:
    """Refuses options that a factory does not take, and the lack of one without which it cannot be called.

    Raises:
        ValueError: there is one, in one sentence that lists what is known.
    """
    parameters = inspect.signature(factory).parameters
    if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        for option in options:
            if option not in parameters:
                remedy = did_you_mean(option, parameters) or "remove it or use one of these."
                raise ValueError(
                    f"{kind} {name!r} takes the options {', '.join(parameters) or '(none)'}, got {option!r}; {remedy}"
                )
    needed = [
        one.name
        for one in parameters.values()
        if one.default is one.empty and one.kind not in _ANY_NUMBER and one.name not in options
    ]
    if needed:
        raise ValueError(
            f"the {kind} {name!r} needs the options {', '.join(needed)}, got {', '.join(options) or 'none'}; add them "
            "to its options."
        )


# What was built, in words


def remembers_its_call(name: str | None = None) -> Callable[[F], F]:
    """Decorates a factory, so that what it returns knows how it was made (see `remembered`).

    Args:
        name: the factory's; its `"module:function"` if `None`.
    """

    def decorate(factory: F) -> F:
        @functools.wraps(factory)
        def call(*args: Any, **kwargs: Any) -> Any:
            made = factory(*args, **kwargs)
            remember(made, name or f"{factory.__module__}:{factory.__qualname__}", factory, *args, **kwargs)
            return made

        return call  # type: ignore[return-value]

    return decorate


def remember(made: Any, name: str, factory: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
    """Notes on `made` that it is what `factory`, known as `name`, returned for these arguments."""
    bound = inspect.signature(factory).bind(*args, **kwargs)
    bound.apply_defaults()
    options: dict[str, Any] = {}
    for parameter in bound.signature.parameters.values():
        value = bound.arguments[parameter.name]
        options |= value if parameter.kind is parameter.VAR_KEYWORD else {parameter.name: value}
    with contextlib.suppress(AttributeError):  # an object with slots is then not described
        object.__setattr__(made, _MADE, (name, options))


def name_of(made: Any) -> str | None:
    """What the factory is called that `made` was built with, where it noted that."""
    return getattr(made, _MADE, (None, {}))[0]


def remembered(made: Any) -> tuple[str, dict[str, Any]] | None:
    """The name, and every option as a plain value, that `made` was built with, where its factory noted them.

    Raises:
        ValueError: an option is no plain value, in one sentence.
    """
    if not hasattr(made, _MADE):
        return None
    name, options = getattr(made, _MADE)
    return name, plain(options)


def described(kind: str, known: Mapping[str, str], made: Any) -> tuple[str, dict[str, Any]]:
    """The name and the options from which `build` makes `made` again: as it was made by its factory, or else its class
    and, of each parameter of its constructor, the attribute of that name.

    Raises:
        ValueError: its class cannot be imported by name, an option is not kept as an attribute, or is no plain value;
            in one sentence.
    """
    noted = remembered(made)
    if noted is not None:
        return noted
    own = type(made)
    options = {}
    for name, parameter in inspect.signature(own).parameters.items():
        if parameter.kind in _ANY_NUMBER:
            continue
        if not hasattr(made, name):
            raise ValueError(
                f"what {kind} {own.__name__!r} was built with must be readable, got no attribute {name!r}; keep the "
                "option under its name."
            )
        options[name] = getattr(made, name)
    return short_name(kind, known, importable(own)), plain(options)


def short_name(kind: str, known: Mapping[str, str], target: str) -> str:
    """The name by which `find` knows `"module:attribute"`; itself where it has no other."""
    own = next((name for name, one in known.items() if one == target), None)
    if own is not None:  # most are, and to ask every installed package takes tens of milliseconds
        return own
    others = _entry_points(kind).items()
    return next((name for name, one in others if one == target and name not in known), target)


def importable(thing: Any) -> str:
    """The `"module:attribute"` of a class or a function.

    Raises:
        ValueError: it cannot be imported by a name, in one sentence.
    """
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    found: Any = None
    if module is not None and module != "__main__" and name is not None:
        try:
            found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
        except (ImportError, AttributeError):
            found = None
    if found is not thing:
        shown = name or repr(thing)[:100]
        raise ValueError(
            f"code that is described must be importable by name, got {shown!r} of {module or type(thing).__name__!r}; "
            "define it at the top of a module, with def or class."
        )
    return f"{module}:{name}"


def plain(value: Any) -> Any:
    """The same as JSON has it: lists for tuples, and the name of a class or a function that can be imported.

    Raises:
        ValueError: there is no such form, in one sentence.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if callable(value) and hasattr(value, "__qualname__"):
        return importable(value)
    raise ValueError(
        f"an option must be a plain value, or code that can be imported by name, got {repr(value)[:100]}; give it in "
        "that form."
    )


# Where code may lie


def code_in(value: Any) -> frozenset[str]:
    """Every text in plain values that reads as the name of code, `"module:object"`."""
    return frozenset(_code_in(value))


def _code_in(value: Any) -> Iterator[str]:
    if isinstance(value, str) and CODE.fullmatch(value):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _code_in(inner)
    elif isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from _code_in(inner)


def search_here(typed: Any) -> None:
    """Adds the current folder to where Python finds modules, if code that a person named lies there and nowhere else.

    The folder comes last, so it hides nothing that is installed. It is added for no other reason: a name in a file of
    others, or a package that is not installed, must not find what came with that file.

    Args:
        typed: plain values that the user gave; texts that are no `"module:object"` change nothing.
    """
    here = str(Path.cwd())
    for name in code_in(typed):
        top = name.partition(":")[0].partition(".")[0]
        elsewhere = any(finder.find_spec(top, None) for finder in sys.meta_path)
        if not elsewhere and PathFinder.find_spec(top, [here]) is not None:
            sys.path.append(here)


@contextlib.contextmanager
def without_here() -> Iterator[None]:
    """Within, Python does not find modules in the current folder, as it does in a notebook and after `-c`."""
    before = list(sys.path)
    sys.path[:] = [path for path in before if path]
    try:
        yield
    finally:
        sys.path[:] = before


def _entry_points(kind: str) -> dict[str, str]:
    return {one.name: one.value for one in importlib.metadata.entry_points(group=f"hf_credit.{kind}s")}
