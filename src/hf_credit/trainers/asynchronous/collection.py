"""What goes from the worker, which plays and credits, to the trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hf_credit.collectors import RolloutBatch
from hf_credit.methods import Credit, DecisionCredit
from hf_credit.rollouts import Ledger, Row


@dataclass(frozen=True, kw_only=True)
class CreditedRollouts:
    """What callbacks get of a collection; by default that of a process that plays nothing.

    Attributes:
        collected: its rollouts.
        credit: of its decisions that may be trained on.
        advantages: of the decisions of its trained episodes, as they enter the loss.
    """

    collected: RolloutBatch = field(default_factory=RolloutBatch)
    credit: Credit = field(default_factory=lambda: Credit(decisions={}))
    advantages: Sequence[Sequence[DecisionCredit]] = ()


@dataclass(frozen=True, kw_only=True)
class Collection:
    """The episodes of one update, credited and laid out in rows.

    Attributes:
        number: counted from 0 in the order of tasks; the same after a restart.
        version: of the policy, the oldest that any of its replies came from.
        rows: with the sampler's log-probabilities. There may be none, where nothing got credit.
        metrics: of this collection, logged when it is trained on.
        ledger: what it cost.
        credited: its rollouts and their credit, for callbacks; `None` if it was credited before a restart.
    """

    number: int
    version: int
    rows: tuple[Row, ...]
    metrics: Mapping[str, float]
    ledger: Ledger
    credited: CreditedRollouts | None = field(default=None, compare=False, repr=False)
