"""What is measured: the relay, and the ways to train two speakers on it at equal scores (paper C3, 4 and 5)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hf_credit.diagnostics.bucket_sampling import BucketPlan
from hf_credit.policies.micro import MicroConfig

BASE = "SFT"
C3 = "C3"
# The arm of each method, under the paper's names: the method, its options, and settings of its own. All arms of a seed
# start from the same weights and take the same number of scores on the same tasks in the same order.
METHODS: Mapping[str, Mapping[str, Any]] = {
    "MAPPO": {"name": "mappo", "options": {"group_size": 8}, "settings": {"critic_learning_rate": 1e-3}},
    "MAGRPO": {"name": "magrpo", "options": {"group_size": 8}},
    C3: {"name": "replay_loo", "options": {"budget": 8, "alternatives": [2, 4], "equal_steps": False}},
    "C3 with 4 plans": {
        "name": "replay_loo",
        "options": {"budget": 8, "alternatives": [4, 2], "equal_steps": False},
    },
    "C3 without replay": {"name": "replay_loo", "options": {"budget": 8, "match_contexts": False}},
    "C3 without leave-one-out": {
        "name": "replay_loo",
        "options": {"budget": 8, "alternatives": [2, 4], "baseline": "full_mean", "equal_steps": False},
    },
}
ARMS = (BASE, *METHODS)
# Whose baseline Appendix I gives the candidates of a policy's buckets: MAGRPO's is the mean of all candidates, which
# is also what C3 subtracts without leave-one-out.
ESTIMATOR_OF = dict.fromkeys(ARMS, "C3") | {
    "MAPPO": "MAPPO",
    "MAGRPO": "MAGRPO",
    "C3 without leave-one-out": "MAGRPO",
}
ESTIMATORS = {C3: "replay_loo", "MAGRPO": "magrpo", "MAPPO": "mappo"}  # by the name of the method

# Whose messages are looked at, and how people call them.
EVENTS = {"all": "all messages", "reasoner": "the reasoner's", "actor": "the actor's"}

REPLY_TOKENS = 2  # a number and the end


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """All that is run.

    Attributes:
        size: of the relay: how many numbers there are.
        policy: how the starting policy is built; its seed is replaced by the run's.
        training: settings of `CreditConfig` besides those of the arm and of `run.py`.
        looked_at: the updates whose credit is compared with the truth, the first being 0.
        buckets: how dense the buckets of the diagnostics are.
        attempts: drawn at each held-out task for pass@1 and pass@k.
        floor: replies less probable than this are left out of exact values.
        seeds: of the training runs: weights, scripted play, order of tasks and sampling.
    """

    size: int = 10
    policy: MicroConfig = field(default_factory=lambda: MicroConfig(quality=0.5, epochs=8))
    training: Mapping[str, Any] = field(default_factory=dict)
    looked_at: tuple[int, ...] = (0, 10, 20, 40, 80, 149)
    buckets: BucketPlan = field(default_factory=BucketPlan)
    attempts: int = 10
    floor: float = 1e-4
    seeds: tuple[int, ...] = tuple(range(10))

    def settings(self) -> dict[str, Any]:
        """What a finished policy depends on besides its arm and its seed, as plain values."""
        values = dataclasses.asdict(self)
        del values["seeds"]
        return {**values, "methods": METHODS}


# As in relay_micro, whose rate was chosen on training tasks with one seed.
EXPERIMENT = Experiment(
    training={
        "instances_per_update": 32,
        "per_device_train_batch_size": 32,
        "max_steps": 150,
        "learning_rate": 1e-3,
        "lr_scheduler_type": "cosine",
        "beta": 0.0,
    },
    buckets=BucketPlan(buckets=64, candidates=6, replays=4, value_actions=8),
)
