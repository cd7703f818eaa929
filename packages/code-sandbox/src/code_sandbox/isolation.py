"""What this machine can give to run code that nobody has read."""

from __future__ import annotations

import functools
import json
import logging
import sys
from dataclasses import dataclass

from code_sandbox.inside.confinement import LANDLOCK, NAMESPACES, NONE
from code_sandbox.pool import POOL, SandboxError

logger = logging.getLogger(__name__)

_GUARANTEES = {
    NAMESPACES: (
        "no network, and no device for one",
        "no file but the standard library, read-only, and a scratch folder in memory that ends with the run",
        "a process table, user and mounts of its own; no other process can be seen or signalled",
        "where root asks, the code runs as nobody",
        "no new process or thread; system calls limited to a list; no right left or to be gained",
        "limits of address space, processor time, wall-clock time, files and messages",
    ),
    LANDLOCK: (
        "no network",
        "no file may be opened but the standard library, read-only; that other files exist can be seen",
        "no signal to another process",
        "where root asks, the code runs as nobody; where another user asks, as that user",
        "no new process or thread; system calls limited to a list; no right left or to be gained",
        "limits of address space, processor time, wall-clock time, files and messages",
    ),
    NONE: (),
}

# What the probe tries. Each must fail, in the very process that code would run in.
_PROBE = """
import os
def refused(attempt):
    try:
        attempt()
    except OSError:
        return True
    return False
def probe():
    import socket
    return [
        refused(lambda: socket.socket()),
        refused(lambda: open("/etc/passwd").close()),
        refused(lambda: os.listdir("/proc/self")),
        refused(lambda: os.fork() or os._exit(0)),
        refused(lambda: os.kill(os.getppid() or -1, 0)),
        refused(lambda: open("/written", "w")),
    ]
"""
_PROBE_TESTS = [
    "assert probe() == [True] * 6",
    "try:\n    open('/etc/passwd')\nexcept OSError:\n    pass\nelse:\n    raise ValueError",
]
_PROBE_REQUEST = {
    "tests": len(_PROBE_TESTS),
    "test_seconds": 20.0,
    "wall_seconds": 40.0,
    "cpu_seconds": 20,
    "memory_bytes": 2**29,
    "scratch_bytes": 2**20,
    "seed": 0,
}


class IsolationError(RuntimeError):
    """Code was not run, because this machine cannot confine it."""


@dataclass(frozen=True)
class Isolation:
    """What this machine can give.

    Attributes:
        level: `"namespaces"`, `"landlock"` or `"none"`, the best that was tried and works.
        guarantees: what holds for code that runs at this level.
        missing: why each better level is not to be had, by level.
    """

    level: str
    guarantees: tuple[str, ...]
    missing: tuple[tuple[str, str], ...] = ()


@functools.cache
def isolation() -> Isolation:
    """The best isolation of this machine, tried out once: confined code attempts what it must not be able to do.

    A machine that does not give the best level is told of in a warning of this module's logger, with the reason.

    Levels, best first: `"namespaces"` (Linux with unprivileged user namespaces), `"landlock"` (Linux 5.13 or later
    without them), `"none"` (other systems, and machines that permit neither).
    """
    missing: list[tuple[str, str]] = []
    for level in (NAMESPACES, LANDLOCK):
        reason = tried(level)
        if reason is None:
            break
        missing.append((level, reason))
    else:
        level = NONE
    if missing:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in missing)
        logger.warning("Code is confined at level %r, because this machine does not give better (%s).", level, reasons)
    return Isolation(level, _GUARANTEES[level], tuple(missing))


@functools.cache
def tried(level: str) -> str | None:
    """Why this machine does not give a level, `None` if it does; found out once."""
    if sys.platform != "linux":
        return f"it is a part of Linux, and this is {sys.platform}"
    code = json.dumps({"code": _PROBE, "setup": ""}).encode()
    tests = json.dumps({"tests": _PROBE_TESTS, "setup": "", "entry_point": None}).encode()
    try:
        letters, messages = POOL.run(level, _PROBE_REQUEST, code, tests)
    except SandboxError as error:
        return str(error)
    return None if letters == "p" * len(letters) else f"a trial was not refused: {messages}"


def required(level: str | None, accept_no_isolation: bool) -> str:
    """The level to run at.

    Args:
        level: the one that is wanted, or `None` for the best.
        accept_no_isolation: whether `"none"` will do.

    Raises:
        ValueError: there is no such level.
        IsolationError: the machine does not give it, or it is `"none"` and that is not accepted.
    """
    if level not in (None, *_GUARANTEES):
        raise ValueError(f"a level must be one of {', '.join(_GUARANTEES)}, got {level!r}; leave it out for the best.")
    if sys.platform == "win32":
        raise IsolationError("code must run in a process with limits, which Windows lacks; run it under Linux or WSL.")
    if level is None:
        found = isolation()
        level, reasons = found.level, "; ".join(f"{name}: {reason}" for name, reason in found.missing)
    elif reasons := "" if level == NONE else tried(level) or "":
        raise IsolationError(f"code must run at level {level!r}, which this machine lacks ({reasons}); leave it out.")
    if level == NONE and not accept_no_isolation:
        raise IsolationError(
            "code must run isolated, and this is level 'none'"
            + (f" ({reasons})" if reasons else "")
            + "; use a Linux with user namespaces or Landlock, or pass accept_no_isolation=True if you know the code."
        )
    return level
