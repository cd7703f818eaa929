"""An unmodified program is trained by methods with and without replay."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from datasets import Dataset
from judge_server import JudgeServer, completion
from small_agents import ROWS, settings
from small_runs import ON_A_PROCESSOR

from hf_credit import CreditConfig, CreditTrainer, collaborations, methods
from hf_credit.evaluation.credited import read_episodes
from hf_credit.evaluation.play import evaluate_model
from hf_credit.policies.micro import MicroConfig
from hf_credit.rollouts import RolloutRequest
from hf_credit.tasks import TaskSpec
from hf_credit.trainers.micro import init_scripted_policy
from hf_credit.trainers.recipes import read_job
from hf_credit.trainers.training import build_trainer


@pytest.mark.parametrize(
    ("name", "options"),
    [("grpo", {"group_size": 4}), ("vineppo", {"group_size": 2, "rollouts": 2}), ("gigpo", {"group_size": 4})],
)
def test_a_program_is_trained(shop_policy: Path, tmp_path: Path, name: str, options: dict[str, Any]) -> None:
    interaction: Any = collaborations.make("agent", agent="agent_shop:shop")
    trainer = CreditTrainer(
        str(shop_policy),
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
    called = [one for episode in read_episodes(tmp_path) for one in episode.decisions if one.calls]
    assert all(re.fullmatch(r'open\(box="[^"]*"\)', call) for one in called for call in one.calls)
    results = [one.messages for episode in read_episodes(tmp_path) for one in episode.decisions[1:]]
    assert {role for messages in results for role, _ in messages} == {"tool"}
    assert {text for messages in results for _, text in messages} <= {"tea", "salt"}
    assert called


def test_the_preset_with_verdicts_trains_a_program_on_those_of_a_judge_model(
    shop_policy: Path, tmp_path: Path
) -> None:
    seen: list[Any] = []

    def answer(body: dict[str, Any]) -> Any:
        data = json.loads(body["messages"][1]["content"].partition("\n\n")[0])
        seen.append(data)
        return completion("yes" if data.get("calls") else "no", tokens=5)

    Dataset.from_list(ROWS * 2).to_json(tmp_path / "rows.jsonl")
    with JudgeServer(answer) as server:
        recipe = {
            **ON_A_PROCESSOR,
            **settings(tmp_path / "run"),
            "task": "agent",
            "task_options": {"agent": "agent_shop:shop"},
            "dataset_name": str(tmp_path / "rows.jsonl"),
            "model_name_or_path": str(shop_policy),
            "oracle": "judge",
            "oracle_options": {"model": "m", "base_url": server.url},
        }
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        job = read_job(["--config", str(tmp_path / "recipe.yaml")])  # without a method it is VPR
        trainer = build_trainer(job)
        trainer.train()
    job.interaction.close()
    assert type(trainer).__name__ == "VerifiableProcessTrainer"
    logs = [entry for entry in trainer.state.log_history if "oracle/valid" in entry]
    assert [entry["oracle/unknown"] for entry in logs] == [0.0, 0.0]
    assert logs[-1]["budget/others/judge"] == sum(entry["oracle/tokens"] for entry in logs) > 0
    told = [one for one in seen if "tools" in one]
    assert {one["tools"][0]["function"]["name"] for one in told} == {"open"}
    assert any(call["name"] == "open" for one in told for call in one.get("calls", ()))


@pytest.mark.parametrize(
    ("checked", "told"),
    [
        (
            1,
            r"must repeat itself for a method that replays, got task 1, run again, call 1: message 1 \(user\)",
        ),
        (
            0,
            r"got 4 of 4 with errors, the first with Diverged.* got another call \(message 1 \(user\), content",
        ),
    ],
)
def test_a_training_with_replays_of_a_program_that_does_not_repeat_itself_says_where(
    shop_policy: Path, tmp_path: Path, checked: int, told: str
) -> None:
    # One run at a time: which run is the first must not depend on threads.
    interaction: Any = collaborations.make("agent", agent="agent_worlds:counts_its_runs", sessions=1, checked=checked)
    rows = [{"file": str(tmp_path / "runs")}] * 2
    with pytest.raises(ValueError, match=told):
        CreditTrainer(
            str(shop_policy),
            interaction,
            CreditConfig(**ON_A_PROCESSOR, **settings(tmp_path, max_steps=1, max_completion_length=8)),
            method=methods.make("vineppo", group_size=2, rollouts=2),
            train_dataset=Dataset.from_list(rows),
        ).train()
    interaction.close()


def test_a_program_reads_log_probabilities_in_training_and_in_an_evaluation(shop_policy: Path, tmp_path: Path) -> None:
    spec = TaskSpec(task="agent", task_options={"agent": "agent_wire:wire"}, trusted=True)
    interaction, seen = spec.build(), tmp_path / "seen"
    rows = Dataset.from_list([{"what": "reads_logprobs", "to": str(seen)}] * 2)
    trainer = CreditTrainer(
        str(shop_policy),
        interaction,
        CreditConfig(**ON_A_PROCESSOR, **settings(tmp_path, max_steps=1, max_completion_length=8)),
        method=methods.make("grpo", group_size=2),
        train_dataset=rows,
    )
    trainer.train()
    interaction.close()
    assert trainer.state.log_history[0]["endings/error"] == 0.0
    tokens, logprobs = json.loads(seen.read_text())
    assert len(tokens) == len(logprobs) > 0
    assert min(logprobs) < 0.0

    seen.unlink()
    rows.to_json(tmp_path / "rows.jsonl")
    short = dataclasses.replace(spec, sampling=dataclasses.replace(spec.sampling, max_new_tokens=8))
    played = evaluate_model(str(shop_policy), short, dataset=str(tmp_path / "rows.jsonl"))
    assert [one.ending for one in played.records] == ["finished"] * 2
    assert min(json.loads(seen.read_text())[1]) < 0.0


def test_a_program_of_two_roles_is_trained_on_what_each_contributes(tmp_path: Path) -> None:
    interaction: Any = collaborations.make("agent", agent="agent_programs:as_a_team")
    rows = [{"word": word} for word in "ab"]
    starts = [RolloutRequest[Any](task=rows[seed % 2], seed=seed) for seed in range(8)]
    small = MicroConfig(hidden_size=16, layers=1, heads=2, episodes=8, epochs=20, batch_rows=8, learning_rate=1e-2)
    init_scripted_policy(
        interaction, lambda state, request, draws: draws.choice("ab"), starts, tmp_path / "base", small
    )
    trainer = CreditTrainer(
        str(tmp_path / "base"),
        interaction,
        CreditConfig(**ON_A_PROCESSOR, **settings(tmp_path / "run", max_steps=1, max_completion_length=4)),
        method=methods.make("counterfactual_grpo", group_size=4),
        train_dataset=Dataset.from_list(rows),
    )
    trainer.train()
    (logged,) = [entry for entry in trainer.state.log_history if "endings/error" in entry]
    assert (logged["endings/error"], logged["world/diverged"]) == (0.0, 0.0)
    # Eight episodes; eight without the coder, which say nothing new; eight without the planner, whom the coder heard.
    assert [logged[f"budget/decisions/{role}"] for role in interaction.roles] == [8, 8 + 8]
    assert logged["budget/scoring_events"] == 3 * 8
    for role in interaction.roles:
        helped = logged[f"contribution/{role}/helped"]
        assert logged[f"contribution/{role}/mean"] == helped > 0.0  # a word more is never wrong
        assert logged[f"roles/{role}/advantages/trained"] == 1.0
    interaction.close()


def test_a_command_that_a_file_names_is_not_run_unasked() -> None:
    spec = TaskSpec(task="agent", task_options={"agent": ["touch", "here"]}, trusted=False)
    with pytest.raises(ValueError, match=r"cannot choose a server, a path or an import, got the agent"):
        spec.build()
