"""Episodes of a scripted player, to warm up a policy or as a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hf_credit.environments.randomness import stream
from hf_credit.rollouts import Chat, Decision, Episode, Interaction, Request, RolloutRequest
from hf_credit.rollouts.capabilities import Learned
from hf_credit.rollouts.chat import Thread
from hf_credit.rollouts.scripts import Script

Step = tuple[Any, Sequence[Request], list[str]]
"""A state, its pending requests, and the replies to them."""

Walk = tuple[list[Step], Any]
"""The steps of one episode, and the final state."""


def walk(interaction: Interaction[Any], script: Script, start: RolloutRequest[Any]) -> Walk:
    """Plays one scripted episode.

    Args:
        script: the player. It replies to the requests of a step in order, from one random generator.
        start: the task row and the seed of the episode and the script; if `None`, the row's seed, or 0. Or the state.
    """
    seed = start.task.get("seed", 0) if start.seed is None else start.seed
    draws = stream(seed, "scripted")
    state = interaction.start(start.task, seed) if start.state is None else start.state
    steps: list[Step] = []
    while requests := interaction.pending(state):
        replies = [script(state, request, draws) for request in requests]
        steps.append((state, requests, replies))
        state = interaction.advance(state, replies)
    return steps, state


def play(interaction: Interaction[Any], chat: Chat, script: Script, start: RolloutRequest[Any]) -> Episode:
    """Plays one scripted episode, recorded as that of a policy with the same replies."""
    return recorded(interaction, chat, walk(interaction, script, start))


def recorded(interaction: Interaction[Any], chat: Chat, walked: Walk) -> Episode:
    """A walk as an episode, as an `Engine` records that of a policy with the same replies."""
    steps, final = walked
    states = [*(state for state, _, _ in steps), final]
    decisions: list[Decision] = []
    threads: dict[str, Thread] = {}
    untrained = Learned(interaction).untrained
    for number, ((state, requests, replies), after) in enumerate(zip(steps, states[1:], strict=True)):
        reward = interaction.reward(after)
        for request, reply in zip(requests, replies, strict=True):
            context = chat.context(request.messages, threads.get(request.event), request.tools)
            ids = chat.reply_ids(reply, context, request.tools)
            threads[request.event] = Thread.after(request, reply, context + ids)
            decisions.append(
                Decision(
                    role=request.role,
                    event=request.event,
                    step=number,
                    state=state,
                    context_ids=context,
                    action_ids=ids,
                    logprobs=None,
                    action_text=reply,
                    reward=reward,
                    trained=request.role not in untrained,
                    observed=request.role in untrained,
                )
            )
    return Episode(
        decisions=tuple(decisions),
        outcome=interaction.outcome(final),
        ending=interaction.ending(final),
        metrics=interaction.metrics(final),
    )
