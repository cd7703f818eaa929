"""Warms up micro policies, which are built from the texts of a task."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any

from transformers import PrinterCallback, TrainerCallback
from transformers.utils.logging import is_progress_bar_enabled, tqdm
from trl import SFTConfig

from hf_credit.content import Image, Text, parts_of
from hf_credit.environments.actions import marked
from hf_credit.files import filled, write
from hf_credit.policies.micro import MICRO_SAMPLING, RANDOM_EPISODES, MicroConfig, build_model, tokenizer_of
from hf_credit.policies.scripted import demonstrations, walk
from hf_credit.rollouts import Chat, Interaction, RolloutRequest
from hf_credit.rollouts.capabilities import Scripted, fingerprint
from hf_credit.rollouts.dry_run import undisturbed
from hf_credit.rollouts.scripts import Script
from hf_credit.tasks import TASK_FILE, Sampling, TaskSpec
from hf_credit.trainers.warm_up import WarmUpTrainer

logger = logging.getLogger(__name__)


def init_scripted_policy(
    interaction: Interaction[Any],
    script: Script,
    starts: Iterable[RolloutRequest[Any]],
    output: str | Path,
    config: MicroConfig,
    callbacks: Sequence[TrainerCallback] | None = None,
    sampling: Sampling = MICRO_SAMPLING,
) -> Path:
    """Builds a micro policy for any task, warms it up on scripted play and saves it with a model card and its task.

    Args:
        interaction: the task and the format of its prompts, which training and evaluation must share.
        script: the scripted player, such as `interaction.scripted_player(config.quality)`, or an `OraclePlayer`.
        starts: the tasks of the scripted episodes, of the training split, with distinct seeds; the first
            `config.episodes` are played. The vocabulary is that of `interaction.texts`, or else of these episodes.
        output: the folder to write, for `from_pretrained`.
        config: the sizes and the warm-up; its quality is only recorded in the model card.
        callbacks: of the warm-up; shows progress bars if `None`.
        sampling: to save with the task; a longer reply of the scripted episodes raises its `max_new_tokens`.
    """
    played: Iterable[RolloutRequest[Any]] = islice(starts, config.episodes)
    if callbacks is None:
        played = tqdm(played, desc="scripted play", total=config.episodes)
    walks = [(start, walk(interaction, script, start)) for start in played]
    steps = [step for _, (steps, _) in walks for step in steps]
    requests = [request for _, requests, _ in steps for request in requests]
    parts = [part for request in requests for message in request.messages for part in parts_of(message.get("content"))]
    side = max((max(part.size) for part in parts if isinstance(part, Image)), default=0)
    texts, tools = Scripted(interaction).texts(RANDOM_EPISODES), False
    replies: list[str] = []
    if texts is None:
        tools = any(request.tools for request in requests)
        shown = [part.text for part in parts if isinstance(part, Text)]
        offered = [json.dumps(list(request.tools)) for request in requests] + [marked("")] if tools else []
        replies = [reply for _, _, replies in steps for reply in replies]
        texts = [*shown, *offered, *replies]
    tokenizer, folder = tokenizer_of(texts, tools, images=side > 0), Path(output)
    processing_class: Any = tokenizer
    model: Any
    if side:
        from hf_credit.policies.micro_vision import build_vision_model, processor_of

        processing_class = processor_of(tokenizer, side)
        model = build_vision_model(processing_class, config)
    else:
        model = build_model(tokenizer, config)
    found = list(demonstrations(interaction, Chat(processing_class), script, walks))
    with undisturbed():
        settings = settings_of(folder, config, quiet=callbacks is not None or not is_progress_bar_enabled())
        trainer = WarmUpTrainer(model, settings, found, processing_class=processing_class)
        if callbacks is not None:
            trainer.remove_callback(PrinterCallback)
        for callback in callbacks or ():
            trainer.add_callback(callback)
        trainer.train()
    with filled(folder) as new:
        model.save_pretrained(new)
        processing_class.save_pretrained(new)
        write(new / "README.md", _card(interaction, config, model.num_parameters()))
    longest = max([sampling.max_new_tokens, *(len(tokenizer.encode(reply)) + 1 for reply in replies)])
    try:
        TaskSpec.of(interaction, sampling=replace(sampling, max_new_tokens=longest)).save(folder)
    except ValueError as error:
        logger.warning("saved the policy without %s, so name its task to evaluate it: %s", TASK_FILE, error)
    return folder


def settings_of(folder: Path, config: MicroConfig, quiet: bool) -> SFTConfig:
    return SFTConfig(
        output_dir=str(folder),
        num_train_epochs=config.epochs,
        per_device_train_batch_size=config.batch_rows,
        learning_rate=config.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,  # a share of all
        weight_decay=0.01,
        max_length=None,
        seed=config.seed,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        dataloader_pin_memory=False,
        logging_steps=0.1,  # of all
        save_strategy="no",
        report_to="none",
        disable_tqdm=quiet,
    )


def _card(interaction: Interaction[Any], config: MicroConfig, parameters: int) -> str:
    facts = [f"task: `{json.dumps(fingerprint(interaction), ensure_ascii=False)}`"]
    facts += [f"roles: {', '.join(interaction.roles)}"] if len(interaction.roles) > 1 else []
    listed = "\n".join(f"- {fact}" for fact in [*facts, f"built with: `{json.dumps(asdict(config))}`"])
    return f"""---
library_name: transformers
license: apache-2.0
tags: [hf-credit, micro-policy, {interaction.name}]
---

# A micro policy for `{interaction.name}`

{parameters:,} parameters, built from scratch by hf-credit and warmed up on scripted play. It is a starting point for
experiments in credit assignment on a CPU and knows nothing but this task.

{listed}
"""
