"""Replays that fail give no credit: their share is logged, and a run whose states mostly have no value ends."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from small_runs import ON_A_PROCESSOR, SAMPLED

from hf_credit import CreditConfig, CreditTrainer, methods
from hf_credit.environments.replayed import DivergedError
from hf_credit.rollouts import Interaction, Request
from hf_credit.rollouts.failures import UnknownValuesError


@dataclass(frozen=True, kw_only=True)
class Told:
    serial: int
    replies: tuple[str, ...] = ()


class Clock(Interaction[Told]):
    """Three replies. A state after `steady` replies can be left `times` times; then the clock has moved."""

    def __init__(self, steady: int, times: int = 1) -> None:
        self.steady, self.times = steady, times
        self.left = Counter[int]()
        self.serials = itertools.count()

    def start(self, task: Mapping[str, Any], seed: int) -> Told:
        return Told(serial=next(self.serials))

    def pending(self, state: Told) -> tuple[Request, ...]:
        asked = [{"role": "user", "content": f"{len(state.replies)}?"}]
        return () if len(state.replies) == 3 else (Request(role="agent", messages=asked),)

    def advance(self, state: Told, replies: Sequence[str]) -> Told:
        if self.left[state.serial] >= self.times and len(state.replies) >= self.steady:
            raise DivergedError("the clock has moved")
        self.left[state.serial] += 1
        return Told(serial=next(self.serials), replies=(*state.replies, *replies))

    def outcome(self, state: Told) -> float:
        return float(len(state.replies[-1]) % 2) if state.replies else 0.0

    def reseed(self, state: Told, seed: int) -> Told:
        return replace(state)


def trained(method: Any, steady: int, policy: Path, folder: Path, times: int = 1) -> Any:
    rows = Dataset.from_list([{"seed": seed} for seed in range(8)])
    args = CreditConfig(
        output_dir=str(folder),
        instances_per_update=2,
        per_device_train_batch_size=2,
        max_steps=1,
        max_completion_length=3,
        critic_learning_rate=1e-3,
        **ON_A_PROCESSOR,
        **SAMPLED,
    )
    trainer = CreditTrainer(str(policy), Clock(steady, times), args, method=method, train_dataset=rows)
    trainer.train()
    return trainer


VINE: dict[str, Any] = {"group_size": 2, "rollouts": 2}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("vineppo", VINE),
        ("mc_process_reward", {"rollouts": 2}),
        ("tree_grpo", {"trees": 2, "expansions": 3}),
        ("active_replay", {"branches": [1.0, 2.0, 2.0]}),
        ("replay_loo", {"reference_rollouts": 2, "contexts": 5, "alternatives": [2], "budget": 10}),
        ("replay_loo", {}),
        ("carl", {"initial": 2, "forks": 4}),
    ],
)
def test_a_run_whose_replays_fail_ends_and_says_why(
    name: str, options: dict[str, Any], micro_policy: Path, tmp_path: Path
) -> None:
    """Where the only episodes are trees, every one failed."""
    why = r"got none for \d+ of \d+, whose replays failed, such as Diverged|got (\d+) of \1 .*the first with Diverged"
    with pytest.raises(UnknownValuesError, match=why):
        trained(methods.make(name, **options), 1, micro_policy, tmp_path)


def test_a_group_ends_that_cannot_begin_again_in_its_first_state(micro_policy: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownValuesError, match=r"got 8 of 8 with errors, the first with Diverged"):
        trained(methods.make("grpo", group_size=4), 0, micro_policy, tmp_path)


@pytest.mark.parametrize("times", [1, 2])
def test_where_some_states_are_unknown_the_others_are_trained_on(
    times: int, micro_policy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where one of two replays went on: that it met the state again was luck."""
    trainer = trained(methods.make("vineppo", **VINE), 2, micro_policy, tmp_path, times)
    logged = trainer.state.log_history[0]
    # Of three states of an episode the last has no value, and so the last two decisions no credit.
    assert logged["replays/unknown"] == pytest.approx(1 / 3)
    assert logged["advantages/trained"] == pytest.approx(1 / 3)
    assert math.isfinite(logged["loss"])
    assert [record.message[:24] for record in caplog.records if "of replays" in record.message] == [
        "33% of replays failed, s"
    ]
