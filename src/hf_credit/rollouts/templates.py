"""What a chat template writes around replies, found by rendering placeholders, and what it must."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import Any

from jinja2 import TemplateError

from hf_credit.replies import MARKS, begun_thought, closing_of
from hf_credit.rollouts.interaction import Message, said_in

REPLY = "\ue000reply\ue001"
"""A placeholder for a reply while a template is rendered; private-use characters do not occur in model text."""

USER: Message = {"role": "user", "content": "?"}
SAID: Message = {"role": "assistant", "content": REPLY}
_NEXT: Message = {"role": "user", "content": "\ue000next\ue001"}

Render = Callable[[Sequence[Message], bool], str]
"""Returns the text of a conversation, with or without what the template writes before a reply."""
Find = Callable[[str], list[tuple[int, str]]]
"""Returns where the tokenizer's added tokens are in a text."""


class ChatTemplateError(ValueError):
    """A tokenizer's chat template that cannot be used, with the reason in one sentence."""


def called(names: Sequence[str], argument: str = REPLY) -> Message:
    """Returns a turn with calls of these tools, the last with an argument that is a placeholder."""
    return _with_calls([*((name, {"x": "?"}) for name in names[:-1]), (names[-1], {"x": argument})], "", 0)


def as_served(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), most_calls: int | None = None
) -> list[Message]:
    """Returns messages as a server gives them to a template: thoughts and calls apart from content, calls with ids.

    They are read from the text of a reply. Some templates show the answer of a tool only after a call, and look up
    its name by its id; so a turn that tools answer always has a call.

    Args:
        messages: of a conversation. A tool answers the next call of the turn, or that whose place it has as `answers`.
        tools: the offered tools; without any, only a turn that tools answer has calls.
        most_calls: the most calls of a turn that the template shows; any number if `None`.
    """
    first = 0  # the number of the next call
    found: list[Message] = []
    waiting: dict[int, tuple[str, str]] = {}  # by place in the turn, the id and name of each call without an answer
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            number, name = waiting.pop(message.get("answers", next(iter(waiting), 0)), ("", ""))
            extra = {"tool_call_id": number, "name": name} if number else {}
            found.append({key: value for key, value in message.items() if key != "answers"} | extra)
            continue
        answers = list(itertools.takewhile(lambda one: one["role"] == "tool", messages[index + 1 :]))
        if message["role"] == "assistant":
            message = _turn(message, answers, tools, first, most_calls)
            calls = message.get("tool_calls", ())
            waiting = {at: (call["id"], call["function"]["name"]) for at, call in enumerate(calls)}
            first += len(waiting)
        found.append(message)
    return found


