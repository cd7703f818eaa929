"""What single decisions of training got: values to look at, and the file of a run that keeps some of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import typing
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from hf_credit.collectors import RolloutBatch
from hf_credit.methods import DecisionCredit
from hf_credit.methods.base import one_number
from hf_credit.rollouts import Decision, Episode
from hf_credit.rollouts.buckets import alternatives
from hf_credit.safe_io import is_number, parse_json, read_text

EPISODES_FILE = "episodes.jsonl"
"""In the folder of a run: an episode a line, some of every logged update."""

MOST_BYTES = 16 * 2**20
"""Of that file: beyond it, every second update is dropped and updates are recorded half as often."""

_MOST_DECISIONS, _MOST_ALTERNATIVES, _MOST_TOKENS = 64, 8, 2_000
_MOST_CONTEXT, _MOST_REPLY, _MOST_ALTERNATIVE = 2_000, 4_000, 500  # characters
_WINDOW = 8  # tokens that are decoded together, so that a token is spelled as it is within a text


@dataclass(frozen=True, kw_only=True)
class CreditedReply:
    """Another reply at the context of a decision.

    Attributes:
        reply: its text.
        outcomes: of the episodes that went through it.
        credit: its own, the mean where its tokens have one each; `None` where it got none.
    """

    reply: str
    outcomes: tuple[float, ...] = ()
    credit: float | None = None


@dataclass(frozen=True, kw_only=True)
class CreditedDecision:
    """A decision and its credit, as people read it.

    Attributes:
        role, event: as in `Decision`.
        context: what the policy was given beyond earlier contexts and its own replies.
        reply: its text, without special tokens.
        tokens: how many the reply has.
        reward: what the step was paid.
        verdict: the oracle's score, `None` where none was asked.
        valid: whether the oracle accepts it, `None` where none was asked.
        credit: the advantage that it is trained with, the mean where its tokens have one each; `None`: not trained on.
        beside: the credit that other methods would have given it, each in a scale of its own.
        token_credit: of each piece of the reply, where tokens have credit of their own; the first of them.
        outcomes: of the episodes that went through it.
        alternatives: other replies at the same context.
        alternatives_left_out: how many more there were.
        inherited: whether an earlier episode of the same update holds it already.
    """

    role: str
    event: str
    context: str
    reply: str
    tokens: int = 0
    reward: float = 0.0
    verdict: float | None = None
    valid: bool | None = None
    credit: float | None = None
    beside: Mapping[str, float | None] = field(default_factory=dict)
    token_credit: tuple[tuple[str, float], ...] = ()
    outcomes: tuple[float, ...] = ()
    alternatives: tuple[CreditedReply, ...] = ()
    alternatives_left_out: int = 0
    inherited: bool = False


@dataclass(frozen=True, kw_only=True)
class CreditedEpisode:
    """An episode and the credit of its decisions, as people read it.

    Attributes:
        decisions: in the order in which they were made.
        outcome: what the episode was worth; `None` where nobody asked.
        ending, error, metrics: as in `Episode`; a metric that is not finite is `None` in a file.
        update: in which it was played, counted from 1; 0 where it was none of training.
        instance: the place of its task among those of the update.
        decisions_left_out: how many more there were.
    """

    decisions: tuple[CreditedDecision, ...]
    outcome: float | None
    ending: str
    error: str | None = None
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    update: int = 0
    instance: int = 0
    decisions_left_out: int = 0

    def to_json(self) -> str:
        """As one line of strict JSON; `from_json` gives back an equal episode."""
        return json.dumps(_rounded(self), separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> CreditedEpisode:
        """The episode that `to_json` wrote.

        Raises:
            ValueError: the text is something else.
        """
        try:
            return _typed(cls, parse_json(text, broken_text=True), "episode")  # type: ignore[no-any-return]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(
                f"an episode with its credit must be what CreditedEpisode.to_json writes, got {type(error).__name__}: "
                f"{str(error)[:200]}; record it again."
            ) from None

    def shortened(self) -> CreditedEpisode:
        """The same within bounds: 64 decisions, 8 alternatives each, and so many characters of each text."""
        kept = tuple(_shortened(one) for one in self.decisions[:_MOST_DECISIONS])
        return replace(self, decisions=kept, decisions_left_out=len(self.decisions) - len(kept))


def credited_episode(
    episode: Episode,
    credit: Sequence[DecisionCredit],
    tokenizer: PreTrainedTokenizerBase,
    alternatives: Sequence[Sequence[CreditedReply]] = (),
    outcomes: Sequence[Sequence[float]] = (),
    beside: Mapping[str, Mapping[str, float]] | None = None,
    **facts: Any,
) -> CreditedEpisode:
    """An episode, the credit of its decisions and what else was tried there, to look at.

    Args:
        episode: as it was played.
        credit: of each of its decisions.
        tokenizer: of the policy.
        alternatives: other replies at the context of each decision; none if left out.
        outcomes: of the episodes that went through each decision; the episode's own if left out.
        beside: the credit that other methods give, by method and the id of a decision.
        **facts: `update` and `instance`, where there are any.

    Raises:
        ValueError: there is not one credit, or one entry of the others, for each decision.
    """
    count = len(episode.decisions)
    for name, given in (("credit", credit), ("alternatives", alternatives), ("outcomes", outcomes)):
        if len(given) != count and (given or name == "credit"):
            raise ValueError(
                f"{name} must have one entry for each decision, got {len(given)} for {count} decisions; give None "
                "for a decision without."
            )
    worth = None if math.isnan(episode.outcome) else episode.outcome
    decisions = tuple(
        _credited(
            decision,
            _new_context(episode.decisions[:place], decision),
            own,
            tokenizer,
            alternatives=tuple(alternatives[place]) if alternatives else (),
            outcomes=tuple(outcomes[place]) if outcomes else (() if worth is None else (worth,)),
            inherited=place < episode.prefix_length,
            beside={name: given[decision.id] for name, given in (beside or {}).items() if decision.id in given},
        )
        for place, (decision, own) in enumerate(zip(episode.decisions, credit, strict=True))
    )
    return CreditedEpisode(
        decisions=decisions,
        outcome=worth,
        ending=str(episode.ending),
        error=episode.error,
        metrics=dict(episode.metrics),
        **facts,
    )


def credited_episodes(
    collected: RolloutBatch,
    credit: Sequence[Sequence[DecisionCredit]],
    tokenizer: PreTrainedTokenizerBase,
    update: int = 0,
    instances: int | None = None,
    beside: Mapping[str, Mapping[str, float]] | None = None,
) -> list[CreditedEpisode]:
    """The trained episodes of an update with the credit of their decisions and what else was tried at their contexts.

    Alternatives at a context are the decisions of one instance, event type and context, in all episodes that were
    scored, whether or not they are trained on.

    Args:
        collected: what one process played.
        credit: of its trained samples, as in `Credit.decisions`.
        tokenizer: of the policy.
        update: which one it is.
        instances: the first trained episode of each of so many task rows; every trained episode if `None`.
        beside: as for `credited_episode`.
    """
    chosen = list(collected.trained)
    if instances is not None:
        first = {sample.instance: sample for sample in reversed(chosen)}
        chosen = [first[place] for place in sorted(first)[:instances]]
    shown = {sample.instance for sample in chosen}
    scored = [sample for sample in collected.rollouts if sample.instance in shown and sample.episode.scored]
    compared = alternatives([one.episode for one in scored], instances=[one.instance for one in scored])
    given = {
        decision.id: one
        for episode, own in zip(collected.episodes, credit, strict=True)
        for decision, one in zip(episode.decisions, own, strict=True)
        if one is not None
    }
    at_context: dict[int, dict[str, CreditedReply]] = defaultdict(dict)
    for one in compared:
        at_context[one.bucket][one.decision.id] = CreditedReply(
            reply=one.decision.action_text, outcomes=one.outcomes, credit=one_number(given.get(one.decision.id))
        )
    bucket = {one.decision.id: one.bucket for one in compared}
    found = []
    for sample in chosen:
        decisions = sample.episode.decisions
        here = [at_context[bucket[one.id]] if one.id in bucket else {} for one in decisions]
        found.append(
            credited_episode(
                sample.episode,
                [given.get(one.id) for one in decisions],
                tokenizer,
                [
                    [reply for name, reply in there.items() if name != one.id]
                    for one, there in zip(decisions, here, strict=True)
                ],
                [there[one.id].outcomes if there else () for one, there in zip(decisions, here, strict=True)],
                beside,
                update=update,
                instance=sample.instance,
            )
        )
    return found


def read_episodes(folder: str | Path) -> list[CreditedEpisode]:
    """What a run recorded of its training, in the order of its updates; nothing where it recorded nothing.

    Raises:
        ValueError: the file is something else.
    """
    path = Path(folder) / EPISODES_FILE
    if not path.is_file():
        return []
    lines = read_text(path).split("\n")[:-1]  # the last line of a run that goes on may not be whole
    try:
        return [CreditedEpisode.from_json(line) for line in lines]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def choose_episode(
    episodes: Sequence[CreditedEpisode], update: int | None = None, episode: int | None = None
) -> CreditedEpisode:
    """One of the recorded episodes.

    Args:
        episodes: as `read_episodes` gives them, at least one.
        update: of which update; the last recorded one if `None`.
        episode: the place among those of the update, from 1; if `None`, the one whose decisions differ most in credit.

    Raises:
        ValueError: nothing is recorded of that update, or not so many.
    """
    updates = sorted({one.update for one in episodes})
    wanted = update if update is not None else updates[-1]
    found = [one for one in episodes if one.update == wanted]
    if not found:
        raise ValueError(
            f"an update must be one of those recorded, {', '.join(map(str, updates))}, got {update}; choose one."
        )
    if episode is None:
        return max(found, key=_spread)
    if not 1 <= episode <= len(found):
        raise ValueError(f"update {wanted} has the episodes 1 to {len(found)} recorded, got {episode}; choose one.")
    return found[episode - 1]


def _spread(episode: CreditedEpisode) -> float:
    """How far the credits of an episode lie apart, those of its alternatives included."""
    credits = [one.credit for one in episode.decisions]
    credits += [other.credit for one in episode.decisions for other in one.alternatives]
    known = [credit for credit in credits if credit is not None]
    return max(known) - min(known) if known else -1.0


def write_episodes(path: Path, episodes: Iterable[CreditedEpisode]) -> None:
    """Replaces the file by these episodes."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text("".join(f"{one.to_json()}\n" for one in episodes), encoding="utf-8")
    unfinished.replace(path)


