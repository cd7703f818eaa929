"""Models with weights of their own for roles that nothing is learned from, in evaluation and by recipe."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from judge_server import JudgeServer, completion
from small_runs import SUDOKU

from hf_credit.evaluation.play import evaluate_model
from hf_credit.loading import load_policy
from hf_credit.policies.generation import sampler
from hf_credit.policies.micro import MicroConfig, build_model, tokenizer_of
from hf_credit.tasks.spec import Sampling, TaskSpec
from hf_credit.trainers.recipes import read_job
from hf_credit.trainers.training import build_trainer, run_job
from hf_credit.verifiers.judges import judge_prompt

ASKING = """
from hf_credit import make
from hf_credit.collaborations.judged_puzzles import JudgedPuzzles


def asking():
    puzzles = make("situation_puzzles", turns=2, wording="brief")
    puzzles.read_action = lambda reply: f"interact {reply or '?'}"  # any reply is a question
    return JudgedPuzzles(puzzles, instructions=False)
"""
SPEC = TaskSpec(task="asking:asking", sampling=Sampling(max_new_tokens=4), trusted=True)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders of a policy, of a judge with the same vocabulary, and of a model with another."""
    (tmp_path / "asking.py").write_text(ASKING)
    monkeypatch.syspath_prepend(tmp_path)
    rows = SPEC.build().tasks("held_out", 2)
    words = tokenizer_of([*(judge_prompt(row["surface"], row["bottom"], "Was it cold?") for row in rows), "Yes No"])
    for seed, (name, known) in enumerate({"policy": words, "judge": words, "foreign": tokenizer_of(["Yes"])}.items()):
        for part in (build_model(known, MicroConfig(hidden_size=32, layers=1, seed=seed)), known):
            part.save_pretrained(tmp_path / name)
    return tmp_path


def test_the_named_model_replies_greedily_for_its_role_and_the_policy_for_the_others(models: Path) -> None:
    played: list[Any] = []

    def played_with(**speakers: str) -> dict[str, Any]:
        results = evaluate_model(
            str(models / "policy"),
            SPEC,
            4,
            role_models=speakers,
            on_episodes=lambda _, episodes: played.append(episodes),
        )
        return results.about["role_models"]

    assert played_with(judge=str(models / "judge")) == {"judge": "judge"}
    assert played_with() == {"judge": None}
    network, tokenizer = load_policy(str(models / "judge"))
    ruling = sampler(network, tokenizer, max_new_tokens=4, temperature=0)
    by_judge, by_policy = (
        [
            tuple(ruling([one.context_ids])[0].ids) == one.action_ids
            for episode in episodes
            for one in episode.decisions[1::2]
        ]
        for episodes in played
    )
    assert [one.role for one in played[0][0].decisions] == ["agent", "judge"] * 2
    assert all(by_judge)
    assert not all(by_policy)
    first = [[episode.decisions[0].action_ids for episode in episodes] for episodes in played]
    assert first[0] == first[1]


def test_a_trained_role_and_another_vocabulary_are_refused(models: Path) -> None:
    policy = str(models / "policy")
    with pytest.raises(
        ValueError, match="got one for 'agent', where the untrained roles of 'judged_puzzles' are judge"
    ):
        evaluate_model(policy, SPEC, 4, role_models={"agent": policy})
    with pytest.raises(
        ValueError, match=r"'judge' must have the policy's vocabulary, got '.*foreign' with another; choose"
    ):
        evaluate_model(policy, SPEC, 4, role_models={"judge": str(models / "foreign")})


def test_a_role_model_is_sampled_as_it_is_asked(models: Path) -> None:
    played: list[Any] = []
    spoken = {"name": str(models / "judge"), "options": {"temperature": 3.0, "max_new_tokens": 1}}
    results = evaluate_model(
        str(models / "policy"),
        SPEC,
        4,
        role_models={"judge": spoken},
        on_episodes=lambda _, episodes: played.extend(episodes),
    )
    assert results.about["role_models"] == {"judge": {**spoken, "name": "judge"}}
    assert {len(one.action_ids) for episode in played for one in episode.decisions[1::2]} == {1}
    for options, message in (({"beams": 4}, "takes the options max_new_tokens, "), ({"top_p": 2}, "top_p must be at")):
        with pytest.raises(ValueError, match=message):
            evaluate_model(str(models / "policy"), SPEC, 4, role_models={"judge": {**spoken, "options": options}})


def test_the_command_line_takes_a_role_model_and_warns_without_one(
    models: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models)
    asked = ("evaluate", "policy", "--task", "asking:asking", "--episodes", 4, "--max-new-tokens", 4, "--json")
    code, out, err = command(*asked, "--role-model", "judge=judge")
    assert code == 0, err
    assert json.loads(out)["role_models"] == {"judge": "judge"}
    assert "Warning" not in err
    code, out, err = command(*asked)
    assert code == 0, err
    assert "Warning: the policy itself played the role 'judge'; set --role-model judge=MODEL." in err


