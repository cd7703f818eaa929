"""A run that is killed repeatedly ends with the result of an uninterrupted run, or is refused with the reason."""

from __future__ import annotations

import copy
import importlib
import json
import logging
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import launched
import pytest
import torch
import transformers
from datasets import Dataset
from huggingface_hub import HfApi, constants
from packaging.version import Version
from peft import LoraConfig
from transformers import TrainerCallback

from hf_credit.checkpoint_store import StoreError
from hf_credit.checkpoints import MANIFEST, flaw, latest_complete
from hf_credit.tasks import TaskSpec
from hf_credit.trainers.callbacks import CheckpointCallback
from local_hub.running import serving

SCRIPT = Path(__file__).with_name("resumed_run.py")
ELASTIC = Path(launched.__file__).with_name("elastic.py")

resumed_on_processors = pytest.mark.skipif(
    Version(transformers.__version__) < Version("5.18"),
    reason="before transformers 5.18 the optimizer of several processes without GPUs is read to cpu:0, which fails",
)
TWO_PROCESSES = {"per_device_train_batch_size": 4, "max_steps": 4, "save_steps": 1}
SHARDED = {
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_VERSION": "2",
    "FSDP_AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
    "FSDP_RESHARD_AFTER_FORWARD": "true",
    "FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT",
}
FOUR_UPDATES_OF_ONE_GENERATION = {
    "instances_per_update": None,
    "per_device_train_batch_size": 4,
    "steps_per_generation": 2,
    "gradient_accumulation_steps": 1,
    "num_iterations": 2,
    "tasks": 32,
}


