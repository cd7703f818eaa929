"""What a call may have: shapes of parameters, messages, parts of content and tools, from which dialects make theirs.

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


def each(kind: Any, names: str) -> dict[str, Any]:
    """Fields with these names, each of the same shape."""
    return dict.fromkeys(names.split(), kind)


def text_parts(types: str, **others: Any) -> Any:
    """Text, or parts of text of these types, or of other types with their fields."""
    text = {one: each(str, "type text") | each(Any, MARKS) for one in types.split()}
    other = {one: each(str, "type") | each(Any, MARKS) | fields for one, fields in others.items()}
    return (str, [(str, Types(text | other))])


MARKS = "cache_control annotations citations logprobs caller signature id index format"  # without a meaning in a call
_SCHEMA = {"schema": Mapping[str, Any], "strict": bool} | each(str, "name description")
FLAT_FORMAT = Types(text={"type": str}, json_object={"type": str}, json_schema=_SCHEMA | {"type": str})
FORMAT = Types(FLAT_FORMAT | {"json_schema": {"type": str, "json_schema": _SCHEMA}})
FUNCTION = {"name": Needed(Annotated[str, Range(1, 256)]), "description": str} | {
    "parameters": Mapping[str, Any],
    "strict": Unheeded(bool),
}
CALLED = {"name": Needed(), "arguments": Any}
TOKENS = Annotated[int, Range(1)]
COMMON = (
    each(Any, "user metadata store service_tier safety_identifier prompt_cache_key prompt_cache_retention request_id")
    | each(Any, "prompt_cache_options priority cache_control prediction max_tool_calls")
    | each(Unheeded(float), "temperature top_p min_p presence_penalty frequency_penalty repetition_penalty")
    | each(Unheeded(int), "top_k seed")
    | each(bool, "stream parallel_tool_calls")
    | each(str, "model")
    | {"tool_choice": (str, each(str, "type name") | {"function": each(str, "name")})}
)

_THOUGHT = {"thinking": text_parts("text"), "closed": Literal[True]}
_REASONING = each(str, "reasoning text")
_URL = {"image_url": Needed({"url": str, "detail": Unheeded(str)})}
_SEEN = {"image_url": _URL, "image": {"image": Needed(Any)}}  # the latter in logs of Python
REFUSAL = {"refusal": str}
_MESSAGE = (
    {"role": Needed(Annotated[str, Range(1, 64)])}
    | each(str, "tool_call_id tool_name refusal reasoning_content reasoning thinking")
    | {"content": text_parts("text", thinking=_THOUGHT, reasoning=_REASONING, refusal=REFUSAL, **_SEEN)}
    | {"name": Unheeded(str), "annotations": Any, "weight": Unheeded(Literal[0, 1])}
    | {"tool_calls": [each(str, "id") | {"index": int, "type": Literal["function"], "function": Needed(CALLED)}]}
    | {"function_call": CALLED, "thinking_blocks": text_parts("", thinking=_THOUGHT)[1]}
    | {"reasoning_details": text_parts("reasoning.text", **{"reasoning.summary": each(str, "summary")})[1]}
    | dict.fromkeys(("prefix", "partial"), Literal[False])
)
MESSAGE_LIST = [_MESSAGE]
"""Of messages of chat completions, with the thoughts and refusals of the common servers."""

REMEDIES = MappingProxyType(
    each("send the whole conversation with each call", "previous_response_id conversation")
    | each("use response_format", "structured_outputs guided_json")
    | {"source": "send the image itself in base64, since nothing is fetched"}
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
