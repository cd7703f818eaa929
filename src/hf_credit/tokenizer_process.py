"""A kept process for what a downloaded tokenizer brings: it runs templates, and tries the rest before that runs here.

A chat template can loop, or multiply a text, in a single instruction of C that no signal interrupts. A pattern of a
tokenizer can take exponential time, and a few replacements make gigabytes of one letter, even of a token it adds.
"""

from __future__ import annotations

import contextlib
import functools
import json
import re
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from code_sandbox.fork_server import PLAIN_ENVIRONMENT, ForkServer, reset_after_fork

UNIT = r"</?[a-z]+>| ?[A-Za-z]+[0-9]*(?:=[0-9.]|\?[0-9]+)?| ?[0-9]+(?:\.[0-9]+)?| ?[^\sA-Za-z]|\s"
"""The pattern of micro policies: a tag, a word with its number (C1) and its value (b3=2) or candidates (b3?14), a
number, or one other character, each with the space before it."""

_SPLIT = {"type": "Split", "pattern": {"Regex": UNIT}, "behavior": "Isolated", "invert": False}
_OURS = (None, _SPLIT, {"type": "Fuse"})
_SECONDS = 60.0  # of wall-clock time; the process limits the CPU time to ten
_ESCAPED = {"n": "\n", "r": "\r", "s": " ", "t": "\t"}
_MEMORY_BYTES = 2**30  # of address space, a fifth of which the imports take
_MOST_BYTES = 2**26  # of an answer, more than the text of any context
_START_SECONDS = 120.0
_CHILD = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from hf_credit import template_child; "
    "template_child.main(int(sys.argv[2]))"
)


class Process:
    """The process of `hf_credit.template_child`, started when it is needed. Safe with threads and forks.

    Attributes:
        inside: whether this process answers, which is confined itself and may start no other.
    """

    def __init__(self) -> None:
        self.inside = False
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
        if self.inside:
            from hf_credit import template_child

            found = template_child.answer(**json.loads(question))
            signal.setitimer(signal.ITIMER_PROF, 0)  # of the trial of a tokenizer
            return dict(json.loads(json.dumps(found)))
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


def require_bounded(name: str | Path, revision: str | None = None) -> None:
    """Refuses a tokenizer that takes much time or memory for a text that is made to be hard for it.

    Args:
        name: a folder, or an id on the Hub.

    Raises:
        ValueError: it is such a tokenizer, or its file is not JSON.
    """
    from transformers.tokenization_utils_base import get_fast_tokenizer_file

    versions = _read(name, "tokenizer_config.json", revision).get("fast_tokenizer_files")
    whole = _read(name, get_fast_tokenizer_file(versions) if versions else "tokenizer.json", revision)
    parts = {one: whole.get(one) for one in ("normalizer", "pre_tokenizer", "decoder")}
    model: dict[str, Any] = {"type": "WordLevel", "vocab": {"?": 0}, "unk_token": "?"}
    if (own := whole.get("model") or {}).get("type") == "WordPiece":  # slow for long words, if it takes them
        model = {**own, "vocab": {str(own.get("unk_token")): 0, "a": 1, f"{own.get('continuing_subword_prefix')}a": 2}}
    if all(part in _OURS for part in parts.values()) and model.get("max_input_chars_per_word", 100) == 100:
        return
    small = {"version": "1.0", **parts, "added_tokens": whole.get("added_tokens") or [], "model": model}
    said = re.sub(r"[A-Za-z0-9+/=]{500,}", "", json.dumps(parts, ensure_ascii=False))  # no table of characters
    if why := _tried(json.dumps(small), re.sub(r"(?<!\\)\\+([nrst])", lambda escaped: _ESCAPED[escaped[1]], said)):
        raise ValueError(
            f"a tokenizer must take little time and memory for any text, got that of {str(name)!r}, which {why}; "
            "use another one, or pass trust_remote_code if you trust whoever made it."
        )


def _read(name: str | Path, file: str, revision: str | None) -> dict[str, Any]:
    """Returns what a file says; nothing without one, or without such a model, which transformers says."""
    from transformers.utils import cached_file

    with contextlib.suppress(OSError):
        found = json.loads(Path(str(cached_file(str(name), file, revision=revision))).read_bytes())
        return found if isinstance(found, dict) else {}
    return {}


@functools.lru_cache(maxsize=16)
def _tried(tokenizer: str, said: str) -> str:
    try:
        answer = PROCESS.call("try_tokenizer", _SECONDS, tokenizer=tokenizer, said=said)
    except (TimeoutError, MemoryError):
        return "took more than 10 seconds or 1 GiB"
    # What cannot be tried is not known to be bounded.
    if "value" not in answer:
        return f"cannot be tried ({answer.get('message')})"
    return answer["value"] and f"took {answer['value']}"
