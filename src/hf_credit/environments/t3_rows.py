"""Converts rows of the datasets of paper T3's authors, with the column `controller`, into rows of our environments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from hf_credit.environments.circuit_decoding import MAX_INPUTS, truth_table
from hf_credit.validators import whole_number


def circuit_task(row: Mapping[str, Any]) -> dict[str, Any]:
    """The task row of CircuitDecoding: for each circuit, the candidate with its truth table.

    Raises:
        ValueError: a key is missing, a formula cannot be read, or a circuit equals no candidate.
    """
    controller = _controller(row, "circuits", "candidates", "num_inputs")
    inputs = whole_number("num_inputs", controller["num_inputs"], 1, MAX_INPUTS)
    candidates = list(controller["candidates"])
    tables = [truth_table(formula, inputs) for formula in candidates]
    hidden = []
    for formula in controller["circuits"]:
        table = truth_table(formula, inputs)
        if table not in tables:
            raise ValueError(f"a circuit must equal one of the candidates, got {formula!r}; leave the row out.")
        hidden.append(tables.index(table) + 1)
    return {"inputs": inputs, "candidates": candidates, "hidden": hidden}


def preference_task(row: Mapping[str, Any]) -> dict[str, Any]:
    """The task row of PreferenceEstimation.

    Raises:
        ValueError: a key is missing, or a number is not in [0, 1] with at most two decimals.
    """
    controller = _controller(row, "user_preference_function", "seen_movies_names", "seen_movies_attribute_scores")
    weights, names, scores = controller.values()
    levels = _levels([weights, *scores])
    scores = [_whole(vector, levels) for vector in scores]
    return {"levels": levels, "weights": _whole(weights, levels), "names": list(names), "scores": scores}


def recommendation_task(row: Mapping[str, Any]) -> dict[str, Any]:
    """The task row of MovieRecommendation.

    Raises:
        ValueError: as in `preference_task`.
    """
    names, scores = _controller(row, "unseen_movies_names", "unseen_movies_attribute_scores").values()
    task = preference_task(row)
    levels = max(task["levels"], _levels(scores))
    scale = levels // task["levels"]
    return {
        "levels": levels,
        "weights": [scale * value for value in task["weights"]],
        "names": task["names"],
        "scores": [[scale * value for value in vector] for vector in task["scores"]],
        "unseen_names": list(names),
        "unseen_scores": [_whole(vector, levels) for vector in scores],
    }


def _controller(row: Mapping[str, Any], *needed: str) -> dict[str, Any]:
    given = row.get("controller")
    controller: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    if missing := [key for key in needed if key not in controller]:
        raise ValueError(
            f"a row's controller must have {', '.join(needed)}, got it without {', '.join(missing)}; add them."
        )
    return {key: _plain(controller[key]) for key in needed}


def _plain(value: Any) -> Any:
    """`value` with numpy arrays as lists; rows read from parquet contain such arrays."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _levels(vectors: Iterable[Iterable[Any]]) -> int:
    """10 if all numbers are multiples of a tenth, else 100."""
    return 10 if all(10 * _hundredths(value) % 100 == 0 for vector in vectors for value in vector) else 100


def _whole(values: Iterable[Any], levels: int) -> list[int]:
    return [_hundredths(value) * levels // 100 for value in values]


def _hundredths(value: Any) -> int:
    """A number in units of 1/100, by its shortest decimal: the float 0.1 is exactly 10."""
    try:
        hundredths = 100 * Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        hundredths = Fraction(-1)
    if hundredths.denominator != 1 or not 0 <= hundredths <= 100:
        raise ValueError(f"numbers must be in [0, 1] with at most two decimals, got {value!r}; leave the row out.")
    return int(hundredths)
