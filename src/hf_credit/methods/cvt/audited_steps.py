"""Audited episodes, and continuations from replacements of their steps (paper CVT-RL, section 3.2, Algorithm 1)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated, Any, ClassVar, Literal, Self

from hf_credit.boundary import Range
from hf_credit.collectors.base import Around, Collector, Rollout, RolloutBatch, Single, TaskRow
from hf_credit.collectors.forks import fork
from hf_credit.credit import StepSelector, inclusion_probabilities, systematic_sample
from hf_credit.critics.inputs import context_inputs
from hf_credit.methods.cvt.audits import audit_of, audited, verified_success
from hf_credit.methods.cvt.interventions import Branch, Branches, Gate, branches
from hf_credit.options import Count, Options, Positive, filled_by_factory
from hf_credit.oracles.auditing import AuditorLike, InterventionsLike, resolve_auditor, resolve_interventions
from hf_credit.rollouts import Decision, Ending, Episode, Interaction
from hf_credit.rollouts.capabilities import Acting, Auditable
from hf_credit.rollouts.method_context import CriticInput, MethodContext, Policy

REPLACEMENT = "cvt.replacement"
"""The key in `Rollout.extras` of the `Replacement` of a drawn step."""

Features = tuple[float, ...]
"""The features of a step for a selector."""


def counterfactual(family: str) -> str:
    """Returns the kind of a rollout from a replacement of this family."""
    return f"counterfactual {family}"


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """The replacement of a drawn step."""

    probability: float = 1.0  # the probability with which the step was drawn
    features: Features = ()  # the features of the step for the selector; empty without a selector
    reply: tuple[int, ...] = ()  # the tokens of the replacement


def replacement_of(rollout: Rollout) -> Replacement:
    """Returns the `Replacement` of a rollout of kind `counterfactual`; the default if its collector stored none."""
    return rollout.extras.get(REPLACEMENT, Replacement())


@dataclass(frozen=True, kw_only=True)
class AuditedSteps(Options, Around):
    """The audited episodes of another collector, and counterfactual continuations from some of their steps.

    Steps are drawn with known probabilities, which increase with the score of the memory's `selector`. At each drawn
    step every applicable family of interventions proposes replacements, and the frozen policy continues from the state
    after each replacement that passes the gate. These rollouts serve only for comparison: their kind is
    `counterfactual(family)`, their `source` the decision, and `replacement_of` returns the replacement. Failed
    episodes have none.

    Args:
        inner: the collector of the episodes to train on.
        steps: L, the mean number of drawn steps per episode.
        branches: K, number of continuations of each family at a drawn step.
        families: the families of interventions; all if `None`.
        floor: the minimum probability of drawing a step.
        counterfactuals: what is played at drawn steps: `"branches"`; `"random"`, branches that are each compared with
            another step, an uninformative control of the same cost; `"extra"`, as many episodes of the policy from
            the step, which are trained on; or `"none"`.
        gate: whether proposals must pass the gate; if not, only the task rejects proposals.
        policy: plays the continuations: the `"frozen"` copy, or the `"current"` policy.
        probe_every: number of updates after which the frozen copy is refreshed. In the last update before that, the
            current policy also plays the same branches, to log the drift of contributions; never if `None`.
        auditor: judges steps: an auditor, its name, or a mapping with `name` and `options`; the Interaction's auditor
            if `None`.
        interventions: propose replacements: interventions, their name, or a mapping with `name` and `options`; those
            of the Interaction if `None`.
    """

    adds: ClassVar[frozenset[str]] = frozenset({"audits"})

    inner: Collector = filled_by_factory(make=Single)
    steps: Positive = 8.0
    branches: Count = 4
    families: tuple[str, ...] | None = filled_by_factory(None)
    floor: Annotated[float, Range(above=0, most=1)] = 0.15
    counterfactuals: Literal["branches", "random", "extra", "none"] = "branches"
    gate: bool = True
    policy: Policy = filled_by_factory("frozen")
    probe_every: int | None = filled_by_factory(None)
    auditor: AuditorLike | None = None
    interventions: InterventionsLike | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "auditor", resolve_auditor(self.auditor))
        object.__setattr__(self, "interventions", resolve_interventions(self.interventions))

    @property
    def replaying(self) -> bool:
        """Whether it or its inner collector replays recorded states."""
        return self.counterfactuals != "none" or super().replaying

    def bind(self, interaction: Interaction[Any]) -> Self:
        """Returns the collector with the auditor and interventions of an Interaction, if it has none.

        Raises:
            ValueError: the Interaction has none either, the auditor does not fit it, or a family is unknown.
        """
        auditor = Auditable(interaction).check_auditor(resolve_auditor(self.auditor))
        interventions = resolve_interventions(self.interventions) or Auditable(interaction).default_interventions()
        if auditor is None or (interventions is None and self.counterfactuals != "none"):
            what = "an auditor" if auditor is None else "interventions"
            raise ValueError(
                f"counterfactual credit needs {what}, got none for {interaction.name!r}, which has no default; pass "
                f"{what.split()[-1]}=, or play the environment 'evidence'."
            )
        known = () if interventions is None else interventions.families
        unknown = [name for name in self.families or () if name not in known]
        if unknown and self.counterfactuals != "none":
            raise ValueError(f"families must be among {', '.join(known)}, got {unknown[0]!r}; use these.")
        return replace(super().bind(interaction), auditor=auditor, interventions=interventions)

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        collected = self.inner(rows, context, memory)
        collected = replace(collected, rollouts=self._audited(collected.rollouts, context))
        if self.counterfactuals == "none":
            return collected
        selector = None if self.counterfactuals == "extra" else getattr(memory, "selector", None)
        features = {} if selector is None else self._features(collected, context)
        drawn = self._drawn(collected, context, selector, features)
        if self.counterfactuals == "extra":
            more = self._extra(drawn, context)
        else:
            more = self._replaced(drawn, features, context)
        return replace(collected, rollouts=(*collected.rollouts, *self._audited(more, context)))

    def _audited(self, rollouts: Sequence[Rollout], context: MethodContext) -> tuple[Rollout, ...]:
        began = time.perf_counter()
        episodes = self._audited_episodes([one.episode for one in rollouts], context)
        context.log("auditor/seconds", time.perf_counter() - began)
        return tuple(replace(one, episode=episode) for one, episode in zip(rollouts, episodes, strict=True))

    def _audited_episodes(self, episodes: Sequence[Episode], context: MethodContext) -> list[Episode]:
        auditor = resolve_auditor(self.auditor)
        assert auditor is not None, "bind it to an Interaction"
        return audited(episodes, auditor, context.interaction, context.failures)

    def _features(self, collected: RolloutBatch, context: MethodContext) -> dict[str, Features]:
        """The features of each decision, by id, from forward passes of the policy and the critic."""
        episodes = [one.episode for one in collected.trained if one.episode.ending != Ending.ERROR]
        values = [[value for (value,) in own] for own in context_values(episodes, context)]
        of_decisions = iter(context.logprobs([decision for episode in episodes for decision in episode.decisions]))
        logprobs = [[next(of_decisions) for _ in episode.decisions] for episode in episodes]
        return {
            decision.id: features
            for episode, predicted, own in zip(episodes, values, logprobs, strict=True)
            for decision, features in zip(episode.decisions, step_features(episode, predicted, own), strict=True)
        }

    def _drawn(
        self,
        collected: RolloutBatch,
        context: MethodContext,
        selector: StepSelector | None,
        features: Mapping[str, Features],
    ) -> list[tuple[Rollout, int, float]]:
        rollouts = [one for one in collected.trained if one.episode.ending != Ending.ERROR]
        drawn, lowered = [], 0
        for number, rollout in enumerate(rollouts):
            count = len(rollout.episode.decisions)
            if not count:
                continue
            of_steps = [features.get(one.id, ()) for one in rollout.episode.decisions]
            scores = [1.0] * count if selector is None else selector.scores(of_steps)
            probabilities = inclusion_probabilities(scores, float(self.steps), self.floor)
            lowered += self.floor * count > self.steps
            uniform = context.draws("steps", number).random()
            drawn += [(rollout, index, probabilities[index]) for index in systematic_sample(probabilities, uniform)]
        context.total("selection/steps", len(drawn))
        context.total("selection/floor_lowered", lowered)
        context.mean("selection/probability", [probability for _, _, probability in drawn])
        return drawn

    def _applicable(self, decision: Decision, context: MethodContext) -> list[str]:
        interventions = resolve_interventions(self.interventions)
        assert interventions is not None, "bind it to an Interaction"
        world, action = Acting(context.interaction).action_of(decision.state, decision.action_text)
        names = interventions.families if self.families is None else self.families
        return [name for name in names if action and interventions.applies(world, action, name)]

    def _extra(self, drawn: Sequence[tuple[Rollout, int, float]], context: MethodContext) -> list[Rollout]:
        origins = [
            (rollout, index)
            for rollout, index, _ in drawn
            for _ in self._applicable(rollout.episode.decisions[index], context)
            for _ in range(self.branches)
        ]
        seeds = [context.draws("extra", number).randrange(2**31) for number in range(len(origins))]
        return [replace(one, counted=False) for one in fork(origins, seeds, context)]

    def _replaced(
        self, drawn: Sequence[tuple[Rollout, int, float]], features: Mapping[str, Features], context: MethodContext
    ) -> list[Rollout]:
        interventions = resolve_interventions(self.interventions)
        assert interventions is not None, "bind it to an Interaction"
        replaced: list[tuple[Rollout, Decision, float, str, Branch]] = []
        by_family: dict[str, list[Branches]] = {}
        gate = Gate() if self.gate else Gate(support=0.0, entailment=0.0)
        for number, (rollout, index, probability) in enumerate(drawn):
            decision = rollout.episode.decisions[index]
            draws = context.draws("interventions", number)
            for family in self._applicable(decision, context):
                where = (context.interaction, context.chat, decision, interventions, family)
                proposed = branches(*where, self.branches, draws, gate, context.failures)
                by_family.setdefault(family, []).append(proposed)
                replaced += [(rollout, decision, probability, family, branch) for branch in proposed.branches]
        for family, of_family in by_family.items():
            invalid = sum(one.invalid for one in of_family)
            valid = sum(one.proposals for one in of_family) - invalid
            context.mean(f"interventions/{family}/invalid", [1.0] * invalid + [0.0] * valid)
            context.total(f"interventions/{family}/missing", sum(not one.branches for one in of_family))
        sources = [decision.id for _, decision, *_ in replaced]
        if self.counterfactuals == "random":
            sources, features = _of_other_steps(sources, context), {}
        starts = [branch.start for *_, branch in replaced]
        played = context.play(starts, policy=self.policy)
        if self.probe_every is not None and context.update % self.probe_every == 0:
            current = context.play(starts, policy="current")
            self._log_drift([(one[1].id, one[3]) for one in replaced], (played, current), context)
        context.total("tokens/counterfactual", sum(episode.generated_tokens for episode in played))
        rollouts, q = [], {decision.id: probability for _, decision, probability, *_ in replaced}
        for episode, source, (rollout, *_, family, branch) in zip(played, sources, replaced, strict=True):
            known = features.get(source, ())
            replacement = Replacement(probability=q[source], features=known, reply=branch.action_ids)
            comparison = Rollout(episode=episode, instance=rollout.instance, trained=False, source=source)
            rollouts.append(replace(comparison, kind=counterfactual(family), extras={REPLACEMENT: replacement}))
        return rollouts

    def _log_drift(
        self, keys: Sequence[tuple[str, str]], of_policies: Sequence[Sequence[Episode]], context: MethodContext
    ) -> None:
        """Logs the mean over steps and families of |mean success of the frozen policy - that of the current one|."""
        means = []
        for episodes in of_policies:
            successes: dict[tuple[str, str], list[float]] = {}
            for key, one in zip(keys, self._audited_episodes(episodes, context), strict=True):
                success = verified_success(one)
                if success is not None and one.ending != Ending.ERROR:
                    successes.setdefault(key, []).append(success)
            means.append({key: fmean(own) for key, own in successes.items()})
        before, now = means
        context.mean("branches/drift", [abs(mean - now[key]) for key, mean in before.items() if key in now])


def decision_inputs(episodes: Sequence[Episode]) -> list[CriticInput]:
    """Returns a critic's input for the context of each decision, in order."""
    return context_inputs([decision.context_ids for episode in episodes for decision in episode.decisions])


