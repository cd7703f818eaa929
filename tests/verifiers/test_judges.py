"""Judges of situation puzzles."""

from __future__ import annotations

import pytest

from hf_credit.verifiers.judges import NO_QUESTION, FactJudge, judge_prompt, read_verdict

JUDGE = FactJudge({"Was it cold?": "Yes", "Was it wet?": "No"})


@pytest.mark.parametrize(
    ("question", "verdict"),
    [
        ("Was it cold?", "Yes"),
        ("was  it COLD?\n", "Yes"),
        ("Was it wet?", "No"),
        ("Was it warm?", "Unknown"),
        ("It was cold.", NO_QUESTION),
        ("", NO_QUESTION),
    ],
)
def test_facts_are_looked_up(question, verdict):
    assert JUDGE("surface", "bottom", question) == verdict


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("Yes", "Yes"),
        (" no.", "No"),
        ("**Unknown**", "Unknown"),
        ("This is not a question, please propose your next question.", NO_QUESTION),
        ("<think>No?</think>Yes.", "Yes"),
        ("<think>Yes", "Unknown"),
        ("Yesterday it was.", "Unknown"),
        ("The answer is Yes", "Unknown"),
        ("", "Unknown"),
    ],
)
def test_the_start_of_a_reply_is_the_verdict(reply, verdict):
    assert read_verdict(reply) == verdict


def test_a_question_with_placeholders_fills_only_its_own_placeholder():
    prompt = judge_prompt("SURFACE", "BOTTOM", "Is it {bottom}? {0} {question}")
    assert prompt.count("BOTTOM") == prompt.count("SURFACE") == 1
    assert "player question:\nIs it {bottom}? {0} {question}\n" in prompt


def test_a_fact_without_a_verdict_is_refused():
    with pytest.raises(
        ValueError, match=r"a fact must be Yes, No or Unknown, got 'Maybe' for 'Was it\?'; correct it\."
    ):
        FactJudge({"Was it?": "Maybe"})
