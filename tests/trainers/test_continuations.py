"""A player's continuations as verdicts: values of moves by hand, and in a method that takes verdicts."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from hf_credit import CreditConfig, CreditTrainer, methods, oracles
from hf_credit.environments.tasks import task_seed
from hf_credit.oracles import Move
from hf_credit.playing import Sampling
from hf_credit.policies.micro import MicroConfig
from hf_credit.rollouts import RolloutRequest
from hf_credit.tasks import TaskSpec
from hf_credit.trainers.micro import init_scripted_policy


def task(blanks: int) -> TaskSpec:
    options = {"size": 4, "notation": "candidates", "blanks": blanks}
    sampling = Sampling(temperature=1.0, top_p=1.0, top_k=0, max_new_tokens=6)
    return TaskSpec(task="sudoku", task_options=options, history="current", instructions=False, sampling=sampling)


@pytest.fixture(scope="module")
def player(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A policy that fills the last two cells."""
    folder, spec = tmp_path_factory.mktemp("player"), task(2)
    interaction: Any = spec.build()
    config = MicroConfig(layers=1, quality=1.0, episodes=1024, epochs=2, learning_rate=8e-3)
    requests = (RolloutRequest[Any](task={}, seed=task_seed("train", place)) for place in range(config.episodes))
    init_scripted_policy(interaction, interaction.scripted_player(1.0), requests, folder, config, callbacks=())
    spec.save(folder)
    return str(folder)


def test_a_move_scores_what_the_player_makes_of_it(player: str, monkeypatch: pytest.MonkeyPatch) -> None:
    interaction: Any = task(2).build()
    first = interaction.start({"puzzle": "1234341221434.2."}, 0)
    last = interaction.advance(first, ["<action>d2=3</action>"])

    def move(action: str, state: Any = first) -> Move:
        (asked,), facts = interaction.pending(state), {"interaction": interaction, "before": state}
        reply = f"<action>{action}</action>"
        return Move(messages=asked.messages, reply=reply, state=state.world, action=action, **facts)

    costs = Counter[str]()
    judge: Any = oracles.make("continuations", player=player).check()
    moves = [move("d2=3"), move("d2=1"), move("a1=1"), move("d4=1", last), move("d2=3")]
    assert judge.judge(moves, costs) == [1.0, 0.0, 0.0, 1.0, 1.0]
    once = costs["tokens"]
    assert once > 0
    sampled: Any = oracles.make("continuations", player=player, rollouts=8)
    assert sampled.judge(moves, costs)[1:4] == [0.0, 0.0, 1.0]
    assert costs["tokens"] == 9 * once  # each continuation is one move of the same length
    monkeypatch.setattr("hf_credit.policies.continuations.AT_ONCE", 2)  # whose contexts are kept at a time
    assert judge.judge(moves, costs) == [1.0, 0.0, 0.0, 1.0, 1.0]
    assert costs["tokens"] == 10 * once
    with pytest.raises(ValueError, match="must be one of a task, got a text alone"):
        judge.score("a1", "d2=3")


def test_vpr_trains_with_them_and_counts_their_tokens(player: str, tmp_path: Path) -> None:
    interaction: Any = task(2).build()
    settings: Any = {"instances_per_update": 16, "per_device_train_batch_size": 16, "max_steps": 1, "logging_steps": 1}
    where: Any = {"use_cpu": True, "bf16": False, "report_to": "none", "save_strategy": "no"}
    args = CreditConfig(output_dir=str(tmp_path), max_completion_length=6, top_k=0, **settings, **where)
    oracle = {"name": "continuations", "options": {"player": player}}
    method = methods.make("verifiable_process", oracle=oracle)
    trainer = CreditTrainer(player, interaction, args, interaction.tasks("train", 16), method=method)
    trainer.train()
    (log,) = [entry for entry in trainer.state.log_history if "oracle/valid" in entry]
    assert 0 < log["oracle/valid"] <= 1
    assert log["oracle/unknown"] == 0
    assert log["budget/others/judge"] == log["oracle/tokens"] > 0


def test_a_task_whose_states_are_not_continued_is_refused_before_the_player_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interaction: Any = task(2).build()
    monkeypatch.setattr(type(interaction), "replayable", False)
    with pytest.raises(ValueError, match="replays need an environment that is deterministic"):
        methods.make("verifiable_process", oracle={"name": "continuations", "options": {"player": "none"}}).bind(
            interaction
        )


def test_a_move_that_fails_is_unknown_and_no_other(player: str, monkeypatch: pytest.MonkeyPatch) -> None:
    interaction: Any = task(2).build()
    state = interaction.start({"puzzle": "1234341221434.2."}, 0)
    step = type(interaction.environment).step

    def failing(self: Any, world: Any, action: str) -> Any:
        if action == "d4=1" and world == state.world:
            raise RuntimeError("out of order")
        return step(self, world, action)

    monkeypatch.setattr(type(interaction.environment), "step", failing)
    replies = [f"<action>{action}</action>" for action in ("d2=3", "d4=1")]
    facts: Any = {"messages": [], "state": None, "interaction": interaction, "before": state}
    moves = [Move(reply=reply, action=reply, **facts) for reply in replies]
    judge: Any = oracles.make("continuations", player=player)
    assert judge.judge(moves, Counter()) == [1.0, None]
