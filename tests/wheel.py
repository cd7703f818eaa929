"""What a stranger has: the wheel in an empty environment, and the README's commands in an empty folder.

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
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Flags after a command of the README, by how it begins.
SMALLER = {
    "hf-credit init-policy": "--episodes 200 --epochs 1",
    "hf-credit train": "--max_steps 8 --instances_per_update 8 --per_device_train_batch_size 8",
    "hf-credit evaluate": "--episodes 32",
    "hf-credit bench": "--updates 8",
}
# What needs the repository, or several processes.
ELSEWHERE = ("make ", "pip ", "accelerate ")


def main(environment: Path) -> None:
    """Builds, installs and runs.

    Args:
        environment: the folder of the virtual environment, made if it is missing.
    """
    python = environment / "bin" / "python"
    with tempfile.TemporaryDirectory() as folder:
        wheels, work = Path(folder, "wheels"), Path(folder, "work")
        work.mkdir()
        run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={wheels}", str(ROOT)], ROOT)
        if not python.exists():
            run([sys.executable, "-m", "venv", str(environment)], ROOT)
        pinned = ["--quiet", "--constraint", str(ROOT / "constraints.txt")]
        (torch,) = re.findall(r"^torch==.*$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
        run([str(python), "-m", "pip", "install", torch, *pinned], ROOT)
        (wheel,) = wheels.iterdir()
        run([str(python), "-m", "pip", "install", "--force-reinstall", "--no-deps", str(wheel)], ROOT)
        run([str(python), "-m", "pip", "install", f"{wheel}[hub,leaderboard,statistics,viz]", *pinned], ROOT)
        binaries = environment / "bin"
        with serving(binaries, Path(folder, "hub")) as hub:
            for line in commands((ROOT / "README.md").read_text(encoding="utf-8")):
                print("$", line, flush=True)
                run(shlex.split(line), work, binaries, hub)
        for listing in ("recipes", "methods", "envs", "metrics", "metrics pass_at_k --output spaces", "submit --help"):
            run(["hf-credit", *listing.split()], work, binaries)
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


@contextmanager
def serving(binaries: Path, folder: Path) -> Iterator[dict[str, str]]:
    """The embedded Hub that the commands publish to: what clients need in their environment."""
    server = subprocess.Popen([str(binaries / "hf-credit"), "hub", "serve", str(folder), "--port", "0"])
    try:
        settings, deadline = folder / "env.sh", time.monotonic() + 120
        while not settings.is_file() and time.monotonic() < deadline and server.poll() is None:
            time.sleep(0.2)
        yield dict(re.findall(r"^export (\w+)=[\"']?(.*?)[\"']?$", settings.read_text(), re.MULTILINE))
    finally:
        server.terminate()
        server.wait()


def run(
    words: list[str], folder: Path, binaries: Path | None = None, settings: Mapping[str, str] | None = None
) -> None:
    """Runs a command with nothing of this environment on its path; one that fails ends all."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    clean |= settings or {}
    if binaries is not None:
        clean["PATH"] = f"{binaries}{os.pathsep}{clean['PATH']}"
        words = [str(binaries / words[0]), *words[1:]]
    quiet = subprocess.DEVNULL if binaries is not None else None
    subprocess.run(words, cwd=folder, env=clean, check=True, stdout=quiet)


if __name__ == "__main__":
    main(ROOT / ".venv-wheel")
