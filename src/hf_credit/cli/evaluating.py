"""A saved policy on held-out tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed

from hf_credit.cli.tasks import evaluation_starts, most_replies, open_task
from hf_credit.evaluation.games import GameResults, evaluate_policy
from hf_credit.evaluation.setup import GameSetup, Sampling
from hf_credit.oracles import Oracle, default_oracle, require_fit
from hf_credit.policies.generation import room_for_context, sampler
from hf_credit.policies.role_policies import load_role_policies, role_folders
from hf_credit.rollouts import Chat, EnvironmentInteraction, GenerateFn, Interaction


def load_policy(model: str, device: str | None = None, trust_remote_code: bool = False) -> tuple[Any, Any]:
    """A causal language model and its tokenizer.

    Args:
        model: a folder, with an adapter or a whole model, or an id on the Hub.
        device: a GPU if there is one, else the processor, if `None`.
        trust_remote_code: whether code that lies there is run.

    Raises:
        ValueError: there is no such model.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", trust_remote_code=trust_remote_code)
        network: Any = AutoModelForCausalLM.from_pretrained(model, dtype="auto", trust_remote_code=trust_remote_code)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"a model must be a folder with a saved policy or an id on the Hub, got {model!r} ({reason})"
        ) from error
    return network.to(device), tokenizer


def load_sampler(
    model: str, sampling: Sampling, device: str | None = None, trust_remote_code: bool = False
) -> tuple[Any, Any, GenerateFn | Mapping[str, GenerateFn]]:
    """A network, its tokenizer, and what draws replies from it: of each role by itself, where roles have adapters.

    Args:
        model: as in `load_policy`, or the folder of a run with `role_adapters`.
        sampling: how replies are drawn.
        device, trust_remote_code: as in `load_policy`.

    Raises:
        ValueError: there is no such model, or a sampling parameter is not possible.
    """
    drawn = {
        "max_new_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
    }
    if role_folders(model):
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        network, generate = load_role_policies(model, device=device, trust_remote_code=trust_remote_code, **drawn)
        tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", trust_remote_code=trust_remote_code)
        return network, tokenizer, generate
    network, tokenizer = load_policy(model, device, trust_remote_code)
    return network, tokenizer, sampler(network, tokenizer, **drawn)  # type: ignore[arg-type]


def judge_of(interaction: Interaction[Any], setup: GameSetup, oracle: Oracle[Any] | None) -> Oracle[Any] | None:
    """Who judges the actions of a task: the given oracle, or the game's own if `None`; nobody a collaboration's.

    Raises:
        ValueError: the oracle does not fit the task.
    """
    if isinstance(interaction, EnvironmentInteraction):
        oracle = default_oracle(interaction.environment) if oracle is None else oracle
        if oracle is not None:
            require_fit(oracle, interaction.environment)
    elif oracle is not None:
        raise ValueError(f"an oracle judges a game, got one for the collaboration {setup.name!r}; leave it out.")
    return oracle


def evaluate_model(
    model: str,
    setup: GameSetup,
    episodes: int | None = None,
    *,
    oracle: Oracle[Any] | None = None,
    dataset: str | None = None,
    split: str = "test",
    first_task: int = 0,
    seed: int = 0,
    max_concurrent: int = 256,
    device: str | None = None,
    trust_remote_code: bool = False,
    on_begin: Callable[[int], None] | None = None,
    on_replies: Callable[[int], None] | None = None,
) -> GameResults:
    """Plays the tasks `first_task` to `first_task + episodes - 1` of an evaluation with a saved policy.

    Args:
        model: a folder or an id on the Hub.
        setup: the task, how it is shown and how replies are drawn.
        episodes, dataset, split: which tasks, one episode each, as for `hf_credit.cli.tasks.evaluation_starts`.
        oracle: judges every action of a game; the environment's own if `None`.
        first_task: index of the first task.
        seed: of the drawing of replies; the tasks do not depend on it.
        max_concurrent: episodes under way at once, hence the batch of a generation call.
        device, trust_remote_code: as in `load_policy`.
        on_begin: told before the first reply how many there will be at most.
        on_replies: as in `evaluate_policy`.

    Raises:
        ValueError: the model, the setup, a task or a sampling parameter is not possible.
    """
    interaction = open_task(setup)
    oracle = judge_of(interaction, setup, oracle)
    starts = evaluation_starts(setup, interaction, episodes, first_task, dataset, split)
    sampling = setup.sampling
    network, tokenizer, generate = load_sampler(model, sampling, device, trust_remote_code)
    if on_begin is not None:
        on_begin(len(starts) * most_replies(interaction))
    set_seed(seed)
    about = {"model": model, "setup": setup.to_dict(), "first_task": first_task, "seed": seed}
    return evaluate_policy(
        generate,
        Chat(tokenizer, setup.chat_template_kwargs),
        interaction,
        starts,
        oracle,
        max_concurrent=max_concurrent,
        max_context_tokens=room_for_context(network, sampling.max_new_tokens),
        about=about if dataset is None else {**about, "dataset": dataset, "split": split},
        on_replies=on_replies,
    )
