"""Checkpoints, and runs that resume from them with the result of an uninterrupted run, or are refused."""

from __future__ import annotations

import copy
import functools
import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import IterableDataset
from peft import PeftModel
from transformers import Trainer, TrainerState
from transformers.trainer import TRAINER_STATE_NAME, TRAINING_ARGS_NAME
from transformers.trainer_utils import HubStrategy

from hf_credit.boundary import types_of
from hf_credit.checkpoint_store import PREFIX, checkpoint_store
from hf_credit.checkpoints import (
    NUMBERED,
    begin,
    checkpoint_to_resume,
    explain_disk_errors,
    recorded,
    refuse_another_run,
    rotate,
    write_manifest,
)
from hf_credit.files import replaced
from hf_credit.loading import ADAPTER_CONFIG, require_whole
from hf_credit.methods import Method
from hf_credit.playing import Sampling
from hf_credit.redaction import redacted
from hf_credit.rollouts import Chat, Interaction
from hf_credit.rollouts.capabilities import fingerprint
from hf_credit.rollouts.chat import TODAY
from hf_credit.rollouts.pulse import PULSE
from hf_credit.rollouts.samplers import Player
from hf_credit.trainers.callbacks import CheckpointCallback, IntervalsOfThisRun, StopWhenSpent, watched
from hf_credit.trainers.component import Component
from hf_credit.trainers.ranks import Ranks, from_main, keep_precision
from hf_credit.trainers.saving import correct_card, save_task

logger = logging.getLogger(__name__)

_STATE_FILE = "hf_credit_state_{}.pt"  # one for each process

# Settings that change no weight; all others must be those of the checkpoint. `max_steps` is not here: the learning
# rate schedule and the order of the tasks depend on it. Nor is evaluation, which draws random numbers.
_FREE_SETTINGS = re.compile(
    r"(logging_|log_|save_|hub_|trackio_|vllm_server_|do_|resume_).*|output_dir|run_name|project|report_to|debug|"
    r"disable_tqdm|num_completions_to_print|push_to_hub|restore_callback_states_from_checkpoint|"
    r"max_inflight_tasks|skip_memory_metrics|include_num_input_tokens_seen|local_rank|ddp_timeout|vllm_group_port|"
    r"vllm_gpu_memory_utilization|token_budget|max_sampled_tokens|heartbeat_stale_after_s|request_timeout|weight_(transfer|folder|"
    r"sync_timeout)|dataloader_(num_workers|pin_memory|persistent_workers|prefetch_factor|"
    r"multiprocessing_context)"
)


def run_facts(trainer: Any) -> dict[str, Any]:
    """Everything that the weights of a run depend on, as plain values by name, without tokens, keys and passwords."""
    settings = {name: value for name, value in trainer.args.to_dict().items() if not _FREE_SETTINGS.fullmatch(name)}
    if trainer.args.eval_strategy == "no":
        settings.pop("per_device_eval_batch_size", None)  # derived from those of the training
    config = trainer.model.config.get_text_config()
    shape = {name: getattr(config, name, None) for name in ("model_type", "hidden_size", "num_hidden_layers")}
    adapters = getattr(trainer.model, "peft_config", {}).values()
    dataset = trainer.train_dataset
    kwargs = dict(settings.get("chat_template_kwargs") or {})
    facts = {
        **settings,
        TODAY: kwargs.pop(TODAY, None),
        "chat_template_kwargs": kwargs or None,
        "processes": trainer.accelerator.num_processes,
        "method": trainer.method.fingerprint(),
        "task": fingerprint(trainer.interaction),
        "samplers": {role: _named(sampler) for role, sampler in getattr(trainer, "samplers", {}).items()},
        "model": {**shape, "vocab_size": getattr(config, "vocab_size", None)},
        "adapter": [{name: getattr(adapter, name, None) for name in ("r", "lora_alpha")} for adapter in adapters],
        "tasks": None if isinstance(dataset, IterableDataset) else len(dataset),
    }
    return dict(redacted(json.loads(json.dumps(facts, default=str))))  # may be pushed to a public repository


def _named(sampler: Any) -> str:
    """The name of a sampler's model, or of its function or class, and how it samples, if it does; a player in full."""
    if isinstance(sampler, Player):
        return repr(sampler)
    model = getattr(getattr(sampler, "policy", None), "name_or_path", "")
    name = str(model or getattr(sampler, "__qualname__", type(sampler).__qualname__))
    config = getattr(sampler, "config", None)
    if not getattr(config, "do_sample", False):
        return name
    drawn = {one: getattr(config, one) for one in types_of(Sampling)}
    return f"{name}, {drawn}"


