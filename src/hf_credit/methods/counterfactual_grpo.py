"""CCPO: each agent is rewarded for its counterfactual contribution to the team (the paper CCPO).

Delta_i = R - R without agent i    (eq. 1),    r_i = tanh(alpha (Delta_i - mu) / (sigma + eps))    (eq. 4)
A_i = (r_i - mean r_i) / std r_i over the episodes of a task    (eq. 5)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from hf_credit import credit
from hf_credit.boundary import Range
from hf_credit.collectors import Collector, Group, Removals, RolloutBatch
from hf_credit.collectors.removals import without
from hf_credit.credit import Moment, Moments
from hf_credit.methods.base import Credit, Method, paper
from hf_credit.options import Count, GroupSize, NotNegative, Options, Positive, filled_by_factory, with_parts
from hf_credit.rollouts import Ending, Interaction
from hf_credit.rollouts.capabilities import Removable
from hf_credit.rollouts.method_context import MethodContext
from hf_credit.rollouts.reply_ends import was_cut

PAPER = paper("Counterfactual Credit Policy Optimization for Multi-Agent Collaboration", arxiv="2603.21563")
V1: Mapping[str, Any] = {"order": "previous", "min_samples": 10, "cut_replies": "zero"}
"""Options with which the paper's public code differs from its text."""
V2: Mapping[str, Any] = {"reward": "bonus", "group_size": 16}
"""Options of the public code since June 2026, which is a different method of the same name."""


class Pair(NamedTuple):
    """The outcome of a rollout with and without a role."""

    row: int  # the index of the rollout among the trained ones
    instance: int  # the task row of the rollout
    outcome: float  # R, in [0, 1]
    other: float  # R without the role, or without all other roles, in [0, 1]

    @property
    def contribution(self) -> float:
        """Delta, the outcome minus the other (eq. 1)."""
        return self.outcome - self.other