def names_of(text: str, answers: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the names of a reply's first calls, up to the last that is answered: as called, as the answer says, or a
    tool's."""
    made = [call.name for call in said_in(text, tools).made]
    known = [str(tool.get("function", tool).get("name")) for tool in tools] or ["tool"]
    said: dict[int, Message] = {}
    for answer in answers:
        said[answer.get("answers", next(at for at in itertools.count() if at not in said))] = answer
    count = min(max(said) + 1, max(len(made), len(answers)))
    made += [""] * count
    return [made[at] or str(said.get(at, {}).get("name") or known[0]) for at in range(count)]


def _turn(
    message: Message, answers: Sequence[Message], tools: Sequence[Mapping[str, Any]], first: int, most: int | None
) -> Message:
    if message.get("tool_calls"):
        calls = [{**call, "id": _id(first + at)} for at, call in enumerate(message["tool_calls"])]
        return {**message, "tool_calls": calls}
    said = said_in(message["content"], tools)
    thoughts = {"reasoning_content": said.thoughts} if said.thoughts else {}
    if most == 0 or not (answers or (tools and said.calls and not said.bad_calls)):
        return {**message, "content": said.spoken, **thoughts} if thoughts else message
    arguments = [*(call.arguments for call in said.made), *[{}] * len(answers)]
    names = names_of(message["content"], answers, tools) if answers else [call.name for call in said.made]
    return {**_with_calls(list(zip(names, arguments, strict=False))[:most], said.content, first), **thoughts}


def _with_calls(calls: Sequence[tuple[str, Mapping[str, Any]]], content: str, first: int) -> Message:
    made = [
        {"id": _id(first + at), "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (name, arguments) in enumerate(calls)
    ]
    return {"role": "assistant", "content": content, "tool_calls": made}


def _id(number: int) -> str:
    return f"call{number:05d}"  # nine letters and digits, as Mistral's templates want


def turn_end(render: Render, added_tokens: Find) -> str:
    """Returns the first added token after an assistant's turn; empty without one."""
    alone = render([USER, SAID], False).partition(REPLY)[2]
    followed = render([USER, SAID, _NEXT], True).partition(REPLY)[2].partition(_NEXT["content"])[0]
    return next((name for text in (alone, followed) for _, name in added_tokens(text)), "")


def calls_end(render: Render, added_tokens: Find, tool: str) -> str:
    """Returns the added token that ends an assistant's turn with calls; empty if the template renders no calls.

    Args:
        render, added_tokens: as for `turn_end`.
        tool: the name of a tool.
    """
    answer = as_served([called([tool]), {"role": "tool", "content": "?"}])
    with suppress(TemplateError, TypeError, AttributeError):  # of calls that the template does not expect
        alone = render([USER, called([tool])], False).partition(REPLY)[2].rstrip()
        followed = render([USER, *answer], True).partition(REPLY)[2]
        between: set[str] = set()
        with suppress(TemplateError):  # a template of one call at a time
            two = render([USER, _with_calls([(tool, {"x": REPLY})] * 2, "", 0)], False).split(REPLY)
            between = {name for _, name in added_tokens(two[1])} if len(two) == 3 else set()
        for at, name in reversed(added_tokens(alone)):
            if at + len(name) == len(alone) and name not in between:
                return name if name in followed else ""
        if alone and followed.startswith(alone):
            return next((name for _, name in added_tokens(followed[len(alone) :])), "")
    return ""


def written_turn(render: Render, turn: Message, end: str) -> str | None:
    """Returns what a template writes of an assistant's turn before its end token; `None` if that cannot be told."""
    whole = render([USER, turn], False)
    body = (whole.rpartition(end)[0] if end else "") or whole.rstrip()  # some write the end with the answer alone
    heads = (render([USER, SAID], False).partition(REPLY)[0], render([USER], True))
    return next((body.removeprefix(head) for head in heads if body.startswith(head)), None)


def beginnings(render: Render) -> tuple[str, str, str]:
    """Returns what a template writes of a turn before a thought, between it and the content, and before the content
    without one; empty texts where that does not continue what it writes before a reply."""
    prompt, thought = render([USER], True), "\ue000thought\ue001"
    turns = ({**SAID, "reasoning_content": thought}, SAID)
    heads = [render([USER, turn], False).partition(REPLY)[0] for turn in turns]
    before, plain = (head.removeprefix(prompt) if head.startswith(prompt) else "" for head in heads)
    return (*before.partition(thought)[::2], plain) if thought in before else ("", "", plain)


def begun(text: str, opened: str, before: str, between: str, header: str) -> str:
    """Returns the text of a reply as it continues a context, with its first thought as the template writes it.

    Args:
        opened: the mark of the thought that the context opens, if any.
        before, between, header: `beginnings`; a header for a template whose replies have several messages.
    """
    mark, closing = begun_thought(text), closing_of(opened) if opened else ""
    if opened and text.startswith(opened):
        return text.removeprefix(opened)
    if opened:
        before = ""
        between = between if closing in between else f"\n{closing}\n\n" if opened.endswith("\n") else closing
    if mark and (opened or (before and mark.strip() not in before)):
        thought, closed, rest = text.removeprefix(mark).partition(closing_of(mark))
        return before + (thought.rstrip() + between + rest.lstrip() if closed else thought)
    if opened:
        return text if closing in text else between + text
    return text if any(one in text for one in MARKS) else header + text


_DIRECTIVES = (*(f"-{letter}" for letter in "dmyHIMSj"), *"aAbBcdDeFfHIjmMpSTUwWxXyYzZ")


def dated(template: str, today: str) -> str:
    """Returns a chat template for which the time is the beginning of a day, as "2026-01-31".

    Raises:
        ChatTemplateError: it is no day.
    """
    try:
        time = date.fromisoformat(today)
    except (TypeError, ValueError):
        raise ChatTemplateError(
            f"today in chat_template_kwargs must be a date as 2026-01-31, got {today!r}; correct it."
        ) from None
    written = "".join(f".replace('%{one}', '{time.strftime(f'%{one}')}')" for one in _DIRECTIVES)
    return f"{{% macro strftime_now(format) %}}{{{{ format{written} }}}}{{% endmacro %}}{{{{ '' }}}}{template}"


def shows_once(text: str, contents: Sequence[str]) -> bool:
    """Returns whether a text has every content once, and in order."""
    places = [text.find(content) for content in contents]
    return all(text.count(content) == 1 for content in contents) and places == sorted(places)
