"""The process that `launched` copies, one for all that run tests: `python copied.py FILE_DESCRIPTOR`.

It has imported what most scripts import. It listens at a socket, and ends with the last process that is connected.
Who asks for a copy connects, and sends a line; is told a line with the copy's id; and, once it has ended, how.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import runpy
import selectors
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from remembered import remember

IMPORTED = [
    "hf_credit.trainers.verifiable_process",
    "hf_credit.trainers.replay_loo",
    "hf_credit.cli",
    "hf_credit_leaderboard.playing",  # which a confined copy cannot read
    "datasets",
    "transformers.models.qwen3.modeling_qwen3",
]


def prepare() -> None:
    """Does what each copy would do for itself."""
    gc.set_threshold(20_000, 20, 20)  # this and the next as in `conftest.py`, which says why
    os.fsync = lambda file: None
    for name in IMPORTED:
        importlib.import_module(name)
    remember()
    # transformers compiles hundreds of patterns for the first model it loads.
    importlib.import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("qwen3")
    gc.freeze()  # every training collects garbage, and what is copied has none


def run(told: dict[str, Any], others: list[socket.socket]) -> None:
    """Is the copy, which runs a script with the paths, variables, folder and files that it is told."""
    import torch

    for one in others:
        one.close()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(told["environment"])
    torch.set_num_threads(1)  # as many run side by side; OMP_NUM_THREADS was read long ago
    for stream, path in ((1, told["log"]), (2, f"{told['log']}.err")):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    os.chdir(told["folder"])
    sys.argv = [told["script"], *told["arguments"]]
    sys.path[:] = [str(Path(told["script"]).parent), *told["path"]]
    runpy.run_path(told["script"], run_name="__main__")


def asked(client: socket.socket) -> str:
    """The line that a client sent; nothing if it has ended, perhaps before it read how its copy did."""
    try:
        return client.makefile().readline()
    except OSError:
        return ""


def serve(listener: socket.socket) -> None:
    """Starts copies until nobody is connected any more."""
    context = multiprocessing.get_context("fork")
    ended, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    events = selectors.DefaultSelector()
    events.register(listener, selectors.EVENT_READ)
    events.register(ended, selectors.EVENT_READ)
    clients: set[socket.socket] = set()
    copies: dict[Any, socket.socket] = {}
    connected = False
    while clients or not connected:
        for key, _ in events.select():
            one: Any = key.fileobj
            if one is listener:
                client, _ = listener.accept()
                clients.add(client)
                events.register(client, selectors.EVENT_READ)
                connected = True
            elif one is ended:
                ended.recv(1000)
                for copy in [copy for copy in copies if copy.exitcode is not None]:
                    with contextlib.suppress(OSError):  # who asked for it may have ended
                        copies.pop(copy).sendall(b"%d\n" % copy.exitcode)
            elif line := asked(one):
                copy = context.Process(target=run, args=(json.loads(line), [listener, ended, wakes, *clients]))
                copy.start()
                copies[copy] = one
                with contextlib.suppress(OSError):
                    one.sendall(b"%d\n" % copy.pid)
            else:
                events.unregister(one)
                clients.remove(one)
                one.close()


if __name__ == "__main__":
    if os.fork():  # it is nobody's child, so that no test takes the copies of another for its own
        os._exit(0)
    heard = socket.socket(fileno=int(sys.argv[1]))
    prepare()
    serve(heard)
    for name in (heard.getsockname(), f"{heard.getsockname()}.lock"):
        Path(name).unlink(missing_ok=True)
