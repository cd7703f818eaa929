"""Everything is published by command, and what was published is what was there."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_credit.cli import main
from hf_credit.hub import load_checkpoint, load_episodes, load_metric, load_tasks
from hf_credit.tasks import Sampling, TaskSpec
from local_hub.running import Served


@pytest.fixture
def told(capsys: pytest.CaptureFixture[str], hub: Served, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """`told(*words)`: what `hf-credit` says to them, with this Hub and a token in its environment."""
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_TOKEN", hub.token())

    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(words)
        out, err = capsys.readouterr()
        assert not ended.value.code, err
        return out

    return run


def test_everything_is_published_by_command_and_loaded_again(
    told: Callable[..., str], hub: Served, micro_policy: Path, tmp_path: Path
) -> None:
    policy = tmp_path / "policy"
    shutil.copytree(micro_policy, policy)
    sampling = Sampling(max_new_tokens=12, temperature=1.0, top_p=1.0, top_k=0)
    game: Any = {"task": "sudoku", "task_options": {"size": 4, "blanks": 4}, "history": "current"}
    TaskSpec(**game, instructions=False, sampling=sampling).save(policy)
    played = ["--episodes", "2", "--save-episodes", str(tmp_path / "episodes")]
    told("evaluate", str(policy), *played, "--output", str(policy / "evaluation.json"))
    options = ["--option", "size=4", "--option", "blanks=4", "--train", "3", "--held-out", "2"]
    assert "Would publish" in told("publish", "tasks", "sudoku", "me/sudoku-tasks", *options, "--dry-run")
    assert "(public)" in told("publish", "tasks", "sudoku", "me/sudoku-tasks", *options)
    told("publish", "episodes", str(tmp_path / "episodes"), "me/episodes")
    told("publish", "checkpoint", str(policy), "me/policy")
    told("publish", "metric", "pass_at_k", "me/pass_at_k", "--tag", "v1")
    metric = load_metric("me/pass_at_k", revision="v1", cache_dir=str(tmp_path / "metrics"))
    assert metric.compute(predictions=[[1.0, 0.0], [0.0, 0.0]], k=[1, 2]) == {"pass@1": 0.25, "pass@2": 0.5}
    episodes = load_episodes("me/episodes", token=hub.token())
    assert [len(episode.decisions) > 0 for episode in episodes] == [True, True]
    assert all(decision.verdict is not None for episode in episodes for decision in episode.decisions)
    assert episodes.policy == "policy"
    tasks = load_tasks("me/sudoku-tasks")
    assert tasks.held_out is not None
    assert len(tasks.held_out) == 2
    card = (load_checkpoint("me/policy").folder / "README.md").read_text()
    assert "| success rate |" in card
    assert "model-index" in card
