"""CCPO: each agent is rewarded for its contribution to the team (the paper CCPO)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import torch
from torch import Tensor

from hf_credit.collectors import Collector, Group, Removals, RolloutBatch
from hf_credit.collectors.removals import without
from hf_credit.credit import (
    Moment,
    Moments,
    allocated_advantages,
    bonus_rewards,
    fused_scores,
    group_advantages,
    shaped_contributions,
    standardised,
    trust,
)
from hf_credit.methods.base import Credit, Method, paper
from hf_credit.options import (
    Count,
    GroupSize,
    NotNegative,
    Options,
    Positive,
    Range,
    filled_by_bind,
    with_parts,
)
from hf_credit.rollouts import Ending, Interaction
from hf_credit.rollouts.capabilities import Removable
from hf_credit.rollouts.method_context import MethodContext
from hf_credit.rollouts.reply_ends import was_cut

PAPER = paper("Counterfactual Credit Policy Optimization for Multi-Agent Collaboration", arxiv="2603.21563")
V1: Mapping[str, Any] = {"order": "previous", "min_samples": 10, "cut_replies": "zero"}
"""Options with which the paper's public code differs from its text."""
V2: Mapping[str, Any] = {"reward": "bonus", "group_size": 16}
"""Options of the public code since June 2026: another method under the same name."""


class Pair(NamedTuple):
    """A rollout, and its outcome without a role.

    Attributes:
        row: its index among the trained rollouts.
        instance: its task row.
        outcome: R, in [0, 1].
        other: R without the role, or without all others, in [0, 1].
    """

    row: int
    instance: int
    outcome: float
    other: float

    @property
    def contribution(self) -> float:
        """Delta = R - R without (eq. 1)."""
        return self.outcome - self.other


