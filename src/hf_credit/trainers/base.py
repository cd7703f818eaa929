"""The seam with TRL: episodes in, the batch that TRL's loss reads out. The only module that knows TRL's internals."""

from __future__ import annotations

import functools
import inspect
import math
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import DistributedType
from datasets import Dataset, IterableDataset
from peft import PeftConfig, PeftModel
from torch import Tensor
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PrinterCallback,
    ProgressCallback,
    TrainerCallback,
)
from trl import GRPOTrainer
from trl.generation import vllm_generation
from trl.models.utils import disable_gradient_checkpointing, unwrap_model_for_generation
from trl.trainer.utils import use_adapter

from hf_credit.collectors import RolloutBatch
from hf_credit.credit import clipped_surrogate, next_entropy_coefficient, reference_divergence, sampling_ratio
from hf_credit.loading import ADAPTER_CONFIG, require_whole_files
from hf_credit.methods import DecisionCredit
from hf_credit.policies.generation import can_continue, evaluating, room_beside, room_for_context
from hf_credit.rollouts import (
    Chat,
    Engine,
    Episode,
    GenerateFn,
    Generation,
    Interaction,
    Ledger,
    Row,
    by_episode,
    decision_rows,
    sequence_mean,
)
from hf_credit.rollouts.batches import map_micro_batches, micro_batches, pad_rows, padding_row
from hf_credit.rollouts.capabilities import Metered, evaluated
from hf_credit.rollouts.failures import refuse_total_failure
from hf_credit.trainers import arguments
from hf_credit.trainers.callbacks import BriefPrinter, BriefProgress, EpisodeCallback, WarnWithoutSignal
from hf_credit.trainers.cards import mend_card
from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.generation import ContinuingReplies, generations
from hf_credit.trainers.metrics import (
    LossMetrics,
    largest_difference,
    mean,
    summarise,
    update_metrics,
    without_cut_replies,
)
from hf_credit.trainers.ranks import SynchronizedSampler, accumulating, shards_weights
from hf_credit.trainers.recording import CompletionsTable, EpisodeRecorder
from hf_credit.trainers.resumption import ResumableTrainer
from hf_credit.trainers.role_adapters import TRLS_OWN, RoleAdapters, prepare_roles, without_reference
from hf_credit.trainers.sequences import refuse_several_rows, require_one_row
from hf_credit.trainers.shared_prefix import Scores, separate_log_probs, shared_log_probs
from hf_credit.trainers.trust_region import Projection
from hf_credit.trainers.vllm import context_length, through_vllm, wait_for_server


