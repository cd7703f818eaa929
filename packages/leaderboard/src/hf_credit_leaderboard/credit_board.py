"""Credit boards: a pinned policy plays the same task rows in several updates with a method's collector, and the credit
of its estimator is compared with the exact advantages, which are enumerated."""

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
from hf_credit.critics.critic import CriticConfig
from hf_credit.critics.inputs import CriticSpec
from hf_credit.critics.saved import make_critic
from hf_credit.diagnostics.fidelity import credit_fidelity
from hf_credit.diagnostics.training_credit import credited_decisions
from hf_credit.environments.actions import plain_action
from hf_credit.environments.randomness import derive
from hf_credit.environments.tasks import task_seed
from hf_credit.evaluation.exact_actions import ExactPlay, Probabilities, model_policy
from hf_credit.methods import Method
from hf_credit.policies.saved import SavedPolicy
from hf_credit.rollouts import Decision, Ending, EnvironmentInteraction
from hf_credit.rollouts.capabilities import Acting, TaskSource
from hf_credit.rollouts.method_context import LocalContext
from hf_credit.trust import code_in
from hf_credit_leaderboard.entries import PlayedEpisode
from hf_credit_leaderboard.seasons import CreditTask, starts_of

CRITICS = CriticConfig(
    learning_rate=3e-3, clip=None, passes=4, mini_batch_rows=64, micro_batch_rows=64, gradient_checkpointing=False
)
"""The settings of critics on a board, whose micro policies need faster learning than the defaults give."""

Row = Mapping[str, Any]

Measured = tuple[Decision, float, float]
"""A decision, its credit, and its exact advantage."""

_UNREADABLE = ""
"""Stands for all actions that are not legal."""


