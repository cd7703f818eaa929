"""A check shows the call, the message and the part that differ between runs."""

from __future__ import annotations

from typing import Any

from hf_credit.agents import AgentInteraction
from hf_credit.agents.check import check


def found(name: str, tasks: list[dict[str, Any]], **settings: Any) -> Any:
    interaction = AgentInteraction(f"agent_programs:{name}", **settings)
    try:
        return check(interaction, tasks)
    finally:
        interaction.close()


def test_a_program_that_repeats_itself_has_no_problem() -> None:
    findings = found("looks", [{"number": 1}, {"number": 2}])
    assert findings.problems == []
    assert findings.restored == findings.calls > 2
    assert findings.kept[0] == findings.kept[1] > 0


def test_calls_at_once_are_seen() -> None:
    assert found("at_once", [{"number": 1}]).together == 3


def test_each_call_that_differs_is_shown_with_the_part() -> None:
    again, *restored = found("drifts", [{"number": 1}]).problems
    assert again.startswith("task 1, run again, call 1: message 1 (user), content: ...'at ")
    assert len(restored) == 2
    assert "task 1, restored: another call (message 1 (user), content: ...'at " in restored[0]
    assert all(one.startswith("task 1, restored: another call") and one.endswith(" at call 1") for one in restored)


def test_a_program_that_fails_is_a_problem_too() -> None:
    (problem,) = found("misbehaves", [{"what": "raise first"}]).problems
    assert "task 1: RunError: a program must not raise before its first call" in problem


def test_calls_before_a_refused_one_are_counted_and_its_sentence_is_said_once() -> None:
    findings = found("refused_late", [{"number": 1}])
    (problem,) = findings.problems
    assert findings.calls == 5
    assert problem.count("audio of a call must be left out") == 1
