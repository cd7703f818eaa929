"""Finds a class or a factory by name, builds objects from options, and describes how an object was built."""

from __future__ import annotations

import contextlib
import difflib
import functools
import importlib.metadata
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from hf_credit.trust import importable, imported, is_code

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
# The names of methods in their papers.
_ALSO_CALLED = {
    "method": {
        "c3": "replay_loo",
        "ccpo": "counterfactual_grpo",
        "cvt_rl": "constrained_counterfactual",
        "t3": "truncated_ppo",
        "vpr": "verifiable_process",
    }
}
_MADE = "_hf_credit_made"  # an attribute of built objects: the factory's name, and the options


def find(kind: str, known: Mapping[str, str], name: str) -> Callable[..., Any]:
    """Imports the class or factory with a name.

    Args:
        kind: of the object, in the singular; entry points have the group `hf_credit.<kind>s`.
        known: the library's own, `"module:attribute"` by name.
        name: one of these, the name of an entry point of an installed package, or `"package.module:attribute"`.
            Importing runs code, so name only code that you trust.

    Raises:
        ValueError: it is not a text, nothing has this name, or it cannot be imported.
    """
    target = target_of(kind, known, name)
    try:
        found: Any = imported(target)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"{kind} must be importable as 'module:object', got {name!r} ({error}); correct the name or install the "
            "package."
        ) from error
    if not callable(found):
        raise ValueError(f"{kind} must be a class or a factory, got {name!r}, a {type(found).__name__}; name another.")
    return found


def target_of(kind: str, known: Mapping[str, str], name: str) -> str:
    """Returns the `"module:attribute"` that a name stands for, which is not imported; arguments are as for `find`.

    Raises:
        ValueError: it is not a text, or nothing has this name.
    """
    if not isinstance(name, str):
        raise ValueError(f"{kind} must be a name, got {name!r}; write the name alone, and its options next to it.")
    target = known.get(name) or _entry_points(kind).get(name) or name
    if not is_code(target):
        code = "write module:object in ASCII letters, digits, _ and dots." if ":" in name else "pick one of these."
        remedy = did_you_mean(name, names(kind, known), _ALSO_CALLED.get(kind, {})) or code
        named = ", ".join(names(kind, known))
        raise ValueError(f"{kind} must be one of {named}, or 'module:object', got {name!r}; {remedy}")
    return target


def names(kind: str, known: Mapping[str, str]) -> list[str]:
    """Returns every short name that `find` accepts: the library's own, and the entry points of installed packages."""
    return sorted({*known, *_entry_points(kind)})


def did_you_mean(name: str, known: Iterable[str], also_called: Mapping[str, str] | None = None) -> str:
    """Returns a question with the known name nearest to an unknown one, by difflib's ratio; empty if none is near.

    Args:
        name: the unknown name.
        known: the known names.
        also_called: names by their synonyms; those that are not known are ignored.
    """
    called = {one: one for one in known}
    called |= {synonym: one for synonym, one in (also_called or {}).items() if one in called}
    close = difflib.get_close_matches(name.lower().replace("-", "_"), called, n=1)
    return f"did you mean {called[close[0]]!r}?" if close else ""


