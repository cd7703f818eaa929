from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

from hf_credit.cli.tasks import (
    OWN_TASKS,
    PLAYERS,
    evaluation_starts,
    most_replies,
    open_task,
    own_rows,
    require_columns,
    scripted_player,
)
from hf_credit.collaborations import COLLABORATIONS, Collaboration, Event, Loop
from hf_credit.collaborations.relay import relay_tasks
from hf_credit.evaluation.setup import GameSetup

RELAY = GameSetup.of("relay", {"size": 4})
MATH = GameSetup.of("reasoner_actor", {"domain": "math", "scorer": "operator:eq"})


def test_tasks_and_players_are_of_known_collaborations() -> None:
    assert OWN_TASKS.keys() | PLAYERS.keys() <= COLLABORATIONS.keys()


# Rows


def test_the_relay_draws_its_own_tasks_with_its_own_options() -> None:
    rows = own_rows(RELAY, RELAY.interaction(), "train", 5, start=2)
    assert list(rows) == list(relay_tasks("train", 5, size=4, start=2))


def test_a_game_draws_its_own_tasks() -> None:
    setup = GameSetup.of("sudoku", {"size": 4})
    assert [row["seed"] for row in own_rows(setup, setup.interaction(), "held_out", 2)] == [2**31, 2**31 + 1]


def test_what_has_no_tasks_of_its_own_asks_for_a_dataset() -> None:
    with pytest.raises(ValueError, match="'reasoner_actor' has no tasks of its own, got no dataset; name one"):
        own_rows(MATH, MATH.interaction(), "train", 5)


def test_a_missing_column_is_named() -> None:
    require_columns(MATH.interaction(), Dataset.from_list([{"problem": "1 + 1", "answer": "2"}]))
    with pytest.raises(ValueError, match="that the events show, got question, answer without problem; rename"):
        require_columns(MATH.interaction(), Dataset.from_list([{"question": "1 + 1", "answer": "2"}]))


def test_only_who_knows_the_task_plays_it_from_a_script() -> None:
    assert scripted_player(MATH) is None
    player = scripted_player(RELAY)
    assert player is not None
    with pytest.raises(ValueError, match=r"quality must be in \[0, 1\]"):
        player(2.0)


def test_the_most_replies_of_an_episode_count_every_event_of_every_round() -> None:
    assert most_replies(RELAY.interaction()) == 2
    assert most_replies(GameSetup.of("sudoku", {"size": 4, "blanks": 5}).interaction()) == 5
    events = [Event("plan", role="a"), Event("answer", role="a", after="plan")]
    loop = Loop("answer", target="plan", times=2)
    assert most_replies(Collaboration({"a": ""}, events, "answer", max, [loop])) == 6


# Evaluation


def test_an_evaluation_plays_held_out_tasks_of_the_relay() -> None:
    starts = evaluation_starts(RELAY, RELAY.interaction(), 3, first=1)
    assert [start.task for start in starts] == list(relay_tasks("held_out", 3, size=4, start=1))
    assert [start.seed for start in starts] == [2**31 + 1, 2**31 + 2, 2**31 + 3]
    assert len(evaluation_starts(RELAY, RELAY.interaction())) == 256


@pytest.fixture
def rows(tmp_path: Path) -> Callable[..., str]:
    """`rows("1 + 1", "2 + 2")` writes a file of problems."""

    def write(*problems: str) -> str:
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps({"problem": one, "answer": "2"}) + "\n" for one in problems))
        return str(path)

    return write


def test_an_evaluation_plays_the_rows_of_a_dataset(rows: Callable[..., str]) -> None:
    path, task = rows("1 + 1", "2 + 2", "1 + 1"), MATH.interaction()
    starts = evaluation_starts(MATH, task, dataset=path)
    assert [start.task["problem"] for start in starts] == ["1 + 1", "2 + 2", "1 + 1"]
    assert len({start.seed for start in starts}) == 3
    assert evaluation_starts(MATH, task, 2, 1, dataset=path) == starts[1:]


def test_another_row_at_the_same_place_is_another_task(rows: Callable[..., str]) -> None:
    (first,), (second,) = (
        evaluation_starts(MATH, MATH.interaction(), dataset=rows(problem)) for problem in ("1 + 1", "1 + 2")
    )
    assert first.seed != second.seed


def test_more_tasks_than_rows_are_refused(rows: Callable[..., str]) -> None:
    with pytest.raises(ValueError, match="got 2 rows for 2 tasks from row 1; ask for fewer"):
        evaluation_starts(MATH, MATH.interaction(), 2, 1, dataset=rows("1", "2"))


def test_an_evaluation_plays_the_rows_of_a_set_of_problems(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"question": "1 + 1", "answer": "It is 2.\n#### 2"}) + "\n")
    (start,) = evaluation_starts(MATH, MATH.interaction(), dataset=f"gsm8k/test={path}")
    assert (start.task["problem"], start.task["answer"], start.task["source"]) == ("1 + 1", "2", "gsm8k")
    with pytest.raises(ValueError, match=r"a file of problems must end in \.json"):
        evaluation_starts(MATH, MATH.interaction(), dataset="gsm8k/test=rows.txt")


# Scorers


def test_a_scorer_may_lie_in_the_current_folder_which_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_own_scorer.py").write_text("def score(task, text):\n    return float(text == task['answer'])\n")
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    task: Any = open_task(GameSetup.of("reasoner_actor", {"domain": "math", "scorer": "my_own_scorer:score"}))
    assert task.scorer({"answer": "2"}, "2") == 1.0
    assert sys.path == before


def test_the_current_folder_hides_nothing_though_python_was_started_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed, here = tmp_path / "installed", tmp_path / "here"
    for folder, line in ((installed, "def score(task, text): return 1.0"), (here, "raise SystemExit('hidden')")):
        folder.mkdir()
        (folder / "scorer_of_both.py").write_text(line)
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "path", ["", str(here), *sys.path, str(installed)])
    task: Any = open_task(GameSetup.of("reasoner_actor", {"domain": "math", "scorer": "scorer_of_both:score"}))
    assert task.scorer({}, "") == 1.0
