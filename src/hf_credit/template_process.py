"""A kept process for what a downloaded tokenizer brings: its templates, its normalizer and its patterns.

A chat template can loop, or multiply a text, in a single instruction of C that no signal interrupts; a pattern can
take exponential time.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from code_sandbox.fork_server import PLAIN_ENVIRONMENT, ForkServer, reset_after_fork

_MEMORY_BYTES = 2**30  # of address space, a fifth of which the imports take
_MOST_BYTES = 2**26  # of an answer, more than the text of any context
_START_SECONDS = 120.0
_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from hf_credit import template_child; "
    "template_child.main(int(sys.argv[2]))"
)


class Process:
    """The process of `hf_credit.template_child`, started when it is needed. Safe with threads and forks."""

    def __init__(self) -> None:
        self.started = 0  # times
        self.reset()
        reset_after_fork(self)

    def reset(self) -> None:
        """Drops the process without ending it."""
        self._lock = threading.Lock()
        self._server: ForkServer | None = None

    def call(self, method: str, seconds: float, **arguments: Any) -> dict[str, Any]:
        """Returns the answer of `hf_credit.template_child.answer`.

        Args:
            seconds: the most wall-clock time. A call that takes more ends the process, whatever it does.
            **arguments: plain values; any other becomes the name of its type.

        Raises:
            TimeoutError: it takes more time.
            MemoryError: it takes more memory, or ends the process.
            OSError: the process does not start.
        """
        question = json.dumps(
            {"method": method, "arguments": arguments}, default=lambda value: f"<{type(value).__name__}>"
        ).encode()
        with self._lock:
            if self._server is not None and not self._server.is_alive:
                self._server.close()
                self._server = None
            if self._server is None:
                paths = json.dumps([path for path in sys.path if path])
                server = ForkServer(["-I", "-c", _CHILD, paths, str(_MEMORY_BYTES)], PLAIN_ENVIRONMENT)
                server.receive(_START_SECONDS)
                self._server, self.started = server, self.started + 1
            try:
                answer = self._server.ask(question, seconds, _MOST_BYTES)
            except BaseException as error:  # no answer may be left for the next call
                self._server.close()
                if isinstance(error, TimeoutError):
                    raise TimeoutError(f"more than {seconds:g} seconds") from None
                if not isinstance(error, OSError | ValueError | RecursionError):
                    raise
                answer = {"kind": "MemoryError"}
        if answer.get("kind") == "MemoryError":
            raise MemoryError(f"more than {_MEMORY_BYTES >> 20} MiB")
        return answer


PROCESS = Process()
"""That of this program."""
