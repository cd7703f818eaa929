"""Contextual counterfactual credit: alternatives at a frozen context, replayed, compared leave-one-out (paper C3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from datasets import Dataset, IterableDataset
from peft import LoraConfig, PeftModel
from transformers import PreTrainedModel

from hf_credit.credit import full_mean, leave_one_out
from hf_credit.environments.randomness import stream
from hf_credit.rollouts import ContextKeys, Episode, Interaction, Ledger, Start, alternatives, replay_from
from hf_credit.rollouts.buckets import Alternative
from hf_credit.rollouts.episode import Ending
from hf_credit.rollouts.failures import refuse_total_failure
from hf_credit.trainers.arguments import require
from hf_credit.trainers.central_critic import CentralCritic
from hf_credit.trainers.critic import Critic
from hf_credit.trainers.replay_loo_config import ReplayLOOConfig
from hf_credit.trainers.role_adapters import RoleAdapterTrainer

__all__ = ["ReplayLOOConfig", "ReplayLOOTrainer"]


class ReplayLOOTrainer(RoleAdapterTrainer):
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
        train_dataset: task rows.
        critic: for `estimator="critic"` and `value_assistance`, the backbone of the critic in place of
            `args.critic_model`: a model, or the adapter to put beside the policy's.
        **kwargs: as in [`RoleAdapterTrainer`] and [`CreditTrainer`].

    Raises:
        ValueError: a setting is out of range, or the layout cannot meet the budget.
    """

    _name = "C3"
    _tag_names = ["trl", "hf-credit", "c3"]  # noqa: RUF012 (TRL's own convention)
    _paper = {  # noqa: RUF012
        "title": "Contextual Counterfactual Credit Assignment for Multi-Agent Reinforcement Learning in LLM "
        "Collaboration",
        "id": "2603.06859",
        "citation": "Contextual Counterfactual Credit Assignment for Multi-Agent Reinforcement Learning in LLM "
        "Collaboration. arXiv:2603.06859",
    }

    def __init__(
        self,
        model: str | PreTrainedModel,
        interaction: Interaction[Any],
        args: ReplayLOOConfig | None = None,
        train_dataset: Dataset | IterableDataset | None = None,
        critic: str | PreTrainedModel | LoraConfig | None = None,
        **kwargs: Any,
    ) -> None:
        if train_dataset is None:
            raise ValueError("the training dataset must hold task rows, got none; pass train_dataset=.")
        args = args or ReplayLOOConfig()
        require(interaction, args, ReplayLOOConfig)
        super().__init__(model, interaction, args, train_dataset, **kwargs)
        self.batches = 0  # of instances, so far
        judged = self.args.estimator == "critic" or self.args.value_assistance > 0
        self.critic = self._make_critic(critic) if judged else None
        self.judge: CentralCritic | None = None
        if self.critic is not None:
            self.judge = CentralCritic(self.critic, self.args.gamma, self.args.lam, self._room_for_context())

    def collect(self, rows: list[dict[str, Any]]) -> list[Episode]:
        """The episodes of each task row: one in evaluation, else as many as the budget pays for."""
        if not self.model.training:
            return super().collect(rows)
        self.batches += 1
        if self.args.estimator == "replay" and self.args.replay and self.args.reference_rollouts:
            starts, instances = self._replays(rows)
        else:
            starts, instances = [self._tree(row, place) for place, row in enumerate(rows)], list(range(len(rows)))
        episodes = [_of_instance(episode, instances[episode.start]) for episode in self.engine.run(starts)]
        self.ranks.finish()
        self._refuse_over_budget(episodes)
        return episodes

    def credit(self, episodes: list[Episode]) -> list[list[float | None]]:
        advantages: list[list[float | None]] = [[None] * len(episode.decisions) for episode in episodes]
        if not self.model.training:
            return advantages
        if self.args.estimator == "group":
            return self._group_credit(episodes, advantages)
        if self.args.estimator == "critic":
            assert self.judge is not None
            outcomes = [self._clipped(episode.outcome) for episode in episodes]
            advantages, taught = self.judge.credit(episodes, outcomes)
            self._log_critic(taught)
            return advantages
        compared = alternatives(episodes, match_contexts=self.args.replay)
        self._refuse_collisions(compared)
        credits = self._bucket_credit(compared, self._expected(episodes, compared))
        for alternative, credit in zip(compared, credits, strict=True):
            row, turn = alternative.place
            advantages[row][turn] = credit
        self._log_buckets(compared, credits)
        return advantages

    def checkpoint_state(self) -> dict[str, Any]:
        critic = {} if self.critic is None else {"critic": self.critic.state()}
        return {**super().checkpoint_state(), "batches": self.batches, **critic}

    def load_checkpoint_state(self, state: dict[str, Any]) -> None:
        super().load_checkpoint_state(state)
        self.batches = state["batches"]
        if self.critic is not None:
            self.critic.load_state(state["critic"])

    def load_from_other_processes(self, folder: Path) -> None:
        super().load_from_other_processes(folder)
        if self.critic is not None:
            self.critic.load(folder)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        super().save_model(output_dir, _internal_call)
        if self.critic is not None and self.is_world_process_zero():
            self.critic.save(output_dir or self.args.output_dir)

    def _make_critic(self, backbone: str | PreTrainedModel | LoraConfig | None) -> Critic:
        policy = self.accelerator.unwrap_model(self.model)
        if backbone is None:
            backbone = self.args.critic_model
        if backbone is None and isinstance(policy, PeftModel):
            backbone = cast(LoraConfig, policy.peft_config[policy.active_adapter])
        return Critic(
            policy.config._name_or_path if backbone is None else backbone,
            policy,
            self.chat.tokenizer,
            self.accelerator,
            self.args.critic_config(),
            self.args.model_init_kwargs,
        )

    # Where episodes begin ---------------------------------------------------------------------------------------

    def _tree(self, row: dict[str, Any], place: int) -> Start[Any]:
        return Start(task=row, fanout=self.args.fanout, stream=self._stream("instance", place))

    def _stream(self, *parts: int | str) -> str | None:
        if not self.args.common_random_numbers or not self.engine.honours_seeds:
            return None
        return " ".join(map(str, (self.args.seed, self.batches, self.accelerator.process_index, *parts)))

    def _replays(self, rows: list[dict[str, Any]]) -> tuple[list[Start[Any]], list[int]]:
        """Reference rollouts, and a start at each drawn context; the instance of each (Algorithm 1, lines 2 to 5)."""
        count = self.args.reference_rollouts
        references = self.engine.run([Start(task=row, seed=None, scored=False) for row in rows for _ in range(count)])
        self.ranks.finish()
        refuse_total_failure(references, self.ranks.gather)
        fanout = (*self.args.alternatives, self.args.replays)
        starts, instances = [], []
        for instance in range(len(rows)):
            visited = _contexts(references[instance * count : (instance + 1) * count])
            draws = stream(self.args.seed, "contexts", self.batches, self.accelerator.process_index, instance)
            for number, (episode, turn) in enumerate(draws.sample(visited, min(self.args.contexts, len(visited)))):
                named = self._stream("context", instance, number)
                starts.append(replay_from(self.interaction, self.chat, episode, turn, fanout=fanout, stream=named))
                instances.append(instance)
        cost = Ledger.of(references)
        self.log_metric("tokens/reference_rollouts", sum(self.ranks.gather([cost.completion_tokens])))
        self.spend(cost)
        return starts, instances

    def _refuse_over_budget(self, episodes: Sequence[Episode]) -> None:
        """Rejects a batch that took more terminal scores than the budget of its instances (Appendix D)."""
        spent: dict[int, int] = {}
        for episode in episodes:
            spent[episode.start] = spent.get(episode.start, 0) + episode.scored
        most = max(spent.values(), default=0)
        if most > self.args.budget:
            raise RuntimeError(
                f"an instance must take at most {self.args.budget} terminal scores, got {most}; reject this batch "
                "and make collect() play fewer episodes."
            )

    # What they deserve ------------------------------------------------------------------------------------------

    def _expected(self, episodes: Sequence[Episode], compared: Sequence[Alternative]) -> list[float] | None:
        """What the critic expects of each alternative, if it has a say in their baselines."""
        if self.judge is None:
            return None
        returns = [self._clipped(alternative.mean_outcome) for alternative in compared]
        values, taught = self.judge.message_values(episodes, compared, returns)
        self._log_critic(taught)
        return values

    def _bucket_credit(self, compared: Sequence[Alternative], expected: list[float] | None) -> list[float | None]:
        """The credit of each alternative; `None` for those that had no other beside them."""
        if not compared:
            return []
        buckets = torch.tensor([alternative.bucket for alternative in compared])
        counts = torch.tensor([len(alternative.outcomes) for alternative in compared])
        returns = [self._clipped(alternative.mean_outcome) for alternative in compared]
        returned = torch.tensor(returns, dtype=torch.float64)
        estimate = leave_one_out if self.args.baseline == "leave_one_out" else full_mean
        credits = estimate(returned, buckets, counts)
        if expected is not None:
            # The mean of the others' values is a value less its own leave-one-out credit.
            values = torch.tensor(expected, dtype=torch.float64)
            assisted = returned - values + leave_one_out(values, buckets, counts)
            credits = credits + self.args.value_assistance * (assisted - credits)
        sizes = torch.bincount(buckets)[buckets]
        if self.args.normalise_credit:
            credits = credits / (_spread(credits, buckets) + 1e-8)
        return [value if size > 1 else None for value, size in zip(credits.tolist(), sizes.tolist(), strict=True)]

    def _group_credit(
        self, episodes: Sequence[Episode], advantages: list[list[float | None]]
    ) -> list[list[float | None]]:
        """An episode's return less the mean of its instance, for each of its decisions (MAGRPO, Appendix H)."""
        sound = [row for row, episode in enumerate(episodes) if episode.ending != Ending.ERROR]
        if not sound:
            return advantages
        instances = torch.tensor([episodes[row].start for row in sound])
        returns = torch.tensor([self._clipped(episodes[row].outcome) for row in sound], dtype=torch.float64)
        centred = full_mean(returns, instances)
        if self.args.normalise_credit:
            centred = centred / (_spread(centred, instances) + 1e-8)
        for row, value in zip(sound, centred.tolist(), strict=True):
            advantages[row] = [value] * len(advantages[row])
        return advantages

    def _clipped(self, value: float) -> float:
        return max(-self.args.return_clip, min(self.args.return_clip, value))

    def _refuse_collisions(self, compared: Sequence[Alternative]) -> None:
        keys = ContextKeys()
        for context in {alternative.decision.context_ids for alternative in compared}:
            keys.key(str(self.chat.tokenizer.decode(list(context))))

    def _log_critic(self, taught: Mapping[str, float]) -> None:
        for name, value in taught.items():
            self.log_metric(f"critic/{name}", value)

    def _log_buckets(self, compared: Sequence[Alternative], credits: Sequence[float | None]) -> None:
        sizes: dict[int, int] = {}
        for alternative in compared:
            sizes[alternative.bucket] = sizes.get(alternative.bucket, 0) + 1
        told = self.ranks.gather([(list(sizes.values()), [credit is None for credit in credits])])
        every = [size for own, _ in told for size in own]
        alone = [one for _, own in told for one in own]
        if every:
            self.log_metric("buckets/count", len(every))
            self.log_metric("buckets/alternatives", sum(every) / len(every))
            self.log_metric("buckets/alone", sum(alone) / len(alone))
        self.log_metric("common_random_numbers", float(self._stream() is not None))


def _of_instance(episode: Episode, instance: int) -> Episode:
    return replace(episode, start=instance)


def _contexts(references: Sequence[Episode]) -> list[tuple[Episode, int]]:
    """One decision for each context that the episodes visited, in the order of the visits (Algorithm 1, lines 3-4)."""
    visited: dict[tuple[str, tuple[int, ...]], tuple[Episode, int]] = {}
    for episode in references:
        for turn, decision in enumerate(episode.decisions):
            visited.setdefault((decision.event, decision.context_ids), (episode, turn))
    return list(visited.values())


def _spread(values: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
    """The standard deviation of each value's group, of the population."""
    squares = full_mean(values, groups) ** 2
    sums = squares.new_zeros(int(groups.max()) + 1).index_add_(0, groups, squares)
    return (sums / torch.bincount(groups))[groups].sqrt()
