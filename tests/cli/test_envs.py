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


def test_the_first_prompt_of_a_task_is_shown_as_messages_or_as_a_model_reads_it(
    command: Callable[..., Any], micro_policy: Any
) -> None:
    code, out, err = command("envs", "sudoku", "--option", "size=4")
    assert (code, err) == (0, "")
    assert out.startswith("--- agent reads, as user\n")
    assert "<action>" in out
    code, rendered, _ = command("envs", "sudoku", "--option", "size=4", "--model", str(micro_policy))
    assert (code, rendered.startswith("--- agent reads ")) == (0, True)
    assert "<|user|>" in rendered
