"""Replay from the state before a recorded decision (paper C3, sections 3.1 and 3.2)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from hf_credit.rollouts.chat import Chat
from hf_credit.rollouts.conversations import Conversation
from hf_credit.rollouts.episode import Decision, Episode
from hf_credit.rollouts.interaction import Interaction, Request
from hf_credit.rollouts.running import RolloutRequest
from hf_credit.rollouts.samplers import Generation

S = TypeVar("S")


def context_key(text: str) -> int:
    """Returns the key of a context (paper C3, eq. 9 and Appendix C).

        key = BLAKE2b-64(UTF-8(text)) mod 2^63,   the digest read as a big-endian integer

    Args:
        text: the text of the context.

    Returns:
        An integer in [0, 2^63).
    """
    # UTF-8 has no encoding for half of a surrogate pair, which a truncated reply may contain.
    content = text.encode("utf-8", errors="surrogatepass")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") % 2**63


def replay_from(
    interaction: Interaction[S],
    chat: Chat,
    episode: Episode,
    index: int,
    *,
    reply: Generation | Decision | None = None,
    seed: int | None = None,
    fanout: Sequence[int] = (),
    stream: str | None = None,
) -> RolloutRequest[S]:
    """Returns a request that starts right before a recorded decision, with its state and exactly its context tokens.

    Simultaneous decisions of other roles are sampled again.

    Args:
        interaction: the Interaction of the episode.
        chat: the chat that rendered its contexts.
        episode: the recorded episode.
        index: the index of the decision in the episode.
        reply: a fixed reply, or a decision with this reply; sampled if `None`.
        seed: the new seed of the state; the recorded one if `None`.
        fanout, stream: as in `RolloutRequest`.

    Raises:
        IndexError: `index` is out of range.
        ValueError: the recorded state does not produce the recorded context, since the task, the Interaction or the
            chat template differs.
    """
    if not 0 <= index < len(episode.decisions):
        raise IndexError(
            f"a replay must start at one of the {len(episode.decisions)} decisions of its episode, got index {index}; "
            "count from 0."
        )
    decision = episode.decisions[index]
    earlier = [one for one in episode.decisions[:index] if not one.in_step_of(decision)]
    conversations = _conversations(interaction, episode, earlier)
    request = _request(interaction, decision)
    if chat.context(request.messages, conversations.get(decision.event), request.tools) != decision.context_ids:
        raise ValueError(
            f"a replayed state must produce the recorded context, got another one for event {decision.event!r} at "
            f"decision {index}; use the task, the Interaction and the chat template it was recorded with."
        )
    if isinstance(reply, Decision):
        reply = Generation(ids=reply.action_ids, logprobs=reply.logprobs)
    return RolloutRequest(
        state=decision.state,
        seed=seed,
        contexts={decision.event: decision.context_ids},
        conversations=conversations,
        step=decision.step or 0,
        earned=episode.earned
        + sum(one[0].reward for one in episode.steps[: (decision.step or 0) - episode.steps_before]),
        forced={} if reply is None else {decision.event: reply},
        fanout=fanout,
        stream=stream,
    )


def continued(
    interaction: Interaction[S], episode: Episode, *, fanout: Sequence[int] = (), most_steps: int | None = None
) -> RolloutRequest[S]:
    """Returns a request that continues an episode from its last state, with its conversations.

    Args:
        interaction: the Interaction of the episode.
        episode: with a last state and at least one decision, such as one that `most_steps` ended.
        fanout, most_steps: as in `RolloutRequest`.
    """
    return RolloutRequest(
        state=episode.final_state,
        conversations=_conversations(interaction, episode, episode.decisions),
        step=(episode.decisions[-1].step or 0) + 1,
        fanout=fanout,
        most_steps=most_steps,
    )


def begun_later(interaction: Interaction[S], episode: Episode, step: int) -> RolloutRequest[S]:
    """Returns a request that begins before a step of an episode, after at least one, with the conversations so far."""
    before = tuple(decision for one in episode.steps[:step] for decision in one)
    request = continued(interaction, replace(episode, decisions=before, final_state=episode.steps[step][0].state))
    return replace(request, earned=sum(one[0].reward for one in episode.steps[:step]))


def _conversations(
    interaction: Interaction[Any], episode: Episode, decisions: Sequence[Decision]
) -> dict[str, Conversation]:
    """The conversation after the last of these first decisions of each event type."""
    last = {one.event: one for one in decisions}
    return dict(episode.conversations) | {
        event: Conversation.after(_request(interaction, one), one.action_text, one.context_ids + one.action_ids)
        for event, one in last.items()
    }


def _request(interaction: Interaction[Any], decision: Decision) -> Request:
    for request in interaction.pending(decision.state):
        if request.event == decision.event:
            return request
    raise ValueError(
        f"a replayed state must have a request for the recorded event, got none for {decision.event!r}; use the task "
        "and the Interaction it was recorded with."
    )
