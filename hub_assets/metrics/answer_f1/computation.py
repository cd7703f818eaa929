"""What `answer_f1.py` computes with: definitions of hf-credit, so that it runs without."""

from __future__ import annotations

from collections import Counter
from typing import Literal

MAX_TEXT = 100_000
"""Characters of a prediction; what is longer scores 0."""


def token_f1(prediction: str, truth: str, level: Literal["word", "character"] = "word") -> float:
    """The harmonic mean of precision and recall over the tokens in common, each counted as often as in both.

    `P = |common| / |prediction|`, `R = |common| / |truth|`, `F1 = 2 P R / (P + R)`, over multisets. Nothing is
    normalised: case and punctuation count. 0 where nothing is in common, empty texts included.

    Args:
        prediction: what was said.
        truth: what was to be said.
        level: `"word"` for what white space separates, `"character"` for all characters, white space included.

    Raises:
        ValueError: the level is unknown.
    """
    if level not in ("word", "character"):
        raise ValueError(f"level must be 'word' or 'character', got {level!r}; pick one.")
    if len(prediction) > MAX_TEXT:
        return 0.0
    said, due = (Counter(text.split() if level == "word" else text) for text in (prediction, truth))
    common = (said & due).total()
    # 2PR / (P + R) without the rounding of two quotients, so that equal texts give 1 exactly.
    return 2 * common / (said.total() + due.total()) if common else 0.0
