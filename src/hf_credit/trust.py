"""Whose code this is, and who agreed that it runs: the only module that imports code by a name from elsewhere.

Code has one form of name, `"package.module:object"`. A text of another form is never imported, so `code_in` finds in
the values of a file all code that they could make run. Consent is a value that is made where a person typed something.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import FrameType
from typing import Any

_CODE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


@dataclass(frozen=True)
class Consent:
    """What a person typed, so that it may run or be opened. A file gives none, and the name of a task is none.

    Attributes:
        code: names of code.
        options: names of options of a task, whose values the person gave.
        actions: whether recorded actions may be played again where they act outside of this process.
    """

    code: frozenset[str] = frozenset()
    options: frozenset[str] = frozenset()
    actions: bool = False

    def to_code(self, typed: Any) -> Consent:
        """Consent also to all code in plain values that the person typed."""
        return dataclasses.replace(self, code=self.code | code_in(typed))

    def to_options(self, typed: Mapping[str, Any]) -> Consent:
        """Consent also to options of a task, and to the code in their values."""
        return dataclasses.replace(self.to_code(typed), options=self.options | typed.keys())


NO_CONSENT = Consent()


def is_code(value: Any) -> bool:
    """Whether a value is a name of code, `"package.module:object"` in ASCII identifiers."""
    return isinstance(value, str) and _CODE.fullmatch(value) is not None


def code_in(value: Any) -> frozenset[str]:
    """Returns every text in plain values that is a name of code."""
    value = list(value.values()) if isinstance(value, Mapping) else value
    if isinstance(value, list | tuple | set | frozenset):
        return frozenset[str]().union(*map(code_in, value))
    return frozenset([value]) if is_code(value) else frozenset()


def imported(name: str) -> Any:
    """Imports the object with a name of code, which runs the code of its module.

    Raises:
        ImportError: it is not the name of code, or its module cannot be imported.
        AttributeError: its module has no such object.
    """
    if not is_code(name):
        raise ImportError("it is not a module and a function or class with a colon between them")
    module, _, attribute = name.partition(":")
    return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))


def on_demand(
    package: str, homes: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns `__getattr__` and `__dir__` of a package that imports names on first use, given those of each module."""
    found = {name: f"{package}.{home}:{name}" for home, names in homes.items() for name in names}

    def get(name: str) -> Any:
        if name not in found:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return imported(found[name])

    return get, lambda: sorted({*vars(sys.modules[package]), *found})


def importable(thing: Any) -> str:
    """Returns the name of code by which `imported` finds a class or a function.

    Raises:
        ValueError: it has none.
    """
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    found: Any = None
    if module not in (None, "__main__"):
        with contextlib.suppress(ImportError, AttributeError):
            found = imported(f"{module}:{name}")
    if found is not thing:
        shown = name or repr(thing)[:100]
        raise ValueError(
            f"code must be importable by name, got {shown!r} of {module or type(thing).__name__!r}; define it at the "
            "top of a module, with def or class."
        )
    return f"{module}:{name}"


def class_name(value: Any) -> str:
    """Returns `"module:class"` of a value."""
    return f"{type(value).__module__}:{type(value).__qualname__}"


def installed(package: str) -> bool:
    """Whether Python finds a package, which is not imported."""
    return importlib.util.find_spec(package) is not None


class _Here:
    """Finds modules of a folder that a person named, and what they import, if no other finder does."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.names: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Returns the spec of a module, as `importlib` asks for it; others find those of a package."""
        if path is not None or not (name in self.names or self._asks()):
            return None
        found = PathFinder.find_spec(name, [self.folder])
        self.names |= set() if found is None else {name}
        return found

    def _asks(self) -> bool:
        """Whether code of these modules runs now, which may import also through a library."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None:
            if str(frame.f_globals.get("__name__")).partition(".")[0] in self.names:
                return True
            frame = frame.f_back
        return False


def search_here(typed: Any) -> None:
    """Makes Python find code that the user named in the current folder, with what it imports, if it is nowhere else.

    Nothing else is found there: a name in an untrusted file, or of a missing package, must not find code that came
    with that file. Of the plain values that were typed, texts other than names of code have no effect.
    """
    here = str(Path.cwd())
    for name in code_in(typed):
        top = name.partition(":")[0].partition(".")[0]
        elsewhere = any(finder.find_spec(top, None) for finder in sys.meta_path)
        if not elsewhere and PathFinder.find_spec(top, [here]) is not None:
            known = [one for one in sys.meta_path if isinstance(one, _Here) and one.folder == here]
            finder = known[0] if known else _Here(here)
            sys.meta_path += [] if known else [finder]
            finder.names.add(top)


@contextlib.contextmanager
def only_typed_here(typed: Any) -> Iterator[None]:
    """Within the context Python finds no code in the current folder but what `search_here` finds; it finds all in a
    notebook and after `-c`."""
    before = list(sys.path)
    sys.path[:] = [path for path in before if path]
    try:
        search_here(typed)
        yield
    finally:
        sys.path[:] = before
