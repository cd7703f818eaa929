from __future__ import annotations

import pytest

from hf_credit.words import counted, duration


def test_one_thing_is_counted_in_the_singular() -> None:
    assert [counted(number, "update") for number in (0, 1, 2, 1024)] == [
        "0 updates",
        "1 update",
        "2 updates",
        "1,024 updates",
    ]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.034, "0.034 s"), (3.21, "3.2 s"), (42.4, "42 s"), (420, "7 min"), (5399, "90 min"), (9000, "2.5 h")],
)
def test_a_duration_has_the_unit_in_which_it_is_not_0(seconds: float, words: str) -> None:
    assert duration(seconds) == words
