"""The posterior of the genuine document of `evidence`, given the reports."""

from __future__ import annotations

import math

from hf_credit.environments.evidence import FORGED, GENUINE, OFF, ON, EvidenceState, on_key


def genuine_shares(state: EvidenceState) -> tuple[float, ...]:
    """Returns the probability of each document to be genuine, given only the reports of the reader and the verifier.

    All orders of the documents are equally likely. The rules determine how many are on key; metadata, stamps, a purge
    and the target are no evidence. If reports contradict each other, as after a perturbation, the documents that no
    report excludes are equally likely, or all of them if none remains.
    """
    documents = range(len(state.reads))
    forged = sum(on_key(state, number + 1) for number in documents) - 1
    weights = [_arrangements(state, candidate, forged) for candidate in documents]
    if not any(weights):
        weights = [int(state.reads[n] != OFF and state.checks[n] != FORGED) for n in documents]
    if not any(weights):
        weights = [1 for _ in documents]
    return tuple(weight / sum(weights) for weight in weights)


def uncertainty(state: EvidenceState) -> float:
    """Returns the entropy of `genuine_shares` divided by its maximum log(documents): 1 if uniform, 0 if certain."""
    shares = genuine_shares(state)
    # Rounding may put the sum slightly outside of [0, 1].
    return min(max(-sum(p * math.log(p) for p in shares if p) / math.log(len(shares)), 0.0), 1.0)


def _arrangements(state: EvidenceState, candidate: int, forged: int) -> int:
    """Counts how the other documents can be forged or off key if `candidate` is genuine; 0 if a report excludes it."""
    if state.reads[candidate] == OFF or state.checks[candidate] == FORGED:
        return 0
    others = [number for number in range(len(state.reads)) if number != candidate]
    if any(state.checks[number] == GENUINE for number in others):
        return 0
    known = sum(state.reads[number] == ON for number in others)
    unread = sum(not state.reads[number] for number in others)
    return math.comb(unread, forged - known) if known <= forged else 0
