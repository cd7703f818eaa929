"""DRACO on episodes written by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_credit import make, methods
from hf_credit.credit import redistributed_advantages
from hf_credit.methods.draco import Rubric
from hf_credit.rollouts import Ending, EnvironmentInteraction, LocalContext

NAN = float("nan")
# Steps of 2, 1 and 1 tokens with qualities 1, .5 and none, which is .75 then.
QUALITY, TOKENS = torch.tensor([[1.0, 0.5, NAN]]), torch.tensor([[2, 1, 1]])


@pytest.mark.parametrize(
    ("advantage", "expected"),
    [
        (1.0, [8 / 9, 8 / 9, 4 / 3]),  # weights 1, .5, .75 of 2.25: 4 x 1 / (2 x 2.25), 4 x .5 / 2.25, 4 x .75 / 2.25
        (-1.0, [0.0, -8 / 3, -4 / 3]),  # weights 0, .5, .25 of .75
    ],
)
def test_an_advantage_goes_to_good_steps_and_blame_to_bad_ones(advantage, expected):
    found = redistributed_advantages(torch.tensor([advantage]), QUALITY, TOKENS, torch.ones(1, 3, dtype=torch.bool))
    assert found[0].tolist() == pytest.approx(expected)
    assert (found * TOKENS).sum().item() == pytest.approx(4 * advantage)


@pytest.mark.parametrize("quality", [[NAN, NAN], [0.0, 0.0]])
def test_without_a_step_to_credit_all_have_the_advantage(quality):
    active, tokens = torch.tensor([[True, True], [True, False]]), torch.tensor([[3, 1], [2, 0]])
    found = redistributed_advantages(torch.tensor([1.0, 2.0]), torch.tensor([quality] * 2), tokens, active)
    assert found.tolist() == [[1.0, 1.0], [2.0, 0.0]]


@given(
    tokens=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    quality=st.lists(st.sampled_from([0.0, 0.5, 1.0, NAN]), min_size=4, max_size=4),
    advantage=st.sampled_from([-1.0, 0.0, 2.0]),
)
def test_the_sum_over_tokens_is_that_of_the_episode_also_with_replies_of_no_tokens(tokens, quality, advantage):
    there = torch.ones(1, len(tokens), dtype=torch.bool)
    values, counts = torch.tensor([quality[: len(tokens)]]), torch.tensor([tokens])
    found = redistributed_advantages(torch.tensor([advantage]), values, counts, there)
    assert (found * counts).sum().item() == pytest.approx(advantage * sum(tokens))
    assert found[counts == 0].tolist() == [0.0] * tokens.count(0)


def test_verdicts_are_criteria_that_cite_their_step(hand):
    # R = (1 - 1) / 2 = 0, -1: +-.707. The winner's accepted step has all of its two tokens' credit; the loser's are
    # equally bad. The step without a verdict has the mean of the others.
    winner = hand.episode(hand.decision(verdict=1.0), hand.decision(verdict=0.0))
    loser = hand.episode(hand.decision(verdict=0.0, tokens=3), hand.decision())
    failed = hand.episode(hand.decision(verdict=1.0), ending=Ending.ERROR)
    found = hand.credits(Rubric(eps=1e-9), winner, failed, loser)
    assert found == [[1.414, 0.0], [None], [round(-0.7071 * 4 / 6, 3), round(-0.7071 * 4 / 2, 3)]]


def test_an_episode_without_a_known_verdict_is_not_compared(hand):
    known = [hand.episode(hand.decision(verdict=score)) for score in (1.0, 0.0)]
    unknown = hand.episode(hand.decision(), hand.decision())
    assert hand.credits(Rubric(eps=1e-9), known[0], unknown, known[1]) == [[0.707], [None, None], [-0.707]]


def test_criteria_number_the_steps_of_the_task_also_of_an_episode_that_begins_later(hand):
    context: Any = LocalContext()
    context.interaction = Judge()
    met, unmet = ({"found": (found, [7])} for found in (True, False))
    late = [hand.episode(*(replace(hand.decision(), step=step) for step in range(5, 9))) for _ in range(2)]
    judged = [replace(one, final_state=own) for one, own in zip(late, (met, unmet), strict=True)]
    found: Any = Rubric(criteria="task", eps=1e-9)(hand.collected(*judged), context, None).decisions
    values = [round(value, 3) for value in found.values()]
    # The others have the quality of the one that is cited, 1 and 0: all have the whole advantage.
    assert values == [0.707] * 4 + [-0.707] * 4


class Judge:
    """A task whose final state is its judgement."""

    def criteria(self, state):
        return state


def test_criteria_of_the_task_that_no_member_of_the_group_fails_do_not_count(hand):
    context: Any = LocalContext()
    context.interaction = Judge()
    both = [
        {"polite": (True, [1]), "found": (True, [0]), "wrote": (True, [0, 1])},
        {"polite": (True, [0]), "found": (True, [0]), "wrote": (False, [1])},
    ]
    episodes = [hand.episode(hand.decision(), hand.decision()) for _ in both]
    judged = [replace(one, final_state=own) for one, own in zip(episodes, both, strict=True)]
    lone = replace(hand.episode(hand.decision()), final_state={"polite": (False, [0])})
    played = hand.collected(*judged, lone, instances=(0, 0, 1))
    found: Any = Rubric(criteria="task", eps=1e-9)(played, context, None).decisions
    # Only `wrote` is left: R 1 and -1, +-.707. It cites both steps of the first, and the second of the other.
    assert [round(value, 3) for value in found.values()] == [0.707, 0.707, -0.707, -0.707, 0.0]


def test_a_task_without_criteria_is_refused():
    sudoku = EnvironmentInteraction(make("sudoku", size=4, blanks=4))
    with pytest.raises(ValueError, match="needs a task that judges by criteria, got 'sudoku', which does not"):
        methods.make("draco", criteria="task").bind(sudoku)
    assert methods.make("draco").bind(sudoku).name == "draco"
