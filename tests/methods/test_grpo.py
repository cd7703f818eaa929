"""GRPO on episodes written by hand."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest

from hf_credit import make, methods
from hf_credit.methods.grpo import GroupScore
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import Chat, Ending, Engine, EnvironmentInteraction, Generation, LocalContext


def test_every_decision_has_the_score_of_its_episode_among_its_task(hand):
    first = [hand.episode(hand.decision(), hand.decision(), outcome=outcome) for outcome in (1.0, 0.0, 0.0, 0.0)]
    second = [hand.episode(hand.decision(), outcome=outcome) for outcome in (7.0, 7.0)]
    failed = hand.episode(hand.decision(), outcome=100.0, ending=Ending.ERROR)
    found = hand.credits(GroupScore(), *first, *second, failed, instances=(0, 0, 0, 0, 1, 1, 1))
    assert found == [[1.5, 1.5], [-0.5, -0.5], [-0.5, -0.5], [-0.5, -0.5], [0], [0], [None]]


def test_the_scale_is_an_option(hand):
    episodes = [hand.episode(hand.decision(), outcome=outcome) for outcome in (1.0, 0.0, 3.0, 0.0)]
    groups = {"instances": (0, 0, 1, 1)}
    assert hand.credits(GroupScore(scale="none"), *episodes, **groups) == [[0.5], [-0.5], [1.5], [-1.5]]
    assert hand.credits(GroupScore(scale="batch"), *episodes, **groups) == [[0.354], [-0.354], [1.061], [-1.061]]


class PaysNaN(EnvironmentInteraction):
    """Every third outcome is not finite."""

    def __init__(self):
        super().__init__(make("tic_tac_toe", opponent="random", agent="first"), "current", instructions=False)
        self.asked = itertools.count(1)

    def outcome(self, state):
        return math.nan if next(self.asked) % 3 == 0 else super().outcome(state)


@pytest.mark.parametrize("name", ["grpo", "carl"])
def test_an_episode_without_a_finite_outcome_does_not_change_others(name):
    interaction = PaysNaN()
    tokenizer = tokenizer_of(interaction.texts(32))
    ids = tokenizer("<action>place 1 1</action>", add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
    reply = Generation(ids=ids, logprobs=[-0.5] * len(ids))
    engine = Engine(interaction, Chat(tokenizer), lambda contexts: [reply] * len(contexts))
    method, context = methods.make(name).bind(interaction), LocalContext(engine)
    collected = method.collector(list(interaction.tasks("train", 2)), context, method.memory)
    ends = Counter(sample.episode.ending for sample in collected.rollouts)
    assert ends[Ending.ERROR] == len(collected.rollouts) // 3
    found = method.estimator(collected, context, method.memory).decisions
    credited = [credit for credit in found.values() if credit is not None]
    assert credited
    assert all(math.isfinite(credit) for credit in credited)
