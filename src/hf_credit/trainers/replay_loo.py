"""Contextual counterfactual credit: alternatives at a frozen context, replayed, compared leave-one-out (paper C3)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from transformers import PreTrainedModel

from hf_credit.credit import full_mean, leave_one_out
from hf_credit.environments.randomness import stream
from hf_credit.rollouts import ContextKeys, Episode, Interaction, Start, alternatives, replay_from
from hf_credit.rollouts.buckets import Alternative
from hf_credit.rollouts.episode import Ending
from hf_credit.trainers.base import CreditTrainer
from hf_credit.trainers.config import CreditConfig

ESTIMATORS = ("replay", "group")
BASELINES = ("leave_one_out", "full_mean")


@dataclass
class ReplayLOOConfig(CreditConfig):
    """The paper's settings (C3, Tables 6 and 7 and Appendix D); see `docs/paper_index.md` for each.

    `trajectories_per_update` counts task instances here; each takes `budget` terminal scores.

    Args:
        estimator: `"replay"` is the paper's method. `"group"` is MAGRPO: whole episodes, centred over those of their
            instance, one advantage for all decisions of an episode.
        budget: terminal scores of one instance and update (eq. 24). No instance gets more; the layout below must use
            up all of it.
        alternatives: how many messages are sampled at the context of the first step, the second step and so on. Their
            product is the budget. With `reference_rollouts`, one number: the alternatives at each chosen context.
        reference_rollouts: 0 takes the alternatives of one step as the contexts of the next, as the paper's
            experiments do (section 5.1). A positive number is Algorithm 1 to the letter: that many unscored episodes
            are played, and `contexts` of the contexts they visit are drawn.
        contexts: drawn from the reference rollouts of an instance; `contexts * alternatives * replays = budget`.
        replays: continuations of each alternative at a drawn context.
        replay: `False` is the ablation "w/o replay": whole episodes, decisions compared whatever their contexts.
        baseline: `"full_mean"` is the ablation "w/o LOO" (eq. 26).
        common_random_numbers: whether the alternatives of a context are continued with the same random numbers
            (Appendix L). Has no effect, and says so in the metrics, where the sampler does not honour seeds.
        normalise_credit: whether the credits of a context are divided by their standard deviation, as the public code
            does. Leave-one-out and full-mean credit are then the same.
        return_clip: returns are clipped to [-return_clip, return_clip].
    """

    estimator: str = field(default="replay", metadata={"help": "replay (C3), group (MAGRPO)."})
    budget: int = field(default=8, metadata={"help": "Terminal scores of one instance and update."})
    alternatives: list[int] = field(
        default_factory=lambda: [2, 4], metadata={"help": "Messages sampled at the context of each step."}
    )
    reference_rollouts: int = field(default=0, metadata={"help": "Unscored episodes that contexts are drawn from."})
    contexts: int = field(default=2, metadata={"help": "Contexts drawn from the reference rollouts."})
    replays: int = field(default=1, metadata={"help": "Continuations of each alternative at a drawn context."})
    replay: bool = field(default=True, metadata={"help": "False: whole episodes, contexts not matched."})
    baseline: str = field(default="leave_one_out", metadata={"help": "leave_one_out or full_mean."})
    common_random_numbers: bool = field(default=False, metadata={"help": "Same random numbers for alternatives."})
    normalise_credit: bool = field(default=False, metadata={"help": "Divide credits by their standard deviation."})
    return_clip: float = field(default=10.0, metadata={"help": "Returns are clipped to this, both ways."})

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
        for name, known in (("estimator", ESTIMATORS), ("baseline", BASELINES)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}; pick one.")
        if not self.return_clip > 0:
            raise ValueError(f"return_clip must be above 0, got {self.return_clip}; the paper clips to 10.")
        for name, least in (("budget", 2), ("contexts", 1), ("replays", 1), ("reference_rollouts", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}; raise it.")
        if self.estimator == "replay" and self.replay:
            self._refuse_impossible_layout()

    @property
    def fanout(self) -> tuple[int, ...]:
        """Alternatives at each step of an episode that is played from its start."""
        return tuple(self.alternatives) if self.estimator == "replay" and self.replay else (self.budget,)

    def _refuse_impossible_layout(self) -> None:
        if not self.alternatives or min(self.alternatives) < 1 or max(self.alternatives) < 2:
            raise ValueError(
                f"alternatives must be 2 or more at some step and 1 or more at each, got {self.alternatives}; a message "
                "alone has nothing to be compared with."
            )
        if not self.reference_rollouts:
            calls, told = math.prod(self.alternatives), f"the product of alternatives={self.alternatives}"
        elif len(self.alternatives) == 1:
            calls = self.contexts * self.alternatives[0] * self.replays
            told = f"contexts * alternatives * replays = {self.contexts} * {self.alternatives[0]} * {self.replays}"
        else:
            raise ValueError(
                f"alternatives must be one number with reference_rollouts, got {self.alternatives}; name how many "
                "messages each drawn context gets."
            )
        if calls != self.budget:
            raise ValueError(
                f"the layout must use the budget of an instance, got {told} = {calls} for a budget of {self.budget}; "
                "change one."
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
        train_dataset: task rows.
        **kwargs: as in [`CreditTrainer`].

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
        **kwargs: Any,
    ) -> None:
        if train_dataset is None:
            raise ValueError("the training dataset must hold task rows, got none; pass train_dataset=.")
        super().__init__(model, interaction, args or ReplayLOOConfig(), train_dataset, **kwargs)

    def collect(self, rows: list[dict[str, Any]]) -> list[Episode]:
        """The episodes of each task row: one in evaluation, else as many as the budget pays for."""
        if not self.model.training:
            return super().collect(rows)
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
        compared = alternatives(episodes, match_contexts=self.args.replay)
        self._refuse_collisions(compared)
        credits = self._bucket_credit(compared)
        for alternative, credit in zip(compared, credits, strict=True):
            row, turn = alternative.place
            advantages[row][turn] = credit
        self._log_buckets(compared, credits)
        return advantages

    # Where episodes begin ---------------------------------------------------------------------------------------

    def _tree(self, row: dict[str, Any], place: int) -> Start[Any]:
        return Start(task=row, fanout=self.args.fanout, stream=self._stream("instance", place))

    def _stream(self, *parts: int | str) -> str | None:
        if not self.args.common_random_numbers or not self.engine.honours_seeds:
            return None
        rank = self.accelerator.process_index
        return " ".join(map(str, (self.args.seed, self.state.global_step, self._step, rank, *parts)))

    def _replays(self, rows: list[dict[str, Any]]) -> tuple[list[Start[Any]], list[int]]:
        """Reference rollouts, and a start at each drawn context; the instance of each (Algorithm 1, lines 2 to 5)."""
        count = self.args.reference_rollouts
        references = self.engine.run([Start(task=row, seed=None, scored=False) for row in rows for _ in range(count)])
        self.ranks.finish()
        fanout = (*self.args.alternatives, self.args.replays)
        starts, instances = [], []
        for instance in range(len(rows)):
            visited = _contexts(references[instance * count : (instance + 1) * count])
            draws = stream(self.args.seed, "contexts", self._step, self.accelerator.process_index, instance)
            for number, (episode, turn) in enumerate(draws.sample(visited, min(self.args.contexts, len(visited)))):
                named = self._stream("context", instance, number)
                starts.append(replay_from(self.interaction, self.chat, episode, turn, fanout=fanout, stream=named))
                instances.append(instance)
        tokens = sum(self.ranks.gather([sum(episode.generated_tokens for episode in references)]))
        self.log_metric("tokens/reference_rollouts", tokens)
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

    def _bucket_credit(self, compared: Sequence[Alternative]) -> list[float | None]:
        """The credit of each alternative; `None` for those that had no other beside them."""
        if not compared:
            return []
        buckets = torch.tensor([alternative.bucket for alternative in compared])
        estimate = leave_one_out if self.args.baseline == "leave_one_out" else full_mean
        credits = estimate(
            torch.tensor([self._clipped(alternative.mean_outcome) for alternative in compared], dtype=torch.float64),
            buckets,
            torch.tensor([len(alternative.outcomes) for alternative in compared]),
        )
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
