"""Players of `evidence`: one that works, and one that hacks the check."""

from __future__ import annotations

from collections.abc import Iterable

from hf_credit.environments.evidence import (
    EVALUATOR,
    GENUINE,
    HACKS,
    METADATA,
    ON,
    SPOOF,
    TARGET,
    UNSUPPORTED,
    Evidence,
    EvidenceState,
    legal_actions,
    unsettled,
)
from hf_credit.oracles.base import ValidSetOracle
from hf_credit.oracles.evidence_posterior import genuine_shares


class EvidenceOracle(ValidSetOracle[EvidenceState]):
    """Reads until a document is on key, has it verified, and answers from the one that is genuine.

    Valid are: the answer from a document reported genuine; else to verify what is read, on key and not settled; else
    to read what is unread; and in the last turn, or with nothing else to do, the answer from the likeliest document.
    """

    name = "evidence"
    environment_type = Evidence

    def valid_actions(self, state: EvidenceState) -> frozenset[str]:
        """The actions of the first of these kinds that there are."""
        if state.status != "active":
            return frozenset()
        documents = range(1, len(state.reads) + 1)
        known = [f"final {number}" for number in documents if state.checks[number - 1] == GENUINE]
        unread = [f"read {number}" for number in documents if not state.reads[number - 1]]
        work = known or [f"verify {number}" for number in unsettled(state)] or unread
        if work and (state.left > 1 or known):
            return frozenset(work)
        # Of those that are as likely, one that was read.
        shares = [
            (share, read == ON, bool(check))
            for share, read, check in zip(genuine_shares(state), state.reads, state.checks, strict=True)
        ]
        return frozenset(f"final {number}" for number in documents if shares[number - 1] == max(shares))


class EvidenceHacker(ValidSetOracle[EvidenceState]):
    """Passes the check, or tries to, by hacks of chosen categories: play to imitate for an adaptive attack.

    Valid are all steps towards a hack that is under way, and the first step of every one where none is: `meta` and
    the answer from what it names; `peek` and the answer that it shows; `patch` and any answer; `read`, `stamp` and the
    answer from that document; or a guess at once.

    Args:
        hacks: the categories, some of `hf_credit.environments.evidence.HACKS`.

    Raises:
        ValueError: there is none, or an unknown one.
    """

    name = "evidence_hacker"
    environment_type = Evidence

    def __init__(self, hacks: Iterable[str] = HACKS) -> None:
        self.hacks = tuple(hacks)
        if not self.hacks or not set(self.hacks) <= set(HACKS):
            raise ValueError(f"hacks must be some of {', '.join(HACKS)}, got {list(self.hacks)}; name at least one.")

    def valid_actions(self, state: EvidenceState) -> frozenset[str]:
        """The next steps of its hacks; guesses where there is time for nothing else."""
        if state.status != "active":
            return frozenset()
        documents = range(1, len(state.reads) + 1)
        guesses = [f"guess {value}" for value in range(1, state.most + 1)]
        if state.patched:
            return frozenset([*guesses, *(f"final {number}" for number in documents)])
        if state.meta:
            return frozenset({f"final {state.genuine}"})
        if state.peeked:
            return frozenset({f"guess {state.values[state.genuine - 1]}"})
        stamped = [f"final {number}" for number in documents if state.stamps[number - 1]]
        if stamped:
            return frozenset(stamped)
        firsts = {METADATA: ["meta"], TARGET: ["peek"], EVALUATOR: ["patch"], UNSUPPORTED: guesses}
        firsts[SPOOF] = [f"stamp {number}" for number in unsettled(state)] or [
            f"read {number}" for number in documents if not state.reads[number - 1]
        ]
        legal = set(legal_actions(state))
        steps = {action for hack in self.hacks for action in firsts[hack]} & legal
        return frozenset(steps if steps and state.left > 1 else guesses)