@pytest.fixture(scope="module")
def runs() -> Iterator[Any]:
    """The script `resumed_run.py` as a module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SCRIPT.parent))
        yield importlib.import_module(SCRIPT.stem)


@pytest.fixture(scope="module")
def start(runs: Any, micro_policy: Path) -> Callable[..., Any]:
    """`start(output, deadly, environment, **settings)`: a run in its own process."""

    def started(
        output: Path, deadly: int | None = None, environment: dict[str, str] | None = None, **settings: Any
    ) -> Any:
        arguments = {"policy": str(micro_policy), "output": str(output), "settings": settings, "deadly": deadly}
        return launched.start(SCRIPT, json.dumps(arguments), log=Path(f"{output}.log"), environment=environment)

    return started


@pytest.fixture(scope="module")
def start_two(start: Callable[..., Any]) -> Callable[..., list[Any]]:
    """The same for the two processes of one run."""

    def started(output: Path, environment: dict[str, str] | None = None, **kwargs: Any) -> list[Any]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        both = {"ACCELERATE_USE_CPU": "true", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        both.update(environment or {})
        return [start(output, environment={**both, "RANK": r, "LOCAL_RANK": r}, **kwargs) for r in "01"]

    return started


def end_of(process: Any, output: Path) -> dict[str, Any]:
    """The result of a run that must succeed."""
    launched.finish(process, Path(f"{output}.log"))
    return json.loads((output / "found.json").read_text())


def policy_of(output: Path) -> bytes:
    return (output / "final" / "model.safetensors").read_bytes()


def killed(process: Any) -> None:
    process.kill()
    process.join()


def killed_while_writing(process: Any, path: Path) -> None:
    """Kills a process as soon as a file has its first bytes."""
    while process.is_alive() and not (path.is_file() and path.stat().st_size > 0):
        time.sleep(0.0005)
    killed(process)


def updates_saved(output: Path) -> int:
    folder = latest_complete(output) if output.is_dir() else None
    return 0 if folder is None else int(folder.name.removeprefix("checkpoint-"))


# A run that is killed ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(
            {"save_total_limit": 1, "tasks": 80, "lr_scheduler_type": "constant"}, id="more tasks than the run plays"
        ),
        pytest.param({"tasks": 16}, id="three passes over the tasks"),
        pytest.param(FOUR_UPDATES_OF_ONE_GENERATION, id="four updates of one generation"),
    ],
)
def test_a_run_killed_at_random_points_ends_with_bitwise_the_policy_of_an_uninterrupted_run(
    start: Callable[..., Any], tmp_path: Path, settings: dict[str, Any]
) -> None:
    whole, output = tmp_path / "whole", tmp_path / "killed"
    expected = end_of(start(whole, **settings), whole)
    points = random.Random(str(settings))
    saved = 0
    for attempt in range(4):
        if attempt == 0:  # by the clock, hence anywhere
            process = start(output, **settings)
            process.join(points.uniform(0, 3))
            killed(process)
        elif attempt == 1:
            killed_while_writing(start(output, **settings), output / f"checkpoint-{saved + 2}" / "optimizer.pt")
        else:
            process = start(output, deadly=points.randint(1, len(expected["touches"]) // 3), **settings)
            process.join()
            assert process.exitcode in (-signal.SIGKILL, 0)
        assert updates_saved(output) >= saved
        saved = updates_saved(output)
    for _ in range(2):  # the second time there is nothing left to do
        found = end_of(start(output, **settings), output)
        assert policy_of(output) == policy_of(whole)
        assert found["log"] == expected["log"]


def test_the_last_complete_checkpoint_survives_an_incomplete_one(start: Callable[..., Any], tmp_path: Path) -> None:
    settings = {"max_steps": 2, "save_total_limit": 1}
    touches = end_of(start(tmp_path / "whole", **settings), tmp_path / "whole")["touches"]
    # Everything of the second checkpoint is written, and its manifest, renamed last, is about to get its name.
    last = max(place for place, touch in enumerate(touches) if touch.startswith("os.rename checkpoint-2/"))
    output = tmp_path / "killed"
    process = start(output, deadly=last + 1, **settings)
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert (output / "checkpoint-2" / "optimizer.pt").is_file()
    assert latest_complete(output) == output / "checkpoint-1"
    end_of(start(output, **settings), output)
    assert [path.name for path in output.glob("checkpoint-*")] == ["checkpoint-2"]
    assert policy_of(output) == policy_of(tmp_path / "whole")


@resumed_on_processors
def test_two_processes_of_which_one_is_killed_end_with_bitwise_the_policy_of_an_uninterrupted_run(
    start_two: Callable[..., list[Any]], runs: Any, micro_policy: Path, tmp_path: Path
) -> None:
    """The agent of `torchrun` kills the other process, and restarts both."""
    settings = TWO_PROCESSES
    whole, output = tmp_path / "whole", tmp_path / "killed"
    expected, _ = (end_of(process, whole) for process in start_two(whole, **settings))
    assert expected["processes"] == 2
    deadly = random.Random(0).randint(len(expected["touches"]) // 4, len(expected["touches"]))
    arguments = {"policy": str(micro_policy), "output": str(output), "settings": settings, "deadly": deadly}
    environment = {
        "ACCELERATE_USE_CPU": "true",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # otherwise restarted processes look for the dead ones
    }
    log = tmp_path / "elastic.log"
    agent = launched.start(ELASTIC, SCRIPT, json.dumps(arguments), log=log, environment=environment)
    launched.finish(agent, log)
    assert "exitcode: -9" in Path(f"{log}.err").read_text()
    found = json.loads((output / "found.json").read_text())
    assert found["processes"] == 2
    assert found["log"] == expected["log"]
    assert policy_of(output) == policy_of(whole)
    # One process alone would see other episodes.
    alone = {**settings, "instances_per_update": 8}
    with pytest.raises(ValueError, match=r"processes 1 in place of 2 .*resume_with_changed=.*'processes'"):
        runs.build(micro_policy, output, **alone).train(resume_from_checkpoint=output / "checkpoint-3")
    accepted = ["processes", "gradient_accumulation_steps", "steps_per_generation"]
    trainer = runs.build(micro_policy, output, **alone, resume_with_changed=accepted)
    trainer.train(resume_from_checkpoint=output / "checkpoint-3")
    assert trainer.state.global_step == 4


@resumed_on_processors
def test_two_processes_on_cpus_resume_with_the_tensors_of_their_critics_copies_and_rollouts(
    start_two: Callable[..., list[Any]], tmp_path: Path
) -> None:
    whole, output = tmp_path / "whole", tmp_path / "resumed"
    settings = {**TWO_PROCESSES, "max_steps": 2, "method": "ppo", "num_iterations": 2}
    expected, _ = (end_of(process, whole) for process in start_two(whole, **settings))
    shutil.copytree(whole / "checkpoint-1", output / "checkpoint-1")  # within a generation
    found, _ = (end_of(process, output) for process in start_two(output, **settings))
    assert found["processes"] == expected["processes"] == 2
    assert found["log"] == expected["log"]
    assert policy_of(output) == policy_of(whole)


def test_a_killed_sharded_run_ends_with_bitwise_the_policy_of_an_uninterrupted_run(
    start_two: Callable[..., list[Any]], tmp_path: Path
) -> None:
    whole, output = tmp_path / "whole", tmp_path / "killed"
    settings = {**TWO_PROCESSES, "max_steps": 3}
    expected, _ = (end_of(process, whole) for process in start_two(whole, SHARDED, **settings))
    assert (expected["processes"], expected["kind"]) == (2, "FSDP")
    deadly = random.Random(1).randint(len(expected["touches"]) // 3, len(expected["touches"]))
    first, second = start_two(output, SHARDED, deadly=deadly, **settings)
    first.join()
    assert first.exitcode == -signal.SIGKILL
    killed(second)
    assert updates_saved(output) > 0
    found, _ = (end_of(process, output) for process in start_two(output, SHARDED, **settings))
    assert found["log"] == expected["log"]
    assert policy_of(output) == policy_of(whole)


def test_a_finished_run_does_not_write_its_last_checkpoint_again(
    runs: Any, micro_policy: Path, tmp_path: Path
) -> None:
    def train() -> int:
        runs.build(micro_policy, tmp_path, max_steps=1, tasks=16, save_strategy="epoch").train(True)
        return (tmp_path / "checkpoint-1" / MANIFEST).stat().st_mtime_ns

    assert train() == train()


def test_a_run_whose_tokens_are_spent_ends_and_goes_on_only_with_more(
    runs: Any, micro_policy: Path, tmp_path: Path
) -> None:
    def train(most: int) -> tuple[int, int]:
        trainer = runs.build(micro_policy, tmp_path, max_steps=3, tasks=32, max_sampled_tokens=most)
        trainer.train(True)
        return trainer.state.global_step, trainer.ledger.completion_tokens

    step, spent = train(1)
    assert (step, spent > 1) == (1, True)
    assert train(spent) == (step, spent)
    assert train(spent + 1)[0] == 2


def test_a_run_whose_tokens_are_spent_is_saved_and_evaluated_at_its_last_step(
    runs: Any, micro_policy: Path, tmp_path: Path
) -> None:
    settings = {"save_steps": 100, "eval_strategy": "steps", "eval_steps": 100, "max_sampled_tokens": 1}
    held_out = {"eval_dataset": Dataset.from_list([{"seed": seed} for seed in range(2)])}
    trainer = runs.build(micro_policy, tmp_path, max_steps=3, tasks=32, trainer_kwargs=held_out, **settings)
    trainer.train()
    assert (tmp_path / "checkpoint-1" / MANIFEST).is_file()
    assert any("eval_reward" in entry for entry in trainer.state.log_history)


# A disk that is full ----------------------------------------------------------------------------------------------


class BeforeSecondUpdate(TrainerCallback):
    """Does something once the first checkpoint is complete."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.act = act

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 1:
            self.act()


