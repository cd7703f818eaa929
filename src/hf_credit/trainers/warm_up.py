"""Supervised training on demonstrations, before a policy is trained by its own play."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import PeftModel
from torch.nn import functional
from transformers import AutoConfig
from trl import ModelConfig, SFTConfig, SFTTrainer, get_peft_config, get_quantization_config

from hf_credit.files import filled
from hf_credit.loading import load_processing_class, refuse_adapters, require_model
from hf_credit.noise import silence_known_warnings
from hf_credit.policies.generation import context_positions
from hf_credit.policies.scripted import IGNORED, Demonstration, supervised_rows
from hf_credit.rollouts import Chat
from hf_credit.rollouts.media import media_of
from hf_credit.tasks import TaskSpec
from hf_credit.trainers.callbacks import show_headlines
from hf_credit.trainers.ranks import shards_weights
from hf_credit.trainers.recipes import FieldParser, flags
from hf_credit.trainers.recording import RunRecorder
from hf_credit.trainers.saving import correct_card
from hf_credit.trainers.scores import head_reads, pack, separate, why_apart
from hf_credit.trainers.trl_settings import refuse_unused

silence_known_warnings()


class WarmUpTrainer(SFTTrainer):
    """TRL's `SFTTrainer` on demonstrations: the sequences that a later training has, with loss on the replies alone.

    The loss is the mean over tokens of the cross entropy with the token of the reply or, if all demonstrations have
    shares, with these. A sequence is never truncated.

    Args:
        model, args, **others: as for `SFTTrainer`. A sequence longer than `max_length` is an error; `None` allows any.
        demonstrations: to learn from, at least one; rendered with the tokenizer or processor of the model.
        held_out: of other tasks, for the held-out loss.

    Raises:
        ValueError: there is no demonstration, one is too long, or a setting would change the tokens.
    """

    _tag_names = ["trl", "hf-credit", "warm-up"]  # noqa: RUF012
    _name = "warm-up"

    def __init__(
        self,
        model: Any,
        args: SFTConfig,
        demonstrations: Sequence[Demonstration],
        held_out: Sequence[Demonstration] = (),
        *,
        processing_class: Any,
        **others: Any,
    ) -> None:
        refuse_unused(args, "warm-up")
        args = copy.copy(args)
        args.dataset_kwargs, args.remove_unused_columns = {"skip_prepare_dataset": True}, False
        args.router_aux_loss_coef = args.router_aux_loss_coef or 0.0  # unset, TRL takes the model's own
        args.use_cache = True  # transformers writes it into the settings that are saved with the model
        train, evaluated = (dataset_of(one, args.max_length) for one in (demonstrations, held_out))
        if train is None:
            raise ValueError("a warm-up must have a demonstration to learn from, got none; give more episodes.")
        if "shares" in train.column_names:
            refuse_unused(args, "shares")
        super().__init__(
            model,
            args,
            train_dataset=train,
            eval_dataset=evaluated,
            processing_class=processing_class,
            **others,
        )
        self.media = media_of(processing_class)
        self.data_collator = functools.partial(_with_others, self.data_collator)
        show_headlines(self)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """As in TRL; with the shares of tokens, the cross entropy with these, and what rows begin with read once."""
        unwrapped = self.accelerator.unwrap_model(model)
        shown = inputs.pop("media", None)
        if "shares" not in inputs:
            inputs |= self.media.inputs(unwrapped, inputs["input_ids"], shown)
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        learned = inputs["labels"][:, 1:] != IGNORED
        asked = inputs["input_ids"], inputs["attention_mask"], learned, unwrapped, self.media, shown
        apart = why_apart(model, unwrapped, self.accelerator, self.media)
        rows = (None if apart else pack(*asked)) or separate(*asked)
        predicting = rows.labels != IGNORED
        with head_reads(unwrapped, predicting):
            logits = model(**rows.inputs, use_cache=False).logits[0]
        of_column = torch.zeros_like(rows.labels).masked_scatter(
            predicting, torch.arange(len(logits)).to(logits.device)
        )
        logits = logits[of_column[rows.places][learned]]
        shares, count = inputs["shares"], learned.sum() if num_items_in_batch is None else num_items_in_batch
        logprobs = functional.log_softmax(logits.float(), dim=-1)[inputs["places"], inputs["tokens"]]
        loss = -(logprobs * shares).sum() / count
        if self.args.average_tokens_across_devices and num_items_in_batch is not None:
            loss = loss * self.accelerator.num_processes  # the count is of all processes, the gradient their mean
        return (loss, {}) if return_outputs else loss

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        super().create_model_card(*args, **kwargs)
        correct_card(self)


def dataset_of(demonstrations: Sequence[Demonstration], max_length: int | None = None) -> Dataset | None:
    """Returns the rows of demonstrations (`supervised_rows`) as a dataset for `SFTTrainer`; `None` without any.

    Raises:
        ValueError: a row has more than `max_length` tokens.
    """
    rows = [row for one in demonstrations for row in supervised_rows(one)]
    longest = max((len(row["input_ids"]) for row in rows), default=0)
    if max_length is not None and longest > max_length:
        raise ValueError(
            f"a row must have at most max_length = {max_length} tokens, as none is truncated, got {longest}; raise "
            "it, or set it to None."
        )
    if not rows:
        return None
    names = [name for name in rows[0] if all(name in row for row in rows)]
    columns = {name: [row[name] for row in rows] for name in names}
    if any("media" in row for row in rows):
        columns["media"] = [row.get("media", []) for row in rows]
    return Dataset.from_dict(columns)


def read_settings(
    model: str, arguments: Sequence[str], output: str | Path, spec: TaskSpec | None, trust_remote_code: bool = False
) -> tuple[SFTConfig, ModelConfig, Chat, dict[str, float]]:
    """Reads `--field value ...`, fields of TRL's `SFTConfig` and `ModelConfig`, and loads the model's tokenizer.

    By default `max_length` is `None`, `logging_steps` 1, and the CPU is used if there is nothing else.

    Returns:
        The settings, those of the model, a chat with the prompts of the task, and the limits of
        `hf_credit.policies.scripted.select`, which are those of the later training.

    Raises:
        ValueError: a field or the model does not exist, a value is invalid, the model is an adapter, its tokenizer has
            no template or padding token, or a reply takes all of its positions.
    """
    parts: Any = (SFTConfig, ModelConfig)
    parser = FieldParser(parts, allow_abbrev=False, conflict_handler="resolve")
    parser.set_defaults(max_length=None, logging_steps=1, use_cpu=not torch.accelerator.is_available())
    typed = [*arguments, "--output_dir", str(output), "--model_name_or_path", model]
    args, config, *_, unknown = parser.parse_args_and_config(typed, return_remaining_strings=True)
    if unknown:
        raise ValueError(
            f"a warm-up has the fields of TRL's SFTConfig and ModelConfig, got {flags(unknown)}; correct or remove it."
        )
    if args.push_to_hub:
        raise ValueError(
            "a warm-up is published when it has ended, got push_to_hub; leave it out, and run hf-credit publish "
            f"checkpoint {output} OWNER/NAME then."
        )
    args.trust_remote_code = args.trust_remote_code or trust_remote_code
    known = {"dtype": config.dtype, "attn_implementation": config.attn_implementation}
    args.model_init_kwargs = {"revision": config.model_revision, **known, **(args.model_init_kwargs or {})}
    require_model(model, config.model_revision)
    refuse_adapters(model)
    loading: Any = {"revision": config.model_revision, "trust_remote_code": args.trust_remote_code}
    processing_class = load_processing_class(model, **loading)
    shape: Any = AutoConfig.from_pretrained(model, **loading)
    positions: Any = getattr(shape.get_text_config(), "max_position_embeddings", None) or math.inf
    limits = {"max_length": min(args.max_length or math.inf, positions)}
    if spec is not None:
        limits["max_new_tokens"] = reply = spec.sampling.max_new_tokens
        limits["max_context_tokens"] = context_positions(reply, positions)
    return args, config, Chat(processing_class, {} if spec is None else spec.chat_template_kwargs), limits


def trainer_of(
    config: ModelConfig,
    args: SFTConfig,
    chat: Chat,
    demonstrations: Sequence[Demonstration],
    held_out: Sequence[Demonstration],
    dropped: Mapping[str, int],
) -> WarmUpTrainer:
    """Returns the trainer of a warm-up, which records its settings, its log and the episodes that were left out.

    The held-out loss is also measured before the first update.
    """
    args.eval_on_start = bool(held_out)
    trainer = WarmUpTrainer(
        config.model_name_or_path,
        args,
        demonstrations,
        held_out,
        processing_class=chat.media.processing_class,
        peft_config=get_peft_config(config),
        quantization_config=get_quantization_config(config),
    )
    facts = {"method": "warm-up", "episodes": len(demonstrations), "held_out": len(held_out)}
    trainer.add_callback(RunRecorder({**asdict(config), **args.to_dict()}, {**facts, "left_out": dict(dropped)}))
    return trainer


def save(trainer: WarmUpTrainer, spec: TaskSpec | None) -> None:
    """Saves the policy, its tokenizer, its task and the trainer's state in `output_dir`, for `train` and `evaluate`.

    An adapter is merged into its model, except into quantised weights, and into those that no process has whole.
    """
    folder, model = Path(str(trainer.args.output_dir)), trainer.model
    processing_class: Any = trainer.processing_class
    apart = getattr(model, "is_quantized", False) or shards_weights(trainer.accelerator)
    if trainer.is_world_process_zero() and isinstance(model, PeftModel) and not apart:
        with filled(folder) as new:
            model.merge_and_unload().save_pretrained(new)
            processing_class.save_pretrained(new)
    else:
        trainer.save_model(str(folder), _internal_call=True)
    trainer.save_state()
    if spec is not None and trainer.is_world_process_zero():
        spec.save(folder)


def _with_others(collator: Any, rows: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, Any]:
    """Also has the shares and the media of rows, which the collator of TRL leaves out."""
    batch: dict[str, Any] = collator(rows)
    if "media" in rows[0]:
        batch["media"] = [row["media"] for row in rows]
    if "shares" in rows[0]:
        counts, batch["tokens"], batch["shares"] = (
            torch.tensor([value for row in rows for value in row[name]]) for name in ("counts", "tokens", "shares")
        )
        batch["places"] = torch.repeat_interleave(torch.arange(len(counts)), counts)
    return batch
