"""Scorers come as functions or by name, and their scores are numbers in [0, 1]."""

from __future__ import annotations

import math
import operator
from fractions import Fraction

import numpy
import pytest
import torch

from hf_credit.collaborations.base import graph
from hf_credit.collaborations.relay import relay_score
from hf_credit.collaborations.scorers import check_score, resolve_scorer


def test_a_function_is_returned_unchanged():
    assert resolve_scorer(relay_score) is relay_score
    assert resolve_scorer(operator.eq) is operator.eq


def test_a_name_finds_its_function():
    assert resolve_scorer("hf_credit.collaborations.relay:relay_score") is relay_score


def test_a_name_is_looked_for_in_the_folder_of_the_run(tmp_path, monkeypatch):
    (tmp_path / "own_scoring_of_this_test.py").write_text("def half(task, text):\n    return 0.5\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert resolve_scorer("own_scoring_of_this_test:half")({}, "") == 0.5


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no_such_package.scoring:exact", "No module named 'no_such_package'"),
        ("hf_credit.collaborations.relay:no_such_function", "has no attribute 'no_such_function'"),
        ("hf_credit.collaborations.relay", "not a module and a function"),
        (":score", "not a module and a function"),
        ("", "not a module and a function"),
    ],
)
def test_a_name_that_finds_nothing_is_refused(name, why):
    with pytest.raises(ValueError, match=rf"importable as 'package.module:function', got '{name}' \(.*{why}.*\); "):
        resolve_scorer(name)


@pytest.mark.parametrize("scorer", [0.5, "math:pi", lambda text: 0.5, lambda task, text, more: 0.5])
def test_other_objects_than_a_function_of_a_task_and_a_text_are_refused(scorer):
    with pytest.raises(ValueError, match=r"a function of a task and a text, got .*; pass score\(task, text\), or "):
        resolve_scorer(scorer)


def test_a_scorer_with_a_transcript_parameter_receives_all_outputs():
    given = []

    def polite(task, text, *, transcript):
        given.append((text, transcript))
        return float(any("please" in output for _, output in transcript))

    events = [{"name": "ask", "role": "a"}, {"name": "answer", "role": "b", "after": "ask"}]
    collaboration = graph(roles={"a": "Ask.", "b": "Answer."}, events=events, final="answer", scorer=polite)
    state = collaboration.start({"problem": "?"}, 0)
    for reply in ("Now, please.", "Here."):
        state = collaboration.advance(state, [reply])
    assert collaboration.outcome(state) == 1.0
    assert given == [("Here.", (("ask", "Now, please."), ("answer", "Here.")))]


@pytest.mark.parametrize(
    ("score", "expected"),
    [
        (True, 1.0),
        (False, 0.0),
        (1, 1.0),
        (0.25, 0.25),
        (Fraction(1, 4), 0.25),
        (numpy.float32(0.25), 0.25),
        (numpy.int64(1), 1.0),
    ],
)
def test_a_number_in_range_is_a_score(score, expected):
    assert check_score(score, relay_score) == expected
    assert type(check_score(score, relay_score)) is float


@pytest.mark.parametrize("score", [math.nan, math.inf, -0.1, 1.1, 2, None, "1", [1], torch.tensor(1.0), 1j])
def test_anything_else_is_refused(score):
    with pytest.raises(
        ValueError,
        match=r"a number in \[0, 1\], got .+ from relay_score; scale it or correct the scorer, which returned the",
    ):
        check_score(score, relay_score)
