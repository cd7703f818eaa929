"""Exact values of all messages under a small policy, by enumeration of short replies: to compare estimates with."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, Generic, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from hf_credit.playing import Sampling
from hf_credit.rollouts import Chat, Interaction, Request
from hf_credit.rollouts.reply_ends import end_tokens
from hf_credit.validators import finite_number

S = TypeVar("S")
Policies = PreTrainedModel | Callable[[str], AbstractContextManager[PreTrainedModel]]
"""The policy of all roles; or a function that opens the policy of a role, such as
`lambda role: hf_credit.policies.role_policies.using(model, role)` for roles with adapters."""
Vector = NDArray[np.float64]

_BATCH_TOKENS = 2**16
# The index of a context, the tokens of a reply so far, and their probability.
_Open = tuple[int, tuple[int, ...], float]


@dataclass(frozen=True, kw_only=True)
class ExactValues:
    """The values of all replies a to a context h, under the policy.

    The keys are texts, as in `Decision.action_text`; several token sequences may have one text. Replies omitted as
    improbable count as 0, so every value is a lower bound; with outcomes in [0, 1] the true value is at most
    `errors[text]`, or `error`, above it. With a `floor` of 0 nothing is omitted.
    """

    probabilities: Mapping[str, float]  # pi(a | h)
    values: Mapping[str, float]  # Q(h, a), the expected outcome after the reply (paper C3, eq. 17).
    errors: Mapping[str, float]  # upper bounds of the true values minus `values`

    @property
    def covered(self) -> float:
        """The probability of the enumerated replies, 1 if none is omitted."""
        return sum(self.probabilities.values())

    @property
    def value(self) -> float:
        """V(h) = sum over a of pi(a | h) Q(h, a) (paper C3, eq. 19)."""
        return sum(probability * self.values[text] for text, probability in self.probabilities.items())

    @property
    def error(self) -> float:
        """The upper bound of the true value minus `value`."""
        known = sum(probability * self.errors[text] for text, probability in self.probabilities.items())
        return known + max(0.0, 1 - self.covered)

    def error_of(self, text: str) -> float:
        """Returns the upper bound of the error of `advantage`; infinite for a reply that is not enumerated."""
        return max(self.errors.get(text, math.inf), self.error)

    def advantage(self, text: str) -> float:
        """Returns A*(h, a) = Q(h, a) - V(h) (paper C3, eq. 20).

        Args:
            text: a reply, as in `Decision.action_text`.

        Raises:
            ValueError: the reply is not enumerated.
        """
        if text not in self.values:
            raise ValueError(f"a reply must have a probability of at least the floor, got {text!r}; lower the floor.")
        return self.values[text] - self.value


class Expectations(Generic[S]):
    """The expectations of a policy from any state, by enumeration of all reachable states.

        Q(s, a) = V(s'),   V(s) = sum over a of pi(a | s) Q(s, a)

    with s' the state after a in s, and V of a terminal state is its outcome. Values are vectors. The last component is
    the error: the probability of actions that are not enumerated, which count as 0. With outcomes in [0, 1] the true
    value is at most that much higher.

    States must be hashable, and are evaluated once. One call of the policy covers all states of a level.

    Args:
        policy: for each of several nonterminal states, the probabilities of the enumerated actions; the rest up to 1
            belongs to all other actions.
        after: the state after an action.
        terminal: V of a terminal state, with its error; `None` for any other state.

    Attributes:
        probabilities: by state, the result of the policy.
    """

    def __init__(
        self,
        policy: Callable[[Sequence[S]], Sequence[Mapping[str, float]]],
        after: Callable[[S, str], S],
        terminal: Callable[[S], Sequence[float] | None],
    ) -> None:
        self.probabilities: dict[S, Mapping[str, float]] = {}
        self._policy, self._after, self._terminal = policy, after, terminal
        self._values: dict[S, Vector] = {}

    def values(self, state: S) -> Vector:
        """Returns V(s)."""
        if state not in self._values:
            self.evaluate([state])
        return self._values[state]

    def action_values(self, state: S, action: str) -> Vector:
        """Returns Q(s, a), also for actions that the policy never takes."""
        return self.values(self._after(state, action))

    def evaluate(self, states: Iterable[S]) -> None:
        """Computes the values of states and all states reachable from them.

        It calls the policy level by level, then computes the values of successors before those of their predecessors.

        Raises:
            ValueError: an episode returns to a state, or the policy's probabilities are invalid.
        """
        level = dict.fromkeys(state for state in states if state not in self._values)
        successors: dict[S, dict[S, None]] = {}
        while level:
            active = []
            for state in level:
                if (value := self._terminal(state)) is None:
                    active.append(state)
                else:
                    self._values[state] = np.array(value, dtype=float)
            for state, probabilities in zip(active, self._policy(active) if active else [], strict=True):
                if any(not value >= 0 for value in probabilities.values()) or sum(probabilities.values()) > 1 + 1e-6:
                    raise ValueError(
                        "a policy's probabilities must be at least 0 and sum to at most 1, got "
                        f"{dict(probabilities)}; normalise them."
                    )
                self.probabilities[state] = probabilities
                successors[state] = dict.fromkeys(self._after(state, action) for action in self._taken(state))
            reached = (after for state in active for after in successors[state])
            level = dict.fromkeys(s for s in reached if s not in self._values and s not in successors)
        try:
            among = {state: [after for after in own if after in successors] for state, own in successors.items()}
            order = [*TopologicalSorter(among).static_order()]
        except CycleError as error:
            raise ValueError(
                f"exact values need episodes that never return to a state, got {error.args[1][0]!r} twice; count "
                "turns in it."
            ) from None
        for state in order:
            probabilities = self.probabilities[state]
            mean = np.zeros_like(next(iter(self._values.values()), np.zeros(2)))
            for action in self._taken(state):
                mean += probabilities[action] * self.action_values(state, action)
            mean[-1] += max(1 - sum(probabilities.values()), 0.0)
            self._values[state] = mean

    def _taken(self, state: S) -> list[str]:
        return [action for action, probability in self.probabilities[state].items() if probability]


def exact_values(
    interaction: Interaction[S],
    chat: Chat,
    model: Policies,
    states: Sequence[S],
    **limits: Any,
) -> list[ExactValues]:
    """Returns the exact values of every reply in each state, where the policy samples from its whole vocabulary.

    A decision costs about (vocabulary size)^(max_new_tokens - 1) passes of the model, to the power of the number of
    decisions until the end; equal later states and sequences below `floor` cost nothing. In a relay task of ten
    numbers with replies of two tokens, a floor of 1e-4 bounds the errors by about 0.01, and 1e-5 by about 0.002.

    Args:
        interaction: with one speaker at a time.
        chat: renders the contexts of every state from its messages, so no conversation may continue an earlier one;
            none does in a `Collaboration`.
        model: the policy of all roles, or a function that opens the policy of a role; used in evaluation mode.
        states: with a pending reply.
        **limits: `floor` and the sampling, as in `reply_probabilities`.

    Returns:
        The values of each state.

    Raises:
        ValueError: a state has no or several speakers, or a number is out of range.
    """
    for state in states:
        _only_request(interaction, state)
    after = functools.cache(lambda state, text: interaction.advance(state, [text]))
    expectations = Expectations[S](
        lambda active: reply_probabilities(chat, model, [_only_request(interaction, one) for one in active], **limits),
        after,
        terminal=lambda state: None if interaction.pending(state) else (float(interaction.outcome(state)), 0.0),
    )
    expectations.evaluate(states)
    results = []
    for state in states:
        probabilities = expectations.probabilities[state]
        values = {text: expectations.action_values(state, text).tolist() for text in probabilities}
        results.append(
            ExactValues(
                probabilities=probabilities,
                values={text: value for text, (value, _) in values.items()},
                errors={text: error for text, (_, error) in values.items()},
            )
        )
    return results


def reply_probabilities(
    chat: Chat,
    model: Policies,
    requests: Sequence[Request],
    *,
    floor: float = 0.0,
    **sampling: Any,
) -> list[dict[str, float]]:
    """Returns the probability of every reply to each request, by its text.

    Args:
        requests: of any roles; each is rendered as the first of its conversation.
        chat, model: as in `exact_values`.
        floor: in [0, 1); token sequences with a smaller probability are omitted.
        **sampling: the parameters of a `hf_credit.tasks.Sampling`, those of the policy's sampler; by default replies
            have at most two tokens, the end included.

    Raises:
        ValueError: a number is out of range, or replies are not drawn from the whole vocabulary.
    """
    drawn = Sampling(**{"max_new_tokens": 2, **sampling})
    drawn.require_whole()
    finite_number("floor", floor, 0, below=1)
    shared = isinstance(model, torch.nn.Module)
    keys = [
        ("" if shared else request.role, chat.context(request.messages, tools=request.tools)) for request in requests
    ]
    replies: dict[tuple[str, tuple[int, ...]], dict[str, float]] = {}
    for role in dict.fromkeys(role for role, _ in keys):
        contexts = list(dict.fromkeys(context for other, context in keys if other == role))
        opened: AbstractContextManager[Any] = nullcontext(model) if shared else cast(Any, model)(role)
        with opened as policy:
            in_training = policy.training
            policy.eval()
            try:
                ends = torch.tensor(end_tokens(policy, chat.tokenizer))
                sequences = _enumerate(policy, contexts, ends, drawn, floor)
            finally:
                policy.train(in_training)
        replies |= zip(((role, context) for context in contexts), _texts(chat, contexts, sequences), strict=True)
    return [replies[key] for key in keys]


def _only_request(interaction: Interaction[S], state: S) -> Request:
    requests = interaction.pending(state)
    if len(requests) != 1:
        events = ", ".join(request.event for request in requests) or "nobody"
        raise ValueError(
            f"exact values need one speaker at a time, got {events}; choose states with one speaker, or use "
            "hf_credit.collaborations.exact_coalitions for a vote."
        )
    return requests[0]


@torch.inference_mode()
def _enumerate(
    model: PreTrainedModel,
    contexts: list[tuple[int, ...]],
    ends: Tensor,
    drawn: Sampling,
    floor: float,
) -> list[dict[tuple[int, ...], float]]:
    replies: list[dict[tuple[int, ...], float]] = [{} for _ in contexts]
    open_ends: list[_Open] = [(index, (), 1.0) for index in range(len(contexts))]
    for length in range(1, drawn.max_new_tokens + 1):
        longer: list[_Open] = []
        for part in _batches(contexts, open_ends):
            ids = torch.tensor([[*contexts[index], *reply] for index, reply, _ in part], device=model.device)
            before = torch.tensor([probability for _, _, probability in part], dtype=torch.float64)
            logits = cast(Any, model)(input_ids=ids, logits_to_keep=1, use_cache=False).logits[:, -1]
            after = before[:, None] * (logits.double().cpu() / drawn.temperature).softmax(dim=-1)
            ended = (
                torch.isin(torch.arange(after.shape[1]), ends) if length < drawn.max_new_tokens else torch.tensor(True)
            )
            kept = (after >= floor) & (after > 0)
            for row, token, over, probability in zip(
                *kept.nonzero().T.tolist(), ended.expand_as(after)[kept].tolist(), after[kept].tolist(), strict=True
            ):
                index, reply, _ = part[row]
                if over:
                    replies[index][*reply, token] = probability
                else:
                    longer.append((index, (*reply, token), probability))
        open_ends = longer
    return replies


def _batches(contexts: list[tuple[int, ...]], open_ends: list[_Open]) -> Iterator[list[_Open]]:
    """Batches of sequences of equal length, which need no padding."""
    by_length: dict[int, list[_Open]] = {}
    for index, reply, probability in open_ends:
        by_length.setdefault(len(contexts[index]) + len(reply), []).append((index, reply, probability))
    for length, same_length in by_length.items():
        size = max(1, _BATCH_TOKENS // length)
        yield from (same_length[first : first + size] for first in range(0, len(same_length), size))


def _texts(
    chat: Chat, contexts: Sequence[tuple[int, ...]], sequences: list[dict[tuple[int, ...], float]]
) -> list[dict[str, float]]:
    distinct = list(dict.fromkeys(ids for replies in sequences for ids in replies))
    text_of = dict(zip(distinct, chat.texts(distinct) if distinct else [], strict=True))
    by_text: list[dict[str, float]] = []
    for context, replies in zip(contexts, sequences, strict=True):
        texts: dict[str, float] = {}
        for ids, probability in replies.items():
            text = chat.opened(context) + text_of[ids]
            texts[text] = texts.get(text, 0.0) + probability
        by_text.append(texts)
    return by_text
