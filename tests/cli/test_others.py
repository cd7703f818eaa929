"""Commands of other distributions, installed, missing, broken, and lying in the current folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from local_hub.running import serving


def declared(folder: Path, name: str, module: str) -> Path:
    """Writes what declares a command of a distribution."""
    described = folder / f"{module}-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (described / "entry_points.txt").write_text(f"[hf_credit.commands]\n{name} = {module}:commands\n")
    return folder


def hf_credit(*words: str, before: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `hf-credit` in a process of its own, which first runs `before`."""
    installed = "import sys\nsys.path[:] = filter(None, sys.path)"
    script = f"{installed}\n{before}\nfrom hf_credit.cli import main\nmain({list(words)!r})"
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env={**os.environ, **variables}
    )


def test_it_has_the_commands_of_local_hub(command: Callable[..., Any], tmp_path: Path) -> None:
    with serving(tmp_path):
        pass
    assert command("hub", "check", str(tmp_path)) == (0, "0 repositories, 0 commits, 0 files: no problems\n", "")
    code, _, error = command("hub", "check", str(tmp_path / "none"))
    assert code == 1
    assert error.startswith("Error: the folder of a Hub must have hub.sqlite")


def test_it_has_the_commands_of_an_installed_distribution(tmp_path: Path) -> None:
    (declared(tmp_path, "greet", "greeting") / "greeting.py").write_text(
        "import typer\ncommands = typer.Typer()\n"
        "@commands.command(short_help='Greet.')\ndef greet(whom: str) -> None:\n    print('Hello,', whom)\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    assert hf_credit("greet", "you", PYTHONPATH=path).stdout == "Hello, you\n"
    assert "Greet." in hf_credit("--help", PYTHONPATH=path).stdout


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("import no_such", "must be importable as 'module:object', got 'greet' (No module named 'no_such')"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("commands = print", "a command must be a typer.Typer, got builtin_function_or_method for 'greet'"),
    ],
)
def test_a_broken_distribution_stops_its_own_command_alone(content: str, reason: str, tmp_path: Path) -> None:
    (declared(tmp_path, "greet", "greeting") / "greeting.py").write_text(content)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = hf_credit("greet", "--whom", "you", PYTHONPATH=path)
    assert done.returncode == 1
    assert reason in done.stderr
    assert hf_credit("recipes", PYTHONPATH=path).returncode == 0


@pytest.mark.parametrize(
    ("words", "package", "remedy"),
    [
        (["hub", "serve", "/dev/null", "--port", "0"], "starlette", "'starlette>=1.0.1' 'uvicorn>=0.35'"),
        (["hub", "check", "/dev/null"], "starlette", "'starlette>=1.0.1' 'uvicorn>=0.35'"),
        (["leaderboard", "rank", "me/b"], "cryptography", "'cryptography>=44'"),
    ],
)
def test_without_a_package_of_its_extra_a_command_has_its_help_and_says_what_to_install(
    words: list[str], package: str, remedy: str
) -> None:
    missing = f"""
import importlib.metadata, sys
found = importlib.metadata.version
def version(name):
    if name == {package!r}:
        raise importlib.metadata.PackageNotFoundError(name)
    return found(name)
importlib.metadata.version = version
sys.modules[{package!r}] = None
"""
    assert hf_credit(*words[:2], "--help", before=missing).returncode == 0
    done = hf_credit(*words, before=missing)
    assert (done.returncode, done.stdout) == (1, "")
    assert f"got none; install it by: pip install {remedy}\n" in done.stderr


@pytest.mark.parametrize("words", [["-m", "hf_credit.cli"], ["-c", "from hf_credit.cli import main; main()"], None])
def test_what_lies_in_the_current_folder_is_no_command(words: list[str] | None, tmp_path: Path) -> None:
    (declared(tmp_path, "greet", "greeting") / "greeting.py").write_text("open('ran', 'w').close()\n")
    egg = tmp_path / "pest.egg-info"
    egg.mkdir()
    (egg / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: pest\nVersion: 1.0\n")
    (egg / "entry_points.txt").write_text("[hf_credit.commands]\ntrain = greeting:commands\n")
    start = [str(Path(sys.executable).parent / "hf-credit")] if words is None else [sys.executable, *words]
    environment = dict(os.environ)
    if words is None:
        environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "") + os.pathsep  # its empty entry is this folder
    for more in (["--help"], ["greet"]):
        done = subprocess.run(
            [*start, *more], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == (0 if more == ["--help"] else 2), done.stderr
        assert "greet" not in done.stdout
    assert not (tmp_path / "ran").exists()