class PinnedPolicy:
    """A board's task and its policy, with a cache of exact advantages.

    In a collaboration, every reply with a probability of at least the board's floor is enumerated. In an environment,
    every legal action is, in the environment's own notation; all other replies count as one unreadable action. Random
    transitions are averaged over, whatever the seed of an episode.

    Raises:
        ValueError: the policy cannot be loaded, or its decisions cannot be enumerated.
    """

    def __init__(self, task: CreditTask, folder: Path, device: str = "cpu") -> None:
        spec = task.task()
        self.task = task
        self.folder = folder
        self.interaction = spec.build()
        self.policy = SavedPolicy(str(folder), spec, self.interaction, device=device)
        self.network, self.chat = self.policy.network, self.policy.chat
        self.engine = self.policy.engine()
        self._limits: dict[str, Any] = {**vars(spec.sampling), "floor": task.floor}
        self._known: dict[Any, dict[tuple[str, str], float]] = {}
        self._play: ExactPlay[Any] | None = None
        if isinstance(self.interaction, EnvironmentInteraction):
            environment = self.interaction.environment
            legal = model_policy(self.interaction, self.chat, self.network, spec.sampling.temperature)

            def policy(states: Sequence[Any]) -> list[Probabilities]:
                return [{**actions, _UNREADABLE: max(0.0, 1 - sum(actions.values()))} for actions in legal(states)]

            self._play = ExactPlay(environment, policy, {"outcome": environment.outcome})

    def context(self, critics: Mapping[str, Any], seed: int) -> LocalContext:
        """Returns a context for a method's updates. Its frozen policy is the policy itself, and it recomputes
        log-probabilities, as a trainer does.
        """
        return LocalContext(self.engine, critics, seed, frozen=self.engine, logprobs=self.policy.logprobs)

    def rows(self, seeds: Sequence[int], repeat: int) -> list[Row]:
        """Returns the task rows of an update. The seeds of an environment's transitions differ between updates."""
        if not isinstance(self.interaction, EnvironmentInteraction):
            return [{**start.task, "seed": start.seed} for start in starts_of(self.interaction, seeds)]
        environment = self.interaction.environment
        return [{**environment.sample_task(seed), "seed": derive(seed, "credit board", repeat)} for seed in seeds]

    def training_rows(self, update: int) -> list[Row]:
        """Returns the rows of an update of the warm-up, which come from the training split."""
        count = self.task.instances
        if isinstance(self.interaction, EnvironmentInteraction):
            return self.rows([task_seed("train", update * count + index) for index in range(count)], 0)
        rows = TaskSource(self.interaction).tasks("train", count, update * count)
        return [{**row, "seed": task_seed("train", update * count + index)} for index, row in enumerate(rows)]

    def key(self, decision: Decision) -> Hashable:
        """Returns a key that decisions with the same exact advantage share: the state and the action."""
        if self._play is None:
            return decision.state, decision.event, decision.action_text
        world, action = Acting(self.interaction).action_of(decision.state, decision.action_text)
        return dataclasses.replace(world, seed=0), self._legal(world, action)

    def advantage(self, decision: Decision) -> float | None:
        """Returns the exact advantage Q(h, a) - V(h) of a decision; `None` if its probability is below the floor.

        In a vote, V is the value of the team, and Q its value with one voter's answer fixed.

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
    """The scores of a method's credit on a board.

    A learning rate absorbs any positive factor of all credit. So bias and variance are those of credit multiplied by
    the factor with the least squared distance to the exact advantages, in the unit of the reward.

    Attributes:
        fidelity: Spearman's correlation of credit and exact advantage over the decisions of each repeat; 0 if all
            credit is equal, since it teaches nothing.
        bias: the root of the mean over decisions of (mean credit - exact advantage)^2, corrected for the variance of
            the mean credit.
        variance: the mean over decisions of the variance of credit over repeats.
        tokens: the mean number of tokens per repeat, prompts included.
        warm_up: the number of tokens of the warm-up; 0 without one.
        decisions: the mean number of credited decisions per repeat.
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
    """Makes the library's method that an entry names, with its options.

    Raises:
        ValueError: the library has no such method, or its options name code or are invalid.
    """
    name, options = str(entry_method["name"]), dict(entry_method["options"])
    if name not in methods.METHODS or code_in(options):
        raise ValueError(
            f"a method on a credit board must be one of {', '.join(sorted(methods.METHODS))}, without code in its "
            f"options, got {name[:80]!r}; enter one that the verifier can run."
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

    A method with critics or a memory first runs `warm_up` updates on training rows, as in training but with a fixed
    policy. After that its critics and its memory are fixed for all repeats.

    Args:
        pinned: the board with its cache, which several methods can share.
        seeds: the first `instances` are the seeds of the rows; all together seed the sampling of replies.

    Returns:
        The scores, and a record of each repeat: its decisions, with its fidelity as the outcome.

    Raises:
        ValueError: the method does not fit the task.
    """
    task = pinned.task
    bound = method.bind(pinned.interaction)
    critics, memory, warm_up = _warmed_up(bound, pinned, derive(0, "warm-up", *seeds))
    measured: list[list[Measured]] = []
    tokens = []
    for repeat in range(task.repeats):
        seed = derive(0, "credit board", *seeds, repeat)
        torch.manual_seed(seed)  # some collectors draw from torch's global generator
        context = pinned.context(critics, seed)
        collected = bound.collector(pinned.rows(seeds[: task.instances], repeat), context, memory)
        measured.append([])
        for one in credited_decisions(collected, bound.estimator(collected, context, memory)):
            advantage = pinned.advantage(one.decision)
            if advantage is not None and not math.isnan(one.credit):
                measured[-1].append((one.decision, one.credit, advantage))
        tokens.append(float(context.ledger.tokens))
    fidelity = [_fidelity(decisions) for decisions in measured]
    bias, variance, scale = bias_and_variance([_by_decision(pinned, decisions) for decisions in measured])
    scores = CreditScores(
        fidelity=tuple(fidelity),
        bias=bias,
        variance=variance,
        tokens=fmean(tokens),
        warm_up=warm_up,
        decisions=fmean(map(len, measured)),
        scale=scale,
    )
    return scores, [_played(repeat, decisions, fidelity[repeat]) for repeat, decisions in enumerate(measured)]


def _warmed_up(bound: Method, pinned: PinnedPolicy, seed: int) -> tuple[dict[str, Any], Any, float]:
    """Returns the critics and the memory of a method after the warm-up, and the tokens of the warm-up."""
    torch.manual_seed(seed)
    shared = str(pinned.folder), pinned.network, pinned.policy.tokenizer, CRITICS, pinned.policy.max_context_tokens
    specs = {name: bound.critic_specs.get(name, CriticSpec()) for name in bound.critics}
    critics = {name: make_critic(spec, name, *shared) for name, spec in specs.items()}
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


def _by_decision(pinned: PinnedPolicy, decisions: Sequence[Measured]) -> dict[Any, tuple[float, float]]:
    found: dict[Any, list[Measured]] = {}
    for one in decisions:
        found.setdefault(pinned.key(one[0]), []).append(one)
    return {key: (fmean(credit for _, credit, _ in same), same[-1][2]) for key, same in found.items()}


def bias_and_variance(repeats: Sequence[Mapping[Any, tuple[float, float]]]) -> tuple[float, float, float]:
    """Returns the bias, variance and scale of credit, as in `CreditScores`.

    With credits c[d, r] of decision d in the n_d repeats r that contain it, and its exact advantage A[d],

        scale = max(0, sum c A / sum c^2)  over all d and r;   c' = scale c
        variance = mean_d var_r(c'[d, r]),   bias^2 = mean_d ((mean_r c'[d, r] - A[d])^2 - var_r(c'[d, r]) / n_d)

    over the decisions with n_d >= 2, with the sample variance; bias^2 below 0 counts as 0.

    Args:
        repeats: the credit and the exact advantage by decision, for each repeat.

    Returns:
        Bias, variance and scale; bias and variance are NaN if no decision is in two repeats.
    """
    pairs: dict[Any, list[tuple[float, float]]] = {}
    for repeat in repeats:
        for decision, pair in repeat.items():
            pairs.setdefault(decision, []).append(pair)
    table = np.asarray([pair for repeated in pairs.values() for pair in repeated], dtype=np.float64).reshape(-1, 2)
    square = float((table[:, 0] ** 2).sum())
    scale = max(0.0, float((table[:, 0] * table[:, 1]).sum()) / square) if square else 0.0
    squared_biases, variances = [], []
    for repeated in pairs.values():
        if len(repeated) < 2:
            continue
        credits = scale * np.asarray([credit for credit, _ in repeated])
        variances.append(float(credits.var(ddof=1)))
        squared_biases.append((float(credits.mean()) - repeated[0][1]) ** 2 - variances[-1] / len(repeated))
    if not variances:
        return math.nan, math.nan, scale
    return math.sqrt(max(0.0, fmean(squared_biases))), fmean(variances), scale


def answer(request: Mapping[str, Any], pinned: PinnedPolicy | None = None) -> dict[str, Any]:
    """Measures a credit entry in the verifier's confined process.

    Args:
        request: `method`, `task`, `policy`, `device` and `seeds`, lists by name.
        pinned: the board; loaded if `None`.

    Returns:
        `scores` and `episodes`, by the same names.
    """
    method = board_method(request["method"])
    pinned = pinned or PinnedPolicy(CreditTask(**request["task"]), Path(request["policy"]), request["device"])
    measured = {name: measure(method, pinned, seeds) for name, seeds in request["seeds"].items()}
    return {
        "scores": {name: dataclasses.asdict(scores) for name, (scores, _) in measured.items()},
        "episodes": {name: [dataclasses.asdict(one) for one in played] for name, (_, played) in measured.items()},
    }


def _fidelity(decisions: Sequence[Measured]) -> float:
    credits, advantages = [credit for _, credit, _ in decisions], [advantage for _, _, advantage in decisions]
    rho = credit_fidelity([credits], [advantages]).rho
    return 0.0 if math.isnan(rho) else rho


def _played(repeat: int, decisions: Sequence[Measured], fidelity: float) -> PlayedEpisode:
    return PlayedEpisode(
        checkpoint=0,
        seed=repeat,
        ending=str(Ending.FINISHED),
        outcome=fidelity,
        events=tuple(one.event for one, _, _ in decisions),
        replies=tuple(one.action_text for one, _, _ in decisions),
        tokens=tuple(len(one.action_ids) for one, _, _ in decisions),
    )
