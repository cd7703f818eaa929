"""What a call may have in each dialect: its parameters, messages or items, parts of content, and tools.

`MESSAGE_LIST` is also what logs and captures may have: a message is known in every way in, or is refused in each.

A dict is an object with these fields at most, a list of one shape a list of such, `Types` an object whose fields
depend on its type, and other shapes are those of `hf_credit.boundary`. A null is a field that is left out, as is an
unknown one that is empty within a parameter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_origin

from hf_credit.boundary import Range, check
from hf_credit.validators import shown

MOST_ITEMS = 10_000
"""The most items of a list in a call: more than any conversation, and few enough to be read within a second."""


class RefusedCallError(ValueError):
    """A call that training does not support, with a reason in one sentence.

    Attributes:
        status: of the answer.
        param: the parameter that is refused, if it is one.
        code: of the error in OpenAI's form.
    """

    def __init__(self, sentence: str, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(sentence)
        self.param, self.status, self.code = param, status, code


@dataclass(frozen=True)
class Unheeded:
    """The shape of a value that is accepted without effect, and counted unless it is false."""

    kind: Any = Any


@dataclass(frozen=True)
class Needed:
    """The shape of a field that an object must have."""

    kind: Any = str


class Types(dict[str, dict[str, Any]]):
    """The fields of objects by their `type`; that of an object without one is the first."""


def _of(kind: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


def _parts(types: str, **others: Any) -> Any:
    """Text, or parts of text of these types, or of other types with their fields."""
    text = {one: _of(str, "type text") | _of(Any, _MARKS) for one in types.split()}
    other = {one: _of(str, "type") | _of(Any, _MARKS) | fields for one, fields in others.items()}
    return (str, [(str, Types(text | other))])


_MARKS = "cache_control annotations citations logprobs caller signature id index format"  # without a meaning in a call
_SCHEMA = {"schema": Mapping[str, Any], "strict": bool} | _of(str, "name description")
_FLAT_FORMAT = Types(text={"type": str}, json_object={"type": str}, json_schema=_SCHEMA | {"type": str})
_FORMAT = Types(_FLAT_FORMAT | {"json_schema": {"type": str, "json_schema": _SCHEMA}})
_FUNCTION = {"name": Needed(Annotated[str, Range(1, 256)]), "description": str} | {
    "parameters": Mapping[str, Any],
    "strict": Unheeded(bool),
}
_CALLED = {"name": Needed(), "arguments": Any}
_TOKENS = Annotated[int, Range(1)]
_COMMON = (
    _of(Any, "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention request_id")
    | _of(Any, "prompt_cache_options priority cache_control prediction max_tool_calls")
    | _of(Unheeded(float), "temperature top_p min_p presence_penalty frequency_penalty repetition_penalty")
    | _of(Unheeded(int), "top_k seed")
    | _of(bool, "stream parallel_tool_calls")
    | _of(str, "model")
    | {"tool_choice": (str, _of(str, "type name") | {"function": _of(str, "name")})}
)

_THOUGHT = {"thinking": _parts("text"), "closed": Literal[True]}
_REASONING = _of(str, "reasoning text")
_REFUSAL = {"refusal": str}
_MESSAGE = (
    {"role": Needed(Annotated[str, Range(1, 64)])}
    | _of(str, "tool_call_id tool_name refusal reasoning_content reasoning thinking")
    | {"content": _parts("text", thinking=_THOUGHT, reasoning=_REASONING, refusal=_REFUSAL)}
    | {"name": Unheeded(str), "annotations": Any, "weight": Unheeded(Literal[0, 1])}
    | {"tool_calls": [_of(str, "id") | {"index": int, "type": Literal["function"], "function": Needed(_CALLED)}]}
    | {"function_call": _CALLED, "thinking_blocks": _parts("", thinking=_THOUGHT)[1]}
    | {"reasoning_details": _parts("reasoning.text", **{"reasoning.summary": _of(str, "summary")})[1]}
    | dict.fromkeys(("prefix", "partial"), Literal[False])
)
MESSAGE_LIST = [_MESSAGE]
"""Of messages of chat completions, with the thoughts and refusals of the common servers."""
CHAT = (
    _COMMON
    | _of(_TOKENS, "max_tokens max_completion_tokens")
    | _of(Unheeded(str), "reasoning_effort verbosity")
    | {"messages": MESSAGE_LIST, "tools": [Types(function={"type": str, "function": _FUNCTION})]}
    | {"stream_options": _of(bool, "include_usage include_obfuscation continuous_usage_stats")}
    | {"stop": (str, [str]), "n": Literal[1], "logprobs": bool, "top_logprobs": Literal[0]}
    | {"response_format": _FORMAT, "modalities": [Literal["text"]]}
)
"""Of chat completions."""

_ITEM, _SAID = _of(str, "type id call_id status"), _parts("input_text output_text text", refusal=_REFUSAL)
_SUMMARY = {"summary": _parts("summary_text")[1], "content": _parts("reasoning_text")[1]}
_ITEMS = Types(
    message=_ITEM | {"role": Needed(), "phase": Any, "content": _SAID},
    function_call=_ITEM | _CALLED,
    function_call_output=_ITEM | {"output": _SAID},
    reasoning=_ITEM | _SUMMARY,
)
RESPONSES = (
    _COMMON
    | {"input": (str, [_ITEMS]), "tools": [Types(function={"type": str} | _FUNCTION)]}
    | {"instructions": str, "max_output_tokens": _TOKENS, "stream_options": Mapping[str, Any]}
    | {"include": [Literal["message.output_text.logprobs", "reasoning.encrypted_content"]]}
    | {"background": Literal[False], "truncation": Literal["disabled"], "top_logprobs": Literal[0]}
    | {"text": {"format": _FLAT_FORMAT, "verbosity": Unheeded(str)}, "reasoning": Unheeded(Mapping[str, Any])}
)
"""Of Responses."""

_BLOCK = _of(str, "type") | _of(Any, _MARKS)
_BLOCKS = Types(
    text=_BLOCK | {"text": str},
    thinking=_BLOCK | {"thinking": str},
    tool_use=_BLOCK | {"id": str, "name": Needed()} | {"input": Mapping[str, Any]},
    tool_result=_BLOCK | {"tool_use_id": str, "is_error": bool, "content": _parts("text")},
)
_TOOL = _BLOCK | _of(str, "name description") | {"input_schema": Mapping[str, Any], "strict": Unheeded(bool)}
MESSAGES = (
    _COMMON
    | {"messages": [{"role": Needed(Literal["user", "assistant"]), "content": (str, [_BLOCKS])}]}
    | {"tools": [Types(custom=_TOOL)], "tool_choice": _of(str, "type name") | {"disable_parallel_tool_use": bool}}
    | {"system": _parts("text"), "max_tokens": _TOKENS, "stop_sequences": [str]}
    | {"thinking": Unheeded(Mapping[str, Any]), "output_config": {"effort": Unheeded(str), "format": _FLAT_FORMAT}}
    | {"output_format": _FLAT_FORMAT}
)
"""Of Anthropic's messages."""

