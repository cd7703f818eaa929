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
from hf_credit.environments.tool_calls import call_in_words
from hf_credit.methods import DecisionCredit
from hf_credit.methods.base import one_number
from hf_credit.rollouts import Decision, Episode, Interaction, Request
from hf_credit.rollouts.buckets import alternatives
from hf_credit.rollouts.chat import joined_parts, read_reply
from hf_credit.safe_io import is_number, parse_json, read_text

EPISODES_FILE = "episodes.jsonl"
"""In the folder of a run: an episode a line, some of every logged update."""

MOST_BYTES = 16 * 2**20
"""Of that file: beyond it, every second update is dropped and updates are recorded half as often."""

_MOST_DECISIONS, _MOST_ALTERNATIVES, _MOST_TOKENS = 64, 8, 2_000
_MOST_CONTEXT, _MOST_REPLY, _MOST_ALTERNATIVE = 2_000, 4_000, 500  # characters
_MOST_MESSAGES, _MOST_CALLS = 8, 16
_WINDOW = 8  # tokens that are decoded together, so that a token is spelled as it is within a text


@dataclass(frozen=True, kw_only=True)
class CreditedReply:
    """Another reply at the context of a decision.

    Attributes:
        reply: its text.
        outcomes: of the episodes that went through it.
        credit: its own, the mean where its tokens have one each; `None` where it got none.
        calls: the tool calls in it, as `name(argument=value, ...)`.
        content: what it says beside them, where there are any.
    """

    reply: str
    outcomes: tuple[float, ...] = ()
    credit: float | None = None
    calls: tuple[str, ...] = ()
    content: str = ""


