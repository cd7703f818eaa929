"""A policy that thinks is trained with `history: rendered` under a template that drops earlier thoughts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_runs import ON_A_PROCESSOR, SAMPLED

from hf_credit import CreditConfig, CreditTrainer, make, methods
from hf_credit.oracles import default_oracle
from hf_credit.policies.micro import MicroConfig, build_tokenizer
from hf_credit.policies.scripted import play
from hf_credit.rollouts import Chat, EnvironmentInteraction, RolloutRequest, decision_rows, replay_from
from hf_credit.rollouts.scripts import OraclePlayer
from hf_credit.trainers.micro import init_scripted_policy
from hf_credit.trainers.packing import Tree

GAME = make("tic_tac_toe")


class Played(EnvironmentInteraction):
    """All texts are in the scripted play."""

    def texts(self, episodes: int) -> None:
        return None


def game(history: str) -> Played:
    return Played(GAME, history, instructions=False, max_turns=3)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It thinks the same before every move; the template of a micro policy writes no thoughts."""
    oracle = default_oracle(GAME)
    assert oracle is not None
    player = OraclePlayer(GAME, oracle, 0.5)
    return init_scripted_policy(
        game("rendered"),
        lambda *args: f"<think>so</think>{player(*args)}",
        [RolloutRequest(seed=seed) for seed in range(32)],
        tmp_path_factory.mktemp("policy") / "thinks",
        MicroConfig(hidden_size=32, layers=1, heads=2, episodes=32, epochs=4, batch_rows=8, learning_rate=1e-2),
        callbacks=[],
    )


def trained(policy: Path, output: Path, history: str) -> tuple[Any, dict[str, float]]:
    """A trainer after an update with replays, and what it logged."""
    settings: dict[str, Any] = {**ON_A_PROCESSOR, **SAMPLED, "max_completion_length": 24, "max_steps": 1}
    settings |= {"instances_per_update": 2, "per_device_train_batch_size": 2}
    trainer = CreditTrainer(
        str(policy),
        game(history),
        CreditConfig(**settings, output_dir=str(output)),
        method=methods.make("vineppo", group_size=2, rollouts=2),
    )
    trainer.train()
    return trainer, trainer.state.log_history[0]


def test_each_decision_is_a_row_of_the_context_that_a_server_would_render(policy: Path, tmp_path: Path) -> None:
    trainer, logged = trained(policy, tmp_path, "rendered")
    assert (logged["endings/error"], logged["replays/failed"]) == (0.0, 0.0)
    assert logged["advantages/zero"] < 1.0
    assert "context/earlier_thoughts" not in logged
    (episode,) = trainer.engine.run([RolloutRequest(seed=3)])
    assert len(episode.decisions) > 1
    for decision in episode.decisions:
        messages = [
            {"role": role, "content": content.removeprefix("<think>so</think>")}
            for role, content in decision.state.transcript
        ]
        ids = trainer.chat.tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
        assert decision.context_ids == tuple(ids)
    request = replay_from(trainer.interaction, trainer.chat, episode, 1, reply=episode.decisions[1])
    (again,) = trainer.engine.run([request])
    assert again.decisions[0].context_ids == episode.decisions[1].context_ids
    rows = decision_rows(episode.decisions, [1.0] * len(episode.decisions))
    assert [row.prompt_ids for row in rows] == [decision.context_ids for decision in episode.decisions]
    # What the rows have in common is read once: each context begins with the one before.
    tree = Tree.of(sorted([np.array(row.prompt_ids + row.completion_ids) for row in rows], key=list))
    assert len(tree.ids) < len(rows[-1].prompt_ids) + sum(len(row.completion_ids) for row in rows)


def test_a_rendered_history_without_thoughts_is_the_appended_one_and_one_row() -> None:
    chat, oracle = Chat(build_tokenizer(GAME)), default_oracle(GAME)
    assert oracle is not None
    player, start = OraclePlayer(GAME, oracle, 1.0), RolloutRequest[Any](seed=3)
    rendered, appended = (play(game(history), chat, player, start) for history in ("rendered", "append"))
    assert [one.context_ids for one in rendered.decisions] == [one.context_ids for one in appended.decisions]
    assert len(rendered.decisions) == 3
    assert len(decision_rows(rendered.decisions, [1.0] * 3)) == 1


def test_an_appended_history_keeps_earlier_thoughts_and_says_their_share(policy: Path, tmp_path: Path) -> None:
    trainer, logged = trained(policy, tmp_path, "append")
    assert 0.0 < logged["context/earlier_thoughts"] < 0.1
    (episode,) = trainer.engine.run([RolloutRequest(seed=3)])
    assert len(decision_rows(episode.decisions, [1.0] * len(episode.decisions))) == 1
