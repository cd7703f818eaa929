from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from hf_credit.cli.options import Prompted
from hf_credit.evaluation.results import EvalResults
from hf_credit.tasks.spec import Sampling, TaskSpec


def test_a_trained_policy_is_evaluated_on_its_task(
    command: Callable[..., Any], trained_run: Path, tmp_path: Path
) -> None:
    output = tmp_path / "evaluation.json"
    code, out, err = command("evaluate", trained_run, "--episodes", 8, "--json", "--output", output)
    assert code == 0
    numbers = json.loads(out)
    assert numbers["episodes"] == 8
    assert numbers["setup"] == TaskSpec.load(trained_run).to_dict()
    assert {"success", "completion", "reward", "oracle/valid", "endings/invalid_action", "turns", "tokens"} <= set(
        numbers["metrics"]
    )
    for interval in numbers["metrics"].values():
        assert interval["low"] <= interval["mean"] <= interval["high"]
        assert interval["n"] == 8
    assert "episodes: 8/8" in err
    kept = EvalResults.load(output)
    assert kept.summary()["completion"].mean == numbers["metrics"]["completion"]["mean"]


def test_the_name_of_a_model_passes_few_modules(command: Callable[..., Any], micro_policy: Path) -> None:
    passed: list[str] = []

    def watch(frame: FrameType, event: str, _: object) -> None:
        code, module = frame.f_code, str(frame.f_globals.get("__name__"))
        if event == "call" and module.startswith("hf_credit."):
            values = [
                frame.f_locals.get(name) for name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
            ]
            if any(isinstance(one, str | Path) and str(one) == str(micro_policy) for one in values):
                passed.append(module)

    sys.setprofile(watch)
    try:
        command("evaluate", micro_policy, "--task", "sudoku", "-o", "size=4", "-o", "blanks=4", "--episodes", 2)
    finally:
        sys.setprofile(None)
    assert {"hf_credit.cli.evaluate", "hf_credit.loading", "hf_credit.policies.saved"} <= set(passed)
    assert len(set(passed)) <= 10


def test_results_are_shown_as_a_table(command: Callable[..., Any], trained_run: Path) -> None:
    code, out, _ = command("evaluate", trained_run, "--episodes", 4, "--temperature", 0, "--batch-size", 2)
    assert code == 0
    assert "mean [95% interval]" in out
    assert "completion rate" in out
    assert "oracle-valid actions" in out


def test_what_the_verdicts_of_a_judge_took_is_shown(command: Callable[..., Any], trained_run: Path) -> None:
    judge = {"name": "log_ratio", "options": {"policy": str(trained_run), "reference": str(trained_run)}}
    asked = ("evaluate", trained_run, "--episodes", 4, "--oracle", json.dumps(judge))
    code, out, _ = command(*asked)
    assert code == 0
    (line,) = (one for one in out.splitlines() if one.startswith("Verdicts: "))
    assert re.fullmatch(r"Verdicts: [0-9,]+ tokens, [0-9]+ known, 0 unknown", line)
    took = json.loads(command(*asked, "--json")[1])["verdicts"]
    assert took["tokens"] > took["known"] > 0


def test_a_policy_without_a_recorded_task_needs_a_task(command: Callable[..., Any], micro_policy: Path) -> None:
    game = ("--task", "sudoku", "--option", "size=4", "--option", "blanks=4")
    shown = ("--history", "current", "--no-instructions", "--max-turns", 2)
    drawn = ("--max-new-tokens", 12, "--temperature", 1, "--top-p", 1, "--top-k", 0)
    code, out, _ = command(
        "evaluate", micro_policy, *game, *shown, *drawn, "--episodes", 8, "--first-task", 3, "--json"
    )
    assert code == 0
    numbers = json.loads(out)
    assert numbers["setup"]["task_options"] == {"size": 4, "blanks": 4}
    assert (numbers["setup"]["history"], numbers["setup"]["instructions"]) == ("current", False)
    assert numbers["first_task"] == 3
    assert 0 < numbers["metrics"]["turns"]["mean"] <= 2


def test_replies_too_long_for_any_context_are_refused(
    command: Callable[..., Any], micro_policy: Path, trained_run: Path
) -> None:
    # The policy has no recorded reply length, so it is the papers' 4096, which is its whole context.
    game = ("--task", "sudoku", "--option", "size=4", "--option", "blanks=4", "--episodes", 2)
    code, out, err = command("evaluate", micro_policy, *game)
    assert (code, out) == (1, "")
    assert "must be shorter than the model's 4096 positions, got a maximum of 4096 tokens" in err
    code, out, err = command("evaluate", micro_policy, *game, "--max-new-tokens", 4090)
    assert (code, out) == (1, "")
    assert "got 2 tasks, all above 6 tokens" in err
    assert command("evaluate", trained_run, "--episodes", 2, "--max-new-tokens", 4096).code == 1


