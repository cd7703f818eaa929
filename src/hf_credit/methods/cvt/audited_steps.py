"""Audited episodes, and their continuations from replaced steps (paper CVT-RL, section 3.2 and Algorithm 1)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Annotated, Any, Literal, Protocol

from hf_credit.collectors.base import Collector, Rollout, RolloutBatch, Single, TaskRow, bound, gives_of
from hf_credit.collectors.forks import fork
from hf_credit.credit import inclusion_probabilities, systematic_sample
from hf_credit.critics.readings import context_readings
from hf_credit.methods.cvt.audits import audit_of, audited, verified_success
from hf_credit.methods.cvt.interventions import Branch, Branches, Gate, branches
from hf_credit.options import Count, Options, Positive, Range, filled_by_factory
from hf_credit.oracles.auditors import AuditorLike, InterventionsLike, resolve_auditor, resolve_interventions
from hf_credit.rollouts import Decision, Ending, Episode, Interaction
from hf_credit.rollouts.capabilities import Acting, Auditable
from hf_credit.rollouts.method_context import MethodContext, Policy

COUNTERFACTUAL = "counterfactual"
REPLACEMENT = "cvt.replacement"
"""The key in `Rollout.extras` of the `Replacement` of a drawn step."""

Features = tuple[float, ...]
"""The features of a step for a selector."""


def counterfactual(family: str) -> str:
    """The kind of a rollout in which a step was replaced."""
    return f"{COUNTERFACTUAL} {family}"


@dataclass(frozen=True, kw_only=True)
class Replacement:
    """A drawn step, and its replacement.

    Attributes:
        probability: with which the step was drawn.
        features: its features for the selector; empty without a selector.
        reply: the tokens of the replacement.
    """

    probability: float = 1.0
    features: Features = ()
    reply: tuple[int, ...] = ()


def replacement_of(rollout: Rollout) -> Replacement:
    """The `Replacement` of a rollout whose kind is a `counterfactual`; the defaults if its collector stored none."""
    replacement: Replacement = rollout.extras.get(REPLACEMENT, Replacement())
    return replacement


class Scores(Protocol):
    """Predicts the probability that a step is informative."""

    @property
    def fitted(self) -> bool: ...

    def scores(self, features: Sequence[Sequence[float]]) -> list[float]: ...


@dataclass(frozen=True, kw_only=True)
class AuditedSteps(Options):
    """The audited episodes of another collector, and counterfactual continuations of some of their steps.

    Steps are drawn with known probabilities, which increase with the score of the memory's `selector`. At each drawn
    step every applicable family proposes alternatives; the frozen policy plays on from the state after those that pass
    the gate. Such rollouts serve only for comparison: their kind is `counterfactual` and the family, their `source`
    the decision, and `replacement_of` returns the replacement. Failed episodes have none.

    Args:
        inner: plays the episodes to train on.
        steps: L, the mean number of drawn steps per episode.
        branches: K, continuations of each family at a drawn step.
        families: of these interventions; all if `None`.
        floor: the minimum probability of a step.
        counterfactuals: what is played at drawn steps: `"branches"`; `"random"`, the same, but each compared with
            another step, as an uninformative control of the same cost; `"extra"`, as many further episodes from there,
            by the policy itself and trained on; or `"none"`.
        gate: whether proposals must pass the gate; otherwise only those that the task rejects are invalid.
        policy: plays the continuations: the `"frozen"` copy, or the `"current"` policy.
        probe_every: number of updates after which the copy is refreshed. In the last update before that, the current
            policy also plays the same branches, to log the drift of contributions; `None`: never.
        auditor: judges steps; an auditor, its name, or a mapping of `name` and `options`; the Interaction's own if
            `None`.
        interventions: the replacements of steps, likewise.

    Raises:
        ValueError: a setting is out of range.
    """

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
        """Whether it or its inner collector plays on from states."""
        return self.counterfactuals != "none" or bool(getattr(self.inner, "replaying", False))

    @property
    def gives(self) -> frozenset[str]:
        """What `inner` gives, and audits."""
        return gives_of(self.inner) | {"audits"}

    def bind(self, interaction: Interaction[Any]) -> AuditedSteps:
        """The same with the auditor and the interventions of an Interaction, if none are given.

        Raises:
            ValueError: there are none, the auditor does not fit, or a family is not among the interventions'.
        """
        auditor = Auditable(interaction).check_auditor(resolve_auditor(self.auditor))
        interventions = resolve_interventions(self.interventions) or Auditable(interaction).default_interventions()
        if auditor is None or (interventions is None and self.counterfactuals != "none"):
            what = "an auditor" if auditor is None else "interventions"
            raise ValueError(
                f"counterfactual credit needs {what}, got none and {interaction.name!r} has none of its own; pass "
                f"{what.split()[-1]}=, or play the environment 'evidence'."
            )
        known = () if interventions is None else interventions.families
        unknown = [name for name in self.families or () if name not in known]
        if unknown and self.counterfactuals != "none":
            raise ValueError(f"families must be among {', '.join(known)}, got {unknown[0]!r}; name these.")
        inner = bound(self.inner, interaction)
        return replace(self, auditor=auditor, interventions=interventions, inner=inner)

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
        begun = time.perf_counter()
        episodes = self._judged([one.episode for one in rollouts], context)
        context.log("auditor/seconds", time.perf_counter() - begun)
        return tuple(replace(one, episode=episode) for one, episode in zip(rollouts, episodes, strict=True))

    def _judged(self, episodes: Sequence[Episode], context: MethodContext) -> list[Episode]:
        auditor = resolve_auditor(self.auditor)
        assert auditor is not None, "bind it to an Interaction"
        return audited(episodes, auditor, context.interaction, context.failures)

    def _features(self, collected: RolloutBatch, context: MethodContext) -> dict[str, Features]:
        """The features of each decision, by its id, from passes of the policy and the critic."""
        episodes = [one.episode for one in collected.trained if one.episode.ending != Ending.ERROR]
        values = context_values(episodes, context)
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
        selector: Scores | None,
        features: Mapping[str, Features],
    ) -> list[tuple[Rollout, int, float]]:
        """The drawn steps: a rollout, the index of the decision, and its probability."""
        rollouts = [one for one in collected.trained if one.episode.ending != Ending.ERROR]
        drawn, lowered = [], 0
        for place, rollout in enumerate(rollouts):
            count = len(rollout.episode.decisions)
            if not count:
                continue
            scores = [1.0] * count
            if selector is not None and selector.fitted:
                scores = selector.scores([features[one.id] for one in rollout.episode.decisions])
            probabilities = inclusion_probabilities(scores, float(self.steps), self.floor)
            lowered += self.floor * count > self.steps
            uniform = context.draws("steps", place).random()
            drawn += [(rollout, index, probabilities[index]) for index in systematic_sample(probabilities, uniform)]
        context.total("selection/steps", len(drawn))
        context.total("selection/floor_lowered", lowered)
        context.mean("selection/probability", [probability for _, _, probability in drawn])
        return drawn

    def _applying(self, decision: Decision, context: MethodContext) -> list[str]:
        interventions = resolve_interventions(self.interventions)
        assert interventions is not None, "bind it to an Interaction"
        world, action = Acting(context.interaction).action_of(decision.state, decision.action_text)
        names = interventions.families if self.families is None else self.families
        return [name for name in names if action and interventions.applies(world, action, name)]

    def _extra(self, drawn: Sequence[tuple[Rollout, int, float]], context: MethodContext) -> list[Rollout]:
        origins = [
            (rollout, index)
            for rollout, index, _ in drawn
            for _ in self._applying(rollout.episode.decisions[index], context)
            for _ in range(self.branches)
        ]
        seeds = [context.draws("extra", place).randrange(2**31) for place in range(len(origins))]
        return [replace(one, counted=False) for one in fork(origins, seeds, context)]

    def _replaced(
        self, drawn: Sequence[tuple[Rollout, int, float]], features: Mapping[str, Features], context: MethodContext
    ) -> list[Rollout]:
        interventions = resolve_interventions(self.interventions)
        assert interventions is not None, "bind it to an Interaction"
        made: list[tuple[Rollout, Decision, float, str, Branch]] = []
        of_family: dict[str, list[Branches]] = {}
        gate = Gate() if self.gate else Gate(support=0.0, entailment=0.0)
        for place, (rollout, index, probability) in enumerate(drawn):
            decision = rollout.episode.decisions[index]
            draws = context.draws("interventions", place)
            for family in self._applying(decision, context):
                found = branches(
                    context.interaction,
                    context.chat,
                    decision,
                    interventions,
                    family,
                    self.branches,
                    draws,
                    gate,
                    context.failures,
                )
                of_family.setdefault(family, []).append(found)
                made += [(rollout, decision, probability, family, branch) for branch in found.branches]
        for family, proposed in of_family.items():
            invalid = sum(one.invalid for one in proposed)
            sound = sum(one.proposals for one in proposed) - invalid
            context.mean(f"interventions/{family}/invalid", [1.0] * invalid + [0.0] * sound)
            context.total(f"interventions/{family}/missing", sum(not one.branches for one in proposed))
        sources = [one[1].id for one in made]
        if self.counterfactuals == "random":
            sources = _of_others(sources, context)
        starts = [one[4].start for one in made]
        played = context.play(starts, policy=self.policy)
        if self.probe_every is not None and context.update % self.probe_every == 0:
            again = context.play(starts, policy="current")
            self._log_drift([(one[1].id, one[3]) for one in made], played, again, context)
        context.total("tokens/counterfactual", sum(episode.generated_tokens for episode in played))
        return [
            Rollout(
                episode=episode,
                instance=rollout.instance,
                trained=False,
                kind=counterfactual(family),
                source=source,
                extras={
                    REPLACEMENT: Replacement(
                        probability=probability, features=features.get(source, ()), reply=branch.action_ids
                    )
                },
            )
            for episode, source, (rollout, _, probability, family, branch) in zip(played, sources, made, strict=True)
        ]

    def _log_drift(
        self,
        families: Sequence[tuple[str, str]],
        played: Sequence[Episode],
        again: Sequence[Episode],
        context: MethodContext,
    ) -> None:
        """The mean over steps and families of the difference of their means, including the noise of both."""
        means = []
        for episodes in (played, again):
            found: dict[tuple[str, str], list[float]] = {}
            for place, one in zip(families, self._judged(episodes, context), strict=True):
                success = verified_success(one)
                if success is not None and one.ending != Ending.ERROR:
                    found.setdefault(place, []).append(success)
            means.append({place: fmean(own) for place, own in found.items()})
        before, now = means
        differences = [abs(value - now[place]) for place, value in before.items() if place in now]
        context.mean("contribution/drift", differences)


def context_values(episodes: Sequence[Episode], context: MethodContext) -> list[list[float]]:
    """The value of each decision's context, by episode; called on all processes at the same time."""
    contexts = [decision.context_ids for episode in episodes for decision in episode.decisions]
    values = iter(context.values(context_readings(contexts)))
    return [[next(values)[0] for _ in episode.decisions] for episode in episodes]


