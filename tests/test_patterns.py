"""Every regular expression of the source takes linear time, also on texts made to be hard for it.

The texts are made from each pattern: a beginning that matches a part of it, then a letter, a word or what one of its
repeats repeats, many times, then what does not match. CPU time decides, in a process that the kernel ends: at these
lengths what is linear takes milliseconds, and what is quadratic minutes.
"""

from __future__ import annotations

import ast
import functools
import importlib
import os
import re
import signal
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hf_credit import replies
from hf_credit.verifiers.extraction import MAX_ANSWER

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from re import _constants as codes  # type: ignore[attr-defined]
    from re import _parser as parser  # type: ignore[attr-defined]

ROOT = Path(__file__).resolve().parent.parent
CALLS = {"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"}
SHORT, LENGTH = 1_500, 30_000
SECONDS = 0.5  # of CPU time for a text, which takes milliseconds, or more than that if the time is quadratic

# Where the caller limits the text; what a limit in front of it makes of at most 1,000 characters (NFKC: four of one).
_ANSWER = 4 * MAX_ANSWER
BOUNDED = {
    "hf_credit.verifiers.answers": _ANSWER,
    "hf_credit.verifiers.numerals": _ANSWER,
    "hf_credit.verifiers.options._CHOICE": _ANSWER,
    "hf_credit.verifiers.extraction._ASIDE": 2 * MAX_ANSWER,
}

# Patterns that names of a call determine, with examples of these.
_CLOSINGS = "|".join(f"(?:{closing})" for closing, _ in replies._CALLS.values()) + f"|{replies._MESSAGE_ENDS}"
EXAMPLES = {
    "hf_credit.critics.backbone: f'\\\\.{adapter}(\\\\.|$)'": r"\.critic(\.|$)",
    "hf_credit.critics.saved: f'\\\\.{re.escape(self.name)}(\\\\.|$)'": r"\.critic(\.|$)",
    "hf_credit.environments.actions: re.escape(verb) + ' (0|[1-9][0-9]{0,3})' * count": "go"
    + " (0|[1-9][0-9]{0,3})" * 3,
    "hf_credit.replies: closing": _CLOSINGS,
    "hf_credit.replies: f'[\\\\s`]*({closing})'": rf"[\s`]*({_CLOSINGS})",
    "hf_credit.rollouts.special_tokens: '|'.join((re.escape(name) for name in sorted(names, key=len, reverse=True))) "
    "or '(?!)'": r"<\|im_start\|>|<\|im_end\|>|<think>",
    "hf_credit.rollouts.special_tokens: f'{self._mark}([0-9]+){_END}'": "\ue002([0-9]+)\ue003",
    "hf_credit.verifiers.answers: f'(\\\\\\\\[A-Za-z]+)|{min(ours)}'": r"(\\[A-Za-z]+)|k",
    "hf_credit.verifiers.answers: pattern": "",  # of a list, whose patterns are found
    "hf_credit.verifiers.judges: '|'.join(map(re.escape, values))": "<a>|<b>",
    "local_hub.app: pattern": "",
}
MATCHED = {"hf_credit.replies: f'[\\\\s`]*({closing})'"}  # at one place


class Used(NamedTuple):
    """A pattern and where it is used."""

    where: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]


def sources() -> Iterator[tuple[str, Path]]:
    """The name and file of each module."""
    for folder in (ROOT / "src", *sorted((ROOT / "packages").glob("*/src"))):
        for path in sorted(folder.rglob("*.py")):
            yield ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"), path


@functools.cache
def trees() -> dict[str, ast.Module]:
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in sources()}


@functools.cache
def methods_of(name: str) -> dict[str, frozenset[str]]:
    """The methods that are called of what has a name, in a module, or in all of them if it is empty."""
    found: dict[str, set[str]] = {}
    for tree in [trees()[name]] if name else trees().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in CALLS - {"compile"}:
                owner = node.value
                found.setdefault(getattr(owner, "id", getattr(owner, "attr", "")), set()).add(node.attr)
    return {owner: frozenset(methods) for owner, methods in found.items()}


