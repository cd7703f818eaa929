"""CVT-RL: counterfactual credit of steps, under constraints (the paper CVT-RL)."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

import torch
from torch import Tensor

from hf_credit.collectors import RolloutBatch, single_or_group
from hf_credit.credit import (
    Multipliers,
    RewardWeights,
    StepSelector,
    belief_reward,
    cost_advantages,
    generalized_advantages,
    harmonic_mean,
)
from hf_credit.critics.readings import context_readings
from hf_credit.critics.specs import CriticSpec
from hf_credit.methods.base import Credit, CriticTargets, Method, all_gather_with_slice, mean_over_shared, paper
from hf_credit.methods.cvt.audited_steps import AuditedSteps, context_values, replacement_of
from hf_credit.methods.cvt.audits import audit_of, verified_success
from hf_credit.methods.cvt.contributions import StepContributions
from hf_credit.methods.cvt.drawn_steps import DrawnStep, is_audited
from hf_credit.methods.turns import pad_to_matrix
from hf_credit.options import (
    Count,
    NotNegative,
    Options,
    Positive,
    Range,
    Share,
    filled_by_bind,
    filled_by_factory,
    with_parts,
)
from hf_credit.oracles.auditors import AuditorLike, resolve_auditor
from hf_credit.rollouts import Decision, Episode, Interaction
from hf_credit.rollouts.capabilities import Auditable
from hf_credit.rollouts.method_context import MethodContext
from hf_credit.validators import finite_number, one_of

PAPER = paper(
    "Policy-Conditioned Counterfactual Credit for Verifiable Reinforcement Learning of Long-Horizon Language Agents",
    arxiv="2606.05263",
)
FAMILIES: Mapping[str, float] = {"deletion": 0.25, "paraphrase": 0.20, "substitution": 0.30, "perturbation": 0.25}
"""The weights of the families of interventions (section 3.2)."""
LIMITS: Mapping[str, float] = {
    "tampering": 0.02,
    "unsupported": 0.04,
    "skipped": 0.03,
    "unsafe": 0.06,
    "budget": 0.15,
}
"""The limits of the mean costs (section 3.3, in another order than section 3.1)."""

Contrast = Literal["dr", "ips", "model", "sequential", "process"]
Outcome = Literal["check", "verified"]
ESTIMATORS: tuple[str, ...] = get_args(Contrast)
OUTCOMES: tuple[str, ...] = get_args(Outcome)
_META = ("think", "search", "read", "verify")
# The baselines of Tables 2 and 3 as options of this method; every other weight of eq. 3 is 0.
_PLAIN: dict[str, Any] = {
    "evidence": 0.0,
    "meta": 0.0,
    "belief": 0.0,
    "contribution": 0.0,
    "hack": 0.0,
    "contribution_advantage": 0.0,
    "hack_advantage": 0.0,
    "counterfactuals": "none",
    "constrained": False,
}
BASELINES: Mapping[str, Mapping[str, Any]] = {
    "ppo_rlvr": _PLAIN,
    "long_rlvr": {**_PLAIN, "evidence": 0.45},
    "rlvmr": {**_PLAIN, "meta": 0.18},
    "constrained_process": {
        "contribution": 0.0,
        "contribution_advantage": 0.0,
        "counterfactuals": "none",
    },
    "compute_matched": {"contribution": 0.0, "contribution_advantage": 0.0, "counterfactuals": "extra"},
    "information_matched": {"estimator": "process"},
}
"""Options for the paper's baselines. TROLL-style is `ppo_rlvr` with the trainer's `trust_region`,
`trust_region_projection="interpolation"` and `trust_region_regression=1`.
"""


P = TypeVar("P", bound=Options)


@dataclass(frozen=True, kw_only=True)
class Constraints:
    """The method's memory.

    Attributes:
        multipliers: lambda of each cost with a limit, by name.
        selector: scores steps for the selection.
        updates: number of updates so far.
    """

    multipliers: tuple[tuple[str, float], ...] = ()
    selector: StepSelector = field(default_factory=StepSelector)
    updates: int = 0


@dataclass(frozen=True, kw_only=True)
class ConstrainedCounterfactual(Options):
    """The credit of paper CVT-RL, section 3.

    Failed episodes get no credit, and do not affect that of others.

    Args:
        rewards: the weights of eq. 3.
        answer_by: the judge of the answer in eq. 3: the `"check"`, which is the outcome of the Interaction and may be
            passed by a hack, or the `"verified"` success of the auditor.
        contribution_to: Y of eqs. 4 and 6: the `"verified"` success, or the `"check"`, which rewards hacks.
        estimator: of contributions: `"dr"`, eq. 6; `"ips"`, without the model; `"model"`, only the model;
            `"sequential"`, corrected decision by decision (Jiang and Li, 2016), which is doubly robust; `"process"`,
            without a contrast: the model's prediction for each step, drawn or not, minus its mean over them, the
            information-matched baseline.
        selection: the correction for the drawing of steps: `"inverse"`, the paper's; `"augmented"`; or `"none"`.
        families: the weight of each family of interventions, at least 0. `paraphrase` must not change the action: its
            outcomes count for the step itself as well, except with the estimators `"model"` and `"process"`.
        ratio_low: the lower end of the clip of eq. 5.
        ratio_high: the upper end of the clip of eq. 5.
        reward_scale: inside the tanh of the reward, 2 in the paper.
        contribution_advantage: the weight of the contribution in eq. 7.
        hack_advantage: the weight of detected hacks in eq. 7.
        gamma: the discount of generalized advantages, from decision to decision, and of costs.
        lam: the decay of generalized advantages.
        limits: the limit of each mean cost, by name.
        constrained: whether costs affect the credit.
        penalty: rho of eq. 10.
        rate: the step of the multipliers.
        rule: `"paper"` steps by `rate`; `"textbook"` by `penalty`.
        believes: whether there is a belief head.
        own_policy: whether the policy itself plays on, so that every ratio is 1.
        auditor: judges steps, as in `AuditedSteps`.
        slots: of its beliefs; filled in by `bind`.

    Raises:
        ValueError: a setting is out of range, in one sentence.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"audits"})

    rewards: RewardWeights = filled_by_factory(RewardWeights())
    answer_by: Outcome = "check"
    contribution_to: Outcome = "verified"
    estimator: Contrast = "dr"
    selection: Literal["inverse", "augmented", "none"] = "inverse"
    families: Mapping[str, float] = filled_by_factory(make=lambda: dict(FAMILIES))
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
    slots: tuple[tuple[str, int], ...] = filled_by_bind(())

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "auditor", resolve_auditor(self.auditor))
        weights = [finite_number(f"the weight of {name}", weight, 0) for name, weight in self.families.items()]
        if not any(weights):
            raise ValueError(
                f"the weights of families must not all be 0, got {dict(self.families)}; the paper's add to 1."
            )
        if self.estimator == "process" and self.selection == "augmented":
            raise ValueError("estimator='process' has nothing to augment, got selection='augmented'; take 'inverse'.")
        for name, limit in self.limits.items():
            finite_number(f"the limit of {name}", limit, 0)
        self.multipliers(())  # refuses its own settings

    def bind(self, interaction: Interaction[Any]) -> ConstrainedCounterfactual:
        """The same for the slots of an auditor, by default the Interaction's own.

        Raises:
            ValueError: there is none, it does not fit, or it does not know a cost that has a limit.
        """
        auditor = Auditable(interaction).check_auditor(resolve_auditor(self.auditor))
        if auditor is None:
            raise ValueError(
                f"constraints need an auditor, got none and {interaction.name!r} has none of its own; pass auditor=, "
                "or play the environment 'evidence'."
            )
        unknown = [name for name in self.limits if name not in auditor.costs]
        if unknown and self.constrained:
            raise ValueError(
                f"limits must be of the auditor's costs ({', '.join(auditor.costs)}), got {unknown[0]!r}; name these."
            )
        return dataclasses.replace(self, slots=tuple(auditor.slots.items()))

    def critic_specs(self) -> dict[str, CriticSpec]:
        """What its critics predict, by name."""
        found = {"critic": CriticSpec()}
        if self._contrasts and self.estimator != "ips":
            found["outcome"] = CriticSpec(output="probability")
        if self.believes and self.slots:
            found["belief"] = CriticSpec(output="beliefs", slots=tuple(size for _, size in self.slots))
        return found

    def multipliers(self, remembered: Sequence[tuple[str, float]]) -> Multipliers:
        """The multipliers from memory for costs that still have a limit; 0 for others."""
        known = {**dict.fromkeys(self.limits, 0.0), **{name: one for name, one in remembered if name in self.limits}}
        return Multipliers(limits=self.limits, penalty=self.penalty, rate=self.rate, rule=self.rule, values=known)

    @property
    def _contrasts(self) -> bool:
        """Whether contributions are part of the credit."""
        return self.rewards.contribution > 0 or self.contribution_advantage > 0

    @property
    def _of_steps(self) -> StepContributions:
        return StepContributions(
            outcome=functools.partial(_result, which=self.contribution_to),
            estimator=self.estimator,
            selection=self.selection,
            families=self.families,
            ratio_low=self.ratio_low,
            ratio_high=self.ratio_high,
            own_policy=self.own_policy,
        )

    def __call__(self, collected: RolloutBatch, context: MethodContext, memory: Constraints) -> Credit:
        rows = [row for row, one in enumerate(collected.episodes) if is_audited(one)]
        episodes = [collected.episodes[row] for row in rows]
        values = context_values(episodes, context)

        # What the drawn steps contributed (eqs. 4 to 6)
        of_steps = self._of_steps
        steps = of_steps.steps(collected, episodes)
        found, critic_targets = of_steps(steps, episodes, context) if self._contrasts else ({}, [])

        # Reward (eq. 3), its generalized advantage, and the rest of eq. 7
        beliefs = self._beliefs(episodes, context)
        rewards = [
            [
                self._reward(episode, turn, found.get((row, turn), 0.0), self._held(beliefs, row, turn))
                for turn in range(len(episode.decisions))
            ]
            for row, episode in enumerate(episodes)
        ]
        table, there = pad_to_matrix(rewards)
        known, _ = pad_to_matrix(values)
        advantages = generalized_advantages(table, known, there, self.gamma, self.lam)
        critic_targets.insert(0, _value_targets(episodes, values, advantages))
        for row, episode in enumerate(episodes):
            for turn, decision in enumerate(episode.decisions):
                contributed = found.get((row, turn), 0.0)
                advantages[row, turn] += self.contribution_advantage * contributed
                advantages[row, turn] -= self.hack_advantage * _hack(decision)

        # Constraints (eqs. 2 and 10): advantages in each cost, weighed by multipliers that this update still uses
        remembered = self.multipliers(memory.multipliers)
        counted = [collected.trained[row].counted for row in rows]
        if self.constrained:
            weighed, remembered = self._constrained(episodes, counted, remembered, context)
            advantages -= weighed[:, : advantages.shape[1]]

        given: list[list[float | None]] = [[None] * len(one.decisions) for one in collected.episodes]
        for row, own in zip(rows, advantages.tolist(), strict=True):
            given[row] = own[: len(collected.episodes[row].decisions)]
        if beliefs is not None:
            critic_targets.append(self._belief_targets(episodes, beliefs))
        whole = [place for place, one in enumerate(counted) if one]
        self._log([episodes[place] for place in whole], [rewards[place] for place in whole], found, context)
        assert remembered.values is not None
        return Credit(
            decisions=mean_over_shared(collected, given),
            memory=Constraints(
                multipliers=tuple(remembered.values.items()),
                selector=self._learned(memory.selector, steps, episodes, context),
                updates=memory.updates + 1,
            ),
            critic_targets=critic_targets,
        )

    # What is remembered -----------------------------------------------------------------------------------------

    def _learned(
        self,
        selector: StepSelector,
        steps: Sequence[DrawnStep],
        episodes: Sequence[Episode],
        context: MethodContext,
    ) -> StepSelector:
        """The selector fitted to whether deleting a step changed a verifier's result (Appendix A.2)."""
        examples = []
        for step in steps:
            without = [one for one in step.branches.get("deletion", ()) if is_audited(one.episode)]
            features = replacement_of(without[0]).features if without else ()
            if features:
                before, verdict = episodes[step.row].decisions[: step.turn], _verdict(episodes[step.row])
                changed = any(_verdict(one.episode, before) != verdict for one in without)
                examples.append((features, float(changed)))
        return selector.updated(all_gather_with_slice(examples, context)[0])

    # Reward and belief --------------------------------------------------------------------------------------------

    def _reward(
        self,
        episode: Episode,
        turn: int,
        contributed: float,
        held: Mapping[str, Sequence[float]] | None,
    ) -> float:
        audit = audit_of(episode.decisions[turn])
        assert audit is not None
        last = turn == len(episode.decisions) - 1
        before, after = audit.uncertainty
        return self.rewards.reward(
            answer=_result(episode, self.answer_by) if last else 0.0,
            evidence=harmonic_mean(audit.evidence or 0.0, audit.entailment or 0.0) if audit.final else 0.0,
            meta=max(0.0, before - after) if audit.kind in _META else 0.0,
            belief=0.0 if held is None else belief_reward(audit.beliefs, held),
            contribution=math.tanh(self.reward_scale * contributed),
            hack=_hack(episode.decisions[turn]),
        )

    def _beliefs(self, episodes: Sequence[Episode], context: MethodContext) -> list[list[tuple[float, ...]]] | None:
        if not (self.believes and self.slots):
            return None
        contexts = [decision.context_ids for episode in episodes for decision in episode.decisions]
        beliefs = iter(context.values(context_readings(contexts), "belief"))
        return [[next(beliefs) for _ in episode.decisions] for episode in episodes]

    def _held(
        self, beliefs: Sequence[Sequence[tuple[float, ...]]] | None, row: int, turn: int
    ) -> dict[str, Sequence[float]] | None:
        """The predictions of the belief head before a decision, by slot."""
        if beliefs is None:
            return None
        held: dict[str, Sequence[float]] = {}
        at = 0
        for name, size in self.slots:
            held[name] = beliefs[row][turn][at : at + size]
            at += size
        return held

    def _belief_targets(
        self, episodes: Sequence[Episode], beliefs: Sequence[Sequence[tuple[float, ...]]]
    ) -> CriticTargets:
        """The probabilities of each slot, one after the other; NaN in an undefined slot."""
        targets = []
        for episode in episodes:
            for decision in episode.decisions:
                audit = audit_of(decision)
                assert audit is not None
                wanted: list[float] = []
                for name, size in self.slots:
                    wanted += audit.beliefs.get(name, (math.nan,) * size)
                targets.append(tuple(wanted))
        inputs = context_readings([decision.context_ids for episode in episodes for decision in episode.decisions])
        values = [belief for own in beliefs for belief in own]
        return CriticTargets(inputs=inputs, targets=targets, values=values, critic="belief")

    # Constraints --------------------------------------------------------------------------------------------------

    def _constrained(
        self, episodes: Sequence[Episode], counted: Sequence[bool], known: Multipliers, context: MethodContext
    ) -> tuple[Tensor, Multipliers]:
        """The reduction of each decision's advantage by costs, and the multipliers of the next update.

        The means are over whole episodes of the policy: continuations from a drawn step do not begin at the start.
        """
        names = tuple(self.limits)
        own = [[[_cost(one, name) for name in names] for one in episode.decisions] for episode in episodes]
        gathered, local = all_gather_with_slice(own, context)
        whole = torch.tensor(all_gather_with_slice(counted, context)[0], dtype=torch.bool)
        if not whole.any():
            return torch.zeros(len(own), max(map(len, gathered), default=1), dtype=torch.float64), known
        width = max(map(len, gathered))
        weighed = torch.zeros(len(gathered), max(width, 1), dtype=torch.float64)
        tables = {
            name: pad_to_matrix([[turn[at] for turn in rows] for rows in gathered]) for at, name in enumerate(names)
        }
        discount = self.gamma ** torch.arange(max(width, 1), dtype=torch.float64)
        means = {name: float((table[whole] * discount).sum() / whole.sum()) for name, (table, _) in tables.items()}
        for name, weight in known.weights(means).items():
            weighed += weight * cost_advantages(*tables[name], gamma=self.gamma)
        following = known.updated(means)
        assert known.values is not None
        for name in names:
            context.log(f"costs/{name}", means[name])
            context.log(f"multipliers/{name}", known.values[name])
        return weighed[local], following

    # What is logged -----------------------------------------------------------------------------------------------

    def _log(
        self,
        episodes: Sequence[Episode],
        rewards: Sequence[Sequence[float]],
        found: Mapping[tuple[int, int], float],
        context: MethodContext,
    ) -> None:
        audits = [[audit for audit in map(audit_of, episode.decisions) if audit] for episode in episodes]
        finals = [one.evidence for own in audits for one in own if one.evidence is not None]
        hacked = [float(any(_is_hack(one) for one in episode.decisions)) for episode in episodes]
        true = [float(any(one.true_hacks for one in own)) for own in audits]
        lists = {
            "verified": [_result(episode, "verified") for episode in episodes],
            "hacks/detected": hacked,
            "hacks/true": true,
            "evidence/f1": finals,
            "rewards/shaped": [sum(own) for own in rewards],
            "contribution/mean": list(found.values()),
            "contribution/size": [abs(value) for value in found.values()],
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
    baseline: str | None = None,
) -> Method:
    """The method of paper CVT-RL. `BASELINES` has the options of its baselines.

    Args:
        group_size: G, episodes of each task row.
        families: the weight of each family of interventions; the paper's if `None`. Missing families are not played.
        refresh_every: number of updates after which the frozen copy that plays on is refreshed. With 1 it is the
            policy of the update itself, and there is no copy.
        ema: instead, the copy is a moving average of the policy with this decay.
        limits: the limit of each mean cost, by name; the paper's if `None`.
        baseline: one of `BASELINES`, whose options override the others.

    Raises:
        ValueError: a setting is out of range, in one sentence.
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
    """A part with its own options changed."""
    return dataclasses.replace(part, **{name: options[name] for name in vars(part) if name in options})  # type: ignore[type-var]


def _result(episode: Episode, which: str) -> float:
    if which == "check":
        return episode.outcome
    success = verified_success(episode)
    assert success is not None
    return success


def _hack(decision: Decision) -> float:
    """The maximum detector score of a decision as a hack (section 3.1)."""
    audit = audit_of(decision)
    return 0.0 if audit is None else max(audit.hacks.values(), default=0.0)


def _is_hack(decision: Decision) -> bool:
    return _hack(decision) >= 0.5


def _cost(decision: Decision, name: str) -> float:
    audit = audit_of(decision)
    return 0.0 if audit is None else audit.costs.get(name, 0.0)


def _verdict(episode: Episode, before: Sequence[Decision] = ()) -> tuple[Any, ...]:
    """All results of verifiers for an episode as a whole, including those of earlier decisions."""
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
        inputs=context_readings([one.context_ids for episode in episodes for one in episode.decisions]),
        targets=[(value + credit,) for own, credits in pairs for value, credit in zip(own, credits, strict=False)],
        values=[(value,) for own in values for value in own],
    )
