"""Beliefs and cuts, by hand; cut episodes continued in an environment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from hf_credit import make
from hf_credit.diagnostics import belief_potential, cut_quality
from hf_credit.diagnostics.cuts import played_on
from hf_credit.methods.t3 import Truncated, make_rule
from hf_credit.rollouts import Ending, Engine, EnvironmentInteraction, Generation, RolloutRequest


def test_the_potentials_of_agent_and_oracle() -> None:
    found = belief_potential([["a", "a", "b", "c"]], [["a", "b"]], ["a"], alpha=0)
    assert found.by_state == ((pytest.approx(math.log(2)), pytest.approx(math.log(2)), pytest.approx(0.5)),)
    assert belief_potential([["b"]], [["a", "b"]], ["a"], alpha=0).potential == math.inf
    smooth = belief_potential([[]], [["a", "b", "c"]], ["a"])
    assert (smooth.potential, smooth.distance) == (pytest.approx(math.log(3)), pytest.approx(0))
    assert math.isnan(belief_potential([], [], []).potential)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (([["a"]], [["b"]], ["a"]), "the truth must be a possible hypothesis, got 'a'"),
        (([["a"]], [["a"]], []), "got 0.5, 1, 1 and 0"),
        (([[]], [["a"]], ["a"], 0.0), "needs an answer if alpha is 0"),
        (([["a"]], [["a"]], ["a"], -1.0), "beliefs need alpha >= 0"),
    ],
)
def test_invalid_beliefs_are_refused(inputs: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        belief_potential(*inputs)


def test_stalls_are_compared_with_steps_without_progress() -> None:
    found = cut_quality([[True, True, False], [False]], [[0.0, 0.3, -0.1], [0.2]], [1.0, 0.0])
    assert (found.precision, found.recall, found.lost) == (0.5, 0.5, 0.5)
    with pytest.raises(ValueError, match="finite, got inf"):
        cut_quality([[True]], [[math.inf]])


def test_cut_episodes_are_continued(tokenizer: Any, chat: Any) -> None:
    class Says:
        def __init__(self, *words: str) -> None:
            self.words = list(words)

        def __call__(self, contexts: Sequence[Sequence[int]]) -> list[Generation]:
            ids = [tokenizer(f"{self.words.pop(0)}<|end|>", add_special_tokens=False)["input_ids"] for _ in contexts]
            return [Generation(ids=one, logprobs=None) for one in ids]

    task = {"digits": 3, "symbols": 4, "secret": "124", "first_guess": "123", "seed": 0}
    game = Truncated(EnvironmentInteraction(make("guess_numbers", digits=3)), make_rule("outside"))
    words = ("<interact>143</interact>", "<interact>123</interact>", "<answer>124</answer>")
    episodes = Engine(game, chat, Says(*words)).run([RolloutRequest(task=task)])
    assert [one.ending for one in episodes] == [Ending.CUT]
    (start,) = played_on(game, chat, episodes)
    (whole,) = Engine(game.inner, chat, Says(words[2])).run([start])
    assert (whole.outcome, whole.ending) == (1.0, Ending.FINISHED)
    assert whole.decisions[-1].context_ids == episodes[0].next_context
    assert played_on(game, chat, [whole]) == []
