"""The seam with TRL's `GRPOTrainer`: turns episodes into batches and computes the loss. Only this module and
`asynchronous/trl_1_16.py` use TRL's internals."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from accelerate.utils import send_to_device
from datasets import Dataset, IterableDataset
from peft import PeftConfig
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin, TrainerCallback
from trl import GRPOTrainer
from trl.generation import vllm_generation
from trl.models.utils import disable_gradient_checkpointing, unwrap_model_for_generation
from trl.trainer.utils import use_adapter

from hf_credit.collectors import RolloutBatch
from hf_credit.credit import clipped_surrogate, reference_divergence
from hf_credit.methods import DecisionCredit
from hf_credit.policies.generation import evaluating
from hf_credit.rollouts import Context, GenerateFn, Interaction, Ledger, RolloutRequest, by_episode, decision_rows
from hf_credit.rollouts.dry_run import first_rows, require_room
from hf_credit.rollouts.failures import refuse_total_failure
from hf_credit.rollouts.pulse import PULSE
from hf_credit.trainers import arguments
from hf_credit.trainers.callbacks import WarnWithoutSignal, show_headlines
from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.generation import GeneratingTrainer
from hf_credit.trainers.metrics import EpisodeLog
from hf_credit.trainers.ranks import accumulating, backward, exchange_each_pass
from hf_credit.trainers.recording import CompletionsTable, EpisodeRecorder, RunRecorder
from hf_credit.trainers.rows import RowTrainer
from hf_credit.trainers.saving import name_base

# Its advice to set loss_type to grpo is refused here, as no loss may depend on how decisions are laid out in rows.
logging.getLogger(GRPOTrainer.__module__).addFilter(
    lambda record: "To reproduce the GSPO paper's setup, set `loss_type='grpo'`" not in record.getMessage()
)


class EpisodeTrainer(RowTrainer, EpisodeLog, GeneratingTrainer, GRPOTrainer):
    """Trains on the decisions of episodes, each with its own credit.

    It overrides two methods of TRL. `_generate_and_score_completions` collects episodes, credits their decisions and
    lays them out in rows. `_compute_loss` is the clipped surrogate over the tokens of a slice
    (`hf_credit.credit.surrogate`), computed `micro_batch_rows` rows at a time. Generation, quantisation, sharding and
    logging are TRL's own. What only some settings need is a `Component`, whose module no other trainer imports.

    A subclass implements `collect`, which plays episodes, and `credit`, which assigns credit to their decisions. The
    roles share one policy or, with `args.role_adapters`, have an adapter each on one base model (`adapters`).

    Args:
        model: a model id, a model or a PEFT model, as in TRL.
        interaction: the Interaction to play.
        args: the settings.
        train_dataset: task rows.
        eval_dataset: task rows of the evaluation, or several datasets by name. With `None` the Interaction's own
            held-out tasks, if `eval_strategy` asks for an evaluation.
        processing_class: the tokenizer, or the processor of a model that sees; the model's own if `None`.
        callbacks, optimizers, quantization_config: as in TRL.
        peft_config: as in TRL. With `role_adapters` it is the `LoraConfig` of each role; a PEFT model then needs one
            adapter for each role and no other.
        evaluation_interaction: the Interaction that evaluation plays; if `None`, the one that `interaction` names for
            evaluation, by default itself.
        samplers: reply for roles that are not trained (`TrainedRoles.untrained`), such as a judge with its own
            weights. By role, from contexts to replies in tokens of the policy's tokenizer, as
            `hf_credit.policies.generation.sampler` makes from a model of its family. The policy replies for all other
            roles.

    Raises:
        ValueError: the tokenizer has no chat template or padding token, the dataset cannot fill one update, no reply
            fits the model, a setting would make the loss depend on the layout of rows, or roles do not fit adapters.
        TypeError, DryRunError: an argument has another type; a task row, played without the policy, raised an error.
    """

    _tag_names = ["trl", "hf-credit"]  # noqa: RUF012 (TRL's own convention)
    _name = "Credit"
    # TRL's annotations also allow values that these never have after set-up.
    args: Any
    model: Any
    pad_to_multiple_of: int | None
    _logs: dict[str, Any]

    def __init__(
        self,
        model: str | PreTrainedModel,
        interaction: Interaction[Any],
        args: CreditConfig,
        train_dataset: Dataset | IterableDataset,
        eval_dataset: Dataset | IterableDataset | dict[str, Any] | None = None,
        processing_class: PreTrainedTokenizerBase | ProcessorMixin | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        quantization_config: Any | None = None,
        peft_config: PeftConfig | None = None,
        evaluation_interaction: Interaction[Any] | None = None,
        samplers: Mapping[str, GenerateFn] | None = None,
    ) -> None:
        self.roles = tuple(args.role_adapters or ())
        self.samplers = dict(samplers or {})
        engine = arguments.prepare_roles(args, interaction, model, peft_config)
        arguments.require_samplers(interaction, args, self.samplers)
        arguments.require_one_row(interaction, args)
        eval_dataset, _ = arguments.prepare(
            self, model, interaction, args, train_dataset, eval_dataset, processing_class, evaluation_interaction
        )
        arguments.require_vllm(args)
        reference = arguments.reference_at_hand(model, args, peft_config is not None)
        with reference, making_engine(args, **engine):
            super().__init__(
                model=model,
                reward_funcs=_no_reward,
                args=args,
                train_dataset=train_dataset,
                eval_dataset=eval_dataset,
                processing_class=self.chat.media.processing_class,
                callbacks=[*(callbacks or []), arguments.StopOnFailedEvaluation(self), WarnWithoutSignal()],
                optimizers=optimizers,
                quantization_config=quantization_config,
                peft_config=peft_config,
            )
        name_base(self.model, args)
        show_headlines(self)
        self.add_callback(EpisodeRecorder(self.chat.tokenizer, args.log_episodes))
        self.add_callback(RunRecorder())
        if self.log_completions:
            self.add_callback(CompletionsTable())
            self.num_completions_to_print = 0  # the callback prints in place of TRL
        self.chat.also_end(self.eos_token_ids)
        self.eos_token_ids = list(self.chat.end_tokens)
        self.beta = args.beta
        self.ledger = Ledger()
        self.set_up_replies()
        self.projection: Any = None
        self.entropy: Any = None
        if (region := args.region()) is not None:
            from hf_credit.trainers.projection import Projection

            self.projection = Projection(region, self)
            self.add_callback(self.projection)
        if args.entropy_coef != 0.0 or args.use_adaptive_entropy:
            from hf_credit.trainers.entropy import EntropyBonus

            self.entropy = EntropyBonus(self)
            self.add_callback(self.entropy)
        starts = (RolloutRequest[Any](task=row) for row in first_rows(train_dataset, 8))
        require_room(interaction, self.chat, starts, self.engine.max_context_tokens)

    # The hooks of a subclass ------------------------------------------------------------------------------------

    def collect(self, rows: list[dict[str, Any]]) -> RolloutBatch:
        """Plays rollouts for the task rows of this process. Called on every process at the same time."""
        raise NotImplementedError

    def credit(self, collected: RolloutBatch) -> Mapping[str, DecisionCredit]:
        """Returns the credit of this process's decisions in the loss, by id. Called on every process, as `collect`."""
        raise NotImplementedError

    def spend(self, cost: Ledger) -> None:
        """Adds the training cost of each process to the ledger of the run. Called on every process."""
        self.ledger = sum(self.ranks.gather([cost]), start=self.ledger)
        self.state.num_input_tokens_seen = self.ledger.tokens

    # The seam ---------------------------------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Tensor]:
        training = self.model.training
        if training:
            PULSE.phase = "generating"
        with self.forgetting():
            with self.timed("time/rollouts"), self.awake():
                collected = self.collect(inputs if training else self.unplayed(inputs))
            if training:
                refuse_total_failure(collected.episodes, self.ranks.gather)
                PULSE.phase = "crediting"
            with self.timed("time/credit"):
                credit = self.credit(collected)
            episodes = collected.episodes
            advantages = by_episode(episodes, credit)
        if training:
            PULSE.phase = "learning"
        with self.timed("time/rows"):
            marks = self.projection.marks if self.projection is not None else lambda episode: None
            rows = [
                decision_rows(episode.decisions, values, marks(episode))
                for episode, values in zip(episodes, advantages, strict=True)
            ]
            together = self.args.micro_batch_rows if self.args.share_prompts else 1
            weighted = self.weighted(rows)
            read = self.ranks.even_out(self.to_read(weighted) if training else weighted, together)
            batch = self.lay_out(read, self.args.steps_per_generation if training else 1)
            tokens = sum(self.ranks.gather([sum(sum(row.loss_mask) for row in weighted)]))  # also of rows not read
            batch["num_items_in_batch"] = torch.tensor(tokens, device=self.accelerator.device)
        self.log_episodes(collected, advantages)
        self._add_logprobs(batch)
        return batch

    def _compute_loss(self, model: Any, inputs: dict[str, Tensor]) -> Tensor:
        """The loss of a slice, computed a few rows at a time. It is a sum over tokens, so the gradient is that of one
        pass over all rows."""
        training = torch.is_grad_enabled()
        exchange_each_pass(model)
        mode = "train" if self.model.training else "eval"
        size = self.args.micro_batch_rows if training else self.args.per_device_eval_batch_size
        # The tokens of an accumulation window over all processes. These average gradients, hence the division.
        tokens = inputs["num_items_in_batch"].clamp(min=1) / self.accelerator.num_processes
        if mode == "train":
            tokens = tokens * self.current_gradient_accumulation_steps / self.args.steps_per_generation
        *first, last = self.parts_of(inputs, size)
        earlier = torch.zeros((), device=self.accelerator.device)
        for part in first:
            self.use_policy_of(part)
            with accumulating(model, self.accelerator):
                loss = self._loss_of_part(model, part, mode) / tokens
                if training:
                    backward(loss, self.accelerator)
            earlier += loss.detach()
        self.use_policy_of(last)
        whole = self._loss_of_part(model, last, mode) / tokens + earlier
        if self.entropy is not None and mode == "train" and self.accelerator.sync_gradients:
            self.entropy.end_step()
        return whole + self.adapters.zero_loss() if self.adapters is not None and training else whole

    def _loss_of_part(self, model: Any, part: dict[str, Tensor], mode: str) -> Tensor:
        """The sum of the token losses of one forward pass, whose metrics it records."""
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
        if self.entropy is not None:
            losses = self.entropy.added(losses, scores.entropy, mask, metrics, training=mode == "train")
        metrics.add_clipping(terms, mask, self.loss_type)
        return (losses * mask).sum() + beside

    def sampled(self, contexts: Sequence[Context]) -> tuple[Any, Any]:
        # One completion for each context: vLLM's server would answer a whole group from its first context.
        others = self.chat.media.generation_inputs(self.accelerator.unwrap_model(self.model), contexts)
        return self._generate_single_turn(list(map(list, contexts)), None, others, 1)

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Context in which vLLM stays awake, which TRL would wake, with a transfer of all weights, each turn."""
        if self.vllm is None or self.vllm.mode != "colocate" or not self.vllm.enable_sleep_mode:
            yield
            return
        self.vllm.sync_weights()  # wakes the weights, which did not outlast the sleep
        self._last_loaded_step = self.state.global_step
        self.vllm.llm.wake_up(tags=["kv_cache"])
        self.vllm.enable_sleep_mode = False
        try:
            yield
        finally:
            self.vllm.enable_sleep_mode = True
            self.vllm.llm.sleep(level=2)

    def new_client(self, url: str) -> Any:
        return vllm_generation.VLLMClient(base_url=url)

    def unwrapped(self) -> Any:
        name = "gradient_checkpointing_kwargs"  # an argument that TRL 1.15 does not have, of `make test-trl`
        known = name in inspect.signature(unwrap_model_for_generation).parameters
        settings = {name: getattr(self.args, name)} if known else {}
        return unwrap_model_for_generation(self.model_wrapped, self.accelerator, **settings)

    def _add_logprobs(self, batch: dict[str, Tensor]) -> None:
        """Adds the log-probabilities of the old and the reference policy, under TRL's names and conditions."""
        projection = self.projection if self.model.training else None
        correct = self.use_vllm and self.vllm_importance_sampling_correction
        generate_every = self.args.steps_per_generation * self.num_iterations
        if projection is not None:
            with self.reading():
                projection.keep(batch)
        if correct or projection is not None or self.args.gradient_accumulation_steps % generate_every != 0:
            batch["old_per_token_logps"] = self.logprobs_of_rows(self.model, batch)
        if correct:
            from hf_credit.trainers.vllm import correct_sampling

            correct_sampling(self, batch)
        if self.beta != 0.0:
            batch["ref_per_token_logps"] = self._reference_logprobs(batch)

    def _reference_logprobs(self, batch: dict[str, Tensor]) -> Tensor:
        if self.ref_model is not None:
            return self.logprobs_of_rows(self.ref_model, batch)
        model = self.accelerator.unwrap_model(self.model)
        try:
            with use_adapter(model, adapter_name="ref" if "ref" in model.peft_config else None):
                return self.logprobs_of_rows(self.model, batch)
        finally:
            if self.adapters is not None:
                self.adapters.unfreeze()  # PEFT unfreezes only the adapter that was in use

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Context without dropout, as in generation, and without gradients."""
        unchecked = disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs)
        with torch.no_grad(), evaluating(self.model), unchecked:
            yield

    def played_batches(self) -> list[dict[str, Tensor]]:
        return self._buffered_inputs or []

    @property
    def in_generation(self) -> bool:
        return self._step % (self.args.steps_per_generation * self.num_iterations) != 0

    def train(self, *args: Any, **kwargs: Any) -> Any:
        self._step, self._buffered_inputs = 0, None  # an interrupted run in this process may have left some
        return super().train(*args, **kwargs)

    def checkpoint_state(self) -> dict[str, Any]:
        rollouts = self._buffered_inputs if self.in_generation else None
        collected = {"step": self._step, "slices": self.slices, "rollouts": rollouts, "ledger": self.ledger.to_dict()}
        return {**super().checkpoint_state(), **collected}

    @property
    def slices(self) -> list[int]:
        """The number of slices of an update, and for how many one generation is trained on."""
        return [self.args.gradient_accumulation_steps, self.args.steps_per_generation * self.num_iterations]

    def load_checkpoint_state(self, state: dict[str, Any], same: bool) -> None:
        if same and state.get("slices", self.slices) == self.slices:  # `step` counts slices
            self._step = state["step"]
            self._buffered_inputs = send_to_device(state["rollouts"], self.accelerator.device)
        self.ledger = Ledger(**state["ledger"])

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self.save_complete(self._get_output_dir(trial), functools.partial(super()._save_checkpoint, model, trial))

    def _get_train_sampler(self, dataset: Dataset | None = None) -> Any:
        return self.from_this_pass(super()._get_train_sampler(dataset))

    def show_completions(self, columns: dict[str, Any]) -> None:
        """Replaces the completions in the table that TRL stores and sends to trackers by decisions."""
        if self.model.training:  # or an evaluation would replace the table of the update
            self._logs = columns


@contextmanager
def making_engine(args: CreditConfig, **settings: Any) -> Iterator[None]:
    """Context in which TRL makes its vLLM engine with these settings, which TRL 1.16 has no arguments for, and for as
    many sequences at once as episodes are played: a task row is played several times."""
    engine = getattr(vllm_generation, "LLM", None)
    if engine is None:
        yield
        return
    episodes = args.max_concurrent_episodes * args.vllm_tensor_parallel_size

    def made(**asked: Any) -> Any:
        sequences = min(episodes, asked.get("max_num_batched_tokens", episodes))  # vLLM refuses more
        return engine(**{**asked, **settings, "max_num_seqs": max(asked.get("max_num_seqs", 0), sequences)})

    vllm_generation.LLM = made
    try:
        yield
    finally:
        vllm_generation.LLM = engine


def _no_reward(completions: list[Any], **columns: Any) -> list[float | None]:
    """TRL requires a reward function. Rewards come from episodes, so nothing calls it."""
    return [0.0] * len(completions)
