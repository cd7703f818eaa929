"""What is logged of an update: from episodes to named numbers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_credit.methods import DecisionCredit
from hf_credit.rollouts import Ending, Episode


@dataclass(frozen=True, kw_only=True)
class EpisodeSummary:
    """The few numbers of an episode that processes exchange.

    Attributes:
        outcome: of the episode.
        ending: how it ended.
        metrics: what its Interaction reports.
        turns: decisions made.
        generated: tokens the policy produced.
        context: tokens the policy was given, over all turns.
        cut: replies that ran into the length limit.
        advantages: of the decisions that have one, the mean where its tokens have one each.
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
    verdicts: tuple[bool, ...] = ()


def summarise(episode: Episode, advantages: Iterable[DecisionCredit], end_tokens: Collection[int]) -> EpisodeSummary:
    """The summary of one episode and the advantages of its decisions."""
    return EpisodeSummary(
        outcome=episode.outcome,
        ending=episode.ending,
        metrics=dict(episode.metrics),
        turns=len(episode.decisions),
        generated=episode.generated_tokens,
        context=sum(len(decision.context_ids) for decision in episode.own_decisions),
        cut=sum(was_cut(decision.action_ids, end_tokens) for decision in episode.own_decisions),
        advantages=tuple(_known(advantages)),
        verdicts=tuple(one.verdict.valid for one in episode.own_decisions if one.verdict is not None),
    )


@dataclass(frozen=True, kw_only=True)
class EpisodeLog:
    """An episode as people read it in the log of completions.

    Attributes:
        prompt: the first context.
        replies: all of them, a line break between two.
        outcome: of the episode.
        ending: how it ended.
        advantage: mean over the decisions that have one.
    """

    prompt: str
    replies: str
    outcome: float
    ending: str
    advantage: float


def episode_log(
    episode: Episode, advantages: Iterable[DecisionCredit], tokenizer: PreTrainedTokenizerBase
) -> EpisodeLog:
    """One episode and the advantages of its decisions in words."""
    first = episode.decisions[0].context_ids if episode.decisions else ()
    return EpisodeLog(
        prompt=str(tokenizer.decode(list(first))) if first else "",
        replies="\n".join(decision.action_text for decision in episode.decisions),
        outcome=episode.outcome,
        ending=str(episode.ending),
        advantage=mean(_known(advantages)),
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


def was_cut(reply: Sequence[int], end_tokens: Collection[int]) -> bool:
    """Whether a reply ended for lack of room rather than with an end token."""
    return not reply or reply[-1] not in end_tokens


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
    }


def _known(advantages: Iterable[DecisionCredit]) -> list[float]:
    """One number for each decision that has credit."""
    return [mean([*one]) if isinstance(one, Sequence) else one for one in advantages if one is not None]


class LossMetrics:
    """What the loss says of each of its forward passes, until it is logged.

    A pass holds as many tokens as it happens to, so a mean over tokens counts each pass by its tokens. Names that end
    in `_min` or `_max` are the least or the largest of all. A pass without tokens says nothing.
    """

    def __init__(self) -> None:
        self._sums: dict[str, float] = defaultdict(float)
        self._tokens: dict[str, float] = defaultdict(float)
        self._ends: dict[str, float] = {}

    def add(self, values: Mapping[str, float], tokens: float) -> None:
        """Adds one pass.

        Args:
            values: by name, of all processes.
            tokens: in the loss of that pass, over all processes.
        """
        for name, value in values.items():
            if not tokens or math.isnan(value):
                continue
            if name.endswith(("_min", "_max")):
                end = min if name.endswith("_min") else max
                self._ends[name] = end(value, self._ends.get(name, value))
            else:
                self._sums[name] += value * tokens
                self._tokens[name] += tokens

    def taken(self) -> dict[str, float]:
        """Means, least and largest values since the last call, by name; a name that nothing was said of is missing."""
        found = {**{name: total / self._tokens[name] for name, total in self._sums.items()}, **self._ends}
        for held in (self._sums, self._tokens, self._ends):
            held.clear()
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
