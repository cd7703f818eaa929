"""Computes the metrics of an update from its episodes, and the means of its losses."""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import Trainer

from hf_credit.collectors import RolloutBatch
from hf_credit.credit.surrogate import TokenLosses
from hf_credit.methods import DecisionCredit, DecisionCredits
from hf_credit.replies import read_reply
from hf_credit.rollouts import Chat, Ending, Episode, Interaction, Ledger
from hf_credit.rollouts.capabilities import Costs
from hf_credit.rollouts.pulse import PULSE
from hf_credit.rollouts.reply_ends import was_cut
from hf_credit.rollouts.rows import one_number
from hf_credit.trainers.callbacks import EpisodeCallback, watched
from hf_credit.trainers.ranks import Ranks


class DecisionSummary(NamedTuple):
    """What processes exchange of a decision.

    Attributes:
        role, event: of the decision.
        advantage: its credit, the mean if its tokens have one each; `None` if it is not trained on.
        length: of the reply, in tokens.
        reply: a digest of its text, equal for equal replies.
        observed: whether its role is never trained on.
    """

    role: str
    event: str
    advantage: float | None
    length: int
    reply: bytes
    observed: bool = False


@dataclass(frozen=True, kw_only=True)
class EpisodeSummary:
    """What processes exchange of an episode.

    Attributes:
        turns: number of decisions of trained roles.
        generated: number of tokens that the policy generated.
        context: number of tokens in the contexts of all its own decisions.
        earlier_thoughts: number of these that are the thoughts in earlier replies; of a reply, in the share that they
            have of its characters.
        cut: of each reply of a trained role that no earlier episode holds, whether it reached the length limit.
        advantages: of the decisions with credit, the mean if the tokens of a decision have one each.
        decisions: those that no earlier episode holds.
        verdicts: whether the oracle accepts each decision that it judged.
        later: as in `Rollout`.
    """

    outcome: float
    ending: Ending
    metrics: Mapping[str, float]
    turns: int
    generated: int
    context: int
    cut: tuple[bool, ...]
    advantages: tuple[float, ...]
    decisions: tuple[DecisionSummary, ...] = ()
    verdicts: tuple[bool, ...] = ()
    earlier_thoughts: float = 0.0
    later: bool = False


def summarise(
    episode: Episode, advantages: Sequence[DecisionCredit], end_tokens: Collection[int], later: bool = False
) -> EpisodeSummary:
    """Summarises an episode and the advantages of its decisions."""
    decisions = episode.own_decisions
    numbers = [one_number(one) for one in advantages]
    return EpisodeSummary(
        outcome=episode.outcome,
        ending=episode.ending,
        metrics=dict(episode.metrics),
        turns=episode.turns,
        generated=episode.generated_tokens,
        context=sum(len(decision.context_ids) for decision in decisions),
        cut=tuple(was_cut(one.action_ids, end_tokens) for one in decisions if not one.observed),
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
            for decision, number in zip(decisions, numbers[episode.prefix_length :], strict=True)
        ),
        verdicts=tuple(one.verdict.valid for one in decisions if one.verdict is not None),
        earlier_thoughts=_earlier_thoughts(episode),
        later=later,
    )


def summaries_of(
    collected: RolloutBatch, advantages: DecisionCredits, end_tokens: Collection[int]
) -> list[EpisodeSummary]:
    """Summarises the counted episodes of this process."""
    pairs = zip(collected.trained, advantages, strict=True)
    return [summarise(one.episode, own, end_tokens, one.later) for one, own in pairs if one.counted]


def _earlier_thoughts(episode: Episode) -> float:
    total, last = 0.0, dict[str, tuple[tuple[int, ...], float]]()
    for place, one in enumerate(episode.decisions):
        known, thoughts = last.get(one.event, ((), 0.0))
        if one.context_ids[: len(known)] != known:
            thoughts = 0.0
        total += thoughts if place >= episode.prefix_length else 0.0
        thoughts += len(one.action_ids) * len(read_reply(one.action_text).thoughts) / max(len(one.action_text), 1)
        last[one.event] = one.context_ids + one.action_ids, thoughts
    return total


def largest_difference(first: Tensor, second: Tensor, mask: Tensor) -> Tensor:
    """The largest absolute difference of two tensors where `mask` is not 0 and neither is NaN, as a scalar.

    It is 0 if no place can be compared.
    """
    difference = (first - second).abs()[mask.bool()]
    difference = difference[~difference.isnan()]
    return difference.max() if len(difference) else difference.new_zeros(())


