"""What goes from the worker, which plays and credits, to the trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hf_credit.rollouts import Ledger, Row


@dataclass(frozen=True, kw_only=True)
class Collection:
    """The episodes of one update, credited and laid out in rows.

    Attributes:
        number: counted from 0 in the order of tasks; the same after a restart.
        version: of the policy, the oldest that any of its replies came from.
        rows: with the sampler's log-probabilities. There may be none, where nothing got credit.
        metrics: of this collection, logged when it is trained on.
        ledger: what it cost.
    """

    number: int
    version: int
    rows: tuple[Row, ...]
    metrics: Mapping[str, float]
    ledger: Ledger
