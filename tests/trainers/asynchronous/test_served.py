"""Trainings with a policy that a server on loopback serves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import async_run
import pandas
import pytest
import torch
import yaml
from async_update import Nowhere
from datasets import Dataset
from launched import launch
from micro_server import MicroServer
from peft import LoraConfig
from small_agents import ROWS, settings
from small_runs import ON_A_PROCESSOR, SHARDED
from transformers import TrainerCallback, TrainerState

from hf_credit import AsyncCreditConfig, AsyncCreditTrainer, collaborations, make, methods
from hf_credit.cli.report import report
from hf_credit.critics.saved import has_critic
from hf_credit.evaluation.credited import read_episodes
from hf_credit.evaluation.runs import LOG_FILE
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit.tasks import TaskSpec
from hf_credit.trainers.recipes import read_job
from hf_credit.trainers.recording import RunRecorder
from hf_credit.trainers.training import run_job


@pytest.fixture
def server(micro_policy: Path) -> Iterator[MicroServer]:
    served = MicroServer(micro_policy).start()
    yield served
    served.stop()


def trainer_of(server: MicroServer, policy: Path, output: Path, **changed: Any) -> AsyncCreditTrainer:
    values: dict[str, Any] = {
        **ON_A_PROCESSOR,
        "output_dir": str(output),
        "max_steps": 3,
        "instances_per_update": 4,
        "max_completion_length": 12,
        "learning_rate": 1e-3,
        "vllm_server_base_url": server.url,
        "weight_transfer": "folder",
        "token_budget": 4096,
    }
    kwargs = {"method": "verifiable_process", **changed.pop("trainer_kwargs", {})}
    game = EnvironmentInteraction(make("sudoku", size=4, blanks=4), history="current", instructions=False)
    settings = AsyncCreditConfig(**{**values, **changed})
    return AsyncCreditTrainer(str(policy), game, settings, **kwargs)


def test_a_training_learns_from_episodes_that_a_server_plays_meanwhile(
    server: MicroServer, micro_policy: Path, tmp_path: Path
) -> None:
    held_out = {"eval_dataset": Dataset.from_list([{"seed": seed} for seed in (1, 2)])}
    trainer = trainer_of(server, micro_policy, tmp_path, eval_strategy="steps", eval_steps=2, trainer_kwargs=held_out)
    trainer.add_callback(RunRecorder({}, {}))
    trainer.train()
    played = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert [entry["step"] for entry in played] == [1, 2, 3]
    assert played[0]["server/logprob_difference"] < 1e-4
    assert played[0]["ratio"] == pytest.approx(1, abs=1e-4)
    assert all(entry["oracle/valid"] > 0 for entry in played)
    evaluated = [entry for entry in trainer.state.log_history if "eval_success" in entry]
    assert [entry["step"] for entry in evaluated] == [2, 3]
    assert not any("advantages" in name for entry in evaluated for name in entry)
    # Once before anything is played, and after each update; what is served is what is trained.
    assert len(server.loaded) == 4
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(server.model.state_dict()[name], value), name
    shown = read_episodes(tmp_path)
    assert {one.update for one in shown} >= {1, 2, 3}
    assert all(decision.beside for one in shown for decision in one.decisions)  # what other methods would have given
    report(tmp_path)


def test_a_server_plays_state_groups(
    server: MicroServer, micro_policy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    groups = {"method": methods.make("verifiable_process", state_group_size=3)}
    trainer = trainer_of(server, micro_policy, tmp_path, max_steps=1, instances_per_update=2, trainer_kwargs=groups)
    trainer.train()
    (logged,) = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert (logged["endings/error"], logged["oracle/valid"] > 0, logged["state_groups/equal"] < 1) == (0, True, True)
    assert "without the credit" not in caplog.text  # of other methods, which do not know what some replies led to


def test_a_server_with_other_weights_is_refused(
    server: MicroServer, micro_policy_append: Path, tmp_path: Path
) -> None:
    trainer = trainer_of(server, micro_policy_append, tmp_path, trainer_kwargs={"weight_transfer": Nowhere()})
    trainer.server.model = server.name  # type: ignore[union-attr]
    with pytest.raises(
        ValueError, match=r"must serve the weights that are trained, got log-probabilities \S+ nats apart"
    ):
        trainer.train()
    assert server.asked == 1  # for the comparison: nothing was played


class Replaces(TrainerCallback):
    """Puts another process's server, with the weights of the start, in the place of the first one after an update."""

    def __init__(self, server: MicroServer, policy: Path) -> None:
        self.servers, self.policy = [server], policy

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 1:
            self.servers[0].stop()
            self.servers.append(MicroServer(self.policy, int(self.servers[0].url.rpartition(":")[2])).start())


