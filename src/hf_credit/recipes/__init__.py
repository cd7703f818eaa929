"""Recipes: the settings of whole trainings, one YAML file each in this package, found by name."""

from __future__ import annotations

from pathlib import Path

from hf_credit.registry import did_you_mean
from hf_credit.safe_io import read_text

RECIPES = {path.stem: path for path in sorted(Path(__file__).parent.glob("*/*.yaml"))}
"""The library's own, by name; the folder of each is called as the trainer's module."""


def find(name: str) -> Path:
    """The file of a recipe.

    Args:
        name: of one of `RECIPES`, which no file of the current folder hides, or the path of a YAML file. A path from
            before recipes lay in the package, `trainers/<method>/<name>.yaml`, is still that of its recipe.

    Raises:
        ValueError: there is no such recipe.
    """
    path = Path(name)
    own = RECIPES.get(path.stem)
    if own is not None and (name == path.stem or (path == Path("trainers", *own.parts[-2:]) and not path.is_file())):
        return own
    if path.is_file():
        return path
    remedy = did_you_mean(path.stem, RECIPES) or "name a file, or one that `hf-credit recipes` lists."
    raise ValueError(f"a recipe must be a YAML file or one of hf-credit's own, got {name!r}; {remedy}")


def summary(name: str) -> str:
    """The first sentence of a recipe's opening comment."""
    comment = []
    for line in read_text(RECIPES[name]).splitlines():
        if not line.startswith("# ") or line.startswith("#  "):  # its end, or a command
            break
        comment.append(line.removeprefix("# "))
    return " ".join(comment).partition(". ")[0].rstrip(".:") + "."
