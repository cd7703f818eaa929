"""The critics of a trainer: made for its method, trained by every update, saved and resumed with its policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from peft import LoraConfig, PeftModel
from transformers import PreTrainedModel

from hf_credit.critics.belief_head import BeliefHead
from hf_credit.critics.critic import Critic
from hf_credit.critics.inputs import CriticSpec
from hf_credit.critics.saved import make_critic
from hf_credit.methods import CriticTargets, Method
from hf_credit.rollouts import Interaction
from hf_credit.trainers.callbacks import WarnOfIdleCritics
from hf_credit.trainers.resumption import ResumableTrainer
from hf_credit.trainers.saving import save_task


class CriticTrainer(ResumableTrainer):
    """The part of a trainer that has the critics of its method, each replicated on every process.

    Attributes:
        critics: by name; empty for a method without critics.
    """

    method: Method
    interaction: Interaction[Any]
    evaluation_interaction: Interaction[Any]
    critics: dict[str, Critic | BeliefHead]

    def make_critics(self, backbone: str | PreTrainedModel | LoraConfig | None) -> None:
        """Makes the critics of the method.

        Args:
            backbone: in place of `args.critic_model`. If both are `None`, an adapter beside the policy's or, if the
                whole policy is trained, the model that it started from.
        """
        policy: Any = self.accelerator.unwrap_model(self.model)
        backbone = self.args.critic_model if backbone is None else backbone
        if backbone is None and isinstance(policy, PeftModel):
            backbone = cast(LoraConfig, policy.peft_config[policy.active_adapter])
        self.critics = {
            name: make_critic(
                self.method.critic_specs.get(name, CriticSpec()),
                name,
                policy.config._name_or_path if backbone is None else backbone,
                policy,
                self.chat.tokenizer,
                self.args.critic_config(),
                getattr(policy.config.get_text_config(), "max_position_embeddings", None),
                self.accelerator,
                self.args.model_init_kwargs,
            )
            for name in self.method.critics
        }
        if self.critics:
            self.add_callback(WarnOfIdleCritics())

    def train_critics(self, targets: Sequence[CriticTargets]) -> None:
        """Trains critics, and logs their metrics. Called on every process at the same time.

        Args:
            targets: those of this process, for the same critics on every process.
        """
        for batch in targets:
            metrics = self.critics[batch.critic].learn(batch.inputs, batch.targets, batch.values)
            for name, value in metrics.items():
                self.log_metric(f"{batch.critic}/{name}", value)

    def checkpoint_state(self) -> dict[str, Any]:
        critics = {name: critic.state() for name, critic in self.critics.items()}
        return {**super().checkpoint_state(), "critics": critics}

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        super().load_checkpoint_state(state)
        for name, critic in self.critics.items():
            critic.load_state(state["critics"][name])

    def load_from_other_processes(self, folder: Path) -> None:
        super().load_from_other_processes(folder)
        for name, critic in self.critics.items():
            critic.load(folder, name)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        folder = output_dir or self.args.output_dir
        if self.args.should_save:  # before TRL saves, which may push the folder
            save_task(Path(folder), self.evaluation_interaction, self.method, self.args)
        super().save_model(output_dir, _internal_call)
        if self.is_world_process_zero():
            for name, critic in self.critics.items():
                critic.save(folder, name)