@dataclass(frozen=True, kw_only=True)
class CounterfactualAdvantages(Options):
    """Contributions, shaped by their running moments and normalised within the prompt (eqs. 1 to 5, Appendices B.2 and
    B.3).

    Failed episodes, and those whose rollout without the role failed, are left out. A role with fewer than two rollouts
    left at an instance gets no credit there.

    Args:
        reward: `"counterfactual"`, the paper's; `"shared"`, the team's outcome for all roles; `"bonus"`, the outcome
            plus a small bonus for positive contributions, only centred, as in the public code since June 2026.
        use_history: whether contributions are shaped by running moments (eq. 4) or used directly.
        decay: lambda of the moving averages.
        order: `"current"` updates the moments with the batch before they shape it; `"previous"` shapes first.
        min_samples: with fewer rollouts so far, contributions are used directly.
        alpha: sensitivity of the shaping.
        eta: sharpness of the `trust` in the last speaker's contributions.
        eps: added to standard deviations.
        variance_floor: if a running variance is at most this, the standard deviation is 1.
        solver_signal: the reward of the role that cannot be removed: `"fused"`, from its outcomes with the team and
            alone (Appendix B.2), or `"joint"`, the team's outcome.
        allocation: `"direct"`, or `"weighted"`, the team's advantage allocated by contribution (Appendix B.3).
        cut_replies: `"score"` keeps the reward of truncated replies; `"zero"` gives the role a shaped reward of 0,
            while its contribution still counts in the moments. A reply that does not end in an end token is truncated.
        train_solo: whether the last speaker's replies without the others are also trained on, weighted by 1 - trust.
        bonus: the bonus depends on the sign of the contribution (`"events"`) or on its size (`"difference"`).
        bonus_weight: weight of the bonus.
        roles: the roles of the team, in order; filled in by `bind`, like the next.
        last: the role that cannot be removed, if there is one.

    Raises:
        ValueError: an option is out of range, or options do not fit each other.
    """

    revision: ClassVar[int] = 2

    reward: Literal["counterfactual", "shared", "bonus"] = "counterfactual"
    use_history: bool = True
    decay: Annotated[float, Range(0, below=1)] = 0.99
    order: Literal["current", "previous"] = "current"
    min_samples: Count = 50
    alpha: Positive = 1.0
    eta: NotNegative = 1.0
    eps: Positive = 1e-6
    variance_floor: NotNegative = 1e-6
    solver_signal: Literal["fused", "joint"] = "fused"
    allocation: Literal["direct", "weighted"] = "direct"
    cut_replies: Literal["score", "zero"] = "score"
    train_solo: bool = False
    bonus: Literal["events", "difference"] = "events"
    bonus_weight: NotNegative = 0.2
    roles: tuple[str, ...] = filled_by_factory(())
    last: str | None = filled_by_factory(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        settings = self.reward, self.solver_signal, self.use_history
        if self.train_solo and settings != ("counterfactual", "fused", True):
            raise ValueError(
                "train_solo needs reward='counterfactual', solver_signal='fused' and use_history=True, got "
                f"{', '.join(map(repr, settings))}; leave it out."
            )
        if self.allocation == "weighted" and self.reward != "counterfactual":
            raise ValueError(
                f"allocation='weighted' needs reward='counterfactual', got {self.reward!r}; use 'direct'."
            )
        if self.cut_replies == "zero" and (self.reward == "shared" or self.allocation == "weighted"):
            raise ValueError(
                "cut_replies='zero' needs a separate reward for each role, got "
                f"reward={self.reward!r} and allocation={self.allocation!r}; use 'score'."
            )

    def bind(self, interaction: Interaction[Any]) -> CounterfactualAdvantages:
        """Returns the estimator for the roles of one Interaction.

        Raises:
            ValueError: there are fewer than two roles, more than one cannot be removed, or an option does not fit the
                team.
        """
        roles, removable = tuple(interaction.roles), Removable(interaction).removable
        kept = [role for role in roles if role not in removable]
        if len(roles) < 2:
            raise ValueError(
                f"contributions need two or more roles, got {interaction.name!r} with {', '.join(roles) or 'none'}; "
                "use a collaboration, or method: grpo."
            )
        if self.reward == "shared":
            return dataclasses.replace(self, roles=roles)
        if len(kept) > 1:
            raise ValueError(
                f"all roles but one must be removable, got {interaction.name!r} with {', '.join(removable) or 'none'} "
                f"of {', '.join(roles)}; implement Removable.without for more, or use reward: shared."
            )
        last = kept[0] if kept else None
        if self.allocation == "weighted" and (last or getattr(interaction, "ties", None) == "expected"):
            why = f"the role {last!r} cannot be removed" if last else "ties='expected', which penalises correct voters"
            raise ValueError(
                f"allocation='weighted' needs a vote with ties='first' or 'none', got {interaction.name!r}, in which "
                f"{why}; use 'direct'."
            )
        for name, chosen in (("reward='bonus'", self.reward == "bonus"), ("train_solo", self.train_solo)):
            if chosen and last is None:
                raise ValueError(
                    f"{name} needs a team with a role that cannot be removed, got {interaction.name!r}, in which all "
                    "roles can; leave it out."
                )
        return dataclasses.replace(self, roles=roles, last=last)

    @property
    def needs(self) -> frozenset[str]:
        """What the collector must give."""
        return frozenset({"groups"} if self.reward == "shared" else {"groups", "removals"})

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: Moments) -> Credit:
        _refuse_outcomes(collected)
        if self.reward == "shared":
            whole = _whole(collected)
            advantages = dict.fromkeys(self.roles, _within_prompt([one.outcome for one in whole], whole, self.eps))
            credits = _by_decision(collected, dict.fromkeys(self.roles, whole), advantages)
            return Credit(decisions=credits, memory=memory)

        # Outcomes of whole episodes, with and without each role (section 4, eq. 1)
        played = [role for role in self.roles if self.reward != "bonus" or len(self.roles) == 2 or role != self.last]
        pairs = {role: _matched(collected, without(self._removed_for(role))) for role in played}
        pairs |= {role: _whole(collected) for role in self.roles if role not in played}  # whose bonus has no weight

        # Running moments over all processes (eqs. 2 and 3)
        streams = dict(stream for role in played for stream in self._streams(role, pairs[role]))
        gathered = context.gather([streams])
        batch = {name: [value for of_process in gathered for value in of_process[name]] for name in streams}
        updated = memory.updated(batch, self.decay)
        moments = updated if self.order == "current" else memory
        self._log(batch, moments, context)

        # Each role's reward (eq. 4, Appendix B.2), and its advantage within the prompt (eq. 5)
        if self.allocation == "direct":
            rewards = {role: self._rewards(role, pairs[role], moments) for role in self.roles}
            if self.cut_replies == "zero":
                rewards = {
                    role: _zero_where_cut(collected, role, pairs[role], rewards[role], context) for role in rewards
                }
            eps = None if self.reward == "bonus" else self.eps
            advantages = {role: _within_prompt(rewards[role], pairs[role], eps) for role in self.roles}
        else:  # or its share of the team's advantage (Appendix B.3)
            rows = set.intersection(*({one.row for one in of_role} for of_role in pairs.values()))
            pairs = {role: [one for one in of_role if one.row in rows] for role, of_role in pairs.items()}
            advantages = self._allocated(pairs)
        credits = _by_decision(collected, pairs, advantages)
        if self.train_solo:
            credits |= self._solo(collected, moments)
        return Credit(decisions=credits, memory=updated)

    def _removed_for(self, role: str) -> list[str]:
        """The roles to remove for the contribution of a role; for the last one, that of all others."""
        return [role] if role != self.last else [one for one in self.roles if one != role]

    def _streams(self, role: str, pairs: Sequence[Pair]) -> list[tuple[str, list[float]]]:
        streams = [(f"{role}/contribution", [one.contribution for one in pairs])]
        if role == self.last:
            streams.append((f"{role}/joint", [one.outcome for one in pairs]))
            streams.append((f"{role}/solo", [one.other for one in pairs]))
        return streams

    def _rewards(self, role: str, pairs: Sequence[Pair], moments: Moments) -> list[float]:
        outcomes, others = _numbers([one.outcome for one in pairs]), _numbers([one.other for one in pairs])
        if self.reward == "bonus":
            weight = 0.0 if role == self.last else self.bonus_weight
            return credit.bonus_rewards(outcomes, others, _groups(pairs), weight, self.bonus == "events").tolist()
        contribution = moments.of(f"{role}/contribution")
        if role != self.last:
            raw = outcomes - others
            shaped = credit.shaped_contributions(
                raw, contribution.mean, self._deviation(contribution), self.alpha, self.eps
            )
            return (shaped if self._has_history(contribution) else raw).tolist()
        if self.solver_signal == "joint" or not self._has_history(contribution):
            return outcomes.tolist()
        joint, solo = moments.of(f"{role}/joint"), moments.of(f"{role}/solo")
        return credit.fused_scores(
            credit.standardised(outcomes, joint.mean, self._deviation(joint), self.eps),
            credit.standardised(others, solo.mean, self._deviation(solo), self.eps),
            self._trust(contribution),
        ).tolist()

    def _has_history(self, moment: Moment) -> bool:
        return self.use_history and moment.seen >= self.min_samples

    def _deviation(self, moment: Moment) -> float:
        return moment.deviation(self.variance_floor)

    def _trust(self, contribution: Moment) -> float:
        return credit.trust(contribution.mean, self._deviation(contribution), self.eta, self.eps)

    def _allocated(self, pairs: Mapping[str, Sequence[Pair]]) -> dict[str, list[float | None]]:
        of_first = pairs[self.roles[0]]  # the same rollouts as for every role
        outcomes = _numbers([one.outcome for one in of_first])
        contributions = _numbers([[one.contribution for one in pairs[role]] for role in self.roles]).T
        shares = credit.allocated_advantages(outcomes, contributions, _groups(of_first), self.eps)
        return {role: _unless_alone(shares[:, index], of_first) for index, role in enumerate(self.roles)}

    def _solo(self, collected: RolloutBatch, moments: Moments) -> dict[str, float]:
        """Credit of the last speaker's replies without the others: their advantage times 1 - trust."""
        assert self.last is not None
        contribution = moments.of(f"{self.last}/contribution")
        pairs = _whole(collected, counted=False)
        if not self._has_history(contribution):
            return {}  # without moments there is no trust, and the last speaker has the team's outcome
        advantages = _within_prompt([one.outcome for one in pairs], pairs, self.eps)
        weighted = [None if value is None else (1 - self._trust(contribution)) * value for value in advantages]
        return _by_decision(collected, {self.last: pairs}, {self.last: weighted})

    def _log(self, batch: Mapping[str, Sequence[float]], moments: Moments, context: MethodContext) -> None:
        for role in self.roles:
            name = f"{role}/contribution"
            if not (values := batch.get(name)):
                continue
            contribution = moments.of(name)
            metrics = {
                "mean": sum(values) / len(values),
                "helped": sum(value > 0 for value in values) / len(values),
                "hurt": sum(value < 0 for value in values) / len(values),
                "redundant": sum(value == 0 for value in values) / len(values),
                "mu": contribution.mean,
                "sigma": self._deviation(contribution),
                **({"trust": self._trust(contribution)} if role == self.last else {}),
            }
            for what, value in metrics.items():
                context.log(f"contribution/{role}/{what}", value)


