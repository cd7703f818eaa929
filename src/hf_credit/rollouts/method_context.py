"""The context of a method: what a trainer, a diagnosis or a test provides to it."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from hf_credit.environments.randomness import stream
from hf_credit.rollouts.arrivals import released
from hf_credit.rollouts.engine import Engine
from hf_credit.rollouts.episode import Decision, Episode
from hf_credit.rollouts.failures import (
    EveryEpisodeFailedError,
    FailureLog,
    record_replays,
    refuse_total_failure,
)
from hf_credit.rollouts.interaction import Interaction
from hf_credit.rollouts.ledger import Ledger
from hf_credit.rollouts.running import RolloutRequest
from hf_credit.rollouts.samplers import CONTINUATIONS, Player, Samplers

Policy = Literal["current", "frozen", "player"]
"""The trained policy, its frozen copy (`Method.refresh_frozen_every`), or the model of `continuations`, which is the
trained policy if a run has none."""

Logprobs = Callable[[Sequence[Decision]], Sequence[tuple[float, ...]]]
"""The log-probability of each token of each decision under a policy, in nats."""


@dataclass(frozen=True, kw_only=True)
class CriticInput:
    """A text for a critic, and the positions of its predictions.

    Attributes:
        ids: the tokens of the text, at least one.
        at: the number of tokens before each prediction, ascending, in [1, len(ids)]: the value of a context is at its
            length, and the value before the token at index i is at i.
    """

    ids: tuple[int, ...]
    at: tuple[int, ...]


class LocalContext:
    """What a method can call, here without a trainer, for diagnosis, notebooks and tests. Trainers have subclasses.

    Every process of a run makes the same calls in the same order.

    Args:
        engine: plays the policy; `None` for a context that only credits existing episodes.
        critics: functions from inputs to predictions, by name.
        seed: the seed of all draws.
        frozen: plays the frozen copy, if a method needs it.
        logprobs: returns log-probabilities under the policy, in nats; those of the sampler if `None`.
        end_tokens: the tokens that end a reply; the chat's if `None`.
        player: plays continuations; the policy if `None`.

    Attributes:
        interaction: the Interaction to play.
        chat: renders messages to tokens.
        process: the index of this process.
        failures: logs failures of the task's own code.
        end_tokens: the tokens that end a reply of the policy; a reply without one was truncated.
        ledger: the cost so far.
        starts: the requests of task rows that begin at a later state in this update, by instance.
        metrics: the metrics so far, by name.
        update: the number of the collection in the run, counted from 1; a caller with several increments it.
        learning: whether failures of replays are recorded, and total failures refused; an evaluation's are data.
    """

    learning = True

    def __init__(
        self,
        engine: Engine[Any] | None = None,
        critics: Mapping[str, Any] | None = None,
        seed: int = 0,
        frozen: Engine[Any] | None = None,
        logprobs: Logprobs | None = None,
        end_tokens: Collection[int] | None = None,
        player: Samplers | None = None,
    ) -> None:
        self.player = player
        self.engine = engine
        if engine is not None:
            self.interaction = engine.interaction
            self.chat = engine.chat
            end_tokens = engine.chat.end_tokens if end_tokens is None else end_tokens
        self.end_tokens = end_tokens or ()
        self.failures = FailureLog() if engine is None else engine.failures
        self.critics = dict(critics or {})
        self.seed = seed
        self.frozen = frozen
        self._logprobs = logprobs
        self.update = 1
        self.process = 0
        self._played_in = 0
        self.ledger = Ledger()
        self.metrics: dict[str, list[float]] = {}
        self.starts: Mapping[int, RolloutRequest[Any]] = {}

    def begin(self, row: Mapping[str, Any], instance: int, **settings: Any) -> RolloutRequest[Any]:
        """Returns the request with which the episodes of a task row begin: the same for every call of this update.

        Args:
            row: the task row.
            instance: its index among the task rows of this process.
            settings: other fields of the request.
        """
        return replace(self.starts.get(instance) or RolloutRequest(task=row), **settings)

    def play(
        self,
        starts: Sequence[RolloutRequest[Any]],
        policy: Policy = "current",
        template_kwargs: Mapping[str, Any] | None = None,
        interaction: Interaction[Any] | None = None,
    ) -> list[Episode]:
        """Returns the episodes of requests, as `Engine.run`. The ledger counts their cost.

        Args:
            starts: the requests of this process; may be empty.
            policy: the policy that replies.
            template_kwargs: replace settings of the chat template.
            interaction: what is played with the same roles, such as questions about an episode; the task if `None`.

        Raises:
            EveryEpisodeFailedError: every episode of all processes ended in an error, and so did every earlier one of
                this update.
        """
        with self.playing(policy) as engine:
            engine = engine if interaction is None else engine.of(interaction)
            engine = engine if self.player is None or policy != "player" else engine.sampled_by(self.player)
            episodes = (engine if template_kwargs is None else engine.rendered(template_kwargs)).run(starts)
        self.spend(self.cost(Ledger.of(episodes, starts), policy))
        if self.learning:
            record_replays(episodes, starts, self.mean)
            try:
                if refuse_total_failure(episodes, self.gather, "that a method requests"):
                    self._played_in = self.update
            except EveryEpisodeFailedError:
                if self._played_in != self.update:  # a later call may play a single episode, which may fail
                    raise
        return episodes

    @contextmanager
    def playing(self, policy: Policy) -> Iterator[Engine[Any]]:
        """Context in which the engine that it gives plays a policy."""
        engine = self.frozen if policy == "frozen" else self.engine
        if engine is None:
            raise ValueError(f"playing the {policy} policy needs an engine, got none; pass one to the context.")
        yield engine

    def cost(self, played: Ledger, policy: Policy) -> Ledger:
        """Returns the cost of what a policy played, which another model may have."""
        if self.player is None or policy != "player":
            return played
        roles = self.player if isinstance(self.player, Mapping) else dict.fromkeys(played.role_tokens, self.player)
        usual = self.engine.generate if self.engine is not None and isinstance(self.engine.generate, Mapping) else {}
        players = {role: one for role, one in roles.items() if isinstance(one, Player) and one is not usual.get(role)}
        tokens = sum(count for role, count in played.role_tokens.items() if role not in players)
        tokens += sum(one.taken() for one in dict.fromkeys(players.values()))
        return Ledger(scoring_events=played.scoring_events, others={CONTINUATIONS: tokens} if tokens else {})

    def spend(self, cost: Ledger) -> None:
        """Adds a cost to the ledger besides that of `play`."""
        self.ledger += cost

    def logprobs(self, decisions: Sequence[Decision], policy: Policy = "current") -> list[tuple[float, ...]]:
        """Returns the log-probability of each token of each decision under a policy, in nats.

        Raises:
            ValueError: they are unknown: the sampler reported none, or the frozen copy is not the policy.
        """
        is_current = policy == "current" or (self.frozen is not None and self.frozen is self.engine)
        if is_current and self._logprobs is not None:
            return list(self._logprobs(decisions))
        reported = [decision.logprobs for decision in decisions]
        if not is_current or any(one is None for one in reported):
            raise ValueError(
                f"without a trainer, log-probabilities must be those of the sampler, got none under {policy!r}; pass "
                "logprobs=, sample with log-probabilities, or run the method in a trainer."
            )
        return [one for one in reported if one is not None]

    def values(self, inputs: Sequence[CriticInput], critic: str = "critic") -> list[tuple[float, ...]]:
        """Returns a critic's predictions at each position of each input; values are in the unit of the reward."""
        if critic not in self.critics:
            raise ValueError(
                f"a method with a critic must be run with it, got none named {critic!r}; load the critic that was "
                "trained with the policy."
            )
        return list(self.critics[critic](inputs)) if inputs else []

    def waiting(self) -> AbstractContextManager[None]:
        """Context in which a method waits for others, such as a judge, while other collections go on."""
        return released(None if self.engine is None else self.engine.lock)

    def progressed(self) -> None:
        """Says that what takes long without replies goes on."""

    def gather(self, items: Sequence[Any]) -> list[Any]:
        """Returns the items of all processes, in the order of the processes."""
        return list(items)

    def mean(self, name: str, values: Sequence[float]) -> None:
        """Records a metric of this update: the mean of the values of all processes.

        It does not communicate, so a process without values may omit the call.
        """
        if values:
            self.log(name, sum(values) / len(values))

    def total(self, name: str, value: float) -> None:
        """Records a metric of this update: the sum over all processes, as for `mean`."""
        self.log(name, value)

    def log(self, name: str, value: float) -> None:
        """Records a metric of this update that is the same on every process."""
        self.metrics.setdefault(name, []).append(float(value))

    def draws(self, *purpose: int | str) -> random.Random:
        """Returns random numbers for a purpose, different on each process and in each update."""
        head, *rest = purpose or ("",)
        return stream(self.seed, head, self.update, self.process, *rest)

    def stream(self, *purpose: int | str) -> str | None:
        """Returns a name for `RolloutRequest.stream`, different on each process and in each update; `None` if the
        sampler ignores seeds."""
        if self.engine is None or not self.engine.honours_seeds:
            return None
        return " ".join(map(str, (self.seed, self.update, self.process, *purpose)))


MethodContext = LocalContext
"""The context of a method, whoever provides it."""
