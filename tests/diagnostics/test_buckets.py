from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.diagnostics import Failure
from hf_credit.diagnostics.buckets import Action, Bucket, load_buckets, save_buckets
from hf_credit.rollouts import Decision, Ending, Episode, Verdict

BUCKET = Bucket(
    event="reasoner",
    role="reasoner",
    key=2**62,
    context="<|user|>secret 3\u2028",
    task=4,
    turn=0,
    candidates=(
        Action(text="3", returns=(0.0, 0.0), responses=("5", None), draws=2, verdict=1.0, exact=0.25),
        Action(text="7 \ud83d", returns=(1.0,), responses=("5",), failed=1),
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


def test_a_bucket_with_only_failed_replays() -> None:
    failed = replace(BUCKET, candidates=(Action(text="3", failed=2),), value_only=())
    assert (failed.best, failed.value, failed.replayed, failed.failure) == (None, None, (), Failure.UNKNOWN)


def test_of_equally_good_candidates_the_first_is_the_best() -> None:
    same = replace(BUCKET, candidates=(Action(text="a", returns=(1.0,)), Action(text="b", returns=(1.0,))))
    assert same.best is same.candidates[0]


def test_loaded_buckets_equal_the_saved_ones_without_states(tmp_path) -> None:
    other = replace(BUCKET, key=3, exact=None, value_only=())
    path = save_buckets([BUCKET, other], tmp_path / "buckets.jsonl")
    assert len(path.read_text(encoding="utf-8").splitlines()) == 2
    read = load_buckets(path)
    assert read == [BUCKET, other]
    assert [bucket.state for bucket in read] == [None, None]
    assert load_buckets(save_buckets([], path)) == []


@given(st.text(), st.lists(st.floats(allow_nan=False, allow_infinity=False)), st.integers(0, 2**63 - 1))
def test_json_keeps_every_text_and_number(text, returns, key) -> None:
    responses = tuple(None if place % 2 else text for place in range(len(returns)))
    bucket = replace(
        BUCKET, key=key, context=text, candidates=(Action(text=text, returns=tuple(returns), responses=responses),)
    )
    assert Bucket.from_json(bucket.to_json()) == bucket
    assert "\n" not in bucket.to_json()


@pytest.mark.parametrize(
    "line", ["", "{", "[]", "null", '{"event": "a"}', BUCKET.to_json().replace('"text"', '"texts"')]
)
def test_another_file_is_refused_with_the_line(tmp_path, line) -> None:
    path = tmp_path / "buckets.jsonl"
    path.write_text(f"{BUCKET.to_json()}\n{line}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"buckets.jsonl, line 2: a bucket must be written by Bucket.to_json, got "):
        load_buckets(path)


def test_a_bucket_without_a_candidate_is_refused() -> None:
    empty = replace(BUCKET, candidates=())
    with pytest.raises(ValueError, match="no candidate"):
        Bucket.from_json(empty.to_json())


def test_a_file_keeps_replays_to_the_token_and_writes_a_conversation_once(tmp_path) -> None:
    def decision(event, context, action, **others):
        return Decision(
            role=event,
            event=event,
            state="left out",
            context_ids=context,
            action_ids=action,
            logprobs=(-0.5,) * len(action),
            action_text="text",
            **others,
        )

    first = decision("plan", (1, 2), (3,), reward=0.5, step=0)
    other = decision("act", (1, 2), (4,), verdict=Verdict(score=0.5), step=1)
    second = decision("plan", (1, 2, 3, 5), (6, 7))
    third = decision("plan", (1, 2, 3, 5, 6, 7, 8), ())
    anew = decision("plan", (9,), (1,))
    replay = Episode(decisions=(second, third, anew), outcome=0.25, ending=Ending.TRUNCATED, metrics={"success": 0.0})
    action = Action(text="text", returns=(0.25,), responses=(None,), replays=(replay,))
    bucket = replace(BUCKET, candidates=(action,), before=(first, other))
    (read,) = load_buckets(save_buckets([bucket], tmp_path / "buckets.jsonl"))

    def without_state(one):
        return replace(one, state=None)

    assert read.before == tuple(map(without_state, bucket.before))
    assert [one.step for one in read.before] == [0, 1]
    (kept,) = read.candidates[0].replays
    assert kept == replace(replay, decisions=tuple(map(without_state, replay.decisions)))
    written = json.loads(bucket.to_json())["candidates"][0]["replays"][0]["decisions"]
    assert [one["context_ids"] for one in written] == [[5], [8], [9]]


def test_a_small_file_that_would_fill_the_memory_is_refused(monkeypatch) -> None:
    monkeypatch.setattr("hf_credit.diagnostics.buckets._MAX_TOKENS", 50)
    long = Decision(
        role="a", event="a", state=None, context_ids=(0,) * 20, action_ids=(1,), logprobs=None, action_text=""
    )
    again = replace(long, context_ids=long.context_ids + long.action_ids)
    fits, not_fits = (replace(BUCKET, before=(long, *[again] * times)) for times in (1, 2))
    assert Bucket.from_json(fits.to_json()).before[1].context_ids == again.context_ids
    with pytest.raises(ValueError, match="its contexts must have at most 50 tokens in total"):
        Bucket.from_json(not_fits.to_json())


@pytest.mark.parametrize("place", [7, "first"])
def test_a_context_that_continues_none_is_refused(place) -> None:
    one = Decision(role="a", event="a", state=None, context_ids=(0,), action_ids=(1,), logprobs=None, action_text="")
    values = json.loads(replace(BUCKET, before=(one,)).to_json())
    values["before"][0]["continues"] = place
    with pytest.raises(ValueError, match=r"must be written by Bucket.to_json, got (IndexError|TypeError)"):
        Bucket.from_json(json.dumps(values))