def _credited(
    decision: Decision,
    context: Sequence[int],
    credit: DecisionCredit,
    tokenizer: PreTrainedTokenizerBase,
    **other: Any,
) -> CreditedDecision:
    verdict = decision.verdict
    of_tokens: tuple[tuple[str, float], ...] = ()
    if isinstance(credit, Sequence):
        of_tokens = token_credit(decision.action_ids[:_MOST_TOKENS], credit[:_MOST_TOKENS], tokenizer)
    return CreditedDecision(
        role=decision.role,
        event=decision.event,
        context=str(tokenizer.decode(list(context))) if context else "",
        reply=decision.action_text,
        tokens=len(decision.action_ids),
        reward=decision.reward,
        verdict=None if verdict is None else verdict.score,
        valid=None if verdict is None else verdict.valid,
        credit=one_number(credit),
        token_credit=of_tokens,
        **other,
    )


def token_credit(
    ids: Sequence[int], credit: Sequence[float], tokenizer: PreTrainedTokenizerBase
) -> tuple[tuple[str, float], ...]:
    """The credit of each token beside what it adds to the text; tokens that spell a character together get their mean.

    Args:
        ids: tokens of a reply, special ones included.
        credit: of each.
        tokenizer: of the policy.
    """
    pieces: list[tuple[str, float]] = []
    begun = 0
    for end in range(1, len(ids) + 1):
        first = max(0, begun - _WINDOW)
        before = str(tokenizer.decode(list(ids[first:begun]))) if begun > first else ""
        text = str(tokenizer.decode(list(ids[first:end])))[len(before) :]
        if text.endswith("\ufffd") and end < len(ids) and end - begun < _WINDOW:
            continue  # a part of a character
        own = credit[begun:end]
        pieces.append((text, sum(own) / len(own)))
        begun = end
    return tuple(pieces)


