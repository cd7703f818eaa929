"""Plays the instances of a board with a checkpoint: for a submission, and again in the verifier's confined process,
with the same random stream for each instance, and so the same replies up to another machine's arithmetic."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_credit.loading import ADAPTER_CONFIG, role_folders
from hf_credit.policies.generation import max_context_tokens, sampler
from hf_credit.policies.role_policies import using
from hf_credit.policies.saved import SavedPolicy
from hf_credit.rollouts import Chat
from hf_credit.rollouts.rendering import RESPONSE_TEMPLATE
from hf_credit.tasks.spec import TaskSpec
from hf_credit_leaderboard.entries import PlayedEpisode
from hf_credit_leaderboard.records import LONGEST_TEMPLATE, PRINT_WIDTH
from hf_credit_leaderboard.seasons import starts_of

_PRINTED = 16  # secret tasks
_PRINTED_TOKENS = 16  # of a greedy reply
_LIKELIEST = 5  # tokens at each of these
_DIGITS = 4


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Plays an entry in the verifier's confined process.

    Args:
        request: `checkpoints`, a list of [folder, base folder or null]; `spec`, the task; `seeds`, lists of seeds by
            name; `print_key`, in hexadecimal, for prints on the seeds called "secret", in the prompts of
            `printed_spec`; `device`.

    Returns:
        `episodes`, by the names of the seeds; `prints` and `templates`, one per checkpoint.

    Raises:
        ValueError: as in `loaded` and `played`; once a checkpoint has seen tasks, of an error only the type, since the
            text can hold secret ones, and refusals are published.
    """
    episodes: dict[str, list[dict[str, Any]]] = {name: [] for name in request["seeds"]}
    all_seeds = [seed for seeds in request["seeds"].values() for seed in seeds]
    spec, device = TaskSpec.untrusted(request["spec"]), request.get("device")
    printed, key = TaskSpec.untrusted(request["printed_spec"]), bytes.fromhex(request["print_key"])
    prints, templates, secret_known = [], [], False
    try:
        for index, (folder, base) in enumerate(request["checkpoints"]):
            policy, template = loaded(Path(folder), base, spec, device)
            secret_known = True
            by_seed = {one.seed: dataclasses.asdict(one) for one in played(policy, all_seeds, index)}
            prints.append(prints_of(policy, printed, key, request["seeds"]["secret"][:_PRINTED]))
            del policy  # before the next one is loaded
            for name, seeds in request["seeds"].items():
                episodes[name] += [by_seed[seed] for seed in seeds]
            templates.append(template)
    except Exception as error:
        if not secret_known:
            raise
        raise ValueError(
            f"a checkpoint must play every task, and compute neither NaN nor infinity, got {type(error).__name__}; "
            "play other tasks with it to see more, since the error's text can hold a secret one."
        ) from error
    return {"episodes": episodes, "prints": prints, "templates": templates}


def loaded(folder: Path, base: str | Path | None, spec: TaskSpec, device: str | None) -> tuple[SavedPolicy, str]:
    """Loads a checkpoint: a whole model, or adapters with the folder of their base.

    Returns:
        The policy, and the chat template that renders every prompt, with the tokenizer's `_rules`.

    Raises:
        ValueError: it cannot be loaded, or its template is too long.
    """
    interaction = spec.build()
    if base is None and (role_folders(folder) or (folder / ADAPTER_CONFIG).is_file()):
        raise ValueError("an adapter must have a base model, got none; name it as the base of the checkpoint.")
    policy = SavedPolicy(str(folder), spec, interaction, device=device, base=str(base) if base else None)
    return policy, _template(policy.chat)


def played(policy: SavedPolicy, seeds: Sequence[int], checkpoint: int) -> list[PlayedEpisode]:
    """Plays one episode of each instance, by `checkpoint`, its index in the entry.

    Raises:
        ValueError: it cannot play the task, or computes a logit of NaN or infinity.
    """
    interaction = policy.interaction
    starts = [
        dataclasses.replace(start, stream=f"leaderboard {start.seed}") for start in starts_of(interaction, seeds)
    ]
    torch.manual_seed(0)
    ran = zip(seeds, policy.engine().run(starts), strict=True)
    return [PlayedEpisode.of(checkpoint, seed, episode, interaction) for seed, episode in ran]


