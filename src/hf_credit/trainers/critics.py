"""The critics of a trainer: made for its method, trained by every update, saved and resumed with its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from peft import LoraConfig, PeftModel
from transformers import PreTrainedModel

from hf_credit.critics.belief_head import BeliefHead
from hf_credit.critics.critic import Critic
from hf_credit.critics.inputs import CriticSpec
from hf_credit.critics.saved import make_critic
from hf_credit.methods import CriticTargets, Method
from hf_credit.trainers.callbacks import WarnOfIdleCritics
from hf_credit.trainers.component import Component, Seam


class Critics(WarnOfIdleCritics, Component, dict[str, Critic | BeliefHead]):
    """The critics of a method by name, each replicated on every process.

    Args:
        trainer: of the policy.
        method: has critics.
        backbone: in place of `args.critic_model`. If both are `None`, an adapter next to the policy's if that is of
            LoRA, otherwise the model that it started from.
    """

    def __init__(
        self, trainer: Seam, method: Method, backbone: str | PreTrainedModel | LoraConfig | None = None
    ) -> None:
        super().__init__()
        self.trainer, args = trainer, trainer.args
        policy: Any = trainer.accelerator.unwrap_model(trainer.model)
        backbone = args.critic_model if backbone is None else backbone
        if backbone is None and isinstance(policy, PeftModel):
            own = policy.peft_config[policy.active_adapter]
            backbone = own if isinstance(own, LoraConfig) else None
        for name in method.critics:
            self[name] = make_critic(
                method.critic_specs.get(name, CriticSpec()),
                name,
                policy.config._name_or_path if backbone is None else backbone,
                policy,
                trainer.chat.tokenizer,
                args.critic_config(),
                getattr(policy.config.get_text_config(), "max_position_embeddings", None),
                trainer.accelerator,
                args.model_init_kwargs,
            )

    def learn(self, targets: Sequence[CriticTargets]) -> None:
        """Trains critics, and logs their metrics. Called on every process at the same time.

        Args:
            targets: those of this process, for the same critics on every process.
        """
        for batch in targets:
            metrics = self[batch.critic].learn(batch.inputs, batch.targets, batch.values)
            for name, value in metrics.items():
                self.trainer.log_metric(f"{batch.critic}/{name}", value)

    def checkpoint_state(self) -> dict[str, Any]:
        return {"critics": {name: critic.state() for name, critic in self.items()}}

    def load(self, folder: Path, state: Mapping[str, Any], same: bool) -> None:
        for name, critic in self.items():
            if same:
                critic.load_state(state["critics"][name])
            else:
                critic.load(folder, name)

    def save(self, folder: Path) -> None:
        for name, critic in self.items():
            critic.save(folder, name)
