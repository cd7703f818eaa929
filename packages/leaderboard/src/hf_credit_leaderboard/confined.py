"""A process for untrusted checkpoints: without a token, with limits on memory and time, and, where the kernel can, no
network (namespaces, seccomp), other processes (namespaces) or other files (Landlock)."""

from __future__ import annotations

import contextlib
import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import code_sandbox
import hf_credit
import hf_credit_leaderboard
from code_sandbox.inside import seccomp
from code_sandbox.own_files import keep_to
from hf_credit.files import OwnFolder, remove, write_json
from hf_credit.validators import first_line

logger = logging.getLogger(__name__)

NO_NETWORK = "no network device"
NO_OTHER_FILES = "no other files, no TCP"
NO_OTHER_PROCESSES = "no other processes"
NO_SOCKETS = "no sockets"
ISOLATION = (NO_NETWORK, NO_OTHER_PROCESSES, NO_SOCKETS, NO_OTHER_FILES)
"""All restrictions, in the order of records."""

_NEWNS, _NEWUSER, _NEWPID, _NEWNET = 0x00020000, 0x10000000, 0x20000000, 0x40000000
_MS_FLAGS, _MS_PRIVATE = 2 | 4 | 8, 0x4000 | 0x40000  # no set-user-id, devices or programs; for all below
_PDEATHSIG, _NO_NEW_PRIVS = 1, 38
# The folders that hold this package, the library and the sandbox, which need be no folders of installed packages.
_OURS = (code_sandbox, hf_credit, hf_credit_leaderboard)
_SOURCES = os.pathsep.join(str(Path(str(one.__file__)).resolve().parents[1]) for one in _OURS)
_RESULT, _REQUEST = "result.json", "request.json"
_MOST_LOGGED = 4000  # characters


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of the process.

    Attributes:
        memory_bytes: the most address space.
        seconds: the most wall-clock time.
        parameters: the most parameters of a model.
        device: the device, such as "cuda:0". A GPU driver needs address space and files beyond any limit, so with a
            GPU only time and the network are limited.
    """

    memory_bytes: int = 16 * 2**30
    seconds: float = 3600
    parameters: int = 2 * 10**9
    device: str = "cpu"


class ConfinedError(ValueError):
    """The reason, in one sentence, why the process ended without a result."""


def confined_play(request: Mapping[str, Any], readable: Sequence[Path], limits: Limits) -> dict[str, Any]:
    """Runs `hf_credit_leaderboard.playing.answer` in a confined process.

    Args:
        request: plain values.
        readable: files and folders that it can read besides its own code and an empty folder.

    Returns:
        The result of `answer`, and `isolation`, the restrictions that held.

    Raises:
        ConfinedError: `answer` refused the request, or the process exceeded a limit or failed.
    """
    with OwnFolder(prefix="hf-credit-verification-") as folder:
        task = {"readable": [str(path.resolve()) for path in readable], "memory": limits.memory_bytes}
        task |= {"device": limits.device, "request": dict(request)}
        write_json(folder / _REQUEST, task)
        try:
            process = subprocess.run(
                [sys.executable, "-P", "-m", __name__, str(folder)],
                env=_environment(str(folder)),
                cwd=folder,
                capture_output=True,
                timeout=limits.seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ConfinedError(
                f"a verification must take at most {limits.seconds:g} seconds, got more; enter smaller checkpoints."
            ) from None
        if not (folder / _RESULT).is_file():
            result = {
                "refused": f"a verification must finish within {limits.memory_bytes} bytes of memory, got exit code "
                f"{process.returncode}; correct the checkpoint."
            }
        else:
            result = dict(json.loads((folder / _RESULT).read_text(encoding="utf-8")))
    if "refused" in result:  # which is published, and what the process wrote can hold secret tasks
        logger.warning("a confined process wrote %r", process.stderr.decode("utf-8", "replace")[-_MOST_LOGGED:])
        raise ConfinedError(str(result["refused"]))
    return result


def _environment(folder: str) -> dict[str, str]:
    """The variables of the process: the machine's own only for threads and libraries, hence no token."""
    return {
        **{name: os.environ[name] for name in ("OMP_NUM_THREADS", "LD_LIBRARY_PATH") if name in os.environ},
        **dict.fromkeys(("HOME", "HF_HOME", "TMPDIR"), folder),
        "PATH": "",
        "PYTHONPATH": _SOURCES,
        "TORCHINDUCTOR_CACHE_DIR": folder,  # torch before 2.13 otherwise reads the user's name in /etc/passwd
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


# Code that runs in the process


def confine(folder: Path, readable: Sequence[str], memory_bytes: int, device: str = "cpu") -> list[str]:
    """Confines this process irrevocably, as far as the machine supports it, and returns the restrictions that hold."""
    held: list[str] = []
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if device == "cpu":
            resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    if sys.platform != "linux":
        return held
    libc = ctypes.PyDLL(None, use_errno=True)
    libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0)
    namespaces = _NEWNET | _NEWPID | _NEWNS
    if any(libc.unshare(user | namespaces) == 0 for user in (0, _NEWUSER)):
        held.append(NO_NETWORK)
        if _with_own_processes(libc):
            held.append(NO_OTHER_PROCESSES)
    elif any(libc.unshare(user | _NEWNET) == 0 for user in (0, _NEWUSER)):
        held.append(NO_NETWORK)
    with contextlib.suppress(OSError):
        seccomp.refuse_others(libc)
        held.append(NO_SOCKETS)
    if device == "cpu" and keep_to(readable, str(folder)):
        held.append(NO_OTHER_FILES)
    return held


def _with_own_processes(libc: ctypes.PyDLL) -> bool:
    """Continues as the first process of the new namespaces; returns whether /proc shows only their processes."""
    pid = os.fork()
    if pid:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os._exit(code if code >= 0 else 128 - code)
    libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    mounted = libc.mount(b"none", b"/", None, _MS_PRIVATE, None) == 0
    return mounted and bool(libc.mount(b"proc", b"/proc", b"proc", _MS_FLAGS, None) == 0)


def _main(folder: Path) -> None:
    task = json.loads((folder / _REQUEST).read_text(encoding="utf-8"))
    remove(folder / _REQUEST)  # it has the seeds of secret tasks, and a checkpoint names files to load
    held = confine(folder, task["readable"], task["memory"], task["device"])
    try:
        from hf_credit.tokenizer_process import PROCESS  # imported within the limits
        from hf_credit_leaderboard.playing import answer

        PROCESS.inside = NO_OTHER_FILES in held
        result = {**answer(task["request"]), "isolation": held}
    except Exception as error:
        traceback.print_exc()
        result = {"refused": first_line(error)}
    write_json(folder / _RESULT, result)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
