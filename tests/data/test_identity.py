from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from hf_credit.data import fingerprint, uid_sha


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_an_identifier_is_the_hash_of_the_normalised_text() -> None:
    assert uid_sha("How many?") == sha("How many?")
    assert uid_sha("caf\u0065\u0301") == uid_sha("caf\u00e9") == sha("caf\u00e9")
    assert uid_sha("one\r\ntwo\rthree\n \t\n") == sha("one\ntwo\nthree")


def test_blanks_within_case_and_width_make_another_identifier() -> None:
    texts = ["a b", "a  b", " a b", "A b", "ａ b", "a \nb"]
    assert len({uid_sha(text) for text in texts}) == len(texts)


def test_a_fingerprint_is_the_hash_of_the_sorted_identifiers() -> None:
    one, two = sorted([uid_sha("1 + 1"), uid_sha("2 + 2")])
    assert fingerprint([two, one]) == sha(f"{one}\n{two}\n")
    assert fingerprint([]) == sha("")


@given(st.lists(st.text()), st.randoms(use_true_random=False))
def test_a_fingerprint_does_not_depend_on_the_order_but_on_how_often(texts: list[str], draws: object) -> None:
    identifiers = [uid_sha(text) for text in texts]
    shuffled = list(identifiers)
    draws.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fingerprint(shuffled) == fingerprint(identifiers)
    assert fingerprint([*identifiers, uid_sha("one more")]) != fingerprint(identifiers)


def test_a_text_with_surrogates_has_an_identifier() -> None:
    assert len(uid_sha("\ud800")) == 64
