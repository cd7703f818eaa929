"""Recipes are found by name, wherever the package is installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hf_credit.recipes import RECIPES, find, summary


def test_a_recipe_is_found_by_its_name_and_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = RECIPES["sudoku_micro"]
    monkeypatch.chdir(tmp_path)
    assert find("sudoku_micro") == find(str(own)) == own
    (tmp_path / "mine.yaml").write_text("method: grpo\n")
    assert find("mine.yaml") == Path("mine.yaml")


def test_a_file_of_the_current_folder_hides_no_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sudoku_micro").write_text("method: evil:method\n")
    assert find("sudoku_micro") == RECIPES["sudoku_micro"]
    assert find("./sudoku_micro") == Path("sudoku_micro")


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("soduku_micro", "did you mean 'sudoku_micro'?"),
        ("elsewhere/relay_micro.yaml", "did you mean 'relay_micro'?"),
        ("nowhere.yaml", "name a file, or a recipe that `hf-credit recipes` lists."),
    ],
)
def test_an_unknown_recipe_is_refused_with_the_nearest_one(name: str, remedy: str) -> None:
    with pytest.raises(ValueError, match=rf"^a recipe must be .*, got '{re.escape(name)}'; {re.escape(remedy)}$"):
        find(name)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_opens_with_a_sentence_of_its_own(name: str) -> None:
    assert re.fullmatch(r"[A-Z].{20,200}\.", summary(name))
    assert not summary(name).startswith("The same")
    assert sum(summary(other) == summary(name) for other in RECIPES) == 1
