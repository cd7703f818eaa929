"""How to install packages that only some parts of the library need."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any

from packaging.requirements import Requirement


class MissingPackageError(ImportError, ValueError):
    """A package of an extra cannot be imported."""


def needed(what: str, module: str, extra: str) -> Any:
    """Returns the imported module of an extra.

    Raises:
        MissingPackageError: it cannot be imported; the error begins with `what`, as in `"OpenEnv environments need"`.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingPackageError(f"{what} the package {package}, got none; run {how_to_install(extra)}.") from error


def how_to_install(extra: str) -> str:
    """Returns the command that installs the requirements of an extra, such as `pip install 'matplotlib>=3.9.2'`.

    It names the packages and not `hf-credit[extra]`, which pip would look for in an index.
    """
    found = [Requirement(line) for line in importlib.metadata.requires("hf-credit") or ()]
    needed = [one for one in found if one.marker is not None and one.marker.evaluate({"extra": extra})]
    return f"pip install {' '.join(map(unmarked, needed))}"


def unmarked(requirement: Requirement) -> str:
    """Returns a requirement as pip reads it on a command line, such as `'matplotlib>=3.9.2'`, without its marker."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"'{requirement.name}{extras}{requirement.specifier}'"
