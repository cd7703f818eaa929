"""F1 of tokens: multisets, case and punctuation kept. The F1 of documents."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.verifiers.text_overlap import MAX_TEXT, support_f1, token_f1


@pytest.mark.parametrize(
    ("prediction", "truth", "f1"),
    [
        ("the cat sat", "the cat sat", 1),
        ("sat the cat", "the cat sat", 1),
        ("the the cat", "the cat", 2 * 2 / (3 + 2)),  # as sets it would be 1
        ("the cat", "the the cat", 2 * 2 / (2 + 3)),
        ("The cat", "the cat", 2 * 1 / 4),
        ("the cat.", "the cat", 2 * 1 / 4),
        ("dog", "the cat", 0),
        ("", "the cat", 0),
        ("the cat", "", 0),
        ("", "", 0),
    ],
)
def test_words(prediction, truth, f1):
    assert token_f1(prediction, truth) == f1


def test_characters_are_counted_with_white_space():
    assert token_f1("ab", "ba", "character") == 1
    assert token_f1("a b", "ab", "character") == pytest.approx(2 * 2 / (3 + 2))
    assert token_f1("A", "a", "character") == 0


@given(st.text(alphabet="ab ", max_size=6), st.text(alphabet="ab ", max_size=6))
def test_what_is_in_common_is_the_largest_matching(prediction, truth):
    said, due = prediction.split(), truth.split()
    longer, shorter = (said, due) if len(said) >= len(due) else (due, said)
    best = max(sum(map(str.__eq__, order, shorter)) for order in permutations(longer))
    expected = 2 * best / (len(said) + len(due)) if best else 0
    assert token_f1(prediction, truth) == expected


def test_an_endless_prediction_scores_nothing_and_an_unknown_level_is_refused():
    assert token_f1("a " * MAX_TEXT, "a") == 0
    with pytest.raises(ValueError, match=r"level must be 'word' or 'character', got 'token'; pick one\."):
        token_f1("a", "a", "token")


@pytest.mark.parametrize(
    ("cited", "support", "score"),
    [
        ({"a"}, {"a"}, 1),
        ({"a", "b"}, {"a"}, 2 / 3),  # precision 1/2, recall 1
        ({"a"}, {"a", "b", "c"}, 1 / 2),  # precision 1, recall 1/3
        ({"b"}, {"a"}, 0),
        ((), {"a"}, 0),
        (["a", "a"], ["a"], 1),
    ],
)
def test_support_f1_is_the_harmonic_mean_of_precision_and_recall(cited, support, score):
    assert support_f1(cited, support) == pytest.approx(score)


def test_an_answer_that_needs_no_support_has_none():
    with pytest.raises(ValueError, match="must have supporting documents, got none"):
        support_f1({"a"}, ())
