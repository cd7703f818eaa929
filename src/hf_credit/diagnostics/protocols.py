"""The protocols of `hf-credit diagnose`: what each needs, plays and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hf_credit.diagnostics import diagnosis_report as report
from hf_credit.diagnostics.bucket_sampling import BucketPlan
from hf_credit.diagnostics.policy import (
    Tasks,
    diagnose_policy,
    diagnose_training,
    load_subject,
    replies_at_most,
    training_replies_at_most,
)
from hf_credit.diagnostics.replay_walks import diagnose_replays
from hf_credit.evaluation.plots import require_matplotlib
from hf_credit.evaluation.statistics import mean_interval
from hf_credit.methods import Method
from hf_credit.oracles import Oracle
from hf_credit.rollouts.capabilities import Oracled
from hf_credit.tasks.spec import TaskSpec
from hf_credit.validators import one_of

PROTOCOLS = {
    "buckets": (report.write_diagnosis, report.tables),
    "training": (report.write_training_credit, report.training_tables),
    "replays": (report.write_replays, report.replay_tables),
}
"""Of each protocol, how its results are written to a folder, and their tables."""


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A protocol with its settings. All errors are found before anything is played.

    Attributes:
        name: one of `PROTOCOLS`.
        plan, methods, oracle, attempts, credit_replays: as for `diagnose_policy`.
        tasks, exact_floor: as for `load_subject`.
        branches: the maximum number of live branches per start, of replays.

    Raises:
        ValueError: the protocol does not exist, or does not take a setting.
        ImportError: scipy or matplotlib is missing.
    """

    name: str
    plan: BucketPlan
    tasks: Tasks
    methods: Mapping[str, Method] = field(default_factory=dict)
    oracle: Oracle[Any] | None = None
    exact_floor: float | None = None
    attempts: int = 0
    credit_replays: int = 1
    branches: float = 2.0

    def __post_init__(self) -> None:
        one_of("--protocol", self.name, tuple(PROTOCOLS))
        if self.name != "buckets" and self.oracle is not None:
            judge = getattr(self.oracle, "name", type(self.oracle).__name__)
            raise ValueError(
                f"--oracle needs --protocol buckets, got {judge!r} with --protocol {self.name}; omit --oracle."
            )
        if self.name == "replays" and (self.methods or self.exact_floor is not None):
            option = "--method" if self.methods else "--exact"
            raise ValueError(f"--protocol replays needs only a policy, got {option}; omit {option}.")
        mean_interval([0.0, 1.0], resamples=1)
        if self.name == "buckets":
            require_matplotlib()

    def replies(self, setup: TaskSpec) -> int:
        """Returns the maximum number of replies of a diagnosis, for a progress bar."""
        most, episodes = setup.build().max_replies or 1, self.tasks.episodes or 256
        if self.name == "training":
            return training_replies_at_most(self.plan, most)
        return episodes * most if self.name == "replays" else replies_at_most(episodes, most, self.plan, self.attempts)

    def diagnose(self, model: str, setup: TaskSpec, **loading: Any) -> Sequence[Any]:
        """Diagnoses a saved policy; the arguments are as for `load_subject`."""
        if self.name == "buckets":
            oracle = Oracled(setup.build()).check_oracle(self.oracle)
        subject, starts = load_subject(
            model, setup, self.plan, tasks=self.tasks, exact_floor=self.exact_floor, **loading
        )
        if self.name == "training":
            return diagnose_training(subject, starts, self.plan, self.methods)
        if self.name == "replays":
            return [diagnose_replays(subject, starts, most=self.branches, seed=self.plan.seed)]
        numbers = {"attempts": self.attempts, "credit_replays": self.credit_replays}
        return [diagnose_policy(subject, starts, self.plan, methods=self.methods, oracle=oracle, **numbers)]  # type: ignore[arg-type]

    def warnings(self, found: Sequence[Any]) -> list[str]:
        """Returns what the results do not tell, a sentence each."""
        if self.name == "replays":
            return [one.warning for one in found if one.warning]
        missing = ((one.name, one.not_measured) for one in found if self.name == "buckets")
        return [f"{name}, credit of {label}: {sentence}" for name, own in missing for label, sentence in own.items()]

    def write(self, found: Sequence[Any], folder: Path, examples: int) -> Path:
        """Writes the results, of buckets with so many example decisions, and returns the path of their page."""
        write, _ = PROTOCOLS[self.name]
        more = {"examples": examples} if self.name == "buckets" else {}
        return write(found, folder, **more)  # type: ignore[no-any-return, operator]

    def tables(self, found: Sequence[Any]) -> dict[str, report.Table]:
        """Returns the header and the rows of each table, by title; without the name if there is only one policy."""
        _, tables = PROTOCOLS[self.name]
        first = int(len({one.name for one in found}) == 1)
        shown: dict[str, report.Table] = tables(found)  # type: ignore[operator]
        return {title: (header[first:], [row[first:] for row in rows]) for title, (header, rows) in shown.items()}
