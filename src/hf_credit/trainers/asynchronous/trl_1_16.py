"""The seam with TRL 1.16's asynchronous trainer: with `trainers/base.py` the only one that knows TRL's internals."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface
from trl.experimental.async_grpo import AsyncGRPOConfig, AsyncGRPOTrainer, async_grpo_trainer, packing

from hf_credit.credit import clipped_surrogate
from hf_credit.files import replaced
from hf_credit.policies.generation import evaluating
from hf_credit.policies.role_policies import use_adapter
from hf_credit.trainers.asynchronous.attention import segment_attention
from hf_credit.trainers.asynchronous.collection import CreditedRollouts
from hf_credit.trainers.asynchronous.loader import Updates
from hf_credit.trainers.metrics import LossMetrics
from hf_credit.trainers.ranks import Ranks, exchange_each_pass
from hf_credit.trainers.resumption import ResumableTrainer
from hf_credit.trainers.transfer import FrozenBase
from hf_credit.trust import imported, installed

__all__ = ["AsyncGRPOConfig", "UpdateTrainer", "kernel_at_hand"]

logger = logging.getLogger(__name__)


class UpdateTrainer(ResumableTrainer, AsyncGRPOTrainer):
    """TRL's engine, loss and transfer of weights, over whole updates in place of single samples.

    It overrides `get_train_dataloader`, whose micro-batches come from `Updates`, and the saving of checkpoints. The
    loss is TRL's. With `roles`, each forward pass trains the adapter of its role.

    Args:
        args: an `AsyncCreditConfig`.
        **named: as for TRL's trainer. The `rollout_worker`, on the main process, also implements `Supply`.
    """

    # TRL's annotations also allow values that these never have after set-up.
    args: Any
    model: Any
    ranks: Ranks  # of the trainer that is built on this one
    vllm_client: Any
    rollout_worker: Any
    _rollout_dataset: Any

    def __init__(self, *, args: Any, **named: Any) -> None:
        # Transformers would require a dataset of its own format.
        evaluated, args.eval_strategy = args.eval_strategy, "no"
        with _set_up():
            super().__init__(args=args, **named)
        args.eval_strategy = evaluated
        if not kernel_at_hand():
            AttentionInterface.register(packing.TREE_ATTENTION, segment_attention)
        if self.roles:
            from hf_credit.trainers.role_adapters import RoleAdapters

            self.adapters = RoleAdapters(self)
            self.add_callback(self.adapters)
        self.updates = Updates(self)
        self._rollout_dataset = self.updates  # TRL logs the time spent waiting for it
        self.loss_metrics = LossMetrics()
        self._arrived = False
        self._base = FrozenBase(self.model)
        self._shown: dict[str, Any] | None = None  # the table of completions
        self.add_callback(self.updates)

    def get_train_dataloader(self) -> Any:
        if self.accelerator.is_main_process and not self.updates.token_budget:
            self.vllm_client.wait_for_server_ready()
            self.updates.token_budget = self.vllm_client.get_max_model_len()
        return self.updates

    @property
    def serves_adapter(self) -> bool:
        """Whether the server gets an adapter alone, under a name with its version."""
        return bool(self._lora_sync)

    def name_adapter(self, name: str) -> str | dict[str, str]:
        """Names the adapters of this run, as a server may still hold those of an earlier one.

        Returns:
            The name, or with adapters of roles the name of each.
        """
        self._lora_name = name
        return {role: f"{name}-{role}" for role in self.roles} or name

    def served_adapters(self) -> dict[str, str]:
        """The folders of the adapters that replies may still be asked of, by their names."""
        oldest = max(self.model_version - self.args.max_staleness, 1)
        named = [f"{self._lora_name}-{role}" for role in self.roles] or [self._lora_name]
        versions = range(oldest, self.model_version + 1)
        names = [f"{name}-v{version}" for name in named for version in versions]
        folders = {name: os.path.join(self._lora_dir, name) for name in names}
        return {name: folder for name, folder in folders.items() if os.path.isdir(folder)}

    def before_update(self, credited: CreditedRollouts) -> None:
        """Called on every process with what the main one drew for an update, before anything learns from it."""

    def before_transfer(self) -> None:
        """Called before the server gets weights: TRL's own client does not wait for a server that is away."""

    def weights_arrived(self) -> None:
        """Called on every process once the server has the first weights of this run, before anything is played."""

    def log_metric(self, name: str, value: float) -> None:
        """Records a metric of this update, on the main process."""
        self._metrics["train"][name].append(value)

    def show_completions(self, columns: dict[str, Any]) -> None:
        """As `CreditTrainer.show_completions`."""
        if self.model.training:  # those of an evaluation would replace the file of the update before it
            self._shown = columns

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if self.model.training:
            losses = self.loss_metrics.taken(self.accelerator)
            for name in ("batch/samples_per_step", *losses):  # `batch/rows` counts no row of weight 0
                self._metrics["train"].pop(name, None)
            logs |= losses
        super().log(logs, start_time)
        if self._shown is not None and self.is_world_process_zero():
            _log_completions(self._shown, self.args, self.state.global_step)
            self._shown = None  # an evaluation logs, too

    def log_total(self, name: str, value: float) -> None:
        """Records a sum over the run so far."""
        self._metrics["train"][name] = [value]

    def reply_log_probs(self, ids: list[int], role: str) -> torch.Tensor:
        """The log-probability of each token but the first under a role's policy, asked on all processes at once."""
        if self.adapters is not None:
            use_adapter(self.adapters.model, role)
        places, tokens = torch.arange(len(ids) - 1, device=self.accelerator.device), len(ids) - 1
        whole = torch.tensor(ids, device=self.accelerator.device)
        ends = torch.tensor([0, tokens], dtype=torch.int32, device=self.accelerator.device)
        with torch.no_grad(), evaluating(self.model), self.accelerator.autocast():
            outputs = (self.model_wrapped if self.model_wrapped is not None else self.model)(
                input_ids=whole[None, :-1],
                position_ids=places[None],
                shift_labels=whole[None, 1:],
                fused_lm_head=True,
                tree_kv_index=places,
                tree_cu_seqlens_q=ends,
                tree_cu_seqlens_k=ends,
                tree_max_seqlen_q=tokens,
                tree_max_seqlen_k=tokens,
            )
        return outputs.log_probs.flatten().float().cpu()

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        exchange_each_pass(model)
        if self.adapters is not None:
            self.adapters.use(inputs)
        with model.register_forward_hook(lambda module, args, output: self._measure(output, inputs)):
            loss = super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        return loss if self.adapters is None else loss + self.adapters.zero_loss()

    @torch.no_grad()
    def _measure(self, output: Any, inputs: Mapping[str, torch.Tensor]) -> None:
        """Adds the tokens of a pass to `loss_metrics`, unless it only fills up: TRL would count these and average the
        means of passes."""
        sizes = inputs["segment_id"][0].bincount().tolist()
        places = inputs["token_index"][0]
        given = (inputs["old_log_probs"], inputs["advantages"], torch.ones_like(inputs["advantages"]))
        values = [output.log_probs.flatten()[places], output.entropy.flatten()[places], *(one[0] for one in given)]
        logprobs, entropy, old, advantages, mask = (pad_sequence(one.split(sizes), True) for one in values)
        mask = mask * ~inputs["idle"]
        low, high = self.epsilon_low, self.epsilon_high
        terms = clipped_surrogate(logprobs.float(), old, advantages, mask, epsilon_low=low, epsilon_high=high)
        for name, value in (("ratio", terms.ratio), ("kl", terms.ratio - 1 - (logprobs - old)), ("entropy", entropy)):
            self.loss_metrics.add(name, value, mask)
        self.loss_metrics.add_clipping(terms, mask, "dapo")

    def _sync_weight(self) -> None:
        self.before_transfer()
        with nullcontext() if self.serves_adapter else self._base.restored():
            super()._sync_weight()
        self.updates.version = self.model_version
        if not self._arrived:
            self._arrived = True
            self.weights_arrived()

    def _sync_weight_lora(self, t0: float) -> tuple[float, float, float]:
        """Publishes the adapter of each role as TRL publishes its only one; only then does the version count."""
        if self.adapters is None:
            return super()._sync_weight_lora(t0)
        worker, name, version = self.rollout_worker, self._lora_name, self.model_version
        self.rollout_worker = None
        try:
            for role in self.roles:
                self.model_version, self._adapter_name, self._lora_name = version, role, f"{name}-{role}"
                marks = super()._sync_weight_lora(t0)
        finally:
            self.rollout_worker, self._lora_name = worker, name
        if worker is not None:
            worker.update_model_version(self.model_version)
        return marks

    def _init_lora_sync(self, model: Any) -> bool:
        """TRL calls it on the main process, and raises on all what it raises."""
        served = bool(super()._init_lora_sync(model))
        if not self.roles:
            return served
        if self.accelerator.is_fsdp2:
            raise ValueError(
                "role_adapters of AsyncCreditTrainer must be replicated on every process, got FSDP2; launch it with "
                "DDP, or train with CreditTrainer."
            )
        if not served:
            raise ValueError(
                "role_adapters must be served by their names, got a server or adapters for which TRL transfers merged "
                "weights, as its warning says; start the server with --enable-lora."
            )
        held = self.vllm_client.get_server_info()["lora_config"]["max_loras"]
        needed = len(self.roles) * (self.args.max_staleness + 2)
        if held < needed:
            raise ValueError(
                f"a server must hold max_staleness + 2 adapters of each role, {needed} here, got {held}; start it "
                f"with --max-loras {needed}, or lower max_staleness."
            )
        return served

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        self.save_complete(self._get_output_dir(trial), functools.partial(super()._save_checkpoint, model, trial))


