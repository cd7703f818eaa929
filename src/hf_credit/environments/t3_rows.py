"""The authors' rows of paper T3, as task rows of our environments.

Their released data sets have the columns `controller`, what the world is, and `answer`, what an answer is scored by;
CircuitDecoding, PreferenceEstimation and MovieRecommendation are there. A row of either of the latter two has both
seen and unseen movies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from hf_credit.environments.formulas import MAX_INPUTS, truth_table
from hf_credit.validators import whole_number

LEVELS = 100
"""Numbers of their rows become multiples of 1/100, unless they are multiples of a tenth."""


def circuit_task(row: Mapping[str, Any]) -> dict[str, Any]:
    """The task row of CircuitDecoding: which candidates have the truth tables of their circuits.

    Raises:
        ValueError: the row lacks something, a formula cannot be read, or a circuit is none of the candidates.
    """
    controller = _part(row, "controller", ("circuits", "candidates", "num_inputs"))
    inputs = whole_number("num_inputs", _plain(controller["num_inputs"]), 1, MAX_INPUTS)
    candidates, circuits = list(_plain(controller["candidates"])), list(_plain(controller["circuits"]))
    tables = [truth_table(formula, inputs) for formula in candidates]
    hidden = []
    for formula in circuits:
        table = truth_table(formula, inputs)
        if table not in tables:
            raise ValueError(f"a circuit must agree with one of the candidates, got {formula!r}; leave the row out.")
        hidden.append(tables.index(table) + 1)
    return {"inputs": inputs, "candidates": candidates, "hidden": hidden}


def preference_task(row: Mapping[str, Any]) -> dict[str, Any]:
    """The task row of PreferenceEstimation.

    Raises:
        ValueError: the row lacks something, or a number is not in [0, 1] with at most two decimals.
    """
    controller = _part(
        row, "controller", ("user_preference_function", "seen_movies_names", "seen_movies_attribute_scores")
    )
    weights = _plain(controller["user_preference_function"])
    scores = _plain(controller["seen_movies_attribute_scores"])
    levels = _levels([weights, *scores])
    return {
        "levels": levels,
        "weights": _whole(weights, levels),
        "names": list(_plain(controller["seen_movies_names"])),
        "scores": [_whole(one, levels) for one in scores],
    }


def recommendation_task(row: Mapping[str, Any]) -> dict[str, Any]:
    """The task row of MovieRecommendation.

    Raises:
        ValueError: as for `preference_task`.
    """
    controller = _part(row, "controller", ("unseen_movies_names", "unseen_movies_attribute_scores"))
    task = preference_task(row)
    scores = _plain(controller["unseen_movies_attribute_scores"])
    levels = max(task["levels"], _levels(scores))
    times = levels // task["levels"]
    return {
        "levels": levels,
        "weights": [times * value for value in task["weights"]],
        "names": task["names"],
        "scores": [[times * value for value in one] for one in task["scores"]],
        "unseen_names": list(_plain(controller["unseen_movies_names"])),
        "unseen_scores": [_whole(one, levels) for one in scores],
    }


def _part(row: Mapping[str, Any], name: str, needed: Iterable[str]) -> Mapping[str, Any]:
    part = row.get(name)
    missing = [key for key in needed if not isinstance(part, Mapping) or key not in part]
    if not isinstance(part, Mapping) or missing:
        raise ValueError(
            f"a row's {name} must have {', '.join(needed)}, got it without {', '.join(missing)}; mend it."
        )
    return part


def _plain(value: Any) -> Any:
    """An array of numpy as a list, as rows read from parquet hold them."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _levels(vectors: Iterable[Iterable[Any]]) -> int:
    """10 where all numbers are tenths, else 100."""
    return 10 if all((10 * _exact(value)).denominator == 1 for one in vectors for value in one) else LEVELS


def _whole(values: Iterable[Any], levels: int) -> list[int]:
    found = [levels * _exact(value) for value in values]
    if any(value.denominator != 1 or not 0 <= value <= levels for value in found):
        raise ValueError(
            f"numbers must be in [0, 1] with at most two decimals, got {list(values)}; leave the row out."
        )
    return [int(value) for value in found]


def _exact(value: Any) -> Fraction:
    """A decimal as it is written: 0.1 is a tenth, though no float is."""
    try:
        return Fraction(str(value)).limit_denominator(10**9)
    except (ValueError, ZeroDivisionError):
        raise ValueError(
            f"numbers must be in [0, 1] with at most two decimals, got {value!r}; mend the row."
        ) from None
