"""CVT-RL: counterfactual credit of steps, under constraints (the paper CVT-RL).

D = S / q (V - mean_k V0_k),    V = m + rho (Y - m)    (eq. 6),    S whether the step is drawn, with probability q
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor

from hf_credit import credit
from hf_credit.boundary import Range
from hf_credit.collectors import RolloutBatch, single_or_group
from hf_credit.credit import Multipliers, RewardWeights, StepSelector, pad_to_matrix
from hf_credit.critics.inputs import CriticSpec
from hf_credit.methods.base import Credit, CriticTargets, Method, all_gather_with_slice, mean_over_shared, paper
from hf_credit.methods.cvt.audited_steps import AuditedSteps, context_values, decision_inputs, replacement_of
from hf_credit.methods.cvt.audits import audit_of, outcome, verified_success
from hf_credit.methods.cvt.contributions import StepContributions
from hf_credit.methods.cvt.drawn_steps import DrawnStep, is_audited
from hf_credit.methods.groups import visits
from hf_credit.options import (
    Count,
    NotNegative,
    Options,
    Positive,
    Share,
    filled_by_factory,
    with_parts,
)
from hf_credit.oracles.auditing import AuditorLike, resolve_auditor
from hf_credit.rollouts import Decision, Episode, Interaction
from hf_credit.rollouts.capabilities import Auditable
from hf_credit.rollouts.method_context import MethodContext
from hf_credit.validators import one_of

PAPER = paper(
    "Policy-Conditioned Counterfactual Credit for Verifiable Reinforcement Learning of Long-Horizon Language Agents",
    arxiv="2606.05263",
)
FAMILIES: Mapping[str, float] = {"deletion": 0.25, "paraphrase": 0.20, "substitution": 0.30, "perturbation": 0.25}
"""The weights of the families of interventions (section 3.2)."""
LIMITS: Mapping[str, float] = {"tampering": 0.02, "unsupported": 0.04, "skipped": 0.03, "unsafe": 0.06, "budget": 0.15}
"""The limits of the mean costs (section 3.3, in another order than section 3.1)."""

Outcome = Literal["check", "verified"]
Baseline = Literal["ppo_rlvr", "long_rlvr", "rlvmr", "constrained_process", "compute_matched", "information_matched"]
_META = ("think", "search", "read", "verify")
# The baselines of Tables 2 and 3 as options of this method; every other weight of eq. 3 is 0.
_WEIGHTS = ("evidence", "meta", "belief", "contribution", "hack", "contribution_advantage", "hack_advantage")
_PLAIN: dict[str, Any] = {**dict.fromkeys(_WEIGHTS, 0.0), "counterfactuals": "none", "constrained": False}
BASELINES: Mapping[Baseline, Mapping[str, Any]] = {
    "ppo_rlvr": _PLAIN,
    "long_rlvr": {**_PLAIN, "evidence": 0.45},
    "rlvmr": {**_PLAIN, "meta": 0.18},
    "constrained_process": {"contribution": 0.0, "contribution_advantage": 0.0, "counterfactuals": "none"},
    "compute_matched": {"contribution": 0.0, "contribution_advantage": 0.0, "counterfactuals": "extra"},
    "information_matched": {"estimator": "process"},
}
"""Options for the paper's baselines. The TROLL-style one is `ppo_rlvr` with the trainer's `trust_region`."""


P = TypeVar("P", bound=Options)


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """The method's memory: name and lambda of each cost with a limit, what predicts informative steps, and updates."""

    multipliers: tuple[tuple[str, float], ...] = ()
    selector: StepSelector = field(default_factory=StepSelector)
    updates: int = 0


