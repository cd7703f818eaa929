from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from picture_strip import red_cell, strip
from rich.console import Console
from transformers import TrainerControl, TrainerState, TrainingArguments

from hf_credit import CreditConfig
from hf_credit.checkpoints import flaw
from hf_credit.cli.progress import Progress
from hf_credit.cli.training_progress import ShowProgress, note
from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.environments.actions import tag
from hf_credit.evaluation.credited import (
    EPISODES_FILE,
    CreditedDecision,
    CreditedEpisode,
    CreditedReply,
    read_episodes,
)
from hf_credit.evaluation.runs import read_log, read_run
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import Chat, Decision, Ending, Engine, EnvironmentInteraction, Episode
from hf_credit.tasks.spec import TASK_FILE, TaskSpec
from hf_credit.trainers.recording import EpisodeRecorder, RunRecorder, log_rows
from hf_credit.trainers.training import hardware


@pytest.fixture
def args(tmp_path: Path) -> TrainingArguments:
    return TrainingArguments(output_dir=str(tmp_path / "run"), use_cpu=True)


@pytest.fixture
def recorder() -> RunRecorder:
    return RunRecorder({"max_steps": 3, "hub_token": "abc"}, {"method": "m"})


def train(recorder: RunRecorder, args: TrainingArguments, first: int, last: int, is_main: bool = True) -> None:
    """Calls a callback as a trainer does in a run from step `first` to step `last`."""
    state = TrainerState(global_step=first - 1, is_world_process_zero=is_main, max_steps=last)
    recorder.on_train_begin(args, state, TrainerControl())
    for step in range(first, last + 1):
        state.global_step = step
        recorder.on_log(args, state, TrainerControl(), logs={"reward": step / 10, "epoch": 1.0})


def test_a_run_writes_settings_facts_and_log(recorder: RunRecorder, args: TrainingArguments) -> None:
    train(recorder, args, 1, 3)
    run = read_run(Path(args.output_dir or ""))
    assert run.config == {"max_steps": 3}
    assert run.facts["method"] == "m"
    assert "torch" in run.facts["versions"]
    assert run.curve("reward") == ([1, 2, 3], [0.1, 0.2, 0.3])


def test_a_new_run_in_the_same_folder_starts_a_new_log(recorder: RunRecorder, args: TrainingArguments) -> None:
    train(recorder, args, 1, 3)
    (Path(args.output_dir or "") / "metrics.jsonl").write_text("broken\n")  # of a run that nobody goes on with
    train(recorder, args, 1, 2)
    assert [entry["step"] for entry in read_log(Path(args.output_dir or "") / "metrics.jsonl")] == [1, 2]


def test_a_resumed_run_drops_entries_after_its_checkpoint(recorder: RunRecorder, args: TrainingArguments) -> None:
    train(recorder, args, 1, 5)
    train(recorder, args, 4, 4)
    assert [entry["step"] for entry in read_log(Path(args.output_dir or "") / "metrics.jsonl")] == [1, 2, 3, 4]


def test_only_the_main_process_writes(recorder: RunRecorder, args: TrainingArguments) -> None:
    train(recorder, args, 1, 3, is_main=False)
    assert not Path(args.output_dir or "").exists()


# Recorded episodes

MADE = Decision(role="agent", state=None, context_ids=(10,), action_ids=(11,), logprobs=None, action_text="x" * 3_000)
PLAYED = Episode(decisions=(MADE,), outcome=0.5, ending=Ending.FINISHED)


def after(step: int, engine: Any = None) -> Any:
    """A trainer after so many updates, whose method says nothing of the credit of others."""
    state = SimpleNamespace(global_step=step)
    return SimpleNamespace(model=SimpleNamespace(training=True), state=state, method=None, engine=engine)


def played(recorder: EpisodeRecorder, args: TrainingArguments, first: int, last: int, every: int = 1) -> list[int]:
    """Returns the updates in the file after the recorder has received updates `first` to `last`, of two tasks each."""
    state = TrainerState(global_step=first - 1, logging_steps=every, is_world_process_zero=True)
    recorder.on_train_begin(args, state, TrainerControl())
    samples = (Rollout(episode=PLAYED, instance=0), Rollout(episode=PLAYED, instance=1))
    for update in range(first, last + 1):
        recorder.on_episodes(after(update - 1), RolloutBatch(rollouts=samples, rows=2), [[float(update)], [None]])
    recorded = read_episodes(args.output_dir or "")
    assert all(one.decisions[0].credit in (one.update, None) for one in recorded)
    return [one.update for one in recorded]


