"""Interventions on steps of `evidence` (paper CVT-RL, section 3.2)."""

from __future__ import annotations

import random

from hf_credit.environments.actions import tag
from hf_credit.environments.evidence import ENDS, TOOLS, Evidence, EvidenceState, legal_actions, misreported, parsed
from hf_credit.oracles.auditing import Proposal

DELETION, PARAPHRASE, SUBSTITUTION, PERTURBATION = "deletion", "paraphrase", "substitution", "perturbation"

_PHRASES = ("So I {verb}: {action}", "Next: {action}", "Now {verb} it is. {action}", "Let me {verb} then. {action}")


class EvidenceInterventions:
    """Four families; the state before a step and its action decide which ones apply.

    - `deletion` replaces any other action by an empty thought, which uses the turn.
    - `paraphrase` repeats any action in other words. The state after it is the same, so its effect is 0.
    - `substitution` replaces the document of `read` or `final`, uniformly. A document cannot be read twice.
    - `perturbation` reports the opposite of what the tool found, for `read` and `verify`.
    """

    name = "evidence"
    environment_type = Evidence
    families: tuple[str, ...] = (DELETION, PARAPHRASE, SUBSTITUTION, PERTURBATION)

    def applies(self, state: EvidenceState, action: str, family: str) -> bool:
        """Returns whether a family has a replacement for an action; none has one for an illegal action."""
        if action not in legal_actions(state):
            return False
        verb, _ = parsed(action)
        match family:
            case "deletion":
                return verb != "think"
            case "substitution":
                others = (other for other in legal_actions(state) if parsed(other)[0] == verb and other != action)
                return verb in ("read", "final") and any(others)
            case "perturbation":
                return verb in ("read", "verify")
            case _:
                return True

    def propose(self, state: EvidenceState, action: str, family: str, draws: random.Random) -> Proposal:
        return draws.choice(self.proposals(state, action, family))[1]

    def proposals(self, state: EvidenceState, action: str, family: str) -> tuple[tuple[float, Proposal], ...]:
        verb, number = parsed(action)
        match family:
            case "deletion":
                made = [Proposal(action="think")]
            case "substitution":
                numbers = range(1, len(state.keys) + 1)
                made = [Proposal(action=f"{verb} {other}") for other in numbers if other != number]
            case "perturbation":
                made = [Proposal(action=action, state=misreported(state, action))]
            case _:
                texts = (phrase.format(verb=verb, action=tag(action)) for phrase in _PHRASES)
                made = [Proposal(action=action, text=text) for text in texts]
        return tuple((1 / len(made), proposal) for proposal in made)

    def evidence(self, state: EvidenceState) -> str:
        """Returns the names of documents and tools, and a line for each document that was read."""
        documents = range(1, len(state.keys) + 1)
        names = " ".join(map(str, documents))
        lines = [f"documents {names}", f"tools think {' '.join((*TOOLS, *ENDS))}"]
        for number in documents:
            if read := state.reads[number - 1]:
                check, value = state.checks[number - 1], state.values[number - 1]
                lines.append(f"document {number} {read} key {state.key} value {value} {check}".rstrip())
        return "\n".join(lines)
