"""GuessNumbers: find a number with distinct digits from the feedback on guesses (paper T3, Appendix C.1, Figure 8)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Annotated, Any, Literal

from hf_credit.boundary import Range
from hf_credit.environments.queries import ANSWER, INTERACT, QueryEnvironment, QueryState
from hf_credit.environments.randomness import stream
from hf_credit.environments.tasks import split_of
from hf_credit.options import Count
from hf_credit.validators import whole_number

SUBGROUPS = (
    (3, 4, 0, 3),
    (3, 4, 2, 0),
    (3, 4, 1, 2),
    (3, 5, 1, 2),
    (3, 5, 0, 3),
    (3, 5, 1, 0),
    (3, 5, 2, 0),
    (4, 4, 0, 4),
    (4, 5, 3, 0),
)
"""The sub-groups of the paper's set: digits, symbols, and the feedback on the first guess."""

PAIRS, TRAIN_PAIRS = 1908, 1526
"""Table 5: the number of rows, and of training rows."""


MAX_DIGITS = 5
"""With more, listing the legal actions, two for each number with repeated digits, would take too long."""


@dataclass(frozen=True, kw_only=True)
class GuessNumbersState(QueryState):
    """The queries are the guesses so far."""

    digits: Annotated[int, Range(1, MAX_DIGITS)]  # the length of the number
    # the number of different digits to choose from: 1 to `symbols`, and 0 to 9 if it is 10
    symbols: Annotated[int, Range(2, 10)]
    secret: str  # the number, its digits all different
    first_guess: str = ""  # a guess made for the agent before its first turn; empty without one


def alphabet(symbols: int) -> str:
    """The digits that a number may contain."""
    return "0123456789" if symbols == 10 else "123456789"[:symbols]


def feedback(guess: str, secret: str) -> tuple[int, int]:
    """How many digits of a guess are in the right place, and how many more of the secret it has elsewhere.

    The digits in common are counted with multiplicity: sum over digits of min(times in guess, times in secret).

    Args:
        guess: digits, repeated ones allowed.
        secret: as many digits.
    """
    right = sum(map(str.__eq__, guess, secret))
    return right, sum(min(guess.count(digit), secret.count(digit)) for digit in set(guess)) - right


@dataclass(eq=False, repr=False)
class GuessNumbers(QueryEnvironment[GuessNumbersState]):
    """The agent finds a number with distinct digits by guessing. Reward 1 for the right answer, else 0.

    The feedback on a guess is how many of its digits are in the right place and how many are elsewhere in the number.
    Digits of a guess may repeat. A right guess earns nothing: the agent must give it as its answer.

    The paper's dataset is all pairs of a first guess and a secret in nine sub-groups of digits, symbols and feedback
    on the first guess: 1,908, shuffled once, 1,526 to train on and 382 held out.

    Args:
        source: `"t3"` for the paper's set, `"ar_bench"` for a drawn number without a first guess, as in AR-Bench.
        digits: with `"t3"` 3 or 4, for the tasks of that length, or `None` for all; with `"ar_bench"` the length of
            the number, at most `symbols` and 5; 4 if `None`.
        symbols: with `"ar_bench"` the number of different digits, 2 to 10; 10, as in AR-Bench, if `None`.
        turns, wording: as in `QueryEnvironment`.

    Raises:
        ValueError: an option is outside its range.
    """

    name = "guess_numbers"
    state_type = GuessNumbersState
    task_columns = ("digits", "symbols", "secret", "first_guess")
    rules = (
        "Find the secret number, whose digits all differ. A guess such as <interact>123</interact> is told how "
        "many of its digits are in the right place (A) and how many are elsewhere in the number (B). Answer with "
        "<answer>123</answer>."
    )

    source: Literal["t3", "ar_bench"] = "t3"
    digits: int | None = None
    symbols: int | None = None
    turns: Count = 10
    wording: Literal["paper", "brief"] = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source == "ar_bench":
            self.symbols = whole_number("symbols", 10 if self.symbols is None else self.symbols, 2, 10)
            most = min(self.symbols, MAX_DIGITS)
            self.digits = whole_number("digits", 4 if self.digits is None else self.digits, 1, most)
        elif self.digits not in (None, 3, 4) or self.symbols is not None:
            raise ValueError(
                f"digits must be 3 or 4 in the paper's set, and symbols left out, got {self.digits!r} and "
                f"{self.symbols!r}; leave both out for all tasks, or take source='ar_bench'."
            )

    def sample_task(self, seed: int) -> dict[str, Any]:
        if self.digits is not None and self.symbols is not None:
            secret = "".join(stream(seed, self.name, "secret").sample(alphabet(self.symbols), self.digits))
            return {"digits": self.digits, "symbols": self.symbols, "secret": secret, "first_guess": ""}
        split, index = split_of(seed)
        rows = _rows_of(split, self.digits)
        return dict(zip(self.task_columns, rows[index % len(rows)], strict=True))

    def initial_state(self, task: Mapping[str, Any], seed: int) -> GuessNumbersState:
        """The state of a task row, before the agent's first guess.

        Raises:
            ValueError: the secret repeats a digit, a number has digits that the row excludes, or the first guess does
                not belong to a sub-group of the dataset.
        """
        symbols = whole_number("symbols", task["symbols"], 2, 10)
        digits = whole_number("digits", task["digits"], 1, min(symbols, MAX_DIGITS))
        secret, first = task["secret"], task["first_guess"]
        if not _is_number(secret, digits, symbols) or len(set(secret)) < digits:
            raise ValueError(
                f"a secret must be {digits} different digits out of {alphabet(symbols)}, got {secret!r}; correct it."
            )
        if first and not _is_number(first, digits, symbols):
            raise ValueError(
                f"a first guess must be {digits} digits out of {alphabet(symbols)}, got {first!r}; correct it."
            )
        group = (digits, symbols, *feedback(first, secret)) if first else ()
        if first == secret or (self.source == "t3" and group not in SUBGROUPS):
            raise ValueError(
                "digits, symbols and the feedback on the first guess must be one of the paper's sub-groups, "
                f"got {group} for the guess {first!r} of {secret!r}; take a row of sample_task, or source='ar_bench'."
            )
        return GuessNumbersState(
            seed=seed, left=self.turns, digits=digits, symbols=symbols, secret=secret, first_guess=first
        )

    def legal_actions(self, state: GuessNumbersState) -> tuple[str, ...]:
        return _numbers(state.digits, state.symbols) if state.status == "active" else ()

    def _opening(self, state: GuessNumbersState) -> str:
        symbols = alphabet(state.symbols)
        if self.wording == "brief":
            first = f"\n{state.first_guess} {self._shown(state.first_guess, state)}" if state.first_guess else ""
            return f"{state.digits} digits from {symbols[0]} to {symbols[-1]}{first}"
        prompt = _PROMPT.format(digits=state.digits, least=symbols[0], most=symbols[-1])
        if not state.first_guess:
            return f"{prompt}\nGame start. Now it is your turn:"
        return f"{prompt}\n{_FIRST.format(guess=state.first_guess)}\n{self._shown(state.first_guess, state)}"

    def _feedback(self, state: GuessNumbersState) -> str:
        return self._shown(state.queries[-1], state)

    def _shown(self, guess: str, state: GuessNumbersState) -> str:
        shape = "A{} B{}" if self.wording == "brief" else _FEEDBACK
        return shape.format(*feedback(guess, state.secret))

    def _asked(self, state: GuessNumbersState, content: str) -> GuessNumbersState | None:
        return replace(state, queries=(*state.queries, content)) if self._read_answer(state, content) else None

    def _read_answer(self, state: GuessNumbersState, content: str) -> str | None:
        return content if _is_number(content, state.digits, state.symbols) else None

    def gold_answer(self, state: GuessNumbersState) -> tuple[str, str]:
        return "<answer>", state.secret

    def _reward(self, state: GuessNumbersState, answer: str) -> float:
        return float(answer == state.secret)


