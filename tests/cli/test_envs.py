from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from hf_credit.collaborations import COLLABORATIONS
from hf_credit.environments import ENVIRONMENTS

HEAVY = {"torch", "trl", "datasets", "matplotlib"}


def test_every_environment_is_listed_with_its_options_and_its_oracle(command: Callable[..., Any]) -> None:
    code, out, err = command("envs")
    assert (code, err) == (0, "")
    for name in ENVIRONMENTS:
        assert name in out
    assert "blanks=40 (derived from" in out
    assert "opponent=mixture" in out
    assert "mines=5" in out
    assert "minesweeper_posterior" in out
    for name in COLLABORATIONS:
        assert name in out
    assert "scorer=... (required)" in out
    assert "size=10" in out


@pytest.mark.parametrize("arguments", [["--help"], ["envs"], ["recipes"], ["init-policy", "--help"]])
def test_what_needs_no_model_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "import json, sys\nfrom hf_credit.cli import main\n"
        f"try:\n    main({arguments})\nfinally:\n    print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # The chat of a collaboration imports the type of tokenizers.
    heavy = HEAVY if arguments == ["envs"] else HEAVY | {"transformers", "numpy"}
    assert heavy.isdisjoint(json.loads(result.stderr))