def update_metrics(summaries: Sequence[EpisodeSummary]) -> dict[str, float]:
    """Computes the metrics of all episodes of an update.

    An episode that the world ended in an error has no outcome and no metrics: it counts in `endings/error`, but not in
    means such as `reward` and `success`. All these are of episodes from first states; others are in `starts/later`.
    """
    cut = [one for summary in summaries for one in summary.cut]
    first = [summary for summary in summaries if not summary.later]
    endings = Counter(summary.ending for summary in first)
    metrics = defaultdict(list)
    for summary in first:
        for name, value in summary.metrics.items():
            metrics[name].append(value)
    advantages = torch.tensor([value for summary in summaries for value in summary.advantages], dtype=torch.float64)
    verdicts = [valid for summary in summaries for valid in summary.verdicts]
    context, thoughts = (sum(getattr(one, name) for one in summaries) for name in ("context", "earlier_thoughts"))
    return {
        **{name: mean(values) for name, values in metrics.items()},  # first, so that none hides another
        "reward": mean([summary.outcome for summary in first if not math.isnan(summary.outcome)]),
        **{f"endings/{ending}": endings[ending] / len(first) for ending in Ending if first},
        **({"starts/later": 1 - len(first) / len(summaries)} if len(first) < len(summaries) else {}),
        "turns/mean": mean([summary.turns for summary in first]),
        "replies/cut": sum(cut) / max(len(cut), 1),
        "tokens/generated": sum(summary.generated for summary in summaries),
        "tokens/context": context,
        **({"context/earlier_thoughts": thoughts / context} if thoughts else {}),
        **({"oracle/valid": mean(verdicts)} if verdicts else {}),
        **_spread("advantages", advantages),
        **_decision_metrics([one for summary in summaries for one in summary.decisions]),
    }


def _decision_metrics(decisions: Sequence[DecisionSummary]) -> dict[str, float]:
    """Metrics of the decisions of all trained roles and, if there are several, by role and by event."""
    metrics = _reply_metrics("", [one for one in decisions if not one.observed])
    roles, events = {one.role for one in decisions}, {(one.role, one.event) for one in decisions}
    for role in sorted(roles if len(roles) > 1 else ()):
        metrics |= _reply_metrics(f"roles/{role}/", [one for one in decisions if one.role == role])
    if len(events) > len(roles):  # otherwise an event is another name of a role
        for event in sorted({event for _, event in events}):
            metrics |= _reply_metrics(f"events/{event}/", [one for one in decisions if one.event == event])
    return metrics


def _reply_metrics(prefix: str, decisions: Sequence[DecisionSummary]) -> dict[str, float]:
    if not decisions:
        return {}
    advantages = [one.advantage for one in decisions if one.advantage is not None]
    return {
        # `update_metrics` has the spread over all roles.
        **(_spread(f"{prefix}advantages", torch.tensor(advantages, dtype=torch.float64)) if prefix else {}),
        f"{prefix}advantages/trained": len(advantages) / len(decisions),
        f"{prefix}replies/length": mean([one.length for one in decisions]),
        f"{prefix}replies/distinct": len({one.reply for one in decisions}) / len(decisions),
    }


class LossMetrics:
    """Means over the tokens of all forward passes and processes since the last log.

    Sums stay on the device, and processes communicate only in `taken`. All add the same names in the same order.
    """

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}  # of values, and number of tokens
        self._extremes: dict[str, Tensor] = {}

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
        """Adds the share of clipped tokens of one pass, and its minimum and maximum over rows, under TRL's names.

        Args:
            mask: of shape (rows, tokens), 1 on the tokens in the loss.
            loss_type: `"dapo"` or `"cispo"`.
        """
        if loss_type == "cispo":
            self.add("cispo_clip_ratio", terms.clipped_high, mask)
            return
        low, high = terms.clipped_low, terms.clipped_high
        for name, flags in (("low_mean", low), ("high_mean", high), ("region_mean", low | high)):
            self.add(f"clip_ratio/{name}", flags, mask)
        tokens = mask.sum(-1)  # 0 in a row without loss, whose share is NaN
        least = ((low * mask).sum(-1).double() / tokens).nan_to_num(torch.inf).min()
        most = ((high * mask).sum(-1).double() / tokens).nan_to_num(-torch.inf).max()
        self._extremes = {
            "clip_ratio/low_min": torch.minimum(self._extremes.get("clip_ratio/low_min", least), least),
            "clip_ratio/high_max": torch.maximum(self._extremes.get("clip_ratio/high_max", most), most),
        }

    def taken(self, accelerator: Any) -> dict[str, float]:
        """Returns the means, minima and maxima over all processes since the last call. Called on every process."""
        if not self._sums:
            return {}
        local = torch.cat([*self._sums.values(), *(value[None] for value in self._extremes.values())])
        gathered = accelerator.gather(local).view(-1, len(local))
        totals = gathered[:, : 2 * len(self._sums)].sum(0).view(-1, 2).tolist()
        metrics = {name: total / tokens for name, (total, tokens) in zip(self._sums, totals, strict=True) if tokens}
        for name, values in zip(self._extremes, gathered[:, 2 * len(self._sums) :].T, strict=True):
            extreme = (values.min() if name.endswith("_min") else values.max()).item()
            if math.isfinite(extreme):
                metrics[name] = extreme
        self._sums, self._extremes = {}, {}
        return metrics