def patterns_in(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from patterns_in(one)
    elif isinstance(value, tuple | list | set | frozenset):
        for one in value:
            yield from patterns_in(one)


def used(unknown: list[str]) -> Iterator[Used]:
    """Every compiled pattern of a module, and every one in a call that its names alone determine."""
    for name, tree in trees().items():
        calls = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and ast.unparse(node.func.value) == "re"
            and node.func.attr in CALLS
        ]
        if not calls:
            continue
        known = vars(importlib.import_module(name))
        for constant, value in known.items():
            for pattern in patterns_in(value):
                methods = methods_of(name).get(constant) or methods_of("").get(constant) or frozenset({"search"})
                yield Used(f"{name}.{constant}", pattern, methods)
        for node in calls:
            written = [ast.unparse(one) for one in (*node.args, *(keyword.value for keyword in node.keywords))]
            flags = [one for one in written if re.fullmatch(r"re\.[A-Z]+( \| re\.[A-Z]+)*", one)]
            method = ast.unparse(node.func).removeprefix("re.")
            try:
                pattern = re.compile(eval(written[0], dict(known)), eval(flags[0], dict(known)) if flags else 0)
            except NameError:
                unknown.append(f"{name}: {written[0]}")
            else:
                if method != "compile":
                    yield Used(f"{name}: {written[0]}", pattern, frozenset({method}))


# Hostile texts


def universe(pattern: re.Pattern[Any]) -> str:
    """Letters, of which each set of the pattern has another share: one of each kind, most of them common ones."""
    sets, letters = [], set(map(chr, range(9, 127))) | set("\u4e00\u3042\ud800\u2028\x85\u0660ſKİ\U0001f600")

    def collect(items: Iterable[Any]) -> None:
        for code, value in items:
            if code in (codes.LITERAL, codes.NOT_LITERAL):
                letters.add(chr(value))
            if code in (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY):
                sets.append((code, value))
            if code is codes.IN:
                for inner, one in value:
                    letters.update(map(chr, [one] if inner is codes.LITERAL else one if inner is codes.RANGE else []))
            for inner in parts(code, value):
                collect(inner)

    collect(parsed(pattern))
    kinds: dict[tuple[bool, ...], str] = {}
    for letter in sorted(letters, key=lambda one: (not one.isascii() or not one.isprintable(), one)):
        kinds.setdefault(tuple(in_set(letter, *one, pattern.flags) for one in sets), letter)
    return "".join(kinds.values())


_OF_LETTERS = re.IGNORECASE | re.DOTALL | re.ASCII | re.UNICODE


def parts(code: Any, value: Any) -> list[Any]:
    """The patterns within an item of a pattern."""
    if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
        return [value[2]]
    if code is codes.SUBPATTERN:
        return [value[3]]
    if code is codes.BRANCH:
        return list(value[1])
    if code in (codes.ASSERT, codes.ASSERT_NOT):
        return [value[1]]
    if code is codes.ATOMIC_GROUP:
        return [value]
    if code is codes.GROUPREF_EXISTS:
        return [one for one in value[1:] if one]
    return []


def parsed(pattern: re.Pattern[Any]) -> Any:
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    return parser.parse(text, pattern.flags & ~re.UNICODE & ~re.DEBUG)


@functools.cache
def one_letter(code: Any, value: Any, flags: int) -> re.Pattern[str]:
    state = parser.State()
    state.flags = flags
    state.str = ""
    made = parser.SubPattern(state, [(code, list(value) if isinstance(value, tuple) else value)])
    return re._compiler.compile(made, flags)


def in_set(letter: str, code: Any, value: Any, flags: int) -> bool:
    return _in_set(letter, code, tuple(value) if isinstance(value, list) else value, flags)


@functools.cache
def _in_set(letter: str, code: Any, value: Any, flags: int) -> bool:
    if code is codes.LITERAL and not flags & re.IGNORECASE:
        return ord(letter) == value
    return one_letter(code, value, flags & _OF_LETTERS).fullmatch(letter) is not None


def sample(items: Iterable[Any], letters: str, flags: int, groups: dict[int, str]) -> str:
    """A short text that a pattern matches, but for what it looks ahead or behind for."""
    text = ""
    for code, value in items:
        if code in (codes.LITERAL, codes.NOT_LITERAL, codes.IN, codes.ANY):
            text += next((one for one in letters if in_set(one, code, value, flags)), "")
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            text += sample(value[2], letters, flags, groups) * min(value[0], 50)
        elif code is codes.BRANCH:
            text += sample(value[1][0], letters, flags, groups)
        elif code is codes.SUBPATTERN:
            inner = sample(value[3], letters, flags, groups)
            groups[value[0] or 0] = inner
            text += inner
        elif code is codes.ATOMIC_GROUP:
            text += sample(value, letters, flags, groups)
        elif code is codes.GROUPREF:
            text += groups.get(value, "")
    return text


