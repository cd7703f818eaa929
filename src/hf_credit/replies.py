"""What a model said: the thoughts, the content and the tool calls of a reply, from its text.

The text is that of `hf_credit.rollouts.Chat.texts`: special tokens that mark thoughts and calls (`MARKS`) are part of
it, and if the chat template opens a thought before the reply, it begins with that mark.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hf_credit.boundary import encodable
from hf_credit.safe_io import parse_json

MOST_CHARACTERS = 16_384
"""The most characters of the text of a call."""
MOST_DEPTH = 32
"""The most levels of nested values in a call."""


@dataclass(frozen=True)
class Call:
    """A tool call.

    Attributes:
        name: of the tool; empty if it cannot be read.
        arguments: by name; empty if they cannot be read.
        why: why it cannot be read; empty if it can.
        written: if it cannot be read, the arguments as written, or the whole call if its name cannot be read either.
    """

    name: str
    arguments: dict[str, Any]
    why: str = ""
    written: str = ""


@dataclass(frozen=True, kw_only=True)
class ParsedReply:
    """The parts of a reply.

    Attributes:
        thoughts: its thoughts, without marks.
        spoken: its text without thoughts.
        content: its text without thoughts and tool calls. Calls whose name cannot be read stay in it, as servers do.
        made: its tool calls in order, also those that cannot be read.
    """

    thoughts: str = ""
    spoken: str
    content: str
    made: tuple[Call, ...] = ()

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls that can be read."""
        return tuple(call for call in self.made if not call.why)

    @property
    def written_calls(self) -> tuple[tuple[str, str], ...]:
        """The name of each call that has one, and its arguments as JSON; as written if they cannot be read."""
        pairs = ((call, json.dumps(call.arguments, ensure_ascii=False)) for call in self.made if call.name)
        return tuple((call.name, call.written if call.why else arguments) for call, arguments in pairs)

    @property
    def bad_calls(self) -> tuple[Call, ...]:
        """The calls that cannot be read."""
        return tuple(call for call in self.made if call.why)


def read_reply(text: str, tools: Sequence[Mapping[str, Any]] = ()) -> ParsedReply:
    """Returns the parts of a reply.

    A thought that is never closed extends to the end. Text before a mark that only closes a thought is a thought.
    Marks within a call that can be read have no meaning.

    Calls are read in the forms of Hermes, Qwen, Llama, Mistral, DeepSeek, Kimi, GLM, Cohere, LFM2, Gemma 4, GPT-OSS,
    MiniMax, Granite, OLMo 3, Phi-4, Nemotron, Hunyuan, Jamba, Seed-OSS and Step 3. Arguments are an object of strict
    JSON, or text with one; they may be missing, null or empty, or be named `parameters`. A reply that, after its
    thoughts, is only JSON with a name and arguments, or only a list of calls in Python, is a call.

    Args:
        text: of the reply.
        tools: JSON schemas of functions. Their types are those of arguments in XML, which are text without a type.
    """
    if text.lstrip()[:1] not in ("{", "[") and not any(one in text for one in ("<", "◁", "[T", "[/T", "functools[")):
        return ParsedReply(spoken=text, content=text)
    reader = _Reader(text, tools)
    parts = [(kind, text[start:end], calls) for kind, start, end, calls in reader.parts]
    thoughts = "\n".join(one.strip() for kind, one, _ in parts if kind == "thought")
    spoken = "".join(one for kind, one, _ in parts if kind in ("content", "call"))
    made = tuple(call for _, _, calls in parts for call in calls)
    content = "".join(one for kind, one, calls in parts if kind == "content" or any(not call.name for call in calls))
    if reader.marked:
        spoken, content = spoken.strip(), content.strip()
    return ParsedReply(thoughts=thoughts, spoken=spoken, content=content, made=made)


