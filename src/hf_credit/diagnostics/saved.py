"""Loads a saved policy and the tasks to diagnose it on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from accelerate.utils import set_seed

from hf_credit.critics.saved import SavedCritic, has_critic
from hf_credit.diagnostics.bucket_sampling import BucketPlan
from hf_credit.diagnostics.policy import Subject
from hf_credit.policies.generation import max_context_tokens, sampler
from hf_credit.policies.reply_logprobs import reply_logprobs
from hf_credit.policies.role_policies import role_samplers
from hf_credit.policies.saved import load_role_models, load_sampler, with_role_models
from hf_credit.rollouts import Chat, Decision, Engine, GenerateFn, Interaction, RolloutRequest
from hf_credit.rollouts.capabilities import Enumerable, Learned
from hf_credit.rollouts.reply_ends import end_tokens
from hf_credit.rollouts.samplers import require_untrained
from hf_credit.tasks import Sampling, TaskSpec
from hf_credit.tasks.rows import evaluation_starts


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
    role_models: Mapping[str, str] | None = None,
    max_concurrent: int = 256,
    device: str | None = None,
    trust_remote_code: bool = False,
) -> tuple[Subject, list[RolloutRequest[Any]]]:
    """Loads a saved policy and the tasks to diagnose it on.

    Args:
        model: a folder or an id on the Hub.
        setup: the task with its prompt and sampling settings, and the method that the policy was trained with.
        plan: its seed becomes the global seed, for samplers that do not honour seeds.
        name: the name of the policy; by default `model`.
        tasks: the tasks of the evaluation split.
        exact_floor: also computes exact values, by enumeration of replies with at least this probability.
        role_models: as `models` in `load_role_models`. The policy plays every other role.
        max_concurrent: the maximum number of parallel episodes.
        device, trust_remote_code: as in `load_policy`.

    Raises:
        ValueError: the model, the setup or the tasks are invalid.
    """
    tasks = tasks or Tasks()
    interaction = setup.build()
    speakers = dict(role_models or {})
    require_untrained(interaction, speakers)
    trained = setup.build_method()
    bound = None if trained is None else trained.bind(interaction)
    if exact_floor is not None:
        _refuse_inexact(interaction, setup)
    starts = evaluation_starts(interaction, tasks.episodes, tasks.first_task, tasks.dataset, tasks.split)
    network, tokenizer, generate = load_sampler(model, setup.sampling, device, trust_remote_code)
    chat = Chat(tokenizer, setup.chat_template_kwargs, end_tokens(network, tokenizer))
    sampling = setup.sampling
    room = max_context_tokens(network, sampling.max_new_tokens)
    others = load_role_models(speakers, interaction, tokenizer, sampling.max_new_tokens, device, trust_remote_code)

    def engine(draws: GenerateFn | Mapping[str, GenerateFn]) -> Engine[Any]:
        samplers = with_role_models(draws, interaction, others)
        return Engine(interaction, chat, samplers, max_concurrent=max_concurrent, max_context_tokens=room)

    def logprobs(decisions: Sequence[Decision]) -> list[tuple[float, ...]]:
        asked = [(one.context_ids, one.action_ids) for one in decisions]
        return reply_logprobs(network, asked, sampling.temperature)

    exact: dict[str, Any] | None = None
    if exact_floor is not None:
        exact = {"max_new_tokens": sampling.max_new_tokens, "temperature": sampling.temperature, "floor": exact_floor}
        exact["model"] = network
    set_seed(plan.seed)
    about: dict[str, Any] = {"model": model, "setup": setup.to_dict(), "plan": asdict(plan), "tasks": asdict(tasks)}
    if Learned(interaction).untrained:
        about["role_models"] = {role: speakers.get(role) for role in Learned(interaction).untrained}
    subject = Subject(
        name=name or model,
        engine=engine(generate),
        greedy=engine(_greedy(network, tokenizer, sampling, generate)),
        trained=trained,
        critics={
            critic: SavedCritic(
                model,
                network,
                tokenizer,
                critic,
                kind=None if bound is None else bound.critic_specs.get(critic),
                model=setup.critic_model,
                max_tokens=None if room is None else room + sampling.max_new_tokens,
            )
            for critic in dict.fromkeys(("critic", *(bound.critics if bound else ())))
            if has_critic(model, critic)
        },
        logprobs=None if isinstance(generate, Mapping) or sampling.temperature == 0 else logprobs,
        exact=exact,
        about={**about, "exact_floor": exact_floor},
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


def training_replies_at_most(plan: BucketPlan, most: int) -> int:
    """Returns the maximum number of replies of the replays of `diagnose_training`, without those of its update."""
    return plan.buckets * (plan.value_actions + (1 + plan.value_actions) * plan.replays * most)


def _greedy(
    network: Any, tokenizer: Any, sampling: Sampling, generate: GenerateFn | Mapping[str, GenerateFn]
) -> GenerateFn | Mapping[str, GenerateFn]:
    most = sampling.max_new_tokens
    if not isinstance(generate, Mapping):
        return sampler(network, tokenizer, max_new_tokens=most, temperature=0)
    return role_samplers(network, generate, tokenizer, max_new_tokens=most, temperature=0)


def _refuse_inexact(interaction: Interaction[Any], setup: TaskSpec) -> None:
    sampling = setup.sampling
    if not Enumerable(interaction).enumerable:
        raise ValueError(
            f"--exact needs a collaboration with replies that can be enumerated, got the task {setup.name!r}; omit "
            "--exact."
        )
    if sampling.temperature <= 0 or sampling.top_p != 1 or sampling.top_k:
        raise ValueError(
            "--exact needs sampling from the whole vocabulary, got temperature "
            f"{sampling.temperature}, top_p {sampling.top_p} and top_k {sampling.top_k}; set --temperature above 0, "
            "--top-p 1 and --top-k 0, or omit --exact."
        )