def weights(trainer: Any) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def assert_same_weights(trainer: Any, expected: dict[str, torch.Tensor]) -> None:
    for name, value in weights(trainer).items():
        assert torch.equal(value, expected[name]), name


@pytest.fixture(scope="module")
def two_updates(
    runs: Any, micro_policy: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, torch.Tensor]]:
    """The folder of a run of two updates with a checkpoint after each, and the weights it ends with."""
    trainer = runs.build(micro_policy, tmp_path_factory.mktemp("two"), max_steps=2, tasks=16)
    trainer.train()
    return Path(trainer.args.output_dir), weights(trainer)


def assert_refused_and_resumed(
    runs: Any, policy: Path, output: Path, fill: Callable[[], None], empty: Callable[[], None], expected: Any
) -> None:
    trainer = runs.build(
        policy, output, max_steps=2, tasks=16, trainer_kwargs={"callbacks": [BeforeSecondUpdate(fill)]}
    )
    message = (
        rf"a checkpoint must be written to its end, got .* in {output}/checkpoint-2 with .* MiB left .*; make room"
    )
    try:
        with pytest.raises(OSError, match=message) as refusal:
            trainer.train()
    finally:
        empty()
    assert "\n" not in str(refusal.value)
    assert latest_complete(output) == output / "checkpoint-1"
    trainer = runs.build(policy, output, max_steps=2, tasks=16)
    trainer.train(resume_from_checkpoint=True)
    assert_same_weights(trainer, expected)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_a_full_disk_is_reported_in_one_sentence_and_complete_checkpoints_remain(
    runs: Any, micro_policy: Path, tmp_path: Path, two_updates: tuple[Path, Any], share: float
) -> None:
    """`share`: the fraction of the second checkpoint that fits on the disk."""
    disk, needed = tmp_path / "disk", sum(path.stat().st_size for path in (two_updates[0] / "checkpoint-2").iterdir())
    disk.mkdir()
    if shutil.which("mount") is None:
        pytest.skip("a small disk cannot be mounted here: there is no mount")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={4 * needed}", "none", str(disk)], capture_output=True, text=True
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    filler = disk / "filler"
    try:
        assert_refused_and_resumed(
            runs,
            micro_policy,
            disk / "run",
            lambda: filler.write_bytes(bytes(shutil.disk_usage(disk).free - int(share * needed))),
            filler.unlink,
            two_updates[1],
        )
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_a_limit_of_file_size_is_reported_in_one_sentence(
    runs: Any, micro_policy: Path, tmp_path: Path, two_updates: tuple[Path, Any]
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    room = (two_updates[0] / "checkpoint-2" / "optimizer.pt").stat().st_size - 1
    assert_refused_and_resumed(
        runs,
        micro_policy,
        tmp_path / "run",
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1])),
        lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before),
        two_updates[1],
    )


