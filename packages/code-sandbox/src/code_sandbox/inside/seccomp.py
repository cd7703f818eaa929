"""The system calls that a confined interpreter may make; the kernel refuses all others with EPERM.

The list holds those that CPython needs to compute and to use its files: no sockets, no new processes or threads, no
signals to other processes, no changes of rights, no tracing, no memory beyond the limit of the address space. The
filter checks the arguments of calls that can do good and harm: signals go to the process itself, `fcntl` cannot direct
signals elsewhere, `prlimit64` is for the process itself.

The program is classic BPF, as in the kernel's documentation (Documentation/userspace-api/seccomp_filter.rst).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import struct
from collections.abc import Mapping, Sequence

# The number of each call on x86_64 and on aarch64, None where it does not exist.
CALLS: dict[str, tuple[int | None, int | None]] = {
    # reading, writing, waiting
    "read": (0, 63), "write": (1, 64), "pread64": (17, 67), "pwrite64": (18, 68), "readv": (19, 65),
    "writev": (20, 66), "lseek": (8, 62), "close": (3, 57), "close_range": (436, 436), "dup": (32, 23),
    "dup2": (33, None), "dup3": (292, 24), "pipe": (22, None), "pipe2": (293, 59), "poll": (7, None),
    "ppoll": (271, 73), "select": (23, None), "pselect6": (270, 72), "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21), "epoll_wait": (232, None), "epoll_pwait": (281, 22), "fsync": (74, 82),
    "fdatasync": (75, 83),
    # files; other means limit which
    "open": (2, None), "openat": (257, 56), "stat": (4, None), "fstat": (5, 80), "lstat": (6, None),
    "newfstatat": (262, 79), "statx": (332, 291), "access": (21, None), "faccessat": (269, 48),
    "faccessat2": (439, 439), "getdents": (78, None), "getdents64": (217, 61), "readlink": (89, None),
    "readlinkat": (267, 78), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50), "mkdir": (83, None),
    "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None), "unlinkat": (263, 35), "rename": (82, None),
    "renameat": (264, 38), "renameat2": (316, 276), "ftruncate": (77, 46), "umask": (95, 166),
    # memory
    "mmap": (9, 222), "mprotect": (10, 226), "munmap": (11, 215), "mremap": (25, 216), "madvise": (28, 233),
    "msync": (26, 227), "brk": (12, 214), "membarrier": (324, 283),
    # the process itself
    "exit": (60, 93), "exit_group": (231, 94), "getpid": (39, 172), "getppid": (110, 173), "getpgrp": (111, None),
    "gettid": (186, 178), "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177),
    "getrlimit": (97, 163), "getrusage": (98, 165), "times": (100, 153), "uname": (63, 160), "sysinfo": (99, 179),
    "getrandom": (318, 278), "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "futex": (202, 98),
    "set_robust_list": (273, 99), "rseq": (334, 293), "restart_syscall": (219, 128),
    # clocks and its own signals
    "time": (201, None), "gettimeofday": (96, 169), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "clock_nanosleep": (230, 115), "nanosleep": (35, 101), "alarm": (37, None), "pause": (34, None),
    "getitimer": (36, 102), "setitimer": (38, 103), "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139), "sigaltstack": (131, 132),
}  # fmt: skip

# Denied to a process that may write no file at all.
WRITING = {"mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2", "ftruncate"}
# Such a process may call these for reading only: the position of their flags.
OPENING = {"open": 1, "openat": 2}
# O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_TMPFILE: the same bits on both architectures.
WRITE_FLAGS = 0o1 | 0o2 | 0o100 | 0o1000 | 0o20000000

# Allowed only for some values of an argument: number on x86_64 and aarch64, position of the argument.
CHECKED: dict[str, tuple[int, int, int]] = {
    "kill": (62, 129, 0),
    "tkill": (200, 130, 0),
    "tgkill": (234, 131, 0),
    "prlimit64": (302, 261, 0),
    "fcntl": (72, 25, 1),
    "ioctl": (16, 29, 1),
}
# Duplicates and flags: F_DUPFD to F_SETFL, F_DUPFD_CLOEXEC. Without F_SETOWN, F_SETSIG, F_SETPIPE_SZ and locks, which
# every process that has the same file open would notice, of other runs and of the machine.
FCNTL_COMMANDS = (0, 1, 2, 3, 4, 1030)
# For open() and isatty(): TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX. Without TIOCSTI.
IOCTL_REQUESTS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)

# Denied to a program that may do all else: number on x86_64 and aarch64. A ring of io_uring opens sockets as well.
OF_OTHERS = {
    "socket": (41, 198),
    "io_uring_setup": (425, 425),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
}

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""By machine name: the column of the tables above, and the kernel's AUDIT_ARCH constant."""

_ALLOW, _DENY, _KILL = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_X32 = 0x40000000
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _load_call(audit: int) -> list[bytes]:
    """Returns instructions that load the number of the call, and refuse other architectures and the x32 interface.

    In struct seccomp_data the number is at 0, the architecture at 4, and arguments of 8 bytes from 16.
    """
    code = [_instruction(_LOAD, 4), _instruction(_EQUAL, audit, 1, 0), _instruction(_RETURN, _KILL)]
    return [*code, _instruction(_LOAD, 0), _instruction(_AT_LEAST, _X32, 0, 1), _instruction(_RETURN, _DENY)]


@functools.lru_cache(maxsize=4)
def program(architecture: str, pid: int, writes: bool) -> bytes:
    """Returns the filter for a process.

    Args:
        architecture: a key of `ARCHITECTURES`.
        pid: the id of the process in its own namespace: the only process that it may send signals to.
        writes: whether it may open files for writing, within other limits.
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
    code = _load_call(audit)
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
        # The kernel reads these arguments as 32 bits, so their low half is all of them.
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
        OSError: the kernel rejects the filter, or `platform_name` does.
    """
    load(libc, program(platform_name(), os.getpid(), writes))


def refuse_others(libc: ctypes.PyDLL) -> None:
    """Denies this process, for good, sockets and access to other processes, and allows all other calls.

    For a program that needs more than the list above: Landlock does not restrict sockets with a path.

    Raises:
        OSError: the kernel rejects the filter, or `platform_name` does.
    """
    column, audit = ARCHITECTURES[platform_name()]
    code = _load_call(audit)
    for numbers in OF_OTHERS.values():
        code += [_instruction(_EQUAL, numbers[column], 0, 1), _instruction(_RETURN, _DENY)]
    load(libc, b"".join([*code, _instruction(_RETURN, _ALLOW)]))


def load(libc: ctypes.PyDLL, code: bytes) -> None:
    """Installs a filter.

    Raises:
        OSError: the kernel rejects it.
    """

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    filters = Program(len(code) // 8, code)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(filters), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


def platform_name() -> str:
    """Returns the architecture of the machine, a key of `ARCHITECTURES`.

    Raises:
        OSError: there is no list of system calls for it, or the interpreter has 32 bits.
    """
    machine, bits = os.uname().machine, 8 * struct.calcsize("P")
    if machine not in ARCHITECTURES or bits != 64:
        raise OSError(errno.ENOSYS, f"no list of system calls for {machine} with an interpreter of {bits} bits")
    return machine
