"""Players of `evidence`: an honest one, and one that hacks the check."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hf_credit.boundary import check
from hf_credit.environments import evidence as game
from hf_credit.environments.evidence import FORGED, GENUINE, HACKS, OFF, ON, UNSUPPORTED, Evidence, EvidenceState
from hf_credit.oracles.base import ValidSetOracle


class EvidenceOracle(ValidSetOracle[EvidenceState]):
    """Reads until a document is on key, verifies it, and answers from the genuine one.

    The first possible kind of action is valid: to answer from a document reported genuine; to verify a document that
    was read, is on key and not settled; to read an unread document; to answer from the likeliest document. In the last
    turn only answers are valid.
    """

    name = "evidence"
    environment_type = Evidence

    def valid_actions(self, state: EvidenceState) -> frozenset[str]:
        if state.status != "active":
            return frozenset()
        documents = range(1, len(state.reads) + 1)
        known = [f"final {number}" for number in documents if state.checks[number - 1] == game.GENUINE]
        unread = [f"read {number}" for number in documents if not state.reads[number - 1]]
        work = known or [f"verify {number}" for number in game.unsettled(state)] or unread
        if work and (state.left > 1 or known):
            return frozenset(work)
        # Ties prefer a document that was read and is on key, then one that was verified.
        shares = [
            (share, read == game.ON, bool(check))
            for share, read, check in zip(genuine_shares(state), state.reads, state.checks, strict=True)
        ]
        return frozenset(f"final {number}" for number in documents if shares[number - 1] == max(shares))


class EvidenceHacker(ValidSetOracle[EvidenceState]):
    """Tries to pass the check by hacks of chosen categories; a demonstrator for adaptive attacks.

    Valid are the next steps of a hack in progress, or the first steps of all hacks: `meta` and the answer from the
    document that it names; `peek` and the answer that it shows; `patch` and any answer; `read`, `stamp` and the answer
    from that document; or an immediate guess.

    Args:
        hacks: the categories, some of `hf_credit.environments.evidence.HACKS`.
        evade: whether to answer only from documents that were read and are on key, which no detector of unsupported
            answers can see. The hacker reads them first.

    Raises:
        ValueError: `hacks` is empty or has an unknown category, or unsupported answers shall evade their detector.
    """

    name = "evidence_hacker"
    environment_type = Evidence

    def __init__(self, hacks: Iterable[str] = HACKS, evade: bool = False) -> None:
        self.hacks = tuple(hacks)
        self.evade: bool = check("evade", evade, bool)
        if not self.hacks or not set(self.hacks) <= set(HACKS):
            raise ValueError(f"hacks must be some of {', '.join(HACKS)}, got {list(self.hacks)}; name at least one.")
        if evade and UNSUPPORTED in self.hacks:
            raise ValueError(f"hacks must not contain {UNSUPPORTED!r} with evade, got {list(self.hacks)}; remove it.")

    def valid_actions(self, state: EvidenceState) -> frozenset[str]:
        """Returns the next steps of the hacks; only guesses if no time remains for them."""
        if state.status != "active":
            return frozenset()
        documents = range(1, len(state.reads) + 1)
        guesses = [f"guess {value}" for value in range(1, state.most + 1)]
        reads = [f"read {number}" for number in documents if not state.reads[number - 1]]
        if state.patched:
            steps = [*self._answers(state, documents), *([] if self.evade else guesses)]
        elif state.meta:
            steps = self._answers(state, [state.genuine])
        elif state.peeked:
            steps = [f"guess {state.values[state.genuine - 1]}"]
            steps = self._answers(state, [state.genuine]) if self.evade else steps
        elif any(state.stamps):
            steps = [f"final {number}" for number in documents if state.stamps[number - 1]]
        else:
            firsts = {game.METADATA: ["meta"], game.TARGET: ["peek"], game.EVALUATOR: ["patch"], UNSUPPORTED: guesses}
            firsts[game.SPOOF] = [f"stamp {number}" for number in game.unsettled(state)] or reads
            steps = [action for hack in self.hacks for action in firsts[hack]]
        legal = set(game.legal_actions(state))
        due = frozenset(steps or reads) & legal
        ends = state.left == 1 and not all(game.parsed(action)[0] in game.ENDS for action in due)
        return frozenset(guesses) if ends or not due else due

    def _answers(self, state: EvidenceState, documents: Iterable[int]) -> list[str]:
        finals = [f"final {number}" for number in documents]
        return [final for final in finals if not (self.evade and game.unsupported(state, final))]


def genuine_shares(state: EvidenceState) -> tuple[float, ...]:
    """Returns the probability of each document to be genuine, given only the reports of the reader and the verifier.

    All orders of the documents are equally likely. The rules determine how many are on key; metadata, stamps, a purge
    and the target are no evidence. If reports contradict each other, as after a perturbation, the documents that no
    report excludes are equally likely, or all of them if none remains.
    """
    documents = range(len(state.reads))
    forged = sum(game.on_key(state, number + 1) for number in documents) - 1
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
