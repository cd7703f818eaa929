"""A stranger's program is trained, unmodified, by methods with replay and without."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from small_agents import ROWS, build_policy, settings
from small_runs import ON_A_PROCESSOR
from trl.chat_template_utils import qwen3_chat_template

from hf_credit import CreditConfig, CreditTrainer, collaborations, methods
from hf_credit.tasks import TaskSpec
from hf_credit.trainers.arguments import read_calls_of


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


def test_tool_calls_are_read_as_trl_knows_them_of_a_chat_template(tokenizer: Any) -> None:
    known, unknown, elsewhere = (copy.deepcopy(tokenizer) for _ in range(3))
    known.chat_template = elsewhere.chat_template = qwen3_chat_template
    agent = collaborations.make("agent", agent="agent_shop:shop")
    for one, interaction in ((known, agent), (unknown, agent), (elsewhere, collaborations.make("relay"))):
        read_calls_of(one, interaction)
    assert getattr(known, "response_template", {})["start_anchor"] == "<|im_start|>assistant\n"
    assert [getattr(one, "response_template", None) for one in (unknown, elsewhere)] == [None, None]


def test_a_command_that_a_file_names_is_not_run_unasked() -> None:
    spec = TaskSpec(collaboration="agent", collaboration_options={"agent": ["touch", "here"]}, trusted=False)
    with pytest.raises(ValueError, match=r"cannot choose a server, a path or what is imported, got the agent"):
        spec.build()
