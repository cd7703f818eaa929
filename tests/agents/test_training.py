"""A stranger's program is trained, unmodified, by methods with replay and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from small_agents import ROWS, build_policy, settings
from small_runs import ON_A_PROCESSOR

from hf_credit import CreditConfig, CreditTrainer, collaborations, methods
from hf_credit.tasks import TaskSpec


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_policy(tmp_path_factory.mktemp("policy"))


@pytest.mark.parametrize(
    ("name", "options"),
    [("grpo", {"group_size": 4}), ("vineppo", {"group_size": 2, "rollouts": 2}), ("gigpo", {"group_size": 4})],
)
def test_a_program_is_trained(policy: Path, tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    interaction: Any = collaborations.make("agent", agent="agent_shop:shop")
    trainer = CreditTrainer(
        str(policy),
        interaction,
        CreditConfig(**ON_A_PROCESSOR, **settings(tmp_path)),
        method=methods.make(name, **options),
        train_dataset=Dataset.from_list(ROWS * 4),
    )
    trainer.train()
    interaction.close()
    logged = [entry for entry in trainer.state.log_history if "endings/error" in entry]
    assert [entry["endings/error"] for entry in logged] == [0.0, 0.0]
    assert logged[-1]["replies_kept"] == 1.0
    assert logged[-1]["calls"] > 1.0
    assert (logged[-1]["world/forced_replies"] > 0) == (name == "vineppo")
    assert logged[-1]["world/diverged"] == 0.0


def test_a_command_that_a_file_names_is_not_run_unasked() -> None:
    spec = TaskSpec(collaboration="agent", collaboration_options={"agent": ["touch", "here"]}, trusted=False)
    with pytest.raises(ValueError, match=r"cannot choose a server, a path or what is imported, got the agent"):
        spec.build()
