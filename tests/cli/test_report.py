from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_runs import ON_A_PROCESSOR

from hf_credit import CreditConfig, CreditTrainer, make
from hf_credit.evaluation.credited import read_episodes
from hf_credit.evaluation.report import watch
from hf_credit.evaluation.runs import read_run
from hf_credit.rollouts import EnvironmentInteraction

FOUR_TASKS: dict[str, Any] = {"instances_per_update": 4, "per_device_train_batch_size": 4}


@pytest.fixture
def run(trained_run: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained_run, tmp_path / "my_run")


def test_a_report_of_a_run_is_written(command: Callable[..., Any], run: Path) -> None:
    code, out, _ = command("report", run)
    assert code == 0
    assert "report.md" in out
    page = (run / "report" / "report.md").read_text()
    assert "# Run my_run" in page
    assert "| my_run | 2 | 16 |" in page
    assert "max_steps: 2" in page
    assert "| trl | 1." in page
    assert (run / "report" / "learning_curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_training_from_python_writes_its_log_and_has_a_report(
    command: Callable[..., Any], micro_policy: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    trainer = CreditTrainer(
        str(micro_policy),
        EnvironmentInteraction(make("sudoku", size=4, blanks=4), history="current", instructions=False),
        CreditConfig(**ON_A_PROCESSOR, output_dir=str(folder), max_completion_length=12, max_steps=2, **FOUR_TASKS),
        method="outcome_reward",
    )
    trainer.evaluate(trainer.train_dataset.select(range(4)))
    assert list(folder.iterdir()) == []
    trainer.train()
    assert sorted(path.name for path in folder.iterdir()) == ["episodes.jsonl", "metrics.jsonl"]
    code, _, err = command("report", folder)
    assert code == 0, err
    assert "| run | 2 | 8 |" in (folder / "report" / "report.md").read_text()
    (folder / "metrics.jsonl").unlink()
    code, _, err = command("report", folder, "--output", tmp_path / "episodes")
    assert code == 0, err
    assert "An episode of update" in (tmp_path / "episodes" / "report.md").read_text()


def test_an_episode_is_shown_with_its_credit(command: Callable[..., Any], run: Path) -> None:
    recorded = read_episodes(run)
    assert [one.update for one in recorded] == [1] * 4 + [2] * 4
    code, out, _ = command("report", run, "--update", 1, "--episode", 3)
    assert code == 0
    assert "episode.html" in out
    page = (run / "report" / "report.md").read_text()
    assert "| all | " in page  # the table of replies
    assert "## An episode of update 1" in page
    assert page.count("\n| 1 | agent | agent | ") == 1
    shown = (run / "report" / "episode.html").read_text()
    assert f"outcomes</dt><dd>{recorded[2].outcome:.3g}</dd>" in shown
    assert f"<dd>{read_run(run).config['method']}</dd>" in shown
    first = recorded[2].decisions[0]
    assert set(first.beside) >= {"outcome_reward"}  # the credit that another method assigns
    assert "<dt>outcome_reward</dt>" in shown
    # The other episodes of the update are a step away, and lead back.
    pages = re.findall('href="([^"]*)"', shown)
    assert pages == ["episode_1.html", "episode_2.html", "episode_4.html"]
    assert all('href="episode.html"' in (run / "report" / page).read_text() for page in pages)


def test_a_watched_report_is_written_again_with_the_newest_episodes(run: Path, tmp_path: Path) -> None:
    recorded = (run / "episodes.jsonl").read_text().splitlines(keepends=True)
    (run / "episodes.jsonl").write_text("".join(recorded[:4]))
    pages = watch([run], tmp_path / "page", 1)
    first = next(pages).read_text()
    assert "update 1, episode" in first
    assert '<meta http-equiv="refresh" content="1">' in first
    assert 'src="data:image/png;base64,iVBOR' in first
    others = (tmp_path / "page" / name for name in re.findall('href="([^"]*)"', first))
    assert not any("refresh" in page.read_text() for page in others)  # one reads these without a change
    (run / "episodes.jsonl").write_text("".join(recorded))
    assert "update 2, episode" in next(pages).read_text()


def test_watching_waits_for_a_run_and_ends_when_it_is_interrupted(run: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hf_credit.cli", "report", str(tmp_path / "later"), "--watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "Waiting for an update" in process.stdout.readline()
        shutil.copytree(run, tmp_path / "later")
        assert "later/report/episode.html, which renews itself" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        (("--update", 7), "one of the recorded 1, 2, got 7"),
        (("--episode", 5), "must be from 1 to 4, got 5"),
        (("--watch", "--update", 1), "--watch shows the newest update, got --update or --episode too"),
    ],
)
def test_an_episode_that_was_not_recorded_is_refused(
    command: Callable[..., Any], run: Path, wanted: tuple[Any, ...], error: str
) -> None:
    code, _, err = command("report", run, *wanted)
    assert code == 1
    assert error in err


def test_a_run_without_recorded_episodes_has_a_report_without_a_page(command: Callable[..., Any], run: Path) -> None:
    (run / "episodes.jsonl").unlink()
    assert command("report", run)[0] == 0
    assert not (run / "report" / "episode.html").exists()
    code, _, err = command("report", run, "--update", 1)
    assert code == 1
    assert "--update and --episode need a run with episodes.jsonl" in err


def test_evaluations_in_the_folder_are_reported_and_compared(
    command: Callable[..., Any], run: Path, micro_policy: Path, tmp_path: Path
) -> None:
    for name, model, episodes in (
        ("evaluation", run, 6),
        ("evaluation_greedy", run, 6),
        ("evaluation_short", run, 4),
    ):
        arguments = ("--temperature", 0) if name == "evaluation_greedy" else ()
        code, _, _ = command(
            "evaluate", model, "--episodes", episodes, "--output", run / f"{name}.json", "--json", *arguments
        )
        assert code == 0
    assert command("report", run, "--output", tmp_path / "page")[0] == 0
    numbers = json.loads((tmp_path / "page" / "results.json").read_text())
    assert {name: one["episodes"] for name, one in numbers["evaluations"].items()} == {
        "evaluation": 6,
        "evaluation_greedy": 6,
        "evaluation_short": 4,
    }
    # Only those on the same tasks are compared.
    assert {(one["of"], one["minus"]) for one in numbers["differences"]} == {("evaluation", "evaluation_greedy")}


def test_several_runs_are_reported_with_their_costs(
    command: Callable[..., Any], run: Path, trained_run: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(trained_run, tmp_path / "other")
    assert command("report", run, "--beside", other, "--output", tmp_path / "page")[0] == 0
    page = (tmp_path / "page" / "report.md").read_text()
    assert "# Runs my_run, other" in page
    assert "| run | terminal scores | tokens | generated | replies | replies of agent |" in page
    assert "| my_run | 16 |" in page
    assert "| other | 16 (1.00x) |" in page
    numbers = json.loads((tmp_path / "page" / "results.json").read_text())
    assert numbers["ledgers"]["my_run"] == numbers["ledgers"]["other"]
    assert numbers["ledgers"]["my_run"]["scoring_events"] == 16


def test_comparing_a_run_with_itself_is_refused(command: Callable[..., Any], run: Path) -> None:
    code, _, err = command("report", run, "--beside", run)
    assert code == 1
    assert "runs must be different folders" in err


def test_a_damaged_evaluation_is_refused(command: Callable[..., Any], run: Path) -> None:
    (run / "evaluation.json").write_text("{}")
    code, _, err = command("report", run)
    assert code == 1
    assert "results must be written by EvalResults.to_json" in err
