"""Boards of credit: how near an estimator's credit comes to what decisions were worth, and what that costs.

A pinned policy plays a few task rows again and again, each time as the method's own collector asks, and the method's
estimator credits the decisions. What each was worth is enumerated, so that nothing about the truth is estimated.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from hf_credit import methods
from hf_credit.collaborations.exact_coalitions import answer_probabilities, vote_values
from hf_credit.collaborations.exact_values import exact_values
from hf_credit.collaborations.text import normalise
from hf_credit.collaborations.voting import Voting
from hf_credit.diagnostics.fidelity import credit_fidelity
from hf_credit.diagnostics.training_credit import credited_decisions
from hf_credit.environments.randomness import derive
from hf_credit.evaluation.play import load_policy
from hf_credit.hub.leaderboard.replies import PlayedEpisode
from hf_credit.hub.leaderboard.seasons import CreditTask, starts_of
from hf_credit.methods import Method
from hf_credit.policies.generation import room_for_context, sampler
from hf_credit.rollouts import Chat, Decision, Ending, Engine
from hf_credit.rollouts.runner import LocalRunner
from hf_credit.tasks.spec import code_in

Values = Mapping[tuple[str, str], float]
"""What each reply of each event is worth in a state beyond the policy's mean."""


@dataclass(frozen=True, kw_only=True)
class CreditScores:
    """What a method's credit is like on a board.

    Credit counts up to one positive factor for the whole method, which a learning rate would absorb: it is multiplied
    by the one that brings it nearest to the exact advantages, so that bias and variance are in the unit of the reward.

    Attributes:
        fidelity: of each repeat, Spearman's correlation of credit and exact advantage over its decisions; 0 where all
            credit is equal, since nothing can be learnt from it.
        bias: the root of the mean over decisions of (their mean credit - exact advantage)^2, less what the variance of
            that mean adds.
        variance: the mean over decisions of the variance of their credit from repeat to repeat.
        tokens: that a repeat took, prompts included.
        decisions: that were credited, a repeat.
        scale: the factor.
    """

    fidelity: tuple[float, ...]
    bias: float
    variance: float
    tokens: float
    decisions: float
    scale: float


def board_method(entry_method: Mapping[str, Any]) -> Method:
    """The library's method that an entry names, with its options.

    Raises:
        ValueError: it is none of the library's, or its options name code.
    """
    name, options = str(entry_method["name"]), dict(entry_method["options"])
    if name not in methods.METHODS or code_in(options):
        raise ValueError(
            f"a method on a board of credit must be one of {', '.join(sorted(methods.METHODS))}, got {name[:80]!r}; "
            "others cannot be run by the verifier."
        )
    return methods.make(name, **options)


def measure(
    method: Method,
    task: CreditTask,
    policy: Path,
    seeds: Sequence[int],
    device: str = "cpu",
    known: dict[Any, Values] | None = None,
) -> tuple[CreditScores, list[PlayedEpisode]]:
    """Plays `task.repeats` updates of `task.instances` rows and scores the credit of their decisions.

    Args:
        method: whose credit.
        task: the board.
        policy: the folder of its policy.
        seeds: of the rows, the first `task.instances` of them, and all together of the random numbers of replies.
        device: of the policy.
        known: the exact advantages found so far, which it adds to: for several methods on one board.

    Returns:
        The scores, and a record of each repeat: its decisions, with its fidelity as the outcome.

    Raises:
        ValueError: the method cannot be run here: it does not fit the task, or needs a critic or an oracle.
    """
    spec = task.task()
    interaction = spec.build()
    drawn = spec.sampling
    network, tokenizer = load_policy(str(policy), device)
    chat = Chat(tokenizer, spec.chat_template_kwargs)
    generate = sampler(
        network,
        tokenizer,
        max_new_tokens=drawn.max_new_tokens,
        temperature=drawn.temperature,
        top_p=drawn.top_p,
        top_k=drawn.top_k,
    )
    engine = Engine(interaction, chat, generate, max_context_tokens=room_for_context(network, drawn.max_new_tokens))
    bound = method.bound_to(interaction)
    rows = [{**start.task, "seed": start.seed} for start in starts_of(interaction, seeds[: task.instances])]
    known = {} if known is None else known
    found: list[list[tuple[Decision, float, float]]] = []
    tokens = []
    for repeat in range(task.repeats):
        seed = derive(0, "credit board", *seeds, repeat)
        torch.manual_seed(seed)  # some collectors draw from torch's own stream
        runner = LocalRunner(engine, seed=seed)
        collected = bound.collector(rows, runner, bound.memory)
        credited = credited_decisions(collected, bound.estimator(collected, runner, bound.memory))
        states = {one.decision.state for one in credited} - known.keys()
        for state in states:
            known[state] = state_advantages(interaction, chat, network, state, task)
        pairs = []
        for one in credited:
            worth = known[one.decision.state].get((one.decision.event, one.decision.action_text))
            if worth is not None and not math.isnan(one.credit):
                pairs.append((one.decision, one.credit, worth))
        found.append(pairs)
        tokens.append(float(runner.ledger.tokens))
    fidelity = [_fidelity([(credit, worth) for _, credit, worth in own]) for own in found]
    bias, variance, scale = bias_and_variance(
        [{(one.state, one.event, one.action_text): (c, a) for one, c, a in own} for own in found]
    )
    scores = CreditScores(
        fidelity=tuple(fidelity),
        bias=bias,
        variance=variance,
        tokens=fmean(tokens),
        decisions=fmean(map(len, found)),
        scale=scale,
    )
    return scores, [_played(repeat, own, fidelity[repeat]) for repeat, own in enumerate(found)]


