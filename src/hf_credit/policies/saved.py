"""A policy as training saved it, and what draws replies from it.

Its folder, or the repository of its id on the Hub, holds weights or an adapter, or a folder with an adapter for each
role (`role_policies`); the tokenizer; the task (`hf_credit.tasks.TaskSpec`); and a folder for each critic
(`hf_credit.critics.saved`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from transformers import AutoTokenizer

from hf_credit.http_guard import require_model
from hf_credit.loading import IncompleteModelError, load_model, role_folders
from hf_credit.policies.generation import sampler
from hf_credit.rollouts import GenerateFn, Interaction
from hf_credit.rollouts.samplers import require_untrained
from hf_credit.tasks import Sampling


def load_policy(model: str, device: str | None = None, trust_remote_code: bool = False) -> tuple[Any, Any]:
    """A causal language model and its tokenizer.

    Args:
        model: a folder, with an adapter or a whole model, or an id on the Hub.
        device: a GPU if there is one, else the processor, if `None`.
        trust_remote_code: whether code that lies there is run.

    Raises:
        ValueError: there is no such model, or its files lack a tensor.
    """
    require_model(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", trust_remote_code=trust_remote_code)
        network = load_model(model, dtype="auto", trust_remote_code=trust_remote_code)
    except IncompleteModelError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"a model must be a folder with a saved policy or an id on the Hub, got {model!r} ({reason})"
        ) from error
    return network.to(device or _device()), tokenizer


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
    drawn: dict[str, Any] = asdict(sampling)
    if role_folders(model):
        from hf_credit.policies.role_policies import load_role_policies

        device = device or _device()
        network, generate = load_role_policies(model, device=device, trust_remote_code=trust_remote_code, **drawn)
        tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", trust_remote_code=trust_remote_code)
        return network, tokenizer, generate
    network, tokenizer = load_policy(model, device, trust_remote_code)
    return network, tokenizer, sampler(network, tokenizer, **drawn)


def load_role_models(
    models: Mapping[str, str],
    interaction: Interaction[Any],
    tokenizer: Any,
    max_new_tokens: int,
    device: str | None = None,
    trust_remote_code: bool = False,
) -> dict[str, GenerateFn]:
    """Models with weights of their own for roles that nothing is learned from, such as a judge. They reply greedily.

    Args:
        models: a folder or an id on the Hub, by role.
        interaction: has the roles.
        tokenizer: the policy's, whose tokens they read and write.
        max_new_tokens: of a reply.
        device, trust_remote_code: as in `load_policy`.

    Raises:
        ValueError: something is learned from a role, there is no such model, or it has another vocabulary.
    """
    require_untrained(interaction, models)
    found = {}
    for role, name in models.items():
        network, own = load_policy(name, device, trust_remote_code)
        if own.get_vocab() != tokenizer.get_vocab():
            raise ValueError(
                f"a model that replies for {role!r} must have the policy's vocabulary, got {name!r} with another; "
                "take one of the policy's family."
            )
        found[role] = sampler(network, tokenizer, max_new_tokens=max_new_tokens, temperature=0.0)
    return found


def with_role_models(
    generate: GenerateFn | Mapping[str, GenerateFn], interaction: Interaction[Any], others: Mapping[str, GenerateFn]
) -> GenerateFn | Mapping[str, GenerateFn]:
    """The policy's sampler, or that of each role, beside those of `load_role_models`."""
    if not others:
        return generate
    policies = generate if isinstance(generate, Mapping) else dict.fromkeys(interaction.roles, generate)
    return {**policies, **others}


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
