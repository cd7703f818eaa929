"""`ReplayLOOTrainer`, the preset of paper C3."""

from __future__ import annotations

from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.preset import Preset, PresetTrainer


class ReplayLOOConfig(
    Preset,
    CreditConfig,
    method="replay_loo",
    defaults={
        "beta": 0.001,
        "num_train_epochs": 5,
        "shuffle_dataset": False,
        "lr_scheduler_type": "cosine",
        "warmup_steps": 0.03,
        "adam_beta2": 0.95,
        "temperature": 0.7,
        "top_p": 0.8,
        "top_k": 20,
        "max_completion_length": 512,
        "max_context_tokens": 2560,
    },
):
    """The paper's settings (C3, Tables 6 and 7 and Appendix D); see `docs/paper_index.md` for each.

    The options of `hf_credit.methods.replay_loo.replay_loo` are fields.
    """


class ReplayLOOTrainer(PresetTrainer):
    """Trains collaborating agents on the credit of single messages.

    The method samples several messages at a fixed context and plays each on to the end from the recorded state. The
    credit of a message is the mean score of its continuations minus that of the other messages at its context
    (Algorithm 1, eqs. 13 to 15), and all its tokens have it. Only messages that were compared are trained on.

    The loss is TRL's clipped surrogate with a KL penalty, a mean over the tokens of an update: a message weighs as
    much as it has tokens, as in the gradient of eq. 21.

    Args:
        interaction: decides who speaks when, and scores: a `Collaboration`, or a game.
        args: the settings; the paper's if `None`.
        model, train_dataset, **kwargs: as in [`CreditTrainer`].

    Raises:
        ValueError: a setting is out of range, or the layout cannot meet the budget.
    """

    _name = "C3"
    _tag_names = ["trl", "hf-credit", "c3"]  # noqa: RUF012 (TRL's own convention)
    config_class = ReplayLOOConfig
