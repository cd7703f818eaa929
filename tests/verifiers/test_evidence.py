"""The F1 of documents."""

from __future__ import annotations

import pytest

from hf_credit.verifiers.evidence import support_f1


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
