r"""The final answer of a reply (paper C3, Appendix E).

The answer is the first of these spans that the reply has outside its thoughts, and the last one of its kind:

1. `\boxed{...}` or `\fbox{...}` with balanced braces, unless a later "final answer is" gives another. An unclosed box
   was cut off: no answer. Boxes in a row, as \boxed{1} and \boxed{2}, are one answer.
2. `#### ...` as the last line (GSM8K's form).
3. The text after "answer is", "answer:", "答案是", "答：" up to the end of the sentence, without
   what it rejects or explains: 7 of "the answer is 7, not 8" and of "the answer: the largest n is 7".
4. The whole reply, if it consists only of an answer.
5. The last formula or number of the text, whichever comes later.

Every step takes linear time in the length of the reply.
"""

from __future__ import annotations

import re
from collections import deque
from itertools import accumulate
from typing import NamedTuple

from hf_credit.replies import spoken
from hf_credit.verifiers.answers import TEXT_GROUP, flat
from hf_credit.verifiers.numerals import FUNCTIONS

MAX_TEXT = 1_000_000
"""Maximum characters of a reply; a longer one has no answer."""
MAX_ANSWER = 1_000
"""Maximum characters of an answer; a longer one does not count."""
MAX_DEPTH = 32
"""Maximum depth of brackets in an answer; a deeper one does not count."""

