"""A program that calls a model is checked, trained and evaluated from the command line."""

from __future__ import annotations

import contextlib
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from launched import start
from small_agents import ROWS, settings
from small_runs import RECIPE

from hf_credit.agents import AgentInteraction


@pytest.mark.parametrize(
    ("name", "code", "result"),
    [("asks", 0, "It is deterministic, so every method can train it."), ("drifts", 1, "It is not deterministic")],
)
def test_a_check_reports_whether_a_program_is_deterministic(
    name: str, code: int, result: str, command: Callable[..., Any], tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"number": 2}\n{"number": 1}\n')
    got, out, err = command("agent", "check", f"agent_programs:{name}", "--tasks", tasks, "--option", "settle=0")
    assert got == code, err
    assert "2 tasks run twice; " in out
    assert result in out


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("unsettled", "It makes up to 3 simultaneous calls; train it with settle=0.02 or more.\n"),
        ("at_once", "It makes up to 3 simultaneous calls.\n"),
    ],
)
def test_a_check_keeps_a_programs_own_settle(
    name: str, told: str, command: Callable[..., Any], tmp_path: Path
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"number": 2}\n')
    code, out, err = command("agent", "check", f"agent_programs:{name}", "--tasks", tasks)
    assert (code, told in out) == (0, True), out + err


def test_a_program_in_the_current_folder_finds_what_it_names_and_imports_there(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {
        "own_agent": "import own_calls\nfrom hf_credit.agents import agent\n\n"
        "@agent(columns=['q'], score='own_scores:score', canonical='own_canon:same', judge='own_judge:judge')\n"
        "def play(task, model):\n    import own_late\n    return own_late.ask(task, model)\n",
        "own_calls": "from agent_programs import chat\n",
        "own_late": "from own_calls import chat\n\ndef ask(task, model):\n    return chat(model, [{'role': 'user', "
        "'content': task['q']}])['content']\n",
        "own_scores": "def score(task, text):\n    return 1.0\n",
        "own_canon": "def same(call):\n    return call\n",
        "own_judge": "def judge(call, text):\n    return 1.0\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "tasks.jsonl").write_text('{"q": "1?"}\n')
    monkeypatch.chdir(tmp_path)
    code, out, err = command("agent", "check", "own_agent:play", "--tasks", "tasks.jsonl")
    assert (code, "1 model calls and 1 finished" in out) == (0, True), out + err
    with contextlib.closing(AgentInteraction("own_agent:play")) as interaction:
        assert interaction.default_oracle() is not None


def test_a_program_is_trained_killed_resumed_evaluated_and_reported(
    shop_policy: Path, tmp_path: Path, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(shop_policy, tmp_path / "policy")
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS * 4))
    few = {"dataset_name": "tasks.jsonl", "model_name_or_path": "policy", "max_steps": 500}
    saving = {"save_strategy": "steps", "save_steps": 1, "method_options": {"group_size": 2, "rollouts": 2}}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({**RECIPE, **settings(tmp_path / "run", **few), **saving}))
    words = (
        "train",
        "recipe.yaml",
        "--task",
        "agent",
        "--task_options",
        '{"agent": "agent_shop:shop"}',
        "--method",
        "vineppo",
    )
    process = start(Path(sys.executable).parent / "hf-credit", *words, log=tmp_path / "log", folder=tmp_path)
    while not (tmp_path / "run" / "checkpoint-2").exists():  # so that checkpoint-1 is complete
        assert process.is_alive(), (tmp_path / "log.err").read_text()
        time.sleep(0.05)
    process.kill()
    process.join()
    last = 1 + max(int(path.name.partition("-")[2]) for path in (tmp_path / "run").glob("checkpoint-*"))
    changed = ("--max_steps", last, "--resume_with_changed", "max_steps")
    code, _, err = command(*words, "--resume_from_checkpoint", "true", *changed)
    assert code == 0, err
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert {line["step"] for line in lines} == set(range(1, last + 1))
    spec = json.loads((tmp_path / "run" / "hf_credit_task.json").read_text())
    assert (spec["task"], spec["task_options"]["agent"]) == ("agent", "agent_shop:shop")
    played = ("evaluate", "run", "--dataset", "tasks.jsonl", "--split", "train", "--episodes", 8, "--json")
    code, _, err = command(*played)
    assert code == 1
    assert "the files of a policy cannot choose it, got 'agent_shop:shop'" in err
    code, out, err = command(*played, "--option", "agent=agent_shop:shop")
    assert code == 0, err
    assert json.loads(out)["metrics"]["replies_kept"]["mean"] == 1.0
    code, _, err = command("report", "run")
    assert code == 0, err
    assert "world/forced_replies" in (tmp_path / "run" / "report" / "report.md").read_text()
