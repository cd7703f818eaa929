"""Landlock: limits of the kernel on the files that a process may open; setting them needs no privilege.

Layouts and bits are those of Documentation/userspace-api/landlock.rst. Later versions of the interface restrict more:
this module restricts everything that the running kernel knows, and allows only the rights named below.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # on every architecture
_VERSION = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REG = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_TRUNCATE = 1 << 14
_KNOWN = ((1, (1 << 13) - 1), (2, 1 << 13), (3, _TRUNCATE), (5, 1 << 15))
"""The version that introduced each group of file rights."""

_READ = _READ_FILE | _READ_DIR
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_SCRATCH = _READ | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _TRUNCATE


def version(libc: ctypes.PyDLL) -> int:
    """Returns the version of the kernel's interface, 0 if it has none."""
    return max(int(libc.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint(_VERSION))), 0)


def ruleset(
    libc: ctypes.PyDLL, readable: Iterable[str], scratch: str | None = None, writable: Iterable[str] = ()
) -> int:
    """Returns a ruleset as a file descriptor. It denies all else, TCP and signals to other processes included.

    Args:
        libc: the C library.
        readable: files, and folders with all below them, to read.
        scratch: a folder in which to read, write, create and remove.
        writable: files to read and write, such as /dev/null.

    Raises:
        OSError: the kernel rejects it.
    """
    abi = version(libc)
    files = sum(bits for since, bits in _KNOWN if abi >= since)
    net, scoped = (3 if abi >= 4 else 0), (3 if abi >= 6 else 0)
    attributes = struct.pack("=QQQ", files, net, scoped)[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    descriptor = int(libc.syscall(_CREATE, attributes, ctypes.c_size_t(len(attributes)), ctypes.c_uint(0)))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "landlock_create_ruleset")
    for path in readable:
        _add(libc, descriptor, path, _READ & files)
    for path in writable:
        _add(libc, descriptor, path, (_READ_FILE | _WRITE_FILE) & files)
    if scratch is not None:
        _add(libc, descriptor, scratch, _SCRATCH & files)
    return descriptor


def _add(libc: ctypes.PyDLL, descriptor: int, path: str, rights: int) -> None:
    beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not os.path.isdir(path):
            rights &= _FILE_RIGHTS
        rule = struct.pack("=Qi", rights, beneath)
        if libc.syscall(_ADD_RULE, ctypes.c_int(descriptor), ctypes.c_int(1), rule, ctypes.c_uint(0)) != 0:
            raise OSError(ctypes.get_errno(), "landlock_add_rule")
    finally:
        os.close(beneath)


def restrict(libc: ctypes.PyDLL, descriptor: int) -> None:
    """Restricts this process to a ruleset, for good; `no_new_privs` must be set.

    Raises:
        OSError: the kernel rejects it.
    """
    if libc.syscall(_RESTRICT, ctypes.c_int(descriptor), ctypes.c_uint(0)) != 0:
        raise OSError(ctypes.get_errno(), "landlock_restrict_self")