def _is_number(text: Any, digits: int, symbols: int) -> bool:
    return isinstance(text, str) and len(text) == digits and set(text) <= set(alphabet(symbols))


@functools.cache
def rows() -> tuple[tuple[int, int, str, str], ...]:
    """The paper's set, shuffled: digits, symbols, secret, first guess. The first 1,526 are for training."""
    pairs = [
        (digits, symbols, secret, first)
        for digits, symbols, right, elsewhere in SUBGROUPS
        for first, secret in product(map("".join, permutations(alphabet(symbols), digits)), repeat=2)
        if feedback(first, secret) == (right, elsewhere)
    ]
    assert len(pairs) == PAIRS
    stream(0, GuessNumbers.name, "set").shuffle(pairs)
    return tuple(pairs)


@functools.cache
def _rows_of(split: str, digits: int | None) -> tuple[tuple[int, int, str, str], ...]:
    part = rows()[:TRAIN_PAIRS] if split == "train" else rows()[TRAIN_PAIRS:]
    return tuple(row for row in part if digits in (None, row[0]))


@functools.cache
def _numbers(digits: int, symbols: int) -> tuple[str, ...]:
    numbers = ["".join(number) for number in product(alphabet(symbols), repeat=digits)]
    return tuple(f"{verb} {number}" for verb in (INTERACT, ANSWER) for number in numbers)


# Figure 8. The paper lost its line breaks; these are ours.
_PROMPT = """\
Let's play a number guessing game. The rules are as follows:
I have a secret {digits}-digit number in mind, composed of digits from {least} to {most}, with no repeated digits. \
You will take turns guessing the number, using feedback after each guess to progressively narrow down the \
possibilities.
For each turn, you will:
- Review all previous guesses and feedback.
- Think through your reasoning process inside <think> and </think>. The reasoning should show how your belief about \
the secret number evolves based on the accumulated evidence.
- Make a strategic guess inside <interact> and </interact>, based on your current belief.
- Receive feedback of your latest guess describing: how many digits are present in the answer and in the correct \
positions, and how many digits are present in the answer but in the different positions.
- Repeat the process until you are confident in the answer.
If you believe you have confidently found the correct number, present your answer inside <answer> and </answer>."""
_FEEDBACK = """\
The feedback of your latest guess: {} digits are present in the answer and in the correct positions, {} digits are \
present in the answer but in the different positions.
Now it is your turn:"""
_FIRST = """\
Game start. Now it is your turn:
<think>No prior knowledge. Start with a random guess that covers diverse digits to gather information.</think>
<interact>{guess}</interact>"""
