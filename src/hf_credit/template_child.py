"""The process that runs the templates of downloaded tokenizers, and tries their patterns, within limits
(`hf_credit.template_process`).

It has no token or home of the user and, where the kernel can, no network (seccomp) and no file but Python's and the
system's (Landlock). It ends with the program that asks it, or after a minute of CPU time for a request.
"""

from __future__ import annotations

import itertools
import json
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

_PLAIN: Any = PreTrainedTokenizerBase()  # with templates that come as arguments

_LENGTHS = (64, 4096)  # characters of a hard text
_TRIAL_SECONDS = 10.0  # of CPU time for all, which take one or two
_TEXT_SECONDS = 1.0  # of CPU time for one; milliseconds where time is linear, a quarter of a second where quadratic
_MOST_GROWTH = 64  # characters of one; NFKC makes 18 of one
_SAMPLES = " \n\taA0é中\u0660\u0301'_!<"
_ESCAPED = {"n": "\n", "r": "\r", "s": " ", "t": "\t"}
_NO_TEXTS = ("type", "behavior", "prepend_scheme", "precompiled_charsmap")  # keys of parts
_OTHER_PLANES = 0x3000  # code points after those of the basic plane


def answer(method: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what a method of a tokenizer returns, or the kind and message of its error."""
    try:
        called = try_tokenizer if method == "try_tokenizer" else getattr(_PLAIN, method)
        return {"value": called(**arguments)}
    except Exception as error:
        return {"kind": type(error).__name__, "message": str(error)[:1000]}


def try_tokenizer(tokenizer: str) -> str:
    """Returns for which text a tokenizer takes much time, or multiplies it; empty if for none that was tried.

    Args:
        tokenizer: as its file has it, in JSON.
    """
    signal.setitimer(signal.ITIMER_PROF, _TRIAL_SECONDS)
    made = Tokenizer.from_str(tokenizer)
    for text in itertools.chain(_hard_texts(json.loads(tokenizer)), _alphabets()):
        begun, grown = time.process_time(), 0
        try:
            grown = _longest(made, text)
        except Exception:  # a text that it refuses
            pass
        except BaseException as error:  # how the library says that a pattern took too many steps
            return f"too many steps ({str(error)[:200]}) for {_shown(text)}"
        if (seconds := time.process_time() - begun) > _TEXT_SECONDS:
            return f"{seconds:.1f} seconds for {_shown(text)}"
        if grown > _MOST_GROWTH * (len(text) + _LENGTHS[0]):
            return f"{grown} characters for {_shown(text)}"
    return ""


def _longest(made: Tokenizer, text: str) -> int:
    """Runs the parts of a tokenizer on a text, and returns the most characters that one makes of it."""
    normal = made.normalizer.normalize_str(text) if made.normalizer else text
    pieces = [piece for piece, _ in made.pre_tokenizer.pre_tokenize_str(normal)] if made.pre_tokenizer else [normal]
    made.model.tokenize(max(pieces, key=len, default=""))
    decoded = made.decoder.decode(pieces) if made.decoder else ""
    return max(len(normal), sum(map(len, pieces)), len(decoded))


def _hard_texts(tokenizer: Mapping[str, Any]) -> Iterator[str]:
    """Texts of the letters and words of a tokenizer's patterns and replacements: repeated, after a word, before what
    does not match."""
    said = " ".join(map(str, _texts_in([tokenizer[one] for one in ("normalizer", "pre_tokenizer", "decoder")])))
    said = re.sub(r"\\([nrst])", lambda escaped: _ESCAPED[escaped[1]], said)
    letters, words = dict.fromkeys(_SAMPLES + said), dict.fromkeys(re.findall(r"\w{2,}", said))
    every = "".join(letters) + said  # a search may begin with the letters that a pattern needs
    for length in _LENGTHS:
        for unit in (*letters, *words, *("".join(pair) for pair in itertools.pairwise(_SAMPLES))):
            repeated = (unit * length)[:length]
            yield from (repeated, f"{repeated}!", f"{repeated}!{every}")
    for word, letter in itertools.product(words, letters):
        yield word + letter * _LENGTHS[0] + "!"


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts_in([one for key, one in value.items() if key not in _NO_TEXTS])
    elif isinstance(value, list):
        for one in value:
            yield from _texts_in(one)


def _alphabets() -> Iterator[str]:
    """Every character of the basic plane and some others, a few at a time: one of them may become a long text."""
    for first in range(1, 0x10000 + _OTHER_PLANES, _LENGTHS[0]):
        yield "".join(chr(one) for one in range(first, first + _LENGTHS[0]) if not 0xD800 <= one < 0xE000)


def _shown(text: str) -> str:
    return f"a text of {len(text)} characters that begins with {text[:12]!r}"


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
