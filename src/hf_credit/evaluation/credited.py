"""Episodes with the credit of their decisions, for readers, and the file of a run that records some of them."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from hf_credit.boundary import Range, read
from hf_credit.collectors import RolloutBatch
from hf_credit.content import Content, Text, content_of, joined
from hf_credit.environments.actions import call_in_words
from hf_credit.pictures import apart, keep, kept
from hf_credit.rollouts import Context, Decision, Episode, Interaction, Request
from hf_credit.rollouts.buckets import alternatives
from hf_credit.rollouts.capabilities import Replayable
from hf_credit.rollouts.reply_parts import read_tokens
from hf_credit.rollouts.rows import DecisionCredit, DecisionCredits, one_number
from hf_credit.safe_io import parse_json, read_text
from hf_credit.words import cut, plain

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

EPISODES_FILE = "episodes.jsonl"
"""The file in the folder of a run with some episodes of each logged update, one per line; its images are files in
`pictures`, next to it (`hf_credit.pictures`)."""

_MAX_DECISIONS, _MAX_ALTERNATIVES, _MAX_TOKENS = 64, 8, 2_000
_MAX_CONTEXT, _MAX_REPLY, _MAX_ALTERNATIVE, _MAX_STATE = 2_000, 4_000, 500, 20_000  # characters
_MAX_MESSAGES, _MAX_CALLS = 8, 16
_WINDOW = 8  # tokens that are decoded together, so that each is written as in the whole text

Number = Annotated[int, Range(0)]


@dataclass(frozen=True, kw_only=True)
class CreditedReply:
    """A reply at the context of a decision.

    Attributes:
        reply: its text.
        outcomes: the outcomes of the episodes with this reply.
        credit: its advantage, the mean if tokens have their own; `None` without credit.
        calls: its tool calls, as `name(argument=value, ...)`.
        content: its text without the tool calls, if it has any.
    """

    reply: str
    outcomes: tuple[float, ...] = ()
    credit: float | None = None
    calls: tuple[str, ...] = ()
    content: str = ""


R = TypeVar("R", bound=CreditedReply)


@dataclass(frozen=True, kw_only=True)
class CreditedDecision(CreditedReply):
    """A decision and its credit, for readers; its reply is without special tokens, its credit `None` if untrained.

    Attributes:
        role, event: as in `Decision`.
        context: the new part of its context, without earlier contexts and replies.
        tokens: the number of tokens of the reply; 0 if they are not known.
        reward: the reward of the step.
        verdict: the oracle's score; `None` without an oracle.
        valid: whether the oracle accepts it; `None` without an oracle.
        beside: the credit that other methods assign to it, by method, each in its own unit.
        token_credit: the first pieces of the reply with their credit, if tokens have their own.
        alternatives: other replies at the same context.
        alternatives_left_out: the number of omitted alternatives.
        inherited: whether an earlier episode of the update contains the same decision.
        messages: role and content of the last new messages, if the task is known; a tool's result names its call.
        messages_left_out: the number of omitted new messages.
    """

    role: str
    event: str
    context: str
    tokens: Number = 0
    reward: float = 0.0
    verdict: float | None = None
    valid: bool | None = None
    beside: Mapping[str, float | None] = field(default_factory=dict)
    token_credit: tuple[tuple[str, float], ...] = ()
    alternatives: tuple[CreditedReply, ...] = ()
    alternatives_left_out: Number = 0
    inherited: bool = False
    messages: tuple[tuple[str, Content], ...] = ()
    messages_left_out: Number = 0


@dataclass(frozen=True, kw_only=True)
class CreditedEpisode:
    """An episode and the credit of its decisions, for readers.

    Attributes:
        decisions: its decisions, in order.
        outcome: its outcome; `None` if it was not scored.
        ending, error, metrics: as in `Episode`; files contain `None` for a metric that is not finite.
        update, instance: the number of its update, from 1 (0 outside training), and the index of its task there.
        decisions_left_out, begun: the number of omitted decisions, and of steps of its task before all of them.
        state: its first state as text, from which it can be played again; empty if it is not known.
        chosen: why this episode of its update was kept; empty if all were.
    """

    decisions: tuple[CreditedDecision, ...]
    outcome: float | None
    ending: str
    error: str | None = None
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    update: Number = 0
    instance: Number = 0
    decisions_left_out: Number = 0
    begun: Number = 0
    state: str = ""
    chosen: str = ""

    def to_json(self, folder: Path | None = None) -> str:
        """Writes the episode as one line of strict JSON, which `from_json` reads.

        Args:
            folder: where its images are kept, each once; by default the line has them.
        """
        if folder is not None:
            return keep(replace(self, state=keep(self.state, folder)).to_json(), folder)
        return json.dumps(plain(self, digits=6), separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, text: str, folder: Path | None = None) -> CreditedEpisode:
        """Reads an episode that `to_json` wrote, with the same folder.

        Raises:
            ValueError: the text is not such an episode, or an image is not in the folder.
        """
        if folder is not None:
            episode = cls.from_json(kept(text, folder))
            return replace(episode, state=kept(episode.state, folder))
        try:
            return read(cls, parse_json(text, broken_text=True), "an episode")  # type: ignore[no-any-return]
        except ValueError as error:
            raise ValueError(
                f"an episode with its credit must be written by CreditedEpisode.to_json, got {str(error)[:1000]}; "
                "record it again."
            ) from None

    def shortened(self) -> CreditedEpisode:
        """Returns the episode with at most 64 decisions, 8 alternatives for each, shortened texts, no long state."""
        kept = tuple(_shortened_decision(one) for one in self.decisions[:_MAX_DECISIONS])
        state = self.state if len(apart(self.state)[0]) <= _MAX_STATE else ""
        return replace(self, decisions=kept, decisions_left_out=len(self.decisions) - len(kept), state=state)

    @property
    def whole(self) -> bool:
        """Whether it has its first state and all of its replies, none of them shortened."""
        kept = all(len(decision.reply) <= _MAX_REPLY for decision in self.decisions)
        return bool(self.state) and kept and not self.decisions_left_out


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
    """Builds the view of an episode with the credit and the alternatives of its decisions.

    Args:
        credit: the credit of each decision.
        tokenizer: of the policy; `None` if tokens are not known.
        alternatives: other replies at the context of each decision; by default none.
        outcomes: the outcomes of the episodes with each decision; by default that of the episode.
        beside: the credit that other methods assign, by method and decision id.
        interaction: the task, which knows messages and tools.
        **facts: `update` and `instance`, if known.

    Raises:
        ValueError: `credit`, `alternatives` or `outcomes` does not have one entry per decision.
    """
    count = len(episode.decisions)
    for name, given in (("credit", credit), ("alternatives", alternatives), ("outcomes", outcomes)):
        if len(given) != count and (given or name == "credit"):
            raise ValueError(
                f"{name} must have one entry per decision, got {len(given)} for {count} decisions; pass None for a "
                "decision without."
            )
    outcome = None if math.isnan(episode.outcome) else episode.outcome
    decisions = tuple(
        _credited(
            decision,
            new_context(episode.decisions[:place], decision),
            own,
            tokenizer,
            alternatives=tuple(alternatives[place]) if alternatives else (),
            outcomes=tuple(outcomes[place]) if outcomes else (() if outcome is None else (outcome,)),
            inherited=place < episode.prefix_length,
            beside={name: given[decision.id] for name, given in (beside or {}).items() if decision.id in given},
            **_asked(decision, asked, tokenizer),
        )
        for place, (decision, own, asked) in enumerate(
            zip(episode.decisions, credit, requests_of(interaction, episode), strict=True)
        )
    )
    return CreditedEpisode(
        decisions=decisions,
        outcome=outcome,
        ending=str(episode.ending),
        error=episode.error,
        metrics=dict(episode.metrics),
        begun=episode.steps_before,
        state=_first_state(interaction, episode),
        **facts,
    )


def _first_state(interaction: Interaction[Any] | None, episode: Episode) -> str:
    if interaction is None or not episode.decisions or episode.decisions[0].state is None:
        return ""
    with suppress(ValueError):  # of states that stay in the process
        return Replayable(interaction).state_to_json(episode.decisions[0].state)
    return ""


def credited_episodes(
    collected: RolloutBatch,
    credit: DecisionCredits,
    tokenizer: PreTrainedTokenizerBase | None,
    update: int = 0,
    instances: int | None = None,
    beside: Mapping[str, Mapping[str, float]] | None = None,
    interaction: Interaction[Any] | None = None,
    only: int | None = None,
) -> list[CreditedEpisode]:
    """Builds the views of the trained episodes of an update, with the credit and the alternatives of their decisions.

    Alternatives are the decisions with the same instance, event type and context in all scored episodes, whether or
    not these are trained on.

    Args:
        credit: for each trained episode, the credit of each decision, as in `Credit.decisions`.
        tokenizer, interaction: as in `credited_episode`.
        update: the number of the update.
        instances: the number of task rows, those with the largest credit, each with its trained episode that has it;
            by default all trained episodes.
        beside: as in `credited_episode`.
        only: the index of the one trained episode to show; by default all.
    """
    chosen, why = list(collected.trained if only is None else collected.trained[only : only + 1]), ""
    if instances is not None:
        sizes = [max(map(_size, own), default=-1.0) for own in credit]
        by_size = sorted(range(len(chosen)), key=lambda place: -sizes[place])  # the first of equal ones
        best = {chosen[place].instance: chosen[place] for place in reversed(by_size)}
        tasks = list(dict.fromkeys(chosen[place].instance for place in by_size))
        kept = sorted(tasks[:instances])
        chosen = [best[task] for task in kept]
        why = f"the largest credit of its task, which is one of the {len(kept)} tasks of {len(tasks)} with the largest"
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
            **_calls(one.decision, _request(interaction, one.decision), tokenizer),
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
                chosen=why,
            )
        )
    return found


def requests_of(interaction: Interaction[Any] | None, episode: Episode) -> list[tuple[Request, int] | None]:
    """Returns the request of each decision, if known, and the number of its messages that are not new: those of the
    previous decision of the same event type, and its reply."""
    found: list[tuple[Request, int] | None] = []
    before: dict[str, Sequence[Mapping[str, Any]]] = {}
    for decision in episode.decisions:
        if (request := _request(interaction, decision)) is None:
            found.append(None)
            continue
        messages, known = request.messages, before.get(decision.event, ())
        pairs = enumerate(zip(known, messages, strict=False))
        shared = next((place for place, (a, b) in pairs if a != b), min(len(known), len(messages)))
        replied = known and shared == len(known) < len(messages) and messages[shared]["role"] == "assistant"
        found.append((request, shared + bool(replied)))  # the reply is written as the task has it
        before[decision.event] = messages
    return found


def _request(interaction: Interaction[Any] | None, decision: Decision) -> Request | None:
    if interaction is None or decision.state is None:  # the rollout is from elsewhere
        return None
    return next((one for one in interaction.pending(decision.state) if one.event == decision.event), None)


def _asked(
    decision: Decision, asked: tuple[Request, int] | None, tokenizer: PreTrainedTokenizerBase | None
) -> Mapping[str, Any]:
    """Returns the new messages of a decision and its tool calls, if they are known."""
    if asked is None:
        return {}
    request, shared = asked
    calls = {call.get("id"): _in_words(call) for one in request.messages for call in one.get("tool_calls") or ()}
    messages = []
    for message in request.messages[shared:]:
        answered = calls.get(message.get("tool_call_id") or "")
        said = [content_of(message.get("content")), *map(_in_words, message.get("tool_calls") or ())]
        role = str(message["role"]) if answered is None else f"{message['role']}, result of {answered}"
        messages.append((role, joined(filter(None, said))))
    return {"messages": tuple(messages), **_calls(decision, request, tokenizer)}


def _in_words(call: Mapping[str, Any]) -> str:
    function = call.get("function", call)
    arguments = function.get("arguments")
    with suppress(ValueError, TypeError):
        arguments = parse_json(arguments)  # as in logs
    return call_in_words(str(function.get("name")), arguments)


def _calls(
    decision: Decision, request: Request | None, tokenizer: PreTrainedTokenizerBase | None
) -> Mapping[str, Any]:
    """Returns the tool calls of a decision and its other text, if its request offers tools."""
    if request is None or not request.tools:
        return {}
    text, ids, context = decision.action_text, decision.action_ids, decision.context_ids
    said = read_tokens(tokenizer, text, ids, context, request.tools)
    calls = tuple(
        call_in_words(call.name, call.written if call.why else call.arguments) for call in said.made if call.name
    )
    return {"calls": calls, "content": said.content} if calls else {}


def read_episodes(folder: str | Path) -> list[CreditedEpisode]:
    """Reads the episodes that a run recorded in training, in the order of updates; none without the file.

    Raises:
        ValueError: the file does not contain such episodes.
    """
    path = Path(folder) / EPISODES_FILE
    if not path.is_file():
        return []
    lines = read_text(path).split("\n")[:-1]  # the last line may be incomplete while the run continues
    try:
        return [CreditedEpisode.from_json(line, path.parent) for line in lines]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _size(credit: DecisionCredit) -> float:
    """Returns the largest absolute credit of a decision or of its tokens; -1 without any."""
    values = credit if isinstance(credit, Sequence) else () if credit is None else (credit,)
    return max(map(abs, values), default=-1.0)


def spread(credits: Iterable[float | None]) -> float:
    """Returns the range of the known credits; -1 without any."""
    known = [credit for credit in credits if credit is not None]
    return max(known) - min(known) if known else -1.0


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
        of_tokens = token_credit(decision.action_ids[:_MAX_TOKENS], credit[:_MAX_TOKENS], tokenizer)
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
    """Returns pieces of the text with their credit: one per token, or the mean of tokens that form a character.

    Args:
        ids: the tokens of a reply, including special tokens.
        credit: the credit of each token.
    """
    pieces: list[tuple[str, float]] = []
    begun = 0
    for end in range(1, len(ids) + 1):
        first = max(0, begun - _WINDOW)
        before = str(tokenizer.decode(list(ids[first:begun]))) if begun > first else ""
        text = str(tokenizer.decode(list(ids[first:end])))[len(before) :]
        if text.endswith("\ufffd") and end < len(ids) and end - begun < _WINDOW:
            continue  # an incomplete character
        credits = credit[begun:end]
        pieces.append((text, sum(credits) / len(credits)))
        begun = end
    return tuple(pieces)


def new_context(before: Sequence[Decision], decision: Decision) -> Context:
    """Returns the tokens of a context after an earlier decision's context and, if they keep it, its reply."""
    for earlier in reversed(before):
        for known in (earlier.context_ids + earlier.action_ids, earlier.context_ids):
            if len(known) < len(decision.context_ids) and decision.context_ids[: len(known)] == known:
                return decision.context_ids[len(known) :]
    return decision.context_ids


