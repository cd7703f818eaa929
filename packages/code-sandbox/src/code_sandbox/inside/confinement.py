"""Confines a process by means of the operating system: namespaces, Landlock, seccomp, resource limits.

Level "namespaces" needs unprivileged user namespaces: each process has its own root folder with only the standard
library, no network device, its own process table, and a scratch folder in memory. Level "landlock" needs none: the
folders are the machine's, but only the standard library opens, and there is no scratch. On both, seccomp allows a
fixed list of system calls, the process has no capabilities and cannot gain any, and resource limits hold. Level "none"
has the resource limits only, for callers who accept that.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from code_sandbox.inside import landlock, seccomp

NAMESPACES, LANDLOCK, NONE = "namespaces", "landlock", "none"

NOBODY = 65534
SCRATCH = "/scratch/own"
_BASE = "/proc"  # every Linux has this folder, and the sandbox needs nothing below it

_NEWNS, _NEWUSER, _NEWPID = 0x00020000, 0x10000000, 0x20000000
_NEWUTS, _NEWIPC, _NEWNET = 0x04000000, 0x08000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 1, 2, 4, 8, 32
_MS_BIND, _MS_REC, _MS_PRIVATE, _MNT_DETACH = 0x1000, 0x4000, 0x40000, 2
_PDEATHSIG, _DUMPABLE, _KEEPCAPS, _CAPBSET_DROP, _NO_NEW_PRIVS, _CAP_AMBIENT = 1, 4, 8, 24, 38, 47
_CAP_DAC_READ_SEARCH, _CAP_VERSION = 2, 0x20080522
_CLONE = {"x86_64": 56, "aarch64": 220}
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}


@dataclass(frozen=True)
class Bounds:
    """The limits of one confined process, in bytes and seconds of CPU time."""

    memory_bytes: int
    cpu_seconds: int
    scratch_bytes: int


def library() -> ctypes.PyDLL:
    """Returns the C library. Calls keep the interpreter's lock, so that a copy made by `clone` holds it too."""
    return ctypes.PyDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def standard_library() -> list[str]:
    """Returns the module folders of an interpreter without site-packages."""
    return [path for path in sys.path if os.path.isdir(path)]


def _readable() -> list[str]:
    """Returns the files and folders of the standard library, without installed packages.

    Leaves out broken links: Debian's Python has one to a file below /etc, which a root folder of our own lacks.
    """
    paths = []
    for folder in standard_library():
        with os.scandir(folder) as entries:
            paths += [entry.path for entry in entries if entry.name not in ("site-packages", "dist-packages")]
    return [path for path in paths if os.path.exists(path)]


def _open_to_all(folder: str) -> bool:
    """Returns whether every user may read a folder, and pass all folders above it."""
    above = [folder, *map(str, Path(folder).parents)]
    return bool(os.stat(folder).st_mode & 0o4) and all(os.stat(path).st_mode & 0o1 for path in above)


