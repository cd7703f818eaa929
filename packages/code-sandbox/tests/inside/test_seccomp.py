"""The filter of system calls, run by an interpreter as the kernel runs it."""

from __future__ import annotations

import errno
import struct

import pytest

from code_sandbox.inside import seccomp

ALLOWED, DENIED, KILLED = 0x7FFF0000, 0x00050000 | errno.EPERM, 0x80000000
ARCHITECTURES = sorted(seccomp.ARCHITECTURES)


def verdict(architecture: str, number: int, *arguments: int, writes: bool = True, audit: int | None = None) -> int:
    """Returns the verdict of the filter on a call of process 7."""
    code = seccomp.program(architecture, 7, writes)
    audit = seccomp.ARCHITECTURES[architecture][1] if audit is None else audit
    data = struct.pack("=IIQ6Q", number, audit, 0, *[*arguments, *[0] * 6][:6])
    place = accumulator = 0
    while True:
        operation, if_true, if_false, value = struct.unpack_from("=HBBI", code, 8 * place)
        place += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif operation == 0x06:
            return int(value)
        else:
            test = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: accumulator & value != 0}[operation]
            place += if_true if test else if_false


def number(architecture: str, name: str) -> int:
    column = seccomp.ARCHITECTURES[architecture][0]
    found = {**seccomp.CALLS, **seccomp.CHECKED}[name][column]
    assert found is not None
    return found


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_number_but_those_listed_is_denied(architecture: str) -> None:
    column = seccomp.ARCHITECTURES[architecture][0]
    listed = {numbers[column] for numbers in seccomp.CALLS.values()} - {None}
    allowed = {call for call in range(1024) if verdict(architecture, call) == ALLOWED}
    # Of the checked ones, those whose argument may be 0.
    zero = {number(architecture, name) for name in ("prlimit64", "fcntl")}
    assert allowed == listed | zero
    assert verdict(architecture, 2**31) == DENIED


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dangerous_calls_are_in_no_list(architecture: str) -> None:
    x86 = {41, 42, 49, 53, 56, 57, 58, 59, 101, 155, 165, 272, 308, 310, 311, 319, 321, 322, 323, 425, 434, 435, 438}
    arm = {198, 200, 203, 199, 220, 221, 117, 41, 40, 97, 268, 270, 271, 279, 280, 281, 282, 425, 434, 435, 438}
    for call in x86 if architecture == "x86_64" else arm:
        assert verdict(architecture, call) == DENIED


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_signals_and_limits_are_for_the_process_itself(architecture: str) -> None:
    for name in ("kill", "tkill", "tgkill"):
        call = number(architecture, name)
        assert verdict(architecture, call, 7, 9) == ALLOWED
        for other in (0, 1, 8, 2**32 - 1):
            assert verdict(architecture, call, other, 9) == DENIED
    assert verdict(architecture, number(architecture, "prlimit64"), 0) == ALLOWED
    assert verdict(architecture, number(architecture, "prlimit64"), 8) == DENIED


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_only_harmless_commands_of_fcntl_and_ioctl_are_allowed(architecture: str) -> None:
    fcntl, ioctl = number(architecture, "fcntl"), number(architecture, "ioctl")
    assert verdict(architecture, fcntl, 3, 1030) == ALLOWED
    for command in (8, 10, 15, 1031, 1033):  # F_SETOWN, F_SETSIG, F_SETOWN_EX, F_SETPIPE_SZ, F_ADD_SEALS
        assert verdict(architecture, fcntl, 3, command) == DENIED
    assert verdict(architecture, ioctl, 3, 0x5401) == ALLOWED
    for request in (0x5412, 0x5402, 0x541C, 0):  # TIOCSTI, TCSETS, TIOCLINUX
        assert verdict(architecture, ioctl, 3, request) == DENIED


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_without_writing_files_are_opened_to_read_only(architecture: str) -> None:
    openat = number(architecture, "openat")
    assert verdict(architecture, openat, 3, 4, 0o2000000, writes=False) == ALLOWED
    for flags in (0o1, 0o2, 0o1000, 0o100, 0o2000001, 0o20200000):
        assert verdict(architecture, openat, 3, 4, flags, writes=False) == DENIED
        assert verdict(architecture, openat, 3, 4, flags) == ALLOWED
    for name in ("unlinkat", "mkdirat", "renameat", "renameat2", "ftruncate"):
        assert verdict(architecture, number(architecture, name), writes=False) == DENIED


def test_another_architectures_calls_end_the_process() -> None:
    assert verdict("x86_64", 0, audit=0x40000003) == KILLED
    assert verdict("aarch64", 0, audit=0x40000028) == KILLED
    assert verdict("x86_64", 0x40000000) == DENIED
