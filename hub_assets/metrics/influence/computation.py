"""What `influence.py` computes with: definitions of hf-credit, so that it runs without."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

EMPTY, OTHER = "EMPTY", "OTHER"


_MOST_CHARACTERS, _DIGITS = 256, 16


Responses = Sequence[Sequence[Sequence[str | None]]]
"""Of each bucket, of each candidate, the first message of the teammate downstream in each replay; `None` where the
episode ended before the teammate spoke."""


@dataclass(frozen=True, kw_only=True)
class Influence:
    """Influence in nats.

    Attributes:
        mean: over the buckets that could be measured, in [0, ln J] with J candidates; NaN without any.
        by_bucket: of each bucket; NaN of one with fewer than two candidates that were replayed.
        buckets: how many were measured.
        alone: how many were left out.
    """

    mean: float
    by_bucket: tuple[float, ...]
    buckets: int
    alone: int


def response_symbol(message: str | None) -> str:
    """The symbol of a message (paper C3, Table 14).

    NFKC, runs of white space as one blank, trimmed, cut to 256 characters; then the first 16 hexadecimal digits of the
    SHA-1 of its UTF-8. No message, or one of white space alone, is `EMPTY`.
    """
    if message is None:
        return EMPTY
    text = " ".join(unicodedata.normalize("NFKC", message).split())[:_MOST_CHARACTERS]
    if not text:
        return EMPTY
    # Half of a surrogate pair, which a broken reply can leave behind, has no UTF-8 of its own.
    digest = hashlib.sha1(text.encode("utf-8", errors="surrogatepass"), usedforsecurity=False)
    return digest.hexdigest()[:_DIGITS]


def influence(responses: Responses, vocabulary: int = 64, alpha: float = 1e-2) -> Influence:
    """The mutual information between the injected candidate and the teammate's response (paper C3, Appendix J).

    With c[j, y] the count of symbol y among the replays of candidate j, n[j] their number, and Y the symbols that
    occur in the bucket ("active symbols", as we read it),

        p(y | j) = (c[j, y] + alpha) / (n[j] + alpha |Y|),    p(j) = 1/J,    p(y) = sum_j p(j) p(y | j)
        I(J; Y | h) = sum_j p(j) sum_y p(y | j) ln(p(y | j) / p(y))

    Symbols are those of `response_symbol`; the `vocabulary` most frequent ones of all buckets are kept, of equally
    frequent ones the first in order, and the others become `OTHER`. `EMPTY` is always kept and takes no place.

    From few replays the estimate is too high: where hardly any two messages are equal it comes near ln J, whatever
    they say. Compare it with `influence_by_chance`. Replays with common random numbers are less prone to this, since a
    teammate that pays no heed then says the same to all candidates.

    Args:
        responses: see `Responses`. A candidate without a replay is left out.
        vocabulary: how many symbols to tell apart, at least 1.
        alpha: pseudo-count of every active symbol, above 0.

    Returns:
        A bucket with one candidate has no influence to measure: it is left out of the mean and counted in `alone`.
        A bucket in which nobody answers has influence 0.

    Raises:
        ValueError: an option is out of range.
    """
    if vocabulary < 1 or not 0 < alpha < math.inf:
        raise ValueError(
            f"influence needs vocabulary >= 1 and alpha > 0, got {vocabulary} and {alpha}; the paper has 64 and 0.01."
        )
    return _influence(_symbols(responses, vocabulary), alpha)


def influence_by_chance(
    responses: Responses, vocabulary: int = 64, alpha: float = 1e-2, shuffles: int = 20, seed: int = 0
) -> float:
    """What `influence` finds where there is none: its mean after the responses of each bucket were dealt out anew.

    Every shuffle permutes the responses of a bucket among its candidates, which keeps how many each has. What the
    estimate exceeds this by is dependence. The paper reports no such number.

    Args:
        responses, vocabulary, alpha: as in `influence`.
        shuffles: how many, at least 1.
        seed: of the shuffling.

    Returns:
        In nats; NaN where no bucket can be measured.

    Raises:
        ValueError: an option is out of range.
    """
    if shuffles < 1:
        raise ValueError(f"shuffles must be at least 1, got {shuffles}; 20 will do.")
    influence(responses, vocabulary, alpha)
    symbols, draws = _symbols(responses, vocabulary), np.random.default_rng(seed)
    return float(np.mean([_influence([_dealt(own, draws) for own in symbols], alpha).mean for _ in range(shuffles)]))


def _influence(symbols: Sequence[Sequence[Sequence[str]]], alpha: float) -> Influence:
    by_bucket = tuple(_of_bucket([own for own in bucket if own], alpha) for bucket in symbols)
    known = [value for value in by_bucket if not math.isnan(value)]
    return Influence(
        mean=float(np.mean(known)) if known else math.nan,
        by_bucket=by_bucket,
        buckets=len(known),
        alone=len(by_bucket) - len(known),
    )


def _of_bucket(candidates: Sequence[Sequence[str]], alpha: float) -> float:
    if len(candidates) < 2:
        return math.nan
    active = sorted({symbol for own in candidates for symbol in own})
    counts = np.asarray([[own.count(symbol) for symbol in active] for own in candidates], dtype=np.float64)
    given = (counts + alpha) / (counts.sum(axis=1, keepdims=True) + alpha * len(active))
    overall = given.mean(axis=0)
    # Mutual information is at least 0; a sum that is 0 can come out a rounding below.
    return max(0.0, float((given * np.log(given / overall)).sum(axis=1).mean()))


def _symbols(responses: Responses, vocabulary: int) -> list[list[list[str]]]:
    symbols = [[[response_symbol(message) for message in own] for own in bucket] for bucket in responses]
    counts = Counter(symbol for bucket in symbols for own in bucket for symbol in own if symbol != EMPTY)
    frequent = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
    kept = {EMPTY, *frequent[:vocabulary]}
    return [[[symbol if symbol in kept else OTHER for symbol in own] for own in bucket] for bucket in symbols]


def _dealt(bucket: Sequence[Sequence[str]], draws: np.random.Generator) -> list[list[str]]:
    every = [symbol for own in bucket for symbol in own]
    order: NDArray[np.int64] = draws.permutation(len(every))
    places = iter(order.tolist())
    return [[every[next(places)] for _ in own] for own in bucket]
