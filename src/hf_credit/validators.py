"""Checks of settings, each with an error of one sentence."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any, TypeVar

from hf_credit.registry import did_you_mean

T = TypeVar("T")


def shown(value: Any) -> str:
    """Returns a value for an error: as in code, and of at most 200 characters."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message, at most 1000 characters; its type if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:1000]


def whole_number(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Returns `value` if it is a whole number in a range.

    Args:
        name: of the setting.
        value: to check.
        least, most: inclusive ends of the range; `None` for no end.

    Raises:
        ValueError: it is not; a truth value, a text and NaN are no whole numbers.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if least is not None and most is not None and not (whole and least <= value <= most):
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {shown(value)}; correct it.")
    if not whole:
        raise ValueError(f"{name} must be a whole number, got {shown(value)}; correct it.")
    if most is not None and value > most:
        raise ValueError(f"{name} must be at most {most}, got {value}; lower it.")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}; raise it.")
    return int(value)


def finite_number(
    name: str,
    value: Any,
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
    below: float | None = None,
) -> float:
    """Returns `value` if it is a finite number in a range.

    Args:
        name: of the setting.
        value: to check.
        least, above: the lower end of the range, inclusive or exclusive; `None` for no end.
        most, below: the upper end, inclusive or exclusive; `None` for no end.

    Raises:
        ValueError: it is not; a truth value, a text, NaN and infinity are no finite numbers.
    """
    if not isinstance(value, Real) or isinstance(value, bool) or not abs(value) <= sys.float_info.max:  # type: ignore[operator]
        raise ValueError(f"{name} must be a finite number, got {shown(value)}; correct it.")
    number = float(value)
    if least is not None and most is not None and not least <= number <= most:
        raise ValueError(f"{name} must be in [{least}, {most}], got {value}; correct it.")
    if below is not None and not number < below:
        start = f"in ({above}, " if above is not None else f"in [{least}, " if least is not None else ""
        raise ValueError(f"{name} must be {f'{start}{below})' if start else f'below {below}'}, got {value}; lower it.")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most}, got {value}; lower it.")
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, got {value}; raise it.")
    if above is not None and number <= above:
        raise ValueError(f"{name} must be above {above}, got {value}; raise it.")
    return number


def finite_numbers(name: str, values: Sequence[Any], least: float | None = None) -> list[float]:
    """Returns `values` if there is at least one and each is a `finite_number` of at least `least`.

    Raises:
        ValueError: there is none, or one is not such a number.
    """
    if not len(values):
        raise ValueError(f"{name} needs at least one number, got none; give one.")
    return [finite_number(name, value, least) for value in values]


def one_of(name: str, value: Any, known: Iterable[T]) -> T:
    """Returns the known value that equals `value`.

    Args:
        name: of the setting.
        value: to check.
        known: the possible values.

    Raises:
        ValueError: no known value equals it; the error lists them.
    """
    known = tuple(known)
    if value not in known:
        remedy = did_you_mean(str(value), map(str, known)) or "pick one."
        raise ValueError(f"{name} must be one of {', '.join(map(str, known))}, got {shown(value)}; {remedy}")
    return known[known.index(value)]


def is_loopback(host: str) -> bool:
    """Returns whether the host of a URL is this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