@dataclass(frozen=True, kw_only=True)
class ConstrainedCounterfactual(Options):
    """The credit of paper CVT-RL, section 3.

    Failed episodes get no credit, and do not affect that of others. A step that was not drawn adds no contribution;
    one that was drawn but has no valid continuation adds none either, and counts in `contribution/unknown`.

    Args:
        rewards: the weights of eq. 3.
        answer_by: the reward of the answer in eq. 3: the `"check"`, which is the outcome of the Interaction and which
            hacks may pass, or the `"verified"` success of the auditor.
        contribution_to: Y of eqs. 4 and 6: the `"verified"` success, or the `"check"`, which rewards hacks.
        estimator: the estimator of contributions: `"dr"`, eq. 6; `"ips"`, without the outcome model; `"model"`, only
            the model; `"sequential"`, doubly robust with a correction per decision (Jiang and Li, 2016); `"process"`,
            the information-matched baseline: the model's prediction for each step, drawn or not, minus their mean.
        selection: the correction for the probability of drawing a step: `"inverse"`, the paper's; `"augmented"`; or
            `"none"`.
        families: the weight of each family of interventions, at least 0. `paraphrase` must keep the action: its
            outcomes also count for the original step, except with the estimators `"model"` and `"process"`.
        ratio_low, ratio_high: the bounds of the clip of eq. 5.
        reward_scale: the factor inside the tanh of the reward, 2 in the paper.
        contribution_advantage: the weight of the contribution in eq. 7.
        hack_advantage: the weight of detected hacks in eq. 7.
        gamma: discount factor per decision of generalized advantages and costs.
        lam: lambda of GAE.
        limits: the limit of each mean cost, by name.
        constrained: whether costs affect the credit.
        penalty: rho of eq. 10.
        rate: the step size of the multipliers.
        rule: the step size of the multipliers is `rate` (`"paper"`) or `penalty` (`"textbook"`).
        believes: whether there is a belief head.
        own_policy: whether the current policy plays the continuations, so that every ratio is 1.
        auditor: judges steps, as in `AuditedSteps`.
        slots: name and size of the auditor's belief slots; filled in by `bind`.

    Raises:
        ValueError: an option is out of range, or options do not fit each other.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"audits"})
    revision: ClassVar[int] = 2

    rewards: RewardWeights = filled_by_factory(RewardWeights())
    answer_by: Outcome = "check"
    contribution_to: Outcome = "verified"
    estimator: Literal["dr", "ips", "model", "sequential", "process"] = "dr"
    selection: Literal["inverse", "augmented", "none"] = "inverse"
    families: Mapping[str, NotNegative] = filled_by_factory(make=lambda: dict(FAMILIES))
    ratio_low: Share = 0.2
    ratio_high: Annotated[float, Range(1)] = 5.0
    reward_scale: Positive = filled_by_factory(2.0)
    contribution_advantage: NotNegative = 0.7
    hack_advantage: NotNegative = 0.9
    gamma: Share = 0.99
    lam: Share = 0.95
    limits: Mapping[str, float] = filled_by_factory(make=lambda: dict(LIMITS))
    constrained: bool = True
    penalty: NotNegative = 2.0
    rate: Positive = 0.05
    rule: Literal["paper", "textbook"] = "paper"
    believes: bool = filled_by_factory(True)
    own_policy: bool = filled_by_factory(False)
    auditor: AuditorLike | None = filled_by_factory(None)
    slots: tuple[tuple[str, int], ...] = filled_by_factory(())

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "auditor", resolve_auditor(self.auditor))
        if not any(self.families.values()):
            raise ValueError(
                f"the weights of families must not all be 0, got {dict(self.families)}; the paper's sum to 1."
            )
        if self.estimator == "process" and self.selection == "augmented":
            raise ValueError("estimator='process' excludes selection='augmented', got both; use selection='inverse'.")
        self.multipliers(())  # validates the limits

    def bind(self, interaction: Interaction[Any]) -> ConstrainedCounterfactual:
        """Returns the estimator for the belief slots of its auditor, by default the Interaction's.

        Raises:
            ValueError: there is no auditor, it does not fit the Interaction, or it lacks a cost with a limit.
        """
        auditor = Auditable(interaction).check_auditor(resolve_auditor(self.auditor))
        if auditor is None:
            raise ValueError(
                f"constraints need an auditor, got none for {interaction.name!r}, which has no default; pass "
                "auditor=, or play the environment 'evidence'."
            )
        unknown = [name for name in self.limits if name not in auditor.costs]
        if unknown and self.constrained:
            raise ValueError(
                f"limits must be for costs of the auditor ({', '.join(auditor.costs)}), got {unknown[0]!r}; use these."
            )
        return dataclasses.replace(self, slots=tuple(auditor.slots.items()))

    def critic_specs(self) -> dict[str, CriticSpec]:
        """Returns what each critic predicts, by name."""
        specs = {"critic": CriticSpec()}
        if self._uses_contributions and self.estimator != "ips":
            specs["outcome"] = CriticSpec(output="probability")
        if self.believes and self.slots:
            specs["belief"] = CriticSpec(output="beliefs", slots=tuple(size for _, size in self.slots))
        return specs

    def multipliers(self, remembered: Sequence[tuple[str, float]]) -> Multipliers:
        """Returns the multipliers of `limits`, with values from memory; 0 if missing there."""
        values = {name: one for name, one in remembered if name in self.limits}
        return Multipliers(limits=self.limits, penalty=self.penalty, rate=self.rate, rule=self.rule, values=values)

    @property
    def _uses_contributions(self) -> bool:
        return self.rewards.contribution > 0 or self.contribution_advantage > 0

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: Constraints) -> Credit:
        rows = [row for row, one in enumerate(collected.episodes) if is_audited(one)]
        episodes = [collected.episodes[row] for row in rows]
        values = [[value for (value,) in own] for own in context_values(episodes, context)]

        # Contributions of the drawn steps (eqs. 4 to 6)
        step_contributions = StepContributions(method=self)
        steps = step_contributions.steps(collected, episodes)
        contributions, critic_targets = (
            step_contributions(steps, episodes, context) if self._uses_contributions else ({}, [])
        )

        # Reward (eq. 3), its generalized advantage, and the rest of eq. 7
        beliefs = context_values(episodes, context, "belief") if self.believes and self.slots else None
        rewards = [
            [
                self._reward(episode, turn, contributions.get((row, turn), 0.0), self._by_slot(beliefs, row, turn))
                for turn in range(len(episode.decisions))
            ]
            for row, episode in enumerate(episodes)
        ]
        padded_rewards, mask = pad_to_matrix(rewards)
        padded_values, _ = pad_to_matrix(values)
        advantages = credit.generalized_advantages(padded_rewards, padded_values, mask, self.gamma, self.lam)
        critic_targets.insert(0, _value_targets(episodes, values, advantages))
        for row, episode in enumerate(episodes):
            for turn, decision in enumerate(episode.decisions):
                advantages[row, turn] += self.contribution_advantage * contributions.get((row, turn), 0.0)
                advantages[row, turn] -= self.hack_advantage * _hack(decision)

        # Constraints (eqs. 2 and 10): advantages in each cost, weighted by the multipliers before this update
        multipliers = self.multipliers(memory.multipliers)
        # Costs are those of whole episodes.
        counted = [collected.trained[row].counted and not collected.trained[row].later for row in rows]
        if self.constrained:
            penalties, multipliers = self._constrained(episodes, counted, multipliers, context)
            advantages -= penalties[:, : advantages.shape[1]]

        credits: list[list[float | None]] = [[None] * len(one.decisions) for one in collected.episodes]
        for row, own in zip(rows, advantages.tolist(), strict=True):
            credits[row] = own[: len(collected.episodes[row].decisions)]
        if beliefs is not None:
            critic_targets.append(self._belief_targets(episodes, beliefs))
        whole = [index for index, one in enumerate(counted) if one]
        self._log([(episodes[index], rewards[index]) for index in whole], contributions, context)
        selector = self._updated_selector(memory.selector, steps, episodes, context)
        lambdas = tuple(multipliers.values.items())
        memory = Constraints(multipliers=lambdas, selector=selector, updates=memory.updates + 1)
        return Credit(decisions=mean_over_shared(collected, credits), memory=memory, critic_targets=critic_targets)

    def _updated_selector(
        self, selector: StepSelector, steps: Sequence[DrawnStep], episodes: Sequence[Episode], context: MethodContext
    ) -> StepSelector:
        """The selector, fitted to predict whether deleting a step changes the result of a verifier (Appendix A.2)."""
        examples = []
        for step in steps:
            without = [one for one in step.branches.get("deletion", ()) if is_audited(one.episode)]
            features = replacement_of(without[0]).features if without else ()
            if features:
                before, results = episodes[step.row].decisions[: step.turn], _results(episodes[step.row])
                changed = any(_results(one.episode, before) != results for one in without)
                examples.append((features, float(changed)))
        return selector.updated(all_gather_with_slice(examples, context)[0])

    def _reward(
        self, episode: Episode, turn: int, contribution: float, belief: Mapping[str, Sequence[float]] | None
    ) -> float:
        audit = audit_of(episode.decisions[turn])
        assert audit is not None
        last = turn == len(episode.decisions) - 1
        before, after = audit.uncertainty
        return self.rewards.reward(
            answer=outcome(episode, self.answer_by) if last else 0.0,
            evidence=credit.harmonic_mean(audit.evidence or 0.0, audit.entailment or 0.0) if audit.final else 0.0,
            meta=max(0.0, before - after) if audit.kind in _META else 0.0,
            belief=0.0 if belief is None else credit.belief_reward(audit.beliefs, belief),
            contribution=math.tanh(self.reward_scale * contribution),
            hack=_hack(episode.decisions[turn]),
        )

    def _by_slot(
        self, beliefs: Sequence[Sequence[tuple[float, ...]]] | None, row: int, turn: int
    ) -> dict[str, Sequence[float]] | None:
        if beliefs is None:
            return None
        rest = iter(beliefs[row][turn])
        return {name: tuple(itertools.islice(rest, size)) for name, size in self.slots}

    def _belief_targets(
        self, episodes: Sequence[Episode], beliefs: Sequence[Sequence[tuple[float, ...]]]
    ) -> CriticTargets:
        """The probabilities of all slots, concatenated; NaN in an undefined slot."""
        targets = []
        for episode in episodes:
            for decision in episode.decisions:
                audit = audit_of(decision)
                assert audit is not None
                slots = (audit.beliefs.get(name, (math.nan,) * size) for name, size in self.slots)
                targets.append(tuple(itertools.chain.from_iterable(slots)))
        values = [belief for own in beliefs for belief in own]
        return CriticTargets(inputs=decision_inputs(episodes), targets=targets, values=values, critic="belief")

    def _constrained(
        self, episodes: Sequence[Episode], counted: Sequence[bool], multipliers: Multipliers, context: MethodContext
    ) -> tuple[Tensor, Multipliers]:
        """The amount by which costs, as means over counted ones, reduce each advantage, and the next multipliers."""
        names = tuple(self.limits)
        costs = [[[_cost(one, name) for name in names] for one in episode.decisions] for episode in episodes]
        gathered, local = all_gather_with_slice(costs, context)
        ids, _ = all_gather_with_slice([[one.id for one in episode.decisions] for episode in episodes], context)
        whole = torch.tensor(all_gather_with_slice(counted, context)[0], dtype=torch.bool)
        width = max([len(one) for one in gathered] + [1])
        penalties = torch.zeros(len(gathered), width, dtype=torch.float64)
        if not whole.any():
            return penalties[local], multipliers
        tables = {
            name: pad_to_matrix([[turn[at] for turn in rows] for rows in gathered]) for at, name in enumerate(names)
        }
        discount = self.gamma ** torch.arange(width, dtype=torch.float64)
        means = {name: float((table[whole] * discount).sum() / whole.sum()) for name, (table, _) in tables.items()}
        shared = visits(ids)  # what follows a decision is in the costs of all episodes that contain it
        for name, weight in multipliers.weights(means).items():
            penalties += weight * credit.cost_advantages(*tables[name], gamma=self.gamma, episodes=shared)
        for name in names:
            context.log(f"costs/{name}", means[name])
            context.log(f"multipliers/{name}", multipliers.values[name])
        return penalties[local], multipliers.updated(means)

    def _log(
        self,
        whole: Sequence[tuple[Episode, Sequence[float]]],
        contributions: Mapping[tuple[int, int], float],
        context: MethodContext,
    ) -> None:
        episodes = [episode for episode, _ in whole]
        audits = [[audit for audit in map(audit_of, episode.decisions) if audit] for episode in episodes]
        finals = [one.evidence for own in audits for one in own if one.evidence is not None]
        hacked = [float(any(_hack(one) >= 0.5 for one in episode.decisions)) for episode in episodes]
        true = [float(any(one.true_hacks for one in own)) for own in audits]
        lists = {
            "verified": [outcome(episode, "verified") for episode in episodes],
            "hacks/detected": hacked,
            "hacks/true": true,
            "evidence/f1": finals,
            "rewards/shaped": [sum(rewards) for _, rewards in whole],
            "contribution/mean": list(contributions.values()),
            "contribution/size": [abs(value) for value in contributions.values()],
        }
        for name, values in lists.items():
            context.mean(name, values)


@with_parts
def constrained_counterfactual(
    group_size: Count = 8,
    collector: AuditedSteps = AuditedSteps(),
    families: Mapping[str, float] | None = None,
    refresh_every: Count = 200,
    ema: Annotated[float, Range(above=0, below=1)] | None = None,
    rewards: RewardWeights = RewardWeights(),
    credit: ConstrainedCounterfactual = ConstrainedCounterfactual(),
    limits: Mapping[str, float] | None = None,
    baseline: Baseline | None = None,
) -> Method:
    """Returns the CVT-RL method, or one of the paper's `BASELINES`.

    Args:
        group_size: G, number of episodes per task row.
        families: the weight of each family of interventions; the paper's if `None`. Missing families are not played.
        refresh_every: number of updates after which the frozen copy that plays continuations is refreshed; with 1 the
            current policy plays them.
        ema: in place of `refresh_every`, the decay of a frozen copy that is a moving average of the policy.
        limits: the limit of each mean cost, by name; the paper's if `None`.
        baseline: a baseline of the paper; it overrides the options that it sets.

    Raises:
        ValueError: an option is out of range, or options do not fit each other.
    """
    if baseline is not None:
        options = BASELINES[one_of("baseline", baseline, BASELINES)]
        collector, rewards = _changed(collector, options), _changed(rewards, options)
        credit = _changed(credit, options)
    weights = dict(FAMILIES if families is None else families)
    own_policy = refresh_every == 1 and ema is None
    contrasted = collector.counterfactuals not in ("none", "extra")
    return Method(
        name="constrained_counterfactual",
        collector=dataclasses.replace(
            collector,
            inner=single_or_group(group_size),
            families=tuple(name for name, weight in weights.items() if weight),
            policy="current" if own_policy else "frozen",
            probe_every=None if own_policy or ema is not None else refresh_every,
        ),
        estimator=dataclasses.replace(
            credit,
            rewards=rewards,
            families=weights,
            limits=dict(LIMITS if limits is None else limits),
            believes=rewards.belief > 0,
            own_policy=own_policy or not contrasted,
            auditor=collector.auditor,
        ),
        critics=("critic",),
        memory=Constraints(),
        evaluation=AuditedSteps(counterfactuals="none", auditor=collector.auditor),
        refresh_frozen_every=refresh_every if contrasted and not own_policy else None,
        frozen_decay=ema if contrasted else None,
        paper=PAPER,
    )


def _changed(part: P, options: Mapping[str, Any]) -> P:
    """A part, with those of the options that it has."""
    return dataclasses.replace(part, **{name: options[name] for name in vars(part) if name in options})  # type: ignore[type-var]


def _hack(decision: Decision) -> float:
    """The maximum hack score of a decision over categories (section 3.1)."""
    audit = audit_of(decision)
    return 0.0 if audit is None else max(audit.hacks.values(), default=0.0)


def _cost(decision: Decision, name: str) -> float:
    audit = audit_of(decision)
    return 0.0 if audit is None else audit.costs.get(name, 0.0)


def _results(episode: Episode, before: Sequence[Decision] = ()) -> tuple[Any, ...]:
    """The results of all verifiers for an episode, including those for earlier decisions."""
    audits = [audit for audit in map(audit_of, (*before, *episode.decisions)) if audit]
    hacks = frozenset(name for one in audits for name, score in one.hacks.items() if score >= 0.5)
    finals = [one.evidence for one in audits if one.final]
    return verified_success(episode), episode.outcome, hacks, tuple(finals)


def _value_targets(
    episodes: Sequence[Episode], values: Sequence[Sequence[float]], advantages: Tensor
) -> CriticTargets:
    """The critic's target before each decision: the advantage plus its prediction."""
    pairs = zip(values, advantages.tolist(), strict=True)
    return CriticTargets(
        inputs=decision_inputs(episodes),
        targets=[(value + credit,) for own, credits in pairs for value, credit in zip(own, credits, strict=False)],
        values=[(value,) for own in values for value in own],
    )
