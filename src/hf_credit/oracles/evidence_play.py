"""Players of `evidence`: an honest one, and one that hacks the check."""

from __future__ import annotations

from collections.abc import Iterable

from hf_credit.environments import evidence as game
from hf_credit.environments.evidence import HACKS, UNSUPPORTED, Evidence, EvidenceState
from hf_credit.oracles.base import ValidSetOracle
from hf_credit.oracles.evidence_posterior import genuine_shares


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
        self.evade = evade
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
