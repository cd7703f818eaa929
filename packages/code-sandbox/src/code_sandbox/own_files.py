"""Restricts the files that this process may open, where the kernel has Landlock."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence

from code_sandbox.inside import landlock

_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sys", "/dev", "/etc/ld.so.cache", "/etc/localtime")
_OWN_PROC = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat")  # not /proc/PID, which has environments


def keep_to(readable: Sequence[str], folder: str | None) -> bool:
    """Restricts this process for good: it reads files of Python, of the system and `readable`, and writes to `folder`.

    The caller must have set `PR_SET_NO_NEW_PRIVS`.

    Args:
        readable: files and folders; missing ones are ignored.
        folder: for reading and writing; none if `None`.

    Returns:
        Whether the restriction holds; where the kernel cannot restrict, nothing changes.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.PyDLL(None, use_errno=True)
    if landlock.version(libc) <= 0:
        return False
    python = [*sys.path, sys.prefix, sys.base_prefix, *_SYSTEM, *_OWN_PROC]
    paths = [path for path in dict.fromkeys([*python, *readable]) if path and os.path.exists(path)]
    try:
        landlock.restrict(libc, landlock.ruleset(libc, paths, folder, ("/dev/null",)))
    except OSError:
        return False
    return True
