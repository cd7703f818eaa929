"""The commands that list names: `hf-credit recipes`, `methods`, `metrics`, and the fields of a recipe."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hf_credit.methods import METHODS
from hf_credit.metrics import METRICS
from hf_credit.recipes import RECIPES, summary
from hf_credit.trainers.recipes import PRESETS


def test_recipes_are_listed_with_a_sentence_each_and_printed(command: Callable[..., Any]) -> None:
    code, out, _ = command("recipes")
    assert code == 0
    for name in RECIPES:
        assert f"  {name}\n      {summary(name)}\n" in out
    assert command("recipes", "sudoku_micro")[1] == RECIPES["sudoku_micro"].read_text(encoding="utf-8")


def test_metrics_are_listed_with_a_sentence_each_and_built(command: Callable[..., Any], tmp_path: Path) -> None:
    code, out, _ = command("metrics")
    assert code == 0
    assert dict(re.findall(r"^(\w+)\n      (.{20,}\.)$", out, re.MULTILINE)).keys() == METRICS.keys()
    assert "\n# pass@k\n" in command("metrics", "pass_at_k")[1]
    assert command("metrics", "pass_at_k", "--output", str(tmp_path))[0] == 0
    assert (tmp_path / "pass_at_k" / "pass_at_k.py").is_file()


def test_methods_are_listed_with_a_sentence_each(command: Callable[..., Any]) -> None:
    code, out, _ = command("methods")
    assert code == 0
    listed = dict(re.findall(r"^(\w+)\n      (.{20,}\.)$", out, re.MULTILINE))
    assert listed.keys() == METHODS.keys() | PRESETS.keys()
    assert listed["verifiable_process"].startswith("VPR: an oracle's verdicts as rewards")


def test_the_help_of_train_has_every_field_with_its_default(command: Callable[..., Any]) -> None:
    code, out, _ = command("train", "--help")
    assert code == 0
    for field in ('--history "append"', "--gamma 0.0", "--instances_per_update 128", "--max_steps 100"):
        assert f"\n  {field}\n" in out
    assert "epsilon 0.2" in out


def test_the_help_of_a_recipe_has_its_values_beside_the_defaults(command: Callable[..., Any]) -> None:
    code, out, _ = command("train", "relay_micro_mappo", "--help")
    assert code == 0
    assert '--task "relay", by default ""\n' in out
    assert "method_options of mappo:\n  group_size  (whole number at least 2; default: 8)\n      number of" in out
    assert command("train", "--method", "ppo", "--help")[1].count("\n  gae_level ") == 1


def test_the_options_of_a_method_are_listed(command: Callable[..., Any]) -> None:
    code, out, _ = command("methods", "ppo")
    assert code == 0
    assert "lam  (number in [0, 1]; default: 1.0)\n      lambda of GAE.\n" in out


def test_the_options_of_a_method_with_a_trainer_of_its_own_are_those_of_training(command: Callable[..., Any]) -> None:
    code, out, _ = command("methods", "truncated_ppo")
    assert code == 0
    assert "hf-credit train --method truncated_ppo --help" in out


def test_an_unknown_method_has_no_options(command: Callable[..., Any]) -> None:
    code, _, err = command("methods", "ppp")
    assert code == 1
    assert "did you mean 'ppo'?" in err
