"""Overlap of two texts: the F1 of their tokens (paper T3, Appendix C.3: SituationPuzzles)."""

from __future__ import annotations

from collections import Counter
from typing import Literal

MAX_TEXT = 100_000
"""Maximum characters of a prediction; a longer one scores 0."""


def token_f1(prediction: str, truth: str, level: Literal["word", "character"] = "word") -> float:
    """Returns the F1 score of a prediction's tokens.

    `P = |common| / |prediction|`, `R = |common| / |truth|`, `F1 = 2 P R / (P + R)`, over multisets. Case and
    punctuation count. 0 without common tokens, empty texts included.

    Args:
        prediction: the predicted text.
        truth: the true text.
        level: `"word"` splits at white space; `"character"` takes all characters, white space included.

    Raises:
        ValueError: `level` is unknown.
    """
    if level not in ("word", "character"):
        raise ValueError(f"level must be 'word' or 'character', got {level!r}; pick one.")
    if len(prediction) > MAX_TEXT:
        return 0.0
    predicted, true = (Counter(text.split() if level == "word" else text) for text in (prediction, truth))
    common = (predicted & true).total()
    # 2PR / (P + R) without the rounding of two quotients, so that equal texts give exactly 1.
    return 2 * common / (predicted.total() + true.total()) if common else 0.0
