"""PreferenceEstimation: estimate how a user weighs attributes of movies (paper T3, Appendix C.1, Figure 10)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import permutations
from typing import Annotated, Any, ClassVar, Literal

from hf_credit.boundary import Range
from hf_credit.environments.queries import ANSWER, INTERACT, QueryEnvironment, QueryState
from hf_credit.environments.randomness import stream
from hf_credit.environments.tasks import split_of
from hf_credit.options import Count
from hf_credit.validators import whole_number

TASKS = {"train": 700, "held_out": 300}
"""Table 5: the number of rows."""

THRESHOLD = Fraction(88, 100)
"""The cosine that a right answer exceeds, from the authors' code: (cosine + 1) / 2 > 0.94."""

SCALE = 10**6
"""Guesses and answers are stored in millionths."""

MAX_LEVELS, MAX_ATTRIBUTES, MAX_MOVIES = 100, 16, 100

RULES = (
    "Find how much a user cares for each attribute of movies: weights from 0 to 1. A movie is worth the sum of its "
    "scores times the weights. <interact>Guess: 0.5,1,0 Question: Would you prefer Movie1 over Movie2?</interact> "
    "guesses the weights and asks, and is told Yes, No or Equal."
)
"""The rules in brief, without the format of the answer."""

_DECIMAL = re.compile(r"(?:0|1)(?:\.[0-9]{1,6})?|\.[0-9]{1,6}")
_GUESS = re.compile(r"Guess: ?(.*?) ?Question: ?((?s:.*))")  # the first one decides, so time is linear

Vector = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class PreferenceState(QueryState):
    """Each query is a guess of the weights and a question about two movies."""

    levels: Annotated[int, Range(2, MAX_LEVELS)]  # weights and scores are in units of 1/levels, from 0 to levels
    weights: Vector  # the weight of each attribute, hidden
    names: tuple[str, ...]  # the names of the reference movies
    scores: tuple[Vector, ...]  # for each reference movie, its score on each attribute
    asked: tuple[tuple[int, int], ...] = ()  # for each query, the positions of its two movies
    guesses: tuple[Vector, ...] = ()  # for each query, its guess in millionths
    unseen_names: tuple[str, ...] = ()  # the names of the movies to recommend from (MovieRecommendation only)
    unseen_scores: tuple[Vector, ...] = ()  # their scores


