"""Loads a saved policy and its sampler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from hf_credit.http_guard import require_model
from hf_credit.loading import ADAPTER_CONFIG, IncompleteModelError, load_adapter, load_model, role_folders
from hf_credit.policies.generation import sampler
from hf_credit.rollouts import GenerateFn, Interaction
from hf_credit.rollouts.samplers import require_untrained
from hf_credit.tasks import Sampling


def load_policy(model: str, device: str | None = None, trust_remote_code: bool = False) -> tuple[Any, Any]:
    """Loads a causal language model and its tokenizer.

    Args:
        model: a folder, with an adapter or a whole model, or an id on the Hub.
        device: if `None`, a GPU if there is one, else the CPU.
        trust_remote_code: whether code in the folder or repository is run.

    Raises:
        ValueError: there is no such model or device, or the model's files lack a tensor.
    """
    device = _device(device)
    require_model(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", trust_remote_code=trust_remote_code)
        network = load_model(model, dtype="auto", trust_remote_code=trust_remote_code)
    except IncompleteModelError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ValueError(
            f"a model must be a folder with a saved policy or an id on the Hub, got {model!r} ({reason}); correct the "
            "name, or save the policy again."
        ) from error
    return network.to(device), tokenizer


def load_sampler(
    model: str,
    sampling: Sampling,
    device: str | None = None,
    trust_remote_code: bool = False,
    base: str | None = None,
    logprobs: bool = False,
) -> tuple[Any, Any, GenerateFn | Mapping[str, GenerateFn]]:
    """Loads a model, its tokenizer, and its sampler, or the sampler of each role if roles have adapters.

    Args:
        model: as in `load_policy`, or the folder of a run with `role_adapters`.
        device, trust_remote_code: as in `load_policy`.
        base: the folder of the base model of adapters; the one that they name if `None`.
        logprobs: as in `hf_credit.policies.generation.sampler`.

    Raises:
        ValueError: there is no such model, or a sampling parameter is out of range.
    """
    parameters: dict[str, Any] = {**asdict(sampling), "logprobs": logprobs}
    if role_folders(model):
        from hf_credit.policies.role_policies import load_role_policies

        device = _device(device)
        network, generate = load_role_policies(model, base, device, trust_remote_code, **parameters)
        tokenizer = AutoTokenizer.from_pretrained(model, padding_side="left", trust_remote_code=trust_remote_code)
        return network, tokenizer, generate
    whole = base if base is not None and Path(model, ADAPTER_CONFIG).is_file() else model
    network, tokenizer = load_policy(whole, device, trust_remote_code)
    if whole != model:
        network = load_adapter(network, model).merge_and_unload()
    return network, tokenizer, sampler(network, tokenizer, **parameters)


def load_role_models(
    models: Mapping[str, str],
    interaction: Interaction[Any],
    tokenizer: Any,
    max_new_tokens: int,
    device: str | None = None,
    trust_remote_code: bool = False,
) -> dict[str, GenerateFn]:
    """Loads separate models for roles that are not trained, such as a judge, with greedy decoding.

    Args:
        models: a folder or an id on the Hub, by role.
        tokenizer: the policy's, with which their contexts are encoded.
        max_new_tokens: maximum length of a reply in tokens.
        device, trust_remote_code: as in `load_policy`.

    Raises:
        ValueError: a role is trained, there is no such model, or its vocabulary is not the policy's.
    """
    require_untrained(interaction, models)
    found = {}
    for role, name in models.items():
        network, its_tokenizer = load_policy(name, device, trust_remote_code)
        if its_tokenizer.get_vocab() != tokenizer.get_vocab():
            raise ValueError(
                f"a model that replies for {role!r} must have the policy's vocabulary, got {name!r} with another; "
                "choose a model of the policy's family."
            )
        found[role] = sampler(network, tokenizer, max_new_tokens=max_new_tokens, temperature=0.0)
    return found


def with_role_models(
    generate: GenerateFn | Mapping[str, GenerateFn], interaction: Interaction[Any], others: Mapping[str, GenerateFn]
) -> GenerateFn | Mapping[str, GenerateFn]:
    """The policy's sampler or samplers, combined with those of `load_role_models`."""
    if not others:
        return generate
    policies = generate if isinstance(generate, Mapping) else dict.fromkeys(interaction.roles, generate)
    return {**policies, **others}


def _device(device: str | None) -> str:
    if device is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:  # an AssertionError where torch was built without CUDA
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise ValueError(
            f"device must be one that torch finds here, such as cpu or cuda:0, got {device!r} ({reason}); "
            "name another."
        ) from None
    return device
