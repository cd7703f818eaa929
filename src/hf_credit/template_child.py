"""The process that runs templates of downloaded tokenizers, and tries these, within limits (`tokenizer_process`).

It has no token or home of the user and, where the kernel can, no network (seccomp) and no file but Python's and the
system's (Landlock). It ends with the program that asks it, or after a minute of CPU time for a request.
"""

from __future__ import annotations

import itertools
import re
import resource
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from tokenizers import Tokenizer
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from code_sandbox.inside import seccomp
from code_sandbox.inside.channel import Channel
from code_sandbox.inside.confinement import library
from code_sandbox.own_files import keep_to

MOST_SECONDS = 60.0

_TRIAL_SECONDS = 10.0  # of CPU time for all texts, which take one or two
_TEXT_SECONDS = 1.0  # for one: milliseconds where time is linear, a quarter of a second where it is quadratic
_SHORT, _LONG = 64, 4096  # characters of a text
_MOST_GROWTH = 64  # characters of one; NFKC makes 18
_SAMPLES = " \n\taA0é中\u0660\u0301'_!<"

_PLAIN: Any = PreTrainedTokenizerBase()  # with templates that come as arguments


def answer(method: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a method of a tokenizer returns, or the kind and message of its error."""
    try:
        called = try_tokenizer if method == "try_tokenizer" else getattr(_PLAIN, method)
        return {"value": called(**arguments)}
    except Exception as error:
        return {"kind": type(error).__name__, "message": str(error)[:1000]}


def try_tokenizer(tokenizer: str, said: str) -> str:
    """Returns what a tokenizer takes too much of, and for which text; empty if it does for none that is tried.

    Args:
        tokenizer: as its file has it.
        said: its patterns and replacements, from whose letters and words texts are made.
    """
    signal.setitimer(signal.ITIMER_PROF, _TRIAL_SECONDS)
    made = Tokenizer.from_str(tokenizer)
    for text in _hard_texts(said):
        begun, most, shown = time.process_time(), 0, f"for {len(text)} characters that begin with {text[:12]!r}"
        try:
            normal = made.normalizer.normalize_str(text) if made.normalizer else text
            split = made.pre_tokenizer.pre_tokenize_str(normal) if made.pre_tokenizer else [(normal, ())]
            pieces = [piece for piece, _ in split]
            made.model.tokenize(max(pieces, key=len, default=""))
            most = max(map(len, (normal, "".join(pieces), made.decoder.decode(pieces) if made.decoder else "")))
        except Exception:  # a text that it refuses
            pass
        except BaseException as error:  # how the library says that a pattern took too many steps
            return f"too many steps {shown} ({error})"
        if (seconds := time.process_time() - begun) > _TEXT_SECONDS or most > _MOST_GROWTH * (len(text) + _SHORT):
            return f"{seconds:.1f} seconds and {most} characters {shown}"
    return ""


def _hard_texts(said: str) -> Iterator[str]:
    """Letters and words, repeated, after a word, and before what does not match; and every letter that one may become
    a long text of. A search may begin with letters that a pattern needs, so all that it says is in some."""
    letters, words = dict.fromkeys(_SAMPLES + said), dict.fromkeys(re.findall(r"\w{2,}", said))
    for length in (_SHORT, _LONG):
        for unit in (*letters, *words, *map("".join, itertools.pairwise(_SAMPLES))):
            repeated = (unit * length)[:length]
            yield from (repeated, f"{repeated}!", f"{repeated}!{''.join(letters)}{said}")
    for word, letter in itertools.product(words, letters):
        yield word + letter * _SHORT + "!"
    for first in range(1, 0x13000, _SHORT):
        yield "".join(chr(one) for one in range(first, first + _SHORT) if not 0xD800 <= one < 0xE000)


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
