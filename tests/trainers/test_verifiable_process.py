"""The paper's method and its two baselines, on a policy that learns."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from transformers import AutoTokenizer

from hf_credit import VerifiableProcessConfig, VerifiableProcessTrainer, make, oracles
from hf_credit.rollouts import Decision, Ending, Episode, EveryEpisodeFailedError, Verdict


def config(tmp_path: Path, **changed: Any) -> VerifiableProcessConfig:
    base = {"output_dir": str(tmp_path), "bf16": False, "use_cpu": True, "report_to": "none"}
    return VerifiableProcessConfig(**{**base, **changed})


def decision(score: float | None) -> Decision:
    verdict = None if score is None else Verdict(score=score, valid=score > 0)
    return Decision(
        role="agent", state=None, context_ids=(1,), action_ids=(2,), logprobs=None, action_text="", verdict=verdict
    )


def episode(*scores: float | None, outcome: float = 0.0, ending: Ending = Ending.FINISHED) -> Episode:
    return Episode(decisions=tuple(map(decision, scores)), outcome=outcome, ending=ending)


def test_the_defaults_are_the_papers(tmp_path: Path) -> None:
    settings = config(tmp_path)
    assert settings.process_reward == "oracle"
    assert settings.generation_batch_size == 128
    assert (settings.max_steps, settings.warmup_steps, settings.lr_scheduler_type) == (100, 5, "cosine")
    assert (settings.discount, settings.beta, settings.min_active, settings.value_rollouts) == (0.0, 0.0, 4, 100)
    assert (settings.temperature, settings.top_p, settings.top_k) == (0.6, 0.95, 20)


def test_each_turn_is_normalised_over_the_trajectories_still_active(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    trainer = one_update(micro_policy, max_steps=1)
    episodes = [episode(1.0, 0.0), episode(0.0), episode(1.0, 1.0), episode(0.0)]
    # Turn 1: mean 1/2, population deviation 1/2. Turn 2 has two trajectories, so the six pairs of the batch stand in:
    # mean 1/2, deviation 1/2.
    assert [[round(value, 6) for value in values] for values in trainer.credit(episodes)] == [
        [1, -1],
        [-1],
        [1, 1],
        [-1],
    ]


def test_outcome_reward_gives_every_turn_the_advantage_of_its_trajectory(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    trainer = one_update(micro_policy, process_reward="outcome")
    episodes = [episode(0.0, 0.0, outcome=1.0), episode(1.0, outcome=0.0), episode(1.0, 1.0, 1.0, outcome=0.0)]
    # Mean 1/3, population deviation sqrt(2)/3.
    high, low = math.sqrt(2), -math.sqrt(2) / 2
    credits = trainer.credit(episodes)
    assert credits[0] == pytest.approx([high, high], rel=1e-6)
    assert credits[1] == pytest.approx([low], rel=1e-6)
    assert credits[2] == pytest.approx([low] * 3, rel=1e-6)


def test_decisions_without_a_verdict_are_kept_out_of_every_mean(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    trainer = one_update(micro_policy)
    broken = episode(1.0, None, None, ending=Ending.ERROR)
    credits = trainer.credit([broken, episode(0.0), episode(1.0), episode(0.0), episode()])
    assert credits == [
        [pytest.approx(1.0), None, None],
        [pytest.approx(-1.0)],
        [pytest.approx(1.0)],
        [pytest.approx(-1.0)],
        [],
    ]


def test_monte_carlo_rewards_sum_to_the_outcome_less_the_first_value(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    trainer = one_update(micro_policy, process_reward="rollout_value", value_rollouts=3, top_k=0)
    assert trainer.state.log_history[0]["tokens/value_rollouts"] > 0
    episodes = trainer.collect([{"seed": seed} for seed in range(8)])
    rewards = trainer.process_rewards(episodes)
    for played, values in zip(episodes, rewards, strict=True):
        assert len(values) == len(played.decisions)
        assert sum(values) <= played.outcome  # the value of the first state is not negative
        assert played.outcome - sum(values) <= 1


def test_value_rollouts_that_all_fail_stop_the_run(one_update: Callable[..., Any], micro_policy: Path) -> None:
    def break_replays(trainer: Any) -> None:
        def fail(state: Any, seed: int) -> Any:
            raise RuntimeError("no way back")

        trainer.interaction.reseed = fail

    with pytest.raises(EveryEpisodeFailedError, match=r"some episode of the value rollouts must .* no way back"):
        one_update(micro_policy, process_reward="rollout_value", value_rollouts=2, on_built=break_replays)


def test_lighter_rollouts_render_the_conversation_anew(one_update: Callable[..., Any], micro_policy: Path) -> None:
    light = {"value_rollouts": 2, "value_template_kwargs": {"enable_thinking": False}}
    trainer = one_update(micro_policy, process_reward="rollout_value", **light)
    assert trainer.value_engine is not trainer.engine
    assert math.isfinite(trainer.state.log_history[0]["process_reward/mean"])


def test_training_teaches_what_the_oracle_accepts(one_update: Callable[..., Any], micro_policy: Path) -> None:
    class LikesOnes:
        def valid_actions(self, state: Any) -> frozenset[str]:
            return frozenset()  # not asked for in training

        def score(self, state: Any, action: str) -> float:
            return float(action.endswith(" 1"))

    trainer = one_update(
        micro_policy,
        trainer_kwargs={"oracle": LikesOnes()},
        trajectories_per_update=32,
        per_device_train_batch_size=32,
        max_steps=20,
        learning_rate=3e-3,
        max_grad_norm=1.0,
        top_k=0,
    )
    valid = [entry["oracle/valid"] for entry in trainer.state.log_history if "oracle/valid" in entry]
    assert valid[0] < 0.5
    assert valid[-1] > 0.9


def test_an_oracle_that_raises_ends_its_episodes_and_no_other(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    class Moody:
        def __init__(self) -> None:
            self.inner = oracles.make("sudoku_constraints")

        def valid_actions(self, state: Any) -> frozenset[str]:
            return self.inner.valid_actions(state)

        def score(self, state: Any, action: str) -> float:
            if state.seed % 2 == 1:
                raise RuntimeError("not today")
            return self.inner.score(state, action)

    trainer = one_update(micro_policy, trainer_kwargs={"oracle": Moody()})
    logged = trainer.state.log_history[0]
    assert logged["endings/error"] == pytest.approx(0.5)
    assert math.isfinite(logged["loss"])


def test_an_oracle_that_only_watches_may_fail(one_update: Callable[..., Any], micro_policy: Path) -> None:
    class Broken:
        asked = 0

        def valid_actions(self, state: Any) -> frozenset[str]:
            return frozenset()

        def score(self, state: Any, action: str) -> float:
            self.asked += 1
            if self.asked > 1:  # the first question comes at construction
                raise RuntimeError("gone")
            return 1.0

    trainer = one_update(micro_policy, process_reward="outcome", trainer_kwargs={"oracle": Broken()})
    assert trainer.state.log_history[0]["endings/error"] == 0


def test_the_papers_method_needs_an_oracle(micro_policy: Path, tmp_path: Path) -> None:
    environment = make("sudoku", size=4, blanks=4)
    environment.name = "house_rules"
    with pytest.raises(ValueError, match="needs an oracle, got none and 'house_rules' has none"):
        VerifiableProcessTrainer(str(micro_policy), environment, config(tmp_path))


def test_a_dataset_of_task_rows_is_trained_on(one_update: Callable[..., Any], micro_policy: Path) -> None:
    environment = make("sudoku", size=4, blanks=4)
    rows = Dataset.from_list([{"seed": seed, **environment.sample_task(seed)} for seed in range(8)])
    trainer = one_update(micro_policy, trainer_kwargs={"train_dataset": rows})
    assert trainer.state.log_history[0]["endings/error"] == 0


def test_template_settings_may_come_as_json_from_a_command_line(tmp_path: Path) -> None:
    settings = config(tmp_path, value_template_kwargs='{"enable_thinking": false}')
    assert settings.value_template_kwargs == {"enable_thinking": False}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"process_reward": "vibes"}, "process_reward must be one of oracle, outcome, rollout_value, got 'vibes'"),
        ({"discount": 1.5}, "discount must be in"),
        ({"min_active": 0}, "min_active must be at least 1, got 0"),
        ({"value_rollouts": 0}, "value_rollouts must be at least 1, got 0"),
        ({"history": "all"}, "history must be 'append' or 'current', got 'all'"),
        ({"max_turns": 0}, "max_turns must be at least 1, got 0"),
    ],
)
def test_settings_out_of_range_are_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(tmp_path, **changed)


def test_an_oracle_of_another_game_is_refused_at_construction(micro_policy: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="must be made for the environment 'sudoku', got 'minesweeper_posterior'"):
        VerifiableProcessTrainer(
            str(micro_policy), make("sudoku", size=4), config(tmp_path), oracle=oracles.make("minesweeper_posterior")
        )


def test_a_dataset_without_the_columns_of_a_task_is_refused_at_construction(
    micro_policy: Path, tmp_path: Path
) -> None:
    rows = Dataset.from_list([{"prompt": "solve this"}] * 128)
    with pytest.raises(ValueError, match="must have the column 'seed'"):
        VerifiableProcessTrainer(str(micro_policy), make("sudoku", size=4), config(tmp_path), train_dataset=rows)


def test_a_dataset_too_small_for_an_update_is_refused_at_construction(micro_policy: Path, tmp_path: Path) -> None:
    rows = Dataset.from_list([{"seed": seed} for seed in range(7)])
    with pytest.raises(ValueError, match="got 7 rows for 128 tasks"):
        VerifiableProcessTrainer(str(micro_policy), make("sudoku", size=4), config(tmp_path), train_dataset=rows)


def test_a_tokenizer_without_template_or_padding_is_refused_at_construction(
    micro_policy: Path, tmp_path: Path
) -> None:
    for missing in ("chat_template", "pad_token"):
        tokenizer = AutoTokenizer.from_pretrained(micro_policy)
        setattr(tokenizer, missing, None)
        with pytest.raises(ValueError, match=missing.replace("_", " ").replace("pad ", "padding ")):
            VerifiableProcessTrainer(
                str(micro_policy), make("sudoku", size=4), config(tmp_path), processing_class=tokenizer
            )
