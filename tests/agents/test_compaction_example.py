"""The example of an agent that summarises its history: the summary is a decision with credit of its own."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hf_credit.evaluation.credited import read_episodes
from hf_credit.evaluation.episode_page import write_episode_page
from hf_credit.trainers.recipes import read_job
from hf_credit.trainers.training import build_trainer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "compaction"


@pytest.fixture(scope="module")
def modules() -> Iterator[SimpleNamespace]:
    """The modules of the example, removed after the test."""
    names = ("compaction", "warm_up")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLE)
        yield SimpleNamespace(**{name: __import__(name) for name in names})
        for name in names:
            del sys.modules[name]


@pytest.fixture(scope="module")
def base(modules: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    small = dataclasses.replace(modules.warm_up.POLICY, hidden_size=32, layers=1, heads=2, episodes=24, epochs=12)
    return Path(modules.warm_up.build(tmp_path_factory.mktemp("compaction") / "base", small))


def test_its_tasks_are_those_that_warm_up_writes(modules: Any) -> None:
    rows = [json.loads(line) for line in (EXAMPLE / "train.jsonl").read_text().splitlines()]
    assert rows == modules.warm_up.ROWS


@pytest.mark.parametrize("method", ["grpo", "vineppo"])
def test_a_summary_gets_credit_that_the_report_shows(
    modules: Any, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.chdir(EXAMPLE)
    settings = {"model_name_or_path": base, "output_dir": tmp_path / "run", "max_steps": 1, "method": method}
    settings |= {"method_options": '{"group_size": 4}' if method == "grpo" else '{"group_size": 2, "rollouts": 2}'}
    settings |= {"instances_per_update": 2, "per_device_train_batch_size": 2}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    trainer = build_trainer(read_job(["--config", "recipe.yaml", *words]))
    trainer.train()
    trainer.interaction.close()
    episodes = read_episodes(tmp_path / "run")
    for episode in episodes:
        asked = ("user", modules.compaction.SUMMARISE)
        (summary,) = (one for one in episode.decisions if asked in one.messages)
        after = episode.decisions[-1]
        assert (summary.event, after.event) == ("policy", "policy#2")
        role, text = after.messages[0]
        assert (role, text.startswith(summary.reply.strip())) == ("user", True)
        assert summary.credit is not None
    # Only replays tell a summary from the other decisions of its episode.
    apart = any(len({one.credit for one in episode.decisions}) > 1 for episode in episodes)
    assert apart == (method == "vineppo")
    page = write_episode_page(episodes[0], tmp_path / "episode.html").read_text()
    assert modules.compaction.SUMMARISE in page
