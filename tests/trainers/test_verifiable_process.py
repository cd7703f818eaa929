"""The paper's method on a policy that learns."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from datasets import Dataset
from judge_server import JudgeServer, completion
from transformers import AutoTokenizer

from hf_credit import VerifiableProcessConfig, VerifiableProcessTrainer, make, oracles


def config(tmp_path: Path, **changed: Any) -> VerifiableProcessConfig:
    base = {"output_dir": str(tmp_path), "bf16": False, "use_cpu": True, "report_to": "none"}
    return VerifiableProcessConfig(**{**base, **changed})


def test_the_defaults_are_the_papers(tmp_path: Path) -> None:
    settings = config(tmp_path)
    assert settings.generation_batch_size == 128
    assert (settings.max_steps, settings.warmup_steps, settings.lr_scheduler_type) == (100, 5, "cosine")
    assert (settings.gamma, settings.beta, settings.min_active) == (0.0, 0.0, 4)
    assert (settings.temperature, settings.top_p, settings.top_k) == (0.6, 0.95, 20)


@pytest.mark.parametrize(
    "settings",
    [
        {"instances_per_update": 16, "per_device_train_batch_size": 16},
        {"instances_per_update": 8, "per_device_train_batch_size": 8, "state_group_size": 4},
    ],
)
def test_training_teaches_what_the_oracle_accepts(
    settings: dict[str, int], one_update: Callable[..., Any], micro_policy: Path
) -> None:
    class LikesOnes:
        def valid_actions(self, state: Any) -> frozenset[str]:
            return frozenset()  # not used in training

        def score(self, state: Any, action: str) -> float:
            return float(action.endswith(" 1"))

    trainer = one_update(
        micro_policy,
        trainer_kwargs={"oracle": LikesOnes()},
        **settings,
        max_steps=10,
        learning_rate=1e-2,
        max_grad_norm=1.0,
        top_k=0,
    )
    valid = [entry["oracle/valid"] for entry in trainer.state.log_history if "oracle/valid" in entry]
    begun, ended = fmean(valid[:2]), fmean(valid[-3:])
    assert begun + 0.2 < ended
    assert ended > 0.75


def test_training_teaches_what_a_judge_model_accepts_and_logs_what_it_cost(
    one_update: Callable[..., Any], micro_policy: Path, tmp_path: Path
) -> None:
    def answer(body: dict[str, Any]) -> Any:
        said = body["messages"][1]["content"]
        if "1 2 " in said.partition('"reply"')[2]:
            return 400, {}, {"error": {"message": "too long"}}
        return completion("yes" if re.search(r" 1\\u003c/action>", said) else "no", tokens=7)

    with JudgeServer(answer) as server:
        options = {"model": "m", "base_url": server.url, "cache": str(tmp_path / "judge.sqlite")}
        trainer = one_update(
            micro_policy,
            trainer_kwargs={"oracle": {"name": "judge", "options": options}},
            instances_per_update=16,
            per_device_train_batch_size=16,
            max_steps=6,
            learning_rate=5e-3,
            max_grad_norm=1.0,
            top_k=0,
        )
        asked = len(server.asked)
    logs = [entry for entry in trainer.state.log_history if "oracle/valid" in entry]
    assert logs[0]["oracle/valid"] + 0.2 < fmean(entry["oracle/valid"] for entry in logs[-3:])
    assert 0 < logs[0]["oracle/unknown"] < 0.5
    assert logs[0]["oracle/failed/refused"] > 0
    spent = sum(one.get("oracle/tokens", 0) for one in logs)  # none in an update that asks nothing new
    assert logs[-1]["budget/others/judge"] == trainer.ledger.others["judge"] == spent
    assert logs[-1]["budget/others/judge"] <= 7 * asked


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


def test_the_papers_method_needs_an_oracle(micro_policy: Path, tmp_path: Path) -> None:
    environment = make("sudoku", size=4, blanks=4)
    environment.name = "house_rules"
    with pytest.raises(ValueError, match="needs an oracle, got none and 'house_rules' has no default"):
        VerifiableProcessTrainer(str(micro_policy), environment, config(tmp_path))


def test_a_dataset_of_task_rows_is_trained_on(one_update: Callable[..., Any], micro_policy: Path) -> None:
    environment = make("sudoku", size=4, blanks=4)
    rows = Dataset.from_list([{"seed": seed, **environment.sample_task(seed)} for seed in range(8)])
    trainer = one_update(micro_policy, trainer_kwargs={"train_dataset": rows})
    assert trainer.state.log_history[0]["endings/error"] == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gamma": 1.5}, "gamma must be in"),
        ({"history": "all"}, "history must be one of append, rendered, current, got 'all'"),
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
