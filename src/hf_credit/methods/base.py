"""A method is a value: which episodes to play, and what credit their decisions get."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from hf_credit import oracles
from hf_credit.collectors import Collector, RolloutBatch, Single
from hf_credit.collectors.base import gives_of
from hf_credit.critics.specs import CriticSpec
from hf_credit.deprecated import renamed_fields
from hf_credit.oracles import Oracle
from hf_credit.oracles.auditing import Auditor, Interventions
from hf_credit.oracles.auditors import auditor_spec, interventions_spec
from hf_credit.registry import described, plain
from hf_credit.rollouts import Decision, Ending, Interaction
from hf_credit.rollouts.capabilities import require_replayable
from hf_credit.rollouts.method_context import CriticInput, MethodContext

DecisionCredit = float | Sequence[float] | None
"""Credit of a decision: `None`, and it is not trained on; one number for all its tokens; or one for each token."""


def one_number(credit: DecisionCredit) -> float | None:
    """The credit of a decision as one number: the mean if its tokens have one each; `None` without credit."""
    if isinstance(credit, Sequence):
        return sum(credit) / len(credit) if credit else None
    return credit


@renamed_fields({"readings": "inputs"})
@dataclass(frozen=True, kw_only=True)
class CriticTargets:
    """Training targets of a critic from an update.

    Attributes:
        inputs: its inputs.
        targets: the target value at each position of each input, in the unit of the reward.
        values: its predictions there.
        critic: its name.
    """

    inputs: Sequence[CriticInput]
    targets: Sequence[Sequence[float]]
    values: Sequence[Sequence[float]]
    critic: str = "critic"


@renamed_fields({"lessons": "critic_targets"})
@dataclass(frozen=True, kw_only=True)
class Credit:
    """The result of an estimator.

    Attributes:
        decisions: the credit of each decision, by its id. A missing one, or one with `None`, is not trained on.
        weights: the weight of a decision in the loss, by its id, which multiplies its credit; 1 if missing.
        memory: for the next update.
        critic_targets: training targets of the critics; on every process for the same critics.
        per_start: whether the loss divides by the episodes played from the start, where each decision counts by its
            weight, rather than by all that is trained on; the same on every process. For branches that share the
            weight of the decision before them.

    Raises:
        ValueError: `decisions` is not a mapping.
    """

    decisions: Mapping[str, DecisionCredit]
    weights: Mapping[str, float] = field(default_factory=dict)
    memory: Any = None
    critic_targets: Sequence[CriticTargets] = ()
    per_start: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.decisions, Mapping):
            raise ValueError(
                f"credit must be a mapping from the ids of decisions, got a {type(self.decisions).__name__}; return "
                "Credit(decisions={decision.id: ...})."
            )


class Estimator(Protocol):
    """Computes credit from collected episodes. It is a pure function: it plays nothing, trains nothing and stores
    nothing.

    Equal arguments give equal results. It is called on all processes at the same time, so it may gather. An attribute
    `needs` lists the members of `Collector.gives` that it requires.
    """

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: Any) -> Credit:
        """Credits.

        Args:
            collected: of this process.
            context: to gather, call critics and log.
            memory: the memory from the last update, or the method's own at the start.
        """


@renamed_fields({"kinds": "critic_specs"})
@dataclass(frozen=True, kw_only=True)
class Method:
    """A collector, an estimator, and what they need.

    Attributes:
        name: as in a recipe, or `"module:factory"`.
        collector: which episodes an update plays.
        estimator: computes the credit of their decisions.
        critics: names of the critics that the estimator or the collector uses.
        memory: the estimator's memory before the first update: a frozen dataclass of numbers, strings, tuples,
            mappings and tensors, or `None`. It is in every checkpoint.
        evaluation: which episodes an evaluation plays.
        refresh_frozen_every: number of updates after which the frozen copy of the policy is refreshed, before episodes
            are collected: with 1 it is the policy itself. `None`: there is none.
        frozen_decay: instead, the frozen copy is a moving average of the policy with this decay, in (0, 1), updated
            before every collection. `None`: it is not.
        critic_specs: what each critic predicts, by name; a value if missing. A bound estimator with its own
            `critic_specs()` overrides this.
        sequence_ratio: whether its loss uses the ratio of whole episodes, as the trainer does with
            `importance_sampling_level="sequence"`.
        wrap: maps the Interaction to the one that training plays instead, such as `hf_credit.methods.t3.truncation`,
            which cuts episodes; an evaluation plays the original. A value that `fingerprint` can describe; `None`
            changes nothing.
        options: the arguments of `hf_credit.methods.make`; `None` for a method that was made differently.
        paper: the result of `paper`, for the model card, if there is a paper.
    """

    name: str
    collector: Collector
    estimator: Estimator
    critics: tuple[str, ...] = ()
    memory: Any = None
    evaluation: Collector = field(default_factory=Single)
    refresh_frozen_every: int | None = None
    frozen_decay: float | None = None
    critic_specs: Mapping[str, CriticSpec] = field(default_factory=dict)
    sequence_ratio: bool = False
    wrap: Callable[[Interaction[Any]], Interaction[Any]] | None = None
    options: Mapping[str, Any] | None = None
    paper: Mapping[str, str] = field(default_factory=dict)

    def wrapped(self, interaction: Interaction[Any]) -> Interaction[Any]:
        """The Interaction that training plays in place of `interaction`.

        Raises:
            ValueError: `wrap` does not fit it.
        """
        return interaction if self.wrap is None else self.wrap(interaction)

    def bind(self, interaction: Interaction[Any]) -> Method:
        """The method for one Interaction: parts with their own `bind` fill in what depends on it, such as its default
        oracle, and reject an Interaction that they do not support.

        A collector with a true `replaying` plays on from states, and is rejected if the Interaction cannot be
        replayed; so is one that does not give what the estimator needs.

        Raises:
            ValueError: a part rejects the Interaction.
        """
        if getattr(self.collector, "replaying", False):
            require_replayable(interaction, f"the method {self.name!r}")
        parts = {name: getattr(self, name) for name in ("collector", "estimator", "evaluation")}
        bound = {name: part.bind(interaction) if hasattr(part, "bind") else part for name, part in parts.items()}
        method = dataclasses.replace(self, **bound)
        method._refuse_other_collector()
        if hasattr(method.estimator, "critic_specs"):
            critic_specs = method.estimator.critic_specs()
            return dataclasses.replace(method, critic_specs=critic_specs, critics=tuple(critic_specs))
        return method

    def _refuse_other_collector(self) -> None:
        given = gives_of(self.collector)
        missing = frozenset(getattr(self.estimator, "needs", ())) - given
        if missing:
            raise ValueError(
                f"a collector must give what the estimator needs, {' and '.join(sorted(missing))} for "
                f"{type(self.estimator).__name__}, got {type(self.collector).__name__}, which gives "
                f"{', '.join(sorted(given)) or 'nothing to compare with'}; take a collector whose `gives` has it."
            )

    def spec(self) -> dict[str, Any]:
        """Its name and options as plain values, from which `hf_credit.methods.make` builds it again.

        Raises:
            ValueError: `make` did not make it, or an option is no plain value; in one sentence.
        """
        if self.options is None:
            raise ValueError(
                f"a method is described by the options it was made with, got {self.name!r} made by hand; make it with "
                "hf_credit.methods.make, which also takes 'module:factory'."
            )
        return {"name": self.name, "options": {name: _option(value) for name, value in self.options.items()}}

    def fingerprint(self) -> dict[str, Any]:
        """Plain values that identify a method: the name, and the contents of its parts."""
        parts = ("collector", "estimator", "evaluation")
        descriptions = {name: _described(getattr(self, name)) for name in parts}
        frozen = {"refresh_frozen_every": self.refresh_frozen_every, "frozen_decay": self.frozen_decay}
        wrap = {} if self.wrap is None else {"wrap": _described(self.wrap)}
        return {"name": self.name, **descriptions, **frozen, **wrap}


def paper(title: str, arxiv: str = "", url: str = "") -> dict[str, str]:
    """A paper as a model card cites it: `title`, `citation` in BibTeX, and `id` where it is on arXiv.

    Args:
        title: of the paper.
        arxiv: its number there, such as `"2402.03300"`.
        url: another address of it.
    """
    where = {"eprint": arxiv, "archivePrefix": "arXiv", "year": f"20{arxiv[:2]}"} if arxiv else {"howpublished": url}
    key = f"arxiv{arxiv}" if arxiv else "".join(word[0] for word in title.lower().split())
    fields = "".join(f",\n  {name} = {{{value}}}" for name, value in {"title": f"{{{title}}}", **where}.items())
    return {"title": title, "citation": f"@misc{{{key}{fields}\n}}", **({"id": arxiv} if arxiv else {})}


def _option(value: Any) -> Any:
    if isinstance(value, Oracle):
        name, options = oracles.spec(value)
        return {"name": name, "options": options}
    if isinstance(value, Auditor):
        return auditor_spec(value)
    if isinstance(value, Interventions):
        return interventions_spec(value)
    return plain(value)


def _described(part: Any) -> Any:
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        values = {one.name: _described(getattr(part, one.name)) for one in dataclasses.fields(part)}
        return {"is": type(part).__qualname__, **values}
    if isinstance(part, Mapping):
        return {str(name): _described(value) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return [_described(value) for value in part]
    try:
        return plain(part)
    except ValueError:
        pass
    try:
        name, options = described("part", {}, part)
        return {"is": name, **options}
    except ValueError:
        return {"is": type(part).__qualname__}


def broadcast_to_decisions(collected: RolloutBatch, per_episode: Sequence[float | None]) -> dict[str, DecisionCredit]:
    """One number for every decision of each trained episode; `None` leaves the episode out.

    A decision that several episodes share, because they split after it, gets the mean of their credits.

    Args:
        collected: of this process.
        per_episode: one entry for each trained rollout.
    """
    return mean_by_decision(
        (decision, value)
        for episode, value in zip(collected.episodes, per_episode, strict=True)
        for decision in episode.decisions
    )


def compare_outcomes(
    collected: RolloutBatch, advantages: Callable[[Tensor, Tensor], Tensor]
) -> dict[str, DecisionCredit]:
    """Credit by decision from a function of outcomes and instances: every decision has the credit of its episode.

    Args:
        collected: of this process; failed episodes are not compared and get no credit.
        advantages: of the functions of `hf_credit.credit`, such as `leave_one_out`.
    """
    rows = without_errors(collected)
    return broadcast_to_decisions(collected, scatter_rows(collected, rows, advantages(*outcomes_of(collected, rows))))


def mean_by_decision(pairs: Iterable[tuple[Decision, DecisionCredit]]) -> dict[str, DecisionCredit]:
    """Credit by decision, from the credit in each episode that contains it; `None` counts in no mean.

    A decision that several episodes share, because they split after it, gets the mean of their credits, token by token
    if its tokens have their own credit.
    """
    of_decision: dict[str, list[Any]] = {}
    for decision, value in pairs:
        if value is not None:
            of_decision.setdefault(decision.id, []).append(value)
    return {name: _mean(values) for name, values in of_decision.items()}


def mean_over_shared(
    collected: RolloutBatch, per_decision: Sequence[Sequence[DecisionCredit]]
) -> dict[str, DecisionCredit]:
    """As `mean_by_decision`, from one entry for each decision of each trained rollout."""
    return mean_by_decision(
        pair
        for episode, values in zip(collected.episodes, per_decision, strict=True)
        for pair in zip(episode.decisions, values, strict=True)
    )


def _mean(values: Sequence[Any]) -> float | tuple[float, ...]:
    if isinstance(values[0], Sequence):
        return tuple(sum(token) / len(values) for token in zip(*values, strict=True))
    return float(sum(values) / len(values))


def weighted(credit: Credit) -> dict[str, DecisionCredit]:
    """The credit of decisions as it enters the loss, by their id: times their weights."""

    def scaled(value: DecisionCredit, weight: float) -> DecisionCredit:
        if isinstance(value, Sequence):
            return tuple(weight * one for one in value)
        return None if value is None else weight * value

    return {name: scaled(value, credit.weights.get(name, 1.0)) for name, value in credit.decisions.items()}


def trained(collected: RolloutBatch, credit: Mapping[str, DecisionCredit]) -> dict[str, DecisionCredit]:
    """The credit of the decisions that may be trained on."""
    decisions = [decision for episode in collected.episodes for decision in episode.decisions if decision.trained]
    return {one.id: credit[one.id] for one in decisions if credit.get(one.id) is not None}


def credit_in_loss(
    collected: RolloutBatch, credit: Credit, gather: Callable[[list[Any]], list[Any]] = list
) -> dict[str, DecisionCredit]:
    """The credit of decisions as it enters a loss that is a mean over tokens, by their id: times their weights.

    If credit is `per_start`, the weights are scaled such that the mean over all tokens is one over weights.

    Args:
        collected: of this process.
        credit: of decisions that are trained on.
        gather: the items of all processes.
    """
    if not credit.per_start:
        return weighted(credit)
    lengths = {one.id: len(one.action_ids) for episode in collected.episodes for one in episode.decisions}
    tokens = sum(lengths[name] for name in credit.decisions)
    weighed = sum(lengths[name] * credit.weights.get(name, 1.0) for name in credit.decisions)
    gathered = gather([(tokens, weighed)])
    scale = sum(one for one, _ in gathered) / (sum(one for _, one in gathered) or 1.0)
    weights = {name: scale * credit.weights.get(name, 1.0) for name in credit.decisions}
    return weighted(dataclasses.replace(credit, weights=weights))


def without_errors(collected: RolloutBatch) -> list[int]:
    """The indices of the trained rollouts whose episodes did not end in an error; only these are compared."""
    return [place for place, episode in enumerate(collected.episodes) if episode.ending != Ending.ERROR]


def all_gather_with_slice(items: Sequence[Any], context: MethodContext) -> tuple[list[Any], slice]:
    """The items of all processes, and the positions of this process's items among them.

    Args:
        items: of this process; may be empty.
        context: gathers.
    """
    of_processes = context.gather([list(items)])
    before = sum(map(len, of_processes[: context.process]))
    return [item for of_process in of_processes for item in of_process], slice(before, before + len(items))


def outcomes_of(collected: RolloutBatch, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Outcome and instance of some of the trained rollouts, for the functions of `hf_credit.credit`.

    Args:
        collected: of this process.
        rows: the indices of the rollouts, such as those from `without_errors`.
    """
    outcomes = torch.tensor([collected.episodes[row].outcome for row in rows], dtype=torch.float64)
    return outcomes, torch.tensor([collected.instances[row] for row in rows], dtype=torch.long)


def scatter_rows(collected: RolloutBatch, rows: Sequence[int], values: Tensor) -> list[Any]:
    """One entry for each trained rollout: its value, or `None` for those without one.

    Args:
        collected: of this process.
        rows: the indices of the rollouts that have one.
        values: theirs; a row each where there are several.
    """
    given = dict(zip(rows, values.tolist(), strict=True))
    return [given.get(row) for row in range(len(collected.episodes))]


def global_group_ids(context: MethodContext, collected: RolloutBatch) -> list[int]:
    """The instance of each trained rollout, with numbers that no other process uses."""
    before = sum(context.gather([collected.rows])[: context.process])
    return [before + instance for instance in collected.instances]
