"""A policy for the program `agent_shop`, and settings of the small trainings that tests run with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from small_runs import SAMPLED

from hf_credit import collaborations
from hf_credit.environments.actions import marked, write_call
from hf_credit.policies.micro import MicroConfig
from hf_credit.rollouts import RolloutRequest
from hf_credit.trainers.micro import init_scripted_policy

ROWS = [{"wanted": "tea"}, {"wanted": "salt"}]


def build_policy(folder: Path) -> Path:
    """A policy that opens a box, and then says one."""
    interaction: Any = collaborations.make("agent", agent="agent_shop:shop")

    def script(state: Any, request: Any, draws: Any) -> str:
        box = draws.choice("ab")
        return box if len(request.messages) > 1 else marked(write_call("open", {"box": box}))

    starts = [RolloutRequest(task=ROWS[seed % 2], seed=seed) for seed in range(16)]
    config = MicroConfig(hidden_size=32, layers=1, heads=2, episodes=16, epochs=30, batch_rows=8, learning_rate=8e-3)
    init_scripted_policy(interaction, script, starts, folder, config)
    interaction.close()
    return folder


def settings(output: Path, **changed: Any) -> dict[str, Any]:
    """Of an update or two."""
    return {
        "output_dir": str(output),
        "instances_per_update": 2,
        "per_device_train_batch_size": 2,
        "max_completion_length": 64,
        "learning_rate": 1e-3,
        "max_steps": 2,
        **SAMPLED,
        **changed,
    }