@dataclass(eq=False, repr=False)
class PreferenceEstimation(QueryEnvironment[PreferenceState]):
    """The agent estimates a user's weights by asking which of two movies the user prefers.

    The utility of a movie is sum_i w_i s_i over its attributes, with weights w and scores s. Each query contains a
    guess of the weights and a question, and is answered Yes, No or Equal, exactly. The answer gives the weights.
    Reward 1 if its cosine with the hidden weights exceeds 0.88, else 0.

    The paper's set has 700 tasks to train on and 300 held out; here tasks are drawn.

    Args:
        attributes: the number of attributes of a movie, at least 2; 8 in the authors' code.
        movies: the number of reference movies, at least 2.
        levels: weights and scores are multiples of 1/levels in [0, 1]; a divisor of 100 from 2 on, 10 for tenths.
        sampling: how reference movies are chosen from ten times as many drawn ones, by their utility: `"uniform"`
            takes evenly, `"min_max"` from both ends, `"max"` from the top. The paper gives only these names.
        turns, wording: as in `QueryEnvironment`.

    Raises:
        ValueError: an option is outside its range.
    """

    name = "preference_estimation"
    state_type = PreferenceState
    task_columns: ClassVar[tuple[str, ...]] = ("levels", "weights", "names", "scores")
    open_actions = True
    rules = f"{RULES} <answer>0.5,1,0</answer> says what the weights are."

    attributes: Annotated[int, Range(2, MAX_ATTRIBUTES)] = 8
    movies: Annotated[int, Range(2, MAX_MOVIES)] = 10
    levels: Annotated[int, Range(2, MAX_LEVELS)] = 10
    sampling: Literal["uniform", "min_max", "max"] = "uniform"
    turns: Count = 10
    wording: Literal["paper", "brief"] = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if 100 % self.levels:
            raise ValueError(
                f"levels must divide 100, so that weights are short decimals, got {self.levels}; take 4 or 10."
            )

    def sample_task(self, seed: int) -> dict[str, Any]:
        """Draws a task from the split of the seed: weights that are not all 0, and reference movies."""
        split, index = split_of(seed)
        rng = stream(index % TASKS[split], self.name, split, self.attributes, self.movies, self.levels, self.sampling)

        def vector() -> list[int]:
            return [rng.randint(0, self.levels) for _ in range(self.attributes)]

        weights = vector()
        while not any(weights):
            weights = vector()
        drawn = sorted((vector() for _ in range(10 * self.movies)), key=lambda scores: utility(weights, scores))
        match self.sampling:
            case "uniform":
                taken = drawn[5::10]
            case "min_max":
                taken = [*drawn[: self.movies // 2], *drawn[self.movies // 2 - self.movies :]]
            case _:
                taken = drawn[-self.movies :]
        rng.shuffle(taken)
        names = [f"Movie{number}" for number in range(1, self.movies + 1)]
        return {"levels": self.levels, "weights": weights, "names": names, "scores": taken}

    def initial_state(self, task: Mapping[str, Any], seed: int) -> PreferenceState:
        """The state of a task row, before any query.

        Raises:
            ValueError: all weights are 0, a number is missing or out of range, or two movies share a name.
        """
        levels = whole_number("levels", task["levels"], 2, MAX_LEVELS)
        weights = _vector("weights", task["weights"], levels)
        if not any(weights):
            raise ValueError(f"weights must not all be 0, got {list(weights)}; raise one.")
        names, scores = read_movies(task["names"], task["scores"], levels, len(weights))
        return PreferenceState(seed=seed, left=self.turns, levels=levels, weights=weights, names=names, scores=scores)

    def legal_actions(self, state: PreferenceState) -> tuple[str, ...]:
        """Some of the actions: every question, with alternating guesses, and these guesses as answers."""
        if state.status != "active":
            return ()
        guesses = _examples(len(state.weights), state.levels)
        pairs = permutations(state.names, 2)
        queries = (query(guesses[place % len(guesses)], *pair) for place, pair in enumerate(pairs))
        return (*(f"{INTERACT} {text}" for text in queries), *self._example_answers(state))

    def _example_answers(self, state: PreferenceState) -> tuple[str, ...]:
        return tuple(f"{ANSWER} {guess}" for guess in _examples(len(state.weights), state.levels))

    def _opening(self, state: PreferenceState) -> str:
        listed = "\n".join(listing(state.names, state.scores, state.levels, brief=self.wording == "brief"))
        if self.wording == "brief":
            return listed
        return _PROMPT.format(
            count=len(state.weights),
            movies=len(state.names),
            listed=listed,
            terms=f"w1*attr1 + … + w{len(state.weights)}*attr{len(state.weights)}",
            asked=",".join(f"w{place}" for place in range(1, len(state.weights) + 1)),
        )

    def _feedback(self, state: PreferenceState) -> str:
        first, second = state.asked[-1]
        reply = ("Equal", "Yes", "No")[preference(state.weights, state.scores[first], state.scores[second])]
        return f"{state.names[first]} {state.names[second]} {reply}" if self.wording == "brief" else reply

    def _asked(self, state: PreferenceState, content: str) -> PreferenceState | None:
        read = read_query(state, content)
        if read is None:
            return None
        queries, asked, guesses = (*state.queries, content), (*state.asked, read[1]), (*state.guesses, read[0])
        return replace(state, queries=queries, asked=asked, guesses=guesses)

    def _read_answer(self, state: PreferenceState, content: str) -> str | None:
        return None if read_decimals(content, len(state.weights)) is None else content

    def _reward(self, state: PreferenceState, answer: str) -> float:
        guess = read_decimals(answer, len(state.weights))
        squared = None if guess is None else squared_cosine(guess, state.weights)
        return float(squared is not None and squared > THRESHOLD**2)


def squared_cosine(first: Sequence[int], second: Sequence[int]) -> Fraction | None:
    """The square of the cosine of two non-negative vectors, monotone in the cosine; `None` for a zero vector."""
    norms = sum(a * a for a in first) * sum(b * b for b in second)
    return Fraction(sum(map(int.__mul__, first, second)) ** 2, norms) if norms else None


def utility(weights: Sequence[int], scores: Sequence[int]) -> int:
    """The utility of a movie for a user: sum_i w_i s_i, in units of 1/levels^2."""
    return sum(map(int.__mul__, weights, scores))


def preference(weights: Sequence[int], first: Sequence[int], second: Sequence[int]) -> int:
    """1 if the first movie has the higher utility, -1 if the second has, 0 if both are equal."""
    difference = utility(weights, first) - utility(weights, second)
    return (difference > 0) - (difference < 0)


def query(guess: str, first: str, second: str) -> str:
    """The content of a query."""
    return f"Guess: {guess} Question: Would you prefer {first} over {second}?"


def read_query(state: PreferenceState, content: str) -> tuple[Vector, tuple[int, int]] | None:
    """The guess of a query, in millionths, and the positions of its two movies; `None` of other text."""
    match = _GUESS.fullmatch(content)
    guess = read_decimals(match[1], len(state.weights)) if match else None
    pair = _pair(match[2], state.names) if match else None
    return None if guess is None or pair is None else (guess, pair)


def decimals(vector: Sequence[int], levels: int) -> str:
    """A vector in units of 1/levels as text: `0.5,1,0`."""
    return ",".join(f"{value / levels:g}" for value in vector)


def read_decimals(text: str, count: int) -> Vector | None:
    """The numbers in [0, 1] of a text such as `0.5,1,0`, in millionths; `None` if not exactly `count`."""
    words = [word.strip(" ") for word in text.split(",", count)]
    if len(words) != count or not all(_DECIMAL.fullmatch(word) for word in words):
        return None
    values = tuple(int(Fraction(word) * SCALE) for word in words)
    return values if max(values) <= SCALE else None


def listing(names: Sequence[str], scores: Sequence[Vector], levels: int, brief: bool) -> list[str]:
    """One line per movie, with its scores."""
    line = "{} {}" if brief else "{}: [{}]"
    return [line.format(name, decimals(vector, levels)) for name, vector in zip(names, scores, strict=True)]


def _vector(name: str, values: Any, levels: int, count: int | None = None) -> Vector:
    vector = tuple(whole_number(f"each of the {name}", value, 0, levels) for value in values)
    if not 2 <= len(vector) <= MAX_ATTRIBUTES or count not in (None, len(vector)):
        raise ValueError(f"{name} must be {count or 'at least 2'} numbers, got {len(vector)}; correct them.")
    return vector


def read_movies(names: Any, scores: Any, levels: int, count: int) -> tuple[tuple[str, ...], tuple[Vector, ...]]:
    """The names and the scores of movies.

    Raises:
        ValueError: two movies share a name, a name is not plain text, or scores are missing or out of range.
    """
    names = tuple(names)
    vectors = tuple(_vector("scores", values, levels, count) for values in scores)
    if not 2 <= len(names) == len(vectors) <= MAX_MOVIES:
        raise ValueError(
            f"there must be scores for 2 to {MAX_MOVIES} movies, got {len(vectors)} for {len(names)} names; add them."
        )
    for name in names:
        if not isinstance(name, str) or " ".join(name.split()) != name or not name or set(name) & set("<>"):
            raise ValueError(f"a movie's name must be text on one line without '<' and '>', got {name!r}; correct it.")
    if len(set(names)) < len(names):
        raise ValueError(f"movies must have different names, got {list(names)}; rename one.")
    return names, vectors


def _pair(question: str, names: Sequence[str]) -> tuple[int, int] | None:
    """The positions of the two movies in a question; names may contain the word `over`."""
    for place, name in enumerate(names):
        rest = question.removeprefix(f"Would you prefer {name} over ")
        if rest != question and rest.endswith("?") and rest[:-1] in names:
            return place, list(names).index(rest[:-1])
    return None


def _examples(count: int, levels: int) -> list[str]:
    """Vectors that contain each level in each position."""
    return [
        decimals([(first + place) % (levels + 1) for place in range(count)], levels) for first in range(levels + 1)
    ]


# Figure 10. The paper lost its line breaks; these are ours.
_PROMPT = """\
You are a movie recommendation agent. Your goal is to infer the hidden user preference vector (w1,…,w{count}) through \
interaction.
## Setup:
- You are given {movies} movies with scores on {count} attributes (indexed 1…{count}):
{listed}
- User satisfaction = {terms}, where each wi in [0,1]. The user always answers consistently.
## Interaction Rules (per round):
1. Reflect on all past feedback and reason about how it changes your estimate of the preference vector.
- Think about which attributes gained or lost importance.
- Adjust your estimate strategically.
2. Output both your updated guess and a new pairwise query in the exact format:
<interact>
Guess: w1,w2,…
Question: Would you prefer option_1 over option_2?
</interact>
- Guess must be comma-separated numbers in [0,1].
- option_1 and option_2 must be movie names only.
The user replies with one of: "Yes" (prefer option_1), "No" (prefer option_2), or "Equal".
## Final Stage:
Once you are confident about the user preference after several turns, output your final preference vector as:
<answer>{asked}</answer>
Please Start with your first <interact> block."""
