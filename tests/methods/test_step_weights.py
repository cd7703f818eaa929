"""What steps of trees weigh: the expected gradient of methods with trees, by enumeration, and the true one.

python tests/methods/test_step_weights.py       the table of docs/methods.md
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from hf_credit import methods
from hf_credit.methods.base import Credit, weighted
from hf_credit.methods.trees import step_weights
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import Chat, Ending, Engine, Generation, Interaction, LocalContext, Request

CHAT = Chat(tokenizer_of(["a b ?"]))
LETTERS = "ab"
Draw = Callable[[Sequence[float]], int]


@dataclass(frozen=True)
class Word:
    text: str = ""


class TwoLetters(Interaction[Word]):
    """Two letters, one in each turn; each word has its outcome."""

    def __init__(self, outcomes: dict[str, float]) -> None:
        self.outcomes = outcomes

    def start(self, task: Any, seed: int) -> Word:
        return Word()

    def pending(self, state: Word) -> tuple[Request, ...]:
        messages = [{"role": "user", "content": f"{state.text} ?"}]
        return (Request(role="agent", messages=messages),) if len(state.text) < 2 else ()

    def advance(self, state: Word, replies: Sequence[str]) -> Word:
        return Word(state.text + replies[0])

    def outcome(self, state: Word) -> float:
        return self.outcomes[state.text]


class Drawing(LocalContext):
    """A context in which `draw` determines all random numbers."""

    def __init__(self, game: TwoLetters, policy: dict[str, float], draw: Draw) -> None:
        def sample(contexts: Sequence[Sequence[int]]) -> list[Generation]:
            return [reply(*re.findall(r"([ab]*) ?\?", CHAT.tokenizer.decode(context))) for context in contexts]

        def reply(text: str) -> Generation:
            chances = (policy[text], 1 - policy[text])
            taken = draw(chances)
            ids = CHAT.tokenizer(f"{LETTERS[taken]}<|end|>", add_special_tokens=False)["input_ids"]
            return Generation(ids=ids, logprobs=[math.log(chances[taken]), *[0.0] * (len(ids) - 1)])

        super().__init__(Engine(game, CHAT, sample))
        self.draw = draw

    def draws(self, *purpose: int | str) -> Any:
        def sample(nodes: Sequence[Any], count: int) -> list[Any]:
            left = list(nodes)
            return [left.pop(self.draw([1 / len(left)] * len(left))) for _ in range(count)]

        return SimpleNamespace(sample=sample)


def expectation(of: Callable[[Draw], dict[str, float]]) -> dict[str, float]:
    """The expectation over all draws, by enumeration."""
    total: dict[str, float] = {}
    ahead: list[int] = []
    while True:
        taken: list[tuple[int, Sequence[float]]] = []

        def draw(chances: Sequence[float], taken: Any = taken, ahead: Any = tuple(ahead)) -> int:
            taken.append((ahead[len(taken)] if len(taken) < len(ahead) else 0, chances))
            return taken[-1][0]

        found = of(draw)
        chance = math.prod(chances[index] for index, chances in taken)
        for name, value in found.items():
            total[name] = total.get(name, 0.0) + chance * value
        while taken and taken[-1][0] + 1 == len(taken[-1][1]):
            taken.pop()
        if not taken:
            return total
        ahead = [index for index, _ in taken]
        ahead[-1] += 1


def world(seed: int) -> tuple[TwoLetters, dict[str, float]]:
    """Outcomes of the four words, and the probability of `a` after each prefix."""
    draws = random.Random(seed)
    outcomes = {first + second: draws.random() for first in LETTERS for second in LETTERS}
    return TwoLetters(outcomes), {text: draws.uniform(0.2, 0.8) for text in ("", "a", "b")}


def true_gradient(game: TwoLetters, policy: dict[str, float]) -> dict[str, float]:
    """The gradient of the expected outcome in the logit of `a` after each prefix."""

    def value(text: str) -> float:
        if len(text) == 2:
            return game.outcomes[text]
        return policy[text] * value(text + "a") + (1 - policy[text]) * value(text + "b")

    reached = {"": 1.0, "a": policy[""], "b": 1 - policy[""]}
    return {
        text: reached[text] * chance * (1 - chance) * (value(text + "a") - value(text + "b"))
        for text, chance in policy.items()
    }


def expected_gradient(name: str, equal_steps: bool, game: TwoLetters, policy: dict[str, float], **options: Any) -> Any:
    """The same gradient from the credit of a method, summed over all decisions."""
    method = methods.make(name, equal_steps=equal_steps, **options)

    def summed(draw: Draw) -> dict[str, float]:
        context = Drawing(game, policy, draw)
        collected = method.collector([{}], context)
        own = weighted(method.estimator(collected, context, None))
        total = dict.fromkeys(policy, 0.0)
        for decision in {one.id: one for episode in collected.episodes for one in episode.decisions}.values():
            credit = own.get(decision.id)
            if credit is not None:
                text = decision.state.text
                total[text] += credit * (float(decision.action_text == "a") - policy[text])
        return total

    return expectation(summed)


def degrees(one: dict[str, float], other: dict[str, float]) -> float:
    """The angle between two gradients."""
    dot = sum(one[name] * other[name] for name in one)
    return math.degrees(math.acos(min(1.0, dot / math.hypot(*one.values()) / math.hypot(*other.values()))))


TREES: dict[str, dict[str, Any]] = {
    "replay_loo": {"budget": 4, "alternatives": (2, 2)},
    "tree_grpo": {"trees": 2, "expansions": 1},
    "carl": {"initial": 2, "forks": 2},
    "at2po": {"initial": 2, "forks": 2, "forks_per_round": 1},
}


@pytest.mark.parametrize("seed", range(3))
def test_with_equal_steps_the_expected_gradient_of_a_tree_is_proportional_to_the_true_one(seed: int) -> None:
    game, policy = world(seed)
    true = true_gradient(game, policy)
    found = expected_gradient("replay_loo", True, game, policy, **TREES["replay_loo"])
    assert found == {text: pytest.approx(4 * value, abs=1e-9) for text, value in true.items()}
    without = expected_gradient("replay_loo", False, game, policy, **TREES["replay_loo"])
    assert without == {text: pytest.approx((4 if text else 2) * value, abs=1e-9) for text, value in true.items()}


def test_the_weight_of_a_decision_is_its_share_of_leaves(hand: Any) -> None:
    first, second, *leaves = (hand.decision() for _ in range(6))
    episodes = [hand.episode(above, leaf) for above, leaf in zip((first, first, first, second), leaves, strict=True)]
    collected = hand.collected(*episodes, instances=(0, 0, 0, 0))
    found = step_weights(collected)
    assert [found[one.id] for one in (first, second, *leaves)] == pytest.approx([2, 2, 2 / 3, 2 / 3, 2 / 3, 2])
    alone = hand.collected(*(hand.episode(hand.decision()) for _ in range(3)), instances=(0, 0, 1))
    assert set(step_weights(alone).values()) == {1.0}


def test_an_alternative_that_ended_early_or_failed_does_not_change_weights_of_others(hand: Any) -> None:
    ended, first, *leaves = (hand.decision() for _ in range(4))
    episodes = [replace(hand.episode(ended), num_leaves=2), *(hand.episode(first, leaf) for leaf in leaves)]
    found = step_weights(hand.collected(*episodes))
    assert [found[one.id] for one in (ended, first, *leaves)] == [2, 2, 1, 1]
    failed = hand.episode(hand.decision(), ending=Ending.ERROR)
    assert step_weights(hand.collected(*episodes, failed)) == found


def test_the_loss_has_credit_times_weight() -> None:
    credit = Credit(decisions={"a": 1.0, "b": (2.0, 3.0), "c": None, "d": 4.0}, weights={"a": 0.5, "b": 2.0, "c": 2.0})
    assert weighted(credit) == {"a": 0.5, "b": (4.0, 6.0), "c": None, "d": 4.0}


def main() -> None:
    print("| method | all decisions alike | equal steps | nearer with equal steps |\n| --- | --- | --- | --- |")
    for name, options in TREES.items():
        angles: list[list[float]] = [[], []]
        for game, policy in map(world, range(10)):
            true = true_gradient(game, policy)
            for equal, own in enumerate(angles):
                own.append(degrees(expected_gradient(name, bool(equal), game, policy, **options), true))
        cells = [f"{sum(own) / 10:.1f} ({min(own):.1f} to {max(own):.1f})" for own in angles]
        nearer = sum(equal < alike for alike, equal in zip(*angles, strict=True))
        print(f"| `{name}` | {' | '.join(cells)} | {nearer} of 10 |")


if __name__ == "__main__":
    main()
