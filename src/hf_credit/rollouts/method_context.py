"""The services that a trainer, a diagnosis or a test provides to a method."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from hf_credit.deprecated import renamed_arguments
from hf_credit.environments.randomness import stream
from hf_credit.rollouts.chat import Chat
from hf_credit.rollouts.engine import Engine, RolloutRequest
from hf_credit.rollouts.episode import Decision, Episode
from hf_credit.rollouts.failures import EveryEpisodeFailedError, FailureLog, refuse_total_failure
from hf_credit.rollouts.interaction import Interaction
from hf_credit.rollouts.ledger import Ledger

Policy = Literal["current", "frozen"]
"""The trained policy, or its frozen copy (`Method.refresh_frozen_every`)."""

Logprobs = Callable[[Sequence[Decision]], Sequence[tuple[float, ...]]]
"""The log-probability of each token of each decision under a policy, in nats."""


@dataclass(frozen=True, kw_only=True)
class CriticInput:
    """A text for a critic, and the positions for its predictions.

    Attributes:
        ids: the tokens, at least one.
        at: for each prediction the number of tokens read before it, in [1, len(ids)], ascending: the value of a
            context is at its length, the value before the token at index i is at i.
    """

    ids: tuple[int, ...]
    at: tuple[int, ...]


class MethodContext(Protocol):
    """What a method can call. Every process of a run calls the same functions in the same order.

    Attributes:
        interaction: the task to play.
        chat: renders messages to tokens.
        update: number of the collection in the run, counted from 1.
        process: index of this process.
        failures: where failures of the task's own code are logged.
        end_tokens: tokens that end a reply of the policy; a reply without one was cut.
    """

    interaction: Interaction[Any]
    chat: Chat
    failures: FailureLog

    @property
    def update(self) -> int: ...

    @property
    def process(self) -> int: ...

    @property
    def end_tokens(self) -> Collection[int]: ...

    def play(
        self,
        starts: Sequence[RolloutRequest[Any]],
        policy: Policy = "current",
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[Episode]:
        """The episodes of these starts, as from `Engine.run`. The ledger counts their cost.

        Args:
            starts: those of this process; may be empty.
            policy: that replies.
            template_kwargs: settings of the chat template in place of the run's own.

        Raises:
            EveryEpisodeFailedError: every episode of all processes ended as an error, and no earlier episode of this
                update has finished.
        """

    def logprobs(self, decisions: Sequence[Decision], policy: Policy = "current") -> list[tuple[float, ...]]:
        """The log-probability of each token of each decision under a policy, in nats."""

    def values(self, inputs: Sequence[CriticInput], critic: str = "critic") -> list[tuple[float, ...]]:
        """The predictions of a critic of the method at each position of each input, in the unit of the reward."""

    def gather(self, items: Sequence[Any]) -> list[Any]:
        """The items of all processes, in the order of the processes."""

    def mean(self, name: str, values: Sequence[float]) -> None:
        """Records a metric of this update: the mean of the values of all processes, each of which passes its own.

        There is no immediate exchange, so a process without values may omit the call.
        """

    def total(self, name: str, value: float) -> None:
        """Records a metric of this update: the sum over all processes, as for `mean`."""

    def log(self, name: str, value: float) -> None:
        """Records a metric of this update that is the same on every process, such as one of gathered values."""

    def draws(self, *purpose: int | str) -> random.Random:
        """Random numbers for a purpose, different on each process and in each update."""

    def stream(self, *purpose: int | str) -> str | None:
        """A name for `RolloutRequest.stream`, different on each process and in each update; `None` if the sampler does
        not honour seeds.
        """


class LocalContext:
    """A context of one process without a trainer: for diagnosis, notebooks and tests.

    Args:
        engine: plays with the policy; `None` for a context that only credits existing episodes.
        critics: by name, functions from inputs to predictions at their positions.
        seed: of all draws.
        frozen: plays with the frozen copy, if a method needs it.
        logprobs: those of a policy's tokens, in nats; `None` uses those of the sampler.
        end_tokens: tokens that end a reply; the tokenizer's own if `None`.

    Attributes:
        ledger: the cost so far.
        metrics: the metrics so far, by name.
        update: number of the collection, if several are run.
    """

    def __init__(
        self,
        engine: Engine[Any] | None = None,
        critics: Mapping[str, Any] | None = None,
        seed: int = 0,
        frozen: Engine[Any] | None = None,
        logprobs: Logprobs | None = None,
        end_tokens: Collection[int] | None = None,
    ) -> None:
        self.engine = engine
        if engine is not None:
            self.interaction = engine.interaction
            self.chat = engine.chat
            end_tokens = (engine.chat.tokenizer.eos_token_id,) if end_tokens is None else end_tokens
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

    def play(
        self,
        starts: Sequence[RolloutRequest[Any]],
        policy: Policy = "current",
        template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[Episode]:
        engine = self.engine if policy == "current" else self.frozen
        if engine is None:
            raise ValueError(f"a context must have an engine to play the {policy} policy, got none; pass it one.")
        episodes = (engine if template_kwargs is None else engine.rendered(template_kwargs)).run(starts)
        self.ledger += Ledger.of(episodes, starts)
        try:
            refuse_total_failure(episodes, what="that a method asks for")
            self._played_in = self.update if episodes else self._played_in
        except EveryEpisodeFailedError:
            if self._played_in != self.update:  # a later round may be one episode, and its failure is data
                raise
        return episodes

    def logprobs(self, decisions: Sequence[Decision], policy: Policy = "current") -> list[tuple[float, ...]]:
        """Those of the policy also serve for the frozen copy, if it is the policy itself.

        Raises:
            ValueError: they are unknown, or belong to another policy.
        """
        known = policy == "current" or (self.frozen is not None and self.frozen is self.engine)
        if known and self._logprobs is not None:
            return list(self._logprobs(decisions))
        found = [decision.logprobs for decision in decisions]
        if not known or any(one is None for one in found):
            raise ValueError(
                f"log-probabilities without a trainer are those that the sampler reported, got none under {policy!r}; "
                "pass logprobs=, sample with log-probabilities, or run the method in a trainer."
            )
        return [one for one in found if one is not None]

    @renamed_arguments({"readings": "inputs"})
    def values(self, inputs: Sequence[CriticInput], critic: str = "critic") -> list[tuple[float, ...]]:
        if critic not in self.critics:
            raise ValueError(
                f"a method that asks a critic must be run with it, got none called {critic!r}; load the critic that "
                "was trained with the policy."
            )
        return list(self.critics[critic](inputs)) if inputs else []

    def gather(self, items: Sequence[Any]) -> list[Any]:
        return list(items)

    def mean(self, name: str, values: Sequence[float]) -> None:
        if values:
            self.log(name, sum(values) / len(values))

    def total(self, name: str, value: float) -> None:
        self.log(name, value)

    def log(self, name: str, value: float) -> None:
        self.metrics.setdefault(name, []).append(value)

    def draws(self, *purpose: int | str) -> random.Random:
        head, *rest = purpose or ("",)
        return stream(self.seed, head, self.update, self.process, *rest)

    def stream(self, *purpose: int | str) -> str | None:
        if self.engine is None or not self.engine.honours_seeds:
            return None
        return " ".join(map(str, (self.seed, self.update, self.process, *purpose)))