def test_prompts_that_differ_from_training_cause_a_warning(command: Callable[..., Any], trained_run: Path) -> None:
    code, _, err = command("evaluate", trained_run, "--episodes", 2, "--history", "append", "--instructions")
    assert code == 0
    assert "Warning: the policy" in err
    assert "history='append', not 'current', instructions=True, not False" in err
    assert "Warning" not in command("evaluate", trained_run, "--episodes", 2, "--history", "current").err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), "a policy needs a task, got "),
        (("--task", "chess"), "task must be one of agent, circuit_decoding, "),
        (("--task", "sudoku", "--oracle", "guess"), "oracle must be one of"),
        (("--task", "sudoku", "--oracle", "mcts"), "must be made for the environment 'sudoku'"),
        (("--task", "sudoku", "--oracle-option", "seed=1"), "--oracle-option needs --oracle"),
        (("--task", "sudoku", "--temperature", "-1"), "temperature must be at least 0, got -1"),
        (("--task", "sudoku", "--history", "none"), "history must be one of append, rendered, current"),
        (("--task", "sudoku", "--device", "gpu"), "device must be one that torch finds here, such as cpu or cuda:0"),
        (("--task", "relay", "--history", "current"), "history, instructions and max_turns need an env"),
        (
            ("--task", "relay", "--oracle", "mcts"),
            "an oracle needs the actions of an environment, got one for 'relay'",
        ),
        (("--task", "reasoner_actor", "--option", "domain=math"), "needs the options scorer, got domain"),
    ],
)
def test_what_cannot_be_played_is_refused(
    command: Callable[..., Any], micro_policy: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    code, out, err = command("evaluate", micro_policy, *arguments)
    assert (code, out) == (1, "")
    assert complaint in err


# The task


@pytest.fixture
def noted(tmp_path: Path) -> str:
    TaskSpec(task="sudoku", task_options={"size": 4, "blanks": 5}, history="current").save(tmp_path)
    return str(tmp_path)


def test_options_change_the_recorded_task(noted: str) -> None:
    assert Prompted(option=["blanks=6"]).spec(noted).task_options == {"size": 4, "blanks": 6}
    assert Prompted(task="sudoku").spec(noted).task_options == {"size": 4, "blanks": 5}


def test_the_flag_of_the_version_before_names_the_task_too(noted: str) -> None:
    with pytest.warns(FutureWarning, match="^--environment is deprecated .* write --task"):
        assert Prompted(environment="minesweeper").spec(noted).task == "minesweeper"


def test_another_task_has_its_options_and_the_same_prompts(noted: str) -> None:
    setup = Prompted(task="minesweeper", option=["rows=4"]).spec(noted)
    assert (setup.task, setup.task_options) == ("minesweeper", {"rows": 4})
    assert setup.history == "current"


@pytest.mark.parametrize("task", [(), ("--task", "reasoner_actor")], ids=["", "the task named"])
@pytest.mark.parametrize("asked", ["evaluate", "diagnose"])
def test_code_in_the_folder_of_a_policy_is_run_with_consent_only(
    command: Callable[..., Any],
    relay_policy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    asked: str,
    task: tuple[str, ...],
) -> None:
    shutil.copytree(relay_policy, tmp_path, dirs_exist_ok=True)
    options = {"domain": "math", "scorer": f"scorer_of_{tmp_path.name}:score"}
    TaskSpec.of_name("reasoner_actor", options, sampling=Sampling(max_new_tokens=2)).save(tmp_path)
    (tmp_path / f"scorer_of_{tmp_path.name}.py").write_text(
        "open('ran', 'w').close()\ndef score(task, text):\n    return 1.0\n"
    )
    (tmp_path / "rows.jsonl").write_text('{"problem": "1", "answer": "1"}\n' * 2)
    monkeypatch.chdir(tmp_path)
    words = [asked, ".", *task, "--dataset", "rows.jsonl", "--episodes", 2]
    words += ["--attempts", 0, "--buckets", 1, "--candidates", 2] if asked == "diagnose" else []
    code, _, err = command(*words)
    assert code == 1
    assert "the files of a policy cannot choose it, got 'scorer_of_" in err
    assert not (tmp_path / "ran").exists()
    code, _, err = command(*words, "--trust-remote-code")
    assert (tmp_path / "ran").exists(), err
