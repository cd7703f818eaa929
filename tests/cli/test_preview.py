"""A look at a recipe before a training."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer
from trl.trainer import grpo_trainer

from hf_credit.collaborations.relay import relay
from hf_credit.evaluation.statistics import Interval
from hf_credit.recipes import find
from hf_credit.rollouts import Decision, Ending, Episode
from hf_credit.trainers.preview import _at_hand, preview
from hf_credit.trainers.recipes import read_job
from hf_credit.trainers.recording import transcript
from hf_credit.trainers.rows import RowTrainer


def test_a_preview_shows_what_the_policy_reads_and_writes_and_saves_nothing(
    command: Callable[..., Any], recipe: Callable[..., Path], micro_policy: Path
) -> None:
    path = recipe()
    before = sorted(micro_policy.iterdir())
    code, out, err = command("preview", path, "--tasks", 4, "--shown", 1)
    assert code == 0, err
    assert "Episode 1 of 4 tasks\n--- agent reads " in out
    assert "<|user|>" in out
    assert "Tasks played: 4 (an update of the recipe has 8)" in out
    assert "The recipe's 2 updates" in out
    assert "Signal of verifiable_process, generated tokens until the signal-to-noise ratio is 1: " in out
    assert "Signal of outcome_reward" in out
    assert out.splitlines()[-1].startswith("The policy can")
    assert not path.with_name("run").exists()
    assert sorted(micro_policy.iterdir()) == before


@pytest.mark.parametrize(
    ("changed", "flags"),
    [
        ({}, ["--save_strategy", "steps", "--save_steps", "10", "--resume_from_checkpoint", "true"]),
        (
            {"save_strategy": "steps", "eval_strategy": "steps", "eval_steps": 10, "held_out_tasks": 8},
            ["--load_best_model_at_end", "true", "--metric_for_best_model", "reward", "--save_steps=10"],
        ),
        (
            {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr": 1e-5}},
            ["--warmup_steps", "2"],
        ),
        ({"instances_per_update": None, "generation_batch_size": 16}, ["--logging_strategy", "epoch"]),
        ({"num_iterations": 2, "steps_per_generation": 2}, ["--push_to_hub", "false", "--report_to", "none"]),
        ({"logging_steps": 5, "log_completions": True}, ["--max_steps", "4", "--learning_rate", "1e-2"]),
    ],
)
def test_a_preview_takes_the_settings_and_flags_of_ones_own_training(
    recipe: Callable[..., Path], changed: dict[str, Any], flags: list[str]
) -> None:
    path = recipe(**changed)
    read_job(["--config", str(path), *flags])
    found = preview(["--config", str(path), *flags], tasks=2, collections=1)
    assert found.tasks == 2
    assert found.metrics["reward"] >= 0
    assert not path.with_name("run").exists()


def test_a_preview_names_its_recipe_as_train_does(command: Callable[..., Any], recipe: Callable[..., Path]) -> None:
    code, out, err = command(
        "preview", "--config", recipe(max_steps=1), "--shown", 0, "--tasks", 2, "--collections", 1
    )
    assert code == 0, err
    assert "The recipe's 1 update: about " in out
    assert " 0 s" not in out
    assert "0.0 h" not in out
    assert command("preview", "--max_steps", 1)[::2] == (
        1,
        "Error: the first argument must be a recipe, got '--max_steps'; name a file, or a recipe of hf-credit "
        "recipes.\n",
    )


def test_a_preview_loads_one_model_and_warns_once(
    recipe: Callable[..., Path], trained_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = grpo_trainer.create_model_from_path

    def counted(name: str, *args: Any, **settings: Any) -> Any:
        loaded.append(name)
        return load(name, *args, **settings)

    monkeypatch.setattr(grpo_trainer, "create_model_from_path", counted)
    path = recipe(model_name_or_path=str(trained_run), history="append")
    found = preview(["--config", str(path)], tasks=2, collections=3)
    assert found.signal is not None
    assert list(found.signal.signals) == ["verifiable_process", "outcome_reward"]
    assert loaded == [str(trained_run)]
    assert capsys.readouterr().err.count("was trained on other prompts") == 1


def test_a_policy_whose_replies_are_all_cut_cannot_begin(recipe: Callable[..., Path]) -> None:
    found = preview(["--config", str(recipe()), "--max_completion_length", "1"], tasks=4, collections=1)
    assert not found.begins
    assert found.longest_reply == (1, 1)
    assert found.cut == 1.0
    assert "raise max_completion_length" in found.conclusion()
    assert sum(count for _, count in found.unread) >= 1


def test_an_update_of_the_recipe_is_as_many_times_the_preview_as_it_has_tasks(recipe: Callable[..., Path]) -> None:
    found = preview(
        ["--config", str(recipe(steps_per_generation=1, per_device_train_batch_size=4))], tasks=2, collections=1
    )
    assert (found.tasks, found.full_tasks, found.updates, found.scale) == (2, 8, 2, 4.0)
    assert "Thoughts in earlier replies" not in str(found)
    thought = replace(found, metrics={**found.metrics, "context/earlier_thoughts": 0.25})
    assert "Thoughts in earlier replies: 25% of contexts" in str(thought)


def test_a_method_whose_input_no_episode_has_says_so(recipe: Callable[..., Path]) -> None:
    arguments = ["--config", str(recipe()), "--method", "gdpo", "--method_options"]
    options = {"group_size": 2, "rewards": {"outcome": 1.0, "speed": 1.0}}
    found = preview([*arguments, json.dumps(options)], tasks=2, collections=1)
    assert found.metrics["inputs/speed"] == 0.0
    assert "The method reads speed, which no episode had" in str(found)
    assert "The method reads outcome" not in str(found)


def test_a_preview_of_a_recipe_without_instances_per_update(recipe: Callable[..., Path]) -> None:
    changed = {"instances_per_update": None, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 4}
    found = preview(["--config", str(recipe(**changed))], tasks=3, collections=1)
    assert (found.tasks, found.full_tasks) == (6, 8)


def test_text_in_an_episode_does_not_control_the_terminal(recipe: Callable[..., Path], micro_policy: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(micro_policy)
    ids = tuple(tokenizer.encode("fill", add_special_tokens=False))
    decision = Decision(role="agent", state=None, context_ids=ids, action_ids=ids, logprobs=None, action_text="")
    episode = Episode(decisions=(decision,), outcome=0.0, ending=Ending.ERROR, error="\x1b[2Jboom")
    text = transcript(episode, [None], tokenizer)
    assert "\\x1b[2Jboom" in text
    assert "\x1b" not in text
    assert "not trained on" in text


def test_a_long_text_of_an_episode_is_cut_in_its_middle(recipe: Callable[..., Path], micro_policy: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(micro_policy)
    ids = tuple(tokenizer.encode("fill", add_special_tokens=False)) * 100
    decision = Decision(role="agent", state=None, context_ids=(), action_ids=ids, logprobs=None, action_text="")
    episode = Episode(decisions=(decision,), outcome=1.0, ending=Ending.FINISHED)
    assert "characters left out" not in transcript(episode, [1.0], tokenizer)
    text = transcript(episode, [1.0], tokenizer, most=20)
    assert "characters left out" in text
    assert len(text) < 250
    assert text.endswith("--- ended: finished, outcome 1\n")


def test_a_served_recipe_is_refused_with_what_to_leave_out() -> None:
    told = r"with training: synchronous and without gradient_accumulation_steps and .*token_budget"
    with pytest.raises(ValueError, match=told):
        preview(["--config", str(find("qwen3_4b_sudoku_served")), "--use_cpu", "true", "--bf16", "false"])


def test_an_epoch_of_a_dataset_has_as_many_updates_as_its_rows(recipe: Callable[..., Path], tmp_path: Path) -> None:
    rows = tmp_path / "train.jsonl"
    rows.write_text("".join(json.dumps({"seed": seed}) + "\n" for seed in range(24)))
    changed = {"max_steps": -1, "num_train_epochs": 2, "dataset_name": str(tmp_path), "training_tasks": 4096}
    found = preview(["--config", str(recipe(**changed))], tasks=2, collections=1)
    assert (found.full_tasks, found.updates) == (8, 6)
    ended = preview(["--config", str(recipe(**changed, max_sampled_tokens=1))], tasks=2, collections=1)
    assert ended.updates == 1  # which spends them


def test_what_a_method_does_not_log_is_nan(recipe: Callable[..., Path]) -> None:
    found = preview(["--config", str(recipe())], tasks=2, shown=0, collections=1)
    bare = dataclasses.replace(found, metrics={"advantages/zero": 0.5})
    assert bare.begins
    lines = str(bare).splitlines()
    assert "Outcome: mean nan" in lines
    assert "Turns of an episode: nan" in lines


def test_only_the_main_process_prints(
    command: Callable[..., Any], recipe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    assert command("preview", recipe(), "--tasks", 2, "--collections", 1)[:2] == (0, "")


def test_silence_of_the_outcome_is_said_with_what_is_at_hand(recipe: Callable[..., Path]) -> None:
    path = recipe(task_options={"size": 4, "blanks": 12}, entropy_coef=0.5)  # whose gradient is no signal
    found = preview(["--config", str(path)], tasks=32, shown=0)
    assert found.signal is not None
    outcome = found.signal.signals["outcome_reward"]
    assert (outcome.success.mean, outcome.silent, outcome.measurable) == (0.0, 1.0, False)
    assert outcome.success.n == 128  # as soon as 0 is told from 3 %, of at most 512
    assert outcome.success.high < 0.03
    assert found.signal.signals["verifiable_process"].silent < 1.0
    (line,) = [one for one in str(found).splitlines() if one.startswith("The outcome is silent: ")]
    assert "0.0% of the episodes of 128 tasks succeed (95% interval 0.0% to 2.9%); its signal: none " in line
    assert "the verdicts of its oracle on every move (verifiable_process); starts in reach" in line
    assert "warm-up" in line
    assert "rewards of its steps" not in line
    assert "The policy can begin" in found.conclusion()
    # The method's signal tells it by name.
    turned = replace(found.signal, signals=dict(reversed(found.signal.signals.items())))
    assert replace(found, signal=turned).conclusion() == found.conclusion()
    alone = replace(found.signal, signals={"verifiable_process": found.signal.signals["verifiable_process"]})
    assert "The outcome" not in str(replace(found, signal=alone))


def test_updates_of_the_critic_alone_are_left_out_of_a_signal(recipe: Callable[..., Path]) -> None:
    path = recipe(method="ppo", critic_first_updates=9, task_options={"size": 4, "blanks": 1})
    found = preview(["--config", str(path)], tasks=4, shown=0, collections=3)
    assert found.signal is not None
    assert found.signal.signals["ppo"].silent < 1


def test_the_outcome_is_silent_where_no_collection_has_a_gradient(recipe: Callable[..., Path]) -> None:
    found = preview(["--config", str(recipe())], tasks=2, shown=0, collections=3)
    assert found.signal is not None
    outcome = replace(found.signal.signals["outcome_reward"], silent=0.9)
    unclear = replace(outcome, signal=Interval(mean=0.0, low=-1.0, high=1.0, confidence=0.95, n=3))
    for one, says in ((unclear, "says little: "), (replace(unclear, silent=1.0), "is silent: ")):
        signals = {**found.signal.signals, "outcome_reward": one}
        assert f"The outcome {says}" in str(replace(found, signal=replace(found.signal, signals=signals)))


def test_success_is_that_of_episodes_from_first_states(recipe: Callable[..., Path]) -> None:
    found = preview(["--config", str(recipe()), "--starts", "oracle"], tasks=8, shown=0, collections=3)
    assert found.signal is not None
    assert found.signal.signals["verifiable_process"].success.n == 3 * 2  # of eight rows a quarter begins first


def test_seconds_and_memory_are_those_of_an_update_whose_every_row_is_read(
    recipe: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    score = RowTrainer.scores_of_rows

    def scored(trainer: Any, model: Any, rows: dict[str, Any], *asked: Any, **more: Any) -> Any:
        read.append(len(rows["prompt_ids"]))
        return score(trainer, model, rows, *asked, **more)

    monkeypatch.setattr(RowTrainer, "scores_of_rows", scored)
    path = recipe(task_options={"size": 4, "blanks": 12})
    found = preview(["--config", str(path), "--method", "outcome_reward"], tasks=4, shown=0, collections=2)
    assert found.metrics["advantages/zero"] == 1
    *whole, last = read
    assert (sum(whole) > 4, last) == (True, 1)


def test_a_task_without_an_oracle_is_advised_only_what_it_has() -> None:
    assert [*_at_hand(relay(4), [])] == [
        "starts in reach, late in walks of its own player, as its states are restored by replay",
        "a warm-up on its own player (hf-credit warm-up)",
    ]
    reply: dict[str, Any] = {"role": "agent", "context_ids": (), "action_ids": (), "logprobs": None}
    steps = [Decision(state=place, action_text="", reward=1.0, **reply) for place in range(2)]
    paid = Episode(decisions=tuple(steps), outcome=1.0, ending=Ending.FINISHED)
    assert any("the rewards of its steps" in one for one in _at_hand(relay(4), [paid]))
    last = replace(paid, decisions=(replace(steps[0], reward=0.0), steps[1]))
    assert not any("the rewards of its steps" in one for one in _at_hand(relay(4), [last]))
