"""Recipes are found by name, wherever the package is installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from hf_credit.metrics import FILES, METRICS
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


def test_a_wheel_holds_every_recipe_and_metric(root: Path, tmp_path: Path) -> None:
    build = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (copy / name).write_bytes((root / name).read_bytes())
    shutil.copytree(root / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    subprocess.run([sys.executable, "-c", build, str(tmp_path)], cwd=copy, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    held = zipfile.ZipFile(wheel).namelist()
    assert {f"hf_credit/recipes/{'/'.join(path.parts[-2:])}" for path in RECIPES.values()} <= set(held)
    metrics = {f"{name}/{file}" for name in METRICS for file in FILES}
    assert {one.removeprefix("hf_credit/metrics/spaces/") for one in held if "/spaces/" in one} == {*metrics, "app.py"}
