"""Overlap of two texts (paper T3, Appendix C.3: SituationPuzzles), and of cited documents with those that support."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable
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


def support_f1(cited: Collection[Hashable], support: Collection[Hashable]) -> float:
    """Returns the F1 of documents, 2 |cited & support| / (|cited| + |support|), each counted once.

    Args:
        cited: the documents that an answer cites.
        support: the documents that support it, at least one.

    Returns:
        In [0, 1]; 0 if nothing is cited.

    Raises:
        ValueError: `support` is empty.
    """
    predicted, gold = set(cited), set(support)
    if not gold:
        raise ValueError("an answer must have supporting documents, got none; leave it out of the mean.")
    return 2 * len(predicted & gold) / (len(predicted) + len(gold))
