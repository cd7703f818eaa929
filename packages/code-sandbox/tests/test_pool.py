"""The processes of the sandbox: none survives, whatever ends, and none blocks another."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from code_sandbox.isolation import isolation
from code_sandbox.pool import POOL, SandboxError, SandboxPool, Supervisor, _messages
from code_sandbox.unit_tests import run_tests

LEVEL = isolation().level
pytestmark = pytest.mark.skipif(LEVEL == "none", reason=f"nothing confines code here: {isolation()}")

ADD = "def add(a, b):\n    return a + b\n"
REQUEST = {
    "tests": 1,
    "test_seconds": 4.0,
    "wall_seconds": 12.0,
    "cpu_seconds": 10,
    "memory_bytes": 2**29,
    "scratch_bytes": 2**20,
    "seed": 0,
}
CODE = json.dumps({"code": ADD, "setup": ""}).encode()
TESTS = json.dumps({"tests": ["assert add(1, 1) == 2"], "setup": "", "entry_point": "add"}).encode()


def ended(pid: int) -> bool:
    """Returns whether a process has ended, reaped by its parent or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_for(condition: Any) -> None:
    for _ in range(3000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("it did not happen within 30 seconds")


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_keeper_serves_run_after_run_and_leaves_nothing() -> None:
    pool = SandboxPool(at_once=1)
    pool.run(LEVEL, REQUEST, CODE, TESTS)
    (supervisor,) = pool._idle[LEVEL]
    before = sorted(os.listdir("/proc/self/fd")), sorted(os.listdir(f"/proc/{supervisor.pid}/fd"))
    for _ in range(200):
        assert pool.run(LEVEL, REQUEST, CODE, TESTS)[0] == "p"
    assert pool._idle[LEVEL] == [supervisor]
    assert children(supervisor.pid) == []
    assert (sorted(os.listdir("/proc/self/fd")), sorted(os.listdir(f"/proc/{supervisor.pid}/fd"))) == before
    pool.close()
    assert ended(supervisor.pid)


def test_a_keeper_that_was_killed_is_replaced() -> None:
    pool = SandboxPool(at_once=1)
    pool.run(LEVEL, REQUEST, CODE, TESTS)
    (supervisor,) = pool._idle[LEVEL]
    os.kill(supervisor.pid, signal.SIGKILL)
    assert pool.run(LEVEL, REQUEST, CODE, TESTS)[0] == "p"
    assert pool._idle[LEVEL] != [supervisor]
    pool.close()


def test_a_closed_set_of_keepers_leaves_none_behind_at_work() -> None:
    pool = SandboxPool(at_once=1)
    pool.close()
    assert pool.run(LEVEL, REQUEST, CODE, TESTS)[0] == "p"
    assert pool._idle[LEVEL] == []


def test_a_level_that_does_not_exist_does_not_start() -> None:
    with pytest.raises(SandboxError, match="must be one of namespaces, landlock, none, got 'no such level'"):
        Supervisor("no such level")


SLEEPER = f"""
import sys, threading, time
from code_sandbox.unit_tests import Limits, run_tests
from code_sandbox.pool import POOL
run_tests("x = 1", ["assert x"], level={LEVEL!r})
print(POOL._idle[{LEVEL!r}][0].pid, flush=True)
run_tests("while True:\\n    pass", ["assert x"], level={LEVEL!r}, limits=Limits(test_seconds=500, wall_seconds=500))
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_the_program_that_asked(number: int) -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        supervisor = int(program.stdout.readline())
        wait_for(lambda: len(children(supervisor)) == 2)
        below = children(supervisor)
        program.send_signal(number)
    wait_for(lambda: all(map(ended, [supervisor, *below])))


def test_nothing_outlives_the_keeper() -> None:
    with subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        supervisor = int(program.stdout.readline())
        wait_for(lambda: len(children(supervisor)) == 2)
        below = children(supervisor)
        os.kill(supervisor, signal.SIGKILL)
        wait_for(lambda: all(map(ended, below)))
        program.kill()


FORKING = f"""
import os, sys, warnings
warnings.simplefilter("ignore")
from code_sandbox.unit_tests import run_tests
def one():
    return run_tests("x = 1", ["assert x == 1", "assert x == 2"], level={LEVEL!r}).score == 0.5
assert one()
children = []
for _ in range(3):
    if not (pid := os.fork()):
        os._exit(0 if all(one() for _ in range(20)) else 1)
    children.append(pid)
assert all(one() for _ in range(20))
assert [os.waitpid(pid, 0)[1] for pid in children] == [0, 0, 0]
assert one()
"""


def test_a_program_that_forks_keeps_its_keepers_apart() -> None:
    subprocess.run([sys.executable, "-c", FORKING], check=True, timeout=100)


def test_a_keeper_has_no_environment_and_only_its_socket() -> None:
    run_tests(ADD, ["assert add(1, 1) == 2"], level=LEVEL)
    supervisor = POOL._idle[LEVEL][-1]
    environment = Path(f"/proc/{supervisor.pid}/environ").read_text().rstrip("\0").split("\0")
    kept = [line for line in environment if not line.startswith("LD_LIBRARY_PATH=")]
    assert kept == ["PYTHONHASHSEED=0", "PYTHONDONTWRITEBYTECODE=1"]
    targets = [
        os.readlink(f"/proc/{supervisor.pid}/fd/{number}") for number in os.listdir(f"/proc/{supervisor.pid}/fd")
    ]
    assert sum(target.startswith("socket:") for target in targets) == 1
    assert not [target for target in targets if not target.startswith(("socket:", "anon_inode:", "/dev/null"))]


def test_a_report_that_is_none_is_no_error() -> None:
    assert _messages(b'[0, "x"]\n[1]\n{}\n\xff\n[2, "y"]') == {0: "x", 2: "y"}
