"""Random generators derived from seeds."""

import hashlib
import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from hf_credit.environments.randomness import derive, stream

PARTS = st.lists(st.one_of(st.integers(), st.from_regex("[a-z]*", fullmatch=True)), max_size=3)


def test_a_seed_is_the_digest_of_its_parts():
    digest = hashlib.blake2b(b"5\x1fsudoku\x1f9", digest_size=8).hexdigest()
    assert derive(5, "sudoku", 9) == int(digest, 16)


@given(seed=st.integers(), parts=PARTS)
def test_a_seed_has_64_bits(seed, parts):
    assert 0 <= derive(seed, *parts) < 2**64


@given(seed=st.integers(), parts=PARTS)
def test_generators_of_one_purpose_are_equal_and_separate(seed, parts):
    first, second = stream(seed, *parts), stream(seed, *parts)
    drawn = [first.random() for _ in range(3)]
    assert drawn == [second.random() for _ in range(3)]


@given(seed=st.integers(), other=st.integers(), parts=PARTS, others=PARTS)
def test_another_seed_or_purpose_gives_another_generator(seed, other, parts, others):
    same = (seed, [str(part) for part in parts]) == (other, [str(part) for part in others])
    assert (derive(seed, *parts) == derive(other, *others)) == same


def test_parts_are_separated():
    assert derive(1, "ab", "c") != derive(1, "a", "bc")
    assert derive(1, 2) != derive(12)


def test_seeds_do_not_depend_on_the_process():
    code = "from hf_credit.environments.randomness import derive; print(derive(3, 'x', 4))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(printed) == derive(3, "x", 4)
