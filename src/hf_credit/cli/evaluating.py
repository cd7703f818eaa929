"""A saved policy on held-out tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

from hf_credit.evaluation.games import GameResults, evaluate_policy, held_out_starts
from hf_credit.evaluation.setup import GameSetup
from hf_credit.oracles import Oracle, default_oracle, require_fit
from hf_credit.policies.generation import sampler
from hf_credit.rollouts import Chat


def load_policy(model: str, device: str | None = None) -> tuple[Any, Any]:
    """A causal language model and its tokenizer.

    Args:
        model: a folder, with an adapter or a whole model, or an id on the Hub.
        device: a GPU if there is one, else the processor, if `None`.

    Raises:
        ValueError: there is no such model.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left")
        network: Any = AutoModelForCausalLM.from_pretrained(model, dtype="auto")
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"a model must be a folder with a saved policy or an id on the Hub, got {model!r} ({reason})"
        ) from error
    return network.to(device), tokenizer


def evaluate_model(
    model: str,
    setup: GameSetup,
    episodes: int,
    *,
    oracle: Oracle[Any] | None = None,
    first_task: int = 0,
    seed: int = 0,
    max_concurrent: int = 256,
    device: str | None = None,
    on_replies: Callable[[int], None] | None = None,
) -> GameResults:
    """Plays held-out tasks `first_task` to `first_task + episodes - 1` with a saved policy.

    Args:
        model: a folder or an id on the Hub.
        setup: the game, how it is shown and how replies are drawn.
        episodes: how many tasks, one episode each.
        oracle: judges every action; the environment's own if `None`.
        first_task: index of the first held-out task.
        seed: of the drawing of replies; the tasks do not depend on it.
        max_concurrent: episodes under way at once, hence the batch of a generation call.
        device: as in `load_policy`.
        on_replies: as in `evaluate_policy`.

    Raises:
        ValueError: the model, the setup, a task or a sampling parameter is not possible.
    """
    interaction = setup.interaction()
    oracle = default_oracle(interaction.environment) if oracle is None else oracle
    if oracle is not None:
        require_fit(oracle, interaction.environment)
    starts = held_out_starts(episodes, first_task)
    network, tokenizer = load_policy(model, device)
    sampling = setup.sampling
    generate = sampler(
        network,
        tokenizer,
        max_new_tokens=sampling.max_new_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
    )
    set_seed(seed)
    positions = getattr(network.config.get_text_config(), "max_position_embeddings", None)
    return evaluate_policy(
        generate,
        Chat(tokenizer, setup.chat_template_kwargs),
        interaction,
        starts,
        oracle,
        max_concurrent=max_concurrent,
        max_context_tokens=None if positions is None else max(positions - sampling.max_new_tokens, 1),
        about={"model": model, "setup": setup.to_dict(), "first_task": first_task, "seed": seed},
        on_replies=on_replies,
    )
