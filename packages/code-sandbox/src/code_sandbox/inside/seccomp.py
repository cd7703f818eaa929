"""A list of the system calls that a confined interpreter may make; the kernel refuses all others with EPERM.

The list holds what CPython needs to compute and to use the files it may reach: no sockets, no new processes or
threads, no signals to others, no changes of rights, no tracing, no memory outside the address space's limit. Where a
call can do both good and harm, its arguments are checked: signals go to the process itself, `fcntl` cannot direct
signals elsewhere, `prlimit64` is for the process itself.

The program is classic BPF, as in the kernel's documentation (Documentation/userspace-api/seccomp_filter.rst).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import struct
from collections.abc import Mapping, Sequence

# The call's number on x86_64 and on aarch64, None where it does not exist.
CALLS: dict[str, tuple[int | None, int | None]] = {
    # reading, writing, waiting
    "read": (0, 63),
    "write": (1, 64),
    "pread64": (17, 67),
    "pwrite64": (18, 68),
    "readv": (19, 65),
    "writev": (20, 66),
    "lseek": (8, 62),
    "close": (3, 57),
    "close_range": (436, 436),
    "dup": (32, 23),
    "dup2": (33, None),
    "dup3": (292, 24),
    "pipe": (22, None),
    "pipe2": (293, 59),
    "poll": (7, None),
    "ppoll": (271, 73),
    "select": (23, None),
    "pselect6": (270, 72),
    "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21),
    "epoll_wait": (232, None),
    "epoll_pwait": (281, 22),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    # files, whose reach is limited by other means
    "open": (2, None),
    "openat": (257, 56),
    "stat": (4, None),
    "fstat": (5, 80),
    "lstat": (6, None),
    "newfstatat": (262, 79),
    "statx": (332, 291),
    "access": (21, None),
    "faccessat": (269, 48),
    "faccessat2": (439, 439),
    "getdents": (78, None),
    "getdents64": (217, 61),
    "readlink": (89, None),
    "readlinkat": (267, 78),
    "getcwd": (79, 17),
    "chdir": (80, 49),
    "fchdir": (81, 50),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "ftruncate": (77, 46),
    "umask": (95, 166),
    # memory
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "msync": (26, 227),
    "brk": (12, 214),
    "membarrier": (324, 283),
    # the process itself
    "exit": (60, 93),
    "exit_group": (231, 94),
    "getpid": (39, 172),
    "getppid": (110, 173),
    "getpgrp": (111, None),
    "gettid": (186, 178),
    "getuid": (102, 174),
    "geteuid": (107, 175),
    "getgid": (104, 176),
    "getegid": (108, 177),
    "getrlimit": (97, 163),
    "getrusage": (98, 165),
    "times": (100, 153),
    "uname": (63, 160),
    "sysinfo": (99, 179),
    "getrandom": (318, 278),
    "sched_yield": (24, 124),
    "sched_getaffinity": (204, 123),
    "futex": (202, 98),
    "set_robust_list": (273, 99),
    "rseq": (334, 293),
    "restart_syscall": (219, 128),
    # clocks and its own signals
    "time": (201, None),
    "gettimeofday": (96, 169),
    "clock_gettime": (228, 113),
    "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115),
    "nanosleep": (35, 101),
    "alarm": (37, None),
    "pause": (34, None),
    "getitimer": (36, 102),
    "setitimer": (38, 103),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sigaltstack": (131, 132),
}

# Left out where a process may write no file at all.
WRITING = {"mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2", "ftruncate"}
# Of these, only the ways that read: the position of their flags.
OPENING = {"open": 1, "openat": 2}
# O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_TMPFILE: the same bits on both architectures.
WRITE_FLAGS = 0o1 | 0o2 | 0o100 | 0o1000 | 0o20000000

# Allowed only where an argument has one of some values: number on x86_64 and aarch64, position of the argument.
CHECKED: dict[str, tuple[int, int, int]] = {
    "kill": (62, 129, 0),
    "tkill": (200, 130, 0),
    "tgkill": (234, 131, 0),
    "prlimit64": (302, 261, 0),
    "fcntl": (72, 25, 1),
    "ioctl": (16, 29, 1),
}
# Duplicate and flags: F_DUPFD to F_SETFL, F_DUPFD_CLOEXEC. F_SETOWN, F_SETSIG and F_SETPIPE_SZ are not there, nor are
# locks, which would be seen by every process that has the same file open, of other runs and of the machine.
FCNTL_COMMANDS = (0, 1, 2, 3, 4, 1030)
# What open() and isatty() ask: TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX. TIOCSTI is not there.
IOCTL_REQUESTS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)

# Refused to a program that is otherwise free: number on x86_64 and aarch64. A ring of io_uring opens sockets as well.
OF_OTHERS = {
    "socket": (41, 198),
    "io_uring_setup": (425, 425),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
}

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""By the machine's name: the column of the tables above, and the kernel's AUDIT_ARCH constant."""

