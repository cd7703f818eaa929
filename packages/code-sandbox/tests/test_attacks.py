"""Hostile code has no effect at any level of isolation, and attacks are shown to work where nothing confines them."""

from __future__ import annotations

import os
import runpy
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from code_sandbox.isolation import tried
from code_sandbox.pool import POOL
from code_sandbox.unit_tests import Limits, TestRun, run_tests

FOLDER = Path(__file__).with_name("attacks")
REACH, CHEAT, EXHAUST = (runpy.run_path(str(FOLDER / f"{name}.py")) for name in ("reach", "cheat", "exhaust"))

TESTS = [
    "assert add(2, 3) == 5",
    "assert all([abs(add(2, 2) - 4) < 1e-9])",
    "import math\nassert math.isclose(add(0.5, 0.25), 0.75) and add(1, 1) != 3 and len([add(1, 2)]) == 1",
]
LIMITS = Limits(test_seconds=0.5, wall_seconds=6.0, memory_bytes=256 * 2**20)
AMPLE = replace(LIMITS, test_seconds=4.0, wall_seconds=24.0)
"""Of what must not run out of time: a machine may take a second to hand out memory, or to write a file."""
SECRET = "swordfish"


@pytest.fixture(params=["namespaces", "landlock"])
def level(request: pytest.FixtureRequest) -> str:
    reason = tried(request.param)
    if reason is not None:
        pytest.skip(f"this machine does not give {request.param}: {reason}")
    return str(request.param)


@dataclass
class Outside:
    """The targets that an attack must not reach."""

    folder: Path
    canary: Path
    port: int
    victim: subprocess.Popen[bytes]
    visits: list[object]

    def snippet(self, text: str) -> str:
        values = {"canary": self.canary, "folder": self.folder, "port": self.port, "pid": self.victim.pid}
        for name, value in values.items():
            text = text.replace("{" + name + "}", str(value))
        return text

    def assert_untouched(self) -> None:
        assert [path.name for path in self.folder.iterdir()] == ["canary"]
        assert self.canary.read_text() == SECRET
        assert self.canary.stat().st_mode & 0o777 == 0o644
        assert self.canary.stat().st_mtime == 1e9
        assert self.victim.poll() is None
        assert self.visits == []
        assert children_of_keepers() == []

    def restore(self) -> None:
        for path in self.folder.iterdir():
            path.rmdir() if path.is_dir() else path.unlink()
        self.canary.write_text(SECRET)
        self.canary.chmod(0o644)
        os.utime(self.canary, (1e9, 1e9))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outside]:
    folder = tmp_path_factory.mktemp("world") / "outside"
    folder.mkdir()
    visits: list[object] = []
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        subprocess.Popen([sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]) as victim,
    ):
        server.settimeout(0.2)
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                try:
                    connection, address = server.accept()
                except TimeoutError:
                    continue
                visits.append(address)
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield Outside(folder, folder / "canary", server.getsockname()[1], victim, visits)
        stop.set()
        thread.join()
        victim.kill()


@pytest.fixture
def outside(world: Outside, monkeypatch: pytest.MonkeyPatch) -> Outside:
    monkeypatch.setenv("CANARY_SECRET", SECRET)
    world.restore()
    world.visits.clear()
    return world


def children_of_keepers() -> list[str]:
    found = []
    for pool in POOL._idle.values():
        for supervisor in pool:
            found += Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split()
    return found


def kinds(result: TestRun) -> list[str]:
    return [outcome.kind for outcome in result.outcomes]


def unconfined(code: str, folder: Path) -> int:
    """Returns the exit status of code and tests in one interpreter, 0 if a test passes, as in a plain harness."""
    tries = "".join(f"try:\n    exec({test!r})\n    won = True\nexcept Exception:\n    pass\n" for test in TESTS)
    script = f"{code}\nwon = False\n{tries}raise SystemExit(not won)"
    return subprocess.run(
        [sys.executable, "-S", "-c", script],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        timeout=60,
    ).returncode


def test_there_are_enough_attacks() -> None:
    collections = [REACH["ATTACKS"], REACH["UNCONTROLLED"], CHEAT["ATTACKS"], CHEAT["UNCONTROLLED"]]
    collections += [EXHAUST["ENDLESS"], EXHAUST["SLEEPING"], EXHAUST["GREEDY"], EXHAUST["DESERVED"]]
    assert sum(map(len, collections)) >= 60


@pytest.mark.parametrize("name", [*REACH["ATTACKS"], *REACH["UNCONTROLLED"]])
def test_nothing_outside_is_reached(name: str, level: str, outside: Outside) -> None:
    code = outside.snippet({**REACH["ATTACKS"], **REACH["UNCONTROLLED"]}[name])
    result = run_tests(code, TESTS, limits=LIMITS, level=level)
    assert kinds(result) == ["error"] * 3
    assert SECRET not in str(result)
    outside.assert_untouched()


@pytest.mark.parametrize("name", [*CHEAT["ATTACKS"], *CHEAT["UNCONTROLLED"]])
def test_no_score_is_gained(name: str, level: str) -> None:
    code = {**CHEAT["ATTACKS"], **CHEAT["UNCONTROLLED"]}[name]
    result = run_tests(code, TESTS, limits=LIMITS, level=level)
    assert result.score == 0
    assert set(kinds(result)) <= {"failed", "error", "timeout"}
    assert children_of_keepers() == []


@pytest.mark.parametrize("name", EXHAUST["ENDLESS"])
def test_what_never_ends_is_ended(name: str, level: str) -> None:
    limits = Limits(test_seconds=0.1, wall_seconds=6.0, memory_bytes=256 * 2**20)
    result = run_tests(EXHAUST["ENDLESS"][name], TESTS[:2], limits=limits, level=level)
    assert kinds(result) == ["timeout"] * 2
    assert children_of_keepers() == []


@pytest.mark.parametrize("name", EXHAUST["SLEEPING"])
def test_what_waits_for_ever_is_ended(name: str, level: str) -> None:
    limits = Limits(test_seconds=0.1, wall_seconds=1.0)
    assert kinds(run_tests(EXHAUST["SLEEPING"][name], TESTS[:1], limits=limits, level=level)) == ["timeout"]
    assert children_of_keepers() == []


@pytest.mark.parametrize("name", EXHAUST["GREEDY"])
def test_what_asks_for_too_much_is_refused(name: str, level: str) -> None:
    code, allowed = EXHAUST["GREEDY"][name]
    limits = LIMITS if "timeout" in allowed else AMPLE
    result = run_tests(code, TESTS[:1], limits=limits, level=level)
    assert set(kinds(result)) <= allowed
    assert len(result.outcomes[0].message) <= 300
    assert children_of_keepers() == []


@pytest.mark.parametrize("name", EXHAUST["DESERVED"])
def test_right_code_keeps_its_score_whatever_it_tried(name: str, level: str) -> None:
    assert run_tests(EXHAUST["DESERVED"][name], TESTS, limits=AMPLE, level=level).score == 1
    assert children_of_keepers() == []


# Without isolation the same attacks work, so that none of the above passes for another reason


@pytest.mark.parametrize("name", REACH["ATTACKS"])
def test_an_attack_reaches_outside_where_nothing_confines_it(name: str, outside: Outside) -> None:
    assert unconfined(outside.snippet(REACH["ATTACKS"][name]), outside.folder.parent) == 0


@pytest.mark.parametrize("name", CHEAT["ATTACKS"])
def test_a_cheat_gains_where_code_and_tests_share_an_interpreter(name: str, tmp_path: Path) -> None:
    assert unconfined(CHEAT["ATTACKS"][name], tmp_path) == 0
