from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import jaxtyping
import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import hf_credit
import hf_credit_bench
from hf_credit.credit import turn_group_advantages


def modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after running `code`."""
    report = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", f"{code}\n{report}"], capture_output=True, text=True, check=True)
    return set(json.loads(result.stdout))


PACKAGES = pytest.mark.parametrize("package", [hf_credit, hf_credit_bench], ids=lambda package: package.__name__)


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert modules_after("import hf_credit").isdisjoint({"torch", "transformers", "trl", "datasets", "numpy"})


@PACKAGES
def test_listing_and_missing_names_import_nothing_heavy(package: ModuleType) -> None:
    loaded = modules_after(f"import {package.__name__} as it\ndir(it)\nhasattr(it, 'Nothing')")
    assert loaded.isdisjoint({"torch", "transformers", "trl", "datasets", "numpy"})


@PACKAGES
def test_every_public_name_resolves_and_is_listed(package: ModuleType) -> None:
    for name in package.__all__:
        assert getattr(package, name) is not None
        assert name in dir(package)


@PACKAGES
def test_an_unknown_name_is_refused_like_any_missing_attribute(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match=f"module '{package.__name__}' has no attribute 'Nothing'"):
        _ = package.Nothing


def test_credit_needs_torch_alone(tmp_path: Path) -> None:
    wanted, needed = ["torch"], set[str]()
    while wanted:
        needed.add(name := wanted.pop())
        found = by_name(one for one in importlib.metadata.requires(name) or () if "extra ==" not in one)
        wanted += [one for one in found if one not in needed]
    for module, owners in importlib.metadata.packages_distributions().items():
        if needed & set(map(canonicalize_name, owners)) and (spec := importlib.util.find_spec(module)):
            home = Path((spec.submodule_search_locations or [spec.origin])[0] or "")
            (tmp_path / home.name).symlink_to(home)
    (tmp_path / "hf_credit").symlink_to(Path(hf_credit.__file__).parent)
    code = f"""
import sys
sys.path.append({str(tmp_path)!r})
import torch
from hf_credit.credit import leave_one_out
print(leave_one_out(torch.tensor([1.0, 0.0, 2.0]), torch.zeros(3, dtype=torch.long)).tolist())
print("numpy" in sys.modules or "transformers" in sys.modules)
"""
    result = subprocess.run([sys.executable, "-S", "-I", "-c", code], capture_output=True, text=True)
    assert result.stdout.split("\n")[:2] == ["[0.0, -1.5, 1.5]", "False"], result.stderr


def test_the_version_is_the_installed_one() -> None:
    assert hf_credit.__version__ == importlib.metadata.version("hf-credit")


def test_the_shapes_of_credit_are_checked_here() -> None:
    with pytest.raises(jaxtyping.TypeCheckError):
        turn_group_advantages(torch.zeros(2, 3), torch.ones(2, 4, dtype=torch.bool))


def test_shapes_go_unchecked_where_a_test_asks_for_it(unchecked_shapes: None) -> None:
    with pytest.raises(ValueError, match="one shape"):
        turn_group_advantages(torch.zeros(2, 3), torch.ones(2, 4, dtype=torch.bool))


def requirements(root: Path) -> dict[str, dict[str, Requirement]]:
    """What every pyproject.toml asks for, by extra and name; the extra of users is ""."""
    groups: dict[str, dict[str, Requirement]] = {}
    for path in [root / "pyproject.toml", *root.glob("packages/*/pyproject.toml")]:
        project = tomllib.loads(path.read_text())["project"]
        asked = {"": project.get("dependencies", []), **project.get("optional-dependencies", {})}
        for extra, items in asked.items():
            groups.setdefault(extra, {}).update(by_name(items))
    return groups


def by_name(lines: Iterable[str]) -> dict[str, Requirement]:
    return {
        canonicalize_name(each.name): each
        for each in (Requirement(line) for line in lines if not line.startswith("#"))
        if each.name != "hf-credit" and (each.marker is None or each.marker.evaluate())
    }


def only_version(requirement: Requirement, operator: str) -> Version:
    (version,) = (Version(each.version) for each in requirement.specifier if each.operator == operator)
    return version


def test_every_dependency_says_why_it_earns_its_place(root: Path) -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", (root / "docs" / "dependencies.md").read_text(), re.MULTILINE)
    assert sorted(rows) == sorted({name for group in requirements(root).values() for name in group})


@pytest.mark.parametrize("file", ["constraints.txt", "constraints-lowest.txt"])
def test_the_constraints_pin_everything_the_tests_ask_for(root: Path, file: str) -> None:
    pins = by_name((root / file).read_text().splitlines())
    for pin in pins.values():
        only_version(pin, "==")
    asked = requirements(root)
    assert pins.keys() >= {
        name for extra in ("", "dev", "hub", "leaderboard", "statistics", "viz") for name in asked[extra]
    }


def test_the_lowest_constraints_are_the_lower_bounds(root: Path) -> None:
    pins = by_name((root / "constraints-lowest.txt").read_text().splitlines())
    asked = {name: each for group in requirements(root).values() for name, each in group.items() if name in pins}
    assert {name: only_version(pins[name], "==") for name in asked} == {
        name: only_version(each, ">=") for name, each in asked.items()
    }


def test_the_constraints_are_in_order_with_the_torch_that_has_a_build_for_processors(root: Path) -> None:
    pins = [line for line in (root / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert pins == sorted(pins, key=str.lower)
    assert "torch==2.13.0" in pins