_ALLOW, _DENY, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_X32 = 0x40000000
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


@functools.lru_cache(maxsize=4)
def program(architecture: str, pid: int, writes: bool) -> bytes:
    """The filter for a process.

    Args:
        architecture: a key of `ARCHITECTURES`.
        pid: the process, as it sees itself: the only one that it may send signals to.
        writes: whether it may open files to write to, where other limits let it.
    """
    column, audit = ARCHITECTURES[architecture]
    values: Mapping[str, Sequence[int]] = {
        "kill": (pid,),
        "tkill": (pid,),
        "tgkill": (pid,),
        "prlimit64": (0,),
        "fcntl": FCNTL_COMMANDS,
        "ioctl": IOCTL_REQUESTS,
    }
    # struct seccomp_data: number at 0, architecture at 4, arguments of 8 bytes from 16.
    code = [_instruction(_LOAD, 4), _instruction(_EQUAL, audit, 1, 0), _instruction(_RETURN, _KILL)]
    code.append(_instruction(_LOAD, 0))
    if architecture == "x86_64":
        code += [_instruction(_AT_LEAST, _X32, 0, 1), _instruction(_RETURN, _DENY)]
    for name, numbers in CALLS.items():
        number = numbers[column]
        if number is None or (not writes and name in WRITING):
            continue
        if not writes and name in OPENING:
            code += [_instruction(_EQUAL, number, 0, 4), _instruction(_LOAD, 16 + 8 * OPENING[name])]
            code += [_instruction(_ANY_BIT, WRITE_FLAGS, 0, 1), _instruction(_RETURN, _DENY)]
            code.append(_instruction(_RETURN, _ALLOW))
        else:
            code += [_instruction(_EQUAL, number, 0, 1), _instruction(_RETURN, _ALLOW)]
    for name, entry in CHECKED.items():
        # The kernel reads these arguments as 32 bits, so their low half is the whole of them.
        block = [_instruction(_LOAD, 16 + 8 * entry[2])]
        for value in values[name]:
            block += [_instruction(_EQUAL, value, 0, 1), _instruction(_RETURN, _ALLOW)]
        block.append(_instruction(_RETURN, _DENY))
        code += [_instruction(_EQUAL, entry[column], 0, len(block)), *block]
    code.append(_instruction(_RETURN, _DENY))
    return b"".join(code)


def install(libc: ctypes.PyDLL, writes: bool) -> None:
    """Restricts this process, for good.

    Args:
        libc: the C library.
        writes: as in `program`.

    Raises:
        OSError: the kernel or the machine has no such filter.
    """
    machine = platform_name()
    if machine not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no list of system calls for {machine}")
    load(libc, program(machine, os.getpid(), writes))


def refuse_others(libc: ctypes.PyDLL) -> None:
    """Refuses this process, for good, sockets and what reaches into other processes; every other call is allowed.

    For a program that needs more than the list above: Landlock does not ask about sockets that have a path.

    Raises:
        OSError: the kernel or the machine has no such filter.
    """
    column, audit = ARCHITECTURES.get(platform_name(), (0, 0))
    if not audit:
        raise OSError(errno.ENOSYS, f"no list of system calls for {platform_name()}")
    code = [_instruction(_LOAD, 4), _instruction(_EQUAL, audit, 1, 0), _instruction(_RETURN, _KILL)]
    code += [_instruction(_LOAD, 0), _instruction(_AT_LEAST, _X32, 0, 1), _instruction(_RETURN, _DENY)]
    for numbers in OF_OTHERS.values():
        code += [_instruction(_EQUAL, numbers[column], 0, 1), _instruction(_RETURN, _DENY)]
    load(libc, b"".join([*code, _instruction(_RETURN, _ALLOW)]))


def load(libc: ctypes.PyDLL, code: bytes) -> None:
    """Hands a filter to the kernel.

    Raises:
        OSError: it is not accepted.
    """

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    filters = Program(len(code) // 8, code)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(filters), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def platform_name() -> str:
    """The machine's architecture as the kernel names it, for a 64-bit interpreter."""
    return os.uname().machine if struct.calcsize("P") == 8 else platform.machine() + " with a 32-bit interpreter"
