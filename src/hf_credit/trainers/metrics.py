"""What is logged of an update: from episodes to named numbers."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from hf_credit.credit.surrogate import TokenLosses
from hf_credit.methods import DecisionCredit
from hf_credit.methods.base import one_number
from hf_credit.rollouts import Ending, Episode
from hf_credit.rollouts.reply_ends import was_cut


class DecisionSummary(NamedTuple):
    """The few numbers of a decision that processes exchange.

    Attributes:
        role, event: whose it is.
        observed: whether its role is never learned from.
        advantage: its credit, the mean where its tokens have one each; `None` where it is not trained on.
        length: of the reply, in tokens.
        reply: a digest of its text, by which equal ones are known.
    """

    role: str
    event: str
    advantage: float | None
    length: int
    reply: bytes
    observed: bool = False


@dataclass(frozen=True, kw_only=True)
class EpisodeSummary:
    """The few numbers of an episode that processes exchange.

    Attributes:
        outcome: of the episode.
        ending: how it ended.
        metrics: what its Interaction reports.
        turns: decisions made, of roles that are learned from.
        generated: tokens the policy produced.
        context: tokens the policy was given, over all turns.
        cut: replies of these that ran into the length limit.
        advantages: of the decisions that have one, the mean where its tokens have one each.
        decisions: each of them that no earlier episode holds.
        verdicts: whether the oracle accepts each decision that it was asked about.
    """

    outcome: float
    ending: Ending
    metrics: Mapping[str, float]
    turns: int
    generated: int
    context: int
    cut: int
    advantages: tuple[float, ...]
    decisions: tuple[DecisionSummary, ...] = ()
    verdicts: tuple[bool, ...] = ()


def summarise(episode: Episode, advantages: Sequence[DecisionCredit], end_tokens: Collection[int]) -> EpisodeSummary:
    """The summary of one episode and the advantages of its decisions."""
    own = episode.own_decisions
    numbers = [one_number(one) for one in advantages]
    return EpisodeSummary(
        outcome=episode.outcome,
        ending=episode.ending,
        metrics=dict(episode.metrics),
        turns=episode.turns,
        generated=episode.generated_tokens,
        context=sum(len(decision.context_ids) for decision in own),
        cut=sum(was_cut(one.action_ids, end_tokens) for one in own if not one.observed),
        advantages=tuple(number for number in numbers if number is not None),
        decisions=tuple(
            DecisionSummary(
                role=decision.role,
                event=decision.event,
                advantage=number,
                length=len(decision.action_ids),
                reply=hashlib.blake2b(decision.action_text.encode(errors="replace"), digest_size=8).digest(),
                observed=decision.observed,
            )
            for decision, number in zip(own, numbers[episode.prefix_length :], strict=True)
        ),
        verdicts=tuple(one.verdict.valid for one in own if one.verdict is not None),
    )


def without_cut_replies(
    episodes: Sequence[Episode], advantages: Sequence[Sequence[DecisionCredit]], end_tokens: Collection[int]
) -> list[list[DecisionCredit]]:
    """The advantages of decisions, `None` for those whose reply ran into the length limit."""
    return [
        [
            None if was_cut(decision.action_ids, end_tokens) else value
            for decision, value in zip(episode.decisions, values, strict=True)
        ]
        for episode, values in zip(episodes, advantages, strict=True)
    ]


def largest_difference(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """The largest absolute difference of two tensors where `mask` is not 0 and both are known, as a scalar.

    NaN stands for a value that is not known. Where nothing can be compared the answer is 0.
    """
    difference = (first - second).abs()[mask.bool()]
    difference = difference[~difference.isnan()]
    return difference.max() if len(difference) else difference.new_zeros(())


def update_metrics(summaries: Sequence[EpisodeSummary]) -> dict[str, float]:
    """The metrics of all episodes of an update.

    An episode that ended in an error has no metrics of its own, so it counts in `endings/error` and in `reward`, and
    not in means such as `success`.
    """
    decisions = sum(summary.turns for summary in summaries)
    endings = Counter(summary.ending for summary in summaries)
    own = defaultdict(list)
    for summary in summaries:
        for name, value in summary.metrics.items():
            own[name].append(value)
    advantages = torch.tensor([value for summary in summaries for value in summary.advantages], dtype=torch.float64)
    verdicts = [valid for summary in summaries for valid in summary.verdicts]
    return {
        "reward": mean([summary.outcome for summary in summaries]),
        **{f"endings/{ending}": endings[ending] / len(summaries) for ending in Ending},
        **{name: mean(values) for name, values in own.items()},
        "turns/mean": decisions / len(summaries),
        "replies/cut": sum(summary.cut for summary in summaries) / max(decisions, 1),
        "tokens/generated": sum(summary.generated for summary in summaries),
        "tokens/context": sum(summary.context for summary in summaries),
        **({"oracle/valid": mean(verdicts)} if verdicts else {}),
        **({} if not len(advantages) else _spread("advantages", advantages)),
        **_of_decisions([one for summary in summaries for one in summary.decisions]),
    }


def _of_decisions(decisions: Sequence[DecisionSummary]) -> dict[str, float]:
    """What replies got and looked like: those of all roles that are learned from, and by role and by event where there
    are several."""
    found = _of_replies("", [one for one in decisions if not one.observed])
    roles, events = {one.role for one in decisions}, {(one.role, one.event) for one in decisions}
    for role in sorted(roles if len(roles) > 1 else ()):
        found |= _of_replies(f"roles/{role}/", [one for one in decisions if one.role == role])
    if len(events) > len(roles):  # else an event is another name of a role
        for event in sorted({event for _, event in events}):
            found |= _of_replies(f"events/{event}/", [one for one in decisions if one.event == event])
    return found


def _of_replies(prefix: str, decisions: Sequence[DecisionSummary]) -> dict[str, float]:
    if not decisions:
        return {}
    advantages = [one.advantage for one in decisions if one.advantage is not None]
    told = bool(prefix and advantages)  # those of all are told of the episodes
    return {
        **(_spread(f"{prefix}advantages", torch.tensor(advantages, dtype=torch.float64)) if told else {}),
        f"{prefix}advantages/trained": len(advantages) / len(decisions),
        f"{prefix}replies/length": mean([one.length for one in decisions]),
        f"{prefix}replies/distinct": len({one.reply for one in decisions}) / len(decisions),
    }


class LossMetrics:
    """Means over the tokens of all forward passes, of all processes, until they are logged.

    Sums stay on the device and processes meet once, when the means are taken: each adds the same names in the same
    order.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}  # of values and of tokens
        self._ends: dict[str, Tensor] = {}

    @torch.no_grad()
    def add(self, name: str, values: Tensor, mask: Tensor | None = None) -> None:
        """Adds the values of one pass.

        Args:
            name: of the metric.
            values: one for each token.
            mask: of the same shape, 1 on the tokens in the loss; without it, all values count.
        """
        mask = torch.ones_like(values) if mask is None else mask
        sums = torch.stack([torch.where(mask.bool(), values, 0).double().sum(), mask.double().sum()])
        self._sums[name] = self._sums[name] + sums if name in self._sums else sums

    @torch.no_grad()
    def add_clipping(self, terms: TokenLosses, mask: Tensor, loss_type: str) -> None:
        """Adds how many tokens of one pass were clipped, and the least and largest share of a row, as TRL names them.

        Args:
            terms: of the pass.
            mask: of shape (rows, tokens), 1 on the tokens in the loss.
            loss_type: `"dapo"` or `"cispo"`.
        """
        if loss_type == "cispo":
            self.add("cispo_clip_ratio", terms.clipped_high, mask)
            return
        low, high = terms.clipped_low, terms.clipped_high
        for name, flags in (("low_mean", low), ("high_mean", high), ("region_mean", low | high)):
            self.add(f"clip_ratio/{name}", flags, mask)
        shares = [
            (flags * mask).sum(-1).double() / mask.sum(-1) for flags in (low, high)
        ]  # NaN in a row without tokens
        least, most = shares[0].nan_to_num(torch.inf).min(), shares[1].nan_to_num(-torch.inf).max()
        self._ends = {
            "clip_ratio/low_min": torch.minimum(self._ends.get("clip_ratio/low_min", least), least),
            "clip_ratio/high_max": torch.maximum(self._ends.get("clip_ratio/high_max", most), most),
        }

    def taken(self, accelerator: Any) -> dict[str, float]:
        """The means, least and largest values since the last call, by name, of all processes, which call it together.

        Args:
            accelerator: of this process.
        """
        if not self._sums:
            return {}
        own = torch.cat([torch.stack(list(self._sums.values())).flatten(), *(v[None] for v in self._ends.values())])
        every = accelerator.gather(own).view(-1, len(own))
        totals = every[:, : 2 * len(self._sums)].sum(0).view(-1, 2).tolist()
        found = {name: total / tokens for name, (total, tokens) in zip(self._sums, totals, strict=True) if tokens}
        for name, values in zip(self._ends, every[:, 2 * len(self._sums) :].T, strict=True):
            end = (values.min() if name.endswith("_min") else values.max()).item()
            if math.isfinite(end):
                found[name] = end
        self._sums, self._ends = {}, {}
        return found


def mean(values: Sequence[float]) -> float:
    """The mean, NaN of nothing."""
    return sum(values) / len(values) if values else math.nan


def _spread(name: str, values: Tensor) -> dict[str, float]:
    return {
        f"{name}/mean": values.mean().item(),
        f"{name}/std": values.std(correction=0).item(),
        f"{name}/zero": (values == 0).double().mean().item(),
    }
