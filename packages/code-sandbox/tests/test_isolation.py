"""The isolation of a machine is probed, and code is refused without any."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import code_sandbox
from code_sandbox.isolation import IsolationError, isolation, required, tried

# Programs that run under a kernel which refuses what isolation needs, as many containers do: all of it or a part.
REFUSING = """
import sys
from code_sandbox.inside import seccomp
from code_sandbox.inside.confinement import library
column, _ = seccomp.ARCHITECTURES[seccomp.platform_name()]
numbers = {"unshare": (272, 97), "landlock": (444, 444)}
code = [seccomp._instruction(0x20, 0)]
for name in sys.argv[1].split(","):
    code += [seccomp._instruction(0x15, numbers[name][column], 0, 1), seccomp._instruction(0x06, 0x00050001)]
code.append(seccomp._instruction(0x06, 0x7FFF0000))
seccomp.load(library(), b"".join(code))
from code_sandbox.unit_tests import IsolationError, isolation, run_tests
print(isolation().level, [level for level, _ in isolation().missing])
try:
    print(run_tests("x = 1", ["assert x == 1"]).score)
except IsolationError as error:
    print(error)
print(run_tests("x = 1", ["assert x == 1"], accept_no_isolation=True).score)
"""

on_linux = pytest.mark.skipif(isolation().level == "none", reason=f"nothing confines code here: {isolation()}")


def refusing(*what: str) -> tuple[list[str], list[str]]:
    """Returns the output and the warnings of the program."""
    done = subprocess.run(
        [sys.executable, "-c", REFUSING, ",".join(what)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines(), done.stderr.splitlines()


@on_linux
def test_a_level_lists_its_guarantees() -> None:
    found = isolation()
    assert found.level in ("namespaces", "landlock")
    assert any("network" in guarantee for guarantee in found.guarantees)
    assert tried(found.level) is None
    assert required(None, False) == found.level


@on_linux
def test_without_user_namespaces_landlock_is_taken() -> None:
    if tried("landlock") is not None:
        pytest.skip("the kernel has no Landlock")
    printed, warned = refusing("unshare")
    assert printed == ["landlock ['namespaces']", "1.0", "1.0"]
    assert warned == [
        "Code runs at isolation level 'landlock', because this machine lacks a better one "
        "(namespaces: PermissionError: [Errno 1] unshare: Operation not permitted)."
    ]


OTHER = Path("/usr/bin/python3")
LOOK = """
import os, sys
from code_sandbox.unit_tests import isolation, run_tests
print(isolation().level, isolation().missing)
code = "import os" + chr(10) + "def user():" + chr(10) + "    return os.getuid()"
for level in sys.argv[1:]:
    print(level, run_tests(code, ["assert user() == 65534"] if os.getuid() == 0 else ["user()"], level=level).score)
"""


@on_linux
@pytest.mark.skipif(
    not OTHER.exists() or OTHER.resolve() == Path(sys.executable).resolve(),
    reason="the system has no Python of its own",
)
def test_the_systems_own_python_reaches_the_same_level() -> None:
    version = subprocess.run([OTHER, "-c", "import sys; print(sys.version_info >= (3, 11))"], capture_output=True)
    if version.stdout.strip() != b"True":
        pytest.skip("the system's own Python is too old")
    levels = [level for level in ("namespaces", "landlock") if tried(level) is None]
    done = subprocess.run(
        [OTHER, "-c", LOOK, *levels],
        env={"PYTHONPATH": str(Path(code_sandbox.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        f"{isolation().level} {isolation().missing}",
        *[f"{level} 1.0" for level in levels],
    ]
    assert done.stderr == ""


@on_linux
def test_without_any_isolation_code_is_refused_unless_that_is_accepted() -> None:
    (level, refusal, accepted), warned = refusing("unshare", "landlock")
    assert len(warned) == 1
    assert level == "none ['namespaces', 'landlock']"
    assert refusal.startswith("code must run isolated, and this is level 'none' (namespaces: ")
    assert "unshare: Operation not permitted" in refusal
    assert refusal.endswith("or pass accept_no_isolation=True if you know the code.")
    assert accepted == "1.0"


def test_a_level_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="must be one of namespaces, landlock, none, got 'docker'"):
        required("docker", True)


def test_no_isolation_is_never_taken_by_name_alone() -> None:
    with pytest.raises(IsolationError, match="accept_no_isolation=True"):
        required("none", False)
    assert required("none", True) == "none"