class EpisodeTrainer(ResumableTrainer, GRPOTrainer):
    """Trains on the decisions of episodes, each with credit of its own.

    It overrides two methods of TRL: `_generate_and_score_completions`, where episodes are collected, credited and laid
    out in rows, and `_compute_loss`, the clipped surrogate over the tokens of a slice (`hf_credit.credit.surrogate`),
    computed in parts of `micro_batch_rows` rows. Generation, quantisation, sharding and logging are TRL's own.

    A subclass says which episodes are played, in `collect`, and what their decisions deserve, in `credit`. The roles
    share one policy or, with `args.role_adapters`, have an adapter each on one base model, in `adapters`.

    Args:
        model: a model id, a model or a PEFT model, as in TRL.
        interaction: what is played.
        args: the settings.
        train_dataset: task rows.
        eval_dataset: task rows of the evaluation, or several by name; held-out tasks of the Interaction's own if
            `None`, where `eval_strategy` asks for an evaluation.
        processing_class: the tokenizer; the model's own if `None`.
        callbacks, optimizers, quantization_config: as in TRL.
        peft_config: as in TRL; with `role_adapters` a `LoraConfig`, that of each role. A PEFT model then needs one
            adapter for each role and no other.
        evaluation_interaction: what evaluation plays; if `None`, `interaction`, or what it says is evaluated.
        samplers: who replies for roles that nothing is learned from (`Learned.untrained`), such as a judge with
            weights of its own: contexts in the tokens of the policy's tokenizer in, replies in the same out, as
            `hf_credit.policies.generation.sampler` makes of a model of its family. The policy speaks for the others.

    Raises:
        ValueError: the tokenizer has no chat template or padding token, the dataset cannot fill one update, no reply
            fits the model, a setting would make the loss depend on the layout of rows, or roles do not fit adapters.
        TypeError, DryRunError: an argument is of another kind; a task row, played without the policy, raised.
    """

    _tag_names = ["trl", "hf-credit"]  # noqa: RUF012 (TRL's own convention)
    _name = "Credit"
    # TRL's own annotations allow what never is once it is set up.
    args: Any
    model: Any
    pad_to_multiple_of: int | None
    _logs: dict[str, Any]
    _evaluated_as = "eval"
    roles: Sequence[str] = ()  # those with a policy of their own

    def __init__(
        self,
        model: str | PreTrainedModel,
        interaction: Interaction[Any],
        args: CreditConfig,
        train_dataset: Dataset | IterableDataset,
        eval_dataset: Dataset | IterableDataset | dict[str, Any] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        quantization_config: Any | None = None,
        peft_config: PeftConfig | None = None,
        evaluation_interaction: Interaction[Any] | None = None,
        samplers: Mapping[str, GenerateFn] | None = None,
    ) -> None:
        engine = prepare_roles(args, interaction, model, peft_config)
        self.roles = tuple(args.role_adapters or ())
        arguments.require(interaction, args, CreditConfig)
        arguments.require_samplers(interaction, args, samplers or {})
        self.samplers = dict(samplers or {})
        require_one_row(interaction, args)
        processing_class = arguments.tokenizer_of(model, args) if processing_class is None else processing_class
        arguments.read_calls_of(processing_class, interaction)
        self.interaction, self.args = interaction, args
        self.chat = Chat(processing_class, cast(dict[str, Any] | None, args.chat_template_kwargs))
        self.evaluation_interaction = (
            evaluated(interaction) if evaluation_interaction is None else evaluation_interaction
        )
        if eval_dataset is None:
            eval_dataset = arguments.held_out_tasks(self.evaluation_interaction, args)
        arguments.check_rows(args, self.chat, interaction, train_dataset, self.evaluation_interaction, eval_dataset)
        if isinstance(model, str):
            chosen = cast(dict[str, Any], args.model_init_kwargs or {})
            require_whole_files(model, **{"trust_remote_code": args.trust_remote_code, **chosen})
        wait_for_server(args)
        arguments.require_vllm(args)
        adapted = peft_config is not None
        reference = arguments.reference_at_hand(model, args, adapted)
        with reference, without_reference(args, model), making_engine(**engine):
            super().__init__(
                model=model,
                reward_funcs=_no_reward,
                args=args,
                train_dataset=train_dataset,
                eval_dataset=eval_dataset,
                processing_class=processing_class,
                callbacks=[*(callbacks or []), arguments.StopOnFailedEvaluation(self), WarnWithoutSignal()],
                optimizers=optimizers,
                quantization_config=quantization_config,
                peft_config=peft_config,
            )
        for shown, brief in ((ProgressCallback, BriefProgress), (PrinterCallback, BriefPrinter)):
            if self.pop_callback(shown) is not None:
                self.add_callback(brief())
        self.beta = args.beta
        self.add_callback(EpisodeRecorder(self.chat.tokenizer, args.log_episodes))
        if self.log_completions:
            self.add_callback(CompletionsTable())
            self.show_completions([])
        region = args.region()
        self.projection = None if region is None else Projection(region, self)
        if self.projection is not None:
            self.add_callback(self.projection)
        self.ledger = Ledger()
        self.metrics: dict[str, dict[str, list[float]]] = {"train": defaultdict(list), "eval": defaultdict(list)}
        self.loss_metrics = {"train": LossMetrics(), "eval": LossMetrics()}
        self._rewards_entropy = args.entropy_coef != 0.0 or args.use_adaptive_entropy
        self._entropy_of_step = LossMetrics()
        self.last_entropy = math.inf  # the mean of the last optimizer step: no bonus before there is one
        self._idle = (self.chat.tokenizer.eos_token_id,)
        self._continuing = self.continuing_replies()
        self.vllm = getattr(self, "vllm_generation", None)
        generate = through_vllm(self.generate_replies, self.vllm, args)
        seeded = self._continuing.seeded if self._continuing else None
        self.ranks = SynchronizedSampler(generate, self.accelerator, self._idle, seeded)
        self.engine = self.make_engine(self.chat)
        self.adapters: RoleAdapters | None = None
        if self.roles:
            self.adapters = RoleAdapters(self, new_client)
            self.engine.generate = self.adapters.samplers
            self.add_callback(self.adapters)
        arguments.require_room_for_rows(self, train_dataset)

    # What a subclass says ---------------------------------------------------------------------------------------

    def collect(self, rows: list[dict[str, Any]]) -> RolloutBatch:
        """What is played for the task rows of this process; called on every process at the same time."""
        raise NotImplementedError

    def credit(self, collected: RolloutBatch) -> Mapping[str, DecisionCredit]:
        """The credit of the decisions of this process, by their ids; one without is not in the loss.

        Called on every process at the same time, so it may gather.
        """
        raise NotImplementedError

    def make_engine(self, chat: Chat) -> Engine[Any]:
        """An engine that plays this trainer's Interaction with its policy and its generation backend."""
        return Engine(
            self.interaction,
            chat,
            {role: self.samplers.get(role, self.ranks) for role in self.interaction.roles}
            if self.samplers
            else self.ranks,
            max_concurrent=self.args.max_concurrent_episodes,
            max_context_tokens=self.args.max_context_tokens or self.room_for_context(),
        )

    def use_policy_of(self, part: dict[str, Tensor]) -> None:
        """Called before each forward pass over rows; the policy that they train stays in use for the backward pass."""
        if self.adapters is not None:
            self.adapters.use(part)

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """Within, vLLM has the adapters as they are; afterwards, also after an error, no keys and values are held."""
        adapters = self.adapters
        if adapters is not None and adapters.requests is not None:
            adapters.requests.refresh()
        with ExitStack() as stack:
            for memory in (self._continuing, *(adapters.memories if adapters else ())):
                if memory is not None:
                    stack.enter_context(memory.forgotten())
            yield

    def log_metric(self, name: str, value: float) -> None:
        """Records a metric of this update, already the same on every process."""
        self.metrics["train" if self.model.training else "eval"][name].append(value)

    def spend(self, cost: Ledger) -> None:
        """Adds what this process has spent on training to the ledger of the run, on every process."""
        self.ledger = sum(self.ranks.gather([cost]), start=self.ledger)
        self.state.num_input_tokens_seen = self.ledger.tokens

    # The seam ---------------------------------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Tensor]:
        with self.forgetting():
            with self._timed("time/rollouts"):
                collected = self.collect(inputs)
            if self.model.training:
                refuse_total_failure(collected.episodes, self.ranks.gather)
            with self._timed("time/credit"):
                credit = self.credit(collected)
            episodes = collected.episodes
            advantages = by_episode(episodes, credit)
            if self.mask_truncated_completions:
                advantages = without_cut_replies(episodes, advantages, self.eos_token_ids)
        with self._timed("time/rows"):
            pairs = zip(episodes, advantages, strict=True)
            marks = self.projection.marks if self.projection is not None else lambda episode: None
            rows = [decision_rows(one.decisions, own, marks(one)) for one, own in pairs]
            together = self.args.micro_batch_rows if self.args.share_prompts else 1
            batch = self._lay_out(self.ranks.even_out(self._averaged(rows), together))
        counted = [place for place, rollout in enumerate(collected.trained) if rollout.counted]
        self._log_episodes([episodes[place] for place in counted], [advantages[place] for place in counted])
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, EpisodeCallback):
                callback.on_episodes(self, collected, advantages)
        self._add_logprobs(batch)
        return batch

    def _compute_loss(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        """The loss of a slice, a few rows at a time: a sum over tokens, so the gradient is that of one pass."""
        training = torch.is_grad_enabled()
        mode = "train" if self.model.training else "eval"
        size = self.args.micro_batch_rows if training else self.args.per_device_eval_batch_size
        # Of the tokens of a window of accumulation, over all processes; their gradients are averaged, hence the share.
        tokens = inputs["num_items_in_batch"].clamp(min=1) / self.accelerator.num_processes
        if mode == "train":
            tokens = tokens * self.current_gradient_accumulation_steps / self.args.steps_per_generation
        *first, last = micro_batches(inputs, size, len(self.roles) or 1)
        earlier = torch.zeros((), device=self.accelerator.device)
        for part in first:
            self.use_policy_of(part)
            with accumulating(model, self.accelerator):
                loss = self._loss_of_part(model, part, mode) / tokens
                if training:
                    deepspeed = self.accelerator.distributed_type == DistributedType.DEEPSPEED
                    self.accelerator.backward(loss, **({"scale_wrt_gas": False} if deepspeed else {}))
            earlier += loss.detach()
        self.use_policy_of(last)
        whole = self._loss_of_part(model, last, mode) / tokens + earlier
        if self._rewards_entropy and mode == "train" and self.accelerator.sync_gradients:
            self._steer_entropy()
        return whole + self.adapters.zero_loss() if self.adapters is not None and training else whole

    def _loss_of_part(self, model: Any, part: dict[str, Tensor], mode: str) -> Tensor:
        """The losses of the tokens of a forward pass, added up; what they say of the pass goes to the metrics.

        Args:
            model: as the accelerator prepared it.
            part: the rows of the pass.
            mode: `"train"` or `"eval"`.
        """
        mask, metrics = part["tool_mask"], self.loss_metrics[mode]
        projection = self.projection if mode == "train" else None
        scores = self.scores_of_rows(model, part, states=projection is not None)
        logprobs, beside = (scores.logprobs, 0.0) if projection is None else projection.log_probs(scores, part)
        terms = clipped_surrogate(
            logprobs,
            part.get("old_per_token_logps", logprobs.detach()),
            part["advantages"],
            mask,
            epsilon_low=self.epsilon_low,
            epsilon_high=self.epsilon_high,
            delta=self.args.delta,
            level=self.importance_sampling_level,
            loss_type=self.loss_type,
        )
        losses = terms.losses * part.get("importance_sampling_ratio", 1.0)
        if self.beta != 0.0:
            ratio = terms.ratio if self.args.use_bias_correction_kl else None
            divergence = reference_divergence(logprobs, part["ref_per_token_logps"], ratio)
            losses = losses + self.beta * divergence
            metrics.add("kl", divergence, mask)
        assert scores.entropy is not None
        metrics.add("entropy", scores.entropy, mask)
        if self._rewards_entropy:
            metrics.add("policy_loss", losses, mask)
            if mode == "train" and self.use_adaptive_entropy:
                self._entropy_of_step.add("entropy", scores.entropy, mask)
            gated = self.use_adaptive_entropy and self.last_entropy > self.args.entropy_target
            losses = losses - (0.0 if gated else self.entropy_coef) * scores.entropy
        metrics.add_clipping(terms, mask, self.loss_type)
        return (losses * mask).sum() + beside

    def _steer_entropy(self) -> None:
        """At the end of an optimizer step, sets the weight of the entropy bonus in the next."""
        if self.use_adaptive_entropy:
            args = self.args
            self.last_entropy = self._entropy_of_step.taken(self.accelerator).get("entropy", 0.0)
            self.entropy_coef = next_entropy_coefficient(
                self.entropy_coef,
                self.last_entropy,
                args.entropy_target,
                args.entropy_coef_delta,
                args.entropy_coef_min,
                args.entropy_coef_max,
            )
        self.log_metric("entropy_coef", self.entropy_coef)

    def continuing_replies(self) -> ContinuingReplies | None:
        """Generation that goes on from earlier turns, where the policy itself generates and is not sharded."""
        elsewhere = self.use_vllm or self.use_transformers_continuous_batching
        sees = getattr(self.model.config, "vision_config", None) is not None
        alone = not (elsewhere or sees or shards_weights(self.accelerator))
        if not (self.args.reuse_prefixes and alone and can_continue(self.generation_config)):
            return None
        return ContinuingReplies(
            lambda: unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                generation_kwargs=self.generation_kwargs,
                **_checkpointing(self.args),
            ),
            self.generation_config,
        )

    def generate_replies(self, contexts: Sequence[Sequence[int]]) -> Sequence[Generation]:
        """Replies of the policy of this process alone."""
        if self._continuing is not None:
            return self._continuing(contexts)
        # One completion for each context: vLLM's server would answer a group from its first context alone.
        ids, logprobs = self._generate_single_turn([list(context) for context in contexts], None, {}, 1)
        return generations(ids, logprobs)

    def _averaged(self, rows_of: list[list[Row]]) -> list[Row]:
        """The rows of episodes in one list, weighed as `aggregation` says."""
        if self.args.importance_sampling_level == "sequence":
            refuse_several_rows(rows_of)
        if self.args.aggregation == "sequence":
            tokens = [sum(sum(row.loss_mask) for row in rows) for rows in rows_of]
            told = self.ranks.gather([count for count in tokens if count])
            rows_of = [sequence_mean(rows, sum(told), len(told)) for rows in rows_of]
        return [row for rows in rows_of for row in rows]

    def _lay_out(self, rows: list[Row]) -> dict[str, Tensor]:
        """The rows as a batch, with rows that carry no loss where slices and processes need them."""
        slices = self.args.steps_per_generation if self.model.training else 1
        needed = -(-max(self.ranks.all_max(len(rows)), 1) // slices) * slices
        idle = padding_row(self._idle, logprobs=self.use_vllm)
        rows = [*rows, *[idle] * (needed - len(rows))]
        batch = pad_rows(rows, self.chat.tokenizer.pad_token_id, self.pad_to_multiple_of, self.roles)
        batch = {name: value.to(self.accelerator.device) for name, value in batch.items()}
        if self.projection is not None:
            batch.setdefault("marks", torch.zeros_like(batch["tool_mask"]))
        batch["num_items_in_batch"] = self.accelerator.gather(batch["tool_mask"].sum()).sum()
        return batch

    def _add_logprobs(self, batch: dict[str, Tensor]) -> None:
        """Adds the log-probabilities that TRL's loss compares with, where it would compute them itself."""
        projection = self.projection if self.model.training else None
        correct = self.use_vllm and self.vllm_importance_sampling_correction
        generate_every = self.args.steps_per_generation * self.num_iterations
        if projection is not None:
            with self._reading():
                projection.keep(batch)
        if correct or projection is not None or self.args.gradient_accumulation_steps % generate_every != 0:
            batch["old_per_token_logps"] = self._logprobs(self.model, batch)
        if correct:
            batch["importance_sampling_ratio"] = sampling_ratio(
                batch["old_per_token_logps"],
                batch["sampling_per_token_logps"],
                batch["tool_mask"],
                self.vllm_importance_sampling_mode,
                self.vllm_importance_sampling_clip_min,
                self.vllm_importance_sampling_clip_max,
            )
            drift = largest_difference(
                batch["old_per_token_logps"], batch["sampling_per_token_logps"], batch["tool_mask"]
            )
            self.log_metric("sampler/logprob_difference_max", self.accelerator.gather(drift).max().item())
        if self.beta != 0.0:
            batch["ref_per_token_logps"] = self._reference_logprobs(batch)

    def _reference_logprobs(self, batch: dict[str, Tensor]) -> Tensor:
        if self.ref_model is not None:
            return self._logprobs(self.ref_model, batch)
        model = self.accelerator.unwrap_model(self.model)
        try:
            with use_adapter(model, adapter_name="ref" if "ref" in model.peft_config else None):
                return self._logprobs(self.model, batch)
        finally:
            if self.adapters is not None:
                self.adapters.thaw()  # PEFT turns on again only the adapter that was in use

    def policy_logprobs(self, batch: dict[str, Tensor]) -> Tensor:
        """The log-probability of each completion token of rows, as `pad_rows` gives them; 0 on padding."""
        here = {name: value.to(self.accelerator.device) for name, value in batch.items()}
        return self._logprobs(self.model, here)

    def _logprobs(self, model: Any, batch: dict[str, Tensor]) -> Tensor:
        """The log-probability of each completion token under `model`."""
        with self._reading():
            return map_micro_batches(
                batch,
                self.args.micro_batch_rows,
                lambda part: self.scores_of_rows(model, part).logprobs,
                self.use_policy_of,
                len(self.roles) or 1,
            )

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Within, the policy has no dropout, as when it plays, and nothing is kept for a backward pass."""
        unchecked = disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs)
        with torch.no_grad(), evaluating(self.model), unchecked:
            yield

    def scores_of_rows(self, model: Any, rows: dict[str, Tensor], states: bool = False) -> Scores:
        """What a forward pass says of the completion tokens of rows; rows that begin alike share it where they can."""
        ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], dim=1)
        mask = torch.cat([rows["prompt_mask"], rows["completion_mask"]], dim=1)
        laid = (model, self.accelerator.unwrap_model(self.model), ids, mask, rows["completion_ids"].shape[1], states)
        with self.accelerator.autocast():
            return (shared_log_probs(*laid) if self.args.share_prompts else None) or separate_log_probs(*laid)

    def room_for_context(self) -> int | None:
        """The longest context that leaves room for a reply, in tokens; `None` where the model has no limit."""
        reply = cast(int, self.max_completion_length)
        if self.vllm is None:
            return room_for_context(self.model, reply)
        # It refuses contexts beyond its own limit, which may be lower than the model's.
        return room_beside(reply, self.ranks.all_max(context_length(self.vllm)))

    def played_batches(self) -> list[dict[str, Tensor]]:
        """What was last played, in the slices that are trained on."""
        return self._buffered_inputs or []

    def checkpoint_state(self) -> dict[str, Any]:
        # Where the steps of one generation, or its reuse, go on in a later update.
        unfinished = self._step % (self.args.steps_per_generation * self.num_iterations) != 0
        return {
            "step": self._step,
            "rollouts": self._buffered_inputs if unfinished else None,
            "old_tops": self.projection.tops if self.projection is not None and unfinished else {},
            "ledger": self.ledger.to_dict(),
            "last_entropy": self.last_entropy,
        }

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        self._step, self._buffered_inputs = state["step"], state["rollouts"]
        if self.projection is not None:
            self.projection.tops = state["old_tops"]
        self._load_shared_state(state)

    def _load_shared_state(self, state: dict[str, Any]) -> None:
        """Takes back what is the same on every process."""
        self.ledger, self.last_entropy = Ledger(**state["ledger"]), state.get("last_entropy", math.inf)

    def load_from_other_processes(self, folder: Path) -> None:
        super().load_from_other_processes(folder)
        self._load_shared_state(self.state_of_process(folder, 0))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self.save_whole(self._get_output_dir(trial), functools.partial(super()._save_checkpoint, model, trial))

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self.adapters is not None:
            self.adapters.thaw()  # transformers loads all, and lets one be trained
            return
        policy = self.model if model is None else model
        whole = isinstance(policy, PeftModel) and not self.is_fsdp_enabled
        if whole and len(policy.peft_config) > 1 and Path(resume_from_checkpoint, ADAPTER_CONFIG).is_file():
            # Beside a critic's adapter, transformers before 5.23 leaves the policy's own as it was.
            policy.load_adapter(resume_from_checkpoint, TRLS_OWN, is_trainable=True)

    def _load_best_model(self) -> None:
        best = self.state.best_model_checkpoint
        if self.adapters is not None and best is not None:
            self._load_from_checkpoint(best)  # transformers knows one adapter alone here
        else:
            super()._load_best_model()

    def _get_train_sampler(self, dataset: Dataset | None = None) -> Any:
        return self.from_this_pass(super()._get_train_sampler(dataset))

    # What is logged ---------------------------------------------------------------------------------------------

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.log_metric(name, time.perf_counter() - begun)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """As in transformers, where each of several evaluation sets has metrics of its own name."""
        self._evaluated_as = metric_key_prefix
        return super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        super().create_model_card(*args, **kwargs)
        if self.is_world_process_zero():
            mend_card(Path(self.args.output_dir) / "README.md", self.hub_model_id)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        mode = "train" if self.model.training else "eval"
        prefix = "" if mode == "train" else f"{self._evaluated_as}_"
        if mode == "eval":
            logs.pop(f"{prefix}loss", None)  # nobody credits an evaluation, so it is a loss of nothing
        logs |= {f"{prefix}{name}": value for name, value in self.loss_metrics[mode].taken(self.accelerator).items()}
        for name, values in self.metrics[mode].items():
            known = [value for value in values if not math.isnan(value)]
            logs[f"{prefix}{name}"] = mean(known) if known else None  # type: ignore[assignment]  # as TRL: no NaN in JSON
        self.metrics[mode].clear()
        super().log(logs, start_time)

    def _log_episodes(self, episodes: list[Episode], advantages: Sequence[Sequence[DecisionCredit]]) -> None:
        pairs = zip(episodes, advantages, strict=True)
        summaries = self.ranks.gather([summarise(*pair, self.eos_token_ids) for pair in pairs])
        for name, value in update_metrics(summaries).items():
            if self.model.training or "advantages/" not in name:  # evaluation gives no credit
                self.log_metric(name, value)
        if self.model.training:
            for name, total in {**self.ledger.metrics(), "num_tokens": self.ledger.tokens}.items():
                self.metrics["train"][name] = [total]  # so far, not a mean over the steps of a log
            if costs := Metered(self.interaction).costs():
                everywhere = self.ranks.gather([costs])
                for name in costs:
                    self.metrics["train"][f"world/{name}"] = [sum(one[name] for one in everywhere)]

    def show_completions(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Puts decisions, however many, in the place of the completions in the table that TRL prints and sends.

        Args:
            rows: as `hf_credit.trainers.recording.log_rows` gives them.
        """
        columns = {
            "images": [],  # TRL makes room for one completion an episode; an episode has many decisions
            "prompt": [[{"role": "user", "content": row["prompt"]}] for row in rows],
            "completion": [[{"role": "assistant", "content": row["completion"]}] for row in rows],
            "advantages": [row["advantage"] for row in rows],
        }
        several: dict[str, dict[str, list[Any]]] = {"rewards": defaultdict(list), "extra": defaultdict(list)}
        for kind, found in several.items():
            for row in rows:
                for name, value in row[kind].items():
                    found[name].append(value)
        self._logs = {**columns, **several}


@contextmanager
def making_engine(**settings: Any) -> Iterator[None]:
    """Within, an engine of vLLM that TRL makes in this process gets these settings, for which TRL 1.16 has none."""
    engine = getattr(vllm_generation, "LLM", None)
    if engine is None or not settings:  # without vLLM, which is not installed, TRL will say so
        yield
        return
    vllm_generation.LLM = functools.partial(engine, **settings)
    try:
        yield
    finally:
        vllm_generation.LLM = engine


def new_client(url: str) -> Any:
    """A client of a vLLM server, such as TRL gives to the main process alone."""
    return vllm_generation.VLLMClient(base_url=url)


def _checkpointing(args: Any) -> dict[str, Any]:
    """How activations are computed anew after a generation, which TRL 1.15 is not told."""
    name = "gradient_checkpointing_kwargs"
    known = inspect.signature(unwrap_model_for_generation).parameters
    return {name: getattr(args, name)} if name in known else {}


def _no_reward(completions: list[Any], **columns: Any) -> list[float | None]:
    """TRL asks for a reward function; rewards come from episodes here, and nothing calls this."""
    return [0.0] * len(completions)