@with_parts
def counterfactual_grpo(
    group_size: GroupSize = 4,
    solo_pairing: Literal["index", "mean", "common"] = "index",
    estimator: CounterfactualAdvantages = CounterfactualAdvantages(),
) -> Method:
    """Returns the CCPO method. `V1` and `V2` are the options of the public code.

    Args:
        group_size: N, number of whole episodes per task row.
        solo_pairing: how whole episodes are compared with those that are played from the start without a role, as many
            per task row: `"index"` compares each with one; `"mean"` each with the mean of all; `"common"` is `"index"`
            with the same random numbers in both, if the sampler honours seeds.

    Raises:
        ValueError: an option is out of range, or options do not fit each other.
    """
    collector: Collector = Group(size=group_size)
    if estimator.reward != "shared":
        alone = estimator.reward == "counterfactual"
        collector = Removals(size=group_size, pairing=solo_pairing, alone=alone, train_alone=estimator.train_solo)
    return Method(name="counterfactual_grpo", collector=collector, estimator=estimator, memory=Moments(), paper=PAPER)


def _whole(collected: RolloutBatch, counted: bool = True) -> list[Pair]:
    """The whole episodes that did not fail, or those without the others, without other outcomes."""
    return [
        Pair(row, rollout.instance, rollout.episode.outcome, 0.0)
        for row, rollout in enumerate(collected.trained)
        if rollout.counted == counted and rollout.episode.ending != Ending.ERROR
    ]


