"""Options: a signature defines them once, for checks, fields, flags and the tables of the documents."""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin

from hf_credit.boundary import Range, check, types_of
from hf_credit.registry import plain

C = TypeVar("C", bound=type)
R = TypeVar("R")


Count = Annotated[int, Range(1)]
GroupSize = Annotated[int, Range(2)]
Share = Annotated[float, Range(0, 1)]
Positive = Annotated[float, Range(above=0)]
NotNegative = Annotated[float, Range(0)]
MAPPING = dict | str | None
"""The type of a config's field for a mapping, which a command line gives as text."""
NUMBER_OR_WORD = float | str | None
"""The type of a config's field for a number or one of some words, which a command line gives as text."""

_OF_EVERY_FACTORY = """
Args:
    group_size: number of episodes per task row.
    oracle: the source of verdicts; the environment's own oracle if `None`.
"""


class Options:
    """A dataclass that checks its fields against their types.

    A factory with such a parameter (see `with_parts`) has the fields as options of its own.

    Class attributes:
        owner: whose options they are, for errors, such as `"a critic"`; options of a method need none.

    Raises:
        ValueError: a field does not fit its type, such as a number out of its range.
    """

    owner: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name, kind in types_of(type(self)).items():
            given = getattr(self, name)
            value = check(name, given, kind, sender=self.owner)
            if value is not given:
                object.__setattr__(self, name, value)


def refuse_without_effect(where: str, **given: tuple[Any, Any]) -> None:
    """Refuses options, each a value and its default, that something else makes idle.

    Raises:
        ValueError: a value is not the default.
    """
    for name, (value, default) in given.items():
        if value != default:
            raise ValueError(f"{name} has no effect {where}, got {value!r}; leave it out.")


def filled_by_factory(default: Any = dataclasses.MISSING, make: Any = dataclasses.MISSING) -> Any:
    """Declares a field that is not an option: a factory or a config with options of its own, or `bind`, sets it.

    Args:
        default: of the field.
        make: a function that makes the default, instead.
    """
    return dataclasses.field(default=default, default_factory=make, metadata={"bound": True})


def with_parts(factory: Callable[..., R]) -> Callable[..., R]:
    """Decorates a factory: the fields of a parameter with `Options` become options, and every option is checked.

        @with_parts
        def grpo(group_size: GroupSize = 8, estimator: GroupScore = GroupScore()) -> Method: ...

        grpo(group_size=4, eps=1e-6)  # eps is a field of GroupScore

    The default of such a parameter has the defaults of its options. The decorated function has their signature, and
    `documented`, the docstrings of the factory and of its parts.
    """
    kinds = types_of(factory)
    parts: dict[str, Options] = {}
    fields: dict[str, list[str]] = {}
    parameters: list[inspect.Parameter] = []
    documented = [inspect.getdoc(factory) or ""]
    for one in inspect.signature(factory).parameters.values():
        if not isinstance(one.default, Options):
            parameters.append(one.replace(annotation=kinds.get(one.name, one.annotation)))
            continue
        parts[one.name] = one.default
        of_part = types_of(type(one.default))
        fields[one.name] = _option_names(one.default)
        documented.append(inspect.getdoc(type(one.default)) or "")
        parameters += [
            one.replace(name=name, annotation=of_part[name], default=getattr(one.default, name))
            for name in fields[one.name]
        ]
    documented.append(_OF_EVERY_FACTORY)
    signature = inspect.Signature(parameters)
    rest = next((one.name for one in parameters if one.kind is one.VAR_KEYWORD), "")

    @functools.wraps(factory)
    def call(*args: Any, **kwargs: Any) -> R:
        given = signature.bind(*args, **kwargs).arguments
        given |= given.pop(rest, {})
        of_parts = {
            part: dataclasses.replace(default, **{name: given.pop(name) for name in fields[part] if name in given})  # type: ignore[type-var]
            for part, default in parts.items()
        }
        check_options(call, given)
        return factory(**given, **of_parts)

    del call.__wrapped__  # type: ignore[attr-defined]  # its signature lacks the options of its parts
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    call.documented = tuple(documented)  # type: ignore[attr-defined]
    return call


def check_options(factory: Callable[..., Any], given: Mapping[str, Any]) -> None:
    """Refuses options that do not fit the signature of a factory.

    Args:
        factory: a function or a class.
        given: its options by name. The default itself is always accepted.

    Raises:
        ValueError: an option does not fit; the error is about the first.
    """
    try:
        kinds = types_of(factory)
    except NameError:  # an annotation of the user's that only type checkers can resolve
        return
    parameters = inspect.signature(factory).parameters
    for name, value in given.items():
        if name in kinds and name in parameters and value is not parameters[name].default:
            check(name, value, kinds[name])


