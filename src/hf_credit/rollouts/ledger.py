"""The cost of rollouts, in units that are comparable across methods (paper C3, Appendix M)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from hf_credit.rollouts.episode import Episode
from hf_credit.rollouts.running import RolloutRequest


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """Sums of costs. Ledgers can be added.

    Attributes:
        scoring_events: number of computed outcomes (TSE).
        prompt_tokens: number of tokens in the contexts of all replies.
        completion_tokens: number of tokens in all replies.
        decisions: number of replies by role (ADS).
        role_tokens: `tokens` by role.
        counterfactual_tokens: the part of `tokens` in episodes for comparison.
        others: tokens of other models, which are no part of `tokens`, by what these do, such as `"judge"`.
    """

    scoring_events: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    decisions: Mapping[str, int] = field(default_factory=dict)
    role_tokens: Mapping[str, int] = field(default_factory=dict)
    counterfactual_tokens: int = 0
    others: Mapping[str, int] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """The number of prompt and completion tokens (TT)."""
        return self.prompt_tokens + self.completion_tokens

    @classmethod
    def of(cls, episodes: Iterable[Episode], starts: Sequence[RolloutRequest[Any]] = ()) -> Ledger:
        """Returns the cost of episodes; a decision that several episodes share counts once.

        Args:
            episodes: all episodes of one run.
            starts: their requests, by which episodes for comparison are known.
        """
        episodes = list(episodes)
        decisions = [decision for episode in episodes for decision in episode.own_decisions]
        role_tokens, counterfactual_tokens = Counter[str](), 0
        for episode in episodes:
            for decision in episode.own_decisions:
                tokens = len(decision.context_ids) + len(decision.action_ids)
                role_tokens[decision.role] += tokens
                counterfactual_tokens += tokens if starts and starts[episode.start].comparison else 0
        return cls(
            scoring_events=sum(episode.scored for episode in episodes),
            prompt_tokens=sum(len(decision.context_ids) for decision in decisions),
            completion_tokens=sum(len(decision.action_ids) for decision in decisions),
            decisions=dict(Counter(decision.role for decision in decisions)),
            role_tokens=dict(role_tokens),
            counterfactual_tokens=counterfactual_tokens,
        )

    def __add__(self, other: Ledger) -> Ledger:
        summed: dict[str, Any] = {}
        for name, own in vars(self).items():
            more = getattr(other, name)
            summed[name] = own + more if isinstance(own, int) else dict(Counter(own) + Counter(more))
        return Ledger(**summed)

    def __sub__(self, earlier: Ledger) -> Ledger:
        """Returns what was spent since an earlier ledger of the same run."""
        left: dict[str, Any] = {}
        for name, own in vars(self).items():
            less = getattr(earlier, name)
            left[name] = own - less if isinstance(own, int) else dict(Counter(own) - Counter(less))
        return Ledger(**left)

    def metrics(self) -> dict[str, float]:
        """Returns the sums by their names in logs."""
        return {
            "budget/scoring_events": self.scoring_events,
            "budget/tokens": self.tokens,
            "budget/completion_tokens": self.completion_tokens,
            **({"budget/counterfactual_tokens": self.counterfactual_tokens} if self.counterfactual_tokens else {}),
            **{f"budget/others/{name}": count for name, count in sorted(self.others.items())},
            **{f"budget/decisions/{role}": count for role, count in sorted(self.decisions.items())},
            **{f"budget/tokens/{role}": count for role, count in sorted(self.role_tokens.items())},
        }

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values, from which `Ledger(**values)` makes an equal ledger."""
        return asdict(self)