def _new_context(before: Sequence[Decision], decision: Decision) -> tuple[int, ...]:
    """The tokens of a context that are not in the context or the reply of an earlier decision of the episode."""
    for earlier in reversed(before):
        known = earlier.context_ids + earlier.action_ids
        if decision.context_ids[: len(known)] == known:
            return decision.context_ids[len(known) :]
    return decision.context_ids


def _shortened(one: CreditedDecision) -> CreditedDecision:
    kept = one.alternatives[:_MOST_ALTERNATIVES]
    return replace(
        one,
        context=cut(one.context, _MOST_CONTEXT),
        reply=cut(one.reply, _MOST_REPLY),
        token_credit=one.token_credit[:_MOST_TOKENS],
        outcomes=one.outcomes[:_MOST_ALTERNATIVES],
        alternatives=tuple(
            replace(other, reply=cut(other.reply, _MOST_ALTERNATIVE), outcomes=other.outcomes[:_MOST_ALTERNATIVES])
            for other in kept
        ),
        alternatives_left_out=len(one.alternatives) - len(kept) + one.alternatives_left_out,
    )


def cut(text: str, most: int) -> str:
    """A text, its middle left out where it has more than `most` characters."""
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n{text[-half:]}"


def _rounded(value: Any) -> Any:
    """As plain JSON, with six digits of each number; what is not finite is `None`."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if dataclasses.is_dataclass(value):
        value = vars(value)
    if isinstance(value, Mapping):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def _typed(kind: Any, value: Any, name: str) -> Any:
    """A plain value as its type has it: a dataclass, a tuple, a mapping of texts, or what it is already."""
    if type(None) in typing.get_args(kind):
        if value is None:
            return None
        kind = typing.get_args(kind)[0]
    parts = typing.get_args(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        kinds = _hints(kind)
        return kind(**{field: _typed(kinds[field], one, field) for field, one in value.items()})
    if typing.get_origin(kind) is tuple and isinstance(value, list):
        kinds_of_items = itertools.repeat(parts[0], len(value)) if parts[-1] is Ellipsis else parts
        return tuple(_typed(one, item, name) for one, item in zip(kinds_of_items, value, strict=True))
    if typing.get_origin(kind) is Mapping and isinstance(value, dict):
        return {key: _typed(parts[1], item, name) for key, item in value.items()}
    if not _IS.get(kind, lambda value: False)(value):
        raise ValueError(f"{name} {str(value)[:50]!r}")
    return value


_hints = functools.cache(typing.get_type_hints)
_IS: Mapping[Any, Callable[[Any], bool]] = {
    str: lambda value: isinstance(value, str),
    int: lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
    float: is_number,
    bool: lambda value: isinstance(value, bool),
}
