"""CircuitDecoding: identify each hidden circuit among candidate formulas (paper T3, Appendix C.1, Figure 6)."""

from __future__ import annotations

import ast
import functools
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Annotated, Any, Literal

from hf_credit.boundary import Range
from hf_credit.environments.queries import ANSWER, INTERACT, QueryEnvironment, QueryState
from hf_credit.environments.randomness import stream
from hf_credit.environments.tasks import split_of
from hf_credit.options import Count
from hf_credit.validators import whole_number

MAX_INPUTS, MAX_LENGTH = 4, 1000

_TOKENS = re.compile(r"(?:\s|\b(?:and|or|not|x[0-9])\b|[()])*")


def truth_table(formula: Any, inputs: int) -> int:
    """The outputs of a formula as 2^inputs bits, the first row's the highest. x0 is a row number's highest bit.

    `not` binds closer than `and`, and `and` closer than `or`, as in Python.

    Args:
        inputs: the number of variables, 1 to 4.

    Raises:
        ValueError: the text is not a formula.
    """
    rows = 1 << inputs
    all_ones = (1 << rows) - 1
    variables = {
        f"x{place}": sum((row >> inputs - 1 - place & 1) << rows - 1 - row for row in range(rows))
        for place in range(inputs)
    }

    def table(node: ast.expr) -> int:
        match node:
            case ast.Name(name) if name in variables:
                return variables[name]
            case ast.UnaryOp(ast.Not(), operand):
                return all_ones ^ table(operand)
            case ast.BoolOp(operator, operands):
                combine = int.__and__ if isinstance(operator, ast.And) else int.__or__
                return functools.reduce(combine, map(table, operands))
        raise ValueError

    try:
        if not isinstance(formula, str) or len(formula) > MAX_LENGTH or not _TOKENS.fullmatch(formula):
            raise ValueError
        return table(ast.parse(" ".join(formula.split()), mode="eval").body)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise ValueError(
            "a formula must be of x0, x1, ... with and, or, not and brackets, in at most "
            f"{MAX_LENGTH} characters, got {repr(formula)[:100]}; correct it."
        ) from None


def draw_formulas(count: int, inputs: int, rng: random.Random) -> list[str]:
    """Samples formulas with different truth tables, none of them constant.

    Args:
        count: the number of formulas, at most 2^(2^inputs) - 2.
        inputs: the number of variables, 1 to 4.
    """
    drawn: dict[int, str] = {}
    while len(drawn) < count:
        formula = _drawn(inputs, rng.randint(1, 3) if inputs > 1 else 0, rng)
        drawn.setdefault(truth_table(formula, inputs), formula)
    return [formula[1:-1] if formula[0] == "(" else formula for formula in drawn.values()]


def _drawn(inputs: int, depth: int, rng: random.Random) -> str:
    """A formula that is not constant and has no redundant operand."""
    negated = "not " if rng.random() < 0.3 else ""
    if depth == 0 or rng.random() < 0.1:
        return f"{negated}x{rng.randrange(inputs)}"
    idle = {0, (1 << (1 << inputs)) - 1}
    while True:
        sides = [_drawn(inputs, depth - 1, rng) for _ in range(2)]
        inner = f"({sides[0]} {rng.choice(('and', 'or'))} {sides[1]})"
        if truth_table(inner, inputs) not in idle | {truth_table(side, inputs) for side in sides}:
            return f"{negated}{inner}"


TASKS = {"train": 1000, "held_out": 300}
"""Table 5: the number of rows."""

MAX_ANSWERS = 100_000
"""The most possible answers, candidates ** circuits: all are legal actions."""

LABELS = "ABCDEFGHIJ"
_QUERY = re.compile(r"([A-J])(?:\(\s*([01](?:\s*,\s*[01])*)\s*\)|([01]+))")
_ANSWER = re.compile(r"[1-9][0-9]{0,5}(?:\s*,\s*[1-9][0-9]{0,5})*")


@dataclass(frozen=True, kw_only=True)
class CircuitDecodingState(QueryState):
    """Queries are stored as the circuit's label and its inputs, `A101`, and answers as `13, 6`."""

    inputs: Annotated[int, Range(1, MAX_INPUTS)]  # the number of inputs of each circuit
    candidates: tuple[str, ...]  # the formulas, numbered from 1
    hidden: tuple[int, ...]  # for each circuit, the number of its candidate
    distinct: bool = False  # whether the agent knows that the hidden circuits all differ
    brief: bool = False  # whether queries are shown as `A101` instead of `A(1, 0, 1)`; both are read

    def __post_init__(self) -> None:
        if not 1 <= len(self.hidden) <= len(LABELS) or len(self.candidates) ** len(self.hidden) > MAX_ANSWERS:
            raise ValueError(
                f"there must be 1 to {len(LABELS)} hidden circuits and at most {MAX_ANSWERS} answers, got "
                f"{len(self.hidden)} circuits of {len(self.candidates)} candidates; use fewer."
            )
        for number in self.hidden:
            whole_number("a hidden circuit", number, 1, len(self.candidates))


