"""Influence: mutual information between a message and the response to it (paper C3, Appendix J)."""

from __future__ import annotations

import hashlib
import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

EMPTY, OTHER = "EMPTY", "OTHER"
_MAX_CHARACTERS, _DIGITS = 256, 16

Responses = Sequence[Sequence[Sequence[str | None]]]
"""For each bucket and candidate, the first message of the teammate downstream in each replay; `None` if the episode
ended before."""


@dataclass(frozen=True, kw_only=True)
class Influence:
    """Influence in nats.

    Attributes:
        mean: the mean over measured buckets, in [0, ln J] with J candidates; NaN without one.
        by_bucket: the influence in each bucket; NaN with fewer than two replayed candidates.
        buckets: the number of measured buckets.
        alone: the number of omitted buckets.
    """

    mean: float
    by_bucket: tuple[float, ...]
    buckets: int
    alone: int


def response_symbol(message: str | None) -> str:
    """Returns the symbol of a message (paper C3, Table 14).

    The text is normalised by NFKC, runs of white space become one blank, and it is trimmed and cut to 256 characters.
    The symbol is the first 16 hexadecimal digits of the SHA-1 of its UTF-8, or `EMPTY` if no text is left.
    """
    if message is None:
        return EMPTY
    text = " ".join(unicodedata.normalize("NFKC", message).split())[:_MAX_CHARACTERS]
    if not text:
        return EMPTY
    # A broken reply can contain half of a surrogate pair, which has no UTF-8 encoding.
    digest = hashlib.sha1(text.encode("utf-8", errors="surrogatepass"), usedforsecurity=False)
    return digest.hexdigest()[:_DIGITS]


def influence(responses: Responses, vocabulary: int = 64, alpha: float = 1e-2) -> Influence:
    """Estimates the mutual information between the candidate and the teammate's response (paper C3, Appendix J).

    With c[j, y] the count of symbol y in the n[j] replays of candidate j, and Y the symbols that occur in the bucket
    (this library's reading of "active symbols"),

        p(y | j) = (c[j, y] + alpha) / (n[j] + alpha |Y|),    p(j) = 1/J,    p(y) = sum_j p(j) p(y | j)
        I(J; Y | h) = sum_j p(j) sum_y p(y | j) ln(p(y | j) / p(y))

    Symbols are those of `response_symbol`. The `vocabulary` most frequent symbols over all buckets are kept, in
    alphabetical order if equally frequent, and the others become `OTHER`. `EMPTY` is always kept and does not count.

    With few replays the estimate is too high: if almost all messages differ, it is near ln J. Compare it with
    `influence_by_chance`. Common random numbers reduce this bias, since a teammate that ignores the message then
    responds equally to all candidates. A bucket with one candidate is only counted in `alone`; one without responses
    has influence 0.

    Args:
        responses: see `Responses`. A candidate without replays is omitted.
        vocabulary: the number of distinct symbols, at least 1.
        alpha: the pseudo-count of every active symbol, above 0.

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
    """Estimates the bias of `influence`, in nats: its mean after the responses of each bucket are shuffled.

    Each shuffle permutes the responses of a bucket among its candidates and keeps the number of each. An influence
    above this value indicates dependence. It is NaN if no bucket can be measured. The paper reports no such number.

    Args:
        responses, vocabulary, alpha: as in `influence`.
        shuffles: the number of shuffles, at least 1.

    Raises:
        ValueError: an option is out of range.
    """
    if shuffles < 1:
        raise ValueError(f"shuffles must be at least 1, got {shuffles}; raise it, for example to 20.")
    influence(responses, vocabulary, alpha)
    symbols, draws = _symbols(responses, vocabulary), np.random.default_rng(seed)
    return float(
        np.mean([_influence([_shuffled(own, draws) for own in symbols], alpha).mean for _ in range(shuffles)])
    )


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
    # Rounding can make a mutual information of 0 slightly negative.
    return max(0.0, float((given * np.log(given / overall)).sum(axis=1).mean()))


def _symbols(responses: Responses, vocabulary: int) -> list[list[list[str]]]:
    symbols = [[[response_symbol(message) for message in own] for own in bucket] for bucket in responses]
    counts = Counter(symbol for bucket in symbols for own in bucket for symbol in own if symbol != EMPTY)
    frequent = sorted(counts, key=lambda symbol: (-counts[symbol], symbol))
    kept = {EMPTY, *frequent[:vocabulary]}
    return [[[symbol if symbol in kept else OTHER for symbol in own] for own in bucket] for bucket in symbols]


def _shuffled(bucket: Sequence[Sequence[str]], draws: np.random.Generator) -> list[list[str]]:
    symbols = [symbol for own in bucket for symbol in own]
    places = iter(draws.permutation(len(symbols)).tolist())
    return [[symbols[next(places)] for _ in own] for own in bucket]
