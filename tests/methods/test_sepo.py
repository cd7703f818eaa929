"""SEPO with ratings written by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from hf_credit import make, methods
from hf_credit.collaborations import Collaboration, Event
from hf_credit.collectors import Ratings, Single
from hf_credit.collectors.ratings import RATING, SHARES
from hf_credit.credit import rated_rewards
from hf_credit.methods.sepo import RatedShares
from hf_credit.rollouts import Chat, Engine, EnvironmentInteraction, Generation, LocalContext
from hf_credit_bench import make_problem

EVEN = ((0.5, 0.5), (0.5, 0.5))
# The thinker gives itself .7, the solver gives it .5: .3 x .7 + .7 x .5 = .56. Of the own .5 of the solver and the .3
# of the thinker come .36. So the thinker has .56 / .92 = .609, and against the mean of .5543 of two rollouts +-.0543.
TILTED = ((0.7, 0.3), (0.5, 0.5))


def test_shares_are_credit_in_a_success_and_blame_in_a_failure() -> None:
    outcomes, shares = torch.tensor([1.0, 0.0], dtype=torch.float64), torch.tensor([TILTED, EVEN])
    groups = torch.tensor([3, 3])
    expected = [[1 + 0.2 * 0.0543, 1 - 0.2 * 0.0543], [-1 + 0.2 * 0.0543, -1 - 0.2 * 0.0543]]
    close(rated_rewards(outcomes, shares, groups), expected)
    both_failed = rated_rewards(torch.zeros(2), shares, groups, credit_weight=9.0, blame_weight=1.0)
    close(both_failed, [[-1.0543, -0.9457], [-0.9457, -1.0543]])
    close(rated_rewards(torch.ones(2), torch.tensor([TILTED, TILTED]), groups), [[1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(ValueError, match=r"outcomes must be in \[0, 1\]"):
        rated_rewards(torch.tensor([5.0, -3.0]), shares, groups)


def close(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found.double(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-4)


def test_ratings_among_three_roles_are_means_of_the_others() -> None:
    shares = torch.tensor([[[1.0, 0.0, 0.0], [0.2, 0.5, 0.3], [0.4, 0.3, 0.3]], [[1 / 3] * 3] * 3])
    # The first: .3 x 1 + .7 x (.2 + .4) / 2 = .51; the second .15 + .7 x .15 = .255; the third .09 + .7 x .15 = .195.
    total = 0.51 + 0.255 + 0.195
    half = [(one / total - 1 / 3) / 2 for one in (0.51, 0.255, 0.195)]
    found = rated_rewards(torch.ones(2), shares, torch.zeros(2, dtype=torch.long), credit_weight=1.0)
    close(found, [[1 + one for one in half], [1 - one for one in half]])


def test_each_role_is_normalised_in_its_group(hand: Any) -> None:
    def episode(outcome: float) -> Any:
        return hand.episode(*(replace(hand.decision(), role=one) for one in ("thinker", "solver")), outcome=outcome)

    played = hand.collected(episode(1.0), episode(1.0), episode(0.0))
    shares = [TILTED, EVEN, EVEN]
    rollouts = [replace(one, extras={SHARES: own}) for one, own in zip(played.rollouts, shares, strict=True)]
    estimator = RatedShares(roles=("thinker", "solver"), credit_weight=1.0, blame_weight=1.0)
    found: Any = estimator(replace(played, rollouts=tuple(rollouts)), LocalContext(), None).decisions
    # Thinkers' shares less their mean, .609, .5 and .5 less .5362: 1.0725, .9638 and -.9638, deviation 1.1455
    assert [round(value, 3) for value in found.values()][::2] == [0.624, 0.529, -1.153]
    # By their own ratings alone .7 / 1.2, .5 and .5 less .5278: 1.0556, .9722 and -.9722, deviation 1.1474
    alone: Any = replace(estimator, self_weight=1.0)(replace(played, rollouts=tuple(rollouts)), LocalContext(), None)
    assert [round(value, 3) for value in alone.decisions.values()][::2] == [0.613, 0.541, -1.154]


class Team:
    """A thinker and a solver, who rate each other as told."""

    def __init__(self, chat: Chat, ratings: Sequence[str]) -> None:
        self.chat, self.ratings, self.shown = chat, list(ratings), list[str]()

    def __call__(self, contexts: Sequence[Sequence[int]]) -> list[Generation]:
        return [Generation(ids=self.chat.reply_ids(self._reply(context))) for context in contexts]

    def _reply(self, context: Sequence[int]) -> str:
        shown = str(self.chat.tokenizer.decode(list(context)))
        if "JSON" not in shown:
            return "3"
        self.shown.append(shown)
        return self.ratings.pop(0)


def team() -> Collaboration:
    events = [Event("thought", role="thinker"), Event("answer", role="solver", after="thought")]
    roles = {"thinker": "1", "solver": "2"}
    return Collaboration(roles=roles, events=events, final="answer", scorer=lambda task, text: float("3" in text))


def rating(thinker: Any, outcome: str = "correct", **more: Any) -> str:
    return json.dumps({"outcome": outcome, "shares": {"thinker": thinker, "solver": 1 - thinker, **more}})


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (rating(0.75), (0.75, 0.25)),
        (f"1 {rating(0.75)} 2", (0.75, 0.25)),
        (rating(0.75, "wrong"), None),  # it was correct
        (rating(0.75, judge=0.5), None),
        (rating(1.5), None),
        ("{", None),
        ('{"shares": {"thinker": NaN, "solver": 1}, "outcome": "correct"}', None),
    ],
)
def test_a_rating_that_cannot_be_read_counts_as_equal_shares(chat: Chat, written: str, read: Any) -> None:
    player = Team(chat, [written, rating(0.25)])
    context = LocalContext(Engine(team(), chat, player))
    collector = Ratings(inner=Single()).bind(team())
    (rollout,) = collector([{"problem": "4"}], context, None).rollouts
    assert rollout.extras[SHARES] == (read or (0.5, 0.5), (0.25, 0.75))
    assert context.metrics["ratings/valid"] == [0.5 + 0.5 * (read is not None)]
    assert len(rollout.episode.decisions) == len(rollout.extras[RATING].decisions) == 2
    assert context.ledger.counterfactual_tokens > 0


def test_a_rater_is_shown_the_task_the_replies_and_the_result(chat: Chat) -> None:
    player = Team(chat, [rating(0.5)] * 2)
    collector = Ratings(inner=Single()).bind(team())
    collector([{"problem": "4"}], LocalContext(Engine(team(), chat, player)), None)
    for shown, role in zip(player.shown, ("thinker", "solver"), strict=True):
        for part in ("Problem: 4", "thinker: 3", "solver: 3", "The result is correct", f"You are {role}."):
            assert part in shown


@pytest.mark.parametrize("alone", [EnvironmentInteraction(make("sudoku", size=4, blanks=4)), make_problem("vote")])
def test_an_agent_alone_and_a_table_are_refused(alone: Any) -> None:
    with pytest.raises(ValueError, match="ratings need two or more roles that can be asked in words, got"):
        methods.make("sepo").bind(alone)
