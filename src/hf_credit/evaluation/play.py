"""Plays held-out tasks with a policy, once or several times (pass@k of paper C3, Appendix G, Table 11)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hf_credit.evaluation.results import EpisodeRecord, EvalResults
from hf_credit.oracles import Oracle
from hf_credit.policies.scripted import success_of
from hf_credit.redaction import public
from hf_credit.rollouts import (
    Chat,
    Ending,
    Engine,
    Episode,
    Interaction,
    Ledger,
    RolloutRequest,
    refuse_total_failure,
    verify,
)
from hf_credit.rollouts.capabilities import Oracled
from hf_credit.rollouts.samplers import Samplers
from hf_credit.tasks.rows import evaluation_starts
from hf_credit.tasks.spec import TaskSpec

_ROUNDS = 4  # of episodes that are played at a time, in a part of an evaluation


def evaluate_policy(
    generate: Samplers,
    chat: Chat,
    interaction: Interaction[Any],
    starts: Sequence[RolloutRequest[Any]],
    oracle: Oracle[Any] | None = None,
    *,
    max_concurrent: int = 256,
    max_context_tokens: int | None = None,
    about: Mapping[str, Any] | None = None,
    on_episodes: Callable[[Sequence[RolloutRequest[Any]], Sequence[Episode]], None] | None = None,
) -> EvalResults:
    """Plays one episode from each start and returns their records.

    Args:
        generate: the policy, or a policy for each role.
        chat: its tokenizer and template.
        interaction: the task, with prompts as in training.
        starts: each with a task and a different seed; see `hf_credit.tasks.rows.evaluation_starts`.
        oracle: judges every action, if there is one.
        max_concurrent, max_context_tokens: as in `Engine`.
        about: stored in the results, with what a `Judge` took as `verdicts`.
        on_episodes: called at the end with the starts and their episodes, including verdicts.

    Raises:
        ValueError: two starts have the same seed, a start has none, or every task is too long for a reply.
        EveryEpisodeFailedError: every episode ended in an error; the first error is its cause.
    """
    seeds = [start.seed for start in starts if start.seed is not None]
    if len(seeds) < len(starts):
        raise ValueError("every start must have a seed, got one without; set its seed.")
    if repeated := [seed for seed, times in Counter(seeds).items() if times > 1]:
        raise ValueError(f"every start must have a different seed, got {repeated[0]} more than once; remove it.")
    engine = Engine(interaction, chat, generate, max_concurrent=max_concurrent, max_context_tokens=max_context_tokens)
    costs, records = Counter[str](), list[EpisodeRecord]()
    unplayed, kept = list[Episode](), list[Episode]()
    # In parts, since episodes hold all of their contexts.
    for first in range(0, len(starts), part := _ROUNDS * max_concurrent):
        episodes = engine.run(starts[first : first + part])
        if oracle is not None:
            episodes = verify(episodes, oracle, interaction, engine.failures, costs)
        played = zip(seeds[first : first + part], episodes, strict=True)
        records += [EpisodeRecord.of(seed, episode) for seed, episode in played]
        failed = (one for one in episodes if one.ending == Ending.ERROR or not one.decisions)
        unplayed += [replace(one, decisions=()) for one in failed]
        if on_episodes is not None:
            kept += [replace(one, start=first + one.start) for one in episodes]
        del episodes  # before the next part is played
    if len(unplayed) == len(records):
        refuse_total_failure(unplayed, what="of an evaluation")
        refuse_unplayed(unplayed, engine.max_context_tokens)
    if on_episodes is not None:
        on_episodes(starts, kept)
    verdicts = {"verdicts": dict(costs)} if costs else {}
    return EvalResults(records=tuple(records), about={**(about or {}), **verdicts})


def refuse_unplayed(episodes: Sequence[Episode], max_context_tokens: float) -> None:
    """Raises an error if every episode was truncated before its first reply, as zeros would be due to the settings."""
    if episodes and all(episode.ending == Ending.TRUNCATED and not episode.decisions for episode in episodes):
        raise ValueError(
            f"the contexts of tasks must fit into the model with max_new_tokens, got {len(episodes)} tasks, all above "
            f"{max_context_tokens:g} tokens; lower max_new_tokens or use a model with a longer context."
        )


def evaluate_model(
    model: str,
    spec: TaskSpec,
    episodes: int | None = None,
    *,
    oracle: Oracle[Any] | None = None,
    dataset: str | None = None,
    split: str = "test",
    first_task: int = 0,
    seed: int = 0,
    max_concurrent: int = 256,
    on_episodes: Callable[[Sequence[RolloutRequest[Any]], Sequence[Episode]], None] | None = None,
    **loading: Any,
) -> EvalResults:
    """Plays the tasks `first_task` to `first_task + episodes - 1` of an evaluation with a saved policy.

    Args:
        model: a folder or an id on the Hub.
        spec: the task with its prompt and sampling settings.
        episodes, dataset, split: the tasks, one episode each, as in `hf_credit.tasks.rows.evaluation_starts`.
        oracle: judges every action; by default that of the environment.
        first_task: the index of the first task.
        seed: of the sampling of replies; the tasks do not depend on it.
        max_concurrent: the maximum number of parallel episodes, which is the maximum batch size of generation.
        on_episodes: as in `evaluate_policy`.
        **loading: as for `hf_credit.policies.saved.SavedPolicy`.

    Raises:
        ValueError: the model, the spec, a task or a sampling parameter is invalid.
    """
    interaction = spec.build()
    oracle = Oracled(interaction).chosen(oracle)
    starts = evaluation_starts(interaction, episodes, first_task, dataset, split)
    from accelerate.utils import set_seed  # seconds, which a task that is refused does not need

    from hf_credit.policies.saved import SavedPolicy

    policy = SavedPolicy(model, spec, interaction, **loading)
    set_seed(seed)
    about = {**policy.about(), "first_task": first_task, "seed": seed}
    return evaluate_policy(
        policy.samplers(),
        policy.chat,
        interaction,
        starts,
        oracle,
        max_concurrent=max_concurrent,
        max_context_tokens=policy.max_context_tokens,
        about=about if dataset is None else {**about, "dataset": public(dataset), "split": split},
        on_episodes=on_episodes,
    )


def attempt(
    engine: Engine[Any], starts: Sequence[RolloutRequest[Any]], samples: int = 1, seed: int = 0
) -> tuple[list[list[float | None]], Ledger]:
    """Plays several episodes of each task and returns their scores, as `mean_pass_at_k` takes them.

    All attempts at a task have the same environment seed and differ only in the replies, so a greedy policy needs one
    attempt. If the sampler honours seeds, replies are determined by the seed, the index of the task and the attempt.

    Args:
        engine: plays with the policy.
        starts: one start per task, without `fanout`.
        samples: the number of attempts at each task, at least 1.
        seed: of the replies.

    Returns:
        For each task, the success of each attempt (`success_of`), `None` if it ended in an error; and the cost.

    Raises:
        ValueError: a number is out of range, or a start has alternatives.
        EveryEpisodeFailedError: every attempt ended in an error.
    """
    if samples < 1:
        raise ValueError(f"samples of a task must be at least 1, got {samples}; raise it.")
    if any(start.fanout for start in starts):
        raise ValueError("starts of attempts must have no fanout, got one with alternatives; omit fanout.")
    named = [
        replace(start, stream=f"attempt {seed} {place} {number}" if engine.honours_seeds else start.stream)
        for place, start in enumerate(starts)
        for number in range(samples)
    ]
    episodes = engine.run(named)
    refuse_total_failure(episodes, what="of an evaluation")
    found = [math.nan if episode.ending == Ending.ERROR else success_of(episode) for episode in episodes]
    scores = [one if math.isfinite(one) else None for one in found]
    return [scores[first : first + samples] for first in range(0, len(scores), samples)], Ledger.of(episodes)
