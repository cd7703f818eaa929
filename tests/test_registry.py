from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import hf_credit
from hf_credit import environments, oracles
from hf_credit.collaborations import COLLABORATIONS
from hf_credit.environments import ENVIRONMENTS, Environment, known
from hf_credit.methods import METHODS
from hf_credit.oracles import ORACLES, Oracle
from hf_credit.registry import Registry

NUMBERS = {"whole": "builtins:int", "fraction": "fractions:Fraction"}


def test_a_name_and_its_options_build_the_class() -> None:
    assert Registry[Fraction]("number", NUMBERS).make("fraction", numerator=3, denominator=6) == Fraction(1, 2)


def test_a_factory_may_return_a_class() -> None:
    assert Registry[Any]("kind", {"class": "types:new_class"}).build("class", {"name": "Made"}).__name__ == "Made"


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError,
        match=r"number must be one of fraction, whole, or 'module:object', got 'complex'; pick one of these\.",
    ):
        Registry[Fraction]("number", NUMBERS).make("complex")


def test_a_mapping_in_the_place_of_a_name_is_refused_in_one_sentence() -> None:
    message = r"number must be a name, got \{'name': 'fraction'\}; write the name alone, and its options next to it\."
    with pytest.raises(ValueError, match=f"^{message}$"):
        Registry[Fraction]("number", NUMBERS).make({"name": "fraction"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "known", "name", "nearest"),
    [
        ("environment", ENVIRONMENTS, "soduku", "sudoku"),
        ("oracle", ORACLES, "sudoku-constraint", "sudoku_constraints"),
        ("collaboration", COLLABORATIONS, "votting", "voting"),
        ("method", METHODS, "vinepo", "vineppo"),
        ("method", METHODS, "vrp", "verifiable_process"),
        ("method", METHODS, "C3", "replay_loo"),
        ("method", METHODS, "CVT-RL", "constrained_counterfactual"),
    ],
)
def test_a_name_that_is_nearly_right_is_answered_with_the_nearest(
    kind: str, known: dict[str, str], name: str, nearest: str
) -> None:
    with pytest.raises(ValueError, match=f"got '{name}'; did you mean '{nearest}'\\?$"):
        Registry[Any](kind, known).make(name)


def test_an_option_that_is_nearly_right_is_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"got 'sise'; did you mean 'size'\?$"):
        hf_credit.make("sudoku", sise=4)


def test_an_unknown_option_is_answered_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match=r"number 'fraction' takes the options numerator, denominator.*, got 'sign'; "
    ):
        Registry[Fraction]("number", NUMBERS).make("fraction", numerator=3, sign=-1)


# options without a default
NEEDED: dict[str, dict[str, Any]] = {
    "judge": {"model": "any"},
    "continuations": {"player": "a"},
    "log_ratio": {"policy": "a", "reference": "b"},
}


@pytest.mark.parametrize(("kind", "classes"), [("environment", ENVIRONMENTS), ("oracle", ORACLES)])
def test_every_listed_name_builds_with_the_options_it_needs_and_knows_its_name(
    kind: str, classes: dict[str, str]
) -> None:
    for name in classes:
        assert Registry[Any](kind, classes).make(name, **NEEDED.get(name, {})).name == name


@pytest.mark.parametrize("name", sorted(ENVIRONMENTS))
def test_make_builds_every_environment(name: str) -> None:
    assert isinstance(hf_credit.make(name), Environment)


@pytest.mark.parametrize("name", sorted(ORACLES))
def test_make_builds_every_oracle(name: str) -> None:
    assert isinstance(oracles.make(name, **NEEDED.get(name, {})), Oracle)


def test_the_package_makes_environments() -> None:
    assert hf_credit.make is environments.make


def test_options_reach_the_class() -> None:
    sudoku = hf_credit.make("sudoku", size=4, blanks=5)
    assert (sudoku.size, sudoku.blanks) == (4, 5)


def test_an_unknown_environment_is_refused_in_one_sentence() -> None:
    message = rf"environment must be one of {', '.join(known())}, or 'module:object', got 'chess'; pick one of these\."
    with pytest.raises(ValueError, match=f"^{message}$"):
        hf_credit.make("chess")


def test_an_environment_is_no_oracle() -> None:
    with pytest.raises(
        ValueError, match=r"^oracle must be one of .*, sudoku_constraints, or 'module:object', got 'sudoku'; pick one"
    ):
        oracles.make("sudoku")


def test_an_unknown_option_of_an_environment_is_refused_in_one_sentence() -> None:
    message = (
        r"environment 'sudoku' takes the options size, blanks, notation, got 'mines'; remove it or use one of these\."
    )
    with pytest.raises(ValueError, match=f"^{message}$"):
        hf_credit.make("sudoku", mines=5)


def test_a_class_without_options_is_named_in_the_error() -> None:
    message = r"oracle 'sudoku_constraints' takes the options \(none\), got 'depth'; remove it or use one of these\."
    with pytest.raises(ValueError, match=f"^{message}$"):
        oracles.make("sudoku_constraints", depth=5)


def test_a_value_that_the_class_refuses_is_refused_in_its_words() -> None:
    with pytest.raises(ValueError, match=r"^size must be one of 4, 6, 9, got 7; use one of these\.$"):
        hf_credit.make("sudoku", size=7)


def test_one_environment_imports_neither_torch_nor_the_others() -> None:
    code = (
        "import sys, hf_credit\n"
        "hf_credit.make('sudoku', size=4)\n"
        "assert not {'torch', 'datasets', 'hf_credit.environments.minesweeper'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_entry_point_with_a_name_of_ours_hides_nothing_and_is_known_in_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "other-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[hf_credit.environments]\nsudoku = other:Sudoku\nnim = other:Nim\n")
    monkeypatch.syspath_prepend(tmp_path)
    ours = {"sudoku": "ours:Sudoku"}
    targets = {"ours:Sudoku": "sudoku", "other:Sudoku": "other:Sudoku", "other:Nim": "nim", "no:One": "no:One"}
    assert {target: Registry[Any]("environment", ours).name_of(target) for target in targets} == targets