def test_the_first_update_and_those_that_are_logged_are_recorded(args: TrainingArguments, tokenizer: Any) -> None:
    assert played(EpisodeRecorder(tokenizer, 1), args, 1, 11, every=5) == [1, 5, 10]
    assert played(EpisodeRecorder(tokenizer, 2), args, 1, 2, every=5) == [1, 1]  # a new run starts a new file


def test_a_resumed_run_keeps_what_was_recorded_before_its_checkpoint(args: TrainingArguments, tokenizer: Any) -> None:
    played(EpisodeRecorder(tokenizer, 1), args, 1, 6, every=2)
    assert played(EpisodeRecorder(tokenizer, 1), args, 5, 8, every=2) == [1, 2, 4, 6, 8]


def test_the_file_is_bounded_by_recording_half_as_often(args: TrainingArguments, tokenizer: Any) -> None:
    # The sixth episode of some 3,400 bytes is too many: after update 6 come 8 and 10, after 12 comes 16, after 24, 32.
    assert played(EpisodeRecorder(tokenizer, 1, max_bytes=20_000), args, 1, 40) == [1, 10, 20, 32, 40]
    assert (Path(args.output_dir or "") / EPISODES_FILE).stat().st_size <= 20_000


def test_the_images_of_dropped_updates_are_removed_and_those_of_others_stay(
    args: TrainingArguments, tokenizer: Any
) -> None:
    world = strip(options={"render_mode": "rgb_array"}, turns=9, self_contained=True)
    interaction = EnvironmentInteraction(world, history="current")
    engine = Engine(interaction, Chat(tokenizer_of([world.instructions])), lambda contexts: [])
    folder, states = Path(args.output_dir or ""), [interaction.start({}, 0)]
    for _ in range(2):
        states.append(interaction.advance(states[-1], [tag("right")]))
    for first in (0, 1):  # a new run starts a new folder
        recorder = EpisodeRecorder(tokenizer, 1, max_bytes=10_000)
        recorder.on_train_begin(args, TrainerState(is_world_process_zero=True, logging_steps=1), TrainerControl())
        assert not list(folder.glob("pictures/*"))
        for step, state in enumerate(states[first:]):
            made = replace(MADE, state=state)
            batch = RolloutBatch(rollouts=(Rollout(episode=replace(PLAYED, decisions=(made,)), instance=0),), rows=1)
            recorder.on_episodes(after(step, engine), batch, [[1.0]])
        shown = [red_cell(one.decisions[0].messages[-1][1][-1]) for one in read_episodes(folder)]
        assert shown == ([0, 2] if first == 0 else [1, 2])
        assert len(list(folder.glob("pictures/*"))) == 2


def test_no_episode_is_recorded_with_log_episodes_0(args: TrainingArguments, tokenizer: Any) -> None:
    assert played(EpisodeRecorder(tokenizer, 0), args, 1, 3) == []


def test_a_damaged_record_does_not_stop_a_run(args: TrainingArguments, tokenizer: Any) -> None:
    Path(args.output_dir or "").mkdir()
    (Path(args.output_dir or "") / EPISODES_FILE).write_text("{}\n")
    assert played(EpisodeRecorder(tokenizer, 1), args, 3, 4) == [3, 4]


def test_a_checkpoint_is_complete_only_with_its_task(trained_run: Path, tmp_path: Path) -> None:
    checkpoint = shutil.copytree(trained_run / "checkpoint-1", tmp_path / "checkpoint-1")
    assert flaw(checkpoint) is None
    assert TaskSpec.load(checkpoint) == TaskSpec.load(trained_run)
    (checkpoint / TASK_FILE).unlink()
    assert flaw(checkpoint) == f"whose {TASK_FILE} is missing"


def test_progress_shows_the_update_and_the_latest_numbers(
    args: TrainingArguments, capsys: pytest.CaptureFixture[str]
) -> None:
    state = TrainerState(global_step=0, max_steps=2)
    with Progress() as progress:
        shown = ShowProgress(progress)
        shown.on_train_begin(args, state, TrainerControl())
        for step in (1, 2):
            state.global_step = step
            shown.on_step_end(args, state, TrainerControl())
            logs = {"reward": 0.25 * step, "loss": 1.0, "oracle/valid": 0.5}
            shown.on_log(args, state, TrainerControl(), logs=logs)
        shown.on_log(args, state, TrainerControl(), logs={"train_runtime": 1.0, "train_loss": 1.0})
        shown.on_train_end(args, state, TrainerControl())
    assert capsys.readouterr().err == "updates ...\nupdates: 2/2 loss 1.000, reward 0.500, oracle/valid 0.500\n"