def _template(chat: Chat) -> str:
    template = chat.tokenizer.chat_template
    text = template if isinstance(template, str) else json.dumps(template, indent=1, sort_keys=True)
    backend = getattr(chat.tokenizer, "backend_tokenizer", None)
    if backend is None:  # its files may change any text, as a template could
        raise ValueError("a checkpoint must have a tokenizer.json, got a tokenizer in Python; save a fast one.")
    rules = list(_rules(json.loads(backend.to_str())))
    text += f"\n{json.dumps(rules, indent=1, sort_keys=True)}" if rules else ""
    own = getattr(chat.tokenizer, "response_template", None)  # it reads what a reply says
    if own not in (None, RESPONSE_TEMPLATE):
        text += f"\n{json.dumps(own, indent=1, sort_keys=True)}"
    if len(text) > LONGEST_TEMPLATE:
        raise ValueError(
            f"a chat template must have at most {LONGEST_TEMPLATE} characters, got {len(text)}; shorten it."
        )
    return text


def _rules(part: Any) -> Iterator[Any]:
    """Yields the rules of a tokenizer that change text by what is around it: they could play, as a template could."""
    items = part if isinstance(part, dict) else dict(enumerate(part)) if isinstance(part, list) else {}
    for inner in items.values():
        yield from _rules(inner)
    changes = items.get("type") == "Replace" or items.get("behavior") == "Removed"
    if changes and len(items.get("pattern", {}).get("String", "regex")) > 1:
        yield part


@torch.inference_mode()
def prints_of(policy: SavedPolicy, spec: TaskSpec, key: bytes, seeds: Sequence[int]) -> list[float]:
    """The `_print` of the policy's greedy reply to the first context of each seed; zeros where none fits.

    Args:
        spec: the task as the season shows it, so that nothing that an entry sets plays a part.
    """
    network, interaction, prints = policy.network, spec.build(), list[float]()
    chat = Chat(policy.chat.media.processing_class, spec.chat_template_kwargs)
    generate = sampler(network, policy.tokenizer, max_new_tokens=_PRINTED_TOKENS, temperature=0)
    most = max_context_tokens(network, _PRINTED_TOKENS) or math.inf
    for start in starts_of(interaction, seeds):
        (request, *_) = interaction.pending(interaction.start(start.task, start.seed or 0))
        context = chat.context(request.messages, tools=request.tools)
        if len(context) > most:
            prints += [0.0] * PRINT_WIDTH
            continue
        has_roles = hasattr(network, "active_adapter") and hasattr(network, "peft_config")
        with using(network, request.role) if has_roles else contextlib.nullcontext():
            (reply,) = generate([context])
            ids = torch.tensor([[*context, *reply.ids]], device=network.device)
            logits = network(input_ids=ids).logits[0, len(context) - 1 : -1].double().cpu()
        prints += _print(logits, policy.tokenizer, key, start.seed or 0)
    return prints


def _print(logits: torch.Tensor, tokenizer: Any, key: bytes, seed: int) -> list[float]:
    """Returns 16 numbers that are equal, up to one positive factor, for a policy and its copies at any temperature:

        x_j = sum_t sum_k s_j(t, k) * (z_tk - z_t(6)),   k: the 5 likeliest tokens at t, by their text

    with logits z, and signs s from a keyed hash. Without the key, the numbers say nothing of the task.

    Args:
        logits: [tokens of the reply, vocabulary].
    """
    if bool(logits.isnan().any() or (logits == torch.inf).any()):
        raise ValueError("a policy must compute logits, got NaN or infinity; publish other weights.")
    totals = np.zeros(PRINT_WIDTH)
    for place, row in enumerate(logits):
        values, tokens = row.topk(min(_LIKELIEST + 1, int((row > -torch.inf).sum())))
        for value, token in zip((values - values[-1]).tolist(), tokens.tolist(), strict=True):
            text = f"{seed} {place} {tokenizer.decode([token])}".encode("utf-8", "surrogatepass")
            bits = hashlib.blake2b(text, key=key, digest_size=PRINT_WIDTH // 8).digest()
            totals += value * (2.0 * np.unpackbits(np.frombuffer(bits, np.uint8)) - 1)
    return [round(float(value), _DIGITS) for value in totals]
