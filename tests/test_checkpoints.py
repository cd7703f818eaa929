"""Checkpoints as files: complete ones, the latest one, and those to delete."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.checkpoints import (
    MANIFEST,
    NUMBERED,
    begin,
    checkpoint_to_resume,
    explain_disk_errors,
    flaw,
    latest_complete,
    recorded,
    refuse_another_run,
    rotate,
    write_manifest,
)


def checkpoint(run_dir: Path, step: int, complete: bool = True, resumable: bool = True) -> Path:
    folder = run_dir / f"checkpoint-{step}"
    (folder / "shards").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights of " + str(step).encode())
    (folder / "shards" / "optimizer.pt").write_bytes(b"moments")
    if complete:
        write_manifest(folder, {"learning_rate": 0.1, "processes": 2}, resumable=resumable)
    return folder


def test_a_checkpoint_has_the_name_that_transformers_gives_it() -> None:
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

    assert f"{PREFIX_CHECKPOINT_DIR}-" == NUMBERED


def test_a_checkpoint_is_complete_once_its_manifest_is_written(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 1, complete=False)
    assert flaw(folder) == f"which has no {MANIFEST}, the file written last"
    write_manifest(folder, {"processes": 1})
    assert flaw(folder) is None
    assert recorded(folder)["run"] == {"processes": 1}
    assert sorted(path.name for path in folder.iterdir()) == [MANIFEST, "model.safetensors", "shards"]


def test_the_manifest_lists_every_file_with_its_size_and_sum(tmp_path: Path) -> None:
    manifest = json.loads((checkpoint(tmp_path, 1) / MANIFEST).read_text())
    # `printf moments | sha256sum`
    assert manifest["files"]["shards/optimizer.pt"] == {
        "bytes": 7,
        "sha256": "690a8d18f75dfaa79dd8134ac62cdad42fffe0f34cb78dd14e2d3aae3ae83ad3",
    }
    assert manifest["files"].keys() == {"shards/optimizer.pt", "model.safetensors"}


def shorten(path: Path) -> None:
    os.truncate(path, 3)


def swap(path: Path) -> None:
    path.write_bytes(path.read_bytes()[::-1])


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (Path.unlink, "whose shards/optimizer.pt is missing"),
        (shorten, "whose shards/optimizer.pt has 3 bytes in place of 7"),
        (swap, "whose shards/optimizer.pt is not what was written"),
    ],
)
def test_a_file_that_is_not_whole_makes_its_checkpoint_incomplete(
    tmp_path: Path, harm: Callable[[Path], None], reason: str
) -> None:
    folder = checkpoint(tmp_path, 1)
    harm(folder / "shards" / "optimizer.pt")
    assert flaw(folder) == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"format": 1, "fi', f"whose {MANIFEST} cannot be read"),
        ("[]", f"whose {MANIFEST} is of another version"),
        ('{"format": 2}', f"whose {MANIFEST} is of another version"),
    ],
)
def test_a_manifest_that_cannot_be_understood_makes_its_checkpoint_incomplete(
    tmp_path: Path, text: str, reason: str
) -> None:
    folder = checkpoint(tmp_path, 1)
    (folder / MANIFEST).write_text(text)
    assert (flaw(folder) or "").startswith(reason)


@given(cut=st.integers(min_value=0, max_value=10**6))
def test_a_manifest_cut_anywhere_is_not_taken_for_a_whole_one(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = checkpoint(tmp_path_factory.mktemp("cut"), 1)
    whole = (folder / MANIFEST).read_text().rstrip()
    (folder / MANIFEST).write_text(whole[: cut % len(whole)])
    assert flaw(folder) is not None


def test_files_that_came_later_do_not_matter(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 1)
    (folder / "notes.txt").write_text("mine")
    assert flaw(folder) is None


def test_the_latest_complete_checkpoint_is_the_one_of_the_most_updates(tmp_path: Path) -> None:
    for step in (9, 10, 2):
        checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / "checkpoint-99").write_text("a file")
    assert latest_complete(tmp_path) == tmp_path / "checkpoint-10"


def test_later_ones_that_are_not_complete_are_named_in_a_warning_each(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint(tmp_path, 1, complete=False)
    whole = checkpoint(tmp_path, 2)
    later = [checkpoint(tmp_path, 3, complete=False), checkpoint(tmp_path, 4, resumable=False)]
    with caplog.at_level(logging.WARNING):
        assert latest_complete(tmp_path) == whole
    assert [record.getMessage().split(",")[0] for record in caplog.records] == [
        f"skipped the checkpoint {folder}" for folder in reversed(later)
    ]


def test_without_a_complete_checkpoint_a_run_starts_from_the_beginning_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint(tmp_path, 3, complete=False)
    with caplog.at_level(logging.WARNING):
        assert checkpoint_to_resume(True, tmp_path, {}, []) is None
        assert checkpoint_to_resume(True, tmp_path / "not yet there", {}, []) is None
    assert caplog.text.count("so training starts from the beginning") == 2


def test_no_run_resumes_without_a_request(tmp_path: Path) -> None:
    checkpoint(tmp_path, 1)
    assert checkpoint_to_resume(None, tmp_path, {}, []) is None
    assert checkpoint_to_resume(False, tmp_path, {}, []) is None


def test_a_chosen_checkpoint_is_taken_wherever_it_is(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "run", 1)
    renamed = folder.rename(tmp_path / "last-checkpoint")
    assert checkpoint_to_resume(str(renamed), tmp_path / "other", {}, []) == renamed


def test_a_chosen_checkpoint_that_is_incomplete_is_refused_in_one_sentence(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 1, complete=False)
    with pytest.raises(
        ValueError, match=r"must be a complete checkpoint, got .*checkpoint-1, which has no"
    ) as refusal:
        checkpoint_to_resume(folder, tmp_path, {}, [])
    assert "\n" not in str(refusal.value)


def test_a_checkpoint_of_another_run_is_refused_unless_the_difference_is_accepted(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 1)
    refuse_another_run(folder, {"learning_rate": 0.1, "processes": 2, "of a later release": 1}, [])
    other = {"learning_rate": 0.2, "processes": 1}
    told = r"got learning_rate 0.2 in place of 0.1, processes 1 in place of 2 in .*checkpoint-1; set them back, or .*"
    with pytest.raises(ValueError, match=told + r"resume_with_changed=\['learning_rate', 'processes'\]"):
        refuse_another_run(folder, other, [])
    with pytest.raises(ValueError, match=r"got processes 1 in place of 2 in .*resume_with_changed=\['processes'\]"):
        refuse_another_run(folder, other, ["learning_rate"])
    refuse_another_run(folder, other, ["learning_rate", "processes"])


def test_the_remedy_of_another_run_is_as_short_as_it_can_be_typed(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path, 1, complete=False)
    write_manifest(folder, {"max_steps": 2, "tasks": 16, "seed": 1}, resumable=True)
    with pytest.raises(ValueError, match=r"by --resume_with_changed max_steps seed \(from Python, .*") as refusal:
        refuse_another_run(folder, {"max_steps": 4, "tasks": 32, "seed": 2}, [])
    assert "tasks" not in str(refusal.value)  # they follow from max_steps
    refuse_another_run(folder, {"max_steps": 4, "tasks": 32, "seed": 2}, ["max_steps", "seed"])
    with pytest.raises(ValueError, match="tasks 24 in place of 16"):
        refuse_another_run(folder, {"max_steps": 2, "tasks": 24, "seed": 1}, [])


def names(run_dir: Path) -> set[int]:
    return {int(path.name.removeprefix("checkpoint-")) for path in run_dir.iterdir()}


def test_the_oldest_checkpoints_go_first_and_half_written_ones_before_them(tmp_path: Path) -> None:
    for age, step in enumerate((30, 10, 20)):  # 30 is left of an earlier run
        os.utime(checkpoint(tmp_path, step) / MANIFEST, ns=(age, age))
    begin(tmp_path / "checkpoint-40")
    rotate(tmp_path, None, [])
    rotate(tmp_path, 4, [])
    assert names(tmp_path) == {10, 20, 30, 40}
    rotate(tmp_path, 3, [tmp_path / "checkpoint-20"])
    assert names(tmp_path) == {10, 20, 30}
    rotate(tmp_path, 2, [tmp_path / "checkpoint-20"])
    assert names(tmp_path) == {10, 20}


def test_checkpoints_of_others_are_not_deleted(tmp_path: Path) -> None:
    for step in (1, 2):
        checkpoint(tmp_path, step, complete=False)  # such as those of another trainer
    checkpoint(tmp_path, 3)
    begin(tmp_path / "checkpoint-4")
    rotate(tmp_path, 1, [])
    assert names(tmp_path) == {1, 2, 3}


def test_what_others_wrote_in_the_place_of_a_checkpoint_gets_another_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = checkpoint(tmp_path, 7, complete=False)
    begin(theirs)
    assert [path.name for path in theirs.iterdir()] == [f"{MANIFEST}.unfinished"]
    (aside,) = set(tmp_path.iterdir()) - {theirs}
    assert (aside / "model.safetensors").read_bytes() == b"weights of 7"
    assert f"so it is now called {aside.name}" in caplog.text
    begin(theirs)  # a run that was killed, and is resumed
    write_manifest(theirs, {"processes": 1})
    assert flaw(theirs) is None
    assert names_of(theirs) == {MANIFEST}
    (tmp_path / "checkpoint-8").symlink_to(aside)
    begin(tmp_path / "checkpoint-8")
    assert (aside / "model.safetensors").exists()
    assert not (tmp_path / "checkpoint-8").is_symlink()


def names_of(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_what_is_to_be_kept_stays_whatever_the_limit(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        checkpoint(tmp_path, step)
    rotate(tmp_path, 1, [tmp_path / "checkpoint-1", tmp_path / "checkpoint-3"])
    assert names(tmp_path) == {1, 3}


def test_an_error_that_is_not_the_disks_is_left_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"^a lost process$"), explain_disk_errors(tmp_path):
        raise RuntimeError("a lost process")


def test_a_folder_that_cannot_be_created_is_an_error_of_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / "file" / "checkpoint-1"
    told = r"got .*Not a directory.* in .*file/checkpoint-1 with .* MiB left"
    with pytest.raises(OSError, match=told), explain_disk_errors(folder):
        folder.mkdir(parents=True)


def test_a_longer_run_of_generated_tasks_is_accepted_with_its_updates(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint-1"
    folder.mkdir()
    write_manifest(folder, {"max_steps": 2, "tasks": 16})
    refuse_another_run(folder, {"max_steps": 5, "tasks": 40}, ["max_steps"])
    for run, accepted in (({"max_steps": 5, "tasks": 40}, []), ({"max_steps": 5, "tasks": 41}, ["max_steps"])):
        with pytest.raises(ValueError, match="a run must be resumed with the settings of its checkpoint, got "):
            refuse_another_run(folder, run, accepted)
