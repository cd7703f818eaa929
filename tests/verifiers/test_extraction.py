from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.verifiers.extraction import MAX_ANSWER, MAX_DEPTH, MAX_TEXT, final_answer


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        # A box counts before anything else, and the last one of several.
        (r"So \boxed{1}, no: \boxed{2}. The answer is 3.", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{x = \boxed{5}}", r"x = \boxed{5}"),
        (r"\fbox{7}", "7"),
        (r"$\boxed 5$ cm", "5"),
        (r"\boxed {6}", "6"),
        (r"} \boxed{3} {", "3"),
        # Thoughts do not count.
        (r"<think>try \boxed{5}</think> The answer is 7.", "7"),
        (r"\boxed{5}?</think> 7", "7"),
        # GSM8K's form, in the last line only.
        ("She has 3.\n#### 72", "72"),
        ("#### Step 1\nso the result is 5", "5"),
        # A phrase, to the end of its sentence.
        ("The answer is 3.5. Is it 4?", "3.5"),
        ("The final answer is $x=5$, as 5 + 0 = 5.", "x=5"),
        ("The answers are $1$ and $-2$.", "1, -2"),
        ("**Answer:** 18", "18"),
        ("Answer:\n\\[\n\\frac{3}{4}\n\\]", "\\frac{3}{4}"),
        ("The answer is $16.", "$16"),
        ("The answer is 10$\\pi$.", "10$\\pi$"),
        ("The answer is that she has 18 dollars.", "18"),
        ("The answer is Evelyn.", "Evelyn"),
        ("The answer is \\text{p.m. or so}.", "\\text{p.m. or so}"),
        ("The answer is 7.\n\nI checked it 3 times", "7"),
        ("The answer is 3!", "3"),
        ('"The answer is **3**!" she said', "3"),
        ("The answer is 3! It was easy.", "3"),
        ("The answer is 5! = 120.", "5! = 120"),
        ("The answer is $5!$!", "5!"),
        ("The answer is 10! / (4! 6!)", "10! / (4! 6!)"),
        ("The answer is (2n)!/n!", "(2n)!/n!"),
        ("The answer is (n+1)!", "(n+1)!"),
        ("The answer is 5! = 120!", "5! = 120"),
        ("所以答案是18。", "18"),
        ("一共12个\n答：小明有18个。", "18"),
        # Nothing but an answer.
        ("p - q", "p - q"),
        ("1,-2", "1,-2"),
        ("x = 5", "x = 5"),
        ("5 square units", "5 square units"),
        ("Evelyn", "Evelyn"),
        ("3!", "3"),
        ("$ 5! $", "$ 5! $"),
        ("\\begin{pmatrix} 1 \\\\\n2 \\end{pmatrix}", "\\begin{pmatrix} 1 \\\\\n2 \\end{pmatrix}"),
        # The last formula or number.
        ("She pays $18 and gets $2 back, so she has $16 left", "16"),
        ("After $3$ steps we get $\\sqrt{2}$ for the side.", "\\sqrt{2}"),
        ("Since $x = 2$ there are 12 ways in all.", "12"),
        ("So it falls by 3, to -1,200 in the end.", "-1,200"),
        ("一共买了18小包茶叶。", "18"),
        ("Between 3-5 there are 4/5 of them.", "4/5"),
    ],
)
def test_the_last_answer_like_span_is_the_answer(reply: str, answer: str) -> None:
    assert final_answer(reply).answer == answer


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "no answer"),
        ("I do not know what to say about this one", "no answer"),
        (r"First \boxed{1}, and then \boxed{2", "never closed"),
        (r"\boxed{ \boxed{5}", "never closed"),
        (r"<think>\boxed{7}", "no answer"),
        (r"<|channel>thought\boxed{7}", "no answer"),
        (r"\boxed{}", "empty"),
        (r"\boxed{" + "1" * (MAX_ANSWER + 1) + "}", "more than 1,000 characters"),
        ("1" * 1_000_000, "more than 1,000 characters"),
        ("1" * (MAX_TEXT + 1), "more than 1,000,000 characters"),
        (r"\boxed{" + "{" * (MAX_DEPTH + 1) + "5" + "}" * (MAX_DEPTH + 1) + "}", "nested deeper than 32"),
        (r"\boxed{" + "{" * 100_000 + "5" + "}" * 100_000 + "}", "more than 1,000 characters"),
        ("\\boxed{" * 100_000, "never closed"),
        ("{" * 100_000, "no answer"),
        ("答" * 100_000, "no answer"),
    ],
)
def test_a_reply_without_an_answer_has_a_reason(reply: str, reason: str) -> None:
    found = final_answer(reply)
    assert found.answer is None
    assert reason in found.reason


FLOODS = ["$", "\\[", "answer is ", "answer ", "答案", "1,111", "-", "\\frac{1", "####\n", " ", "\\boxed ", "1/", "."]


@pytest.mark.parametrize("flood", [*FLOODS, "\u0315\u0300", "$1$ and ", "{", "\\(", "\\begin{a}", "1 "])
def test_many_repeated_marks_take_linear_time(flood: str) -> None:
    """Nothing here is quadratic: a quadratic pattern would need hours for these, not seconds."""
    final_answer((flood * 300_000)[:MAX_TEXT])


@given(st.text(alphabet="\\boxed{}$[]()答案是answer is:12,./#\n ", max_size=80))
def test_no_reply_is_an_error(reply: str) -> None:
    found = final_answer(reply)
    assert (found.answer is None) == bool(found.reason)
    assert found.answer is None or 0 < len(found.answer) <= MAX_ANSWER
