"""A method is a value: which episodes an update plays, and the credit of their decisions.

Torch is imported where it computes, so that the names of methods are known without it.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING, Any, Protocol

from hf_credit import oracles
from hf_credit.collectors import Collector, RolloutBatch, Single
from hf_credit.collectors.base import bound, gives_of
from hf_credit.critics.inputs import CriticSpec
from hf_credit.oracles import Oracle, auditing
from hf_credit.oracles.auditing import Auditor, Interventions
from hf_credit.registry import Registry, plain
from hf_credit.rollouts import Decision, Ending, Episode, Interaction
from hf_credit.rollouts.capabilities import require_replayable
from hf_credit.rollouts.method_context import CriticInput, MethodContext
from hf_credit.rollouts.rows import DecisionCredit, DecisionCredits
from hf_credit.validators import finite_number

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class CriticTargets:
    """Training targets of a critic from an update.

    Attributes:
        inputs: the inputs of the critic.
        targets: the target at each position of each input, in the unit of the reward.
        values: the critic's predictions at the same positions.
        critic: the name of the critic.
    """

    inputs: Sequence[CriticInput]
    targets: Sequence[Sequence[float]]
    values: Sequence[Sequence[float]]
    critic: str = "critic"


@dataclass(frozen=True, kw_only=True)
class Credit:
    """The result of an estimator.

    Attributes:
        decisions: the credit of each decision, by id. Missing decisions, and those with `None`, are not trained on.
        weights: the factor of each decision's credit in the loss, by id; 1 if missing.
        memory: the memory for the next update.
        critic_targets: training targets of the critics, for the same critics on every process.
        per_start: whether the loss divides by the sum of the weights of all trained tokens instead of by their number,
            for branches that share the weight of the decision before them. The same on every process.

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
                f"credit must map ids of decisions to credit, got a {type(self.decisions).__name__}; return "
                "Credit(decisions={decision.id: ...})."
            )


class Estimator(Protocol):
    """Computes credit from collected episodes. It is a pure function: it neither plays, trains nor stores anything.

    It is called on all processes at the same time, so it may gather. An optional attribute `needs` lists the members
    of `Collector.gives` that it requires; an optional `revision` counts the changes of its formula, as in a dataclass
    `revision: ClassVar[int] = 2`, and is a part of the method's fingerprint.
    """

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: Any) -> Credit:
        """Returns the credit of the collected decisions.

        Args:
            collected: the rollouts of this process.
            context: gathers over processes, calls critics and logs.
            memory: `Credit.memory` of the last update; `Method.memory` in the first.
        """


