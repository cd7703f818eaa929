"""`AsyncCreditTrainer`: learns while a server generates, with any method that needs no frozen copy of the policy."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from peft import LoraConfig, PeftConfig
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

from hf_credit import methods
from hf_credit.collectors import RolloutBatch
from hf_credit.files import remove_earlier
from hf_credit.loading import ADAPTER_CONFIG
from hf_credit.methods import DecisionCredits, Method
from hf_credit.policies.generation import context_positions, evaluating, lower_of
from hf_credit.rollouts import Engine, Interaction, Ledger, by_episode, refuse_total_failure
from hf_credit.rollouts.pulse import PULSE
from hf_credit.trainers import arguments
from hf_credit.trainers.asynchronous.collection import CreditedRollouts
from hf_credit.trainers.asynchronous.config import AsyncCreditConfig
from hf_credit.trainers.asynchronous.server import Server
from hf_credit.trainers.asynchronous.trl_1_16 import UpdateTrainer
from hf_credit.trainers.asynchronous.weights import FolderTransfer, refuse_other_weights
from hf_credit.trainers.asynchronous.worker import Worker
from hf_credit.trainers.callbacks import (
    CreditCallback,
    EpisodeCallback,
    WarnWithoutSignal,
    show_headlines,
)
from hf_credit.trainers.metrics import summaries_of, update_metrics
from hf_credit.trainers.ranks import Ranks, from_main
from hf_credit.trainers.recording import CompletionsTable, EpisodeRecorder, RunRecorder
from hf_credit.trainers.saving import name_base
from hf_credit.trainers.starts import Starts

_PROBE = 'Which decision deserves the credit? 3.14159, 2.71828: the answer is on page 42, line 7, "in the end".'
_POLL_SECONDS = 2.0


class AsyncCreditTrainer(UpdateTrainer):
    """Trains language agents with a method of credit assignment, while a vLLM server plays the next episodes.

    A worker on the main process plays several collections in parallel, with replies of the server, and credits them.
    Each collection becomes one update of the policy: TRL's clipped surrogate over its tokens, each with its own
    advantage, in forward passes that read a shared beginning of rows once. After each update the server gets the new
    weights, in the middle of its replies. The gradient of an update is that of `CreditTrainer` on the same episodes.

    Critics are in the processes that train. They predict when an update draws a collection, which only then gets its
    credit, and learn from it in the same update. So their values are never older than the policy that learns.

    Args:
        model: a model id or a folder.
        interaction: the Interaction to play.
        args: the settings.
        train_dataset: task rows; the Interaction's own training tasks if `None`.
        method: a `Method`, or the name of a method with its default options (`hf_credit.methods.make`).
        eval_dataset: task rows of the evaluation, or several datasets by name. With `None` the Interaction's own
            held-out tasks, if `eval_strategy` asks for an evaluation.
        processing_class: the tokenizer; the model's own if `None`.
        critic: backbone of the method's critics, as for `CreditTrainer`.
        callbacks, optimizers: as in TRL. `CreditCallback` and `EpisodeCallback` get episodes and credit.
        peft_config: as in TRL. A server that serves adapters gets the adapter alone. With `role_adapters` it is the
            `LoraConfig` of each role.
        evaluation_interaction: the Interaction that evaluation plays; if `None`, the one that `interaction` names for
            evaluation, by default itself.
        worker: plays and credits in place of the default `Worker`; implements `Supply` and TRL's
            `RolloutWorkerProtocol`.
        weight_transfer: transfers weights in place of `args.weight_transfer`; implements TRL's
            `WeightTransferProtocol`.

    Raises:
        ValueError: the method needs a second policy or does not fit the Interaction, there are too few task
            rows, or a setting is invalid.
        TypeError, DryRunError: an argument has another type; a task row, played without the policy, raised an error.
    """

    _tag_names = ["trl", "hf-credit"]  # noqa: RUF012 (TRL's own convention)
    _name = "AsyncCredit"

    def __init__(
        self,
        model: str,
        interaction: Interaction[Any],
        args: AsyncCreditConfig | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        *,
        method: Method | str,
        critic: str | PreTrainedModel | LoraConfig | None = None,
        eval_dataset: Dataset | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        callbacks: Sequence[TrainerCallback] = (),
        optimizers: tuple[Any, Any] = (None, None),
        peft_config: PeftConfig | None = None,
        evaluation_interaction: Interaction[Any] | None = None,
        worker: Any = None,
        weight_transfer: Any = None,
    ) -> None:
        args = args or AsyncCreditConfig()
        arguments.require(interaction, args, AsyncCreditConfig)
        args.complete(interaction)
        if not isinstance(model, str):
            raise TypeError(
                f"model must be a model id or a folder, which the server has too, got a {type(model).__name__}; save "
                "it and pass the folder."
            )
        self.roles = tuple(args.role_adapters or ())
        arguments.prepare_roles(args, interaction, model, peft_config)
        if self.roles and (weight_transfer is not None or args.weight_transfer != "trl"):
            transfer = repr(args.weight_transfer) if weight_transfer is None else type(weight_transfer).__name__
            raise ValueError(
                "role_adapters must go with weight_transfer='trl', by which a server gets adapters by their names, "
                f"got {transfer}; leave it out."
            )
        passes = args.gradient_accumulation_steps * args.world_size
        if args.role_schedule == "synchronous" and passes < len(self.roles):
            raise ValueError(
                f"an update must have a forward pass for each of {len(self.roles)} roles, got {passes}; raise "
                "gradient_accumulation_steps, or take role_schedule='alternating'."
            )
        if train_dataset is None:
            train_dataset = arguments.training_tasks(interaction, args)
        method = args.composed(methods.make(method) if isinstance(method, str) else method)
        _refuse_other_models(method)
        bare, interaction = interaction, method.wrapped(interaction)
        self.method = method.bind(interaction)
        eval_dataset, config = arguments.prepare(
            self, model, interaction, args, train_dataset, eval_dataset, processing_class, evaluation_interaction
        )
        if isinstance(train_dataset, IterableDataset):
            raise ValueError(
                "train_dataset must have a length, as a restart returns to rows, got a stream; load it "
                "without streaming."
            )
        if args.max_steps <= 0:
            args.max_steps = max(round(args.num_train_epochs * len(train_dataset) / args.generation_batch_size), 1)
        self.server: Server | None = None
        self._serves = worker is None  # the same on every process
        if worker is None and args.process_index == 0:
            self.server = Server(
                args.vllm_server_base_url,
                model,
                **vars(args.sampling()),
                request_timeout=args.request_timeout,
                patience=args.vllm_server_timeout,
                vocabulary=config.get_text_config().vocab_size,
            )
            self.server.wait()
            worker = Worker(
                bare,
                method,
                self.chat,
                self.server,
                train_dataset,
                tasks_per_collection=args.generation_batch_size,
                concurrent_collections=args.concurrent_collections,
                max_concurrent=args.max_concurrent_episodes,
                max_context_tokens=lower_of(
                    args.max_context_tokens,
                    context_positions(args.max_completion_length, self.server.max_model_len()),
                ),
                mask_truncated_completions=args.mask_truncated_completions,
                roles_apart=args.role_schedule == "alternating",
                shuffle=args.shuffle_dataset,
                seed=args.seed,
                starts=None if args.starts is None else partial(Starts, args.starts, args.starts_success),
            )
        if weight_transfer is None and args.weight_transfer == "folder":
            weight_transfer = FolderTransfer(self.server, args.folder_of_weights, own=not args.weight_folder)
            if self.server is not None:
                self.server.restore = weight_transfer.restore
        if self.method.paper:
            self._paper = dict(self.method.paper)
        tokenizer = self.chat.tokenizer
        super().__init__(
            model=model,
            args=args,
            rollout_worker=worker,
            weight_transfer=weight_transfer,
            train_dataset=train_dataset,
            processing_class=tokenizer,
            callbacks=[
                *callbacks,
                EpisodeRecorder(tokenizer, args.log_episodes),
                RunRecorder(),
                WarnWithoutSignal(),
            ],
            optimizers=optimizers,
            peft_config=peft_config,
        )
        name_base(self.model, args)
        self.ranks = Ranks(self.accelerator)
        if args.log_completions:
            self.add_callback(CompletionsTable())
        self.eval_dataset = eval_dataset
        self.chat.also_end(self.eos_token_ids)
        if self.server is not None:
            self.server.sampling["stop_token_ids"] = list(self.chat.end_tokens)
            if self.serves_adapter:
                if self.accelerator.is_main_process:
                    for earlier in Path(str(args.output_dir), ".vllm_lora").glob("policy-*"):  # of killed runs
                        remove_earlier(earlier, (ADAPTER_CONFIG,))
                self.server.adapter = self.name_adapter(f"policy-{secrets.token_hex(4)}")
                self.server.restore = self._restore_adapters
        show_headlines(self)
        self.critics: Mapping[str, Any] = {}
        if self.method.critics:
            from hf_credit.trainers.critics import Critics

            self.critics = Critics(self, self.method, critic)
            self.add_callback(self.critics)
        modules = set(self.model.modules())
        for one in self.critics.values():
            if one.backbone.model in modules:  # whose attention reads packed rows
                one.backbone.attention = "sdpa"

    # An update ----------------------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        """What training has cost so far."""
        return self.updates.ledger

    @property
    def engine(self) -> Engine[Any] | None:
        """What the worker plays with; `None` on all processes but the main one."""
        return getattr(self.rollout_worker, "engine", None)

    def before_update(self, credited: CreditedRollouts) -> None:
        self.model.train()  # as a step does; before the first one it is in the mode that it was loaded in
        with self.alone():
            for callback in self.callback_handler.callbacks:
                if isinstance(callback, CreditCallback):
                    callback.on_credit(self, credited.collected, credited.credit)
            self._pass_on(credited.collected, credited.advantages)

    def _pass_on(self, collected: RolloutBatch, advantages: DecisionCredits) -> None:
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, EpisodeCallback):
                callback.on_episodes(self, collected, advantages)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Context in which the worker runs no code of the task or the method, which the caller may run instead."""
        lock = None if self.engine is None else self.engine.lock
        while lock is not None and not lock.acquire(timeout=_POLL_SECONDS):
            self.rollout_worker.check_health(self.args.heartbeat_stale_after_s)
        try:
            yield
        finally:
            if lock is not None:
                lock.release()

    def before_transfer(self) -> None:
        if self.serves_adapter and self.server is not None:
            self.server.wait()

    def _restore_adapters(self) -> None:
        """Gives the adapters to a server that was away, and may be another process."""
        assert self.server is not None
        there = self.server.models()
        for name, folder in self.served_adapters().items():
            if name not in there:
                self.server.load_adapter(name, folder)

    def weights_arrived(self) -> None:
        """Refuses a server with other weights, before anything is played."""
        if not self._serves:
            return
        whole = self.chat.context([{"role": "user", "content": _PROBE}])
        roles = self.roles or (next(iter(self.interaction.roles)),)
        trained = [self.reply_log_probs(list(whole), role) for role in roles]

        def compare() -> None:
            server = self.server
            assert server is not None
            exact = self.model.dtype == torch.float32 and not self.args.bf16 and server.dtype() == "float32"
            for role, own in zip(roles, trained, strict=True):
                served = server.logprobs(role, whole[:1], whole[1:]).result()
                self.log_metric("server/logprob_difference", refuse_other_weights(own, served, exact))

        from_main(self.accelerator, compare)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Plays the evaluation's tasks with the served policy, while training episodes are played, too.

        Args:
            eval_dataset: task rows, or several datasets by name, which the names of their metrics then include; the
                trainer's if `None`.
            ignore_keys: unused; an argument of transformers.
            metric_key_prefix: of the names of all metrics.

        Raises:
            EveryEpisodeFailedError: all episodes ended in errors.
        """
        rows: Any = self.eval_dataset if eval_dataset is None else eval_dataset
        sets = {f"_{name}": one for name, one in rows.items()} if isinstance(rows, dict) else {"": rows}
        PULSE.begin("evaluating")
        batches = [RolloutBatch() for _ in sets]

        def measured() -> dict[str, float]:
            found = dict[str, float]()
            for number, (name, one) in enumerate(sets.items()):
                with self.alone():
                    played = self.rollout_worker.evaluated(self.evaluation_interaction, list(one))
                batches[number] = played
                refuse_total_failure(played.episodes, what="of an evaluation")
                summaries = summaries_of(played, by_episode(played.episodes, {}), self.chat.end_tokens)
                found |= {
                    f"{metric_key_prefix}{name}_{metric}": value
                    for metric, value in update_metrics(summaries).items()
                    if "advantages/" not in metric  # evaluation gives no credit
                }
            return found

        metrics = from_main(self.accelerator, measured)
        with evaluating(self.model):
            with self.alone():
                for played in batches:
                    self._pass_on(played, by_episode(played.episodes, {}))
            self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return dict(metrics)

    # Checkpoints --------------------------------------------------------------------------------------------------

    def checkpoint_state(self) -> dict[str, Any]:
        if self.updates.supply is None:
            return super().checkpoint_state()
        return {
            **super().checkpoint_state(),
            "version": self.model_version,
            "ledger": self.ledger.to_dict(),
            "worker": self.updates.supply.state(),
        }

    def load_checkpoint_state(self, state: dict[str, Any], same: bool) -> None:
        if self.updates.supply is None:
            return
        self.model_version = state["version"] - 1  # which the first transfer counts up
        self.updates.ledger = Ledger(**state["ledger"])
        self.updates.supply.load_state(state["worker"])


def _refuse_other_models(method: Method) -> None:
    """Refuses a method that needs a policy besides the one that is served."""
    asked = {
        "a frozen copy of the policy": method.refresh_frozen_every is not None,
        "the ratio of whole episodes": method.sequence_ratio,
    }
    for what, wanted in asked.items():
        if wanted:
            raise ValueError(
                f"asynchronous training trains one policy, got the method {method.name!r}, which asks for {what}; "
                "train it with CreditTrainer."
            )
