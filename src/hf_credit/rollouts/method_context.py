"""What a method may ask of whoever runs it: a trainer, a diagnosis, a test."""

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
"""The policy that is trained, or the copy of it that a method keeps (`Method.refresh_frozen_every`)."""

Logprobs = Callable[[Sequence[Decision]], Sequence[tuple[float, ...]]]
"""The log-probability of each token of each decision under a policy, in nats."""


@dataclass(frozen=True, kw_only=True)
class CriticInput:
    """A text for a critic, and where in it values are wanted.

    Attributes:
        ids: the tokens, at least one.
        at: how many of the tokens have been read where a value is wanted, each in [1, len(ids)], rising: the value of
            a context is that at its length, the value before the token at index i that at i.
    """

    ids: tuple[int, ...]
    at: tuple[int, ...]


class MethodContext(Protocol):
    """The hands of a method. Every process of a run calls the same of these in the same order.

    Attributes:
        interaction: what is played.
        chat: renders messages to tokens.
        update: which collection of the run this is, counted from 1.
        process: which of the processes this is.
        failures: where failures of the task's own code are logged.
        end_tokens: those that end a reply of the policy; one without was cut.
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
        """The episodes of these starts, as `Engine.run` gives them. What they cost is in the ledger from then on.

        Args:
            starts: those of this process; there may be none.
            policy: who replies.
            template_kwargs: settings of the chat template in place of the run's own.

        Raises:
            EveryEpisodeFailedError: every episode of all processes ended as an error, and none of this update has come
                to an end before.
        """

    def logprobs(self, decisions: Sequence[Decision], policy: Policy = "current") -> list[tuple[float, ...]]:
        """The log-probability of each token of each decision under a policy, in nats."""

    def values(self, inputs: Sequence[CriticInput], critic: str = "critic") -> list[tuple[float, ...]]:
        """What a critic of the method predicts at each place of each input, in the unit of the reward."""

    def gather(self, items: Sequence[Any]) -> list[Any]:
        """The items of all processes, in the order of the processes."""

    def mean(self, name: str, values: Sequence[float]) -> None:
        """Records a metric of this update: the mean of the values of all processes, each of which gives its own.

        Nothing is exchanged at once, so a process without values may leave the call out.
        """

    def total(self, name: str, value: float) -> None:
        """Records a metric of this update: the sum over all processes, as for `mean`."""

    def log(self, name: str, value: float) -> None:
        """Records a metric of this update that is the same on every process, such as one made of what was gathered."""

    def draws(self, *purpose: int | str) -> random.Random:
        """Random numbers for a purpose, others on each process and in each update."""

    def stream(self, *purpose: int | str) -> str | None:
        """A name for `RolloutRequest.stream`, another on each process and in each update; `None` where the sampler
        honours no seeds."""


class LocalContext:
    """A context of one process without a trainer: for diagnosis, notebooks and tests.

    Args:
        engine: plays, with the policy that is looked at; `None` for one that only credits what was played.
        critics: by name, what each predicts at the places of inputs.
        seed: of all draws.
        frozen: plays with the frozen copy, where a method asks for it.
        logprobs: those of a policy's tokens, in nats; where `None`, what the sampler reported.
        end_tokens: those that end a reply; the tokenizer's own if `None`.

    Attributes:
        ledger: what has been played so far.
        metrics: what has been logged so far, by name.
        update: which collection this is, for whoever runs several.
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
        """The frozen copy has those of the policy where it is the policy itself.

        Raises:
            ValueError: nobody knows them, or those of another policy are asked for.
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
