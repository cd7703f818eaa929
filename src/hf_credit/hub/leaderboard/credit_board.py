"""Boards of credit: how near an estimator's credit comes to what decisions were worth, and what that costs.

A pinned policy plays a few task rows again and again, each time as the method's own collector asks, and the method's
estimator credits the decisions. What each was worth is enumerated, so that nothing about the truth is estimated.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch

from hf_credit import methods
from hf_credit.collaborations.exact_coalitions import answer_probabilities, vote_values
from hf_credit.collaborations.exact_values import exact_values
from hf_credit.collaborations.text import normalise
from hf_credit.collaborations.voting import Voting
from hf_credit.critics.belief_head import BeliefHead
from hf_credit.critics.critic import Critic, CriticConfig
from hf_credit.critics.saved import make_critic
from hf_credit.critics.specs import CriticSpec
from hf_credit.diagnostics.fidelity import credit_fidelity
from hf_credit.diagnostics.training_credit import credited_decisions
from hf_credit.environments.actions import plain_action
from hf_credit.environments.randomness import derive
from hf_credit.environments.tasks import task_seed
from hf_credit.evaluation.exact_actions import ExactPlay, Probabilities, model_policy
from hf_credit.hub.leaderboard.entries import PlayedEpisode
from hf_credit.hub.leaderboard.seasons import CreditTask, starts_of
from hf_credit.methods import Method
from hf_credit.policies.generation import room_for_context
from hf_credit.policies.reply_logprobs import reply_logprobs
from hf_credit.policies.saved import load_sampler
from hf_credit.rollouts import Chat, Decision, Ending, Engine, EnvironmentInteraction
from hf_credit.rollouts.capabilities import Acting, TaskSource
from hf_credit.rollouts.method_context import LocalContext
from hf_credit.rollouts.reply_ends import end_tokens
from hf_credit.tasks.spec import code_in

CRITICS = CriticConfig(
    learning_rate=3e-3,
    clip=None,
    passes=4,
    mini_batch_rows=64,
    micro_batch_rows=64,
    gradient_checkpointing=False,
)
"""How critics learn on a board: its policies are micro ones, for which the defaults are far too slow."""

Row = Mapping[str, Any]

_UNREADABLE = ""
"""An action that no environment knows; it stands for all that is no legal one."""


class PinnedPolicy:
    """A board's task and its policy, with the exact advantages that were enumerated so far.

    Of a collaboration every reply is looked at that is not below the board's floor. Of an environment it is every
    legal action, written as the environment writes it; all else that the policy may say counts as unreadable. What an
    environment draws is averaged over, whatever the seed of an episode.

    Args:
        task: the board.
        folder: of the policy.
        device: of the policy.

    Raises:
        ValueError: there is no such policy, or its decisions cannot be enumerated.
    """

    def __init__(self, task: CreditTask, folder: Path, device: str = "cpu") -> None:
        spec = task.task()
        drawn = spec.sampling
        self.task = task
        self.folder = folder
        self.interaction = spec.build()
        self.network, self.tokenizer, generate = load_sampler(str(folder), drawn, device)
        self.chat = Chat(self.tokenizer, spec.chat_template_kwargs)
        self.room = room_for_context(self.network, drawn.max_new_tokens)
        self.engine = Engine(self.interaction, self.chat, generate, max_context_tokens=self.room)
        self._limits: dict[str, Any] = {
            "max_new_tokens": drawn.max_new_tokens,
            "temperature": drawn.temperature,
            "floor": task.floor,
        }
        self._known: dict[Any, dict[tuple[str, str], float]] = {}
        self._play: ExactPlay[Any] | None = None
        if isinstance(self.interaction, EnvironmentInteraction):
            environment = self.interaction.environment
            legal = model_policy(self.interaction, self.chat, self.network, drawn.temperature)

            def policy(states: Sequence[Any]) -> list[Probabilities]:
                return [{**own, _UNREADABLE: max(0.0, 1 - sum(own.values()))} for own in legal(states)]

            self._play = ExactPlay(environment, policy, {"outcome": environment.outcome})

    def context(self, critics: Mapping[str, Any], seed: int) -> LocalContext:
        """Whoever plays a method's updates: its frozen policy is the policy, and it reads log-probabilities anew, as a
        trainer does.

        Args:
            critics: as for `LocalContext`.
            seed: of all draws.
        """
        temperature = self._limits["temperature"]

        def logprobs(decisions: Sequence[Decision]) -> list[tuple[float, ...]]:
            asked = [(one.context_ids, one.action_ids) for one in decisions]
            return reply_logprobs(self.network, asked, temperature)

        ends = end_tokens(self.network, self.tokenizer)
        return LocalContext(self.engine, critics, seed, frozen=self.engine, logprobs=logprobs, end_tokens=ends)

    def rows(self, seeds: Sequence[int], repeat: int) -> list[Row]:
        """The task rows of an update. An environment draws other random numbers in each, for the same tasks."""
        starts = starts_of(self.interaction, seeds)
        if not isinstance(self.interaction, EnvironmentInteraction):
            return [{**start.task, "seed": start.seed} for start in starts]
        environment = self.interaction.environment
        return [{**environment.sample_task(seed), "seed": derive(seed, "credit board", repeat)} for seed in seeds]

    def training_rows(self, update: int) -> list[Row]:
        """The rows of an update of the warm-up, which are none that are measured on."""
        count = self.task.instances
        if isinstance(self.interaction, EnvironmentInteraction):
            return self.rows([task_seed("train", update * count + place) for place in range(count)], 0)
        rows = TaskSource(self.interaction).tasks("train", count, update * count)
        return [{**row, "seed": task_seed("train", update * count + place)} for place, row in enumerate(rows)]

    def key(self, decision: Decision) -> Hashable:
        """What two decisions share that are worth the same."""
        if self._play is None:
            return decision.state, decision.event, decision.action_text
        world, action = Acting(self.interaction).action_of(decision.state, decision.action_text)
        return dataclasses.replace(world, seed=0), self._legal(world, action)

    def advantage(self, decision: Decision) -> float | None:
        """Q(h, a) - V(h) of a decision; `None` of a reply less probable than the floor.

        Where several vote at once, V is the team's value and Q that with one voter's answer fixed.

        Raises:
            ValueError: the task cannot be enumerated.
        """
        if self._play is not None:
            world, action = Acting(self.interaction).action_of(decision.state, decision.action_text)
            return self._play.advantage(dataclasses.replace(world, seed=0), self._legal(world, action), "outcome")
        if decision.state not in self._known:
            self._known[decision.state] = self._enumerated(decision.state)
        return self._known[decision.state].get((decision.event, decision.action_text))

    def _legal(self, world: Any, action: str) -> str:
        assert self._play is not None
        plain = plain_action(action)
        return plain if plain in self._play.environment.legal_actions(world) else _UNREADABLE

    def _enumerated(self, state: Any) -> dict[tuple[str, str], float]:
        """The advantage of every reply that a state waits for."""
        interaction = self.interaction
        if isinstance(interaction, Voting):
            answers, scores = answer_probabilities(interaction, self.chat, self.network, state, **self._limits)
            value = vote_values(answers, scores).value
            return {
                (request.event, reply): vote_values({**answers, request.role: {reply: 1.0}}, scores).value - value
                for request in interaction.pending(state)
                for reply in answers[request.role]
                if reply is not None and interaction.answer(normalise(reply)) == reply
            }
        (values,) = exact_values(interaction, self.chat, self.network, [state], **self._limits)
        (request,) = interaction.pending(state)
        return {(request.event, text): values.advantage(text) for text in values.values}


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
        warm_up: tokens that the warm-up took, before anything was measured; 0 where there was none.
        decisions: that were credited, a repeat.
        scale: the factor.
    """

    fidelity: tuple[float, ...]
    bias: float
    variance: float
    tokens: float
    warm_up: float
    decisions: float
    scale: float