def step_features(episode: Episode, values: Sequence[float], logprobs: Sequence[Sequence[float]]) -> list[Features]:
    """The features of each step of an audited episode (paper CVT-RL, Appendix A.2).

    The drop of the mean log-probability of a token from the step before; the error of the critic over the step; the
    change of the verifier's uncertainty; the number of arguments of the action; whether it retrieved new evidence; and
    whether it was the first of its kind with these arguments.

    Args:
        episode: with an audit of each decision.
        values: of the contexts of these.
        logprobs: of the tokens of each under the policy, in nats.
    """
    seen: set[tuple[str, str]] = set()
    arguments: set[str] = set()
    found: list[Features] = []
    before = None
    for place, decision in enumerate(episode.decisions):
        audit = audit_of(decision)
        mean = sum(logprobs[place]) / max(len(logprobs[place]), 1)
        after = values[place + 1] if place + 1 < len(values) else episode.outcome
        if audit is None:
            found.append((0.0,) * 6)
            continue
        given = str(sorted(audit.arguments.items()))
        found.append(
            (
                (before - mean) if before is not None else 0.0,
                abs(after - values[place]),
                abs(audit.uncertainty[0] - audit.uncertainty[1]),
                float(len(audit.arguments)),
                float(bool(audit.arguments) and given not in arguments),
                float((audit.kind, given) not in seen),
            )
        )
        seen.add((audit.kind, given))
        arguments.add(given)
        before = mean
    return found


def _of_others(sources: Sequence[str], context: MethodContext) -> list[str]:
    """Each branch assigned to another drawn step, all branches of a step to the same."""
    own = list(dict.fromkeys(sources))
    shift = context.draws("others").randrange(1, len(own)) if len(own) > 1 else 0
    other = {name: own[(place + shift) % len(own)] for place, name in enumerate(own)}
    return [other[name] for name in sources]