def pumps(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """What to begin a text with, and what to repeat in it."""
    letters, tree, flags = universe(pattern), parsed(pattern), pattern.flags
    yield from (("", letter) for letter in letters)
    yield "", sample(tree, letters, flags, {})

    def walk(items: Iterable[Any], before: str) -> Iterator[tuple[str, str]]:
        for item in items:
            code, value = item
            if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT) and value[1] > 50:
                body = sample(value[2], letters, flags, {})
                yield before, body
                yield "", before + body
                if len(value[2]) == 1 and value[2][0][0] in (codes.IN, codes.ANY, codes.NOT_LITERAL):
                    yield from ((before, letter) for letter in letters if in_set(letter, *value[2][0], flags))
                else:
                    yield from ((before, letter) for letter in letters)
            for inner in parts(code, value):
                yield from walk(inner, before)
            before += sample([item], letters, flags, {})

    yield from walk(tree, "")


def hostile(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """What hard texts begin with, repeat and end with."""
    ends = dict.fromkeys(["\0", *universe(pattern)[:1], "\n!"])
    for before, pump in dict.fromkeys(pumps(pattern)):
        yield from ((before, pump, end) for end in ends if pump)


def call(one: Used, text: str) -> None:
    value: Any = text if isinstance(one.pattern.pattern, str) else text.encode("utf-8", "replace")
    for method in sorted(one.methods):
        found = getattr(one.pattern, method)(*([value[:0]] if method.startswith("sub") else []), value)
        if method == "finditer":
            list(found)


def measure(one: Used) -> None:
    """Calls a pattern with its texts; the kernel ends this process at one that takes too long."""
    bound = next((most for name, most in BOUNDED.items() if one.where.startswith(name)), LENGTH)
    for before, pump, end in hostile(one.pattern):
        for length in (SHORT, bound):
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            began = time.process_time()
            call(one, before + pump * (length // len(pump)) + end)
            if time.process_time() - began < 0.001:  # less than what is quadratic takes
                break
    signal.setitimer(signal.ITIMER_PROF, 0)


def slow_ones(these: Sequence[Used]) -> list[Used]:
    """The patterns that take more CPU time than that for a text."""
    slow, at = [], 0
    while at < len(these):
        read, write = os.pipe()
        if not (child := os.fork()):
            code = 1
            try:
                signal.signal(signal.SIGPROF, signal.SIG_DFL)
                for one in these[at:]:
                    measure(one)
                    os.write(write, b".")
                code = 0
            finally:
                os._exit(code)
        os.close(write)
        with os.fdopen(read, "rb") as done:
            at += len(done.read())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status:
            assert status == -signal.SIGPROF, these[at]
            slow.append(these[at])
            at += 1
    return slow


@functools.cache
def all_used() -> tuple[list[Used], list[str]]:
    unknown: list[str] = []
    found = {(one.pattern, one.methods): one for one in used(unknown)}
    return list(found.values()), unknown


def test_every_pattern_is_known_or_has_an_example() -> None:
    found, unknown = all_used()
    assert len(found) > 200
    assert set(unknown) <= set(EXAMPLES)


def test_every_pattern_takes_linear_time_or_has_a_short_text() -> None:
    methods = {where: "match" if where in MATCHED else "search" for where in EXAMPLES}
    examples = [Used(where, re.compile(text), frozenset({methods[where]})) for where, text in EXAMPLES.items()]
    assert slow_ones([*all_used()[0], *examples]) == []


@pytest.mark.parametrize(
    "text",
    [
        r"\s+$",
        "(a|a|aa)+b",
        "(a+)+b",
        r"^[ \t]*(`{3,}|~{3,})[^\n`]*\n",
        "<a>(.*?)</a>",
        r"(\w+)\s?\w*=",
        "x*x*y",
        r"\d+(?:,\d{3})+(?=;)",
        "(?i)(?:k|\u212a)+;",
        r"(?:a\s*)*b",
    ],
)
def test_a_pattern_that_is_not_linear_is_found(text: str) -> None:
    assert slow_ones([one := Used("here", re.compile(text), frozenset({"search"}))]) == [one]


@pytest.mark.parametrize("text", ["a+b", "(?>a+)+b", r"^\s*(\w+)=", "<a>[^<]*</a>", "(?:ab|cd)+;", r"\d{1,9}\d{1,9};"])
def test_a_pattern_that_is_linear_at_one_place_is_not(text: str) -> None:
    assert slow_ones([Used("here", re.compile(text), frozenset({"match"}))]) == []