def board_method(entry_method: Mapping[str, Any]) -> Method:
    """The library's method that an entry names, with its options.

    Raises:
        ValueError: it is none of the library's, its options name code, or it cannot be made with them.
    """
    name, options = str(entry_method["name"]), dict(entry_method["options"])
    if name not in methods.METHODS or code_in(options):
        raise ValueError(
            f"a method on a board of credit must be one of {', '.join(sorted(methods.METHODS))}, got {name[:80]!r}; "
            "others cannot be run by the verifier."
        )
    try:
        return methods.make(name, **options)
    except (TypeError, LookupError, ArithmeticError, AttributeError) as error:
        raise ValueError(
            f"the options of the method {name!r} must be of the kinds that it takes, got {str(options)[:200]} "
            f"({type(error).__name__}: {str(error)[:200]}); correct them."
        ) from None


def measure(method: Method, pinned: PinnedPolicy, seeds: Sequence[int]) -> tuple[CreditScores, list[PlayedEpisode]]:
    """Plays `repeats` updates of a board's rows and scores the credit of their decisions.

    A method with critics or a memory first goes through `warm_up` updates of rows of training, as in training but with
    the policy as it stays. From there on nothing learns, and every repeat begins with the same.

    Args:
        method: whose credit.
        pinned: the board, and what is already known of it: one serves several methods.
        seeds: of the rows, the first `instances` of them, and all together of the random numbers of replies.

    Returns:
        The scores, and a record of each repeat: its decisions, with its fidelity as the outcome.

    Raises:
        ValueError: the method cannot be run here: it does not fit the task, say.
    """
    task = pinned.task
    bound = method.bind(pinned.interaction)
    critics, memory, spent = _warmed_up(bound, pinned, derive(0, "warm-up", *seeds))
    found: list[list[tuple[Decision, float, float]]] = []
    tokens = []
    for repeat in range(task.repeats):
        seed = derive(0, "credit board", *seeds, repeat)
        torch.manual_seed(seed)  # some collectors draw from torch's own stream
        context = pinned.context(critics, seed)
        collected = bound.collector(pinned.rows(seeds[: task.instances], repeat), context, memory)
        credited = credited_decisions(collected, bound.estimator(collected, context, memory))
        worths = [pinned.advantage(one.decision) for one in credited]
        found.append(
            [
                (one.decision, one.credit, worth)
                for one, worth in zip(credited, worths, strict=True)
                if worth is not None and not math.isnan(one.credit)
            ]
        )
        tokens.append(float(context.ledger.tokens))
    fidelity = [_fidelity([(credit, worth) for _, credit, worth in own]) for own in found]
    bias, variance, scale = bias_and_variance([_by_decision(pinned, own) for own in found])
    scores = CreditScores(
        fidelity=tuple(fidelity),
        bias=bias,
        variance=variance,
        tokens=fmean(tokens),
        warm_up=spent,
        decisions=fmean(map(len, found)),
        scale=scale,
    )
    return scores, [_played(repeat, own, fidelity[repeat]) for repeat, own in enumerate(found)]