def test_a_training_goes_on_with_a_server_that_comes_back(micro_policy: Path, tmp_path: Path) -> None:
    replaces = Replaces(MicroServer(micro_policy).start(), micro_policy)
    trainer = trainer_of(replaces.servers[0], micro_policy, tmp_path, trainer_kwargs={"callbacks": [replaces]})
    trainer.train()
    first, second = replaces.servers
    second.stop()
    assert len(first.loaded) == 2  # before the first update, and after it
    assert len(second.loaded) >= 2  # after the second and the third, and before it replies, where it is asked earlier
    assert all(0.5 < entry["ratio"] < 2 for entry in trainer.state.log_history if "ratio" in entry)
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], value), name


def test_a_server_that_is_not_there_is_told_before_a_model_is_loaded(micro_policy: Path, tmp_path: Path) -> None:
    server = MicroServer(micro_policy).start()
    server.stop()
    with pytest.raises(ConnectionError, match=r"must be up within 0\.1 s"):
        trainer_of(server, micro_policy, tmp_path, vllm_server_timeout=0.1)


def test_a_recipe_trains_through_a_server(server: MicroServer, micro_policy: Path, tmp_path: Path) -> None:
    recipe = {
        **ON_A_PROCESSOR,
        "training": "asynchronous",
        "method": "ppo",
        "method_options": {"group_size": 2},
        "truncation": "random",
        "truncation_options": {"probability": 0.5},
        "critic_learning_rate": 1e-3,
        "task": "sudoku",
        "task_options": {"size": 4, "blanks": 4},
        "history": "current",
        "instructions": False,
        "model_name_or_path": str(micro_policy),
        "output_dir": str(tmp_path / "run"),
        "instances_per_update": 2,
        "max_completion_length": 12,
        "max_steps": 2,
        "vllm_server_base_url": server.url,
        "weight_transfer": "folder",
    }
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    job = read_job(["--config", str(tmp_path / "recipe.yaml")])
    run_job(job)
    assert len(server.loaded) == 3
    spec = TaskSpec.load(tmp_path / "run")
    assert spec.task == "sudoku"
    assert spec.method is not None
    assert (spec.method["name"], spec.method["options"]["group_size"]) == ("ppo", 2)
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert has_critic(tmp_path / "run")
    logged = (tmp_path / "run" / LOG_FILE).read_text()
    assert all(name in logged for name in ("reward", "cut/ratio", "critic/value_loss", "critic/explained_variance"))


def test_an_adapter_is_served_by_its_name_and_version(server: MicroServer, micro_policy: Path, tmp_path: Path) -> None:
    server.max_loras = 6
    adapter = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    kwargs = {"peft_config": adapter}
    trainer: Any = trainer_of(server, micro_policy, tmp_path, weight_transfer="trl", trainer_kwargs=kwargs)
    assert trainer.serves_adapter
    trainer.train()
    assert len(server.adapters) == 4  # before the first update, and after each
    assert len({name.rpartition("-v")[0] for name in server.adapters}) == 1
    assert sorted(name.rpartition("-v")[2] for name in server.adapters) == list("1234")
    assert server.loaded == []
    (first, *_) = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert first["server/logprob_difference"] < 1e-4
    assert first["ratio"] == pytest.approx(1, abs=1e-4)
    # Another process in the server's place has none of them, and gets those that replies may still be asked of.
    held, server.adapters = dict(server.adapters), {}
    for _ in range(2):  # the same process may also have been out of reach
        trainer.server.restore()
        assert server.adapters == held


