"""What every message is worth under a policy, by enumeration: the truth that estimates of credit are measured with.

It is for policies and replies so small that every reply can be looked at: a micro policy and two tokens, say.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from hf_credit.rollouts import Chat, Interaction, Request
from hf_credit.rollouts.reply_ends import end_tokens

S = TypeVar("S")
Policies = PreTrainedModel | Callable[[str], AbstractContextManager[PreTrainedModel]]
"""The policy of all roles; or what opens that of a role, such as
`lambda role: hf_credit.policies.role_policies.using(model, role)` where roles have adapters."""
Vector = NDArray[np.float64]

_BATCH_TOKENS = 2**16
# The place of a context, the tokens of a reply so far, and their probability.
_Open = tuple[int, tuple[int, ...], float]


@dataclass(frozen=True, kw_only=True)
class ExactValues:
    """A decision: every reply a to its context h, with the policy as the continuation.

    Replies are keyed by their text, as `Decision.action_text` has it; several token sequences may read the same.
    Those left out for their improbability count as worth 0, so that every value is a lower bound, and with outcomes
    in [0, 1] the true one is at most `errors[text]`, or `error`, above it. Nothing is left out where `floor` was 0.

    Attributes:
        probabilities: pi(a | h).
        values: Q(h, a), the expected outcome after the reply (paper C3, eq. 17).
        errors: how far above `values` the truth can be.
    """

    probabilities: Mapping[str, float]
    values: Mapping[str, float]
    errors: Mapping[str, float]

    @property
    def covered(self) -> float:
        """The probability of the replies that were looked at, 1 if all were."""
        return sum(self.probabilities.values())

    @property
    def value(self) -> float:
        """V(h) = sum over a of pi(a | h) Q(h, a) (paper C3, eq. 19)."""
        return sum(probability * self.values[text] for text, probability in self.probabilities.items())

    @property
    def error(self) -> float:
        """How far above `value` the truth can be."""
        known = sum(probability * self.errors[text] for text, probability in self.probabilities.items())
        return known + max(0.0, 1 - self.covered)

    def advantage(self, text: str) -> float:
        """A*(h, a) = Q(h, a) - V(h) (paper C3, eq. 20).

        Args:
            text: a reply, as `Decision.action_text` has it.

        Raises:
            ValueError: the reply was not looked at.
        """
        if text not in self.values:
            raise ValueError(
                f"a reply must be one that the policy gives with a probability of at least the floor, got {text!r}; "
                "lower the floor."
            )
        return self.values[text] - self.value


class Expectations(Generic[S]):
    """The expectations of a policy from any state on, by enumeration of all that can be reached from there.

        Q(s, a) = c(s, a) + sum over ways s' of P(s' | s, a) V(s'),   V(s) = sum over a of pi(a | s) Q(s, a)

    and V(s) is what an episode is worth that ended in s. Values are vectors. Their last number is the error: how
    likely the policy does what is not looked into, which counts as worth 0. With worths in [0, 1] and no costs the
    truth is at most that far above a value.

    States must be hashable, and are valued once. The policy is asked about all states of a level at once.

    Args:
        policy: for each of several states that are not over, the probability of each action that is looked into; what
            these lack to 1 is that of everything else.
        ways: what an action may lead to: probabilities, which sum to 1, and states.
        ended: V of a state that ended an episode, its error included; `None` of any other.
        size: how many numbers a vector has.
        cost: c(s, a), a vector too; nothing if `None`.
    """

    def __init__(
        self,
        policy: Callable[[Sequence[S]], Sequence[Mapping[str, float]]],
        ways: Callable[[S, str], Sequence[tuple[float, S]]],
        ended: Callable[[S], Sequence[float] | None],
        size: int = 2,
        cost: Callable[[S, str], Vector] | None = None,
    ) -> None:
        self.shares: dict[S, Mapping[str, float]] = {}
        self._policy, self._ways, self._ended, self._size, self._cost = policy, ways, ended, size, cost
        self._values: dict[S, Vector] = {}
        self._entered: set[S] = set()

    def values(self, state: S) -> Vector:
        """V(s)."""
        if state not in self._values:
            self.evaluate([state])
        return self._values[state]

    def action_values(self, state: S, action: str) -> Vector:
        """Q(s, a), whether or not the policy would take the action."""
        total: Any = 0.0 if self._cost is None else self._cost(state, action)
        for probability, after in self._ways(state, action):
            total = total + probability * self.values(after)
        return cast(Vector, total)

    def evaluate(self, states: Iterable[S]) -> None:
        """Values states, and all that can be reached from them: first the policy is asked, level by level, then values
        follow from the last level back. `shares` then holds what the policy said.

        Raises:
            ValueError: an episode returns to a state, or what the policy said are no probabilities.
        """
        level, levels = dict.fromkeys(state for state in states if state not in self._values), []
        while level:
            levels.append(level)
            active = []
            for state in level:
                if (worth := self._ended(state)) is None:
                    active.append(state)
                else:
                    self._values[state] = np.array(worth, dtype=float)
            for state, shares in zip(active, self._policy(active) if active else [], strict=True):
                self.shares[state] = _checked(shares)
            level = dict.fromkeys(
                after
                for state in active
                for action in self._taken(state)
                for _, after in self._ways(state, action)
                if after not in self._values and after not in self.shares
            )
        for level in reversed(levels):
            for state in level:
                self._settle(state)

    def _settle(self, state: S) -> None:
        if state in self._values:
            return
        if state in self._entered:
            raise ValueError(
                f"exact values need episodes that never return to a state, got {state!r} twice; count turns in it."
            )
        self._entered.add(state)
        mean = np.zeros(self._size)
        for action in self._taken(state):
            # On ways of different length a state may be reached before one that it needs.
            for _, after in self._ways(state, action):
                self._settle(after)
            mean += self.shares[state][action] * self.action_values(state, action)
        mean[-1] += max(1 - sum(self.shares[state].values()), 0.0)
        self._values[state] = mean

    def _taken(self, state: S) -> list[str]:
        return [action for action, share in self.shares[state].items() if share]


def exact_values(
    interaction: Interaction[S],
    chat: Chat,
    model: Policies,
    states: Sequence[S],
    *,
    max_new_tokens: int = 2,
    temperature: float = 1.0,
    floor: float = 0.0,
) -> list[ExactValues]:
    """The exact values of every reply in each state, the policy sampling from all of its vocabulary.

    A decision costs about (vocabulary size)^(max_new_tokens - 1) passes of the model, to the power of how many
    decisions there are until the end, less what has the same state after it or is below `floor`. Of a relay task
    of ten numbers and replies of two tokens, a floor of 1e-4 bounds the errors by about 0.01 and one of 1e-5 by about
    0.002.

    Args:
        interaction: what is played, by one speaker at a time.
        chat: renders the contexts. They are rendered anew in every state, so this is right where no conversation
            continues an earlier one, as in a `Collaboration`.
        model: the policy of all roles, or what opens that of a role; used in evaluation mode.
        states: with somebody to reply.
        max_new_tokens: the longest reply in tokens, its end included; the policy's sampler must have the same limit.
        temperature: of the sampling, above 0.
        floor: sequences of tokens with a smaller probability are left out, in [0, 1).

    Returns:
        One for each state.

    Raises:
        ValueError: nobody or more than one is to reply in a state, or a number is out of range.
    """
    limits: dict[str, Any] = {"max_new_tokens": max_new_tokens, "temperature": temperature, "floor": floor}
    _refuse_limits(**limits)
    for state in states:
        _only_request(interaction, state)
    after = functools.cache(lambda state, text: interaction.advance(state, [text]))
    play = Expectations[S](
        lambda asked: reply_probabilities(chat, model, [_only_request(interaction, one) for one in asked], **limits),
        ways=lambda state, text: ((1.0, after(state, text)),),
        ended=lambda state: None if interaction.pending(state) else (float(interaction.outcome(state)), 0.0),
    )
    play.evaluate(states)
    found = []
    for state in states:
        later = {text: play.action_values(state, text).tolist() for text in play.shares[state]}
        found.append(
            ExactValues(
                probabilities=play.shares[state],
                values={text: value for text, (value, _) in later.items()},
                errors={text: error for text, (_, error) in later.items()},
            )
        )
    return found


def reply_probabilities(
    chat: Chat,
    model: Policies,
    requests: Sequence[Request],
    *,
    max_new_tokens: int = 2,
    temperature: float = 1.0,
    floor: float = 0.0,
) -> list[dict[str, float]]:
    """The probability of every reply to each request, by its text.

    Args:
        requests: of any roles; each is rendered as the first of its conversation.
        chat, model, max_new_tokens, temperature, floor: as in `exact_values`.

    Raises:
        ValueError: a number is out of range.
    """
    _refuse_limits(max_new_tokens, temperature, floor)
    asked = [(request.role, chat.context(request.messages, tools=request.tools)) for request in requests]
    found: dict[tuple[str, tuple[int, ...]], dict[str, float]] = {}
    shared = isinstance(model, torch.nn.Module)
    for role in dict.fromkeys("" if shared else role for role, _ in asked):
        contexts = list(dict.fromkeys(context for other, context in asked if shared or other == role))
        opened: AbstractContextManager[Any] = nullcontext(model) if shared else cast(Any, model)(role)
        with opened as policy:
            in_training = policy.training
            policy.eval()
            try:
                ends = torch.tensor(end_tokens(policy, chat.tokenizer))
                sequences = _enumerate(policy, contexts, ends, max_new_tokens, temperature, floor)
            finally:
                policy.train(in_training)
        by_text = _texts(chat, sequences)
        found |= {(role, context): texts for context, texts in zip(contexts, by_text, strict=True)}
    return [found["" if shared else role, context] for role, context in asked]


def _refuse_limits(max_new_tokens: int, temperature: float, floor: float) -> None:
    if max_new_tokens < 1 or temperature <= 0 or not 0 <= floor < 1:
        raise ValueError(
            "exact values need max_new_tokens >= 1, temperature > 0 and 0 <= floor < 1, got "
            f"{max_new_tokens}, {temperature} and {floor}; correct the one that is out of range."
        )


def _only_request(interaction: Interaction[S], state: S) -> Request:
    requests = interaction.pending(state)
    if len(requests) != 1:
        events = ", ".join(request.event for request in requests) or "nobody"
        raise ValueError(
            f"exact values need one speaker at a time, got {events}; choose states in which just one replies, or take "
            "hf_credit.collaborations.exact_coalitions for a vote."
        )
    return requests[0]


def _enumerate(
    model: PreTrainedModel,
    contexts: list[tuple[int, ...]],
    ends: Tensor,
    max_new_tokens: int,
    temperature: float,
    floor: float,
) -> list[dict[tuple[int, ...], float]]:
    """The probability of each reply to each context, replies in tokens."""
    replies: list[dict[tuple[int, ...], float]] = [{} for _ in contexts]
    open_ends: list[_Open] = [(place, (), 1.0) for place in range(len(contexts))]
    for length in range(1, max_new_tokens + 1):
        longer: list[_Open] = []
        for part in _alike(contexts, open_ends):
            ids = torch.tensor([[*contexts[place], *reply] for place, reply, _ in part], device=model.device)
            before = torch.tensor([probability for _, _, probability in part], dtype=torch.float64)
            after = before[:, None] * _next_token(model, ids, temperature)
            ended = torch.isin(torch.arange(after.shape[1]), ends) if length < max_new_tokens else torch.tensor(True)
            kept = (after >= floor) & (after > 0)
            for row, token, over, probability in zip(
                *kept.nonzero().T.tolist(), ended.expand_as(after)[kept].tolist(), after[kept].tolist(), strict=True
            ):
                place, reply, _ = part[row]
                if over:
                    replies[place][*reply, token] = probability
                else:
                    longer.append((place, (*reply, token), probability))
        open_ends = longer
    return replies


def _alike(contexts: list[tuple[int, ...]], open_ends: list[_Open]) -> Iterator[list[_Open]]:
    """Batches of one length each, so that none needs padding."""
    by_length: dict[int, list[_Open]] = {}
    for place, reply, probability in open_ends:
        by_length.setdefault(len(contexts[place]) + len(reply), []).append((place, reply, probability))
    for length, alike in by_length.items():
        size = max(1, _BATCH_TOKENS // length)
        yield from (alike[first : first + size] for first in range(0, len(alike), size))


@torch.inference_mode()
def _next_token(model: PreTrainedModel, ids: Tensor, temperature: float) -> Tensor:
    """Of shape (sequences, vocabulary)."""
    logits = cast(Any, model)(input_ids=ids, logits_to_keep=1, use_cache=False).logits[:, -1]
    return (logits.double().cpu() / temperature).softmax(dim=-1)


def _texts(chat: Chat, sequences: list[dict[tuple[int, ...], float]]) -> list[dict[str, float]]:
    """The same probabilities by text."""
    distinct = list(dict.fromkeys(ids for replies in sequences for ids in replies))
    text_of = dict(zip(distinct, chat.texts(distinct) if distinct else [], strict=True))
    by_text: list[dict[str, float]] = []
    for replies in sequences:
        texts: dict[str, float] = {}
        for ids, probability in replies.items():
            texts[text_of[ids]] = texts.get(text_of[ids], 0.0) + probability
        by_text.append(texts)
    return by_text


def _checked(shares: Mapping[str, float]) -> Mapping[str, float]:
    if any(not share >= 0 for share in shares.values()) or sum(shares.values()) > 1 + 1e-6:
        raise ValueError(
            f"a policy's probabilities must be at least 0 and sum to at most 1, got {dict(shares)}; normalise them."
        )
    return shares