class ResumableTrainer(Trainer):
    """A trainer that resumes from complete checkpoints only, with the result of an uninterrupted run.

    A checkpoint is complete once its manifest is written, after everything else. Only then is it pushed, and older
    checkpoints deleted. A run is resumed only with the settings, the task and the number of processes that it was
    saved with, except for the names in `args.resume_with_changed`.
    """

    adapters: Any = None  # of the roles, if they have any
    args: Any
    hub_model_id: Any
    interaction: Interaction[Any]
    evaluation_interaction: Interaction[Any]
    chat: Chat
    method: Method
    model: Any
    ranks: Ranks
    use_vllm: bool
    roles: Sequence[str] = ()  # with an adapter of their own

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._run: dict[str, Any] = {}
        self._complete: Path | None = None  # the checkpoint of the current update
        self._saving, self._most_kept = False, None
        self._passes = 0  # over the tasks, before the resumed one
        self.add_callback(IntervalsOfThisRun())
        if self.args.max_sampled_tokens is not None:
            self.add_callback(StopWhenSpent(self))

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        keep_precision(self.accelerator)

    def log_metric(self, name: str, value: float) -> None:
        """Records a metric of this update."""
        raise NotImplementedError

    @property
    def components(self) -> list[Component]:
        """The parts of this trainer, in the order in which they were added."""
        return [one for one in self.callback_handler.callbacks if isinstance(one, Component)]

    @property
    def in_generation(self) -> bool:
        """Whether a later update may still train on the last generation of episodes."""
        return False

    def checkpoint_state(self) -> dict[str, Any]:
        """What this process needs to resume in addition to what transformers saves: tensors and plain values."""
        return {name: value for one in self.components for name, value in one.checkpoint_state().items()}

    def load_checkpoint_state(self, state: dict[str, Any], same: bool) -> None:
        """Restores what `checkpoint_state` returned.

        Args:
            same: whether `state` is of this process; else only what is the same on every process holds.
        """

    def load_checkpoint(self, folder: Path, same: bool) -> None:
        """Restores the trainer and its components from a checkpoint, of the `same` number of processes or another."""
        path = folder / _STATE_FILE.format(self.accelerator.process_index if same else 0)
        state = torch.load(path, map_location="cpu", weights_only=True)  # a critic's is large, and copied from there
        self.load_checkpoint_state(state, same)
        for one in self.components:
            one.load(folder, state, same)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As in transformers, with the task and the method, and what components save next to the policy."""
        folder = Path(output_dir or self.args.output_dir)
        if self.args.should_save:  # before TRL saves, which may push the folder
            save_task(folder, self.evaluation_interaction, self.method, self.args)
        super().save_model(output_dir, _internal_call)
        if self.is_world_process_zero():
            for one in self.components:
                one.save(folder)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        # Tied weights are in no file, and are not missing.
        tied = set(getattr(self.model, "all_tied_weights_keys", None) or ())
        missing = [name for name in load_result.missing_keys if name not in tied]
        require_whole(self._complete or "a checkpoint", missing, load_result.unexpected_keys)

    def train(
        self,
        resume_from_checkpoint: str | Path | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> Any:
        """Trains, as in transformers.

        Args:
            resume_from_checkpoint: a complete checkpoint; `True` for the latest complete one in `output_dir`, without
                which training starts from the beginning; or `hub:owner/name[@revision]`, a published checkpoint, which
                is downloaded to `output_dir` first.
            trial, ignore_keys_for_eval: as in transformers.

        Raises:
            ValueError: the checkpoint is incomplete, or of another run.
            OSError: a checkpoint cannot be written, or downloaded.
        """
        self._run = run_facts(self)
        self._passes = 0
        folder = from_main(self.accelerator, lambda: self._checkpoint_to_resume(resume_from_checkpoint))
        self._complete = folder and folder.resolve()
        known = self._run if folder is None else {**self._run, **recorded(folder)["run"]}
        if today := from_main(self.accelerator, lambda: known[TODAY]):  # the run may have begun on another day
            self.chat.pin(today)
            self._run[TODAY] = today
        if folder is not None:
            self._restore(folder)
            if self.is_world_process_zero():
                logger.warning("resumes from %s", folder)
        self._most_kept = self.args.save_total_limit
        self.args.save_total_limit = None  # `rotate` deletes, and only what is ours
        try:
            with watched(self):
                return super().train(None if folder is None else str(folder), trial, ignore_keys_for_eval)
        finally:
            self.args.save_total_limit = self._most_kept

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device) -> Any:
        if self.state.global_step >= self.state.max_steps or self.control.should_training_stop:
            return [], None  # when resumed from the last update's checkpoint, transformers would make one more update
        PULSE.begin("generating")
        return super().get_batch_samples(epoch_iterator, num_batches, device)

    def from_this_pass(self, sampler: Any) -> Any:
        """A training sampler advanced past the passes before the resumed one, by drawing their orders."""
        for _ in range(self._passes):
            next(iter(sampler), None)
        return sampler

    def save_complete(self, run_dir: str, save: Callable[[], None]) -> None:
        """Saves a checkpoint with `save`, declares it complete, and only then pushes it and deletes older ones."""
        folder = Path(run_dir) / f"{NUMBERED}{self.state.global_step}"
        if folder.resolve() == self._complete:
            return  # saved at the end of the update; this is the end of the epoch
        PULSE.begin("saving")
        saves, self._saving = self.args.should_save, True
        try:
            with explain_disk_errors(folder):
                if saves:
                    begin(folder)  # a killed run may have left one, perhaps with other files
                self.accelerator.wait_for_everyone()
                save()
                if not self.args.save_only_model:
                    with replaced(folder / _STATE_FILE.format(self.accelerator.process_index)) as path:
                        torch.save(self.checkpoint_state(), path)
                self.accelerator.wait_for_everyone()
                if saves:
                    args = copy.copy(self.args)
                    args.save_total_limit = self._most_kept
                    with replaced(folder / TRAINING_ARGS_NAME) as path:
                        torch.save(args, path)
                    for callback in self.callback_handler.callbacks:
                        if isinstance(callback, CheckpointCallback):
                            callback.on_checkpoint(folder)
                    write_manifest(folder, self._run, resumable=not self.args.save_only_model)
        finally:
            self._saving = False
        self._complete = folder.resolve()
        if self.args.push_to_hub:
            from_main(self.accelerator, lambda: self._push_from_checkpoint(str(folder)))
        if saves:
            best = self.state.best_model_checkpoint
            rotate(Path(run_dir), self._most_kept, [folder, *([Path(best)] if best else [])])

    def init_hf_repo(self, token: str | None = None, private: bool | None = None) -> None:
        """Completes the name of the repository, which the first publication creates.

        Raises:
            ValueError: others could not load the base model of an adapter, or the backbone of a critic.
        """
        if self.is_world_process_zero():
            name = self.args.hub_model_id or Path(self.args.output_dir).absolute().name
            token = token or self.args.hub_token
            owner = "" if "/" in name else f"{checkpoint_store().account(token)}/"
            self.hub_model_id = owner + name
            adapters = getattr(self.model, "peft_config", {}).values()
            private = self.args.hub_private_repo if private is None else private
            checkpoint_store().require_bases(adapters, getattr(self.args, "critic_model", None), token, private)

    def push_to_hub(
        self,
        commit_message: str | None = None,
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Saves the model and its card, and publishes them with the latest checkpoint as one commit.

        Args:
            commit_message, blocking, revision: ignored, in the signature for transformers: a publication is one commit
                to the main branch with a fixed message, and blocks.
            token, private: as in transformers.
            kwargs: for the model card.

        Raises:
            ValueError: something in the folder must not be published.
            OSError: the Hub refuses, or every attempt fails.
        """
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        if self.hub_model_id is None:
            self.init_hf_repo(token, private)
        self.save_model(_internal_call=True)

        def published() -> Any:
            self.create_model_card(model_name=self.hub_model_id.rpartition("/")[2], **kwargs)
            return self._publish(Path(self.args.output_dir), token, private)

        return from_main(self.accelerator, published)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if self._saving or not self.is_world_process_zero() or self.args.hub_strategy == HubStrategy.END:
            return
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        try:
            self._publish(Path(checkpoint_folder))
        except (OSError, ValueError) as error:  # the run continues, and publishes its next checkpoint
            logger.warning("did not publish %s: %s", checkpoint_folder, error)

    def _publish(self, folder: Path, token: str | None = None, private: bool | None = None) -> Any:
        return checkpoint_store().publish_checkpoint(
            folder,
            self.hub_model_id,
            token=token or self.args.hub_token,
            private=bool(self.args.hub_private_repo if private is None else private),
        )

    def _checkpoint_to_resume(self, chosen: str | Path | bool | None) -> Path | None:
        folder = self.args.output_dir
        run: dict[str, Any] = {"run": self._run, "accepted": [*(self.args.resume_with_changed or []), TODAY]}
        if isinstance(chosen, str) and chosen.startswith(PREFIX):
            check = functools.partial(refuse_another_run, **run, place=chosen)
            chosen = checkpoint_store().fetch_resumable(chosen, folder, self.args.hub_token, check)
        return checkpoint_to_resume(chosen, folder, **run)

    def _load_best_model(self) -> None:
        best = self.state.best_model_checkpoint
        if self.roles and best is not None:
            self._load_from_checkpoint(best)  # transformers would load one adapter only
        else:
            super()._load_best_model()

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self.adapters is not None:
            self.adapters.unfreeze()  # transformers loads all adapters and freezes all but one
            return
        policy: Any = self.model if model is None else model
        whole = isinstance(policy, PeftModel) and not self.is_fsdp_enabled
        if whole and len(policy.peft_config) > 1 and Path(resume_from_checkpoint, ADAPTER_CONFIG).is_file():
            # transformers before 5.23 does not load the policy's adapter if the model also has a critic's.
            policy.load_adapter(resume_from_checkpoint, "default", is_trainable=True)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        super().create_model_card(*args, **kwargs)
        correct_card(self)

    def _restore(self, folder: Path) -> None:
        state = TrainerState.load_from_json(str(folder / TRAINER_STATE_NAME))
        passes = int(state.epoch or 0)
        if isinstance(self.train_dataset, IterableDataset):
            if passes and state.global_step < state.max_steps:
                logger.warning("resumed %s in a later pass over a stream, which starts with its first task", folder)
        else:
            self._passes = passes
        processes = len(list(folder.glob(_STATE_FILE.format("*"))))
        self.load_checkpoint(folder, processes == self.accelerator.num_processes)