@dataclass(frozen=True, kw_only=True)
class Method:
    """A collector, an estimator, and what they need.

    Attributes:
        name: the name in a recipe, or `"module:factory"`.
        collector: plays the episodes of an update.
        estimator: computes the credit of their decisions.
        critics: names of the critics that the estimator or the collector uses.
        memory: the estimator's memory before the first update: a frozen dataclass of numbers, strings, tuples,
            mappings and tensors, or `None`. Checkpoints hold it.
        evaluation: plays the episodes of an evaluation.
        refresh_frozen_every: number of updates after which the frozen copy of the policy is refreshed, before episodes
            are collected; with 1 it is the policy itself. `None` for no such copy.
        frozen_decay: in place of `refresh_frozen_every`, the decay in (0, 1) of a frozen copy that is a moving average
            of the policy, updated before every collection.
        critic_specs: what each critic predicts, by name; a value if missing. A bound estimator with its own
            `critic_specs()` overrides this.
        sequence_ratio: whether the loss uses the ratio of whole episodes, as TRL's
            `importance_sampling_level="sequence"`.
        wrap: maps the Interaction to the one that training plays, such as `hf_credit.methods.t3.truncation`, which
            cuts episodes; an evaluation plays the original. `fingerprint` must be able to describe it; `None` changes
            nothing.
        options: the arguments of `hf_credit.methods.make`; `None` for a method that was made by hand.
        paper: the result of `paper`, for the model card; empty if there is no paper.
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
        """Returns the Interaction that training plays in place of `interaction`.

        Raises:
            ValueError: `wrap` rejects `interaction`.
        """
        return interaction if self.wrap is None else self.wrap(interaction)

    def bind(self, interaction: Interaction[Any]) -> Method:
        """Returns the method for one Interaction: parts with a `bind` fill in what depends on it, such as its oracle.

        Raises:
            ValueError: a part rejects the Interaction; the collector is `replaying` and the Interaction cannot be
                replayed; or the collector does not give what the estimator needs.
        """
        if getattr(self.collector, "replaying", False):
            require_replayable(interaction, f"the method {self.name!r}")
        parts: Any = {one: bound(getattr(self, one), interaction) for one in ("collector", "estimator", "evaluation")}
        method = dataclasses.replace(self, **parts)
        given = gives_of(method.collector)
        missing = frozenset(getattr(method.estimator, "needs", ())) - given
        if missing:
            raise ValueError(
                f"a collector must give what the estimator needs, {' and '.join(sorted(missing))} for "
                f"{type(method.estimator).__name__}, got {type(method.collector).__name__}, which gives "
                f"{', '.join(sorted(given)) or 'nothing'}; take a collector with it in `gives`."
            )
        if hasattr(method.estimator, "critic_specs"):
            critic_specs = method.estimator.critic_specs()
            return dataclasses.replace(method, critic_specs=critic_specs, critics=tuple(critic_specs))
        return method

    def spec(self) -> dict[str, Any]:
        """Returns its name and options as plain values, from which `hf_credit.methods.make` builds it again.

        Raises:
            ValueError: `make` did not make it, or an option cannot be written as a plain value.
        """
        if self.options is None:
            raise ValueError(
                f"a method must be made by hf_credit.methods.make to be described, got {self.name!r} made by hand; "
                "pass its factory to make as 'module:factory'."
            )
        return {"name": self.name, "options": {name: _plain_option(value) for name, value in self.options.items()}}

    def fingerprint(self) -> dict[str, Any]:
        """Returns plain values that identify the method: its name, and the contents and revisions of its parts."""
        parts = ("collector", "estimator", "evaluation")
        descriptions = {name: _described(getattr(self, name)) for name in parts}
        frozen = {"refresh_frozen_every": self.refresh_frozen_every, "frozen_decay": self.frozen_decay}
        wrap = {} if self.wrap is None else {"wrap": _described(self.wrap)}
        return {"name": self.name, **descriptions, **frozen, **wrap}


def paper(title: str, arxiv: str = "", url: str = "") -> dict[str, str]:
    """Returns a paper as model cards cite it: `title`, `citation` in BibTeX, and `id` if it is on arXiv.

    Args:
        title: the title of the paper.
        arxiv: its arXiv id, such as `"2402.03300"`.
        url: its address, if it is not on arXiv.
    """
    where = {"eprint": arxiv, "archivePrefix": "arXiv", "year": f"20{arxiv[:2]}"} if arxiv else {"howpublished": url}
    key = f"arxiv{arxiv}" if arxiv else "".join(word[0] for word in title.lower().split())
    fields = "".join(f",\n  {name} = {{{value}}}" for name, value in {"title": f"{{{title}}}", **where}.items())
    return {"title": title, "citation": f"@misc{{{key}{fields}\n}}", **({"id": arxiv} if arxiv else {})}


def _plain_option(value: Any) -> Any:
    if isinstance(value, Oracle):
        name, options = oracles.spec(value)
        return {"name": name, "options": options}
    return auditing.spec(value) if isinstance(value, Auditor | Interventions) else plain(value)


def _described(part: Any) -> Any:
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        names = [field.name for field in dataclasses.fields(part)] + ["revision"] * hasattr(part, "revision")
        return {"is": type(part).__qualname__, **{name: _described(getattr(part, name)) for name in names}}
    if isinstance(part, Mapping):
        return {str(name): _described(value) for name, value in part.items()}
    if isinstance(part, list | tuple):
        return [_described(value) for value in part]
    try:
        return plain(part)
    except ValueError:
        pass
    try:
        name, options = Registry[Any]("part", {}).spec(part)
        return {"is": name, **options}
    except ValueError:
        return {"is": type(part).__qualname__}


INPUTS = "inputs/"
"""Metrics of this prefix, which estimators record, are the shares of episodes, or decisions, that have what the method
reads and a task may lack."""


def absent_inputs(logs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Returns a sentence for each input of the method that nothing had in all of these logs of updates."""
    known = [(name, share) for entry in logs for name, share in entry.items() if name.startswith(INPUTS)]
    had = {name for name, share in known if share}
    return [
        f"The method reads {name.removeprefix(INPUTS)}, which no episode had, so they are no part of its credit; "
        "let the task give them, or take another method (docs/which-method.md)."
        for name in dict.fromkeys(name for name, share in known if share is not None)
        if name not in had
    ]