def kernel_at_hand() -> bool:
    """Whether TRL's kernel for attention over trees is available, which needs a GPU and the package `kernels`."""
    if not torch.cuda.is_available() or not installed("kernels"):
        return False
    try:
        packing._flash_attn()
    except Exception as error:  # whatever a download or a GPU may say
        logger.warning("attention over trees runs on torch's kernels, as TRL's is not available: %s", error)
        return False
    return True


def _log_completions(columns: Mapping[str, Any], args: Any, step: int) -> None:
    """Writes all completions to `completions` in `output_dir`, and sends them to trackers.

    As TRL's `GRPOTrainer.log` does.
    """
    prompts, completions, rewards, advantages, extra = (
        columns[name] for name in ("prompt", "completion", "rewards", "advantages", "extra")
    )
    steps = [step] * len(prompts)
    table = {"step": steps, "prompt": prompts, "completion": completions, **rewards, **extra, "advantage": advantages}
    frame: Any = Dataset.from_dict(table).to_pandas()
    with replaced(Path(args.output_dir, "completions", f"completions_{step:05d}.parquet")) as path:
        frame.to_parquet(path)
    for tracker in {"wandb", "trackio"} & set(args.report_to):
        table_of, log = imported(f"{tracker}:Table"), imported(f"{tracker}:log")
        log({"completions": table_of(dataframe=frame)})


@contextmanager
def _set_up() -> Iterator[None]:
    """Context in which TRL can be set up without a GPU, whose speed it looks up, and may add one callback twice."""
    ask = async_grpo_trainer.get_peak_flops_per_device
    said = logging.getLogger("transformers.trainer_callback")
    level = said.level
    said.setLevel(logging.ERROR)
    if not torch.cuda.is_available():
        async_grpo_trainer.get_peak_flops_per_device = lambda accelerator, dtype: None
    try:
        yield
    finally:
        async_grpo_trainer.get_peak_flops_per_device = ask
        said.setLevel(level)