REMEDIES = MappingProxyType(
    _of("send the whole conversation with each call", "previous_response_id conversation")
    | _of("use response_format", "structured_outputs guided_json")
    | {"n": "call several times", "functions": "use tools", "function_call": "use tool_choice"}
    | {"top_logprobs": "leave it out, since only sampled tokens are known"}
    | {"truncation": "shorten the input after the error of a context that is too long"}
)
"""What to do instead of a parameter, where that is not to leave it out."""


def unheeded(value: Any, kind: Any, place: str = "", whose: str = "a call") -> int:
    """Checks a part of a call; returns the number of values in it that have no effect.

    Args:
        value: the part.
        kind: its shape (see the module).
        place: of the part in the call, for errors.
        whose: what it is a part of, for errors.

    Raises:
        RefusedCallError: it has another shape.
    """
    if isinstance(kind, Unheeded):
        unheeded(value, kind.kind, place, whose)
        return int(value is not None and value is not False)
    kind = kind.kind if isinstance(kind, Needed) else kind
    if isinstance(kind, tuple):
        kind = kind[0] if isinstance(value, str) else kind[1]
    if value is None or type(value) is kind:
        return 0
    if isinstance(kind, list):
        _checked(value, Annotated[list[Any], Range(0, MOST_ITEMS)], place, whose)
        if None in value:
            raise _refusal(f"{place}[{value.index(None)}]", "not be null", None, whose)
        return sum(unheeded(one, kind[0], f"{place}[{number}]", whose) for number, one in enumerate(value))
    if isinstance(kind, Types):
        _checked(value, Mapping, place, whose)
        type_ = value.get("type", next(iter(kind)))
        if not isinstance(type_, str) or type_ not in kind:
            raise _refusal(place, f"be of the type {' or '.join(kind)}", type_, whose)
        kind = kind[type_]
    if isinstance(kind, dict):
        _checked(value, Mapping, place, whose)
        dot = f"{place}." if place else ""
        for name in (*value, *kind):
            if isinstance(kind.get(name), Needed) and value.get(name) is None:
                raise RefusedCallError(f"{dot}{name} of {whose} must be given, got none; add it.", place)
            if name not in kind and value[name] is not None and not (place and is_empty(value[name])):
                raise _refusal(f"{dot}{name}"[:100], "be left out", value[name], whose)
        return sum(unheeded(one, kind.get(name), f"{dot}{name}", whose) for name, one in value.items() if name in kind)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise _refusal(place, f"be {' or '.join(map(str, get_args(kind)))}", value, whose)
        return 0
    _checked(value, kind, place, whose)
    return 0


def is_empty(value: Any) -> bool:
    """Returns whether plain values say nothing: null, no text, and no items but such."""
    if isinstance(value, Mapping):
        value = list(value.values())
    return value in (None, "") or (isinstance(value, list) and all(map(is_empty, value)))


def _checked(value: Any, kind: Any, place: str, whose: str) -> None:
    try:
        check(place, value, kind, sender=whose)
    except ValueError as error:
        raise RefusedCallError(str(error), place) from None


def _refusal(place: str, rule: str, got: Any, whose: str) -> RefusedCallError:
    remedy = REMEDIES.get(place.rpartition(".")[2], "leave it out")
    sentence = f"{place or 'it'} of {whose} must {rule}, got {shown(got)}; {remedy}."
    return RefusedCallError(sentence, place.partition(".")[0].partition("[")[0], code="unsupported_parameter")
