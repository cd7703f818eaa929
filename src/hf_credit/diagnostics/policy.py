"""Loads a saved policy with its tasks and diagnoses it: on buckets and attempts, or on the credit of an update."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from accelerate.utils import set_seed

from hf_credit.critics.saved import SavedCritic, has_critic
from hf_credit.diagnostics.bucket_credit import RememberedValues, standard_methods, with_exact_values
from hf_credit.diagnostics.bucket_sampling import BucketPlan, diagnostic_buckets
from hf_credit.diagnostics.diagnosis import Diagnosis, diagnose
from hf_credit.diagnostics.success import pass_at_k_by_instance
from hf_credit.diagnostics.training_credit import TrainedDecision, TrainingDiagnosis, exact_advantages, training_credit
from hf_credit.evaluation.play import attempt
from hf_credit.evaluation.statistics import SHARE, mean_with_interval
from hf_credit.methods import Method
from hf_credit.oracles import Oracle
from hf_credit.policies.saved import SavedPolicy
from hf_credit.redaction import public
from hf_credit.rollouts import Engine, RolloutRequest
from hf_credit.rollouts.capabilities import Enumerable
from hf_credit.rollouts.method_context import CriticInput, LocalContext, Logprobs
from hf_credit.tasks.rows import evaluation_starts
from hf_credit.tasks.spec import TaskSpec

Critic = Callable[[Sequence[CriticInput]], Sequence[tuple[float, ...]]]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A policy to diagnose.

    Attributes:
        engine: plays with the policy.
        greedy: plays with the policy at temperature 0, for `attempts`.
        trained: the method that it was trained with, if known.
        critics: its critics, by name.
        logprobs: computes log-probabilities of its tokens for methods that need them; by default those of the sampler.
        exact: the arguments of `exact_values` besides interaction, chat and states; `None` computes no exact values.
    """

    name: str
    engine: Engine[Any]
    greedy: Engine[Any] | None = None
    trained: Method | None = None
    critics: Mapping[str, Critic] = field(default_factory=dict)
    logprobs: Logprobs | None = None
    exact: Mapping[str, Any] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)

    def context(self, seed: int = 0) -> LocalContext:
        """Returns a context with the policy, its critics and, as the frozen copy, the policy itself."""
        remembered = {name: RememberedValues(critic) for name, critic in self.critics.items()}
        return LocalContext(self.engine, remembered, seed, self.engine, self.logprobs)


def diagnose_policy(
    subject: Subject,
    starts: Sequence[RolloutRequest[Any]],
    plan: BucketPlan,
    *,
    methods: Mapping[str, Method] | None = None,
    oracle: Oracle[Any] | None = None,
    attempts: int = 0,
    credit_replays: int = 1,
) -> Diagnosis:
    """Samples buckets of a policy and diagnoses them, and measures greedy success and pass@k if `attempts` is not 0.

    Args:
        starts: the tasks, one start each.
        plan: the numbers of buckets, candidates and replays.
        methods: methods to measure besides those of `standard_methods`, by the name to show.
        oracle: judges the candidates.
        attempts: sampled episodes per task for pass@k, besides a greedy one; 0 plays none.
        credit_replays: as in `diagnose`.

    Raises:
        ValueError: a number or a method is invalid.
    """
    if attempts and subject.greedy is None:
        raise ValueError("attempts need a greedy engine, got none; pass one, or 0 attempts.")
    engine = subject.engine
    asked = {label: method.bind(engine.interaction) for label, method in (methods or {}).items()}
    buckets, cost = diagnostic_buckets(engine, starts, plan, oracle=oracle)
    if subject.exact is not None:
        buckets = with_exact_values(buckets, engine.interaction, engine.chat, **subject.exact)
    shares: dict[str, list[float]] = {}
    if attempts and subject.greedy is not None:
        once, played_once = attempt(subject.greedy, starts, 1, plan.seed)
        often, played = attempt(engine, starts, attempts, plan.seed)
        shares = {"greedy": pass_at_k_by_instance(once, 1)}
        shares |= {f"pass@{k}": pass_at_k_by_instance(often, k) for k in (1, attempts)}
        cost += played_once + played
    standard = standard_methods(buckets, subject.trained, oracle)
    asked = {**{label: method.bind(engine.interaction) for label, method in standard.items()}, **asked}
    about = {**subject.about, "attempts": attempts, "credit_replays": credit_replays}
    return diagnose(
        subject.name,
        buckets,
        asked,
        subject.context(plan.seed),
        success={name: mean_with_interval(values, within=SHARE) for name, values in shares.items()},
        cost=cost,
        about={**about, "methods": {label: method.spec() for label, method in asked.items()}},
        credit_replays=credit_replays,
    )


