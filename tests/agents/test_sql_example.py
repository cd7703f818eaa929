"""The example of an agent: its databases are read-only, and a small policy trains on it."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hf_credit.agents.check import check
from hf_credit.agents.interaction import AgentInteraction
from hf_credit.policies.scripted import walk
from hf_credit.rollouts import RolloutRequest
from hf_credit.tasks import TaskSpec
from hf_credit.trainers.recipes import read_job
from hf_credit.trainers.training import build_trainer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "sql_agent"
ENDLESS = "with recursive c(x) as (select 1 union all select x + 1 from c) select count(*) from c"


@pytest.fixture(scope="module")
def modules() -> Iterator[SimpleNamespace]:
    """The modules of the example, removed after the test."""
    names = ("databases", "sql_agent", "warm_up", "lookups", "lookups_player")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLE)
        yield SimpleNamespace(**{name: __import__(name) for name in names})
        for name in names:
            del sys.modules[name]


def rows_of(split: str) -> list[dict[str, str]]:
    return [json.loads(line) for line in (EXAMPLE / f"{split}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("split", ["train", "held_out"])
def test_the_task_rows_are_those_of_the_databases_and_their_answers_right(modules: Any, split: str) -> None:
    rows = rows_of(split)
    assert rows == list(modules.databases.questions(split))
    assert all(modules.sql_agent.same_rows(row, row["gold"]) == 1.0 for row in rows)
    databases = {one: {row["database"] for row in rows_of(one)} for one in ("train", "held_out")}
    assert not databases["train"] & databases["held_out"]


def test_an_answer_is_right_with_its_rows_in_any_order_and_as_often(modules: Any) -> None:
    task = {"database": "firm 0", "gold": "select 1 union all select 1 union all select 2"}
    answers = [
        "select 2 union all select 1 union all select 1.0",
        "select 1 union select 2",
        f"{task['gold']} union all select 2",
    ]
    assert [modules.sql_agent.same_rows(task, answer) for answer in answers] == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "reply",
    [
        *(None, 7, b"select 1", "", "words", "select '\0'", "select '\ud800'", "select cast(x'ff' as text)"),
        *("select 1; select 2", "select " + "(" * 900, "select 1" + ", 1" * 3000, "select abs(-9223372036854775808)"),
        *("select random()", "select datetime('now')", "select current_timestamp", "select zeroblob(100000000)"),
        *("select load_extension('x')", "attach 'stolen' as x", "vacuum into 'stolen'", "pragma writable_schema = 1"),
        *("drop table staff", "insert into staff values (1, 2, 3)", "create temp table x (y)", "begin", ENDLESS),
        "select count(*) from staff a, staff b, staff c, staff d, staff e, staff f, staff g, staff h, staff i",
    ],
)
def test_a_hostile_statement_is_wrong_and_changes_nothing(
    modules: Any, reply: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    row = rows_of("train")[0]
    assert modules.sql_agent.same_rows(row, reply) == 0.0
    with modules.databases.opened(row["database"]) as database:
        before = database.execute("select * from staff").fetchall()
        modules.sql_agent.shown(database, SimpleNamespace(arguments=json.dumps({"sql": reply}, default=str)))
        assert database.execute("select * from staff").fetchall() == before
    assert list(tmp_path.iterdir()) == []


def test_what_is_shown_of_a_tool_call_is_short_whatever_it_asks(modules: Any) -> None:
    doubled = "select " + ", ".join(["name || " * 200 + "name"]) + " from staff"
    with modules.databases.opened("firm 0") as database:
        for arguments in (json.dumps({"sql": doubled}), "{", "[]", "7", json.dumps({"query": "select 1"})):
            assert 0 < len(modules.sql_agent.shown(database, SimpleNamespace(arguments=arguments))) <= 1000


def test_it_repeats_itself_and_its_scripted_player_finds_every_answer(modules: Any) -> None:
    interaction = AgentInteraction("sql_agent:sql_agent")
    try:
        rows = rows_of("train")[:4]  # one of each kind
        assert check(interaction, rows[:1]).problems == []
        best = modules.warm_up.Player(1.0)
        ends = [walk(interaction, best, RolloutRequest(task=row, seed=0))[1] for row in rows]
        assert [(end.status, end.worth) for end in ends] == [("finished", 1.0)] * 4
        assert [len(end.answered) for end in ends] == [2, 2, 3, 3]
    finally:
        interaction.close()


def test_a_small_version_of_its_recipe_trains(modules: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLE)
    small = dataclasses.replace(modules.warm_up.POLICY, hidden_size=16, layers=1, heads=2, episodes=4, epochs=2)
    modules.warm_up.build(tmp_path / "base", small)
    spec = TaskSpec.load(tmp_path / "base")
    assert spec is not None
    assert spec.sampling.max_new_tokens > 40  # room for a tool call
    settings = {"model_name_or_path": tmp_path / "base", "output_dir": tmp_path / "run", "max_steps": 1}
    settings |= {"instances_per_update": 2, "per_device_train_batch_size": 2, "max_completion_length": 24}
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    trainer = build_trainer(read_job(["--config", "recipe.yaml", *words]))
    trainer.train()
    trainer.interaction.close()
    (logged,) = [entry for entry in trainer.state.log_history if "endings/error" in entry]
    assert (logged["endings/error"], logged["calls"] >= 1.0) == (0.0, True)


# The program with notes


def test_questions_take_six_to_eight_lookups_and_their_answers_are_those_of_the_databases(modules: Any) -> None:
    both = {split: rows_of(f"lookups_{split}") for split in ("train", "held_out")}
    for split, rows in both.items():
        assert rows == list(modules.lookups.questions(split))
    person, columns = modules.lookups.path("What is the printer of the boss of the keeper of 984?")
    assert (person, columns) == (984, ["room", "printer", "keeper", "team", "boss", "room", "printer"])
    assert {len(modules.lookups.path(row["question"])[1]) for row in both["train"]} == {6, 7, 8}
    assert not {row["database"] for row in both["train"]} & {row["database"] for row in both["held_out"]}


def test_the_player_of_lookups_finds_every_answer_and_recovers_from_errors(modules: Any) -> None:
    interaction = AgentInteraction("lookups:lookups")
    try:
        rows = rows_of("lookups_train")[:20]
        assert check(interaction, rows[:1]).problems == []
        for quality, least in ((1.0, 1.0), (0.8, 0.3)):
            player = modules.lookups_player.Player(quality)
            ends = [walk(interaction, player, RolloutRequest(task=row, seed=0))[1] for row in rows]
            assert sum(end.worth for end in ends) / len(ends) >= least
            lookups = [len(end.answered) for end in ends]
            assert min(lookups) >= 7 if quality == 1.0 else len(set(lookups)) > 1
    finally:
        interaction.close()


@pytest.mark.parametrize("reply", ["", "answer ", "drop table staff", "select '\0'", ENDLESS, "x" * 5000])
def test_what_a_reply_leaves_in_the_notes_is_short_and_a_wrong_answer_scores_nothing(modules: Any, reply: str) -> None:
    row = rows_of("lookups_train")[0]
    with modules.databases.filled(modules.lookups.TABLES, modules.lookups.content(row["database"])) as database:
        assert 0 < len(modules.lookups.found(database, reply)) <= 100
    assert modules.lookups.same(row, reply) == 0.0
    assert modules.lookups.same(row, f" {row['answer']}\n") == 1.0
