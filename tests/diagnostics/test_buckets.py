from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hf_credit.diagnostics import Failure
from hf_credit.diagnostics.buckets import Action, Bucket
from hf_credit.rollouts import Decision, Ending, Episode

BUCKET = Bucket(
    event="reasoner",
    role="reasoner",
    key=2**62,
    context="<|user|>secret 3\u2028",
    task=4,
    turn=0,
    candidates=(
        Action(text="3", returns=(0.0, 0.0), responses=("5", None), draws=2, verdict=1.0, exact=0.25),
        Action(text="7 \ud83d", returns=(1.0,), numbers=(1,), responses=("5",), failed=1),
        Action(text="9", failed=2),
    ),
    value_only=(Action(text="3", returns=(0.0, 1.0)), Action(text="8", returns=(1.0,)), Action(text="4", failed=2)),
    exact=0.5,
    state=("anything", "hashable"),
)


def test_the_properties_of_a_bucket() -> None:
    assert BUCKET.real.text == "3"
    assert [action.text for action in BUCKET.replayed] == ["3", "7 \ud83d"]
    assert BUCKET.best is BUCKET.candidates[1]
    assert BUCKET.value == pytest.approx(2 / 3)  # over returns, not over actions
    assert BUCKET.failure == Failure.CREDIT_SHIFT


def test_a_return_keeps_the_number_of_its_replay() -> None:
    assert BUCKET.candidates[0].by_replay == {0: 0.0, 1: 0.0}
    assert BUCKET.candidates[1].by_replay == {1: 1.0}


def test_a_bucket_with_only_failed_replays() -> None:
    failed = replace(BUCKET, candidates=(Action(text="3", failed=2),), value_only=())
    assert (failed.best, failed.value, failed.replayed, failed.failure) == (None, None, (), Failure.UNKNOWN)


def test_of_equally_good_candidates_the_first_is_the_best() -> None:
    same = replace(BUCKET, candidates=(Action(text="a", returns=(1.0,)), Action(text="b", returns=(1.0,))))
    assert same.best is same.candidates[0]


def test_a_line_of_json_has_texts_and_numbers_without_states_and_replays() -> None:
    decision = Decision(
        role="a", event="a", state="s", context_ids=(0,), action_ids=(1,), logprobs=None, action_text="3"
    )
    replay = Episode(decisions=(decision,), outcome=0.0, ending=Ending.FINISHED)
    first, *others = BUCKET.candidates
    candidates = (replace(first, replays=(replay, replay)), *others)
    line = replace(BUCKET, candidates=candidates, before=(decision,)).to_json()
    assert "\n" not in line
    read = json.loads(line)
    assert (read["key"], read["context"], read["exact"]) == (2**62, "<|user|>secret 3\u2028", 0.5)
    assert read["candidates"][:2] == [
        {"text": "3", "returns": [0.0, 0.0], "responses": ["5", None], "failed": 0, "draws": 2, "verdict": 1.0}
        | {"exact": 0.25, "numbers": []},
        {"text": "7 \ud83d", "returns": [1.0], "responses": ["5"], "failed": 1, "draws": 1, "verdict": None}
        | {"exact": None, "numbers": [1]},
    ]
    assert [action["returns"] for action in read["value_only"]] == [[0.0, 1.0], [1.0], []]
    assert not {"before", "state"} & read.keys()
