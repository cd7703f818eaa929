"""Settings that somebody wrote: what is out of range is refused in one sentence where it was set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any


def whole_number(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """`value`, if it is a whole number in a range.

    Args:
        name: of the setting.
        value: what was given.
        least, most: the range, both included; without an end where one is `None`.

    Raises:
        ValueError: it is not; a truth value, a text and NaN are no whole numbers.
    """
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if least is not None and most is not None and not (whole and least <= value <= most):
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}; correct it.")
    if not whole:
        raise ValueError(f"{name} must be a whole number, got {value!r}; correct it.")
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
    """`value`, if it is a finite number in a range.

    Args:
        name: of the setting.
        value: what was given.
        least, above: the lower end of the range, which `least` is in and `above` is not; neither where there is none.
        most, below: the upper end, which `most` is in and `below` is not; neither where there is none.

    Raises:
        ValueError: it is not; a truth value, a text, NaN and infinity are no finite numbers.
    """
    if not isinstance(value, Real) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError(f"{name} must be a finite number, got {value!r}; correct it.")
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


def finite_numbers(
    name: str, values: Sequence[Any], least: float | None = None, above: float | None = None, most: float | None = None
) -> list[float]:
    """`values`, if there is one at least and each is a `finite_number` in a range, as which the arguments are meant.

    Raises:
        ValueError: there is none, or one is no such number.
    """
    if not len(values):
        raise ValueError(f"{name} needs at least one number, got none; give one.")
    return [finite_number(name, value, least, above, most) for value in values]


def one_of(name: str, value: Any, known: Iterable[str]) -> str:
    """`value`, if it is one of the names that there are.

    Args:
        name: of the setting.
        value: what was given.
        known: the names.

    Raises:
        ValueError: it is not, in a sentence that lists them.
    """
    known = tuple(known)
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, got {value!r}; pick one.")
    return str(value)
