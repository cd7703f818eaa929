"""Every run sees the same world, ends with all that it started, and takes a bounded part of the machine."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hf_credit.agents import AgentInteraction, AgentState
from hf_credit.agents.check import check
from hf_credit.agents.runs import DivergedRunError, RunError


@pytest.fixture
def shows() -> Iterator[AgentInteraction]:
    interaction = AgentInteraction("agent_worlds:shows_paths")
    yield interaction
    interaction.close()


def ended(name: str, task: dict[str, Any], **settings: Any) -> AgentState:
    """The end of an episode with the reply "four" to every call."""
    interaction = AgentInteraction(f"agent_worlds:{name}", **settings)
    try:
        state = interaction.start(task, 0)
        while asked := interaction.pending(state):
            state = interaction.advance(state, ["four"] * len(asked))
        return state
    finally:
        interaction.close()


def folders(interaction: AgentInteraction) -> list[Path]:
    assert interaction._live is not None
    return list(interaction._live.host.folder.path.iterdir())


def test_a_program_that_shows_its_folder_and_files_in_it_repeats_itself(shows: AgentInteraction) -> None:
    assert check(shows, [{"number": 1}]).problems == []


def test_a_path_that_the_model_read_is_one_of_the_run_that_gets_it(shows: AgentInteraction) -> None:
    state = shows.start({"number": 1}, 0)
    (request,) = shows.pending(state)
    cwd = request.messages[0]["content"].split()[0]
    assert cwd not in map(str, folders(shows))
    replies = [f"read {cwd}/notes", "tea"]
    for again in range(2):  # the second time in another run, whose folder has another name
        after = shows.advance(state, [replies[0]])
        (request,) = shows.pending(after)
        assert [message["content"] for message in request.messages[1:]] == [replies[0], "tea"]
        assert after.kept == (1, 1)
        assert shows.advance(after, [replies[1]]).worth == 1.0
        assert shows.costs()["forced_replies"] == 0
        assert shows.costs()["runs"] == again + 1


def test_a_run_that_diverges_before_its_last_call_is_shown_with_the_part_too(tmp_path: Path) -> None:
    interaction = AgentInteraction("agent_worlds:counts_its_runs")
    states = [interaction.start({"file": str(tmp_path / "runs")}, 0)]
    states.append(interaction.advance(states[0], ["b"]))
    interaction.advance(states[1], ["b"])
    with pytest.raises(DivergedRunError, match=r"got another call \(message 1 .*'a', then ...'aa'\) at call 1; draw"):
        interaction.advance(states[1], ["c"])
    interaction.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
def test_a_daemon_ends_with_its_run_and_with_no_other(tmp_path: Path) -> None:
    interaction = AgentInteraction("agent_worlds:leaves_a_daemon")
    files = [tmp_path / name for name in ("first", "second")]
    first, _ = (interaction.start({"file": str(file)}, 0) for file in files)
    daemon, other = (int(file.read_text()) for file in files)
    assert interaction.advance(first, ["four"]).worth == 4.0
    with pytest.raises(ProcessLookupError):
        os.kill(daemon, 0)
    os.kill(other, 0)
    interaction.close()
    with pytest.raises(ProcessLookupError):
        os.kill(other, 0)


def test_a_coroutine_is_run_and_so_is_a_scorer() -> None:
    for settings in ({}, {"score": "agent_worlds:later"}):
        assert ended("at_once", {"number": 1}, **settings).worth == 8.0


def test_a_scorer_is_a_function_of_the_module_or_its_name() -> None:
    state = ended("is_scored", {"number": 1})
    assert state.worth == 2.0
    assert AgentInteraction("agent_worlds:at_once").settings.score == "agent_worlds:same"


def test_calls_at_once_may_come_at_any_time_in_a_check(tmp_path: Path) -> None:
    interaction = AgentInteraction("agent_worlds:later_in_some_runs")
    findings = check(interaction, [{"file": str(tmp_path / "runs")}])
    assert (findings.problems, findings.together, findings.calls) == ([], 1, 3)
    interaction.close()


def test_a_program_that_calls_no_model_fails_its_check() -> None:
    interaction = AgentInteraction("agent_worlds:calls_no_model")
    (problem,) = check(interaction, [{"number": 1}, {"number": 2}]).problems
    assert problem.startswith("no run called a model")
    interaction.close()


@pytest.mark.parametrize(
    ("what", "worth", "status"),
    [("write", 0.0, "raised"), ("child", 1.0, "finished"), ("unspeakable", 0.0, "raised"), ("fork", 0.5, "finished")],
)
def test_what_a_run_takes_beyond_its_bounds_is_its_own_failure(what: str, worth: float, status: str) -> None:
    state = ended("takes_much", {"what": what})
    assert (state.worth, state.status) == (worth, status)


def test_a_run_whose_files_together_take_too_much_is_ended_in_one_sentence(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        state = ended("takes_much", {"what": "files"}, failure=-1.0)
    assert (state.worth, state.status) == (-1.0, "raised")
    assert (
        "the files of a run must take at most 1048576 bytes, got more; write less, or raise disk_bytes" in caplog.text
    )


def test_a_run_with_too_many_files_is_ended_while_it_waits_for_a_reply() -> None:
    interaction = AgentInteraction("agent_worlds:takes_much")
    state = interaction.start({"what": "before"}, 0)
    while folders(interaction):
        time.sleep(0.01)
    assert interaction.advance(state, ["four"]).status == "raised"
    assert interaction.costs()["lost"] == 0
    interaction.close()


def test_an_exception_of_any_length_is_told_in_short(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert ended("takes_much", {"what": "raise"}).status == "raised"
    assert "ValueError: xxx" in caplog.text
    assert len(caplog.text) < 50_000


def test_output_of_any_length_is_bounded_and_its_end_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert ended("takes_much", {"what": "print"}).status == "raised"
    assert re.search(r"got exit code 3; it printed last: x+\nthat was much\n", caplog.text)
    assert len(caplog.text) < 5_000


def test_a_result_of_any_length_is_refused_in_short() -> None:
    with pytest.raises(RunError, match="must return a finite number, got 'xxx") as told:
        ended("takes_much", {"what": "return"})
    assert len(str(told.value)) < 5_000


def test_a_run_that_the_machine_cannot_start_loses_no_other() -> None:
    interaction = AgentInteraction("agent_worlds:is_scored")
    first = interaction.start({"number": 1}, 0)
    assert interaction._live is not None
    folder = interaction._live.host.folder.path
    folder.rename(folder.with_suffix(".aside"))
    folder.write_text("as if the disk were full")
    with pytest.raises(RunError, match=r"a run must end by itself, got no process, as \[Errno \d+\]"):
        interaction.start({"number": 1}, 1)
    folder.unlink()
    folder.with_suffix(".aside").rename(folder)
    assert interaction.advance(first, ["four"]).worth == 2.0
    interaction.close()