class Confinement:
    """A confinement that the supervisor prepares once and each of its forks enters.

    Args:
        level: `"namespaces"`, `"landlock"` or `"none"`.

    Raises:
        ValueError: no level has this name.
    """

    def __init__(self, level: str) -> None:
        if level not in (NAMESPACES, LANDLOCK, NONE):
            raise ValueError(
                f"a level must be one of {NAMESPACES}, {LANDLOCK}, {NONE}, got {level!r}; correct the name."
            )
        self.level = level
        self._libc = library()
        self._nobody = False
        self._pass_folders = False
        self._rules: dict[bool, int] = {}

    # In the supervisor

    def detach(self) -> None:
        """Leaves the namespaces of the machine; the new user namespace maps no users yet.

        Raises:
            OSError: the machine does not permit it.
        """
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")  # if memory runs out in spite of the limits, the kernel kills this process first
        if self.level == NAMESPACES:
            self._user, self._group = os.geteuid(), os.getegid()
            _check(self._libc.unshare(_NEWUSER | _NEWNS | _NEWNET | _NEWIPC | _NEWUTS), "unshare")

    def prepare(self, named: bool) -> None:
        """Builds the root folder and its rules.

        Args:
            named: whether an outside process has mapped the users: 0, and the user that runs the code.

        Raises:
            OSError: the machine does not permit it.
        """
        if self.level == NAMESPACES:
            if not named and self._user == 0:
                raise OSError(errno.EPERM, "root's code must run as nobody, and the machine maps no such user")
            if not named:
                self._name_users()
            self._nobody = named
            self._own_root()
        if self.level == LANDLOCK:
            if landlock.version(self._libc) < 1:
                raise OSError(errno.ENOSYS, "the kernel has no Landlock")
            self._nobody = os.geteuid() == 0
            # The code keeps the capability to read root's private folders only where Python itself lies in one.
            self._pass_folders = self._nobody and not all(map(_open_to_all, standard_library()))
        if self.level != NONE and landlock.version(self._libc) > 0:
            scratch = os.path.dirname(SCRATCH) if self.level == NAMESPACES else None
            self._rules = {
                False: landlock.ruleset(self._libc, _readable()),
                True: landlock.ruleset(self._libc, _readable(), scratch),
            }
        for capability in range(64):  # useless to the supervisor, which starts no program
            if self.level == NONE or self._libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                break  # after the last one, or without the right to drop, which leaves none to gain
        if self.level == NAMESPACES:
            for writes in (False, True):  # cached for the forks
                seccomp.program(seccomp.platform_name(), 1, writes)

    def _name_users(self) -> None:
        with contextlib.suppress(OSError), open("/proc/self/setgroups", "w") as file:
            file.write("deny")
        for name, number in (("uid_map", self._user), ("gid_map", self._group)):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(f"0 {number} 1")

    def _own_root(self) -> None:
        libc = self._libc
        folders = standard_library()
        _check(libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None), "mount /")
        limits = b"size=1m,nr_inodes=1k,mode=0755"
        _check(libc.mount(b"tmpfs", _BASE.encode(), b"tmpfs", _MS_NOSUID | _MS_NODEV, limits), "mount root")
        for folder in folders:
            if os.path.isdir(_BASE + folder):
                continue  # below a bound folder
            os.makedirs(_BASE + folder, 0o755)
            target = os.fsencode(_BASE + folder)
            _check(libc.mount(os.fsencode(folder), target, None, _MS_BIND | _MS_REC, None), f"bind {folder}")
            for installed in ("site-packages", "dist-packages"):
                inner = f"{_BASE}{folder}/{installed}"
                if os.path.isdir(inner):
                    flags = _MS_RDONLY | _MS_NOSUID | _MS_NODEV
                    _check(libc.mount(b"tmpfs", os.fsencode(inner), b"tmpfs", flags, b"size=4k"), "mask")
            self._read_only(folder)
        os.makedirs(_BASE + SCRATCH, 0o755)
        os.chdir(_BASE)
        _check(libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
        _check(libc.umount2(b".", _MNT_DETACH), "umount")
        os.chdir("/")
        _check(libc.mount(b"none", b"/", None, _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV, None), "remount /")

    def _read_only(self, folder: str) -> None:
        """Makes a bound folder read-only, with the flags that the machine has locked."""
        locked = os.statvfs(folder).f_flag
        keep = locked & (2 | 4 | 8 | 1024 | 2048)  # nosuid, nodev, noexec, noatime, nodiratime: the same bits
        keep |= 1 << 21 if locked & 4096 else 0  # relatime
        flags = _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _MS_NOSUID | _MS_NODEV | keep
        _check(self._libc.mount(b"none", os.fsencode(_BASE + folder), None, flags, None), f"protect {folder}")

    def fork(self, scratch: bool) -> int:
        """Forks like `os.fork`, into a new process table, and with `scratch` into a new mount table."""
        if self.level != NAMESPACES:
            return os.fork()
        flags = _NEWPID | (_NEWNS if scratch else 0) | signal.SIGCHLD
        pid = int(self._libc.syscall(_CLONE[os.uname().machine], ctypes.c_long(flags), None, None, None, None))
        if pid < 0:
            raise OSError(ctypes.get_errno(), "clone")
        return pid

    # In the process that is confined

    def enter(self, bounds: Bounds, scratch: bool) -> None:
        """Confines this process, for good.

        Args:
            bounds: of this process.
            scratch: whether it gets a writable folder of its own; level "landlock" has none.

        Raises:
            OSError: the machine did not permit a step; the process must end.
        """
        limited, scratch = scratch, scratch and self.level == NAMESPACES
        if self.level == NONE:
            os.setsid()
        self._die_with_the_keeper()
        if scratch:
            options = f"size={bounds.scratch_bytes},nr_inodes=1k,mode=0777".encode()
            flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
            _check(self._libc.mount(b"tmpfs", SCRATCH.encode(), b"tmpfs", flags, options), "mount scratch")
            os.chdir(SCRATCH)
        else:
            os.chdir("/")
        if self.level != NONE:
            self._drop_rights()
        self._limit(bounds, limited)
        if self.level == NONE:
            return
        if self._rules:
            landlock.restrict(self._libc, self._rules[scratch])
        seccomp.install(self._libc, writes=scratch)

    def _die_with_the_keeper(self) -> None:
        if sys.platform == "linux":
            _check(self._libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "prctl")

    def _drop_rights(self) -> None:
        libc = self._libc
        kept = 1 << _CAP_DAC_READ_SEARCH if self._pass_folders else 0
        if self._nobody:
            _check(libc.prctl(_KEEPCAPS, 1 if kept else 0, 0, 0, 0), "prctl")
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
        libc.prctl(_CAP_AMBIENT, 4, 0, 0, 0)
        header = (ctypes.c_uint32 * 2)(_CAP_VERSION, 0)
        if libc.capset(header, (ctypes.c_uint32 * 6)(kept, kept)) != 0:
            why = "capset" if not kept else f"nobody may not read {sys.prefix}; install Python where all users may"
            raise OSError(ctypes.get_errno(), why)
        _check(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "prctl")
        _check(libc.prctl(_DUMPABLE, 0, 0, 0, 0), "prctl")
        self._die_with_the_keeper()  # the change of user has undone it

    def _limit(self, bounds: Bounds, files: bool) -> None:
        limits: dict[str, Any] = {
            "RLIMIT_AS": bounds.memory_bytes,
            "RLIMIT_CPU": bounds.cpu_seconds,
            **({"RLIMIT_FSIZE": bounds.scratch_bytes} if files else {}),  # the tester writes its report alone
            "RLIMIT_NOFILE": 64,
            "RLIMIT_CORE": 0,
            "RLIMIT_MEMLOCK": 0,
            "RLIMIT_MSGQUEUE": 0,
        }
        if self.level == NAMESPACES:
            limits["RLIMIT_NPROC"] = 2  # counted in this namespace; elsewhere it counts all of the user's processes
        for name, value in limits.items():
            number = getattr(resource, name, None)
            if number is None:
                continue
            hard = resource.getrlimit(number)[1]
            allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
            try:
                resource.setrlimit(number, (allowed, allowed))
            except (ValueError, OSError):
                if self.level != NONE:  # other systems refuse some
                    raise
