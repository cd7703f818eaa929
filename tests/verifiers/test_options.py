"""Keys of replies: equal for equal answers."""

from __future__ import annotations

import pytest

from hf_credit.verifiers.options import answer_key, option_key, option_score


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        (r"so \boxed{B}", "B"), (r"\boxed{\text{b}}", "B"), (r"\boxed{(B)}", "B"), ("The answer is B.", "B"),
        ("Answer: (C) because it is red", "C"), ("D", "D"), ("D. the dog", "D"), ("the correct option is A", "A"),
        ("I think (D)", "D"), (r"\boxed{\textbf{(A)}\ 5}", "A"), ("(A) is tempting, yet (C) it is", "C"),
        ("<think>(A)?</think>It is (C) or so, a cat of some kind", "C"), ("<think>(A)", None),
        (r"\boxed{B, C}", None), (r"\boxed{B} or \boxed{C}", None), (r"\boxed{B \text{ or } C}", None),
        ("The answer is (B) or (C)", None), ("The answer is A, B and D.", None), (r"\boxed{A. a dog}", "A"),
        (r"\boxed{B. C}", "B"), (r"\boxed{B} and again \boxed{B}", "B"),
        ("The answer is A, i.e. 5", "A"), ("B, c.f. above", "B"), ("The answer is b, c", None),
        ("", None), (r"\boxed{", None), ("The answer is a cat", None), (r"\boxed{12}", None), ("A cat", None),
    ],
)  # fmt: skip
def test_an_option_is_its_letter(reply, letter):
    assert option_key(reply) == letter


@pytest.mark.parametrize("same", [("1/2", r"\boxed{\frac12}", "The answer is 0.5"), ("#### 1,000", "1000"),
                                  (r"\boxed{5\text{ cm}}", "5")])  # fmt: skip
def test_equal_numbers_have_one_key(same):
    assert len({answer_key(reply) for reply in same}) == 1


def test_different_answers_have_different_keys_and_no_answer_has_none():
    assert len({answer_key(reply) for reply in ("0.333", "1/3", r"20\%", "20", r"\boxed{x+1}")}) == 5
    assert answer_key("") is answer_key(r"\boxed{3") is answer_key("9" * 5000) is None


def test_a_number_with_too_many_digits_to_write_is_its_own_key():
    huge = "1e999 " + "亿" * 500
    assert answer_key(rf"\boxed{{{huge}}}") == answer_key(rf"\boxed{{{huge}}}") is not None
    assert answer_key(rf"\boxed{{{huge}}}") != answer_key(rf"\boxed{{2e999 {huge[6:]}}}")


def test_a_choice_is_scored_by_its_letter():
    assert option_score({"answer": "B"}, r"\boxed{b}") == 1.0
    assert option_score({"answer": "(B)"}, "C") == option_score({"answer": "B"}, "") == 0.0
    with pytest.raises(ValueError, match="must have the letter of the right option as its answer, got None; "):
        option_score({}, "B")