def _matched(collected: RolloutBatch, kind: str) -> list[Pair]:
    """The whole episodes that did not fail, each with the mean outcome of its rollouts of a kind."""
    outcomes: dict[str | int, list[float]] = {}
    for rollout in collected.of_kind(kind):
        if rollout.episode.ending != Ending.ERROR:
            outcomes.setdefault(rollout.source or rollout.instance, []).append(rollout.episode.outcome)
    pairs = []
    for one in _whole(collected):
        first = collected.episodes[one.row].decisions[:1]
        others = outcomes.get(one.instance) or [value for decision in first for value in outcomes.get(decision.id, [])]
        if others:
            pairs.append(one._replace(other=sum(others) / len(others)))
    return pairs


def _within_prompt(rewards: Sequence[float], pairs: Sequence[Pair], eps: float | None) -> list[float | None]:
    """Advantages by eq. 5; only centred if `eps` is `None`."""
    scale = "none" if eps is None else "group"
    return _unless_alone(credit.group_advantages(_numbers(rewards), _groups(pairs), scale, eps or 1.0), pairs)


def _unless_alone(values: Tensor, pairs: Sequence[Pair]) -> list[float | None]:
    """The values, or `None` for the only rollout of an instance."""
    instances = [one.instance for one in pairs]
    return [
        value if instances.count(one.instance) > 1 else None for value, one in zip(values.tolist(), pairs, strict=True)
    ]


def _zero_where_cut(
    collected: RolloutBatch, role: str, pairs: Sequence[Pair], rewards: Sequence[float], context: MethodContext
) -> list[float]:
    def cut(row: int) -> bool:
        decisions = [one for one in collected.episodes[row].decisions if one.role == role]
        return any(was_cut(decision.action_ids, context.end_tokens) for decision in decisions)

    return [0.0 if cut(one.row) else reward for one, reward in zip(pairs, rewards, strict=True)]


def _by_decision(
    collected: RolloutBatch, pairs: Mapping[str, Sequence[Pair]], advantages: Mapping[str, Sequence[float | None]]
) -> dict[str, float]:
    """The credit of decisions, by id: the advantage of their role (eq. 6)."""
    return {
        decision.id: value
        for role, of_role in pairs.items()
        for one, value in zip(of_role, advantages[role], strict=True)
        for decision in collected.episodes[one.row].decisions
        if decision.role == role and value is not None
    }


def _refuse_outcomes(collected: RolloutBatch) -> None:
    for rollout in collected.rollouts:
        outcome = rollout.episode.outcome
        if rollout.episode.ending != Ending.ERROR and not 0 <= outcome <= 1:
            raise ValueError(
                f"outcomes must be in [0, 1] (paper CCPO, section 3), got {outcome}; scale them in the scorer or the "
                "Interaction."
            )


def _numbers(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _groups(pairs: Sequence[Pair]) -> Tensor:
    return torch.tensor([one.instance for one in pairs], dtype=torch.long)
