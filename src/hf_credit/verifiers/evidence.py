"""Agreement of the documents that an answer cites with those that support it."""

from __future__ import annotations

from collections.abc import Collection, Hashable


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