def spans(text: str) -> list[tuple[str, int, int]]:
    """Returns the kind (content, thought, or call with its marks), start and end of each part of a reply."""
    return [(kind, start, end) for kind, start, end, _ in _Reader(text, ()).parts]


@functools.lru_cache(maxsize=256)  # several verifiers read the same reply
def spoken(text: str) -> str:
    """Returns the text of a reply without its thoughts."""
    return read_reply(text).spoken


def openings(text: str) -> set[str]:
    """Returns the marks that open the calls of a reply, an empty text for a call without."""
    calls = [text[start:end] for kind, start, end in spans(text) if kind == "call"]
    return {found.group() if (found := _OPENING.match(call)) else "" for call in calls}


def listed_calls(values: Any) -> tuple[Call, ...]:
    """Returns calls from values in the form of chat templates, each with a function's name and arguments."""
    return tuple(
        call
        for value in (values if isinstance(values, list) else [values] if values else [])
        for call in _made(lambda _, text, __: [_named(_value(text))], None, json.dumps(value), True)
    )


def open_thought(context: str) -> str:
    """Returns the mark at the end of a context that opens a thought, with the space after it; empty without one."""
    return found.group() if (found := _OPENED.search(context)) else ""


def begun_thought(text: str) -> str:
    """Returns the mark at the beginning of a reply that opens a thought, with the space around it; empty without."""
    return found.group() if (found := _BEGUN.match(text)) else ""


def closing_of(mark: str) -> str:
    """Returns the mark that closes a thought opened by a mark of `open_thought`."""
    return _THOUGHTS[mark.strip()]


class _Reader:
    """Splits a text into parts of the kinds content, thought and call, without marks, in linear time."""

    def __init__(self, text: str, tools: Sequence[Mapping[str, Any]]) -> None:
        self.schemas = {str(name): properties for tool in tools for name, properties in [_schema(tool)]}
        self.text = text
        self.parts: list[tuple[str, int, int, list[Call]]] = []
        self._ends: dict[str, re.Match[str] | None] = {}
        at = self._message(0)
        self.marked = bool(at)
        while not (bare := _bare(text, at)) and (found := _OPENING.search(text, at)):
            self.marked = True
            self._add("content", at, found.start())
            at = found.end()
            if found.group() in _THOUGHTS:
                at = self._thought(at, re.escape(_THOUGHTS[found.group()]))
            elif found.group() in _THOUGHTS.values():  # the reply began within a thought
                self.parts = [("thought", 0, found.start(), [])]
            elif found.group() in _CALLS:
                at = self._call(found)
            else:  # of a frame, which has no meaning, if it is no header
                at = max(at, self._message(found.start()))
        self._add("call" if bare else "content", at, len(text), bare)

    def _add(self, kind: str, start: int, end: int, calls: Sequence[Call] = ()) -> None:
        if start < end:
            self.parts.append((kind, start, end, list(calls)))

    def _end(self, start: int, closing: str) -> tuple[int, int]:
        """Start and end of the next match of `closing`; the end of the text if there is none."""
        known = self._ends.get(closing)
        if closing not in self._ends or (known and known.start() < start):
            self._ends[closing] = known = re.compile(closing).search(self.text, start)
        return known.span() if known else (len(self.text),) * 2

    def _thought(self, start: int, closing: str) -> int:
        end, after = self._end(start, closing)
        self._add("thought", start, end)
        return after

    def _next(self, start: int, opened: str) -> int:
        """Where the next part begins after a mark that opened a call, which may be written in two marks."""
        at = start
        while (other := _OPENING.search(self.text, at)) and other.group() == "<function=" != opened:
            at = other.end()
        return other.start() if other else len(self.text)

    def _call(self, found: re.Match[str]) -> int:
        """Adds the call that a mark opens, and returns its end."""
        closing, read = _CALLS[found.group()]
        start = found.end()
        end, after = self._end(start, closing)
        closed = end < after or "\\Z" in closing
        if not closed:
            end = after = self._next(start, found.group())
        calls, end, after = self._read(read, start, (end, after), closing, closed)
        if closed and any(call.why for call in calls) and (other := self._next(start, found.group())) < end:
            after = other  # what closes it belongs to another call
            calls = [Call("", {}, "it is not closed", self.text[start:other][:MOST_CHARACTERS])]
        self._add("call", found.start(), after, calls)
        return after

    def _read(
        self, read: _Read, start: int, end: tuple[int, int], closing: str, closed: bool = True
    ) -> tuple[list[Call], int, int]:
        """The calls up to `end`, or, if only those can be read, up to an end after the JSON there; and the end."""
        limit = start + MOST_CHARACTERS + 1
        calls = _made(read, self, self.text[start : min(end[0], limit)], closed)
        if closed and any(call.why for call in calls):
            with suppress(ValueError, RecursionError):
                after = start + _end_of_json(self.text[start:limit], end[0] - start)
                found = re.compile(rf"[\s`]*({closing})").match(self.text, after)
                others = _made(read, self, self.text[start : found.start(1)], True) if found else calls
                if found and not any(call.why for call in others):
                    return others, found.start(1), found.end()
        return calls, *end

    def _message(self, at: int) -> int:
        """Adds the message of GPT-OSS that has its header here, and returns its end; 0 without one."""
        header = _HEADER.match(self.text, at)
        if header is None:
            return 0
        to = header["to"] or header["also"] or "user"
        if to == "self" or (to == "user" and header["channel"] == "analysis"):
            return self._thought(header.end(), _MESSAGE_ENDS)
        if to == "user" or self.text[header.end() : header.end() + 99].lstrip().startswith("<atem:"):
            return header.end()
        name, end = to.removeprefix("functions."), self._end(header.end(), _MESSAGE_ENDS)
        made, _, after = self._read(lambda _, text, __: [_call(name, text)], header.end(), end, _MESSAGE_ENDS)
        self._add("call", header.start(), after, made)
        return after