@dataclass(frozen=True, kw_only=True)
class CounterfactualAdvantages(Options):
    """Contribution, shaped by history, compared within the prompt (eqs. 1 to 5, Appendices B.2 and B.3).

    Failed episodes are in no pair, nor are those whose rollout without the role failed. A role with fewer than two
    pairs at an instance gets no credit there.

    Args:
        reward: `"counterfactual"`, the paper's; `"shared"`, the team's outcome for all; `"bonus"`, the outcome and a
            small bonus for help, without deviations, as in the public code since June 2026.
        use_history: whether contributions are shaped by running moments (eq. 4) or used directly.
        decay: lambda of the moving averages.
        order: `"current"` updates the moments with the batch before they shape it; `"previous"` shapes first.
        min_samples: with fewer rollouts so far, contributions are used directly.
        alpha: sensitivity of the shaping.
        eta: sharpness of the last speaker's trust.
        eps: added to deviations.
        variance_floor: if a running variance is at most this, the deviation is 1.
        solver_signal: of the role that cannot be removed: `"fused"`, with the team and alone (Appendix B.2), or
            `"joint"`, the team's outcome.
        allocation: `"direct"`, or `"weighted"`, the team's advantage allocated by contribution (Appendix B.3).
        cut_replies: `"score"` uses their score; `"zero"` gives the role a shaped reward of 0, while its contribution
            still counts in the moments. A reply without an end token of the policy at its end is cut.
        train_solo: whether the last speaker's replies without the others are also trained on, weighted by 1 - trust.
        bonus: with that reward, `"events"` for only the sign of the contribution, `"difference"` for its size.
        bonus_weight: of the bonus.
        roles: of the team, in their order; filled in by `bind`, like the next.
        last: the role that cannot be removed, if there is one.

    Raises:
        ValueError: a setting is out of range, in one sentence.
    """

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
    roles: tuple[str, ...] = filled_by_bind(())
    last: str | None = filled_by_bind(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.train_solo and (self.reward, self.solver_signal) != ("counterfactual", "fused"):
            raise ValueError(
                "train_solo must go with reward='counterfactual' and solver_signal='fused', got "
                f"{self.reward!r} and {self.solver_signal!r}; leave it out."
            )
        if self.allocation == "weighted" and self.reward != "counterfactual":
            raise ValueError(
                f"allocation='weighted' must go with reward='counterfactual', got {self.reward!r}; take 'direct'."
            )
        if self.cut_replies == "zero" and (self.reward == "shared" or self.allocation == "weighted"):
            raise ValueError(
                "cut_replies='zero' must go with rewards of each role's own, got "
                f"{self.reward!r} and {self.allocation!r}; take 'score'."
            )

    def bind(self, interaction: Interaction[Any]) -> CounterfactualAdvantages:
        """The same for the roles of one Interaction.

        Raises:
            ValueError: there are fewer than two roles, more than one cannot be removed, or a setting does not fit the
                team.
        """
        roles, removable = tuple(interaction.roles), Removable(interaction).removable
        kept = [role for role in roles if role not in removable]
        if len(roles) < 2:
            raise ValueError(
                f"contributions are of the members of a team, got {interaction.name!r} with the roles "
                f"{', '.join(roles) or 'none'}; take a collaboration of two or more, or method: grpo."
            )
        if self.reward == "shared":
            return dataclasses.replace(self, roles=roles)
        if len(kept) > 1:
            raise ValueError(
                f"all roles but one must be such that the team can do without them, got {interaction.name!r}, which "
                f"can be played without {', '.join(removable) or 'none'} of {', '.join(roles)}; see "
                "Removable.without, or take reward: shared."
            )
        last = kept[0] if kept else None
        if self.allocation == "weighted" and (last or getattr(interaction, "ties", None) == "expected"):
            why = (
                f"the role {last!r} cannot be left out" if last else "ties='expected', where it punishes who is right"
            )
            raise ValueError(
                f"allocation='weighted' must go with a vote whose ties are 'first' or 'none', got "
                f"{interaction.name!r}, in which {why}; take 'direct'."
            )
        for name, chosen in (("reward='bonus'", self.reward == "bonus"), ("train_solo", self.train_solo)):
            if chosen and last is None:
                raise ValueError(
                    f"{name} must go with a team in which one role speaks last, got {interaction.name!r}, of which "
                    "any role can be left out; leave it out."
                )
        return dataclasses.replace(self, roles=roles, last=last)

    @property
    def needs(self) -> frozenset[str]:
        """What `Method.bind` requires of a collector."""
        return frozenset({"groups"} if self.reward == "shared" else {"groups", "removals"})

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: Moments) -> Credit:
        _refuse_outcomes(collected)
        if self.reward == "shared":
            pairs = dict.fromkeys(self.roles, _whole(collected))
            advantages = {
                role: _within_prompt([one.outcome for one in of_role], of_role, self.eps)
                for role, of_role in pairs.items()
            }
            return Credit(decisions=_by_decision(collected, pairs, advantages), memory=memory)

        # What each whole episode was worth, and what it was worth without each role (section 4, eq. 1)
        pairs = {role: _matched(collected, without(self._left_out(role))) for role in self.roles}

        # What the team remembers of that, over all processes (eqs. 2 and 3)
        batch = _together(
            {name: values for role in self.roles for name, values in self._streams(role, pairs[role])}, context
        )
        moments = memory.updated(batch, self.decay)
        known = moments if self.order == "current" else memory
        self._log(batch, known, context)

        # Each role's reward (eq. 4, Appendix B.2), and its advantage within the prompt (eq. 5)
        if self.allocation == "direct":
            rewards = {role: self._rewards(role, pairs[role], known) for role in self.roles}
            if self.cut_replies == "zero":
                rewards = {
                    role: _zero_where_cut(collected, role, pairs[role], rewards[role], context) for role in rewards
                }
            eps = None if self.reward == "bonus" else self.eps
            advantages = {role: _within_prompt(rewards[role], pairs[role], eps) for role in self.roles}
        else:  # or its share of the team's advantage (Appendix B.3)
            pairs = _of_all(pairs)
            advantages = self._allotted(pairs)
        credits = _by_decision(collected, pairs, advantages)
        if self.train_solo:
            credits |= self._solo(collected, known)
        return Credit(decisions=credits, memory=moments)

    def _left_out(self, role: str) -> list[str]:
        """The removed roles for the contribution of a role, or, for the last one, of the others to it."""
        return [role] if role != self.last else [one for one in self.roles if one != role]

    def _streams(self, role: str, pairs: Sequence[Pair]) -> list[tuple[str, list[float]]]:
        streams = [(f"{role}/contribution", [one.contribution for one in pairs])]
        if role == self.last:
            streams.append((f"{role}/joint", [one.outcome for one in pairs]))
            streams.append((f"{role}/solo", [one.other for one in pairs]))
        return streams

    def _rewards(self, role: str, pairs: Sequence[Pair], known: Moments) -> list[float]:
        outcomes, others = _numbers([one.outcome for one in pairs]), _numbers([one.other for one in pairs])
        if self.reward == "bonus":
            weight = 0.0 if role == self.last else self.bonus_weight
            return bonus_rewards(outcomes, others, _groups(pairs), weight, self.bonus == "events").tolist()
        gain = known.of(f"{role}/contribution")
        if role != self.last:
            raw = outcomes - others
            shaped = shaped_contributions(raw, gain.mean, self._spread(gain), self.alpha, self.eps)
            return (shaped if self._knows_enough(gain) else raw).tolist()
        if self.solver_signal == "joint" or not self._knows_enough(gain):
            return outcomes.tolist()
        joint, solo = known.of(f"{role}/joint"), known.of(f"{role}/solo")
        return fused_scores(
            standardised(outcomes, joint.mean, self._spread(joint), self.eps),
            standardised(others, solo.mean, self._spread(solo), self.eps),
            self._trust(gain),
        ).tolist()

    def _knows_enough(self, gain: Moment) -> bool:
        return self.use_history and gain.seen >= self.min_samples

    def _spread(self, moment: Moment) -> float:
        return moment.deviation(self.variance_floor)

    def _trust(self, gain: Moment) -> float:
        return trust(gain.mean, self._spread(gain), self.eta, self.eps)

    def _allotted(self, pairs: Mapping[str, Sequence[Pair]]) -> dict[str, list[float | None]]:
        of_first = pairs[self.roles[0]]  # of the same rollouts as those of every role
        outcomes = _numbers([one.outcome for one in of_first])
        contributions = _numbers([[one.contribution for one in pairs[role]] for role in self.roles]).T
        shares = allocated_advantages(outcomes, contributions, _groups(of_first), self.eps)
        return {role: _unless_lone(shares[:, at], of_first) for at, role in enumerate(self.roles)}

    def _solo(self, collected: RolloutBatch, known: Moments) -> dict[str, float]:
        """The last speaker's replies without the others, compared with each other, weighted by its lack of trust."""
        assert self.last is not None
        gain = known.of(f"{self.last}/contribution")
        pairs = [
            Pair(row, rollout.instance, rollout.episode.outcome, 0.0)
            for row, rollout in enumerate(collected.trained)
            if not rollout.counted and rollout.episode.ending != Ending.ERROR
        ]
        if not self._knows_enough(gain):
            return {}  # there is nothing to weigh them by, and the last speaker has the team's outcome
        advantages = _within_prompt([one.outcome for one in pairs], pairs, self.eps)
        weighed = [None if value is None else (1 - self._trust(gain)) * value for value in advantages]
        return _by_decision(collected, {self.last: pairs}, {self.last: weighed})

    def _log(self, batch: Mapping[str, Sequence[float]], known: Moments, context: MethodContext) -> None:
        for role in self.roles:
            name, values = f"{role}/contribution", batch[f"{role}/contribution"]
            if not values:
                continue
            gain = known.of(name)
            metrics = {
                "mean": sum(values) / len(values),
                "helped": sum(value > 0 for value in values) / len(values),
                "hurt": sum(value < 0 for value in values) / len(values),
                "redundant": sum(value == 0 for value in values) / len(values),
                "mu": gain.mean,
                "sigma": self._spread(gain),
                **({"trust": self._trust(gain)} if role == self.last else {}),
            }
            for what, value in metrics.items():
                context.log(f"contribution/{role}/{what}", value)


