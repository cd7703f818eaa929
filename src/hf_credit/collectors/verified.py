"""Episodes with an oracle's verdict on every decision (paper VPR, eq. 2)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hf_credit.collectors.base import Collected, Collector, Single, TaskRow
from hf_credit.oracles import Oracle, require_fit
from hf_credit.rollouts import EnvironmentInteraction, Interaction, verify
from hf_credit.rollouts.runner import Runner


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What another collector plays, verified.

    Args:
        inner: plays.
        oracle: who verifies; the environment's own if `None`.
        required: whether there must be one, and its failure ends an episode as an error. Otherwise it only watches,
            and its failures are its own.
    """

    inner: Collector = field(default_factory=Single)
    oracle: Oracle[Any] | None = None
    required: bool = True

    def bound_to(self, interaction: Interaction[Any]) -> Verified:
        """The same with the oracle of an Interaction's environment, where none is named.

        Raises:
            ValueError: the Interaction is no game, the oracle does not fit it, or there is none and one is required.
        """
        oracle = self.oracle or interaction.default_oracle()
        if oracle is not None and not isinstance(interaction, EnvironmentInteraction):
            raise ValueError(
                f"an oracle verifies the actions of an environment, got a {type(interaction).__name__}; train on a "
                "game, or take a method that asks no oracle."
            )
        if oracle is not None and isinstance(interaction, EnvironmentInteraction):
            require_fit(oracle, interaction.environment)
        elif self.required:
            raise ValueError(
                f"this method needs an oracle, got none and {interaction.name!r} has none of its own; pass oracle=."
            )
        inner = self.inner.bound_to(interaction) if hasattr(self.inner, "bound_to") else self.inner
        return replace(self, oracle=oracle, inner=inner)

    def __call__(self, rows: Sequence[TaskRow], runner: Runner, memory: Any = None) -> Collected:
        collected = self.inner(rows, runner, memory)
        if self.oracle is None:
            return collected
        begun = time.perf_counter()
        judged = verify(collected.episodes, self.oracle, runner.failures)
        runner.log("oracle/seconds", time.perf_counter() - begun)
        if not self.required:
            judged = [
                replace(after, ending=before.ending, error=before.error, exception=before.exception)
                for before, after in zip(collected.episodes, judged, strict=True)
            ]
        rest = iter(judged)
        return replace(
            collected,
            samples=tuple(
                replace(sample, episode=next(rest)) if sample.trained else sample for sample in collected.samples
            ),
        )
