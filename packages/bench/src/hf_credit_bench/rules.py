"""A problem of many tasks that follow one rule, for a policy that shares its parameters."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hf_credit.environments.randomness import stream
from hf_credit_bench.problem import Problem, Way, logit
from hf_credit_bench.problems import AGENT, Steps


@dataclass(frozen=True)
class Rules(Problem):
    """Many tasks, and one rule for all of them: most decisions must be right, and which are depends on what is shown.

    A task is a word. The right decision at a letter is a function of it and the letter before, the same in all words
    and places. The policy is a network that reads both letters and the place. Learning is judged by words that nothing
    is played from.

    Args:
        length: the number of decisions, one at each letter.
        start_right: the probability of a right decision that the initial network is fitted to.
        needed: the share of decisions that must be right.
        tasks: how many words are played from, and how many are held out.
        letters: of the alphabet.
        hidden: the network's hidden units.
    """

    length: Steps = 8
    start_right: float = 0.75
    needed: float = 0.9
    tasks: Steps = 16
    letters: Steps = 4
    hidden: Steps = 16

    isolates = "many tasks follow one rule, and new ones are to be solved"

    @cached_property
    def _drawn(self) -> tuple[Sequence[Sequence[int]], Mapping[tuple[int, int], int]]:
        draws = stream(0, "rules", self.letters)
        pairs = itertools.product(range(self.letters + 1), range(self.letters))  # the first letter has none before it
        rule = {pair: draws.randrange(2) for pair in pairs}
        return [[draws.randrange(self.letters) for _ in range(self.length)] for _ in range(2 * self.tasks)], rule

    def starts(self) -> Sequence[Way]:
        return [Way(1 / self.tasks, (word, 0, 0)) for word in range(self.tasks)]

    def held_out(self) -> Sequence[Way]:
        return [Way(1 / self.tasks, (word, 0, 0)) for word in range(self.tasks, 2 * self.tasks)]

    def speakers(self, node: Any) -> Sequence[str]:
        return AGENT if node[1] < self.length else ()

    def view(self, node: Any, speaker: str) -> tuple[int, int, int]:
        word, place, _ = node
        letters = self._drawn[0][word]
        return letters[place - 1] if place else self.letters, letters[place], place

    def features(self, view: Any) -> Sequence[float]:
        before, letter, place = view
        seen = [float(before == one) for one in range(self.letters + 1)]
        return [*seen, *(float(letter == one) for one in range(self.letters)), place / self.length]

    def logits(self, view: Any) -> Sequence[float]:
        tilt = logit(self.start_right) / 2
        return [-tilt, tilt] if self._drawn[1][view[:2]] else [tilt, -tilt]

    def ways(self, node: Any, actions: Sequence[int]) -> Sequence[Way]:
        word, place, errors = node
        allowed = math.floor((1 - self.needed) * self.length + 1e-9)
        errors = min(errors + (actions[0] != self._right(node)), allowed + 1)
        return [Way(1.0, (word, place + 1, errors), float(place + 1 == self.length and errors <= allowed))]

    def _right(self, node: Any) -> int:
        before, letter, _ = self.view(node, "agent")
        return self._drawn[1][before, letter]

    def right(self, node: Any, action: int) -> float:
        return float(action == self._right(node))