def name_and_options(what: str, given: str | Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the name of a part and its options.

    Args:
        what: the part, for the error.
        given: the name, or a mapping of a `name` and its `options`, also as JSON.

    Raises:
        ValueError: `given` is neither.
    """
    if isinstance(given, str) and given.lstrip().startswith("{"):
        from hf_credit.safe_io import parse_json  # with YAML, which the mathematics of credit does without

        with contextlib.suppress(ValueError):
            given = parse_json(given)
    if isinstance(given, str):
        return given, {}
    options = (given.get("options") or {}) if isinstance(given, Mapping) else None
    if not isinstance(options, Mapping) or "name" not in given or not given.keys() <= {"name", "options"}:
        raise ValueError(f"{what} must be a name, or a mapping of a name and its options, got {given!r}; correct it.")
    return given["name"], dict(options)


def refuse_options(kind: str, factory: Callable[..., Any], name: str, options: Mapping[str, Any]) -> None:
    """Refuses options that a factory does not have, and the lack of one without a default.

    Raises:
        ValueError: there is such an option; the error lists the known ones.
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


# Descriptions


def remembers_its_call(name: str | None = None) -> Callable[[F], F]:
    """Decorates a factory so that its results record the call (see `remembered`).

    Args:
        name: of the factory; its `"module:function"` if `None`.
    """

    def decorate(factory: F) -> F:
        @functools.wraps(factory)
        def call(*args: Any, **kwargs: Any) -> Any:
            made = factory(*args, **kwargs)
            remember(made, name or f"{factory.__module__}:{factory.__qualname__}", factory, *args, **kwargs)
            return made

        return call  # type: ignore[return-value]

    return decorate


def remember(made: Any, name: str, factory: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    """Records in `made` that `factory`, under `name`, made it from these arguments."""
    bound = inspect.signature(factory).bind(*args, **kwargs)
    bound.apply_defaults()
    options: dict[str, Any] = {}
    for parameter in bound.signature.parameters.values():
        value = bound.arguments[parameter.name]
        options |= value if parameter.kind is parameter.VAR_KEYWORD else {parameter.name: value}
    with contextlib.suppress(AttributeError, TypeError):  # an object with slots or a class has no record
        object.__setattr__(made, _MADE, (name, options))


def name_of(made: Any) -> str | None:
    """Returns the name of the factory that made an object, if recorded."""
    return getattr(made, _MADE, (None, {}))[0]


def remembered(made: Any) -> tuple[str, dict[str, Any]] | None:
    """Returns the name of the factory that made an object, and its options as plain values, if recorded.

    Raises:
        ValueError: an option has no plain form.
    """
    if not hasattr(made, _MADE):
        return None
    name, options = getattr(made, _MADE)
    return name, plain(options)


def plain(value: Any) -> Any:
    """Returns a value in JSON's types: lists for tuples, and names for importable classes and functions.

    Raises:
        ValueError: it has no such form.
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


def _entry_points(kind: str) -> Mapping[str, str]:
    folders = map(os.path.abspath, sys.path)  # an empty or relative entry is another folder after a change of it
    changed = tuple((path, os.stat(path).st_mtime_ns if os.path.isdir(path) else 0) for path in folders)
    return _entry_points_as_of(kind, changed)


@functools.lru_cache(maxsize=16)
def _entry_points_as_of(kind: str, folders: tuple[tuple[str, int], ...]) -> Mapping[str, str]:
    """Reads a file of every installed package, hence once until a folder of the search path changes."""
    return {one.name: one.value for one in importlib.metadata.entry_points(group=f"hf_credit.{kind}s")}


# All of this for one kind


class Registry(Generic[T]):
    """The classes and factories of one kind by name, what they make from options, and how that is described.

    Args:
        kind: in the singular, as for `find`.
        targets: the library's own, `"module:attribute"` by name.
        base: the class of everything that they make.
        remedy: what to do with something else, for the error.
        check: refuses options of a factory, such as `hf_credit.options.check_options`.
        recorded: whether instances of a named class record its name and options, as results of functions do.
    """

    def __init__(
        self,
        kind: str,
        targets: Mapping[str, str],
        base: type = object,
        remedy: str = "name another.",
        *,
        check: Callable[[Callable[..., Any], Mapping[str, Any]], None] = lambda *_: None,
        recorded: bool = False,
    ) -> None:
        self.kind, self.targets = kind, targets
        self._base: Any = base
        self._remedy = remedy
        self._check, self._recorded = check, recorded

    def find(self, name: str) -> Callable[..., T]:
        """Returns the class or the factory with a name.

        Args:
            name: as in `make`.

        Raises:
            ValueError: the name is unknown, or cannot be imported.
        """
        return find(self.kind, self.targets, name)

    def known(self) -> list[str]:
        """Returns the names of the library's own, and of the entry points of installed packages in their group."""
        return names(self.kind, self.targets)

    def make(self, name: str, **options: Any) -> T:
        """Finds a class or a factory by name and calls it with options.

        Args:
            name: one of `known()`, or `"package.module:attribute"` of a class or a factory, which is imported and must
                be code that you trust.
            **options: of the class or the factory.

        Raises:
            ValueError: the name, an option or its value is invalid, or what is made is of another kind.
        """
        return self.build(name, options)

    def build(self, name: str, options: Mapping[str, Any]) -> T:
        """Makes one, as `make`, from options of any name."""
        factory = self.find(name)
        refuse_options(self.kind, factory, name, options)
        self._check(factory, options)
        made = self.accepted(factory(**options), name)
        if self._recorded or type(made) is not factory:
            remember(made, name, factory, **options)
        return made

    def accepted(self, made: Any, name: str | None = None) -> T:
        """Returns what is of this kind, and refuses anything else; `name` is whose result it is."""
        if not isinstance(made, self._base):
            article = "an" if self.kind[0] in "aeiou" else "a"
            home, short = self._base.__module__, self._base.__name__
            package = home.rpartition(".")[0]
            home = package if hasattr(sys.modules[package], short) else home
            source = f" from {name!r}" if name else ""
            raise ValueError(
                f"{article} {self.kind} must be a {home}.{short}, got a {type(made).__name__}{source}; {self._remedy}"
            )
        accepted: T = made
        return accepted

    def resolve(self, given: T | str | Mapping[str, Any] | None) -> T | None:
        """Returns one of this kind, from itself, its name, or a mapping of its `name` and `options`, as in a recipe.

        Raises:
            ValueError: as in `make`, the mapping has other keys, or it is of another kind.
        """
        if isinstance(given, str | Mapping):
            return self.build(*name_and_options(self.kind, given))
        return None if given is None else self.accepted(given)

    def spec(self, made: T) -> tuple[str, dict[str, Any]]:
        """Returns the name and the options, defaults included, from which `make` makes an equal object.

        They are those of its factory if recorded, or else its class, with the attribute for each parameter of the
        constructor.

        Raises:
            ValueError: its class cannot be imported by name, it has no attribute for an option, or that has no plain
                form.
        """
        recorded = remembered(made)
        if recorded is not None:
            return recorded
        owner = type(made)
        options = {}
        for name, parameter in inspect.signature(owner).parameters.items():
            if parameter.kind in _ANY_NUMBER:
                continue
            if not hasattr(made, name):
                raise ValueError(
                    f"the options of {self.kind} {owner.__name__!r} must be readable, got no attribute {name!r}; keep "
                    "the option under its name."
                )
            options[name] = getattr(made, name)
        return self.name_of(importable(owner)), plain(options)

    def name_of(self, target: str) -> str:
        """Returns the name by which `find` finds `"module:attribute"`; `target` itself if it has no other."""
        name = next((name for name, one in self.targets.items() if one == target), None)
        if name is not None:  # the usual case; entry points take tens of milliseconds
            return name
        others = _entry_points(self.kind).items()
        return next((name for name, one in others if one == target and name not in self.targets), target)
