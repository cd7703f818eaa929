"""Recipes: YAML files with all settings of a training run, found by name."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

from hf_credit.registry import did_you_mean
from hf_credit.safe_io import read_text

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


def summary(name: str) -> str:
    """Returns the first sentence of a recipe's opening comment."""
    lines = read_text(RECIPES[name]).splitlines()
    comment = takewhile(lambda line: line.startswith("# ") and not line.startswith("#  "), lines)  # up to a command
    return " ".join(line.removeprefix("# ") for line in comment).partition(". ")[0].rstrip(".:") + "."
