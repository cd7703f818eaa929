"""Plays the instances of a board with a checkpoint: for a submission, and again in the verifier's confined process,
with the same random stream for each instance, and so the same replies up to another machine's arithmetic."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hf_credit.environments.tasks import SEEDS_PER_SPLIT
from hf_credit.loading import ADAPTER_CONFIG, role_folders
from hf_credit.policies.saved import SavedPolicy
from hf_credit.rollouts import Chat
from hf_credit.tasks.spec import TaskSpec
from hf_credit_leaderboard.entries import PlayedEpisode
from hf_credit_leaderboard.seasons import starts_of

_PROBES = 8  # contexts whose next-token log-probabilities identify a policy
_PROBED_TOKENS = 16  # evenly spaced in the vocabulary
_DIGITS = 4
_LONGEST_TEMPLATE = 2**16  # characters, since a maintainer has to read it


@dataclass(frozen=True, kw_only=True)
class Played:
    """The result of playing a checkpoint.

    Attributes:
        episodes: one per instance.
        logprobs: log-probabilities of some next tokens at the first contexts of some public instances, in nats.
        template: the chat template that rendered every prompt.
    """

    episodes: list[PlayedEpisode]
    logprobs: list[float]
    template: str


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Plays an entry in the verifier's confined process.

    Args:
        request: `kind`, of the entry; for "credit" the request of `hf_credit_leaderboard.credit_board.answer`, and
            for "policy" `checkpoints`, a list of [folder, base folder or null]; `spec`, the task; `seeds`, lists of
            seeds by name; `device`.

    Returns:
        `episodes`, by the names of the seeds; for credit `scores`, and for a policy `prints` and `templates`, one per
        checkpoint.
    """
    if request["kind"] == "credit":
        from hf_credit_leaderboard import credit_board  # this import takes seconds

        return credit_board.answer(request)
    episodes: dict[str, list[dict[str, Any]]] = {name: [] for name in request["seeds"]}
    all_seeds = [seed for seeds in request["seeds"].values() for seed in seeds]
    spec, device = TaskSpec.untrusted(request["spec"]), request.get("device")
    prints, templates = [], []
    for index, (folder, base) in enumerate(request["checkpoints"]):
        played = play_checkpoint(Path(folder), base, spec, all_seeds, checkpoint=index, device=device)
        by_seed = {one.seed: dataclasses.asdict(one) for one in played.episodes}
        for name, seeds in request["seeds"].items():
            episodes[name] += [by_seed[seed] for seed in seeds]
        prints.append(played.logprobs)
        templates.append(played.template)
    return {"episodes": episodes, "prints": prints, "templates": templates}


def play_checkpoint(
    folder: Path,
    base: str | Path | None,
    spec: TaskSpec,
    seeds: Sequence[int],
    *,
    checkpoint: int = 0,
    device: str | None = None,
) -> Played:
    """Plays one episode of each instance, and probes the policy for comparison with others.

    Args:
        folder: the folder of the checkpoint: a whole model, an adapter, or an adapter for each role.
        base: the folder of the adapters' base model; `None` without adapters.
        spec: the task, its presentation and its sampling.
        checkpoint: the index of the checkpoint in the entry, for the records.
        device: the device; a GPU if available, else the CPU, if `None`.

    Raises:
        ValueError: the checkpoint cannot be loaded or cannot play the task, or its template is too long.
    """
    interaction = spec.build()
    if base is None and (role_folders(folder) or (folder / ADAPTER_CONFIG).is_file()):
        raise ValueError("an adapter must have a base model, got none; name it as the base of the checkpoint.")
    policy = SavedPolicy(str(folder), spec, interaction, device=device, base=str(base) if base else None)
    template = _template(policy.chat)
    starts = [
        dataclasses.replace(start, stream=f"leaderboard {start.seed}") for start in starts_of(interaction, seeds)
    ]
    torch.manual_seed(0)
    played = zip(seeds, policy.engine().run(starts), strict=True)
    episodes = [PlayedEpisode.of(checkpoint, seed, episode) for seed, episode in played]
    # Without secret seeds, which are at least 2^32: records are public while these must stay secret.
    public = [seed for seed in sorted(seeds) if seed < 2 * SEEDS_PER_SPLIT]
    logprobs = _logprobs(policy, public[:_PROBES])
    return Played(episodes=episodes, logprobs=logprobs, template=template)


def _template(chat: Chat) -> str:
    template = chat.tokenizer.chat_template
    text = template if isinstance(template, str) else json.dumps(template, indent=1, sort_keys=True)
    if len(text) > _LONGEST_TEMPLATE:
        raise ValueError(
            f"a chat template must have at most {_LONGEST_TEMPLATE} characters, got {len(text)}; shorten it."
        )
    return text


@torch.inference_mode()
def _logprobs(policy: SavedPolicy, seeds: Sequence[int]) -> list[float]:
    """As `Played.logprobs`: separate training runs differ by nats even if both always succeed, copies do not."""
    probes: list[float] = []
    network, interaction = policy.network, policy.interaction
    network.eval()
    has_roles = hasattr(network, "active_adapter") and hasattr(network, "peft_config")
    for start in starts_of(interaction, seeds):
        (request, *_) = interaction.pending(interaction.start(start.task, start.seed or 0))
        ids = torch.tensor([policy.chat.context(request.messages, tools=request.tools)], device=network.device)
        if has_roles:
            network.set_adapter(request.role)
        logprobs = network(input_ids=ids).logits[0, -1].double().cpu().log_softmax(-1)
        step = max(1, len(logprobs) // _PROBED_TOKENS)
        probes += [round(float(value), _DIGITS) for value in logprobs[::step][:_PROBED_TOKENS]]
    return probes
