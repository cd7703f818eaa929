"""A run that cannot learn warns once, with the likely cause; a script's log is short, and all of it is kept."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from hf_credit import make
from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.rollouts import Decision, Ending, EnvironmentInteraction, Episode
from hf_credit.trainers.callbacks import (
    BriefPrinter,
    WarnOfIdleCritics,
    WarnWithoutSignal,
    headlines,
    likely_cause,
    unread_replies,
)

NOTHING = {"reward": 0.0, "advantages/zero": 1.0, "entropy": 1.0}
SIGNAL = {"reward": 0.1, "advantages/zero": 0.5}


def warnings_of(
    logs: Mapping[int, Mapping[str, float]],
    caplog: pytest.LogCaptureFixture,
    watch: TrainerCallback | None = None,
    begun: int = 0,
) -> list[str]:
    """The warnings of a run with these logs."""
    watch, control, args = (
        watch or WarnWithoutSignal(),
        TrainerControl(),
        TrainingArguments(use_cpu=True, report_to="none"),
    )
    state = TrainerState(is_world_process_zero=True, global_step=begun)
    watch.on_train_begin(args, state, control, model=torch.nn.Linear(1, 1))
    for step, entry in logs.items():
        state.global_step = step
        state.log_history.append(dict(entry))
        watch.on_log(args, state, control, logs=dict(entry))
    watch.on_log(args, state, control, logs={"train_runtime": 1.0})
    watch.on_train_end(args, state, control)
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_ten_updates_without_a_signal_warn_once(caplog: pytest.LogCaptureFixture) -> None:
    (warning,) = warnings_of(dict.fromkeys(range(1, 31), NOTHING), caplog)
    assert warning.startswith(
        "nothing was learned in the last 10 updates, as no decision has an advantage other than 0"
    )


def test_updates_that_are_not_logged_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    (warning,) = warnings_of({4: SIGNAL, 8: NOTHING, 16: NOTHING, 24: NOTHING}, caplog)
    assert "in the last 12 updates" in warning


def test_a_short_run_without_any_signal_warns_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    (warning,) = warnings_of({1: NOTHING, 2: NOTHING}, caplog)
    assert "in the last 2 updates" in warning


def test_a_short_resumed_run_without_any_signal_warns_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    (warning,) = warnings_of({41: NOTHING, 43: NOTHING}, caplog, begun=40)
    assert "in the last 3 updates" in warning


@pytest.mark.parametrize(
    "logs",
    [
        {step: NOTHING if step % 10 else SIGNAL for step in range(1, 40)},
        {1: SIGNAL, 2: NOTHING},
        {1: SIGNAL, 20: {"eval_reward": 0.0, "eval_endings/error": 0.0}},
    ],
)
def test_an_occasional_signal_is_enough(
    logs: Mapping[int, Mapping[str, float]], caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings_of(logs, caplog) == []


@pytest.mark.parametrize("updates", [3, 30])
def test_an_input_of_the_method_that_no_episode_has_warns_once(updates: int, caplog: pytest.LogCaptureFixture) -> None:
    absent = {**SIGNAL, "inputs/rewards before the last turn": 0.0}
    (warning,) = warnings_of(dict.fromkeys(range(1, updates + 1), absent), caplog)
    assert warning.startswith("The method reads rewards before the last turn, which no episode had,")


def test_an_input_that_some_update_lacks_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    shares = {1: 0.0, 2: 0.5, **dict.fromkeys(range(3, 30), 0.0)}
    assert warnings_of({step: {**SIGNAL, "inputs/speed": share} for step, share in shares.items()}, caplog) == []


@pytest.mark.parametrize(
    ("logs", "cause"),
    [
        ({"endings/error": 0.75}, "75% of episodes ended in errors; fix the code"),
        ({"replies/cut": 0.96}, "96% of replies reached the length limit; raise max_completion_length."),
        ({"entropy": 1e-5}, "the policy's entropy is 1e-05 nats"),
        ({}, "have equal outcomes (mean 0); take easier or harder tasks"),
        ({"reward": 1.0}, "have equal outcomes (mean 1)"),
    ],
)
def test_the_warning_has_the_likely_cause(logs: Mapping[str, float], cause: str) -> None:
    assert cause in likely_cause({**NOTHING, **logs})


def test_unreadable_replies_are_the_cause_before_equal_outcomes(caplog: pytest.LogCaptureFixture) -> None:
    interaction = EnvironmentInteraction(make("sudoku", size=4))
    state = interaction.start(interaction.environment.sample_task(0), 0)
    said = "Sure!\x1b]0;owned\x07 " + "ha" * 1000
    reply = Decision(role="agent", state=state, context_ids=(1,), action_ids=(2,), logprobs=None, action_text=said)
    lost = Episode(decisions=(reply,), outcome=0.0, ending=Ending.INVALID_ACTION)
    watch = WarnWithoutSignal()
    trainer = SimpleNamespace(model=SimpleNamespace(training=True), interaction=interaction)
    played = RolloutBatch(rollouts=tuple(Rollout(episode=lost, instance=place) for place in range(4)), rows=4)
    watch.on_episodes(trainer, played, [[0.0]] * 4)
    (warning,) = warnings_of({1: {**NOTHING, "endings/invalid_action": 1.0, "replies/cut": 0.25}}, caplog, watch)
    assert "(endings: invalid_action 100%; replies cut: 25%): 4 of 4 episodes have a reply without" in warning
    assert "'Sure!\\x1b]0;owned\\x07 haha" in warning
    assert "reads, for example, '<action>" in warning
    assert (len(warning) < 800, warning.isprintable()) == (True, True)
    assert unread_replies(interaction, [lost, *[replace(lost, decisions=(), ending=Ending.FINISHED)] * 2]) is None


def test_the_warning_names_a_method_without_credit() -> None:
    assert likely_cause({"reward": 0.0}).startswith("the method credits no decision")


@pytest.mark.parametrize("reward", [None, 0.0])
def test_late_starts_without_signal_have_a_cause_of_their_own(reward: float | None) -> None:
    cause = likely_cause({"advantages/zero": 1.0, "reward": reward, "starts/later": 0.5})
    assert "episodes that begin in one state have equal outcomes" in cause


LOGS = {"kl": 0.5, "reward": 0.25, "loss": 1.0, "roles/a/advantages/zero": 0.5, "advantages/zero": 0.75, "epoch": 1}


def test_headlines_are_few_and_in_a_fixed_order() -> None:
    assert list(headlines(LOGS).items()) == [("loss", 1.0), ("reward", 0.25), ("advantages/zero", 0.75)]
    assert headlines({"eval_hard_reward": 1.0, "eval_kl": 2.0, "success": True}) == {"eval_hard_reward": 1.0}
    assert headlines({"train_runtime": 2.0, "train_loss": 1.0, "total_flos": 3.0}).keys() >= {
        "train_runtime",
        "train_loss",
    }


def test_failures_are_a_headline_only_if_there_are_any() -> None:
    assert headlines({"endings/error": 0.5}) == {"endings/error": 0.5}
    assert headlines({"endings/error": 0.0}) == {}


def test_a_script_prints_headlines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = TrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    BriefPrinter().on_log(args, TrainerState(is_local_process_zero=True), TrainerControl(), logs=dict(LOGS))
    assert capsys.readouterr().out == "{'loss': '1', 'reward': '0.25', 'advantages/zero': '0.75'}\n"


def test_a_warm_up_of_critics_is_no_lack_of_signal(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(dict.fromkeys(range(1, 31), NOTHING | {"critics/alone": 1.0}), caplog) == []


def explained(*values: float) -> dict[int, dict[str, float]]:
    return {step: {"critic/explained_variance": value} for step, value in enumerate(values, start=1)}


def test_a_critic_that_explains_nothing_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    (warning,) = warnings_of(explained(0.5, *[0.01, -0.3] * 20), caplog, WarnOfIdleCritics())
    assert warning.startswith("the critic 'critic' explained at most 0.02 of its targets' variance in the last 20")


def test_an_occasionally_useful_critic_or_constant_targets_do_not_warn(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(explained(*[*[0.0] * 19, 0.3] * 3), caplog, WarnOfIdleCritics()) == []
    assert warnings_of(explained(*[0.0] * 60), caplog, WarnOfIdleCritics()) == []


def test_a_resumed_run_counts_idle_updates_from_its_checkpoint(caplog: pytest.LogCaptureFixture) -> None:
    logs = {step: {"critic/explained_variance": 0.01} for step in range(501, 520)}
    assert warnings_of(logs, caplog, WarnOfIdleCritics(), begun=500) == []
