"""Play of chosen quality, to warm a policy up on and to compare one with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hf_credit.environments.randomness import stream
from hf_credit.oracles import Oracle
from hf_credit.rollouts import Chat, Decision, EnvironmentInteraction, Episode, Interaction, Request, RolloutRequest
from hf_credit.rollouts.chat import Thread
from hf_credit.rollouts.scripts import OraclePlayer, Script

Step = tuple[Any, Sequence[Request], list[str]]
"""A state, who was asked in it, and what they replied."""

Walk = tuple[list[Step], Any]
"""The steps of one episode, and the state after the last."""


def walk(interaction: Interaction[Any], script: Script, start: RolloutRequest[Any]) -> Walk:
    """One scripted episode.

    Args:
        interaction: what is played.
        script: who plays. Those who are asked at the same time reply in their order, from one random stream.
        start: the task and the seed, the task's own or 0 where it is `None`, which also drives the script.
    """
    seed = start.task.get("seed", 0) if start.seed is None else start.seed
    draws = stream(seed, "scripted")
    state = interaction.start(start.task, seed)
    steps: list[Step] = []
    while requests := interaction.pending(state):
        replies = [script(state, request, draws) for request in requests]
        steps.append((state, requests, replies))
        state = interaction.advance(state, replies)
    return steps, state


def play(interaction: Interaction[Any], chat: Chat, script: Script, start: RolloutRequest[Any]) -> Episode:
    """One scripted episode, as an Engine would record it of a policy that gives the same replies.

    Args:
        interaction, script, start: as in `walk`.
        chat: renders the contexts.
    """
    return recorded(interaction, chat, walk(interaction, script, start))


def recorded(interaction: Interaction[Any], chat: Chat, walked: Walk) -> Episode:
    """What was walked, as an Engine would record it of a policy that gives the same replies.

    Args:
        interaction: what was played.
        chat: renders the contexts.
        walked: of `walk`.
    """
    steps, final = walked
    states = [*(state for state, _, _ in steps), final]
    decisions: list[Decision] = []
    threads: dict[str, Thread] = {}
    for number, ((state, requests, replies), after) in enumerate(zip(steps, states[1:], strict=True)):
        reward = interaction.reward(after)
        for request, reply in zip(requests, replies, strict=True):
            context = chat.context(request.messages, threads.get(request.event), request.tools)
            ids = chat.reply_ids(reply)
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
                )
            )
    return Episode(
        decisions=tuple(decisions),
        outcome=interaction.outcome(final),
        ending=interaction.ending(final),
        metrics=interaction.metrics(final),
    )


def scripted_episode(
    interaction: EnvironmentInteraction, chat: Chat, oracle: Oracle, quality: float, start: RolloutRequest
) -> Episode:
    """One episode of `OraclePlayer`.

    Args:
        interaction: what is played.
        chat: renders the contexts, so that the episode reads as a policy's own would.
        oracle: who knows the valid actions.
        quality: in [0, 1].
        start: the task and the seed, which also drives the player.

    Raises:
        ValueError: `quality` is outside [0, 1].
    """
    return play(interaction, chat, OraclePlayer(interaction.environment, oracle, quality), start)


def scripted_episodes(
    interaction: EnvironmentInteraction, chat: Chat, oracle: Oracle, quality: float, starts: Iterable[RolloutRequest]
) -> list[Episode]:
    """`scripted_episode` of each start."""
    return [scripted_episode(interaction, chat, oracle, quality, start) for start in starts]