def _warmed_up(bound: Method, pinned: PinnedPolicy, seed: int) -> tuple[dict[str, Any], Any, float]:
    """The critics and the memory of a method after the warm-up, and the tokens that this took."""
    torch.manual_seed(seed)
    critics = {name: _critic(bound.critic_specs.get(name, CriticSpec()), name, pinned) for name in bound.critics}
    context = pinned.context(critics, seed)
    memory = bound.memory
    for update in range(pinned.task.warm_up if critics or memory is not None else 0):
        context.update = update + 1
        collected = bound.collector(pinned.training_rows(update), context, memory)
        credit = bound.estimator(collected, context, memory)
        memory = credit.memory
        for one in credit.critic_targets:
            critics[one.critic].learn(one.inputs, one.targets, one.values)
    return critics, memory, float(context.ledger.tokens)


def _critic(kind: CriticSpec, name: str, pinned: PinnedPolicy) -> Critic | BeliefHead:
    return make_critic(kind, name, str(pinned.folder), pinned.network, pinned.tokenizer, CRITICS, pinned.room)


def _by_decision(
    pinned: PinnedPolicy, decisions: Sequence[tuple[Decision, float, float]]
) -> dict[Any, tuple[float, float]]:
    """The mean credit of each decision of a repeat, however often it was made there, and what it was worth."""
    credits: dict[Any, list[float]] = {}
    worths: dict[Any, float] = {}
    for decision, credit, worth in decisions:
        key = pinned.key(decision)
        credits.setdefault(key, []).append(credit)
        worths[key] = worth
    return {key: (fmean(own), worths[key]) for key, own in credits.items()}


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


def answer(request: Mapping[str, Any], pinned: PinnedPolicy | None = None) -> dict[str, Any]:
    """What the verifier's confined process does for an entry of credit.

    Args:
        request: `method`, `task`, `policy`, `device` and `seeds`, lists by name.
        pinned: the board, where it is at hand.

    Returns:
        `scores` and `episodes`, by the same names.
    """
    method = board_method(request["method"])
    pinned = pinned or PinnedPolicy(CreditTask(**request["task"]), Path(request["policy"]), request["device"])
    found = {name: measure(method, pinned, seeds) for name, seeds in request["seeds"].items()}
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