def test_a_diagnosis_uses_the_named_model_and_skips_its_decisions(
    models: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(models)
    asked = ["diagnose", "policy", "--task", "asking:asking", "--episodes", 4, "--max-new-tokens", 4, "--json"]
    asked += ["--buckets", 3, "--candidates", 2, "--replays", 1, "--value-actions", 0, "--attempts", 0]
    code, _, err = command(*asked, "--role-model", "judge=judge")
    assert code == 0, err
    (results,) = json.loads(Path("policy/diagnosis/diagnosis.json").read_text())
    assert results["about"]["role_models"] == {"judge": "judge"}
    assert [one["event"] for one in results["events"]] == ["agent"]
    assert results["cost"]["decisions"]["judge"] > 0
    assert "Warning" not in err
    code, _, err = command(*asked, "--event", "judge")
    assert code == 1
    assert "must occur in the episodes, got judge; the episodes have agent." in err


def job(models: Path, **changes: Any) -> Any:
    """The fields of a recipe with a judge."""
    values = {
        "method": "truncated_ppo",
        "algorithm": "grpo",
        "group_size": 2,
        "task": "asking:asking",
        "role_models": {"judge": str(models / "judge")},
        "model_name_or_path": str(models / "policy"),
        "output_dir": str(models / "run"),
        "instances_per_update": 2,
        "per_device_train_batch_size": 2,
        "max_steps": 1,
        "save_steps": 1,
        "max_completion_length": 4,
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        **changes,
    }
    (models / "recipe.yaml").write_text(yaml.safe_dump(values))
    return read_job(["--config", str(models / "recipe.yaml")])


def test_a_recipe_names_a_role_model_and_is_resumed_only_with_it(models: Path) -> None:
    first = job(models)
    assert first.config()["role_models"] == {"judge": str(models / "judge")}
    trainer = build_trainer(first)
    trainer.train()
    assert list(trainer.samplers) == ["judge"]
    assert trainer.ledger.decisions["judge"] == trainer.ledger.decisions["agent"] > 0
    shutil.copytree(models / "judge", models / "other")
    changed = build_trainer(job(models, role_models={"judge": str(models / "other")}))
    with pytest.raises(ValueError, match=r"got samplers.judge '.*other' in place of '.*judge'"):
        changed.train(resume_from_checkpoint=True)
    sampled = {"name": str(models / "judge"), "options": {"temperature": 2.0}}
    with pytest.raises(ValueError, match=r"got samplers.judge \".*judge, .*'temperature': 2.0"):
        build_trainer(job(models, role_models={"judge": sampled})).train(resume_from_checkpoint=True)


def sudoku(micro_policy: Path, folder: Path, player: dict[str, Any], **changes: Any) -> Any:
    """The fields of a recipe with a player of continuations."""
    values = {
        **SUDOKU,
        "method": "vineppo",
        "method_options": {"group_size": 2, "rollouts": 2},
        "task": "sudoku",
        "task_options": {"size": 4, "blanks": 4},
        "role_models": {"continuations": player},
        "model_name_or_path": str(micro_policy),
        "output_dir": str(folder / "run"),
        "instances_per_update": 2,
        "per_device_train_batch_size": 2,
        "max_steps": 1,
        "save_strategy": "steps",
        "save_steps": 1,
        **changes,
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(values))
    return read_job(["--config", str(folder / "recipe.yaml")])


def test_a_recipe_lets_the_oracles_script_play_continuations_without_tokens(
    micro_policy: Path, tmp_path: Path
) -> None:
    trainer = build_trainer(sudoku(micro_policy, tmp_path, {"name": "script"}))
    trainer.train()
    assert trainer.state.log_history[0]["tokens/continuations"] > 0
    assert trainer.ledger.others == {}
    changed = build_trainer(sudoku(micro_policy, tmp_path, {"name": "script", "options": {"quality": 0.5}}))
    with pytest.raises(ValueError, match=r"got samplers.continuations '.*0.5.*' in place of '.*1.0"):
        changed.train(resume_from_checkpoint=True)


def test_a_recipe_lets_a_server_play_continuations_whose_key_is_written_nowhere(
    micro_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-the-users-own-key-0123456789")
    with JudgeServer(lambda _: completion("<action>fill 1 1 1</action>", tokens=11)) as server:
        options = {"model": "m", "base_url": server.url, "cache": str(tmp_path / "player.sqlite")}
        run_job(sudoku(micro_policy, tmp_path, {"name": "server", "options": options}))
        assert {*server.keys} == {"Bearer sk-the-users-own-key-0123456789"}
        assert all(body["max_completion_tokens"] == SUDOKU["max_completion_length"] for body in server.asked)
        paid = 11 * (len(server.asked) - 1)  # without the question before the run
    logged = json.loads(next((tmp_path / "run").glob("checkpoint-*/trainer_state.json")).read_text())["log_history"]
    assert logged[0]["budget/others/continuations"] == paid > 0
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 10
    assert not [path for path in written if b"own-key" in path.read_bytes()]