def _schema(tool: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """The name of a tool and the schemas of its arguments, which a program may have made of anything."""
    function = tool.get("function", tool)
    found: Any = function
    for name in ("parameters", "properties"):
        found = found.get(name) if isinstance(found, Mapping) else None
    return function.get("name") if isinstance(function, Mapping) else None, found if isinstance(found, Mapping) else {}


_Read = Callable[[Any, str, bool], list[Call]]


def _made(read: _Read, reader: _Reader | None, body: str, closed: bool) -> list[Call]:
    try:
        if len(body) > MOST_CHARACTERS:
            raise ValueError(f"it has more than {MOST_CHARACTERS:,} characters")
        if calls := read(reader, body.strip(), closed):
            return calls
        raise ValueError("it has no name")
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        return [Call("", {}, str(error) or type(error).__name__, body)]


def _value(text: str) -> Any:
    """The value of strict JSON that is not nested too deep; halves of surrogate pairs become U+FFFD."""
    return encodable(parse_json(text, broken_text=True, most_depth=MOST_DEPTH, finite=True))


def _values(text: str) -> list[Any]:
    """The values of a list, or several one after another, each as in `_value`."""
    values: list[Any] = []
    while text:
        try:
            end = json.JSONDecoder().raw_decode(text)[1]
        except (ValueError, RecursionError):
            end = len(text)
        value = _value(text[:end])
        values += value if isinstance(value, list) else [value]
        text = text[end:].lstrip("; \n\r\t")
    return values


def _end_of_json(text: str, before: int) -> int:
    """Where the object or the list of objects ends that begins in a text, before a place, which has one."""
    begun = text.index("{", 0, before)
    name = text[:begun].rstrip()
    return json.JSONDecoder().raw_decode(text, len(name) - 1 if name.endswith("[") else begun)[1]


def _call(name: Any, arguments: Any) -> Call:
    """A call from its name and arguments, which may be text."""
    if not isinstance(name, str) or not name:
        raise ValueError("it has no name")
    try:
        value = _value(arguments) if isinstance(arguments, str) and arguments.strip() else arguments or {}
        if not isinstance(value, dict):
            raise ValueError("its arguments are not an object")
        return Call(name, value)
    except ValueError as error:
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return Call(name, {}, str(error), written)


def _named(value: Any) -> Call:
    """A call from an object with a name and arguments."""
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    value = value["function"] if isinstance(value.get("function"), dict) else value
    return _call(value.get("name", value.get("tool_name")), value.get("arguments", value.get("parameters")))


def _bare(text: str, start: int) -> list[Call]:
    """The calls of a text that is only JSON, or a list of calls in Python, from `start` on; empty for another."""
    if len(text) - start > MOST_CHARACTERS or (bare := text[start:].strip())[:1] not in ("{", "["):
        return []
    if _PYTHON.match(bare):
        return [call for call in _made(_in_python, None, bare, True) if not call.why]
    try:
        values = _values(bare)
    except ValueError:
        return []
    plain = [isinstance(one, dict) and bool({"arguments", "parameters", "function"} & set(one)) for one in values]
    return _made(lambda *_: [_named(one) for one in values], None, "", True) if plain and all(plain) else []


def _in_json(reader: _Reader, body: str, closed: bool) -> list[Call]:
    if begun := _FUNCTION.match(body):
        parts = (part.strip().removesuffix(f"</{begun[1]}>") for part in body.split(begun[0])[1:])
        return [call for part in parts for call in _function(reader, part, closed)]
    if body[:1] not in ("{", "["):
        name, *pairs = re.split("</?arg_key>", body)
        values = [text.strip().removeprefix("<arg_value>").split("</arg_value>", 1) for text in pairs[1::2]]
        return [_typed_call(reader, name.strip(), pairs[::2], values, closed, body)]
    return [_named(one) for one in _values(body)]


def _function(reader: _Reader, body: str, closed: bool) -> list[Call]:
    name, _, rest = body.partition(">")
    if rest.lstrip().startswith("{") or (closed and not rest.strip()):
        return [_call(name.strip('"'), rest)]
    before, *pairs = _PARAMETER.split(rest)
    values = [_PARAMETER_END.split(text, maxsplit=1) for text in pairs[1::2]]
    return [_typed_call(reader, name.strip('"'), pairs[::2], values, closed and not before.strip(), rest)]


def _typed_call(
    reader: _Reader, name: str, keys: Sequence[str], values: Sequence[Sequence[str]], whole: bool, written: str
) -> Call:
    """A call from names and texts of arguments, each text with what follows its end."""
    if not _NAME.fullmatch(name):
        raise ValueError("it has no name")
    if not whole or any(len(one) < 2 or one[1].strip() for one in values):
        return Call(name, {}, "its arguments are not closed", written)
    types = reader.schemas.get(name, {})
    pairs = zip(keys, values, strict=True)
    return Call(
        name, {key: _typed(one[0].removeprefix("\n").removesuffix("\n"), types.get(key)) for key, one in pairs}
    )


def _typed(text: str, schema: Any) -> Any:
    """The value of an argument in XML: of the first type of its schema that fits, otherwise the text."""
    schema = schema if isinstance(schema, dict) else {}
    either = schema.get("anyOf")
    others = [one.get("type") for one in either if isinstance(one, dict)] if isinstance(either, list) else []
    declared = schema.get("type", others)
    for name in map(str, declared if isinstance(declared, list) else [declared]):
        if name == "string":
            return text
        try:
            value = _value({"True": "true", "False": "false", "None": "null"}.get(text.strip(), text))
        except ValueError:
            continue
        if type(value) in _TYPES.get(name, ()):
            return value
    return text


def _in_python(reader: _Reader, body: str, closed: bool) -> list[Call]:
    """A list of calls in Python, or a call on each line; or, where a family has either, another form."""
    if body[:1] in ("{", "<") or (body[:1] == "[" and not _PYTHON.match(body)):
        return _in_json(reader, body, closed)
    calls = []
    body = _ESCAPE.sub(lambda found: "\\" * (found[1] not in _ESCAPED) + found[0], body)  # Python would warn
    lines = [one.value if isinstance(one, ast.Expr) else one for one in _Constants().visit(ast.parse(body)).body]
    for node in [one for line in lines for one in (line.elts if isinstance(line, ast.List) else [line])]:
        if not isinstance(node, ast.Call) or node.args or not all(one.arg for one in node.keywords):
            raise ValueError("it is not a call with named arguments")
        arguments = {str(one.arg): ast.literal_eval(one.value) for one in node.keywords}
        calls.append(_call(ast.unparse(node.func), json.dumps(arguments)))
    return calls


class _Constants(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        known = {"true": True, "false": False, "null": None}
        return ast.Constant(known[node.id]) if node.id in known else node


def _in_gemma(_: _Reader, body: str, __: bool) -> list[Call]:
    name, brace, rest = body.partition("{")
    pieces = (brace + rest).split('<|"|>')  # every second one is text
    pieces[::2] = [re.sub(r"([{,]\s*)([\w.-]+)\s*:", r'\1"\2":', one) for one in pieces[::2]]
    pieces[1::2] = [json.dumps(one) for one in pieces[1::2]]
    return [_call(name, "".join(pieces))]


def _in_mistral(reader: _Reader, body: str, closed: bool) -> list[Call]:
    if body[:1] in ("[", "{"):
        return _in_json(reader, body, closed)
    name, brace, rest = body.partition("{")
    return [_call(name.partition("[")[0].strip(), brace + rest)]


def _in_sections(reader: _Reader, body: str, closed: bool) -> list[Call]:
    """`NAME<sep>{...}` of DeepSeek 3.1 and Kimi; `function<sep>` with a fence of DeepSeek 3, or XML of Step 3."""
    kind, _sep, rest = re.split(r"(<｜tool[▁_]sep｜>|<\|tool_call_argument_begin\|>)", body, maxsplit=1)
    if _FUNCTION.match(rest.strip()):
        return _in_json(reader, rest.strip(), closed)
    if not rest.lstrip().startswith("{"):
        kind, _sep, rest = rest.partition("\n")
    name = re.sub(r"^functions\.|:\d+$", "", kind.strip())
    return [_call(name, rest.strip().removeprefix("```json").removesuffix("```"))]


_THOUGHTS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<seed:think>": "</seed:think>",
    "◁think▷": "◁/think▷",
    "[THINK]": "[/THINK]",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel>thought": "<channel|>",
}
_CALLS: dict[str, tuple[str, _Read]] = {
    "<tool_call>": ("</tool_call>", _in_json),
    "<function=": ("</function>", _function),
    '<invoke name="': ("</invoke>", _function),
    '<atem:invoke name="': ("</atem:invoke>", _function),
    '<｜DSML｜invoke name="': ("</｜DSML｜invoke>", _function),
    '<steptml:invoke name="': ("</steptml:invoke>", _function),
    "<|tool_call>call:": (r"<tool_call\|>", _in_gemma),
    "<|tool_call_start|>": (r"<\|tool_call_end\|>", _in_python),
    "<function_calls>": ("</function_calls>", _in_python),
    "<|python_start|>": (r"<\|python_end\|>|\Z", _in_python),
    "<|START_ACTION|>": (r"<\|END_ACTION\|>", _in_json),
    "<tool_calls>": ("</tool_calls>", _in_json),
    "<TOOLCALL>": ("</TOOLCALL>", _in_json),
    "<|tool_call|>": (r"<\|/tool_call\|>|(?=<\|tool_call\|>)|\Z", _in_json),
    "<function_call>": (r"</function_call>|(?=<function_call>)|\Z", _in_json),
    "<|python_tag|>": (r"<\|eom_id\|>|\Z", _in_json),
    "functools[{": (r"\Z", lambda reader, body, closed: _in_json(reader, "[{" + body, closed)),
    "[TOOL_CALLS]": (r"(?=\[TOOL_CALLS\])|\Z", _in_mistral),
    "<｜tool▁call▁begin｜>": ("<｜tool▁call▁end｜>", _in_sections),
    "<｜tool_call_begin｜>": ("<｜tool_call_end｜>", _in_sections),
    "<|tool_call_begin|>": (r"<\|tool_call_end\|>", _in_sections),
}
MESSAGE_MARKS = ("<|start|>", "<|channel|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>", "<|eom|>")
"""The marks of a reply that has several messages."""
_FRAMES = (
    *MESSAGE_MARKS,
    *("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    *("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<atem:function_calls>", "</atem:function_calls>"),
    *("<minimax:tool_call>", "</minimax:tool_call>", "<seed:tool_call>", "</seed:tool_call>"),
    *("<|tool_call_section_begin|>", "<|tool_call_section_end|>", "<｜tool_calls_begin｜>", "<｜tool_calls_end｜>"),
    *("<｜DSML｜function_calls>", "</｜DSML｜function_calls>", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
)
_MESSAGE_ENDS = r"<\|(?:call|end|return|eom)\|>|(?=<\|start\|>|<\|channel\|>)"
_HEADER = re.compile(
    r"(?:<\|start\|>assistant)?(?:\s?to=(?P<to>[\w.-]{1,128}))?"
    r"(?:<\|channel\|>(?P<channel>\w{1,32})(?:\s?to=(?P<also>[\w.-]{1,128}))?\s?(?:<\|constrain\|>)?\w{0,32})?<\|message\|>"
)
_OPENING = re.compile("|".join(map(re.escape, (*_THOUGHTS, *_THOUGHTS.values(), *_CALLS, *_FRAMES))))
_MARK = "|".join(map(re.escape, _THOUGHTS))
_BEGUN, _OPENED = re.compile(rf"\s*(?:{_MARK})\s*"), re.compile(rf"(?:{_MARK})\s*\Z")
_SPACE = "(?:atem:|steptml:|｜DSML｜)?"
_FUNCTION = re.compile(f'<(function|{_SPACE}invoke)(?:=| name=")')
_PARAMETER = re.compile(f'<{_SPACE}parameter(?:=| name=")([^">\\n]{{1,128}})"?(?: string="\\w{{4,5}}")?>')
_PARAMETER_END = re.compile(f"</{_SPACE}parameter>")
_ESCAPE, _ESCAPED = re.compile(r"\\(.)", re.DOTALL), "\\'\"abfnrtvxuUN01234567\n"
_PYTHON = re.compile(r"\[\s*[^\W\d][\w.]*\(")
_NAME = re.compile(r"[\w.:-]{1,128}")
_TYPES: dict[Any, tuple[type, ...]] = {
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "object": (dict,),
    "array": (list,),
}
MARKS = frozenset(
    {"<|channel>", "<|tool_call>", '<|"|>', "[ARGS]", "[CALL_ID]", "<｜tool▁sep｜>", "<|tool_call_argument_begin|>"}
    | {"<|constrain|>", "<tool_call|>", "<|tool_call_end|>", "<|END_ACTION|>", "<｜tool▁call▁end｜>", "｜DSML｜"}
    | {"<｜tool_sep｜>", "<｜tool_call_end｜>", "<|/tool_call|>", "<|python_end|>"}
    | {*_THOUGHTS, *_THOUGHTS.values(), *_CALLS, *_FRAMES}
)
"""The texts of special tokens that are part of a reply's text."""
