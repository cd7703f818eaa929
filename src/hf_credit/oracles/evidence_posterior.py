"""Which document of `evidence` is the genuine one, as far as reports say."""

from __future__ import annotations

import math

from hf_credit.environments.evidence import FORGED, GENUINE, OFF, ON, EvidenceState, on_key


def genuine_shares(state: EvidenceState) -> tuple[float, ...]:
    """For each document, how likely it is the genuine one, given the reports of reader and verifier and nothing else.

    Every order of the documents is as likely. How many are on key is known from the rules; metadata, stamps, a purge
    and the target say nothing. Where reports contradict each other, as after a tool was made to lie, every document
    that no report speaks against is as likely, and all of them if none is left.
    """
    documents = range(len(state.reads))
    forged = sum(on_key(state, number + 1) for number in documents) - 1
    weights = [_ways(state, candidate, forged) for candidate in documents]
    if not sum(weights):
        weights = [int(state.reads[n] != OFF and state.checks[n] != FORGED) for n in documents]
    if not sum(weights):
        weights = [1 for _ in documents]
    return tuple(weight / sum(weights) for weight in weights)


def uncertainty(state: EvidenceState) -> float:
    """The entropy of `genuine_shares`, as a share of its maximum log(documents): 1 knows nothing, 0 knows all."""
    shares = genuine_shares(state)
    # A sum of logarithms may fall a rounding error outside.
    return min(max(-sum(p * math.log(p) for p in shares if p) / math.log(len(shares)), 0.0), 1.0)


def _ways(state: EvidenceState, candidate: int, forged: int) -> int:
    """In how many ways the others can be forged or off key, if `candidate` is genuine; 0 if a report rules it out."""
    if state.reads[candidate] == OFF or state.checks[candidate] == FORGED:
        return 0
    others = [number for number in range(len(state.reads)) if number != candidate]
    if any(state.checks[number] == GENUINE for number in others):
        return 0
    known = sum(state.reads[number] == ON for number in others)
    unread = sum(not state.reads[number] for number in others)
    return math.comb(unread, forged - known) if known <= forged else 0
