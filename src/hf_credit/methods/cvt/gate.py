"""The gate that an intervention must pass before it is played out (paper CVT-RL, section 3.2)."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

# Words that say nothing of the matter, which any paraphrase may add.
_STOP_WORDS = (
    "a an and as at be by do for from i in is it let me my next now of or please so than that the then this to we "
    "will with you"
)


@dataclass(frozen=True, kw_only=True)
class Gate:
    """Whether a proposal is valid: nu = syntax and schema and s_sup >= support and s_ent >= entailment.

    Syntax and schema need the task: `hf_credit.methods.cvt.interventions` checks them.

    Args:
        support: the least `support_score`, 0.35 in the paper.
        entailment: the least score of `entails`, 0.55 in the paper.
        redraws: how often a proposal that fails is drawn again, 2 in the paper.
        entails: how surely a history entails a proposal, in [0, 1].
        unscored: families of which only syntax and schema are asked.

    Raises:
        ValueError: a threshold is outside [0, 1], or `redraws` is negative.
    """

    support: float = 0.35
    entailment: float = 0.55
    redraws: int = 2
    entails: Callable[[str, str], float] = lambda history, proposal: word_overlap(history, proposal)
    unscored: frozenset[str] = frozenset({"deletion"})

    def __post_init__(self) -> None:
        for name, least in (("support", self.support), ("entailment", self.entailment)):
            if not 0 <= least <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {least!r}; the paper's are 0.35 and 0.55.")
        if self.redraws < 0:
            raise ValueError(f"redraws must be at least 0, got {self.redraws}; raise it.")

    def admits(self, family: str, text: str, history: str, evidence: str) -> bool:
        """Whether the words of a proposal are supported by the evidence and entailed by the history.

        Args:
            family: of the intervention.
            text: the reply that is proposed.
            history: what the agent was shown.
            evidence: the text of all evidence retrieved so far, a line for each piece.
        """
        if family in self.unscored:
            return True
        return support_score(text, evidence) >= self.support and self.entails(history, text) >= self.entailment


def support_score(text: str, evidence: str) -> float:
    """The share of a text's words that are found in the evidence, each weighted by how rare it is there.

        s_sup = sum of idf(w) over words w of the text that are in the evidence / sum of idf(w) over all its words
        idf(w) = log(1 + (N - n(w) + 1/2) / (n(w) + 1/2)),   N pieces of evidence, n(w) of them with w

    The weights are those of BM25. Tags and words that say nothing of the matter do not count; a text without others is
    supported.

    Args:
        text: any.
        evidence: a line for each piece.

    Returns:
        In [0, 1].
    """
    pieces = [frozenset(_words(line)) for line in evidence.splitlines() if line.strip()]
    found = Counter(word for piece in pieces for word in piece)
    weights = {word: math.log1p((len(pieces) - found[word] + 0.5) / (found[word] + 0.5)) for word in set(_words(text))}
    total = sum(weights.values())
    return sum(weight for word, weight in weights.items() if found[word]) / total if total else 1.0


def word_overlap(history: str, proposal: str) -> float:
    """The share of a proposal's words that are in the history: a scorer that needs no model. 1 where there are none.

    Returns:
        In [0, 1].
    """
    said, known = set(_words(proposal)), set(_words(history))
    return len(said & known) / len(said) if said else 1.0


def _words(text: str) -> list[str]:
    """Words and numbers in lower case, without tags and stop words."""
    plain = re.sub(r"</?[A-Za-z_]+>", " ", text).lower()
    return [word for word in re.findall(r"[^\W_]+", plain) if word not in _STOP_WORDS.split()]
