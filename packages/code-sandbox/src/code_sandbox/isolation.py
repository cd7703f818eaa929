"""Which isolation this machine offers for untrusted code."""

from __future__ import annotations

import functools
import json
import logging
import sys
from dataclasses import dataclass

from code_sandbox.inside.confinement import LANDLOCK, NAMESPACES, NONE
from code_sandbox.pool import POOL, SandboxError

logger = logging.getLogger(__name__)

_BOTH = (
    "no new process or thread; system calls limited to a list; no capabilities, and none to gain",
    "limits on address space, CPU time, wall-clock time, files and messages",
)
_GUARANTEES = {
    NAMESPACES: (
        "no network, and no network device",
        "no file but the standard library, read-only, and a scratch folder in memory that ends with the run",
        "a process table, user and mounts of its own; other processes are invisible and get no signal",
        "called by root, the code runs as nobody",
        *_BOTH,
    ),
    LANDLOCK: (
        "no network",
        "no file opens but the standard library, read-only; names of other files are visible",
        "no signal to another process",
        "called by root, the code runs as nobody; called by another user, as that user",
        *_BOTH,
    ),
    NONE: (),
}

# The attempts of the probe. Each must fail in a process of the same kind as the code's.
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
    """The code did not run, because this machine cannot confine it."""


@dataclass(frozen=True)
class Isolation:
    """The isolation that this machine offers.

    Attributes:
        level: `"namespaces"`, `"landlock"` or `"none"`: the best level that passed the probe.
        guarantees: the guarantees for code at this level.
        missing: (level, reason) of each better level that this machine lacks.
    """

    level: str
    guarantees: tuple[str, ...]
    missing: tuple[tuple[str, str], ...] = ()


@functools.cache
def isolation() -> Isolation:
    """Returns the best isolation of this machine, probed once: confined code attempts what it must not be able to do.

    If the machine lacks the best level, this module's logger warns with the reason.

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
        logger.warning(
            "Code runs at isolation level %r, because this machine lacks a better one (%s).", level, reasons
        )
    return Isolation(level, _GUARANTEES[level], tuple(missing))


@functools.cache
def tried(level: str) -> str | None:
    """Returns why this machine lacks a level, `None` if it offers it; probed once."""
    if sys.platform != "linux":
        return f"it needs Linux, and this is {sys.platform}"
    code = json.dumps({"code": _PROBE, "setup": ""}).encode()
    tests = json.dumps({"tests": _PROBE_TESTS, "setup": "", "entry_point": None}).encode()
    try:
        letters, messages = POOL.run(level, _PROBE_REQUEST, code, tests)
    except SandboxError as error:
        return str(error)
    return None if letters == "p" * len(letters) else f"a forbidden attempt succeeded: {messages}"


def required(level: str | None, accept_no_isolation: bool) -> str:
    """Returns the level to run at.

    Args:
        level: the wanted level, or `None` for the best.
        accept_no_isolation: whether the caller accepts `"none"`.

    Raises:
        ValueError: no level has this name.
        IsolationError: the machine lacks the level, or it is `"none"` and the caller does not accept that.
    """
    if level not in (None, *_GUARANTEES):
        raise ValueError(f"a level must be one of {', '.join(_GUARANTEES)}, got {level!r}; leave it out for the best.")
    if sys.platform == "win32":
        raise IsolationError("code must run in a process with limits, which Windows lacks; run it under Linux or WSL.")
    if level is None:
        best = isolation()
        level, reasons = best.level, "; ".join(f"{name}: {reason}" for name, reason in best.missing)
    elif reasons := "" if level == NONE else tried(level) or "":
        raise IsolationError(f"code must run at level {level!r}, which this machine lacks ({reasons}); leave it out.")
    if level == NONE and not accept_no_isolation:
        raise IsolationError(
            "code must run isolated, and this is level 'none'"
            + (f" ({reasons})" if reasons else "")
            + "; use a Linux with user namespaces or Landlock, or pass accept_no_isolation=True if you know the code."
        )
    return level
