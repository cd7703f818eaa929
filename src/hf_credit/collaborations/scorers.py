"""Who says what a finished collaboration is worth."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from numbers import Real
from typing import Any

from hf_credit.registry import CODE

Scorer = Callable[..., float]
"""The score in [0, 1] of a text as the answer to a task row, which holds the gold answer or the tests.

One with a parameter called `transcript` is also given all that was said, as `transcript=((event, output), ...)`.
"""


def resolve_scorer(scorer: Scorer | str) -> Scorer:
    """A scorer, or the one that `"package.module:function"` names, as a recipe has to.

    The module is imported from where Python finds modules; nothing is downloaded. Importing runs its code with all
    rights of the program, so name only code that you trust.

    Raises:
        ValueError: the name cannot be imported, or what it names cannot be called with a task and a text.
    """
    function: Any = scorer
    if isinstance(scorer, str):
        module, _, attribute = scorer.partition(":")
        try:
            if not CODE.fullmatch(scorer):
                raise ImportError("it is no module and function on the two sides of a colon")
            function = getattr(importlib.import_module(module), attribute)
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
    except ValueError:  # some functions of C have no signature that Python knows
        pass
    checked: Scorer = function
    return checked


def reads_transcript(scorer: Any) -> bool:
    """Whether a scorer has a parameter called `transcript`, hence wants all that was said."""
    try:
        return "transcript" in inspect.signature(scorer).parameters
    except (TypeError, ValueError):
        return False


def check_score(score: Any, scorer: Any) -> float:
    """The score as a float.

    Raises:
        ValueError: it is no number in [0, 1].
    """
    if not (isinstance(score, Real) and 0 <= float(score) <= 1):
        name = getattr(scorer, "__qualname__", type(scorer).__name__)
        raise ValueError(
            f"a score must be a number in [0, 1], got {repr(score)[:100]} from {name}; scale it or mend the scorer."
        )
    return float(score)