def with_few_alternatives(one: CreditedDecision) -> CreditedDecision:
    """Returns a decision with at most 8 alternatives, and counts those that are left out."""
    left_out = max(len(one.alternatives) - _MAX_ALTERNATIVES, 0) + one.alternatives_left_out
    return replace(one, alternatives=one.alternatives[:_MAX_ALTERNATIVES], alternatives_left_out=left_out)


def _shortened_decision(one: CreditedDecision) -> CreditedDecision:
    one, messages = with_few_alternatives(one), one.messages[-_MAX_MESSAGES:]
    return replace(
        _shortened(one, _MAX_REPLY),
        context="" if messages else cut(one.context, _MAX_CONTEXT),  # the messages say the same
        messages=tuple((role, _cut(content)) for role, content in messages),
        messages_left_out=len(one.messages) - len(messages) + one.messages_left_out,
        token_credit=one.token_credit[:_MAX_TOKENS],
        alternatives=tuple(_shortened(other, _MAX_ALTERNATIVE) for other in one.alternatives),
    )


def _cut(content: Any) -> Any:
    if isinstance(content, tuple):
        return tuple(map(_cut, content))
    if isinstance(content, Text):
        return Text(cut(content.text, _MAX_CONTEXT))
    return cut(content, _MAX_CONTEXT) if isinstance(content, str) else content


def _shortened(one: R, most: int) -> R:
    return replace(
        one,
        reply=cut(one.reply, most),
        calls=tuple(cut(call, most) for call in one.calls[:_MAX_CALLS]),
        content=cut(one.content, most),
        outcomes=one.outcomes[:_MAX_ALTERNATIVES],
    )
