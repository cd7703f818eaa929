"""Verifiable process rewards: an oracle checks every action (paper VPR)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from datasets import Dataset, IterableDataset
from torch import Tensor
from transformers import PreTrainedModel

from hf_credit.credit import (
    discounted_returns,
    trajectory_advantages,
    turn_group_advantages,
    value_differences,
)
from hf_credit.environments import Environment
from hf_credit.environments.tasks import require_task_columns, tasks
from hf_credit.oracles import Oracle, default_oracle, require_fit
from hf_credit.rollouts import Chat, EnvironmentInteraction, Episode, refuse_total_failure, rollout_values, verify
from hf_credit.rollouts.episode import Ending
from hf_credit.trainers.arguments import require_config, require_environment
from hf_credit.trainers.base import CreditTrainer
from hf_credit.trainers.config import CreditConfig, tasks_per_update

PROCESS_REWARDS = ("oracle", "outcome", "rollout_value")


@dataclass
class VerifiableProcessConfig(CreditConfig):
    """The paper's settings (VPR, Appendix F), where its text gives them; see `docs/paper_index.md` for each.

    Args:
        process_reward: `"oracle"` is the paper's method. `"outcome"` gives every decision its trajectory's outcome
            (the OR baseline). `"rollout_value"` gives it the change in the Monte Carlo value of the state (MC-PR).
        discount: weight of the next turn's reward in a decision's return. Not used by `"outcome"`.
        min_active: the fewest trajectories whose own statistics a turn's advantages use.
        value_rollouts: rollouts from each state for `"rollout_value"`.
        value_template_kwargs: chat template settings of those rollouts, such as `{"enable_thinking": false}` for a
            lighter mode of the policy. `None` continues the recorded tokens instead.
        history: `"append"` keeps the whole conversation in view; `"current"` shows the present observation only.
        instructions: whether prompts open with the environment's instructions.
        max_turns: the most actions of an episode; the environment's limit if `None`.
    """

    # What the command line gives as a string of JSON.
    _VALID_DICT_FIELDS = [*CreditConfig._VALID_DICT_FIELDS, "value_template_kwargs"]  # noqa: RUF012

    process_reward: str = field(
        default="oracle", metadata={"help": "One of oracle (VPR), outcome (OR), rollout_value (MC-PR)."}
    )
    discount: float = field(default=0.0, metadata={"help": "Weight of the next turn's reward in a return."})
    min_active: int = field(
        default=4, metadata={"help": "Fewest active trajectories whose own statistics a turn uses."}
    )
    value_rollouts: int = field(default=100, metadata={"help": "Rollouts from each state for rollout_value."})
    value_template_kwargs: dict[str, Any] | str | None = field(
        default=None, metadata={"help": "Chat template settings of the rollouts for rollout_value."}
    )
    history: str = field(default="append", metadata={"help": "append: all turns in view; current: the last one."})
    instructions: bool = field(default=True, metadata={"help": "Whether prompts open with the instructions."})
    max_turns: int | None = field(default=None, metadata={"help": "Most actions of an episode."})

    trajectories_per_update: int | None = 128
    max_steps: int = 100
    lr_scheduler_type: str = "cosine"
    warmup_steps: float = 5
    temperature: float = 0.6
    top_p: float = 0.95
    top_k: int = 20

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.process_reward not in PROCESS_REWARDS:
            raise ValueError(
                f"process_reward must be one of {', '.join(PROCESS_REWARDS)}, got {self.process_reward!r}; pick one."
            )
        if not 0 <= self.discount <= 1:
            raise ValueError(f"discount must be in [0, 1], got {self.discount}; the paper uses 0.")
        if self.history not in ("append", "current"):
            raise ValueError(f"history must be 'append' or 'current', got {self.history!r}; pick one.")
        for name in ("min_active", "value_rollouts", "max_turns"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}; raise it.")


class VerifiableProcessTrainer(CreditTrainer):
    """Trains an agent with a reward for every turn, normalised over the trajectories still active at that turn.

    The loss is the clipped surrogate of the paper's eq. 5 over tokens, each with the advantage of its decision; it is
    the mean over the tokens of an update.

    Args:
        model: a model id, a model or a PEFT model, as in TRL.
        environment: the rules.
        args: the settings; the paper's if `None`.
        train_dataset: task rows (see `hf_credit.environments.tasks`); the environment's training tasks if `None`.
        oracle: who verifies; the environment's own oracle if `None`. With the baselines it only watches.
        **kwargs: as in [`CreditTrainer`].

    Raises:
        ValueError: the oracle does not fit the environment, the dataset lacks a column that a task needs, or a
            setting is out of range.
    """

    _name = "VPR"
    _tag_names = ["trl", "hf-credit", "vpr"]  # noqa: RUF012 (TRL's own convention)
    _paper = {  # noqa: RUF012
        "title": "Verifiable Process Rewards for Agentic Reasoning",
        "citation": "Verifiable Process Rewards for Agentic Reasoning. https://github.com/thu-nics/VPR",
    }

    def __init__(
        self,
        model: str | PreTrainedModel,
        environment: Environment[Any],
        args: VerifiableProcessConfig | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        oracle: Oracle[Any] | None = None,
        **kwargs: Any,
    ) -> None:
        args = args or VerifiableProcessConfig()
        require_environment(environment)
        require_config(args, VerifiableProcessConfig)
        self.oracle = default_oracle(environment) if oracle is None else oracle
        if self.oracle is not None:
            require_fit(self.oracle, environment)
        elif args.process_reward == "oracle":
            raise ValueError(
                f"process_reward='oracle' needs an oracle, got none and {environment.name!r} has none of its own; "
                "pass oracle=."
            )
        if train_dataset is None:
            size = tasks_per_update(args) * max(args.max_steps, 1)
            train_dataset = tasks(environment, "train", size=size, lazy=True)
        for dataset in (train_dataset, kwargs.get("eval_dataset")):
            columns = getattr(dataset, "column_names", None)  # a stream may not know its own
            if columns is not None:
                require_task_columns(columns, environment)
        self.environment = environment
        interaction = EnvironmentInteraction(environment, args.history, args.instructions, args.max_turns)
        super().__init__(model, interaction, args, train_dataset, **kwargs)
        self.value_engine = self.engine
        if args.value_template_kwargs is not None:
            template_kwargs = {**self.chat.template_kwargs, **cast(dict[str, Any], args.value_template_kwargs)}
            self.value_engine = self.make_engine(Chat(self.chat.tokenizer, template_kwargs))

    def collect(self, rows: list[dict[str, Any]]) -> list[Episode]:
        episodes = super().collect(rows)
        if self.oracle is None:
            return episodes
        begun = time.perf_counter()
        judged = verify(episodes, self.oracle, self.engine.failures)
        self.log_metric("oracle/seconds", time.perf_counter() - begun)
        if self.args.process_reward == "oracle":
            return judged
        # With the baselines the oracle only watches, and its failures are its own.
        return [
            replace(after, ending=before.ending, error=before.error, exception=before.exception)
            for before, after in zip(episodes, judged, strict=True)
        ]

    def credit(self, episodes: list[Episode]) -> list[list[float | None]]:
        own = self.process_rewards(episodes)
        first = self.ranks.before(len(own))
        rewards, active = _matrix(self.ranks.gather(own))
        self._log_rewards(episodes, rewards, active)
        if self.args.process_reward == "outcome":
            # The outcome is the reward of every turn, so any column holds it, and the first is never cut short.
            advantages = trajectory_advantages(rewards[:, 0], active[:, 0])[:, None].expand_as(rewards)
        else:
            returns = discounted_returns(rewards, active, self.args.discount)
            advantages = turn_group_advantages(returns, active, self.args.min_active)
        return [
            [None if reward is None else advantages[first + row, turn].item() for turn, reward in enumerate(turns)]
            for row, turns in enumerate(own)
        ]

    def process_rewards(self, episodes: list[Episode]) -> list[list[float | None]]:
        """The reward of each decision of each episode; `None` where there is none to be had."""
        match self.args.process_reward:
            case "oracle":
                return [
                    [None if decision.verdict is None else decision.verdict.score for decision in episode.decisions]
                    for episode in episodes
                ]
            case "outcome":
                return [
                    [None if episode.ending == Ending.ERROR else episode.outcome] * len(episode.decisions)
                    for episode in episodes
                ]
            case _:
                return self._value_rewards(episodes)

    def _value_rewards(self, episodes: list[Episode]) -> list[list[float | None]]:
        sound = [episode if episode.ending != Ending.ERROR else replace(episode, decisions=()) for episode in episodes]

        def check(played: Sequence[Episode]) -> None:
            self.ranks.finish()
            refuse_total_failure(played, self.ranks.gather, "of the value rollouts")

        same = self.value_engine is self.engine
        values, cost = rollout_values(sound, self.value_engine, self.args.value_rollouts, same, check)
        self.log_metric("tokens/value_rollouts", sum(self.ranks.gather([cost.completion_tokens])))
        if self.model.training:
            self.spend(cost)
        estimates, active = _matrix(values)
        outcomes = torch.tensor([episode.outcome for episode in episodes], dtype=estimates.dtype)
        known = value_differences(estimates, outcomes, active).tolist()
        return [
            [known[row][turn] if turn < len(values[row]) else None for turn in range(len(episode.decisions))]
            for row, episode in enumerate(episodes)
        ]

    def _log_rewards(self, episodes: list[Episode], rewards: Tensor, active: Tensor) -> None:
        if active.any():
            self.log_metric("process_reward/mean", rewards[active].mean().item())
            self.log_metric("process_reward/std", rewards[active].std(correction=0).item())
        verdicts = [d.verdict.valid for episode in episodes for d in episode.decisions if d.verdict is not None]
        everywhere = self.ranks.gather(verdicts)
        if everywhere:
            self.log_metric("oracle/valid", sum(everywhere) / len(everywhere))


def _matrix(turns: Sequence[Sequence[float | None]]) -> tuple[Tensor, Tensor]:
    """Ragged rows as a (trajectories, turns) matrix, and where it holds a value."""
    width = max([len(row) for row in turns] + [1])
    filled = [[*row, *[None] * (width - len(row))] for row in turns]
    values = torch.tensor([[0.0 if value is None else value for value in row] for row in filled], dtype=torch.float64)
    active = torch.tensor([[value is not None for value in row] for row in filled])
    return values, active
