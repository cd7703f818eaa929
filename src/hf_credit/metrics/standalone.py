"""Gathers definitions of this library with all they need, from their sources, into a module that runs without it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from graphlib import TopologicalSorter
from pathlib import Path

_PACKAGE = "hf_credit"
_SOURCES = Path(__file__).parents[2]


def standalone(wanted: Mapping[str, str]) -> str:
    """Returns the text of a module with some definitions and their dependencies, in the order of the modules' imports.

    The text imports names of other packages.

    Args:
        wanted: the module that defines or imports each name.

    Raises:
        ValueError: no module or more than one defines a name, or a definition contains an import from this library.
    """
    gathered = _Gathered()
    for name, module in wanted.items():
        if not gathered.add(module, name):
            raise ValueError(f"a name must be defined to be gathered, got {name!r}, which {module} lacks; name one.")
    return gathered.text() + "\n"


@dataclass
class _Source:
    """The source of a module of this library with its definitions and imports by name."""

    module: str
    lines: list[str]
    definitions: dict[str, list[ast.stmt]] = field(default_factory=dict)
    imports: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, module: str) -> _Source:
        place = _SOURCES.joinpath(*module.split("."))
        files = [one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file()]
        if not files:
            raise ValueError(f"a module must have a source to be read, got {module!r}; name one of {_PACKAGE}.")
        text = files[0].read_text(encoding="utf-8")
        source = cls(module, text.splitlines())
        assigned: list[ast.stmt] = []
        for statement in ast.parse(text).body:
            match statement:
                case ast.Import(names=names):
                    source.imports |= {one.asname or one.name: (one.name, None) for one in names}
                case ast.ImportFrom(module=str(origin), names=names):
                    source.imports |= {one.asname or one.name: (origin, one.name) for one in names}
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    source.definitions[name] = [statement]
                case ast.Assign() | ast.AnnAssign():
                    assigned = [statement]
                    for node in ast.walk(statement):
                        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                            source.definitions[node.id] = assigned
                    continue
                case ast.Expr(value=ast.Constant(value=str())):
                    assigned.append(statement)  # a constant's docstring
                case _:
                    pass
            assigned = []
        return source

    def texts(self) -> list[str]:
        taken = {self.definitions[name][0].lineno: self.definitions[name] for name in self.taken}
        return [self._text(taken[line]) for line in sorted(taken)]

    def _text(self, definition: list[ast.stmt]) -> str:
        first = min([definition[0].lineno, *(one.lineno for one in getattr(definition[0], "decorator_list", []))])
        return "\n".join(self.lines[first - 1 : definition[-1].end_lineno])


@dataclass
class _Gathered:
    """The definitions gathered so far, and the modules that each module imports from."""

    sources: dict[str, _Source] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)
    imported: set[tuple[str, str | None, str]] = field(default_factory=set)
    needs: dict[str, set[str]] = field(default_factory=dict)

    def add(self, module: str, name: str) -> bool:
        """Takes a name of a module with its dependencies; returns whether the module has the name."""
        if module not in self.sources:
            self.sources[module] = _Source.of(module)
        source = self.sources[module]
        if name in source.imports:
            origin, original = source.imports[name]
            if origin.split(".")[0] != _PACKAGE:
                self.imported.add((origin, original, name))
                return True
            if original != name:
                raise ValueError(f"a name must be imported as it is called, got {name!r} in {module}; rename it.")
            self.needs.setdefault(module, set()).add(origin)
            return self.add(origin, name)
        if name not in source.definitions:
            return False
        if self.taken.setdefault(name, module) != module:
            raise ValueError(
                f"a name must mean one thing, got {name!r} of {self.taken[name]} and of {module}; rename."
            )
        if name in source.taken:
            return True
        source.taken.add(name)
        for node in (one for statement in source.definitions[name] for one in ast.walk(statement)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == _PACKAGE:
                raise ValueError(f"{module}.{name} must not import {node.module} within itself; move the line up.")
            if isinstance(node, ast.Name):
                self.add(module, node.id)  # false for built-in, argument and local names
        return True

    def text(self) -> str:
        order = TopologicalSorter({module: sorted(self.needs.get(module, ())) for module in sorted(self.sources)})
        definitions = [text for module in order.static_order() for text in self.sources[module].texts()]
        space = "\n\n\n" if definitions[0].startswith(("@", "class ", "def ")) else "\n\n"
        return self._imports() + space + "\n\n\n".join(definitions)

    def _imports(self) -> str:
        plain = {
            f"import {origin}" + (f" as {name}" if name != origin else "")
            for origin, original, name in self.imported
            if original is None
        }
        named: dict[str, set[str]] = {}
        for origin, original, name in self.imported:
            if original is not None:
                named.setdefault(origin, set()).add(original + (f" as {name}" if name != original else ""))
        lines = sorted(plain) + [
            f"from {origin} import {', '.join(sorted(names))}" for origin, names in sorted(named.items())
        ]
        own = [line for line in lines if line.split()[1].split(".")[0] in sys.stdlib_module_names]
        others = [line for line in lines if line not in own]
        return "\n\n".join("\n".join(part) for part in (["from __future__ import annotations"], own, others) if part)