@dataclass(frozen=True, kw_only=True)
class CreditedDecision:
    """A decision and its credit, as people read it.

    Attributes:
        role, event: as in `Decision`.
        context: what the policy was given beyond earlier contexts and its own replies.
        reply: its text, without special tokens.
        tokens: how many the reply has; 0 where they are not known.
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
        calls, content: as in `CreditedReply`.
        messages: the role and the text of each message that was new to the policy, the last ones, where tools were
            offered; results of tools are among them.
        messages_left_out: how many more there were.
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
    calls: tuple[str, ...] = ()
    content: str = ""
    messages: tuple[tuple[str, str], ...] = ()
    messages_left_out: int = 0


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
    tokenizer: PreTrainedTokenizerBase | None,
    alternatives: Sequence[Sequence[CreditedReply]] = (),
    outcomes: Sequence[Sequence[float]] = (),
    beside: Mapping[str, Mapping[str, float]] | None = None,
    interaction: Interaction[Any] | None = None,
    **facts: Any,
) -> CreditedEpisode:
    """An episode, the credit of its decisions and what else was tried there, to look at.

    Args:
        episode: as it was played.
        credit: of each of its decisions.
        tokenizer: of the policy; `None` where tokens are not known.
        alternatives: other replies at the context of each decision; none if left out.
        outcomes: of the episodes that went through each decision; the episode's own if left out.
        beside: the credit that other methods give, by method and the id of a decision.
        interaction: that was played: where it offers tools, calls and messages are told apart.
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
    asked = asked_anew(interaction, episode) if interaction is not None else [None] * count
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
            **_with_tools(decision, new, tokenizer),
        )
        for place, (decision, own, new) in enumerate(zip(episode.decisions, credit, asked, strict=True))
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
    tokenizer: PreTrainedTokenizerBase | None,
    update: int = 0,
    instances: int | None = None,
    beside: Mapping[str, Mapping[str, float]] | None = None,
    interaction: Interaction[Any] | None = None,
) -> list[CreditedEpisode]:
    """The trained episodes of an update with the credit of their decisions and what else was tried at their contexts.

    Alternatives at a context are the decisions of one instance, event type and context, in all episodes that were
    scored, whether or not they are trained on.

    Args:
        collected: what one process played.
        credit: of its trained samples, as in `Credit.decisions`.
        tokenizer, interaction: as for `credited_episode`.
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
            reply=one.decision.action_text,
            outcomes=one.outcomes,
            credit=one_number(given.get(one.decision.id)),
            **_calls(one.decision, offered(interaction, one.decision), tokenizer),
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
                interaction,
                update=update,
                instance=sample.instance,
            )
        )
    return found


def asked_anew(interaction: Interaction[Any], episode: Episode) -> list[Request | None]:
    """What was asked for at each decision, with the messages alone that the one before it of its event had not, nor
    was answered with; `None` where nothing was.

    Args:
        interaction: that was played.
        episode: as it was played.
    """
    found: list[Request | None] = []
    before: dict[str, list[Mapping[str, Any]]] = {}
    for decision in episode.decisions:
        request = _request(interaction, decision)
        messages = [] if request is None else list(request.messages)
        pairs = itertools.takewhile(
            lambda pair: pair[0] == pair[1], zip(before.get(decision.event, []), messages, strict=False)
        )
        shared = len(list(pairs))
        found.append(None if request is None else replace(request, messages=messages[shared:]))
        before[decision.event] = [*messages, {"role": "assistant", "content": decision.action_text}]
    return found


def offered(interaction: Interaction[Any] | None, decision: Decision) -> Sequence[Mapping[str, Any]]:
    """The tools that were offered for a decision; none where nobody knows."""
    request = None if interaction is None else _request(interaction, decision)
    return () if request is None else request.tools


def _request(interaction: Interaction[Any], decision: Decision) -> Request | None:
    if decision.state is None:  # a decision of rollouts that were made elsewhere
        return None
    return next((one for one in interaction.pending(decision.state) if one.event == decision.event), None)


def _with_tools(
    decision: Decision, new: Request | None, tokenizer: PreTrainedTokenizerBase | None
) -> Mapping[str, Any]:
    """What is told of a decision for which tools were offered."""
    if new is None or not new.tools:
        return {}
    messages = tuple((str(message["role"]), _message_in_words(message)) for message in new.messages)
    return {"messages": messages, **_calls(decision, new.tools, tokenizer)}


def _calls(
    decision: Decision, tools: Sequence[Mapping[str, Any]], tokenizer: PreTrainedTokenizerBase | None
) -> Mapping[str, Any]:
    """The tool calls of a decision, and what it says beside them."""
    if not tools:
        return {}
    text, ids, context = decision.action_text, decision.action_ids, decision.context_ids
    content, calls = read_reply(tokenizer, text, ids, context, tools)
    return {"calls": tuple(call_in_words(*call) for call in calls), "content": content} if calls else {}


def _message_in_words(message: Mapping[str, Any]) -> str:
    calls = [one.get("function", one) for one in message.get("tool_calls") or ()]
    told = [call_in_words(str(one.get("name")), one.get("arguments")) for one in calls]
    return "\n".join(one for one in (joined_parts(message.get("content")), *told) if one)


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
    tokenizer: PreTrainedTokenizerBase | None,
    **other: Any,
) -> CreditedDecision:
    verdict = decision.verdict
    of_tokens: tuple[tuple[str, float], ...] = ()
    if isinstance(credit, Sequence) and tokenizer is not None:
        of_tokens = token_credit(decision.action_ids[:_MOST_TOKENS], credit[:_MOST_TOKENS], tokenizer)
    return CreditedDecision(
        role=decision.role,
        event=decision.event,
        context=str(tokenizer.decode(list(context))) if context and tokenizer is not None else "",
        reply=decision.action_text,
        tokens=len(decision.action_ids) if tokenizer is not None else 0,
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
    messages = one.messages[-_MOST_MESSAGES:]
    return replace(
        one,
        context=cut(one.context, _MOST_CONTEXT),
        messages=tuple((role, cut(text, _MOST_CONTEXT)) for role, text in messages),
        messages_left_out=len(one.messages) - len(messages) + one.messages_left_out,
        reply=cut(one.reply, _MOST_REPLY),
        calls=_cut_calls(one.calls, _MOST_REPLY),
        content=cut(one.content, _MOST_REPLY),
        token_credit=one.token_credit[:_MOST_TOKENS],
        outcomes=one.outcomes[:_MOST_ALTERNATIVES],
        alternatives=tuple(
            replace(
                other,
                reply=cut(other.reply, _MOST_ALTERNATIVE),
                calls=_cut_calls(other.calls, _MOST_ALTERNATIVE),
                content=cut(other.content, _MOST_ALTERNATIVE),
                outcomes=other.outcomes[:_MOST_ALTERNATIVES],
            )
            for other in kept
        ),
        alternatives_left_out=len(one.alternatives) - len(kept) + one.alternatives_left_out,
    )


def _cut_calls(calls: Sequence[str], most: int) -> tuple[str, ...]:
    return tuple(cut(call, most) for call in calls[:_MOST_CALLS])


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