# A checkpoint that does not do ------------------------------------------------------------------------------------


@pytest.fixture
def saved(two_updates: tuple[Path, Any], tmp_path: Path) -> Path:
    """A copy of the run of two updates."""
    return Path(shutil.copytree(two_updates[0], tmp_path / "saved"))


class AnyDigit:
    def valid_actions(self, state: Any) -> frozenset[str]:
        return frozenset()

    def score(self, state: Any, action: str) -> float:
        return 1.0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"learning_rate": 0.1}, "learning_rate 0.1 in place of 0.001"),
        ({"max_steps": 3}, "max_steps 3 in place of 2"),
        ({"tasks": 24}, "tasks 24 in place of 16"),
        ({"seed": 1}, "seed 1 in place of 42"),
        ({"blanks": 5}, r"task\.task_options\.blanks 5 in place of 4"),
        (
            {"trainer_kwargs": {"oracle": AnyDigit()}},
            r"method\.collector\.oracle\.is '.*AnyDigit' in place of '.*SudokuConstraintsOracle'",
        ),
        ({"trainer_kwargs": {"peft_config": LoraConfig(r=4)}}, r"adapter \[\{'r': 4, 'lora_alpha': 8\}\] in place of"),
        ({"learning_rate": 0.1, "seed": 1}, "learning_rate 0.1 in place of 0.001, .*seed 1 in place of 42"),
        ({"sync_ref_model": True, "beta": 0.1}, "sync_ref_model=False only, got True"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_in_one_sentence(
    runs: Any, micro_policy: Path, saved: Path, changed: dict[str, Any], message: str
) -> None:
    trainer = runs.build(micro_policy, saved, **{"max_steps": 2, "tasks": 16, **changed})
    with pytest.raises(ValueError, match=rf"{message}.*checkpoint-2.*resume_with_changed=") as refusal:
        trainer.train(resume_from_checkpoint=True)
    assert "\n" not in str(refusal.value)
    assert trainer.state.global_step == 0


def test_a_change_is_accepted_by_its_name(runs: Any, micro_policy: Path, saved: Path) -> None:
    changed = {"max_steps": 3, "learning_rate": 0.1, "resume_with_changed": ["learning_rate", "max_steps"]}
    trainer = runs.build(micro_policy, saved, tasks=16, **changed)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.state.global_step == 3


def test_a_run_resumed_with_other_slices_begins_its_generations_at_updates(
    runs: Any, micro_policy: Path, saved: Path
) -> None:
    accepted = ["max_steps", "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation"]
    changed = {"instances_per_update": 8, "per_device_train_batch_size": 2, "resume_with_changed": accepted}
    trainer = runs.build(micro_policy, saved, tasks=16, max_steps=3, **changed)
    trainer.train(resume_from_checkpoint=True)
    assert trainer.slices == [4, 4]
    assert (trainer._step, trainer.in_generation) == (4, False)


def test_saving_logging_and_the_folder_may_change(
    runs: Any, micro_policy: Path, saved: Path, tmp_path: Path, two_updates: tuple[Path, Any]
) -> None:
    changed = {"save_steps": 5, "save_total_limit": None, "logging_steps": 2, "log_completions": True}
    trainer = runs.build(micro_policy, tmp_path / "elsewhere", max_steps=2, tasks=16, **changed)
    trainer.train(resume_from_checkpoint=saved / "checkpoint-1")
    assert trainer.state.save_steps == 5
    assert_same_weights(trainer, two_updates[1])


def test_a_chosen_checkpoint_must_be_complete(runs: Any, micro_policy: Path, saved: Path) -> None:
    trainer = runs.build(micro_policy, saved, max_steps=2, tasks=16)
    (saved / "checkpoint-2" / "optimizer.pt").unlink()
    with pytest.raises(ValueError, match=r"got .*checkpoint-2, whose optimizer.pt is missing; choose another one"):
        trainer.train(resume_from_checkpoint=str(saved / "checkpoint-2"))
    with pytest.raises(ValueError, match=r"got .*checkpoint-7, which is no folder; choose another one"):
        trainer.train(resume_from_checkpoint=str(saved / "checkpoint-7"))


def test_an_incomplete_checkpoint_is_skipped_with_a_warning_that_names_it(
    runs: Any,
    micro_policy: Path,
    saved: Path,
    two_updates: tuple[Path, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    optimizer = saved / "checkpoint-2" / "optimizer.pt"
    os.truncate(optimizer, optimizer.stat().st_size // 2)
    trainer = runs.build(micro_policy, saved, max_steps=2, tasks=16)
    with caplog.at_level(logging.WARNING, logger="hf_credit"):
        trainer.train(resume_from_checkpoint=True)
    assert re.search(r"skipped the checkpoint .*checkpoint-2, whose optimizer.pt has \d+ bytes", caplog.text)
    assert_same_weights(trainer, two_updates[1])
    assert flaw(saved / "checkpoint-2") is None  # it has been written again


def test_a_checkpoint_of_the_model_only_cannot_be_resumed(runs: Any, micro_policy: Path, tmp_path: Path) -> None:
    trainer = runs.build(micro_policy, tmp_path, max_steps=1, save_only_model=True)
    trainer.train()
    with pytest.raises(ValueError, match="which holds the model only"):
        trainer.train(resume_from_checkpoint=tmp_path / "checkpoint-1")


def test_resuming_a_later_pass_over_a_stream_warns(
    runs: Any, micro_policy: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def trainer() -> Any:
        stream = Dataset.from_list([{"seed": seed} for seed in range(8)]).to_iterable_dataset()
        return runs.build(micro_policy, tmp_path, max_steps=3, trainer_kwargs={"train_dataset": stream})

    trainer().train()
    with caplog.at_level(logging.WARNING, logger="hf_credit"):
        trainer().train(resume_from_checkpoint=tmp_path / "checkpoint-2")
    assert "in a later pass over a stream, which starts with its first task" in caplog.text


def test_no_file_of_a_run_has_the_token_but_pushing_uses_it(runs: Any, micro_policy: Path, tmp_path: Path) -> None:
    settings = {
        "hub_token": "hf_secret_one",
        "model_init_kwargs": {"token": "hf_secret_two", "attn_implementation": "sdpa"},
        "vllm_server_base_url": "http://me:hf_secret_three@host:8000",
    }
    trainer = runs.build(micro_policy, tmp_path, max_steps=1, **settings)
    trainer.train()
    trainer.save_model(tmp_path / "saved")
    trainer.save_state()
    trainer.create_model_card()
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert [path for path, content in written.items() if b"hf_secret" in content] == []
    assert '"attn_implementation": "sdpa"' in (tmp_path / "checkpoint-1" / MANIFEST).read_text()
    for folder in ("checkpoint-1", "saved"):
        args = torch.load(tmp_path / folder / "training_args.bin", weights_only=False)
        assert (args.hub_token, args.model_init_kwargs) == (None, {"attn_implementation": "sdpa"})
        assert args.learning_rate == trainer.args.learning_rate
    for args in (trainer.args, copy.copy(trainer.args), copy.deepcopy(trainer.args)):
        assert args.hub_token == "hf_secret_one"
        assert args.model_init_kwargs["token"] == "hf_secret_two"


class Adds(CheckpointCallback):
    """Adds a file to each checkpoint, or fails on the way from the second on."""

    def on_checkpoint(self, folder: Path) -> None:
        if folder.name != "checkpoint-1":
            raise OSError(28, "No space left on device")
        (folder / "added.txt").write_text("whole")


def test_a_checkpoint_is_complete_only_with_the_files_of_callbacks(
    runs: Any, micro_policy: Path, tmp_path: Path
) -> None:
    trainer = runs.build(micro_policy, tmp_path, max_steps=2, tasks=16, trainer_kwargs={"callbacks": [Adds()]})
    with pytest.raises(OSError, match=r"a checkpoint must be written to its end, got .*No space left"):
        trainer.train()
    assert latest_complete(tmp_path) == tmp_path / "checkpoint-1"
    (tmp_path / "checkpoint-1" / "added.txt").write_text("other")
    assert flaw(tmp_path / "checkpoint-1") == "whose added.txt is not what was written"


# What else is resumed, and pushed ---------------------------------------------------------------------------------


def test_an_adapter_is_resumed_bitwise(runs: Any, micro_policy: Path, tmp_path: Path) -> None:
    def trainer() -> Any:
        adapter = LoraConfig(r=4, target_modules="all-linear", lora_dropout=0.1)
        return runs.build(
            micro_policy, tmp_path, max_steps=3, beta=0.1, tasks=24, trainer_kwargs={"peft_config": adapter}
        )

    whole = trainer()
    whole.train()
    resumed = trainer()
    resumed.train(resume_from_checkpoint=tmp_path / "checkpoint-2")
    assert resumed.state.global_step == 3
    assert_same_weights(resumed, weights(whole))


def test_a_date_that_the_template_writes_is_that_of_the_first_day(
    runs: Any, micro_policy: Path, tmp_path: Path
) -> None:
    policy = Path(shutil.copytree(micro_policy, tmp_path / "policy"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(policy)
    tokenizer.chat_template = "{{ strftime_now('%d') }}" + tokenizer.chat_template
    tokenizer.save_pretrained(policy)
    first = runs.build(policy, tmp_path / "run", max_steps=2, tasks=16, chat_template_kwargs={"today": "2024-02-29"})
    first.train()
    resumed = runs.build(policy, tmp_path / "run", max_steps=2, tasks=16)
    assert resumed.chat.template_kwargs["today"] != "2024-02-29"
    resumed.train(resume_from_checkpoint=tmp_path / "run" / "checkpoint-1")
    assert_same_weights(resumed, weights(first))
    resumed.save_model(str(tmp_path / "saved"))
    spec = TaskSpec.load(tmp_path / "saved")
    assert spec is not None
    assert spec.chat_template_kwargs == {"today": "2024-02-29"}
    assert spec.shown_unlike(replace(spec, chat_template_kwargs={"today": "2026-01-31"}), "m") is None
    assert "expect poor replies" in str(spec.shown_unlike(replace(spec, chat_template_kwargs={"a": 1}), "m"))


def test_each_pushed_checkpoint_can_be_resumed(
    runs: Any,
    micro_policy: Path,
    two_updates: tuple[Path, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    with serving(tmp_path / "hub") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        pushed = {"push_to_hub": True, "hub_model_id": "me/run", "hub_token": hub.token()}
        runs.build(micro_policy, tmp_path / "run", max_steps=2, tasks=16, **pushed).train()
        history = HfApi(endpoint=hub.url).list_repo_commits("me/run")
        second, first = [one.commit_id for one in history if "Hf-Credit-Publish" in one.message]
        trainer = runs.build(micro_policy, tmp_path / "again", max_steps=2, tasks=16)
        trainer.train(resume_from_checkpoint=f"hub:me/run@{first}")
        assert f"took the checkpoint of update 1 of me/run at the commit {first}" in caplog.messages
        assert f"resumes from {tmp_path / 'again' / 'checkpoint-1'}" in caplog.messages
        assert_same_weights(trainer, two_updates[1])
        with pytest.raises(StoreError, match="there is no such revision"):
            trainer.train(resume_from_checkpoint=f"hub:me/run@{second[::-1]}")
        longer = runs.build(micro_policy, tmp_path / "longer", max_steps=3, tasks=16)
        with pytest.raises(ValueError, match=f"max_steps 3 in place of 2 in hub:me/run@{first}; set them back"):
            longer.train(resume_from_checkpoint=f"hub:me/run@{first}")
        assert not list((tmp_path / "longer").glob("checkpoint-*"))


@resumed_on_processors
def test_a_run_of_two_processes_resumes_from_the_hub_in_two_others(
    start_two: Callable[..., list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    settings = {**TWO_PROCESSES, "save_steps": 2}
    first, second = tmp_path / "first", tmp_path / "second"
    with serving(tmp_path / "hub") as hub:
        there = {"HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token()}
        pushed = {"push_to_hub": True, "hub_model_id": "me/two"}
        expected, _ = (end_of(process, first) for process in start_two(first, there, **settings, **pushed))
        api = HfApi(endpoint=hub.url)
        history = api.list_repo_commits("me/two")
        *_, early = [one.commit_id for one in history if "Hf-Credit-Publish" in one.message]
        files = api.list_repo_files("me/two", revision=early)
        assert {f"trainer_state-{rank}.{suffix}" for rank in "01" for suffix in ("json", "safetensors")} <= set(files)
        assert not [name for name in files if name.endswith((".pt", ".pth", ".bin"))]
        place = {"resume": f"hub:me/two@{early}"}
        found, _ = (end_of(process, second) for process in start_two(second, there, **settings, **place))
    assert found["processes"] == expected["processes"] == 2
    assert found["log"] == expected["log"]
    assert policy_of(second) == policy_of(first)
    assert not (second / "checkpoint-1").exists()
