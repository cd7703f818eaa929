"""What a stranger has: the wheels in an empty environment, and the README's commands in an empty folder.

    make test-wheel

The commands are the README's own, with fewer episodes and updates.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Flags behind a command of the README, by how it begins.
SMALLER = {
    "hf-credit init-policy": "--episodes 200 --epochs 1",
    "hf-credit train": "--max_steps 8 --instances_per_update 8 --per_device_train_batch_size 8",
    "hf-credit evaluate": "--episodes 32",
    "hf-credit bench": "--updates 8",
}
# What needs a Hub or the repository.
ELSEWHERE = ("hf-credit publish", "make ", "pip ", "accelerate ")


def main(environment: Path) -> None:
    """Builds, installs and runs.

    Args:
        environment: the folder of the virtual environment, made if it is missing.
    """
    python = environment / "bin" / "python"
    with tempfile.TemporaryDirectory() as folder:
        wheels, work = Path(folder, "wheels"), Path(folder, "work")
        work.mkdir()
        projects = [str(ROOT), *(str(path.parent) for path in ROOT.glob("packages/*/pyproject.toml"))]
        run(
            [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), *projects], ROOT
        )
        if not python.exists():
            run([sys.executable, "-m", "venv", str(environment)], ROOT)
        pinned = ["--quiet", "--constraint", str(ROOT / "constraints.txt")]
        (torch,) = re.findall(r"^torch==.*$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
        run([str(python), "-m", "pip", "install", torch, *pinned], ROOT)
        built = [
            f"{path}[statistics,viz]" if path.name.startswith("hf_credit") else str(path) for path in wheels.iterdir()
        ]
        run([str(python), "-m", "pip", "install", "--force-reinstall", "--no-deps", *map(str, wheels.iterdir())], ROOT)
        run([str(python), "-m", "pip", "install", *built, *pinned], ROOT)
        for line in commands((ROOT / "README.md").read_text(encoding="utf-8")):
            print("$", line, flush=True)
            run(shlex.split(line), work, environment / "bin")
        for listing in ("recipes", "methods", "envs", "metrics", "metrics pass_at_k --output spaces"):
            run(["hf-credit", *listing.split()], work, environment / "bin")
        assert (work / "runs" / "sudoku_micro" / "report").is_dir()


def commands(text: str) -> list[str]:
    """The README's commands, in their order, made smaller."""
    found = []
    for block in re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            line = line.partition("#")[0].strip()
            if line and not line.startswith(ELSEWHERE):
                more = [flags for start, flags in SMALLER.items() if line.startswith(start)]
                found.append(" ".join([line, *more]))
    return found


def run(words: list[str], folder: Path, binaries: Path | None = None) -> None:
    """Runs a command with nothing of this environment on its path; one that fails ends all."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    if binaries is not None:
        clean["PATH"] = f"{binaries}{os.pathsep}{clean['PATH']}"
        words = [str(binaries / words[0]), *words[1:]]
    quiet = subprocess.DEVNULL if binaries is not None else None
    subprocess.run(words, cwd=folder, env=clean, check=True, stdout=quiet)


if __name__ == "__main__":
    main(ROOT / ".venv-wheel")
