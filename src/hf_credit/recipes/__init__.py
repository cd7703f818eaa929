"""Recipes: YAML files with all settings of a training run, found by name."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Any

from hf_credit.registry import did_you_mean
from hf_credit.safe_io import parse_yaml, read_text

RECIPES = {path.stem: path for path in sorted(Path(__file__).parent.glob("*/*.yaml"))}
"""The library's own recipes, by name. Each lies in a folder with the name of its method."""


def find(name: str) -> Path:
    """Returns the file of a recipe.

    Args:
        name: one of `RECIPES`, also if the current folder has a file of this name; or the path of a YAML file.

    Raises:
        ValueError: the recipe does not exist.
    """
    if name in RECIPES:
        return RECIPES[name]
    path = Path(name)
    if path.is_file():
        return path
    remedy = did_you_mean(path.stem, RECIPES) or "name a file, or a recipe that `hf-credit recipes` lists."
    raise ValueError(f"a recipe must be a YAML file or one of hf-credit's own, got {name!r}; {remedy}")


def read(recipe: str | Path | None) -> dict[str, Any]:
    """Returns the fields of a recipe's file; none without a file.

    Raises:
        ValueError: it is no YAML mapping, or its method no name.
    """
    if recipe is None:
        return {}
    try:
        values = parse_yaml(read_text(recipe))
    except ValueError as error:
        raise ValueError(f"a recipe must be YAML, got {str(recipe)!r} ({error}); correct it.") from None
    if not isinstance(values, dict):
        raise ValueError(
            f"a recipe must be a YAML mapping of fields to values, got {str(recipe)!r} without; correct it."
        )
    method = values.get("method")
    if not isinstance(method, str | None):
        raise ValueError(f"a recipe's method must be a name, got {method!r}; write its options as method_options.")
    return values


def summary(name: str) -> str:
    """Returns the first sentence of a recipe's opening comment."""
    lines = read_text(RECIPES[name]).splitlines()
    comment = takewhile(lambda line: line.startswith("# ") and not line.startswith("#  "), lines)  # up to a command
    return " ".join(line.removeprefix("# ") for line in comment).partition(". ")[0].rstrip(".:") + "."
