"""What is trained: a micro policy on `evidence`, whose check can be hacked, by each arm (paper CVT-RL, Table 2)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hf_credit.policies.micro import MicroConfig

BASE = "start"
CVT = "CVT-RL"
INFORMATION, COMPUTE = "information-matched", "compute-matched"
FREE = "CVT-RL without constraints"
CRITICS = "CVT-RL, eight passes of its critics"

ARMS: Mapping[str, Mapping[str, Any]] = {
    "the check (PPO-RLVR)": {"baseline": "ppo_rlvr"},
    "verified success": {"baseline": "ppo_rlvr", "answer_by": "verified"},
    "constrained process rewards": {"baseline": "constrained_process"},
    COMPUTE: {"baseline": "compute_matched"},
    INFORMATION: {"baseline": "information_matched"},
    CVT: {},
    FREE: {"constrained": False},
    "CVT-RL, its own policy plays on": {"refresh_every": 1},
    "CVT-RL by importance alone (ips)": {"estimator": "ips"},
    "CVT-RL by the model alone": {"estimator": "model"},
    "CVT-RL without the gate": {"gate": False},
    "CVT-RL without correction for drawn steps": {"selection": "none"},
    "CVT-RL without beliefs": {"belief": 0.0},
    CRITICS: {"critic_passes": 8},
}
"""Options of the method `constrained_counterfactual` by arm, in the order of the tables."""
ABLATIONS = tuple(ARMS)[-7:]
"""The arms beyond those of the specification's comparison: CVT-RL with one part changed. The last was added after the
first run of the long schedule had been seen, in which policies forgot."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """All that is run.

    Attributes:
        world: options of the environment.
        policy: how a start is built; the seed is the run's.
        training: settings of every arm, beside those of `run.py`.
        tokens: a training ends with the update in which the policy's tokens, given and generated, counterfactual ones
            included, come to so many.
        held_out: tasks that every policy is measured on.
        seeds: of the training runs.
        arms: which of `ARMS` are run, in this order.
    """

    world: Mapping[str, Any] = field(default_factory=dict)
    policy: MicroConfig = field(default_factory=lambda: MicroConfig(quality=0.5))
    training: Mapping[str, Any] = field(default_factory=dict)
    tokens: int = 200_000
    held_out: int = 512
    seeds: tuple[int, ...] = tuple(range(10))
    arms: tuple[str, ...] = tuple(ARMS)

    def settings(self) -> dict[str, Any]:
        """What a finished cell depends on beside its arm and seed, as plain values."""
        values = dataclasses.asdict(self)
        del values["seeds"]
        return {**values, "arms": {name: dict(ARMS[name]) for name in self.arms}}

    def cells(self) -> list[tuple[str, int]]:
        """Arm and seed of everything that is run, the starts first, then arm by arm."""
        return [(arm, seed) for arm in (BASE, *self.arms) for seed in self.seeds]


# As in evidence_micro, but for the rate, which is twice the recipe's, and the
# schedule: equal tokens are different numbers of steps, so the rate is constant.
EXPERIMENT = Experiment(
    training={
        "group_size": 4,
        "steps": 2.0,
        "branches": 2,
        "refresh_every": 20,
        "trust_region_top": 32,
        "trust_region_wide": 32,
        "instances_per_update": 8,
        "per_device_train_batch_size": 8,
        "rows_per_forward": 64,
        "learning_rate": 1e-3,
        "critic_learning_rate": 1e-3,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "weight_decay": 0.0,
        "max_completion_length": 12,
        "max_context_tokens": 512,
    },
    arms=tuple(arm for arm in ARMS if arm != CRITICS),
)

# The specification's 100 updates of CVT-RL, where the other experiment is the first ten; those that decide first.
LONG = dataclasses.replace(
    EXPERIMENT,
    tokens=2_000_000,
    arms=(
        *(CVT, INFORMATION, COMPUTE),
        *(arm for arm in ARMS if arm not in (CVT, INFORMATION, COMPUTE, *ABLATIONS)),
        CRITICS,
    ),
)

# The same at half the rate, at which the micro recipe is not stuck; those that decide alone.
HALF_RATE = dataclasses.replace(
    LONG, training={**LONG.training, "learning_rate": 5e-4}, arms=(CVT, INFORMATION, COMPUTE)
)
SCHEDULES: Mapping[str, Experiment] = {"short": EXPERIMENT, "long": LONG, "half_rate": HALF_RATE}
