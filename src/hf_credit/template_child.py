"""The process that runs the templates of downloaded tokenizers, within limits (`hf_credit.rollouts.rendering`).

It has no token or home of the user and, where the kernel can, no network (seccomp) and no file but Python's and the
system's (Landlock). It ends with the program that asks it, or after a minute of CPU time for a request.
"""

from __future__ import annotations

import resource
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from code_sandbox.inside import seccomp
from code_sandbox.inside.channel import Channel
from code_sandbox.inside.confinement import library
from code_sandbox.own_files import keep_to

MOST_SECONDS = 60.0

_PLAIN: Any = PreTrainedTokenizerBase()  # with templates that come as arguments


def answer(method: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a method of a tokenizer returns, or the kind and message of its error."""
    try:
        return {"value": getattr(_PLAIN, method)(**arguments)}
    except Exception as error:
        return {"kind": type(error).__name__, "message": str(error)[:1000]}


def main(memory_bytes: int) -> None:
    """Answers requests until the program that asks ends."""
    channel = Channel.of_standard_input()
    warm: dict[str, Any] = {"conversation": [{}], "chat_template": "{{ messages | tojson }}{{ 1 / 0 }}"}
    answer("apply_chat_template", warm)  # what it imports for an error, too
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    least = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
    with suppress(OSError, ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (least, least))
    with suppress(OSError, AttributeError):  # in a confined process already, or on macOS
        seccomp.refuse_others(library())
        keep_to((), None)
    channel.send({})
    while True:
        request, _ = channel.receive()
        signal.setitimer(signal.ITIMER_PROF, MOST_SECONDS)
        found = answer(request["method"], request["arguments"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        channel.send(found)