def broadcast_to_decisions(collected: RolloutBatch, per_episode: Sequence[float | None]) -> dict[str, DecisionCredit]:
    """Returns the credit of decisions, by id: that of their episode, or the mean if several episodes share a decision.

    Args:
        per_episode: the credit of each trained rollout; `None` leaves it out.
    """
    return mean_by_decision(
        (decision, value)
        for episode, value in zip(collected.episodes, per_episode, strict=True)
        for decision in episode.decisions
    )


def compare_outcomes(
    collected: RolloutBatch,
    advantages: Callable[[Tensor, Tensor], Tensor],
    context: MethodContext | None = None,
    outcome: Callable[[Episode], Any] = lambda episode: episode.outcome,
) -> dict[str, DecisionCredit]:
    """Returns the credit of decisions, by id: the advantage of their episode.

    Args:
        collected: the rollouts of this process; failed episodes are not compared and get no credit.
        advantages: a function of outcomes and instances, such as `hf_credit.credit.leave_one_out`; NaN is no credit.
        context: to compare the episodes of all processes; `None` for those of this one.
        outcome: what is compared of an episode: a number, or several.
    """
    import torch

    rows = without_errors(collected)
    before = 0 if context is None else sum(context.gather([collected.rows])[: context.process])
    everyone = [(outcome(collected.episodes[row]), before + collected.instances[row]) for row in rows]
    local = slice(len(rows))
    if context is not None:
        everyone, local = all_gather_with_slice(everyone, context)
    outcomes = torch.tensor([own for own, _ in everyone], dtype=torch.float64)
    groups = torch.tensor([instance for _, instance in everyone], dtype=torch.long)
    found = zip(rows, advantages(outcomes, groups)[local].tolist(), strict=True)
    given = {row: value for row, value in found if not math.isnan(value)}
    return broadcast_to_decisions(collected, [given.get(row) for row in range(len(collected.episodes))])


def mean_by_decision(pairs: Iterable[tuple[Decision, DecisionCredit]]) -> dict[str, DecisionCredit]:
    """Returns the credit of decisions, by id.

    A decision that several episodes share, because they split after it, gets the mean of its credits, token by token
    if each token has its own.

    Args:
        pairs: each decision with its credit in an episode; pairs with `None` are ignored.
    """
    credits: dict[str, list[Any]] = {}
    for decision, value in pairs:
        if value is not None:
            credits.setdefault(decision.id, []).append(value)
    return {name: _mean(values) for name, values in credits.items()}


def mean_over_shared(collected: RolloutBatch, per_decision: DecisionCredits) -> dict[str, DecisionCredit]:
    """Returns `mean_by_decision` of the credit of each decision of each trained rollout."""
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
    """Returns the credit of decisions times their weights, by id.

    Raises:
        ValueError: one is not finite.
    """

    def scaled(name: str, value: DecisionCredit) -> DecisionCredit:
        weight, what = credit.weights.get(name, 1.0), f"the weighted credit of the decision {name!r}"
        if isinstance(value, Sequence):
            return tuple(finite_number(what, weight * token) for token in value)
        return None if value is None else finite_number(what, weight * value)

    return {name: scaled(name, value) for name, value in credit.decisions.items()}


