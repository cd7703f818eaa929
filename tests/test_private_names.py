"""What is used of other libraries' private names is in one table, and is still there."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import textwrap
from pathlib import Path

import pytest
import transformers
from accelerate import Accelerator
from accelerate.state import GradientState
from peft import PeftModel
from transformers import GenerationConfig, PreTrainedConfig, PreTrainedModel, Trainer
from trl import GRPOTrainer

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "hf_credit"
# Conventions of TRL for subclasses, which feed the model card.
CONVENTIONS = {"_tag_names", "_name", "_paper", "_template_file"}
# The seam with TRL's asynchronous trainer, whose names have a part of their own.
ASYNCHRONOUS = SOURCE / "trainers" / "asynchronous" / "trl_1_16.py"
# Who may know trainers and models; in the others an underscore is their own.
ROOMS = ("critics", "policies", "trainers")
CLASSES = [
    *(one for one in GRPOTrainer.__mro__ if one.__module__.split(".")[0] in ("trl", "transformers")),
    Accelerator, GradientState, PeftModel, PreTrainedModel, PreTrainedConfig, GenerationConfig,
]  # fmt: skip


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def private_names(tree: ast.AST) -> set[str]:
    """Those that code defines as functions, or reads and sets as attributes or by their text."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return {name for name in found if is_private(name) and name != "_"}


@functools.cache
def theirs() -> set[str]:
    sources = (textwrap.dedent(inspect.getsource(one)) for one in CLASSES)
    return set().union(*(private_names(ast.parse(source)) for source in sources)) - CONVENTIONS


def tabled(part: str) -> dict[str, list[str]]:
    """The cells behind each name of a part of the page."""
    text = (ROOT / "docs" / "private-names.md").read_text(encoding="utf-8").split(f"## {part}\n")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:3] == "| `"]
    return {name.strip("`"): rest for name, *rest in rows}


def modules_that_know_them() -> dict[str, set[str]]:
    """For each module that may know these libraries, the private names of theirs in it that are not its own."""
    known, found = theirs(), {}
    for path in (one for room in ROOMS for one in (SOURCE / room).rglob("*.py") if one != ASYNCHRONOUS):
        text = path.read_text(encoding="utf-8")
        names = private_names(ast.parse(text)) & known
        own = set(re.findall(r"self\.(_\w+)(?:: [^=\n]+)? = ", text)) | set(
            re.findall(r"^def (_\w+)", text, re.MULTILINE)
        )
        if names := names - (own - tabled("Used").keys()):
            found[path.relative_to(SOURCE).as_posix()] = names
    return found


def test_every_private_name_in_use_is_tabled_where_it_is_used() -> None:
    table = {**tabled("Overridden"), **tabled("Used")}
    listed = {(where, name) for name, (places, *_) in table.items() for where in re.findall(r"`([^`]+)`", places)}
    used = {(where, name) for where, names in modules_that_know_them().items() for name in names}
    assert used == listed


def test_few_are_overridden() -> None:
    assert len(tabled("Overridden")) <= 10


@pytest.mark.parametrize(("name", "cells"), tabled("Overridden").items())
def test_what_is_overridden_has_the_signature_that_it_had(name: str, cells: list[str]) -> None:
    expected = [one.strip() for one in cells[1].strip("`").split(",")]
    assert list(inspect.signature(getattr(GRPOTrainer, name)).parameters)[: len(expected)] == expected


@pytest.mark.parametrize("name", tabled("Used"))
def test_what_is_used_is_still_there(name: str) -> None:
    assert name in theirs(), f"one of the libraries (transformers {transformers.__version__}) moved {name}"


def test_replies_are_still_generated_one_a_context() -> None:
    parameters = list(inspect.signature(GRPOTrainer._generate_single_turn).parameters)
    assert parameters[:5] == ["self", "prompt_ids", "images", "multimodal_fields", "num_generations"]


def test_what_the_asynchronous_seam_knows_is_tabled_and_still_there() -> None:
    packing = pytest.importorskip("trl.experimental.async_grpo.packing", reason="TRL 1.15 has none")
    from trl.experimental.async_grpo import async_grpo_trainer

    named = {
        getattr(node, "id", getattr(node, "attr", getattr(node, "name", getattr(node, "arg", None))))
        for module in (async_grpo_trainer, packing, Trainer)
        for node in ast.walk(ast.parse(inspect.getsource(inspect.getmodule(module))))
    }
    text = ASYNCHRONOUS.read_text(encoding="utf-8")
    table = tabled("Asynchronous")
    assert {name for name in table if not re.search(rf"\b{name}\b", text)} == set()
    assert table.keys() - named == set(), "TRL moved one"
    theirs_here = private_names(ast.parse(text)) & named
    assert theirs_here <= table.keys()
    assert list(inspect.signature(async_grpo_trainer.AsyncGRPOTrainer._sync_weight).parameters) == ["self"]
