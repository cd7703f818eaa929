"""The process that starts the confined ones: it forks tester and solver for each run, times, kills and reaps them.

A fork costs a tenth of a fresh interpreter. So this process must stay clean: it has one thread, and never reads code,
tests or messages, which would be in the memory of the next solver. They are in files that only their own process
reads; the supervisor receives one letter for each test.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import time
from typing import Any

from code_sandbox.inside import solver, tester
from code_sandbox.inside.channel import PARENT_CHECK_MS, Channel, close_all_but
from code_sandbox.inside.confinement import NAMESPACES, NONE, Bounds, Confinement

TIMEOUT = "t"
TESTER_CONFINED, SOLVER_CONFINED, BROKEN = "T", "S", "!"
_OUTCOMES = {tester.PASSED, tester.FAILED, tester.ERROR, tester.MEMORY, tester.GONE}

_WARM = """
abc array ast bisect bz2 calendar cmath collections contextlib copy dataclasses datetime decimal enum fractions
functools hashlib heapq itertools json lzma math numbers operator os queue random re statistics string struct sys
textwrap time types typing unicodedata zlib
""".split()  # noqa: SIM905
"""Imported once: solutions use them, and a module that needs a system library cannot be imported inside."""

_START_SECONDS = 30.0
_WAITING = 3
"""The wall-clock limit of a test as a multiple of its limit of CPU time."""


class Broken(Exception):
    """A confined process did not start as it must."""


class Attempt:
    """A tester and a solver, from one test on until all have run or one of the two processes ends."""

    def __init__(self, confinement: Confinement, request: dict[str, Any], files: list[int], first: int) -> None:
        self._confinement, self._request, self._first = confinement, request, first
        self._bounds = Bounds(request["memory_bytes"], request["cpu_seconds"], request["scratch_bytes"])
        to_solver, to_tester, status = os.pipe(), os.pipe(), os.pipe()
        self.status = status[0]
        code, tests, report, *nulls = files
        self._pids: list[int] = []
        try:
            self._start(True, status[1], nulls[0], (code, to_solver[0], to_tester[1]), SOLVER_CONFINED)
            handed = (tests, to_tester[0], to_solver[1], status[1], report)
            self._start(False, status[1], nulls[1], handed, TESTER_CONFINED)
        except OSError:
            self.end()
            raise
        finally:
            for descriptor in (*to_solver, *to_tester, status[1]):
                os.close(descriptor)

    def _start(self, scratch: bool, status: int, null: int, keep: tuple[int, ...], confined: str) -> None:
        pid = self._confinement.fork(scratch)
        if pid:
            self._pids.append(pid)
            return
        code = 1
        try:
            try:
                for descriptor in (0, 1, 2):
                    os.dup2(null, descriptor)  # no other process shares its flags
                self._confinement.enter(self._bounds, scratch)
                close_all_but(*keep, status)
                os.write(status, confined.encode())
            except BaseException as error:
                os.write(status, f"{BROKEN}{type(error).__name__}: {error}".encode()[:300])
                os._exit(1)
            self._work(status, keep)
            code = 0
        finally:
            os._exit(code)

    def _work(self, status: int, keep: tuple[int, ...]) -> None:
        request = self._request
        with open(keep[0], "rb") as file:
            file.seek(0)  # an earlier attempt has read it
            task = json.load(file)
        if len(keep) == 3:
            os.close(status)
            source = task["code"] if task["code"] is not None else bytes.fromhex(task["bytes"])
            solver.main(source, task["setup"], request["seed"], keep[1], keep[2])
        else:
            desk = tester.Desk(keep[3], keep[4])
            tester.main(task, self._first, request["seed"], keep[1], keep[2], desk)

    def watch(self, channel: Channel, wall: float) -> tuple[str, bool, bool]:
        """Returns the letters of the tests that ended, whether the code was loaded, and whether time ran out.

        Args:
            channel: the run ends if its other side does.
            wall: the end of the whole run, on the monotonic clock.
        """
        count, seconds = self._request["tests"] - self._first, self._request["test_seconds"]
        letters, loaded = "", False
        confined: set[str] = set()
        waiting = select.poll()
        waiting.register(self.status, select.POLLIN)
        waiting.register(channel.socket, select.POLLIN)
        began, used = time.monotonic(), 0.0
        deadline = began + _START_SECONDS
        while True:
            left = min(deadline, wall if len(confined) == 2 else deadline) - time.monotonic()
            ready = dict(waiting.poll(min(max(left, 0) * 1000, PARENT_CHECK_MS)))
            if channel.socket.fileno() in ready or channel.is_orphan:
                self.end()
                os._exit(0)
            if self.status in ready:
                text = os.read(self.status, 512).decode("latin-1")
                if not text:
                    break
                if BROKEN in text:
                    raise Broken(text.partition(BROKEN)[2])
                for letter in text:
                    if letter in (TESTER_CONFINED, SOLVER_CONFINED):
                        confined.add(letter)
                    elif letter == tester.LOADED:
                        loaded = True
                    elif letter in _OUTCOMES and len(letters) < count:
                        letters += letter
                if len(confined) == 2:
                    began, used = time.monotonic(), self._cpu_seconds()
                    deadline = began + seconds
            elif len(confined) == 2 and deadline <= time.monotonic() < min(wall, began + _WAITING * seconds):
                # On a busy machine a test has less CPU time than wall-clock time.
                missing = seconds - (self._cpu_seconds() - used)
                if missing <= 0:
                    return letters, loaded, True
                deadline = min(time.monotonic() + max(missing, 0.05), began + _WAITING * seconds)
            elif time.monotonic() >= min(deadline, wall):
                if len(confined) < 2:
                    raise Broken("a process did not start in time")
                return letters, loaded, True
        if len(confined) < 2:
            raise Broken("a process ended before it was confined")
        return letters, loaded, False

    def _cpu_seconds(self) -> float:
        """Returns the CPU time of both processes so far, infinite where the system does not report it."""
        try:
            # The id of another process's clock, as clock_getcpuclockid(3) computes it.
            return sum(time.clock_gettime((~pid << 3) | 2) for pid in self._pids)
        except OSError:
            return float("inf")

    def end(self) -> bool:
        """Kills and reaps both. Returns whether one of them had used up its CPU time."""
        spent = False
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if self._confinement.level == NONE:
                with contextlib.suppress(OSError):
                    os.killpg(pid, signal.SIGKILL)
        for pid in self._pids:
            usage = os.wait4(pid, 0)[2]
            # Half, because the kernel enforces the limit by ticks but reports the exact time.
            spent |= usage.ru_utime + usage.ru_stime >= 0.5 * self._bounds.cpu_seconds
        self._pids = []
        os.close(self.status)
        return spent


def run(confinement: Confinement, channel: Channel, request: dict[str, Any], files: list[int]) -> str:
    """Returns one letter for each test."""
    count, letters = request["tests"], ""
    wall = time.monotonic() + request["wall_seconds"]
    while len(letters) < count:
        if time.monotonic() >= wall:
            return letters.ljust(count, TIMEOUT)
        attempt = Attempt(confinement, request, files, len(letters))
        try:
            more, loaded, late = attempt.watch(channel, wall)
        finally:
            spent = attempt.end()
        letters += more.replace(tester.GONE, TIMEOUT if spent else tester.ERROR)
        if late and not loaded:
            return letters.ljust(count, TIMEOUT)
        if late and len(letters) < count:
            letters += TIMEOUT
        elif len(letters) < count:
            # A process has ended, the solver or, without an answer, the tester: the remaining tests do not run.
            letters += (TIMEOUT if spent else tester.ERROR) if tester.GONE not in more else ""
            return letters.ljust(count, tester.ERROR)
    return letters


def main(level: str) -> None:
    """Serves runs until the other side of the socket on standard input closes."""
    channel = Channel.of_standard_input()
    for name in _WARM:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    try:
        confinement = Confinement(level)
        confinement.detach()
        named = False
        if level == NAMESPACES:
            channel.send({"stage": "detached"})
            named = channel.receive()[0]["named"]
        confinement.prepare(named)
    except (OSError, LookupError, AttributeError, ValueError) as error:
        channel.send({"failure": f"{type(error).__name__}: {error}"})
        return
    channel.send({"stage": "ready"})
    gc.collect()
    gc.freeze()
    while True:
        request, files = channel.receive()
        try:
            answer: dict[str, Any] = {"letters": run(confinement, channel, request, files)}
        except (Broken, OSError) as error:
            answer = {"failure": f"{type(error).__name__}: {error}"}
        for descriptor in files:
            os.close(descriptor)
        channel.send(answer)