@with_parts
def counterfactual_grpo(
    group_size: GroupSize = 4,
    solo_pairing: Literal["index", "mean", "common"] = "index",
    estimator: CounterfactualAdvantages = CounterfactualAdvantages(),
) -> Method:
    """The method. `V1` and `V2` are the options of public code under its name.

    Args:
        group_size: whole episodes of each task row (N).
        solo_pairing: of episodes that are played from the start without a role, as many as there are whole ones:
            `"index"` compares each with one of them; `"mean"` all with all of the task row; `"common"` is `"index"`
            with the same random draws in both, where the sampler honours seeds.

    Raises:
        ValueError: a setting is out of range, in one sentence.
    """
    collector: Collector = Group(size=group_size)
    if estimator.reward != "shared":
        alone = estimator.reward == "counterfactual"
        collector = Removals(size=group_size, pairing=solo_pairing, alone=alone, train_alone=estimator.train_solo)
    return Method(name="counterfactual_grpo", collector=collector, estimator=estimator, memory=Moments(), paper=PAPER)


def _whole(collected: RolloutBatch) -> list[Pair]:
    """The whole episodes that did not fail."""
    return [
        Pair(row, rollout.instance, rollout.episode.outcome, 0.0)
        for row, rollout in enumerate(collected.trained)
        if rollout.counted and rollout.episode.ending != Ending.ERROR
    ]