def trained(
    collected: RolloutBatch, credit: Mapping[str, DecisionCredit], ends: Collection[int] | None = None
) -> dict[str, DecisionCredit]:
    """Returns the credit of the decisions that may be trained on, by id; with the tokens that end a reply, only of
    those whose reply has one."""
    from hf_credit.rollouts.reply_ends import was_cut

    decisions = [one for episode in collected.episodes for one in episode.decisions if one.trained]
    ids = [one.id for one in decisions if ends is None or not was_cut(one.action_ids, ends)]
    return {name: credit[name] for name in ids if credit.get(name) is not None}


def credit_in_loss(
    collected: RolloutBatch, credit: Credit, gather: Callable[[list[Any]], list[Any]] = list
) -> dict[str, DecisionCredit]:
    """Returns the credit of decisions times their weights in a loss that is a mean over tokens, by id.

    With `Credit.per_start`, weights are scaled so that the mean over tokens is a mean weighted by them.
    """
    if not credit.per_start:
        return weighted(credit)
    lengths = {
        decision.id: len(decision.action_ids) for episode in collected.episodes for decision in episode.decisions
    }
    tokens = sum(lengths[name] for name in credit.decisions)
    weight = sum(lengths[name] * credit.weights.get(name, 1.0) for name in credit.decisions)
    all_tokens, all_weights = map(sum, zip(*gather([(tokens, weight)]), strict=True))
    scale = all_tokens / (all_weights or 1.0)
    weights = {name: scale * credit.weights.get(name, 1.0) for name in credit.decisions}
    return weighted(dataclasses.replace(credit, weights=weights))


def without_errors(collected: RolloutBatch) -> list[int]:
    """Returns the indices of the trained rollouts that did not end in an error; only these are compared."""
    return [row for row, episode in enumerate(collected.episodes) if episode.ending != Ending.ERROR]


def with_others(collected: RolloutBatch) -> list[int]:
    """Returns `without_errors`, as far as another one of the same instance did not fail: a group of one has no mean to
    be compared with."""
    rows = without_errors(collected)
    sizes = Counter(collected.instances[row] for row in rows)
    return [row for row in rows if sizes[collected.instances[row]] > 1]


def all_gather_with_slice(items: Sequence[Any], context: MethodContext) -> tuple[list[Any], slice]:
    """Returns the items of all processes, and the slice of this process's items among them."""
    of_processes = context.gather([list(items)])
    before = sum(map(len, of_processes[: context.process]))
    return [item for of_process in of_processes for item in of_process], slice(before, before + len(items))


def whitened_over_processes(values: Sequence[float], weights: Sequence[float], context: MethodContext) -> Tensor:
    """Returns the values of this process, `whitened` with those of all others."""
    import torch

    from hf_credit.credit import whitened

    pairs, local = all_gather_with_slice(list(zip(values, weights, strict=True)), context)
    table = torch.tensor(pairs, dtype=torch.float64).reshape(-1, 2)
    return whitened(table[:, 0], table[:, 1])[local]


def verdict_score(step: Sequence[Decision]) -> float:
    """Returns the mean score of the verdicts on simultaneous decisions, NaN without one."""
    return fmean([one.verdict.score for one in step if one.verdict is not None] or [math.nan])


def outcomes_of(collected: RolloutBatch, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Returns the outcome and the instance of some trained rollouts, each of shape (rows,).

    Args:
        rows: indices of trained rollouts, such as the result of `without_errors`.
    """
    import torch

    outcomes = torch.tensor([collected.episodes[row].outcome for row in rows], dtype=torch.float64)
    return outcomes, torch.tensor([collected.instances[row] for row in rows], dtype=torch.long)