def test_progress_of_a_training_that_tokens_end_counts_tokens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state = TrainerState(global_step=0, max_steps=1000)
    args = CreditConfig(output_dir=str(tmp_path), max_sampled_tokens=100, use_cpu=True, bf16=False)
    with Progress() as progress:
        shown = ShowProgress(progress)
        shown.on_train_begin(args, state, TrainerControl())
        for step, tokens in ((1, 60.0), (2, 120.0)):
            state.global_step = step
            shown.on_step_end(args, state, TrainerControl())
            state.log_history.append({"budget/completion_tokens": tokens, "reward": 0.5})
            shown.on_log(args, state, TrainerControl(), logs=state.log_history[-1])
        shown.on_train_end(args, state, TrainerControl())
    assert capsys.readouterr().err == "tokens sampled ...\ntokens sampled: 120/100 reward 0.500\n"


def test_an_evaluation_has_a_separate_line(args: TrainingArguments, capsys: pytest.CaptureFixture[str]) -> None:
    state = TrainerState(global_step=0, max_steps=2)
    with Progress() as progress:
        shown = ShowProgress(progress)
        shown.on_train_begin(args, state, TrainerControl())
        state.global_step = 1
        shown.on_log(args, state, TrainerControl(), logs={"eval_reward": 0.5})
        shown.on_evaluate(args, state, TrainerControl(), metrics={"eval_reward": 0.5, "eval_success": 0.25})
        state.global_step = 2
        shown.on_train_end(args, state, TrainerControl())
    line = "update 1, evaluated: eval_reward 0.500, eval_success 0.250"
    assert capsys.readouterr().err == f"updates ...\n{line}\nupdates: 2/2\n"


def test_what_a_long_update_does_is_a_line_or_the_note_of_a_bar(
    args: TrainingArguments, capsys: pytest.CaptureFixture[str]
) -> None:
    state = TrainerState(global_step=3, max_steps=8)
    with Progress() as progress:
        shown = ShowProgress(progress)
        shown.on_train_begin(args, state, TrainerControl())
        shown.on_pulse("update 4: generating, 3 of 8 episodes")
        assert capsys.readouterr().err == "updates ...\nupdate 4: generating, 3 of 8 episodes\n"
        progress.console = Console(force_terminal=True)
        shown.note = "loss 1.000"
        shown.on_pulse("update 4: learning")
    assert capsys.readouterr().err == ""
    assert progress.bars.tasks[0].fields["note"] == "loss 1.000 | update 4: learning"


def test_a_note_contains_the_logged_metrics() -> None:
    assert note({"success": 0.5, "loss": 3, "reward": "none", "kl": 1.0}) == "loss 3.000, success 0.500"
    assert note({"endings/error": 0.0, "reward": 1.0}) == "reward 1.000"
    assert note({"endings/error": 0.25, "reward": 1.0}) == "reward 1.000, endings/error 0.250"
    assert note({"eval_hard_reward": 0.25, "eval_runtime": 9.0}) == "eval_hard_reward 0.250"
    assert note({}) == ""


def test_the_hardware_has_a_name() -> None:
    assert json.dumps(hardware())


# The table of completions


def credited(*decisions: CreditedDecision, **changes: Any) -> CreditedEpisode:
    return CreditedEpisode(**{"decisions": decisions, "outcome": 0.5, "ending": "finished"} | changes)


def test_an_episode_is_logged_decision_by_decision() -> None:
    first = CreditedDecision(
        role="smith", event="draft", context="Which word?", reply="attic", reward=0.25, credit=-1.0
    )
    other = CreditedReply(reply="cellar", outcomes=(1.0, 0.0), credit=0.5)
    second = replace(first, role="poet", reply="end", credit=None, verdict=1.0, valid=True, alternatives=(other,))
    row, last = log_rows(credited(first, second, ending="truncated"), 7)
    assert (row["prompt"], row["completion"], row["advantage"]) == ("Which word?", "attic", -1.0)
    assert row["rewards"] == pytest.approx({"reward": 0.25, "verdict": math.nan, "outcome": 0.5}, nan_ok=True)
    assert row["extra"] == {
        "episode": 7, "turn": 0, "role": "smith", "event": "draft", "ending": "truncated", "alternatives": "",
    }  # fmt: skip
    assert math.isnan(last["advantage"])
    assert last["rewards"]["verdict"] == 1.0
    assert last["extra"]["alternatives"] == "'cellar': outcomes 1, 0, advantage +0.5"


def test_a_shared_decision_is_logged_once() -> None:
    own = CreditedDecision(role="agent", event="agent", context="", reply="here")
    assert [row["completion"] for row in log_rows(credited(replace(own, reply="there", inherited=True), own), 0)] == [
        "here"
    ]
