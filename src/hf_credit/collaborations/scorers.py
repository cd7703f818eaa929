"""Scorers of finished collaborations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from numbers import Real
from typing import Any

from hf_credit.trust import imported

Scorer = Callable[..., float]
"""A function of a task row, which has the gold answer or the tests, and a text; returns the text's score in [0, 1].

A scorer with a parameter `transcript` also receives all outputs, as `transcript=((event, output), ...)`.
"""


def resolve_scorer(scorer: Scorer | str) -> Scorer:
    """Returns a scorer, from itself or from its `"package.module:function"`, as in a recipe.

    Python imports an installed module; nothing is downloaded. The import runs its code with all rights of the program,
    so name only code that you trust.

    Raises:
        ValueError: the name cannot be imported, or the object is not a function of a task and a text.
    """
    function: Any = scorer
    if isinstance(scorer, str):
        try:
            function = imported(scorer)
        except (ImportError, AttributeError) as error:
            raise ValueError(
                f"a scorer must be importable as 'package.module:function', got {scorer!r} ({error}); correct the "
                "name or install the package."
            ) from error
    try:
        inspect.signature(function).bind({}, "", **({"transcript": ()} if reads_transcript(function) else {}))
    except TypeError as error:
        raise ValueError(
            f"a scorer must be a function of a task and a text, got {scorer!r} ({error}); pass score(task, text), or "
            "score(task, text, transcript)."
        ) from error
    except ValueError:  # some C functions have no signature
        pass
    return function


def reads_transcript(scorer: Any) -> bool:
    """Returns whether a scorer has a parameter `transcript`."""
    try:
        return "transcript" in inspect.signature(scorer).parameters
    except (TypeError, ValueError):
        return False


def check_score(score: Any, scorer: Any) -> float:
    """Returns the score as a float.

    Raises:
        ValueError: the score is not a number in [0, 1].
    """
    if not (isinstance(score, Real) and 0 <= float(score) <= 1):
        name = getattr(scorer, "__qualname__", type(scorer).__name__)
        raise ValueError(
            f"a score must be a number in [0, 1], got {repr(score)[:100]} from {name}; scale it or correct the "
            f"scorer, which returned the type {type(score).__name__}."
        )
    return float(score)
