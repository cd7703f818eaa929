"""What came from elsewhere has the shape that was declared, or is refused in one sentence: by whom, where, and what.

A shape is a type: `Annotated[float, Range(0, 1)]`, `Literal`, `X | None`, `tuple[X, ...]`, `list[X]`,
`Mapping[str, X]`, a dataclass, whose fields are all that a value may have, or a `TypedDict`, whose fields are those
that are read of it.

    Season.read: read(Season, parse_json(text), "a season")
    -> ValueError: tasks[0].public of a season must be a whole number, got '8'; correct it.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import itertools
import math
import re
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from hf_credit.validators import finite_number, one_of, shown, whole_number

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Range:
    """The range of a number, or of the length of a text or a list: `Annotated[float, Range(0, 1)]`.

    Attributes:
        least, most: inclusive ends.
        above, below: exclusive ends.
    """

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def __str__(self) -> str:
        low = f"[{self.least}" if self.above is None else f"({self.above}"
        high = f"{self.most}]" if self.below is None else f"{self.below})"
        if self.most is None and self.below is None:
            return f"at least {self.least}" if self.above is None else f"above {self.above}"
        return f"in {low}, {high}"

    def __contains__(self, number: float) -> bool:
        return (
            (self.least is None or number >= self.least)
            and (self.most is None or number <= self.most)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )


_ANY = Range()

Worth = Annotated[float, Range(-1e9, 1e9)]
"""A reward or an outcome of elsewhere: sums and squares of many stay finite in 32 bits."""


def read(kind: Any, value: Any, sender: str) -> Any:
    """Returns a value of a shape: lists become tuples and objects dataclasses, where the shape says so.

    Args:
        kind: the shape (see the module); anything else is not checked.
        value: plain values, as of JSON. A truth value is no number, and a number is finite.
        sender: what the value is and whose, for errors, such as `"the answer of http://localhost:8000"`.

    Raises:
        ValueError: the value has another shape; the error names the place in it.
    """
    return check("", value, kind, sender=sender)


def check(name: str, value: Any, kind: Any, bounds: Range = _ANY, sender: str = "") -> Any:
    """Returns an option if it has a shape, as `read`.

    Args:
        name: of the option, or the place in a value of `sender`.
        value, kind, sender: as for `read`.
        bounds: of a number, or of a length.

    Raises:
        ValueError: it has another shape.
    """
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin is NotRequired:
        return check(name, value, inner[0], sender=sender)
    if origin is Annotated:
        return check(name, value, inner[0], next((one for one in inner[1:] if isinstance(one, Range)), _ANY), sender)
    if origin in (Union, types.UnionType):
        return None if value is None and type(None) in inner else _check_any(name, value, inner, sender)
    full = " of ".join(filter(None, (name, sender)))
    if origin is Literal:
        return one_of(full, value, inner)
    if kind is bool:
        _refuse_unless(isinstance(value, bool), full, "true or false", value)
    elif kind is int:
        whole_number(full, value, bounds.least, bounds.most)  # type: ignore[arg-type]
    elif kind is float:
        finite_number(full, value, bounds.least, bounds.above, bounds.most, bounds.below)
    elif kind is str:
        _refuse_unless(isinstance(value, str), full, "a text", value)
        _refuse_unless(len(value) in bounds, full, f"of a length {bounds}", len(value))
    elif origin in (tuple, list, collections.abc.Sequence):
        _refuse_unless(isinstance(value, Sequence) and not isinstance(value, str | bytes), full, "a list", value)
        _refuse_unless(len(value) in bounds, full, f"of a length {bounds}", len(value))
        return _items(name, value, origin, inner, sender, full)
    elif origin is frozenset and not isinstance(value, frozenset):
        return frozenset(check(name, value, types.GenericAlias(list, inner), sender=sender))
    elif origin in (dict, collections.abc.Mapping):
        _refuse_unless(isinstance(value, Mapping), full, "a mapping", value)
        if inner and inner[1] is not Any:
            return {key: check(f"{name}[{key!r}]", one, inner[1], sender=sender) for key, one in value.items()}
    elif sender and (is_typeddict(kind) or (_is_dataclass(kind) and not isinstance(value, kind))):
        return _fields(name, value, kind, sender, full)
    return value


def encodable(value: Any) -> Any:
    """Returns plain values with U+FFFD for each half of a surrogate pair in a text, which no UTF-8 can hold."""
    if isinstance(value, str):
        return value if value.isascii() else _SURROGATE.sub("\ufffd", value)
    if isinstance(value, Mapping):
        return {encodable(key): encodable(one) for key, one in value.items()}
    return [encodable(one) for one in value] if isinstance(value, list | tuple) else value


def _is_dataclass(kind: Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _items(name: str, value: Sequence[Any], origin: Any, inner: Sequence[Any], sender: str, full: str) -> Any:
    made = tuple if origin is tuple else list if isinstance(value, tuple) and origin is list else None
    if origin is tuple and inner[1:] != (...,):
        _refuse_unless(len(inner) == len(value) or not inner, full, f"a list of {len(inner)}", value)
        kinds: Iterable[Any] = inner or [Any] * len(value)
    elif not inner or _all_fit(inner[0], value):
        return made(value) if made else value
    else:
        kinds = itertools.repeat(inner[0])
    items = [check(f"{name}[{at}]", *one, sender=sender) for at, one in enumerate(zip(value, kinds, strict=False))]
    return items if made is None and isinstance(value, list) else (made or tuple)(items)


def _all_fit(kind: Any, values: Sequence[Any]) -> bool:
    """Returns whether all values are of the type of a number or a text; `False` if that is not known. Fast."""
    bounds, found = _ANY, set(map(type, values))
    if get_origin(kind) is Annotated:
        bounds = next((one for one in get_args(kind)[1:] if isinstance(one, Range)), _ANY)
        kind = get_args(kind)[0]
    if kind is str and bounds is _ANY:
        return found <= {str}
    if kind is int:
        return found <= {int} and (not values or (min(values) in bounds and max(values) in bounds))
    try:
        finite = kind is float and found <= {int, float} and all(map(math.isfinite, values))
    except OverflowError:  # a whole number beyond floats
        return False
    return finite and (not values or (min(values) in bounds and max(values) in bounds))


def _fields(name: str, value: Any, kind: Any, sender: str, full: str) -> Any:
    kinds, is_open = types_of(kind), is_typeddict(kind)
    if is_open:  # not `__required_keys__`, which cannot read the annotations of a module that postpones them
        required = {one for one, own in kinds.items() if get_origin(own) is not NotRequired}
    else:
        fields = dataclasses.fields(kind)
        required = {one.name for one in fields if one.default is one.default_factory is dataclasses.MISSING}
    _refuse_unless(isinstance(value, Mapping), full, "an object", value)
    wrong = sorted(required - value.keys()) or [one for one in value if not is_open and one not in kinds]
    if wrong:
        remedy = "add it" if wrong[0] in required else "remove it"
        listed = ", ".join(sorted(kinds))
        raise ValueError(f"{full} must have the fields {listed}, got {shown(wrong[0])} wrong; {remedy}.")
    place = f"{name}." if name else ""
    made = {key: check(f"{place}{key}", value[key], own, sender=sender) for key, own in kinds.items() if key in value}
    return made if is_open else kind(**made)


def _check_any(name: str, value: Any, kinds: Sequence[Any], sender: str) -> Any:
    """Returns the value for the first type that it fits; raises one error with the rules of all if it fits none."""
    refusals: list[str] = []
    for kind in kinds:
        if kind is not type(None):
            try:
                return check(name, value, kind, sender=sender)
            except ValueError as error:
                refusals.append(str(error))
    if not refusals:
        raise ValueError(f"{name} must be left out, got {shown(value)}; leave it out.")
    rule, got, rest = refusals[0].partition(", got ")
    subject = rule.partition(" must ")[0]
    others = [one.partition(", got ")[0].partition(f"{subject} must be ")[2] for one in refusals[1:]]
    raise ValueError(" or ".join(filter(None, (rule, *others))) + got + rest)


def types_of(owner: Any) -> dict[str, Any]:
    """Returns the type of each parameter of a function, or of a class with a constructor of its own, or else of each
    field of the class, without `ClassVar`s."""
    return _types_of(owner)


@functools.cache
def _types_of(owner: Any) -> dict[str, Any]:
    has_fields = not isinstance(owner, type) or dataclasses.is_dataclass(owner) or is_typeddict(owner)
    hints = get_type_hints(owner if has_fields else owner.__init__, include_extras=True)  # type: ignore[misc]
    return {name: kind for name, kind in hints.items() if name != "return" and get_origin(kind) is not ClassVar}


def _refuse_unless(right: bool, name: str, rule: str, value: Any) -> None:
    if not right:
        raise ValueError(f"{name} must be {rule}, got {shown(value)}; correct it.")