def test_an_agent_trains_through_a_server(shop_policy: Path, tmp_path: Path) -> None:
    served = MicroServer(shop_policy).start()
    interaction: Any = collaborations.make("agent", agent="agent_shop:shop")
    given = settings(tmp_path / "run", vllm_server_base_url=served.url, weight_transfer="folder")
    trainer = AsyncCreditTrainer(
        str(shop_policy),
        interaction,
        AsyncCreditConfig(**ON_A_PROCESSOR, **given),
        method=methods.make("vineppo", group_size=2, rollouts=2),
        train_dataset=Dataset.from_list(ROWS * 4),
    )
    trainer.train()
    interaction.close()
    served.stop()
    logged = [entry for entry in trainer.state.log_history if "endings/error" in entry]
    assert [entry["endings/error"] for entry in logged] == [0.0, 0.0]
    assert logged[-1]["world/forced_replies"] > 0
    assert logged[-1]["world/diverged"] == 0.0


@pytest.mark.parametrize("environment", [{}, SHARDED], ids=["replicated", "sharded by FSDP2"])
def test_two_processes_train_through_one_server(
    server: MicroServer, micro_policy: Path, tmp_path: Path, environment: dict[str, str]
) -> None:
    changed = {"eval_strategy": "steps", "eval_steps": 2, "gradient_accumulation_steps": 2, "shown": True}
    critic = not environment  # which is replicated
    changed |= {"method": "ppo" if critic else "grpo"}
    launch(
        async_run.__file__,
        *(micro_policy, tmp_path, server.url, 2, json.dumps(changed)),
        processes=2,
        folder=tmp_path,
        environment={"ACCELERATE_USE_CPU": "true", **environment},
    )
    assert len(server.loaded) == 3
    log = TrainerState.load_from_json(str(tmp_path / "checkpoint-2" / "trainer_state.json")).log_history
    first, second = [entry for entry in log if "reward" in entry]
    assert first["server/logprob_difference"] < 1e-4
    assert second["budget/scoring_events"] == 8  # counted once, whatever the processes
    assert ("critic/explained_variance" in first) == critic
    assert [entry["step"] for entry in log if "eval_success" in entry] == [2]
    learned = [json.loads(line) for line in (tmp_path / "learned.jsonl").read_text().splitlines()]
    main, other = (
        [json.loads(line) for line in (tmp_path / f"shown-{process}.jsonl").read_text().splitlines()]
        for process in range(2)
    )
    assert [(one["kind"], one["step"]) for one in main] == [
        ("credit", 1), ("episodes", 1), ("credit", 2), ("episodes", 2), ("evaluation", 3)
    ]  # fmt: skip
    assert [one["episodes"] for one in main] == [[4, 0], [4, 0], [4, 0], [4, 0], [1, 0]]
    assert [{**one, "prompts": []} for one in main] == other
    for line, credit in zip(learned, main[::2], strict=False):  # callbacks get what updates learn from
        assert {tuple(prompt) for prompt in line["prompts"]} == {tuple(prompt) for prompt in credit["prompts"]}


def test_completions_are_logged_with_their_credit(
    server: MicroServer, micro_policy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    held_out = {"eval_dataset": Dataset.from_list([{"seed": 1}])}
    evaluated = {"eval_strategy": "steps", "eval_steps": 2, "trainer_kwargs": held_out}
    trainer = trainer_of(server, micro_policy, tmp_path, log_completions=True, num_completions_to_print=2, **evaluated)
    trainer.train()
    tables = sorted((tmp_path / "completions").glob("*.parquet"))
    assert [path.stem for path in tables] == [f"completions_{step:05d}" for step in (1, 2, 3)]
    table = pandas.read_parquet(tables[0])
    shown = [one for one in read_episodes(tmp_path) if one.update == 1]
    decisions = [decision for one in shown for decision in one.decisions]
    assert table["completion"].map(lambda messages: messages[0]["content"]).tolist() == [
        one.reply for one in decisions
    ]
    assert table["advantage"].tolist() == pytest.approx([one.credit for one in decisions], abs=1e-4, nan_ok=True)
    assert {"step", "prompt", "reward", "verdict", "outcome", "episode", "turn", "role"} <= set(table.columns)
    printed = capsys.readouterr().out
    assert [printed.count(f"Step {step}") for step in (1, 2, 3)] == [2, 2, 2]  # episodes, none of an evaluation


def test_episodes_begin_later_there_too(server: MicroServer, micro_policy: Path, tmp_path: Path) -> None:
    trainer = trainer_of(server, micro_policy, tmp_path, starts="oracle", instances_per_update=8, max_steps=2)
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    assert [0 < entry["starts/later"] < 1 for entry in logged] == [True, True]
