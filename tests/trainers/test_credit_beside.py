from __future__ import annotations

import math

import pytest

from hf_credit.collectors import RolloutBatch
from hf_credit.rollouts import LocalContext
from hf_credit.trainers.recording import credit_of_others
from hf_credit_bench import make_method
from hf_credit_bench.play import Player
from hf_credit_bench.problems import Chain
from hf_credit_bench.table import TablePolicy


def played(name: str, **options: object) -> tuple[Player, RolloutBatch, LocalContext]:
    problem = Chain(length=2, start_right=0.6)
    player = Player(make_method(name, **options), problem, TablePolicy(problem), seed=3)
    context = LocalContext(player._now.engine, end_tokens=player.chat.end_tokens)
    rows = [{"seed": seed} for seed in range(3)]
    return player, player.method.collector(rows, context, player.memory), context


def test_methods_that_compare_outcomes_credit_groups() -> None:
    player, collected, context = played("grpo", group_size=4)
    found = credit_of_others(player.method, collected, context)
    assert {"outcome_reward", "rloo"} <= set(found)
    assert not {"grpo", "verifiable_process"} & set(found)  # itself; and nobody asked an oracle
    outcomes = [episode.outcome for episode in collected.episodes[:4]]
    decisions = collected.episodes[0].decisions
    expected = outcomes[0] - sum(outcomes[1:]) / 3
    assert [found["rloo"][one.id] for one in decisions] == [pytest.approx(expected)] * len(decisions)


def test_outcomes_credit_no_reply_of_state_groups_that_was_not_played_to_the_end() -> None:
    player, collected, context = played("verifiable_process", state_group_size=3)
    found = credit_of_others(player.method, collected, context)
    ended = [episode for episode in collected.episodes if not math.isnan(episode.outcome)]
    assert 0 < len(ended) < len(collected.episodes)
    assert found["outcome_reward"].keys() == {one.id for episode in ended for one in episode.decisions}


def test_single_episodes_are_not_compared_with_others() -> None:
    player, collected, context = played("ppo")
    assert "rloo" not in credit_of_others(player.method, collected, context)
