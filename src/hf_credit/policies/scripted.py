"""Play of chosen quality, to warm a policy up on and to compare one with."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from hf_credit.environments.actions import tag
from hf_credit.environments.randomness import stream
from hf_credit.oracles import Oracle
from hf_credit.rollouts import Chat, Decision, EnvironmentInteraction, EnvironmentTurn, Episode, Start
from hf_credit.rollouts.chat import Thread


def scripted_episode(
    interaction: EnvironmentInteraction, chat: Chat, oracle: Oracle, quality: float, start: Start
) -> Episode:
    """One episode of a player who takes a uniformly drawn oracle-valid action with probability `quality`, and a
    uniformly drawn legal action otherwise.

    Args:
        interaction: what is played.
        chat: renders the contexts, so that the episode reads as a policy's own would.
        oracle: who knows the valid actions.
        quality: in [0, 1].
        start: the task and the seed, which also drives the player.

    Raises:
        ValueError: `quality` is outside [0, 1].
    """
    if not 0 <= quality <= 1:
        raise ValueError(f"quality must be in [0, 1], got {quality}; 1 plays as the oracle says.")
    seed = start.task.get("seed", 0) if start.seed is None else start.seed
    draws = stream(seed, "scripted")
    state = interaction.start(start.task, seed)
    decisions: list[Decision] = []
    thread: Thread | None = None
    while pending := interaction.pending(state):
        (request,) = pending
        reply = tag(_choose(interaction, oracle, state, quality, draws))
        context = chat.context(request.messages, thread)
        ids = (*chat.tokenizer(reply, add_special_tokens=False)["input_ids"], chat.tokenizer.eos_token_id)
        decisions.append(
            Decision(
                role=request.role,
                state=state,
                context_ids=context,
                action_ids=ids,
                logprobs=None,
                action_text=reply,
            )
        )
        thread = Thread(messages=(*request.messages, {"role": "assistant", "content": reply}), ids=context + ids)
        state = interaction.advance(state, [reply])
        decisions[-1] = replace(decisions[-1], reward=interaction.reward(state))
    return Episode(
        decisions=tuple(decisions),
        outcome=interaction.outcome(state),
        ending=interaction.ending(state),
        metrics=interaction.metrics(state),
    )


def scripted_episodes(
    interaction: EnvironmentInteraction, chat: Chat, oracle: Oracle, quality: float, starts: Iterable[Start]
) -> list[Episode]:
    """`scripted_episode` of each start."""
    return [scripted_episode(interaction, chat, oracle, quality, start) for start in starts]


def _choose(
    interaction: EnvironmentInteraction, oracle: Oracle, state: EnvironmentTurn, quality: float, draws: random.Random
) -> str:
    valid = draws.random() < quality
    choices = oracle.valid_actions(state.world) if valid else interaction.environment.legal_actions(state.world)
    if not choices:
        raise ValueError(
            f"an oracle must know a valid action in every state it scripts, got none in {state.world.to_json()}; "
            "mend its valid_actions."
        )
    return str(draws.choice(sorted(choices)))
