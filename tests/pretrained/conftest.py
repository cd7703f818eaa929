"""A pretrained chat model of 135M parameters, and commands as a user types them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

# Next to the environment, so that it is made once; `make clean` removes it.
MODEL = Path(sys.prefix, "pretrained", "smollm2-135m-instruct")


@pytest.fixture(scope="session")
def chat_model() -> Path:
    """The folder of the model."""
    if not MODEL.is_dir():
        script = Path(__file__).with_name("convert.py")
        subprocess.run([sys.executable, str(script), str(MODEL)], check=True)
    return MODEL


@pytest.fixture
def hf_credit(tmp_path: Path) -> Callable[..., str]:
    """`hf_credit("train", "recipe.yaml")` runs the command in a folder of its own, and returns its output."""

    def run(*words: object, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "hf_credit.cli", *map(str, words)],
            cwd=tmp_path,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def recipe(tmp_path: Path, chat_model: Path) -> Callable[..., Path]:
    """`recipe(max_steps=1)` writes a recipe of 4x4 Sudoku for the model, and returns its path."""

    def write(**changed: object) -> Path:
        values = {
            "method": "verifiable_process",
            "task": "sudoku",
            "task_options": {"size": 4, "blanks": 2},
            "model_name_or_path": str(chat_model),
            "output_dir": "run",
            "history": "current",
            "temperature": 1.0,
            "max_completion_length": 16,
            "max_turns": 2,
            "instances_per_update": 2,
            "per_device_train_batch_size": 2,
            "max_steps": 2,
            "learning_rate": 1e-4,
            # Fast where the processor has instructions for bfloat16 (AMX), several times slower where it has none.
            "dtype": "float32",
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "logging_steps": 1,
            "save_strategy": "no",
            **changed,
        }
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump({name: value for name, value in values.items() if value is not None}))
        return path

    return write
