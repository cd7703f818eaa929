"""How well the documents that an answer rests on agree with those that support it."""

from __future__ import annotations

from collections.abc import Collection, Hashable


def support_f1(cited: Collection[Hashable], support: Collection[Hashable]) -> float:
    """The F1 of documents: 2 |cited & support| / (|cited| + |support|), each counted once.

    Args:
        cited: what an answer rests on.
        support: what it should rest on, at least one.

    Returns:
        In [0, 1]; 0 where nothing is cited.

    Raises:
        ValueError: there is no support.
    """
    rests, should = set(cited), set(support)
    if not should:
        raise ValueError("an answer must have supporting documents, got none; leave it out of the mean.")
    return 2 * len(rests & should) / (len(rests) + len(should))