def diagnose_training(
    subject: Subject,
    starts: Sequence[RolloutRequest[Any]],
    plan: BucketPlan,
    methods: Mapping[str, Method] | None = None,
) -> list[TrainingDiagnosis]:
    """Measures the credit of a training update with each method.

    Args:
        starts: the tasks of the update, one start each; their seeds become those of the task rows.
        plan: as in `training_credit`.
        methods: the methods to measure, by the name to show; by default the method that the policy was trained with.

    Raises:
        ValueError: no method is named or known, a method needs a critic that the policy lacks, or as
            `training_credit`.
    """
    asked = dict(methods or {})
    if not asked:
        if subject.trained is None:
            raise ValueError(
                f"the credit of training needs a method, got none and none is recorded for {subject.name!r}; name one."
            )
        asked = {subject.trained.name: subject.trained}
    engine, exact = subject.engine, subject.exact
    for method in asked.values():
        for critic in method.bind(engine.interaction).critics:
            subject.context().values([], critic)  # an error before the first plays

    def advantages(decisions: Sequence[TrainedDecision]) -> list[float]:
        return exact_advantages(engine.interaction, engine.chat, decisions=decisions, **(exact or {}))

    rows = [start.task if start.seed is None else {**start.task, "seed": start.seed} for start in starts]
    settings: dict[str, Any] = {"name": subject.name, "exact": None if exact is None else advantages}
    found = []
    for label, method in asked.items():
        about = {**subject.about, "method": method.spec(), "rows": len(rows)}
        measured = training_credit(method, subject.context(plan.seed), rows, plan, about=about, **settings)
        found.append(replace(measured, method=label))
    return found


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """The tasks to play, with the arguments of `hf_credit.tasks.rows.evaluation_starts`."""

    episodes: int | None = None
    first_task: int = 0
    dataset: str | None = None
    split: str = "test"


def load_subject(
    model: str,
    setup: TaskSpec,
    plan: BucketPlan,
    *,
    name: str | None = None,
    tasks: Tasks | None = None,
    exact_floor: float | None = None,
    max_concurrent: int = 256,
    **loading: Any,
) -> tuple[Subject, list[RolloutRequest[Any]]]:
    """Loads a saved policy and the tasks to diagnose it on.

    Args:
        model: a folder or an id on the Hub.
        setup: the task with its prompt and sampling settings, and the method that the policy was trained with.
        plan: its seed becomes the global seed, for samplers that do not honour seeds.
        name: the name of the policy; by default `model`.
        tasks: the tasks of the evaluation split.
        exact_floor: also computes exact values, by enumeration of replies with at least this probability.
        max_concurrent: the maximum number of parallel episodes.
        **loading: as for `hf_credit.policies.saved.SavedPolicy`.

    Raises:
        ValueError: the model, the setup or the tasks are invalid.
    """
    tasks = tasks or Tasks()
    interaction = setup.build()
    trained = setup.build_method()
    bound = None if trained is None else trained.bind(interaction)
    if exact_floor is not None:
        if not Enumerable(interaction).enumerable:
            raise ValueError(
                f"--exact needs a collaboration with replies that can be enumerated, got the task {setup.task!r}; "
                "omit --exact."
            )
        setup.sampling.require_whole()
    starts = evaluation_starts(interaction, tasks.episodes, tasks.first_task, tasks.dataset, tasks.split)
    policy = SavedPolicy(model, setup, interaction, **loading)
    sampling, room = setup.sampling, policy.max_context_tokens
    set_seed(plan.seed)
    subject = Subject(
        name=name or public(model),
        engine=policy.engine(max_concurrent=max_concurrent),
        greedy=policy.engine(greedy=True, max_concurrent=max_concurrent),
        trained=trained,
        critics={
            critic: SavedCritic(
                model,
                policy.network,
                policy.tokenizer,
                critic,
                kind=None if bound is None else bound.critic_specs.get(critic),
                model=setup.critic_model,
                max_tokens=None if room is None else room + sampling.max_new_tokens,
            )
            for critic in dict.fromkeys(("critic", *(bound.critics if bound else ())))
            if has_critic(model, critic)
        },
        logprobs=None if isinstance(policy.generate, Mapping) or sampling.temperature == 0 else policy.logprobs,
        exact=None if exact_floor is None else {"model": policy.network, "floor": exact_floor, **vars(sampling)},
        about={**policy.about(), "plan": asdict(plan), "tasks": public(asdict(tasks)), "exact_floor": exact_floor},
    )
    return subject, starts


def replies_at_most(episodes: int, most: int, plan: BucketPlan, attempts: int) -> int:
    """Returns the maximum number of replies of a diagnosis, for a progress bar.

    Args:
        most: the maximum number of replies per episode.
        plan, attempts: as in `diagnose_policy`.
    """
    replayed = (plan.candidates + plan.value_actions) * plan.replays * most
    played = episodes * most * (1 + attempts + bool(attempts))
    return played + plan.buckets * (plan.draws + plan.value_actions + replayed)
