"""The protocols of `hf-credit diagnose`: what each refuses, plays and writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hf_credit.diagnostics import diagnosis_report as report
from hf_credit.diagnostics import policy
from hf_credit.diagnostics.bucket_sampling import BucketPlan
from hf_credit.diagnostics.verdicts import diagnose_verdicts
from hf_credit.evaluation.plots import require_matplotlib
from hf_credit.evaluation.statistics import mean_interval
from hf_credit.methods import Method
from hf_credit.oracles import Oracle
from hf_credit.rollouts.capabilities import Oracled
from hf_credit.tasks.spec import TaskSpec
from hf_credit.validators import one_of

PROTOCOLS = ("buckets", "training", "signal", "verdicts")
_JUDGED = ("buckets", "verdicts")


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A protocol with its settings; `signal` is `hf_credit.trainers.signal_protocol.SignalProtocol`.

    Attributes:
        name: one of `PROTOCOLS`.
        plan, methods, oracle, attempts, credit_replays: as for `policy.diagnose_policy`.
        tasks, exact: as `tasks` and `exact_floor` of `policy.load_subject`.
        examples: the number of example decisions that `write` shows in full.

    Raises:
        ValueError: the protocol does not exist.
        ImportError: scipy or matplotlib is missing.
    """

    name: str
    plan: BucketPlan
    tasks: policy.Tasks
    methods: Mapping[str, Method]
    oracle: Oracle[Any] | None
    exact: float | None
    attempts: int
    credit_replays: int
    examples: int

    def __post_init__(self) -> None:
        one_of("--protocol", self.name, PROTOCOLS)
        mean_interval([0.0, 1.0])  # a missing library is an error before the work
        if self.name in _JUDGED:
            require_matplotlib()

    def replies(self, setup: TaskSpec) -> int:
        """Returns the maximum number of replies to diagnose a policy, for a progress bar."""
        most, episodes = setup.build().max_replies or 1, self.tasks.episodes or 256
        if self.name == "training":
            return policy.replies_at_most(0, most, replace(self.plan, candidates=1, draws=0), 0)
        if self.name == "verdicts":
            return policy.replies_at_most(episodes, most, replace(self.plan, value_actions=0), 0)
        return policy.replies_at_most(episodes, most, self.plan, self.attempts)

    def diagnose(self, model: str, setup: TaskSpec, **loading: Any) -> Sequence[Any]:
        """Diagnoses a saved policy; the arguments are those of `policy.load_subject`."""
        oracle = Oracled(setup.build()).chosen(self.oracle) if self.name in _JUDGED else None
        if self.name == "verdicts" and oracle is None:
            raise ValueError(f"--protocol verdicts needs an oracle, got none for {setup.task!r}; add --oracle.")
        subject, starts = policy.load_subject(
            model, setup, self.plan, tasks=self.tasks, exact_floor=self.exact, **loading
        )
        if self.name == "training":
            return policy.diagnose_training(subject, starts, self.plan, self.methods)
        if self.name == "verdicts" and oracle is not None:
            return [diagnose_verdicts(subject, starts, self.plan, oracle)]
        more: dict[str, Any] = {"attempts": self.attempts, "credit_replays": self.credit_replays}
        return [policy.diagnose_policy(subject, starts, self.plan, methods=self.methods, oracle=oracle, **more)]

    def write(self, found: Sequence[Any], folder: Path) -> tuple[Path, dict[str, report.Table], list[str]]:
        """Writes the results; returns the path of their page, their tables by title, and warnings."""
        writers: dict[str, tuple[Any, Any]] = {
            "buckets": (partial(report.write_diagnosis, examples=self.examples), report.tables),
            "training": (report.write_training_credit, report.training_tables),
            "signal": (report.write_signals, report.signal_tables),
            "verdicts": (report.write_verdicts, report.verdict_tables),
        }
        write, tables = writers[self.name]
        warnings = [one.note for one in found if self.name == "verdicts"]
        for one in found if self.name in ("buckets", "signal") else ():
            warnings += [f"{one.name}, credit of {label}: {why}" for label, why in one.not_measured.items()]
        return write(found, folder), tables(found), warnings
