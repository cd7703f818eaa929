"""`CreditTrainer`, which trains with any method."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from datasets import Dataset, IterableDataset
from peft import LoraConfig
from transformers import PreTrainedModel

from hf_credit import methods
from hf_credit.collectors import RolloutBatch
from hf_credit.collectors.base import gives_of
from hf_credit.methods import DecisionCredit, Method
from hf_credit.methods.base import credit_in_loss, trained
from hf_credit.methods.memory import from_plain, to_plain
from hf_credit.rollouts import Decision, Interaction, decision_rows
from hf_credit.rollouts.samplers import CONTINUATIONS
from hf_credit.trainers import arguments
from hf_credit.trainers.base import EpisodeTrainer
from hf_credit.trainers.callbacks import CreditCallback
from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.method_context import TrainerContext
from hf_credit.trainers.starts import Starts


class CreditTrainer(EpisodeTrainer):
    """Trains language agents with a method of credit assignment.

    In each update the method's collector plays episodes of the Interaction, its estimator credits their decisions, the
    policy learns from the decisions with TRL's clipped surrogate over tokens, and the method's critics learn. Rollouts
    that serve only as a comparison are neither trained on nor counted in `reward`; the ledger counts their cost.

    Args:
        model: a model id, a model or a PEFT model, as in TRL.
        interaction: the Interaction to play.
        args: the settings.
        train_dataset: task rows; the Interaction's own training tasks if `None`.
        method: a `Method`, or the name of a method with its default options (`hf_credit.methods.make`).
        critic: backbone of the method's critics in place of `args.critic_model`: a model id, a model, or the
            configuration of an adapter next to the policy's.
        **kwargs: as in `EpisodeTrainer`.

    Raises:
        ValueError: the method does not fit the Interaction, there are no task rows or too few for one update, or a
            setting is invalid.
    """

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
        args.complete(interaction)
        if train_dataset is None:
            train_dataset = arguments.training_tasks(interaction, args)
        method = args.composed(methods.make(method) if isinstance(method, str) else method)
        interaction = method.wrapped(interaction)
        self.method = method.bind(interaction)
        self.memory = self.method.memory
        if args.importance_sampling_level is None:
            args = copy.copy(args)
            args.importance_sampling_level = "sequence" if self.method.sequence_ratio else "token"
        if self.method.sequence_ratio and args.importance_sampling_level != "sequence":
            raise ValueError(
                f"the method {self.method.name!r} uses the ratio of whole episodes, got importance_sampling_level="
                f"{args.importance_sampling_level!r}; leave it out, or take 'grpo'."
            )
        if self.method.refresh_frozen_every is not None and args.use_vllm:
            raise ValueError(
                f"the method {self.method.name!r} keeps a frozen copy of the policy, got use_vllm=True, which "
                "holds one policy; leave use_vllm out."
            )
        if self.method.paper and self._paper is EpisodeTrainer._paper:  # a class with its own keeps it
            self._paper = dict(self.method.paper)
        super().__init__(model, interaction, args, train_dataset, **kwargs)
        if CONTINUATIONS in self.samplers and CONTINUATIONS not in gives_of(self.method.collector):
            raise ValueError(
                f"a model of continuations needs a method with them, got {self.method.name!r}; take vineppo or "
                "mc_process_reward, or leave the model out."
            )
        self.updates_collected = 0
        self.context = TrainerContext(self, self.engine)
        self.evaluation_context = self.context
        if self.evaluation_interaction is not interaction:
            self.evaluation_context = TrainerContext(self, self.engine.of(self.evaluation_interaction))
        self.starts = args.starts and Starts(args.starts, args.starts_success, interaction, self.chat)
        self.critics: Any = {}
        self.frozen: Any = None
        if self.method.critics:
            from hf_credit.trainers.critics import Critics

            self.critics = Critics(self, self.method, critic)
            self.add_callback(self.critics)
        if self.method.refresh_frozen_every is not None:
            from hf_credit.trainers.frozen import FrozenPolicy

            self.frozen = FrozenPolicy(self, self.method)
            self.add_callback(self.frozen)

    # An update ----------------------------------------------------------------------------------------------------

    def collect(self, rows: list[dict[str, Any]]) -> RolloutBatch:
        if not self.model.training:
            self.evaluation_context.update, self.evaluation_context.starts = self.updates_collected, {}
            return self.method.evaluation(rows, self.evaluation_context, self.memory)
        if self.frozen is not None:
            self.frozen.before_update(self.updates_collected)
        self.updates_collected += 1
        self.context.update = self.updates_collected
        if not self.starts:
            return self.method.collector(rows, self.context, self.memory)
        drawn = self.starts.drawn(rows, self.context)
        collected, news = self.starts.played(drawn, rows, self.context, self.method.collector, self.memory)
        self.starts.learn(self.context.gather([news]))
        return collected

    def credit(self, collected: RolloutBatch) -> Mapping[str, DecisionCredit]:
        if not self.model.training:
            return {}
        credit = self.method.estimator(collected, self.context, self.memory)
        self.context.exchange()
        ends = self.chat.end_tokens if self.mask_truncated_completions else None
        credit = dataclasses.replace(credit, decisions=trained(collected, credit.decisions, ends))
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, CreditCallback):
                callback.on_credit(self, collected, credit)
        self.memory = credit.memory
        if credit.critic_targets:
            self.critics.learn(credit.critic_targets)
        if self.critics and self.state.global_step < self.args.critic_first_updates:
            self.log_metric("critics/alone", 1.0)
            return {}
        if credit.per_start and self.args.aggregation != "token":
            raise ValueError(
                f"the method {self.method.name!r} weighs branches of one start, got aggregation="
                f"{self.args.aggregation!r}; set it to 'token'."
            )
        if self.adapters is not None:
            learning = self.adapters.learning_credit(collected.episodes, credit.decisions)
            credit = dataclasses.replace(credit, decisions=learning)
        return credit_in_loss(collected, credit, self.ranks.gather)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        output = super().evaluation_loop(*args, **kwargs)
        self.evaluation_context.exchange()  # once: means are over all batches
        return output

    # What a method may ask for ------------------------------------------------------------------------------------

    @contextmanager
    def frozen_policy(self) -> Iterator[None]:
        """Context in which the policy has the weights of its frozen copy.

        Raises:
            ValueError: the method keeps no frozen copy.
        """
        if self.frozen is None:
            raise ValueError(
                f"the method {self.method.name!r} needs a frozen copy of the policy, got refresh_frozen_every=None; "
                "set it to a number of updates."
            )
        with self.frozen.in_use():
            yield

    def decision_logprobs(self, decisions: Sequence[Decision]) -> list[tuple[float, ...]]:
        """The log-probability of each token of each decision under the policy. Called on every process."""
        rows = decision_rows(decisions, [float(place) for place in range(len(decisions))])
        if not self.ranks.all_max(len(rows)):
            return []
        found: list[list[float]] = [[] for _ in decisions]
        # Sharded weights need equally many passes on every process, hence the last rows.
        for row, values in zip(rows, self.logprobs_of_rows(self.model, self.lay_out(rows)).tolist(), strict=False):
            for place, marked, value in zip(row.advantages, row.loss_mask, values, strict=False):
                if marked:
                    found[int(place)].append(value)
        return [tuple(one) for one in found]

    # Checkpoints --------------------------------------------------------------------------------------------------

    def checkpoint_state(self) -> dict[str, Any]:
        return {
            **super().checkpoint_state(),
            "updates_collected": self.updates_collected,
            "memory": to_plain(self.memory),
            **({"starts": self.starts.state()} if self.starts else {}),
        }

    def load_checkpoint_state(self, state: dict[str, Any], same: bool) -> None:
        super().load_checkpoint_state(state, same)
        self.updates_collected = state["updates_collected"]
        self.memory = from_plain(state["memory"], self.method.memory)
        if self.starts and "starts" in state:
            self.starts.load_state(state["starts"])
