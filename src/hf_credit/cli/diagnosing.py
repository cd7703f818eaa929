"""A saved policy, diagnosed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from transformers import set_seed

from hf_credit.cli.critics import saved_critic
from hf_credit.cli.evaluating import judge_of, load_sampler
from hf_credit.cli.tasks import evaluation_starts, open_task
from hf_credit.collaborations import Collaboration
from hf_credit.diagnostics import pass_at_k_by_instance
from hf_credit.diagnostics.bucket_credit import with_exact_values
from hf_credit.diagnostics.bucket_sampling import BucketPlan, diagnostic_buckets
from hf_credit.diagnostics.buckets import Bucket
from hf_credit.diagnostics.diagnosis import Diagnosis, diagnose, mean_with_interval
from hf_credit.evaluation.attempts import attempt
from hf_credit.evaluation.setup import GameSetup, Sampling
from hf_credit.evaluation.statistics import Interval
from hf_credit.oracles import Oracle
from hf_credit.policies.generation import room_for_context, sampler
from hf_credit.policies.role_policies import RoleSampler
from hf_credit.rollouts import Chat, Engine, GenerateFn, Interaction, Ledger, Start
from hf_credit.rollouts.samplers import counted


@dataclass(frozen=True, kw_only=True)
class Tasks:
    """Which tasks are played, as for `hf_credit.cli.tasks.evaluation_starts`."""

    episodes: int | None = None
    first_task: int = 0
    dataset: str | None = None
    split: str = "test"


def diagnose_model(
    model: str,
    setup: GameSetup,
    plan: BucketPlan,
    *,
    name: str | None = None,
    tasks: Tasks | None = None,
    attempts: int = 0,
    credit_replays: int = 1,
    exact_floor: float | None = None,
    oracle: Oracle[Any] | None = None,
    max_concurrent: int = 256,
    device: str | None = None,
    on_replies: Callable[[int], None] | None = None,
) -> Diagnosis:
    """Samples buckets of a saved policy and measures what they say; plays it for greedy and pass@k on request.

    Args:
        model: a folder or an id on the Hub.
        setup: the task, how it is shown and how replies are drawn.
        plan: of the buckets.
        name: of the policy; the model if `None`.
        tasks: of the evaluation split.
        attempts: for pass@k, drawn episodes at each task, and one greedy one; none if 0.
        credit_replays: as in `diagnose`.
        exact_floor: with it, the true values by enumeration, leaving out replies less probable than this.
        oracle: judges the actions of a game; the game's own if `None`.
        max_concurrent: episodes under way at once.
        device: as in `load_policy`.
        on_replies: told after each round how many replies it brought.

    Raises:
        ValueError: the model, the setup, the tasks or a number are not possible, in one sentence.
    """
    tasks = tasks or Tasks()
    interaction = open_task(setup)
    oracle = judge_of(interaction, setup, oracle)
    if exact_floor is not None:
        _refuse_inexact(interaction, setup)
    starts = evaluation_starts(setup, interaction, tasks.episodes, tasks.first_task, tasks.dataset, tasks.split)
    network, tokenizer, generate = load_sampler(model, setup.sampling, device)
    chat = Chat(tokenizer, setup.chat_template_kwargs)
    room = room_for_context(network, setup.sampling.max_new_tokens)

    def engine(draws: GenerateFn | Mapping[str, GenerateFn]) -> Engine[Any]:
        samplers = counted(draws, on_replies)
        return Engine(interaction, chat, samplers, max_concurrent=max_concurrent, max_context_tokens=room)

    set_seed(plan.seed)
    critic = saved_critic(model, network, tokenizer, device)
    buckets, cost = diagnostic_buckets(engine(generate), starts, plan, oracle=oracle, value_function=critic)
    if exact_floor is not None:
        buckets = _with_exact(buckets, interaction, chat, network, setup.sampling, exact_floor)
    success: dict[str, Interval] = {}
    if attempts:
        greedy = _greedy(network, tokenizer, setup.sampling, generate)
        success, played = _success(engine(greedy), engine(generate), starts, attempts, plan.seed)
        cost += played
    about: dict[str, Any] = {"model": model, "setup": setup.to_dict(), "plan": asdict(plan), "tasks": asdict(tasks)}
    about |= {"attempts": attempts, "credit_replays": credit_replays, "exact_floor": exact_floor}
    return diagnose(name or model, buckets, success=success, cost=cost, about=about, credit_replays=credit_replays)


def _greedy(
    network: Any, tokenizer: Any, sampling: Sampling, generate: GenerateFn | Mapping[str, GenerateFn]
) -> GenerateFn | Mapping[str, GenerateFn]:
    most = sampling.max_new_tokens
    if not isinstance(generate, Mapping):
        return sampler(network, tokenizer, max_new_tokens=most, temperature=0)
    return {
        role: RoleSampler(sampler(network, tokenizer, max_new_tokens=most, temperature=0), network, role)
        for role in generate
    }


def _success(
    greedy: Engine[Any], drawn: Engine[Any], starts: Sequence[Start[Any]], attempts: int, seed: int
) -> tuple[dict[str, Interval], Ledger]:
    once, cost = attempt(greedy, starts, 1, seed)
    often, more = attempt(drawn, starts, attempts, seed)
    shares = {"greedy": pass_at_k_by_instance(once, 1), "pass@1": pass_at_k_by_instance(often, 1)}
    if attempts > 1:
        shares[f"pass@{attempts}"] = pass_at_k_by_instance(often, attempts)
    return {name: mean_with_interval(values) for name, values in shares.items()}, cost + more


def _with_exact(
    buckets: Sequence[Bucket],
    interaction: Interaction[Any],
    chat: Chat,
    network: Any,
    sampling: Sampling,
    floor: float,
) -> list[Bucket]:
    return with_exact_values(
        buckets,
        interaction,
        chat,
        network,
        max_new_tokens=sampling.max_new_tokens,
        temperature=sampling.temperature,
        floor=floor,
    )


def _refuse_inexact(interaction: Interaction[Any], setup: GameSetup) -> None:
    sampling = setup.sampling
    if not isinstance(interaction, Collaboration):
        raise ValueError(
            f"exact values are of collaborations whose replies can be enumerated, got the game {setup.name!r}; leave "
            "--exact out."
        )
    if sampling.temperature <= 0 or sampling.top_p != 1 or sampling.top_k:
        raise ValueError(
            "exact values need draws from the whole vocabulary, got temperature "
            f"{sampling.temperature}, top_p {sampling.top_p} and top_k {sampling.top_k}; set --temperature above 0, "
            "--top-p 1 and --top-k 0, or leave --exact out."
        )


def replies_at_most(episodes: int, most: int, plan: BucketPlan, attempts: int) -> int:
    """How many replies a diagnosis takes at most, for a bar."""
    replayed = (plan.candidates + plan.value_actions) * plan.replays * most
    played = episodes * most * (1 + attempts + bool(attempts))
    return played + plan.buckets * (plan.draws + plan.value_actions + replayed)