# Descriptions


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of a factory.

    Attributes:
        name: as in a recipe.
        kind: its type, with ranges.
        default: `inspect.Parameter.empty` if it has none.
        text: its entry in the docstring, on one line.
    """

    name: str
    kind: Any
    default: Any
    text: str

    def __str__(self) -> str:
        default = "required" if self.default is inspect.Parameter.empty else f"default: {plain(self.default)}"
        return f"{self.name}  ({self.values}; {default})\n      {self.text}"

    @property
    def values(self) -> str:
        """Its possible values, in words: a range, choices, or the name of the type."""
        return _values(self.kind)

    @property
    def field_type(self) -> Any:
        """The type of a config's field with its values; `None` if these are objects."""
        return _field_type(self.kind)


def _field_type(kind: Any) -> Any:
    origin, inner = get_origin(kind) or kind, get_args(kind)
    if origin is Annotated:
        return _field_type(inner[0])
    if origin in (Union, types.UnionType):
        found = [_field_type(one) for one in inner if one is not type(None)]
        if found == [float, str]:
            return NUMBER_OR_WORD
        return found[0] | None if len(found) == 1 and found[0] is not None else None
    if origin in (tuple, list, collections.abc.Sequence):
        return list[_field_type(inner[0])]  # type: ignore[misc]  # a value
    if origin in (dict, collections.abc.Mapping):
        return MAPPING
    return {bool: bool, int: int, float: float, str: str, Literal: str}.get(origin)


def _values(kind: Any) -> str:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return f"{_values(inner[0])} {inner[1]}"
    if origin in (Union, types.UnionType):
        found = dict.fromkeys(_values(one) for one in inner if one is not type(None))
        return "name or mapping" if "name or mapping" in found else " or ".join(found)
    if origin is Literal:
        return ", ".join(map(str, inner))
    if origin in (tuple, list, collections.abc.Sequence):
        return f"list of {_values(inner[0]).replace('number', 'numbers', 1)}"
    if (origin or kind) in (dict, collections.abc.Mapping):
        return "mapping"
    return {bool: "true or false", int: "whole number", float: "number", str: "text"}.get(kind, "name or mapping")


def options_of(factory: Callable[..., Any]) -> dict[str, Option]:
    """Returns the options of a function or a class by name, in the order of its signature."""
    try:
        kinds = types_of(factory)
    except NameError:
        kinds = {}
    texts: dict[str, str] = {}
    for docstring in getattr(factory, "documented", (inspect.getdoc(factory) or "",)):
        texts = {**arguments_in(docstring), **texts}
    return {
        one.name: Option(
            name=one.name, kind=kinds.get(one.name, Any), default=one.default, text=texts.get(one.name, "")
        )
        for one in inspect.signature(factory).parameters.values()
    }


def with_fields_of(*parts: type, declare: Callable[[Option], tuple[Any, Any]], prefix: str = "") -> Callable[[C], C]:
    """Class decorator below `@dataclass`: each option of these dataclasses is a field, as `part_of` reads it.

    Args:
        declare: returns the type and the default of the field of an option.
        prefix: of the names of the fields.
    """

    def decorate(owner: C) -> C:
        kinds = inspect.get_annotations(owner)
        for option in (options_of(part)[name] for part in parts for name in _option_names(part)):
            kinds[prefix + option.name], default = declare(option)
            setattr(owner, prefix + option.name, default)
        owner.__annotations__ = kinds
        return owner

    return decorate


def part_of(kind: Callable[..., R], settings: Any, prefix: str = "", **others: Any) -> R:
    """Returns the instance of a dataclass whose options are attributes of `settings`, with this prefix.

    Args:
        **others: the fields that are no options.
    """
    return kind(**{name: getattr(settings, prefix + name) for name in _option_names(kind)}, **others)


def _option_names(kind: Any) -> list[str]:
    """The fields of a dataclass that are options (see `filled_by_factory`)."""
    return [field.name for field in dataclasses.fields(kind) if not field.metadata.get("bound")]


def first_sentence(text: str) -> str:
    """Returns the first sentence of an entry of a docstring, as plain text without the full stop."""
    sentence = re.split(r"(?<=\.) (?=[A-Z])", text.replace("`", ""))[0].rstrip(".")
    return f"{sentence[:1].upper()}{sentence[1:]}"


def arguments_in(docstring: str) -> dict[str, str]:
    """Returns the entry of each argument in the section `Args` of a docstring, on one line each."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", inspect.cleandoc(docstring), re.MULTILINE | re.DOTALL)
    texts: dict[str, str] = {}
    for entry in re.split(r"\n(?= {4}\S)", "\n" + section[1].rstrip() if section else ""):
        names, colon, text = re.sub(r"\s+", " ", entry).strip().partition(":")
        if colon:
            texts |= {name.strip(" *"): text.strip() for name in names.split(",")}
    return texts