def state_advantages(
    interaction: Any, chat: Chat, network: PreTrainedModel, state: Any, task: CreditTask
) -> dict[tuple[str, str], float]:
    """Q(h, a) - V(h) of every reply that a state waits for, by enumeration.

    Where several vote at once, V is the team's value and Q that with one voter's answer fixed.

    Raises:
        ValueError: the task cannot be enumerated.
    """
    drawn = task.task().sampling
    limits: dict[str, Any] = {
        "max_new_tokens": drawn.max_new_tokens,
        "temperature": drawn.temperature,
        "floor": task.floor,
    }
    if isinstance(interaction, Voting):
        answers, scores = answer_probabilities(interaction, chat, network, state, **limits)
        value = vote_values(answers, scores).value
        return {
            (request.event, reply): vote_values({**answers, request.role: {reply: 1.0}}, scores).value - value
            for request in interaction.pending(state)
            for reply in answers[request.role]
            if reply is not None and interaction.answer(normalise(reply)) == reply
        }
    (values,) = exact_values(interaction, chat, network, [state], **limits)
    (request,) = interaction.pending(state)
    return {(request.event, text): values.advantage(text) for text in values.values}


def bias_and_variance(
    repeats: Sequence[Mapping[Any, tuple[float, float]]],
) -> tuple[float, float, float]:
    """Bias, variance and scale of credit, as `CreditScores` has them.

    With credits c[d, r] of decision d in the n_d repeats r that made it, and its exact advantage A[d],

        scale = max(0, sum c A / sum c^2)  over all d and r;   c' = scale c
        variance = mean_d var_r(c'[d, r]),   bias^2 = mean_d ((mean_r c'[d, r] - A[d])^2 - var_r(c'[d, r]) / n_d)

    over the decisions with n_d >= 2, with the sample's variance; bias^2 below 0 counts as 0.

    Args:
        repeats: of each, by decision, its credit and exact advantage.

    Returns:
        NaN for bias and variance where no decision was made twice.
    """
    pairs: dict[Any, list[tuple[float, float]]] = {}
    for own in repeats:
        for decision, pair in own.items():
            pairs.setdefault(decision, []).append(pair)
    every = np.asarray([pair for own in pairs.values() for pair in own], dtype=np.float64).reshape(-1, 2)
    square = float((every[:, 0] ** 2).sum())
    scale = max(0.0, float((every[:, 0] * every[:, 1]).sum()) / square) if square else 0.0
    errors, spreads = [], []
    for made in pairs.values():
        if len(made) < 2:
            continue
        credits = scale * np.asarray([credit for credit, _ in made])
        spread = float(credits.var(ddof=1))
        spreads.append(spread)
        errors.append((float(credits.mean()) - made[0][1]) ** 2 - spread / len(made))
    if not spreads:
        return math.nan, math.nan, scale
    return math.sqrt(max(0.0, fmean(errors))), fmean(spreads), scale


def answer(request: Mapping[str, Any], known: dict[Any, Values] | None = None) -> dict[str, Any]:
    """What the verifier's confined process does for an entry of credit.

    Args:
        request: `method`, `task`, `policy`, `device` and `seeds`, lists by name.
        known: as in `measure`.

    Returns:
        `scores` and `episodes`, by the same names.
    """
    method = board_method(request["method"])
    task = CreditTask(**request["task"])
    found = {
        name: measure(method, task, Path(request["policy"]), seeds, request["device"], known)
        for name, seeds in request["seeds"].items()
    }
    return {
        "scores": {name: dataclasses.asdict(scores) for name, (scores, _) in found.items()},
        "episodes": {name: [dataclasses.asdict(one) for one in played] for name, (_, played) in found.items()},
    }


def _fidelity(pairs: Sequence[tuple[float, float]]) -> float:
    rho = credit_fidelity([[credit for credit, _ in pairs]], [[worth for _, worth in pairs]]).rho
    return 0.0 if math.isnan(rho) else rho


def _played(repeat: int, decisions: Sequence[tuple[Decision, float, float]], fidelity: float) -> PlayedEpisode:
    return PlayedEpisode(
        checkpoint=0,
        seed=repeat,
        ending=str(Ending.FINISHED),
        outcome=fidelity,
        events=tuple(one.event for one, _, _ in decisions),
        replies=tuple(one.action_text for one, _, _ in decisions),
        tokens=tuple(len(one.action_ids) for one, _, _ in decisions),
    )
