"""`CreditTrainer`: trains with any method."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from accelerate.utils import DistributedType
from datasets import Dataset, IterableDataset
from peft import LoraConfig, PeftModel
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from hf_credit import methods
from hf_credit.collectors import RolloutBatch
from hf_credit.critics.belief_head import BeliefHead
from hf_credit.critics.critic import Critic
from hf_credit.critics.saved import make_critic
from hf_credit.critics.specs import CriticSpec
from hf_credit.methods import DecisionCredit, Method
from hf_credit.methods.base import credit_in_loss, trained
from hf_credit.methods.memory import from_plain, to_plain
from hf_credit.policies.frozen import FrozenCopy
from hf_credit.rollouts import Decision, Interaction, Row
from hf_credit.rollouts.batches import pad_rows, padding_row
from hf_credit.tasks import TaskSpec
from hf_credit.trainers import arguments
from hf_credit.trainers.base import EpisodeTrainer
from hf_credit.trainers.callbacks import CheckpointCallback, CreditCallback, WarnOfIdleCritics
from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.method_context import TrainerContext
from hf_credit.trainers.saving import save_task, task_spec

FROZEN_FILE = "frozen_policy.safetensors"


class CreditTrainer(EpisodeTrainer):
    """Trains language agents with a method of credit assignment.

    Each update the method's collector plays episodes of the Interaction, its estimator credits their decisions, the
    decisions are trained on with TRL's clipped surrogate over tokens, and the method's critics learn. Rollouts
    that are there for comparison only are neither trained on nor counted in `reward`; what they cost is in the ledger.

    Args:
        model: a model id, a model or a PEFT model, as in TRL.
        interaction: what is played.
        args: the settings.
        train_dataset: task rows; the Interaction's own training tasks if `None`.
        method: a `Method`, or the name of one with its default options (`hf_credit.methods.make`).
        critic: for a method with a critic, its backbone in place of `args.critic_model`: a model id, a model, or the
            adapter to put beside the policy's.
        **kwargs: as in `EpisodeTrainer`.

    Raises:
        ValueError: the method does not fit the Interaction, there are no task rows or too few for one update, or a
            setting is not possible, in one sentence.
    """

    _name = "Credit"

    def __init__(
        self,
        model: str | PreTrainedModel,
        interaction: Interaction[Any],
        args: CreditConfig | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        *,
        method: Method | str,
        critic: str | PreTrainedModel | LoraConfig | None = None,
        **kwargs: Any,
    ) -> None:
        args = args or CreditConfig()
        arguments.require(interaction, args, CreditConfig)
        if train_dataset is None:
            train_dataset = arguments.training_tasks(interaction, args)
        method = methods.make(method) if isinstance(method, str) else method
        method = args.composed(method)
        interaction = method.wrapped(interaction)
        self.method = method.bind(interaction)
        self.memory = self.method.memory
        if self.method.sequence_ratio and args.importance_sampling_level != "sequence":
            raise ValueError(
                f"the method {self.method.name!r} compares policies by whole episodes, got importance_sampling_level="
                f"{args.importance_sampling_level!r}; set it to 'sequence', or take 'grpo'."
            )
        if self.method.refresh_frozen_every is not None and args.use_vllm:
            raise ValueError(
                f"the method {self.method.name!r} keeps a frozen copy of the policy, got use_vllm=True, which "
                "holds one policy; leave use_vllm out."
            )
        if self.method.paper and type(self) is CreditTrainer:
            self._paper = dict(self.method.paper)
        super().__init__(model, interaction, args, train_dataset, **kwargs)
        self.updates_collected = 0
        self.context = TrainerContext(self, self.engine)
        self.evaluation_context = self.context
        if self.evaluation_interaction is not interaction:
            self.evaluation_context = TrainerContext(self, self.engine.of(self.evaluation_interaction))
        self.critics: dict[str, Critic | BeliefHead] = {
            name: self._make_critic(name, critic) for name in self.method.critics
        }
        if self.critics:
            self.add_callback(WarnOfIdleCritics())
        self.frozen: FrozenCopy | None = None
        if self.method.refresh_frozen_every is not None:
            if self.accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED):
                raise ValueError(
                    f"the method {self.method.name!r} keeps a frozen copy of the policy, got "
                    f"{self.accelerator.distributed_type.value}, which shards one policy; train on several GPUs "
                    "without it."
                )
            follows = self.method.frozen_decay is not None
            self.frozen = FrozenCopy(self.accelerator.unwrap_model(self.model), torch.float32 if follows else None)
            self.add_callback(_SaveFrozen(self.frozen))

    # An update ----------------------------------------------------------------------------------------------------

    def collect(self, rows: list[dict[str, Any]]) -> RolloutBatch:
        if not self.model.training:
            return self.method.evaluation(rows, self.evaluation_context, self.memory)
        every = self.method.refresh_frozen_every
        if self.frozen is not None and every is not None:
            if self.method.frozen_decay is not None:
                self.frozen.follow(self.method.frozen_decay)
            elif self.updates_collected % every == 0:
                self.frozen.refresh()  # with 1 it is the policy of this very update
        self.updates_collected += 1
        return self.method.collector(rows, self.context, self.memory)

    def credit(self, collected: RolloutBatch) -> Mapping[str, DecisionCredit]:
        if not self.model.training:
            self.evaluation_context.exchange()
            return {}
        credit = self.method.estimator(collected, self.context, self.memory)
        self.context.exchange()
        credit = dataclasses.replace(credit, decisions=trained(collected, credit.decisions))
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, CreditCallback):
                callback.on_credit(self, collected, credit)
        self.memory = credit.memory
        for one in credit.critic_targets:
            learned = self.critics[one.critic].learn(one.inputs, one.targets, one.values)
            for name, value in learned.items():
                self.log_metric(f"{one.critic}/{name}", value)
        if self.critics and self.updates_collected <= self.args.critic_first_updates:
            self.log_metric("critics/alone", 1.0)
            return {}
        if credit.per_start and self.args.aggregation != "token":
            raise ValueError(
                f"the method {self.method.name!r} weighs branches of one start, got aggregation="
                f"{self.args.aggregation!r}; set it to 'token'."
            )
        found = credit_in_loss(collected, credit, self.ranks.gather)
        return found if self.adapters is None else self.adapters.of_learning(collected.episodes, found)

    # What a method asks for ---------------------------------------------------------------------------------------

    @contextmanager
    def frozen_policy(self) -> Iterator[None]:
        """Within, the policy is its frozen copy.

        Raises:
            ValueError: the method keeps none.
        """
        if self.frozen is None:
            raise ValueError(
                f"the method {self.method.name!r} must say how often its frozen copy is made anew, got None; set "
                "refresh_frozen_every."
            )
        with self.frozen.in_use():
            yield

    def decision_logprobs(self, decisions: Sequence[Decision]) -> list[tuple[float, ...]]:
        """The log-probability of each token of each decision under the policy."""
        rows = [
            Row.without_credit(one.context_ids, one.action_ids, one.role if self.roles else "") for one in decisions
        ]
        needed = self.ranks.all_max(len(rows))  # sharded weights want as many passes on every process
        if not needed:
            return []
        rows += [padding_row(self._idle)] * (needed - len(rows))
        found = self.policy_logprobs(pad_rows(rows, self.chat.tokenizer.pad_token_id, roles=self.roles)).tolist()
        pairs = zip(found, rows, strict=True)
        return [tuple(own[: len(row.completion_ids)]) for own, row in pairs][: len(decisions)]

    def _make_critic(self, name: str, backbone: str | PreTrainedModel | LoraConfig | None) -> Critic | BeliefHead:
        room = self.room_for_context()
        policy = self.accelerator.unwrap_model(self.model)
        if backbone is None:
            backbone = self.args.critic_model
        if backbone is None and isinstance(policy, PeftModel):
            backbone = cast(LoraConfig, policy.peft_config[policy.active_adapter])
        return make_critic(
            self.method.critic_specs.get(name, CriticSpec()),
            name,
            policy.config._name_or_path if backbone is None else backbone,
            policy,
            self.chat.tokenizer,
            self.args.critic_config(),
            None if room is None else room + self.args.max_completion_length,
            self.accelerator,
            self.args.model_init_kwargs,
        )

    # Checkpoints --------------------------------------------------------------------------------------------------

    def checkpoint_state(self) -> dict[str, Any]:
        return {
            **super().checkpoint_state(),
            "updates_collected": self.updates_collected,
            "memory": to_plain(self.memory),
            "critics": {name: one.state() for name, one in self.critics.items()},
        }

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        super().load_checkpoint_state(state)
        self.updates_collected = state["updates_collected"]
        self.memory = from_plain(state["memory"], self.method.memory)
        for name, one in self.critics.items():
            one.load_state(state["critics"][name])

    def load_from_other_processes(self, folder: Path) -> None:
        super().load_from_other_processes(folder)
        state = self.state_of_process(folder, 0)  # these are the same on every process
        self.updates_collected = state["updates_collected"]
        self.memory = from_plain(state["memory"], self.method.memory)
        for name, one in self.critics.items():
            one.load(folder, name)

    def _take_up(self, folder: Path) -> None:
        super()._take_up(folder)
        if self.frozen is not None:
            device = str(self.accelerator.device)
            self.frozen.load_state(load_file(folder / FROZEN_FILE, device=device))

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        if self.args.should_save:
            # Before TRL's own, which may push the folder.
            folder = Path(output_dir or self.args.output_dir)
            save_task(folder, self.evaluation_context.interaction, self.method, self.args)
        super().save_model(output_dir, _internal_call)
        if self.is_world_process_zero():
            for name, one in self.critics.items():
                one.save(output_dir or self.args.output_dir, name)

    def task_spec(self) -> TaskSpec:
        """As `hf_credit.trainers.saving.task_spec`."""
        return task_spec(self.evaluation_context.interaction, self.method, self.args)


class _SaveFrozen(CheckpointCallback):
    """Puts the weights of a frozen copy into every checkpoint.

    Args:
        frozen: the copy.
    """

    def __init__(self, frozen: FrozenCopy) -> None:
        self.frozen = frozen

    def on_checkpoint(self, folder: Path) -> None:
        save_file({name: weight.contiguous() for name, weight in self.frozen.state().items()}, folder / FROZEN_FILE)