def _matched(collected: RolloutBatch, kind: str) -> list[Pair]:
    """The whole episodes that did not fail, each with the outcomes of its rollouts of a kind."""
    beside: dict[str | int, list[float]] = {}
    for rollout in collected.of_kind(kind):
        if rollout.episode.ending != Ending.ERROR:
            beside.setdefault(rollout.source or rollout.instance, []).append(rollout.episode.outcome)
    pairs = []
    for one in _whole(collected):
        first = collected.episodes[one.row].decisions[:1]
        others = beside.get(one.instance) or [value for decision in first for value in beside.get(decision.id, [])]
        if others:
            pairs.append(one._replace(other=sum(others) / len(others)))
    return pairs


def _of_all(pairs: Mapping[str, Sequence[Pair]]) -> dict[str, list[Pair]]:
    """Those of the rollouts that have a pair for every role."""
    rows = set.intersection(*({one.row for one in of_role} for of_role in pairs.values()))
    return {role: [one for one in of_role if one.row in rows] for role, of_role in pairs.items()}


def _together(streams: Mapping[str, list[float]], context: MethodContext) -> dict[str, list[float]]:
    """The streams of all processes."""
    of_processes = context.gather([streams])
    return {name: [value for of_process in of_processes for value in of_process[name]] for name in streams}


def _within_prompt(rewards: Sequence[float], pairs: Sequence[Pair], eps: float | None) -> list[float | None]:
    """Eq. 5; without `eps`, centred only."""
    scale = "none" if eps is None else "group"
    return _unless_lone(group_advantages(_numbers(rewards), _groups(pairs), scale, eps or 1.0), pairs)


def _unless_lone(values: Tensor, pairs: Sequence[Pair]) -> list[float | None]:
    """`None` if the instance has no other rollout to compare with."""
    instances = [one.instance for one in pairs]
    return [
        value if instances.count(one.instance) > 1 else None for value, one in zip(values.tolist(), pairs, strict=True)
    ]


def _zero_where_cut(
    collected: RolloutBatch, role: str, pairs: Sequence[Pair], rewards: Sequence[float], context: MethodContext
) -> list[float]:
    replies = [
        [decision.action_ids for decision in collected.episodes[one.row].decisions if decision.role == role]
        for one in pairs
    ]
    return [
        0.0 if any(was_cut(ids, context.end_tokens) for ids in of_rollout) else reward
        for of_rollout, reward in zip(replies, rewards, strict=True)
    ]


def _by_decision(
    collected: RolloutBatch, pairs: Mapping[str, Sequence[Pair]], advantages: Mapping[str, Sequence[float | None]]
) -> dict[str, float]:
    """The advantage of a role for each of its decisions (eq. 6), by their ids."""
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
                f"what a team achieves must be worth from 0 to 1 (paper CCPO, section 3), got an outcome of "
                f"{outcome}; scale it in the scorer or the Interaction."
            )


def _numbers(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _groups(pairs: Sequence[Pair]) -> Tensor:
    return torch.tensor([one.instance for one in pairs], dtype=torch.long)