@dataclass(eq=False, repr=False)
class CircuitDecoding(QueryEnvironment[CircuitDecodingState]):
    """The agent identifies hidden circuits by their outputs. Reward 1 if all are right, else 0.

    A query names one circuit and its inputs, `A(1, 0, 1)` or in brief wording `A101`, and returns the output. The
    answer gives the candidate of each circuit, `13, 6`. A circuit is right if the truth tables are equal.

    The paper's set has 1,000 tasks to train on and 300 held out; here tasks are drawn.

    Args:
        circuits: the number of hidden circuits, 1 to 10.
        candidates: the number of formulas, at least 2; none is constant, no two have the same truth table.
        inputs: the number of inputs of each circuit, 1 to 4.
        distinct: whether hidden circuits all differ, and the agent knows; otherwise they are drawn independently.
        fixed: whether all tasks have the same candidates, which brief wording then omits.
        reward: `"exact"` for all circuits right, or `"share"` for the share of them, as in the authors' code.
        turns, wording: as in `QueryEnvironment`.

    Raises:
        ValueError: an option is outside its range, or there are too few different formulas.
    """

    name = "circuit_decoding"
    state_type = CircuitDecodingState
    task_columns = ("inputs", "candidates", "hidden")
    rules = (
        "Find which candidate each hidden circuit is. <interact>A101</interact> asks for the output of circuit A "
        "on the inputs x0=1, x1=0, x2=1. <answer>13, 6</answer> says that A is candidate 13 and B is candidate 6."
    )

    circuits: Annotated[int, Range(1, len(LABELS))] = 2
    candidates: int = 10
    inputs: Annotated[int, Range(1, MAX_INPUTS)] = 3
    distinct: bool = False
    fixed: bool = False
    reward: Literal["exact", "share"] = "exact"
    turns: Count = 10
    wording: Literal["paper", "brief"] = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        least = self.circuits if self.distinct else 2
        different = min(2 ** (2**self.inputs) - 2, 200)  # those that are drawn have 236 tables of 3 inputs
        if not max(2, least) <= self.candidates <= different:
            raise ValueError(
                f"candidates must be from 2 to {different}, so that formulas of {self.inputs} inputs differ, and as "
                f"many as distinct circuits, got {self.candidates!r}; change it, or take more inputs."
            )
        if self.candidates**self.circuits > MAX_ANSWERS:
            raise ValueError(
                f"candidates ** circuits must be at most {MAX_ANSWERS}, got {self.candidates} ** {self.circuits}; "
                "lower one."
            )

    def sample_task(self, seed: int) -> dict[str, Any]:
        split, index = split_of(seed)
        rng = stream(index % TASKS[split], self.name, split, self.inputs, self.candidates, self.circuits)
        formulas = stream(0, self.name, "fixed", self.inputs, self.candidates) if self.fixed else rng
        drawn = draw_formulas(self.candidates, self.inputs, formulas)
        numbers = range(1, self.candidates + 1)
        hidden = rng.sample(numbers, self.circuits) if self.distinct else rng.choices(numbers, k=self.circuits)
        return {"inputs": self.inputs, "candidates": drawn, "hidden": hidden}

    def initial_state(self, task: Mapping[str, Any], seed: int) -> CircuitDecodingState:
        """The state of a task row, before any query.

        Raises:
            ValueError: a formula cannot be read or is constant, two agree, or a hidden circuit is not a candidate.
        """
        inputs = whole_number("inputs", task["inputs"], 1, MAX_INPUTS)
        candidates, hidden = tuple(task["candidates"]), tuple(task["hidden"])
        different = {truth_table(formula, inputs) for formula in candidates} - {0, 2 ** (2**inputs) - 1}
        if len(different) < len(candidates):
            raise ValueError(
                "the candidates must have different truth tables, none of them constant, got "
                f"{len(different)} such tables of {len(candidates)} formulas; correct them."
            )
        if self.distinct and len(set(hidden)) < len(hidden):
            raise ValueError(f"hidden circuits must differ with distinct=True, got {hidden}; correct them.")
        parts: dict[str, Any] = {"inputs": inputs, "candidates": candidates, "hidden": hidden}
        brief = self.wording == "brief"
        return CircuitDecodingState(seed=seed, left=self.turns, distinct=self.distinct, brief=brief, **parts)

    def legal_actions(self, state: CircuitDecodingState) -> tuple[str, ...]:
        if state.status != "active":
            return ()
        return _actions(len(state.hidden), len(state.candidates), state.inputs, state.brief)

    def _opening(self, state: CircuitDecodingState) -> str:
        listed = "\n".join(f"{number}: {formula}" for number, formula in enumerate(state.candidates, start=1))
        labels = ", ".join(LABELS[: len(state.hidden)])
        if self.wording == "brief":
            head = f"circuits {labels} inputs {state.inputs} candidates {len(state.candidates)}"
            return head if self.fixed else f"{head}\n{listed}"
        counts = {"circuits": len(state.hidden), "inputs": state.inputs, "candidates": len(state.candidates)}
        return _PROMPT.format(labels=labels, listed=listed, **counts)

    def _feedback(self, state: CircuitDecodingState) -> str:
        query = state.queries[-1]
        bit = str(output(state, query))
        return f"{query} {bit}" if self.wording == "brief" else bit

    def _asked(self, state: CircuitDecodingState, content: str) -> CircuitDecodingState | None:
        query = read_query(state, content)
        return None if query is None else replace(state, queries=(*state.queries, query))

    def _read_answer(self, state: CircuitDecodingState, content: str) -> str | None:
        if not _ANSWER.fullmatch(content):
            return None
        numbers = [int(number) for number in content.split(",")]
        if len(numbers) != len(state.hidden) or max(numbers) > len(state.candidates):
            return None
        return ", ".join(map(str, numbers))

    def gold_answer(self, state: CircuitDecodingState) -> tuple[str, str]:
        return "<answer>", ", ".join(map(str, state.hidden))

    def _reward(self, state: CircuitDecodingState, answer: str) -> float:
        right = sum(map(int.__eq__, map(int, answer.split(",")), state.hidden))  # tables of candidates all differ
        return right / len(state.hidden) if self.reward == "share" else float(right == len(state.hidden))