_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*\{?|\\.|[{}]", re.DOTALL)
_PHRASE = re.compile(
    r"(?:\banswers?\b[^\n:=：.]{0,60}?(?:\b(?:is|are)\b|[:=：])|答案[^\n:=：。]{0,10}?[是为為:=：]|答\s*[:：])"
    r"[\s:*]*+(?!not\s*(?:[.\n]|$))",
    re.IGNORECASE,
)
# What stands between boxes or formulas of one answer, as in $1$, $2$ and $3$.
_FILL = r"(?:[ \t$&,;、{}]|(?<=,)\n|\\[()\[\] ,;!]|\\q?quad(?![A-Za-z])|\\(?:text|mbox)\s*\{)*+"
_BETWEEN = re.compile(
    rf"{_FILL}(?:[A-Za-z() ]{{0,40}}?(?:\b(?:and|or)\b|和|或){_FILL}(?:[A-Za-z](?:_\w)?\s*=\s*)?)?", re.IGNORECASE
)
_NUMBER = re.compile(
    r"(?:(?<![\w)}\]])-)?(?:"
    r"\\[dt]?frac\s*\{[^{}]{1,50}\}\s*\{[^{}]{1,50}\}"
    r"|(?!(?<=[A-Za-z\d])\d{1,20}[A-Za-z])(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+(?:,\d\d?(?![\d,]))?)(?:\.\d+)?(?:/\d+)?|\.\d+)"
    r"\s?(?:\\?%|[A-Za-z]{1,2}\^\{\d\})?"
)
_DELIMITERS = re.compile(r"\$\$|\$|\\[\[\]()]|\\.", re.DOTALL)
_CLOSED_BY = {"$$": "$$", "$": "$", "\\[": "\\]", "\\(": "\\)"}
_FINAL = re.compile(r"\bfinal answer(?: is|\s?:):?[\s*]{0,9}(?=[$\d(-]|\\[A-Za-z(\[])", re.IGNORECASE)
_CJK = re.compile(r"[\u3400-\u9fff]")


class Found(NamedTuple):
    """A final answer as written, or `None` with the reason."""

    answer: str | None
    reason: str = ""


def final_answer(reply: str) -> Found:
    """Returns the final answer of a reply, as written there.

    Args:
        reply: any text.
    """
    if len(reply) > MAX_TEXT:
        return Found(None, f"the reply has more than {MAX_TEXT:,} characters")
    span = _span(flat(spoken(reply)))
    if span.answer is None:
        return span
    answer = span.answer.strip().strip("*_`").strip()
    if not answer:
        return Found(None, "the answer is empty")
    if len(answer) > MAX_ANSWER:
        return Found(None, f"the answer has more than {MAX_ANSWER:,} characters")
    depths = accumulate(((sign in "([{") - (sign in ")]}") for sign in answer), initial=0)
    if max(depths) > MAX_DEPTH:
        return Found(None, f"the answer's brackets are nested deeper than {MAX_DEPTH}")
    return Found(answer)


def _span(text: str) -> Found:
    boxed, end = _boxed(text)
    if boxed is not None and not _FINAL.search(text, end):
        return boxed
    stripped = text.strip()
    last_line = stripped.rpartition("\n")[2]
    if last_line.startswith("####"):
        return Found(last_line.lstrip("#"))
    text = _NOT.sub(r"\1", text)
    phrase = _last(_PHRASE, text)
    if phrase and (answer := _after_phrase(text[phrase.end() :][: 2 * MAX_ANSWER])):
        return Found(answer)
    stripped = text.strip()
    if _is_plain(stripped):
        return Found(_claim(_sentence(stripped, _formulas(stripped), ends="!")))
    return _last_expression(stripped)


def _boxed(text: str) -> tuple[Found | None, int]:
    """Returns the last box, or boxes in a row, and where the text after it begins."""
    opened: list[re.Match[str] | None] = []  # for each open brace, the start of its box; `None` outside of boxes
    contents: list[str] = []
    begin = end = 0  # of the last box
    for token in _BOX.finditer(text):
        mark, box, content = token.group(), None, ""
        if mark == "}":
            box = opened.pop() if opened else None
            content = text[box.end() : min(token.start(), box.end() + MAX_ANSWER + 1)] if box else ""
        elif mark == "{" or (len(mark) > 2 and mark.endswith("{")):
            opened.append(token if len(mark) > 2 else None)
        elif len(mark) > 2:  # \boxed 5
            box, content = token, re.split(r"[$\n]", text[token.end() : token.end() + MAX_ANSWER + 1], maxsplit=1)[0]
        if box is not None:
            if box.start() < begin or not _BETWEEN.fullmatch(text, end, box.start()):
                contents = []
            contents.append(content)
            begin, end = box.start(), max(token.end(), box.end() + len(content))
    if any(opened):
        return Found(None, "the last box is never closed"), len(text)
    return Found(", ".join(dict.fromkeys(contents))) if contents else None, end


def _formulas(text: str) -> list[tuple[int, int, str]]:
    """Start, end and content of each formula. Text with a blank at only one end lies between two sums of money."""
    formulas = []
    opened: tuple[str, int, int] | None = None
    for token in _DELIMITERS.finditer(text):
        mark = token.group()
        if opened is not None and mark == _CLOSED_BY[opened[0]]:
            content = text[opened[2] : token.start()]
            if mark != "$" or content[:1].isspace() == content[-1:].isspace():
                formulas.append((opened[1], token.end(), content))
                opened = None
                continue
            opened = (mark, token.start(), token.end())
        elif mark in _CLOSED_BY and (opened is None or opened[0] == "$"):
            opened = (mark, token.start(), token.end())
    return formulas


def _after_phrase(rest: str) -> str:
    """Returns the answer in the text after "the answer is"."""
    rest = rest.lstrip()
    sentence = _claim(_sentence(rest, _formulas(rest)))
    inside = _formulas(sentence)
    if inside and not re.search(r"\d", sentence[: inside[0][0]]):
        last = 0  # formulas in a row, as in "$1$ and $2$", are one answer
        while last + 1 < len(inside) and _BETWEEN.fullmatch(sentence, inside[last][1], inside[last + 1][0]):
            last += 1
        return ", ".join(content for _, _, content in inside[: last + 1])
    return sentence if _is_plain(sentence) else (_last_expression(sentence).answer or "")


def _claim(sentence: str) -> str:
    """Returns what a sentence gives as the answer, without what it rejects or explains: 7 of "7, not 8"."""
    rejected = _REJECTED.match(sentence)
    sentence = sentence[rejected.end() :] if rejected else sentence
    aside = _ASIDE.search(sentence)
    before = sentence[: aside.start()].rstrip(" \t\n,;(") if aside else ""
    sentence = before if before.strip() else sentence
    named = _SUBJECT.match(sentence)
    return sentence[named.end() :] if named else sentence


_NOT = re.compile(
    r"(\bnot|n't)\s+(?:\$[^$\n]{1,80}\$|\\\([^\n]{1,80}?\\\)|-?\d[\d.,/]{0,20}(?<=\d)(?![\w-]))", re.IGNORECASE
)
_REJECTED = re.compile(r"\s*not\b.*?(?:\bbut\b|[,;]\s*it(?:'s| is))\s*", re.IGNORECASE | re.DOTALL)
_ASIDE = re.compile(
    r"(?:[,;(]|\band)\s*not\b|\bnot\s*$|\b(?:rather than|instead of|because|since)\b|,\s*(?:as|which)\b"
    r"|;[^;]*\b(?:is|are|was|were)\b",
    re.IGNORECASE,
)
_SUBJECT = re.compile(r"[^\d]*\b(?:is|are|equals)\s+(?=[^\d\\$]{0,20}[\d\\$])", re.IGNORECASE)


# An exclamation mark before space or the end. It is a factorial before an operator, as in "5! = 120", after another
# one, as in "7!/3!", and after a variable or a bracket.
_EXCLAIMED = r"""!(?=[!*"']{0,4}+(?:\s|$))(?![!*"']{0,4}+[ \t]*[-+*/=^<>])"""
_ENDS = re.compile(rf"\\begin\b|\\end\b|\\.|[{{}}\n。]|\.(?=[*\"')\]]*(?:\s|$))|{_EXCLAIMED}", re.DOTALL)
_FACTORIAL = re.compile(r"(?<!\\)!|\)$|(?<![A-Za-z])[a-z]$")


def _sentence(text: str, formulas: list[tuple[int, int, str]], ends: str = "\n。.!") -> str:
    """Returns the text up to the first end of a sentence or line outside of braces, environments and formulas."""
    depth, within = 0, {index for start, end, _ in formulas for index in range(start, end)}
    for token in _ENDS.finditer(text):
        mark = token.group()
        if token.start() in within:
            continue
        if mark in ("{", "\\begin"):
            depth += 1
        elif mark in ("}", "\\end"):
            depth -= 1
        elif depth <= 0 and mark in ends:
            before = text[: token.start()]
            if mark != "!" or not _FACTORIAL.search(before.rpartition("=")[2]):
                return before
    return text


def _is_plain(text: str) -> bool:
    """Whether a text consists only of an answer: no words, or at most four and none before a number."""
    if not text or len(text) > MAX_ANSWER or ("\n" in text and "\\begin" not in text):
        return False
    bare = re.sub(TEXT_GROUP + r"|\\(?:begin|end)\{[^{}]*\}|\\[A-Za-z]+", lambda group: "#" * len(group.group()), text)
    words = [word for word in re.finditer(r"[A-Za-z]{2,}(?!\s*=)", bare) if word.group().lower() not in FUNCTIONS]
    if _CJK.search(bare):
        return False
    if not words:
        return True
    first = re.search(r"[\d#(\[{$]", bare)
    return len(words) <= 4 and (first is None or first.start() < words[0].start())


def _last_expression(text: str) -> Found:
    formulas, number = _formulas(text), _last(_NUMBER, text)
    if formulas and (number is None or number.start() < formulas[-1][1]):
        return Found(formulas[-1][2])
    return Found(None, "the reply has no answer") if number is None else Found(number.group())


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    matches = deque(pattern.finditer(text), maxlen=1)
    return matches[0] if matches else None
