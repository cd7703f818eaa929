from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import jaxtyping
import pytest
import torch

import hf_credit
from hf_credit.credit import turn_group_advantages


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running `code`."""
    report = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True)
    return set(json.loads(result.stdout))


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert modules_after("import hf_credit").isdisjoint({"torch", "transformers", "trl", "datasets", "numpy"})


def test_listing_and_missing_names_import_nothing_heavy() -> None:
    loaded = modules_after("import hf_credit\ndir(hf_credit)\nhasattr(hf_credit, 'Nothing')")
    assert loaded.isdisjoint({"torch", "transformers", "trl", "datasets", "numpy"})


def test_every_public_name_resolves_and_is_listed() -> None:
    for name in hf_credit.__all__:
        assert getattr(hf_credit, name) is not None
        assert name in dir(hf_credit)


def test_an_unknown_name_is_refused_like_any_missing_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'hf_credit' has no attribute 'Nothing'"):
        _ = hf_credit.Nothing


def test_the_version_is_the_installed_one() -> None:
    assert hf_credit.__version__ == importlib.metadata.version("hf-credit")


def test_the_shapes_of_credit_are_checked_here() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        turn_group_advantages(torch.zeros(2, 3), torch.ones(2, 4, dtype=torch.bool))


def test_shapes_go_unchecked_where_a_test_asks_for_it(unchecked_shapes: None) -> None:
    with pytest.raises(ValueError, match="one shape"):
        turn_group_advantages(torch.zeros(2, 3), torch.ones(2, 4, dtype=torch.bool))


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def requirements(root: Path) -> dict[str, set[str]]:
    """What pyproject.toml asks for, by extra; the extra of users is ""."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    groups = {"": project["dependencies"], **project["optional-dependencies"]}
    return {extra: {name_of(item) for item in items} - {"hf-credit"} for extra, items in groups.items()}


def test_every_dependency_says_why_it_earns_its_place(root: Path) -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", (root / "docs" / "dependencies.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted({name for group in requirements(root).values() for name in group})


def test_the_constraints_pin_everything_the_tests_ask_for(root: Path) -> None:
    lines = (root / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*", pin) for pin in pins)
    asked = requirements(root)
    assert {name_of(pin) for pin in pins} >= asked[""] | asked["dev"] | asked["statistics"] | asked["viz"]
    assert pins == sorted(pins, key=str.lower)
    assert "torch==2.13.0" in pins
