"""The supervisor knows no code and no tests, and limits the time of both processes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from code_sandbox.isolation import isolation
from code_sandbox.pool import POOL
from code_sandbox.unit_tests import Limits, run_tests

LEVEL = isolation().level
pytestmark = pytest.mark.skipif(LEVEL == "none", reason=f"nothing confines code here: {isolation()}")


def memory(pid: int) -> Iterator[bytes]:
    """Returns everything that a process can read in its own memory."""
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            start, end, rights = re.match(r"(\w+)-(\w+) (\S+)", line).groups()  # type: ignore[union-attr]
            if rights.startswith("r") and "[v" not in line:
                file.seek(int(start, 16))
                yield file.read(int(end, 16) - int(start, 16))


def test_tests_and_answers_are_never_in_the_memory_that_a_solver_is_copied_from() -> None:
    code = "def add(a, b):\n    return 'marker-of-the-code'\n"
    tests = ["assert add(1, 2) == 3, 'marker-of-the-tests'", "assert add(1) == 'marker-of-the-tests'"]
    for _ in range(5):
        messages = [outcome.message for outcome in run_tests(code, tests, level=LEVEL).outcomes]
    assert messages[0] == "AssertionError: marker-of-the-tests"
    supervisor = POOL._idle[LEVEL][-1]
    try:
        found = b"\0".join(memory(supervisor.pid))
    except PermissionError:
        pytest.skip("this machine does not let a process be read")
    assert b"code_sandbox.inside.supervisor" in found  # the search sees what is there
    assert b"marker-of-the-tests" not in found
    assert b"marker-of-the-code" not in found


def test_a_solver_has_two_pipes_and_nothing_else() -> None:
    code = (
        "import os, stat\ndef look():\n    found = []\n    for number in range(256):\n        try:\n"
        "            mode = os.fstat(number).st_mode\n        except OSError:\n            continue\n"
        "        found.append('pipe' if stat.S_ISFIFO(mode) else 'null' if stat.S_ISCHR(mode) else 'other')\n"
        "    return found\n"
    )
    assert (
        run_tests(code, ["assert look() == ['null'] * 3 + ['pipe'] * 2, look()"], level=LEVEL).outcomes[0].message
        == ""
    )


FLAGS = """
import fcntl, os
def flags():
    found = [fcntl.fcntl(number, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK) for number in (0, 1, 2)]
    fcntl.fcntl(1, fcntl.F_SETFL, os.O_APPEND | os.O_NONBLOCK)
    return found
def lock():
    fcntl.flock(1, fcntl.LOCK_EX | fcntl.LOCK_NB)
def lock_a_part():
    fcntl.lockf(1, fcntl.LOCK_EX | fcntl.LOCK_NB)
"""


def test_flags_of_the_null_device_are_those_of_one_process_alone() -> None:
    own = "import fcntl, os\nassert not fcntl.fcntl(1, fcntl.F_GETFL) & (os.O_APPEND | os.O_NONBLOCK)"
    for _ in range(2):
        assert run_tests(FLAGS, ["assert flags() == [0, 0, 0]", own], level=LEVEL).score == 1


@pytest.mark.parametrize("call", ["lock", "lock_a_part"])
def test_the_null_device_cannot_be_locked(call: str) -> None:
    test = f"try:\n    {call}()\nexcept PermissionError:\n    pass\nelse:\n    raise ValueError"
    assert run_tests(FLAGS, [test], level=LEVEL).outcomes[0].message == ""


def test_time_is_counted_for_each_test_and_not_for_their_sum() -> None:
    code = (
        "import time\ndef work():\n    end = time.process_time() + 0.15\n"
        "    while time.process_time() < end:\n        pass\n"
    )
    result = run_tests(code, ["work()"] * 6, level=LEVEL, limits=Limits(test_seconds=0.6, wall_seconds=60))
    assert result.score == 1


def test_a_test_that_loops_by_itself_is_ended_and_the_next_one_runs() -> None:
    tests = ["while True:\n    pass", "assert x == 1", "import time\ntime.sleep(1000)"]
    result = run_tests("x = 1", tests, level=LEVEL, limits=Limits(test_seconds=0.2, wall_seconds=30))
    assert [outcome.kind for outcome in result.outcomes] == ["timeout", "passed", "timeout"]


def test_no_process_is_left() -> None:
    run_tests("import os\nos._exit(0)", ["assert 1"], level=LEVEL)
    supervisor = POOL._idle[LEVEL][-1]
    assert Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text() == ""
