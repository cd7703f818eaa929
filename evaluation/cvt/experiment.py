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
}
"""Options of the method `constrained_counterfactual` by arm, in the order of the tables."""
FEWER = tuple(ARMS)[-2:]
"""The arms beyond those of the specification's comparison, which have five seeds."""


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
        seeds, fewer_seeds: of the arms, and of `FEWER`.
    """

    world: Mapping[str, Any] = field(default_factory=dict)
    policy: MicroConfig = field(default_factory=lambda: MicroConfig(quality=0.5))
    training: Mapping[str, Any] = field(default_factory=dict)
    tokens: int = 200_000
    held_out: int = 512
    seeds: tuple[int, ...] = tuple(range(10))
    fewer_seeds: tuple[int, ...] = tuple(range(5))

    def settings(self) -> dict[str, Any]:
        """What a finished cell depends on beside its arm and seed, as plain values."""
        values = dataclasses.asdict(self)
        del values["seeds"], values["fewer_seeds"]
        return {**values, "arms": {name: dict(options) for name, options in ARMS.items()}}

    def cells(self) -> list[tuple[str, int]]:
        """Arm and seed of everything that is run, seed by seed, the arms of the specification first."""
        main = [(arm, seed) for seed in self.seeds for arm in (BASE, *ARMS) if arm not in FEWER]
        return main + [(arm, seed) for seed in self.fewer_seeds for arm in FEWER]


# As in trainers/constrained_counterfactual/evidence_micro.yaml, but for the schedule: equal tokens are different
# numbers of steps, so the rate is constant.
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
    }
)
