"""`ReplayLOOTrainer`: the method of paper C3, ready-made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel

from hf_credit.methods import Method, make
from hf_credit.methods.replay_loo import PAPER
from hf_credit.rollouts import Interaction
from hf_credit.trainers import arguments
from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.credit import CreditTrainer


@dataclass
class ReplayLOOConfig(CreditConfig):
    """The paper's settings (C3, Tables 6 and 7 and Appendix D); see `docs/paper_index.md` for each.

    Args:
        budget, alternatives, reference_rollouts, contexts, num_replays, match_contexts, baseline,
            common_random_numbers, normalise_credit, value_assistance, return_clip, equal_steps: as for
            `hf_credit.methods.replay_loo.replay_loo`.
    """

    budget: int = field(default=8, metadata={"help": "Terminal scores of one instance and update."})
    alternatives: list[int] = field(
        default_factory=lambda: [2, 4], metadata={"help": "Messages sampled at the context of each step."}
    )
    reference_rollouts: int = field(default=0, metadata={"help": "Unscored episodes that contexts are drawn from."})
    contexts: int = field(default=2, metadata={"help": "Contexts drawn from the reference rollouts."})
    num_replays: int = field(default=1, metadata={"help": "Continuations of each alternative at a drawn context."})
    match_contexts: bool = field(default=True, metadata={"help": "False: whole episodes, contexts not matched."})
    baseline: str = field(default="leave_one_out", metadata={"help": "leave_one_out or full_mean."})
    common_random_numbers: bool = field(default=False, metadata={"help": "Same random numbers for alternatives."})
    normalise_credit: bool = field(default=False, metadata={"help": "Divide credits by their standard deviation."})
    value_assistance: float = field(default=0.0, metadata={"help": "Share of the baseline that a critic gives."})
    return_clip: float = field(default=10.0, metadata={"help": "Returns are clipped to this, both ways."})
    equal_steps: bool = field(default=True, metadata={"help": "Whether all steps of a tree weigh alike in the loss."})

    beta: float = 0.001
    num_train_epochs: float = 5
    shuffle_dataset: bool = False
    lr_scheduler_type: str = "cosine"
    warmup_steps: float = 0.03
    adam_beta2: float = 0.95
    temperature: float = 0.7
    top_p: float = 0.8
    top_k: int = 20
    max_completion_length: int = 512
    max_context_tokens: int | None = 2560

    def __post_init__(self) -> None:
        super().__post_init__()
        self.method()  # refuses its own settings

    def method(self) -> Method:
        """The method that these settings make."""
        return make(
            "replay_loo",
            budget=self.budget,
            alternatives=self.alternatives,
            reference_rollouts=self.reference_rollouts,
            contexts=self.contexts,
            num_replays=self.num_replays,
            match_contexts=self.match_contexts,
            baseline=self.baseline,
            common_random_numbers=self.common_random_numbers,
            normalise_credit=self.normalise_credit,
            value_assistance=self.value_assistance,
            return_clip=self.return_clip,
            equal_steps=self.equal_steps,
        )


class ReplayLOOTrainer(CreditTrainer):
    """Trains collaborating agents on the credit of single messages.

    At a frozen context several messages are sampled; each is continued to the end from the recorded state; a message's
    credit is the mean score it led to, less that of the others at its context (Algorithm 1, eqs. 13 to 15). All tokens
    of a message carry its credit. Only messages that were compared are trained on.

    The loss is TRL's clipped surrogate over tokens with a KL penalty; it is a mean over the tokens of an update, in
    which a message weighs as much as its tokens, as in the gradient of eq. 21.

    Args:
        model: a model id, a model or a PEFT model, as in TRL.
        interaction: who speaks when and who scores, such as a `Collaboration`; a game will do.
        args: the settings; the paper's if `None`.
        train_dataset: task rows; the Interaction's own training tasks if `None`.
        **kwargs: as in [`CreditTrainer`].

    Raises:
        ValueError: a setting is out of range, or the layout cannot meet the budget.
    """

    _name = "C3"
    _tag_names = ["trl", "hf-credit", "c3"]  # noqa: RUF012 (TRL's own convention)
    _paper = PAPER

    def __init__(
        self,
        model: str | PreTrainedModel,
        interaction: Interaction[Any],
        args: ReplayLOOConfig | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        **kwargs: Any,
    ) -> None:
        args = args or ReplayLOOConfig()
        arguments.require(interaction, args, ReplayLOOConfig)
        super().__init__(model, interaction, args, train_dataset, method=args.method(), **kwargs)
