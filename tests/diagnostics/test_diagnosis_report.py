from __future__ import annotations

import json
from dataclasses import replace

import pytest
from small_buckets import action

from hf_credit.diagnostics.buckets import Action, Bucket
from hf_credit.diagnostics.diagnosis import Diagnosis, diagnose
from hf_credit.diagnostics.diagnosis_report import (
    bucket_file,
    examples_markdown,
    numbers,
    tables,
    write_diagnosis,
)
from hf_credit.evaluation.markdown import readable
from hf_credit.evaluation.statistics import mean_with_interval
from hf_credit.rollouts import Ledger


def bucket(key: int, returns, texts=("real", "other"), event="plan", responses=None) -> Bucket:
    return Bucket(
        event=event,
        role=event,
        key=key,
        context=f"context {key}",
        task=key,
        turn=1,
        candidates=tuple(
            action(text, own, event, verdict=own[0], responses=responses or (None,) * len(own), exact=own[0])
            for text, own in zip(texts, returns, strict=True)
        ),
        value_only=(Action(text="v", returns=(0.5,)),),
    )


@pytest.fixture(scope="module")
def found() -> Diagnosis:
    buckets = [
        bucket(0, ((0.0,), (1.0,))),
        bucket(1, ((0.0,), (1.0,))),
        bucket(2, ((1.0,), (1.0,))),
        bucket(3, ((0.0,), (0.0,)), event="act"),
    ]
    success = {"greedy": mean_with_interval([1.0, 0.0, 1.0]), "pass@1": mean_with_interval([0.5])}
    return diagnose("runs/p", buckets, success=success, cost=Ledger(scoring_events=1234), about={"seed": 7})


def test_a_folder_has_tables_plots_numbers_examples_and_buckets(found, tmp_path) -> None:
    path = write_diagnosis([found], tmp_path / "deep" / "diagnosis")
    assert path.read_text(encoding="utf-8").startswith("# Diagnosis\n\n## Policies\n")
    folder = path.parent
    assert (folder / "diagnosis.png").read_bytes()[1:4] == b"PNG"
    assert json.loads((folder / "diagnosis.json").read_text()) == json.loads(json.dumps(numbers([found])))
    assert (folder / "examples.md").read_text(encoding="utf-8") == examples_markdown([found])
    lines = (folder / bucket_file(0, "runs/p")).read_text(encoding="utf-8").splitlines()
    assert lines == [one.to_json() for one in found.buckets]


def test_the_error_of_exact_values_is_beside_their_fidelity(found) -> None:
    assert "error of exact values" not in tables([found])["Credit"][0]
    exact = [replace(one, exact=0.5, exact_error=0.031) for one in found.buckets]
    header, rows = tables([diagnose("p", exact)])["Credit"]
    assert dict(zip(header, rows[0], strict=True))["error of exact values"] == "0.031"


def test_the_tables_have_every_policy_event_and_credit(found) -> None:
    other = replace(found, name="runs/q")
    shown = tables([found, other])
    assert list(shown) == ["Policies", "Decisions", "Credit", "Failures"]
    header, rows = shown["Policies"]
    assert header[:3] == ["policy", "greedy", "pass@1"]
    assert [row[0] for row in rows] == ["runs/p", "runs/q"]
    assert rows[0][1].startswith("0.667 [")
    assert rows[0][2] == "0.5"  # one task has no interval
    assert "1,234" in rows[0]
    _, rows = shown["Decisions"]
    assert [row[:3] for row in rows][:3] == [
        ["runs/p", "all events", "4"],
        ["runs/p", "plan", "3"],
        ["runs/p", "act", "1"],
    ]
    assert "no response" in rows[0]
    _, rows = shown["Credit"]
    assert {tuple(row[:3]) for row in rows} == {
        (policy, event, credit)
        for policy in ("runs/p", "runs/q")
        for event in ("all events", "plan", "act")
        for credit in ("replay_loo", "magrpo", "verifiable_process", "outcome_reward")
    }
    assert "- (constant credits)" in next(row for row in rows if row[1:3] == ["act", "replay_loo"])


def test_undefined_numbers_are_null_in_strict_json(found) -> None:
    (values,) = json.loads(json.dumps(numbers([found]), allow_nan=False))
    assert values["about"] == {"seed": 7}
    assert values["success"]["pass@1"]["low"] is None
    act = values["events"][2]
    assert act["event"] == "act"
    assert act["influence"] is None
    assert act["credits"][0]["fidelity"]["shared"]["mean"] is None
    assert act["credits"][0]["status"]["shared"] == "constant credits"
    assert act["failures"] == {"misleading plan": 1}


def test_examples_alternate_between_categories(found) -> None:
    text = examples_markdown([found], examples=3)
    heads = [line for line in text.splitlines() if line.startswith("### ")]
    assert heads == [
        "### successful credit shift: plan, task 0, decision 2",
        "### misleading plan: act, task 3, decision 2",
        "### evaluator ambiguity: plan, task 2, decision 2",
    ]
    assert len([line for line in examples_markdown([found]).splitlines() if line.startswith("### ")]) == 4


def test_an_example_shows_the_reply_and_better_alternatives(found) -> None:
    text = examples_markdown([found], examples=1)
    assert "Real action (mean return 0, replay_loo credit -1, oracle 0, exact value 0):\n\n```text\nreal\n```" in text
    assert "Best alternative (mean return 1, replay_loo credit +1, oracle 1, exact value 1):" in text
    assert "V(h) of the value-only actions: 0.5" in text
    assert "context 0" in text


def test_an_example_shows_the_response_and_a_reply_without_a_return(found) -> None:
    answered = bucket(0, ((1.0,), (0.0,)), responses=("the answer",))
    broken = replace(answered, key=1, candidates=(Action(text="real", failed=2),))
    text = examples_markdown([replace(found, buckets=(answered, broken))])
    assert "response in the first replay:\n\n```text\nthe answer\n```" in text
    assert "Real action (no replay succeeded):" in text


def test_hostile_text_can_neither_end_its_block_nor_break_the_file(found, tmp_path) -> None:
    evil = "```\n# heading\n````\n\x1b[31m\ud83d\u202ehidden"
    hostile = bucket(0, ((0.0,), (1.0,)), texts=(evil, "fine"))
    path = write_diagnosis([replace(found, buckets=(hostile,), name="../../a b\x00c")], tmp_path)
    text = (tmp_path / "examples.md").read_text(encoding="utf-8")
    assert "`````text\n```\n# heading\n````\n\\x1b[31m\\ud83d\\u202ehidden\n`````" in text
    assert "\x1b" not in text
    assert {one.parent for one in path.parent.glob("buckets_*")} == {tmp_path}


def test_long_texts_are_cut_in_the_middle() -> None:
    text = readable("a" * 3000 + "b" * 3000, most=100)
    assert text.startswith("a" * 50 + "\n... (5900 characters left out) ...\n")
    assert text.endswith("b" * 50)
    assert readable("short\ttext\n") == "short\ttext\n"


def test_a_file_of_buckets_has_a_plain_name() -> None:
    assert bucket_file(1, "Qwen/Qwen3-4B") == "buckets_1_Qwen_Qwen3-4B.jsonl"
    assert len(bucket_file(0, "x" * 500)) < 100