def context_values(
    episodes: Sequence[Episode], context: MethodContext, critic: str = "critic"
) -> list[list[tuple[float, ...]]]:
    """Returns a critic's output for each decision's context, by episode; call it on all processes at the same time."""
    values = iter(context.values(decision_inputs(episodes), critic))
    return [[next(values) for _ in episode.decisions] for episode in episodes]


def step_features(episode: Episode, values: Sequence[float], logprobs: Sequence[Sequence[float]]) -> list[Features]:
    """Returns the features of each step of an audited episode (paper CVT-RL, Appendix A.2).

    They are the drop of the mean log-probability per token from the step before, in nats; the absolute temporal
    difference of the critic; the absolute change of the verifier's uncertainty; the number of arguments of the action;
    whether its arguments are new; and whether its kind with these arguments is new. All are 0 without an audit.

    Args:
        episode: an episode with an audit of each decision.
        values: the critic's value of the context of each decision.
        logprobs: the log-probabilities of the tokens of each decision under the policy, in nats.
    """
    actions: set[tuple[str, str]] = set()
    known_arguments: set[str] = set()
    features: list[Features] = []
    before = None
    for index, decision in enumerate(episode.decisions):
        audit = audit_of(decision)
        mean = sum(logprobs[index]) / max(len(logprobs[index]), 1)
        after = values[index + 1] if index + 1 < len(values) else episode.outcome
        if audit is None:
            features.append((0.0,) * 6)
            continue
        arguments = str(sorted(audit.arguments.items()))
        features.append(
            (
                (before - mean) if before is not None else 0.0,
                abs(after - values[index]),
                abs(audit.uncertainty[0] - audit.uncertainty[1]),
                float(len(audit.arguments)),
                float(bool(audit.arguments) and arguments not in known_arguments),
                float((audit.kind, arguments) not in actions),
            )
        )
        actions.add((audit.kind, arguments))
        known_arguments.add(arguments)
        before = mean
    return features


def _of_other_steps(sources: Sequence[str], context: MethodContext) -> list[str]:
    """The ids of other drawn steps in place of `sources`; equal ids have the same substitute."""
    distinct = list(dict.fromkeys(sources))
    shift = context.draws("others").randrange(1, len(distinct)) if len(distinct) > 1 else 0
    other = {name: distinct[(index + shift) % len(distinct)] for index, name in enumerate(distinct)}
    return [other[name] for name in sources]