def read_query(state: CircuitDecodingState, content: str) -> str | None:
    """The query in its stored form, `A101`; `None` if it cannot be read."""
    match = _QUERY.fullmatch(content)
    if match is None:
        return None
    label, bits = match[1], re.sub(r"[\s,]", "", match[2] or match[3])
    return f"{label}{bits}" if LABELS.index(label) < len(state.hidden) and len(bits) == state.inputs else None


def written(query: str, brief: bool) -> str:
    """A stored query as the agent writes it: `A101` or `A(1, 0, 1)`."""
    return query if brief else f"{query[0]}({', '.join(query[1:])})"


def output(state: CircuitDecodingState, query: str) -> int:
    """The output for a stored query."""
    hidden = state.hidden[LABELS.index(query[0])]
    return bit(tables(state.candidates, state.inputs)[hidden - 1], query[1:])


def bit(table: int, inputs: str) -> int:
    """The output in a truth table for inputs such as `101`."""
    return table >> (1 << len(inputs)) - 1 - int(inputs, 2) & 1


@functools.lru_cache(maxsize=2**12)
def tables(candidates: tuple[str, ...], inputs: int) -> tuple[int, ...]:
    """The truth table of each candidate."""
    return tuple(truth_table(formula, inputs) for formula in candidates)


@functools.lru_cache(maxsize=16)
def _actions(circuits: int, candidates: int, inputs: int, brief: bool) -> tuple[str, ...]:
    rows = list(map("".join, product("01", repeat=inputs)))
    queries = (f"{INTERACT} {written(label + row, brief)}" for label in LABELS[:circuits] for row in rows)
    answers = product(map(str, range(1, candidates + 1)), repeat=circuits)
    return (*queries, *(f"{ANSWER} {', '.join(numbers)}" for numbers in answers))


# Figure 6. The paper lost its line breaks; these are ours.
_PROMPT = """\
Welcome to the Circuit Deduction Challenge!
## The Setup:
- There are {circuits} circuits, labeled {labels}.
- Each circuit accepts {inputs} binary inputs (0 or 1) and produces a single binary output (0 or 1).
- Each circuit is drawn from a fixed candidate list of {candidates} possible logical structures, each associated with \
an index:
{listed}
## Your Goal:
Identify which circuits from the candidate list correspond exactly to circuits {labels}.
## How to Play:
You can interact with me for several turns to determine the true underlying circuits:
1. At each turn, query one circuit with any binary input of your choice.
2. Use the specified format for your query. For example, to query circuit A with inputs x0=1, x1=0, x2=1, ask: \
<interact>A(1, 0, 1)</interact>.
3. You must make only one query at each turn. I will return the binary output for that circuit on the given input.
4. Ask strategic queries that maximize information gain. Your goal is to minimize the number of turns by leveraging \
the feedback at each step to narrow down the candidate possibilities.
## Final Submission:
Once you are confident, submit your final answer by providing the indices of the identified circuits from the \
candidate list inside <answer> and </answer>. For example, if A corresponds to candidate 13 and B corresponds to 6, \
your answer must be: <answer>13, 6</answer>.
Please start with your first query."""