class EpisodeLog(Trainer):
    """A trainer that logs metrics of episodes and of the loss, apart for training and evaluation."""

    args: Any
    chat: Chat
    interaction: Interaction[Any]
    ledger: Ledger
    model: Any
    ranks: Ranks
    _evaluated_as = "eval"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.metrics: dict[str, dict[str, list[float]]] = {"train": defaultdict(list), "eval": defaultdict(list)}
        self.loss_metrics = {"train": LossMetrics(), "eval": LossMetrics()}
        self._evaluated: list[EpisodeSummary] = []  # of all batches of an evaluation
        self._rows_left = math.inf  # of an evaluation, over all processes

    def log_metric(self, name: str, value: float) -> None:
        """Records a metric of this update, whose value is the same on every process."""
        self.metrics["train" if self.model.training else "eval"][name].append(value)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.log_metric(name, time.perf_counter() - begun)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """As in transformers; the prefix of the metrics also names them in the log."""
        self._evaluated_as, training = metric_key_prefix, self.model.training
        with watched(self):
            PULSE.begin("evaluating")
            found = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        self.model.train(training)  # or what an epoch logs next would count as an evaluation's
        return found

    def evaluation_loop(self, dataloader: Any, *args: Any, **kwargs: Any) -> Any:
        rows = len(dataloader.dataset) if hasattr(dataloader.dataset, "__len__") else math.inf
        self._rows_left = rows * (self.args.num_generations_eval or 1)
        self._evaluated = []
        return super().evaluation_loop(dataloader, *args, **kwargs)

    def unplayed(self, rows: list[Any]) -> list[Any]:
        """The rows without those that fill up the last batch of several processes: the first ones again."""
        counts = self.ranks.gather([len(rows)])
        own = self._rows_left - sum(counts[: self.accelerator.process_index])
        self._rows_left -= sum(counts)
        return [row for place, row in enumerate(rows) if place < own]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        mode = "train" if self.model.training else "eval"
        prefix = "" if mode == "train" else f"{self._evaluated_as}_"
        if mode == "eval":
            logs.pop(f"{prefix}loss", None)  # an evaluation has no credit, so its loss is 0
            found = update_metrics(self._evaluated) if self._evaluated else {}
            self.metrics[mode] |= {name: [one] for name, one in found.items() if "advantages/" not in name}
            self._evaluated = []
        logs |= {f"{prefix}{name}": value for name, value in self.loss_metrics[mode].taken(self.accelerator).items()}
        for name, values in self.metrics[mode].items():
            known = [value for value in values if not math.isnan(value)]
            logs[f"{prefix}{name}"] = mean(known) if known else None  # type: ignore[assignment]  # as TRL: no NaN in JSON
        self.metrics[mode].clear()
        super().log(logs, start_time)

    def log_episodes(self, collected: RolloutBatch, advantages: DecisionCredits) -> None:
        """Logs the counted episodes, and passes all on to callbacks. Called on every process."""
        summaries = self.ranks.gather(summaries_of(collected, advantages, self.chat.end_tokens))
        if not self.model.training:
            self._evaluated += summaries
        else:
            for name, value in update_metrics(summaries).items():
                self.log_metric(name, value)
            for name, total in {**self.ledger.metrics(), "num_tokens": self.ledger.tokens}.items():
                self.metrics["train"][name] = [total]  # so far, not a mean over the steps of a log
            gathered = self.ranks.gather([dict(Costs(self.interaction).costs())])
            for name in dict.fromkeys(name for process in gathered for name in process):
                self.metrics["train"][f"world/{name}"] = [sum(process.get(name, 0) for process in gathered)]
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, EpisodeCallback):
                callback.on_episodes(self, collected, advantages)


def mean(values: Sequence[float]) -> float:
    """The mean of values; NaN for none."""
    return sum(values) / len(values) if values else math.nan


def _spread(name: str, values: Tensor) -> dict[str, float]:
    if not len(values):
        return {}
    return {
        f"{name}/mean": values.mean().item(),
        f"{name}/std": values.std(correction=0).item(),
        f"{name}/zero": (values == 0).double().mean().item(),
    }
