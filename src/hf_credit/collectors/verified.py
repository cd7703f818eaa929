"""Episodes with an oracle's verdict on every decision (paper VPR, eq. 2)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hf_credit.collectors.base import Collector, RolloutBatch, Single, TaskRow, bound, gives_of
from hf_credit.oracles import OracleLike, resolve
from hf_credit.rollouts import Interaction, verify
from hf_credit.rollouts.capabilities import Oracled
from hf_credit.rollouts.method_context import MethodContext


@dataclass(frozen=True, kw_only=True)
class Verified:
    """The episodes of another collector, with verdicts.

    Args:
        inner: the collector of the episodes.
        oracle: the oracle, its name, or a mapping of its `name` and `options`; the environment's default if `None`.
        required: whether an oracle is required and its failure ends an episode as an error. Otherwise it only provides
            metrics, and its failures have no effect.
    """

    inner: Collector = field(default_factory=Single)
    oracle: OracleLike | None = None
    required: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "oracle", resolve(self.oracle))

    @property
    def replaying(self) -> bool:
        """Whether `inner` replays recorded states."""
        return bool(getattr(self.inner, "replaying", False))

    @property
    def gives(self) -> frozenset[str]:
        """What `inner` gives, and verdicts if it has an oracle."""
        return gives_of(self.inner) | ({"verdicts"} if self.oracle is not None else set())

    def bind(self, interaction: Interaction[Any]) -> Verified:
        """Returns the collector with its oracle, or else the default oracle of an Interaction's environment.

        Raises:
            ValueError: the oracle does not fit the Interaction, or a required oracle is missing.
        """
        oracle = Oracled(interaction).check_oracle(resolve(self.oracle))
        if oracle is None and self.required:
            raise ValueError(
                f"this method needs an oracle, got none and {interaction.name!r} has no default; pass oracle=."
            )
        return replace(self, oracle=oracle, inner=bound(self.inner, interaction))

    def __call__(self, rows: Sequence[TaskRow], context: MethodContext, memory: Any = None) -> RolloutBatch:
        collected = self.inner(rows, context, memory)
        oracle = resolve(self.oracle)
        if oracle is None:
            return collected
        start = time.perf_counter()
        verified = verify(collected.episodes, oracle, context.interaction, context.failures)
        context.mean("oracle/seconds", [time.perf_counter() - start])
        if not self.required:
            verified = [
                replace(after, ending=before.ending, error=before.error, exception=before.exception)
                for before, after in zip(collected.episodes, verified, strict=True)
            ]
        episodes = iter(verified)
        rollouts = (
            replace(rollout, episode=next(episodes)) if rollout.trained else rollout for rollout in collected.rollouts
        )
        return replace(collected, rollouts=tuple(rollouts))
