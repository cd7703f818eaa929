"""The files of checkpoints: only a complete checkpoint of the same run can be resumed."""

from __future__ import annotations

import hashlib
import logging
import re
import shutil
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from hf_credit.files import flush, flush_names, remove, remove_earlier, set_aside, write, write_json
from hf_credit.renamed import with_new_keys
from hf_credit.safe_io import read_json

logger = logging.getLogger(__name__)

MANIFEST = "hf_credit_checkpoint.json"
"""Lists the files of a checkpoint, and its run. It is written last, so a checkpoint that has it is complete."""

NUMBERED = "checkpoint-"  # transformers.trainer_utils has it too, and imports PEFT
"""What the name of a checkpoint begins with, in the folder of its run; then comes the number of updates."""

_BEGUN = f"{MANIFEST}.unfinished"  # marks a checkpoint of ours until it has its manifest
_FORMAT = 1


def write_manifest(folder: Path, run: Mapping[str, Any], resumable: bool = True) -> None:
    """Writes all files of a checkpoint to the disk, then the manifest that declares it complete.

    Args:
        folder: the checkpoint, with all of its files.
        run: plain values that `refuse_another_run` compares.
        resumable: whether it has more than the model.

    Raises:
        OSError: the disk is full, or fails.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _BEGUN)
    for path in paths:
        flush(path)
    for path in folder.rglob("*/"):
        flush_names(path)
    with ThreadPoolExecutor() as pool:
        sums = list(pool.map(_sha256, paths))
    files = {
        path.relative_to(folder).as_posix(): {"bytes": path.stat().st_size, "sha256": digest}
        for path, digest in zip(paths, sums, strict=True)
    }
    manifest = {"format": _FORMAT, "resumable": resumable, "run": dict(run), "files": files}
    write_json(folder / MANIFEST, manifest, indent=1)
    remove(folder / _BEGUN)
    flush_names(folder.parent)


def begin(folder: Path) -> None:
    """Makes the folder of a new checkpoint, and marks it as one of ours, in place of `make_room`'s."""
    make_room(folder)
    write(folder / _BEGUN, "")


def make_room(folder: Path) -> None:
    """Removes a checkpoint that an earlier run left in a folder; anything else there gets another name."""
    if not remove_earlier(folder, (MANIFEST, _BEGUN)) and (folder.exists() or folder.is_symlink()):
        logger.warning("%s was not written by hf-credit, so it is now called %s", folder, set_aside(folder).name)


def flaw(folder: Path) -> str | None:
    """Returns why a run cannot resume from a checkpoint, as a clause about it; `None` if it is complete."""
    try:
        manifest = read_json(folder / MANIFEST)
    except FileNotFoundError:
        return f"which has no {MANIFEST}, the file written last"
    except (OSError, ValueError) as error:
        return f"whose {MANIFEST} cannot be read ({error})"
    if not (isinstance(manifest, dict) and manifest.get("format") == _FORMAT):
        return f"whose {MANIFEST} is of another version"
    if not _is_manifest(manifest):
        return f"whose {MANIFEST} does not list the files of a checkpoint"
    if not manifest["resumable"]:
        return "which holds the model only (save_only_model)"
    for name, expected in manifest["files"].items():
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size is None:
            return f"whose {name} is missing"
        if size != expected["bytes"]:
            return f"whose {name} has {size} bytes in place of {expected['bytes']}"
    with ThreadPoolExecutor() as pool:
        sums = pool.map(_sha256, [folder / name for name in manifest["files"]])
        for (name, expected), digest in zip(manifest["files"].items(), sums, strict=True):
            if digest != expected["sha256"]:
                return f"whose {name} is not what was written"
    return None


def _is_manifest(value: dict[str, Any]) -> bool:
    """Returns whether it has the form of `write_manifest`, with files within the checkpoint."""
    files = value.get("files")
    return (
        isinstance(value.get("resumable"), bool)
        and isinstance(value.get("run"), dict)
        and isinstance(files, dict)
        and not any(Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name for name in files)
        and all(isinstance(one, dict) and {"bytes", "sha256"} <= one.keys() for one in files.values())
    )


def latest_complete(output_dir: str | Path) -> Path | None:
    """Returns the complete checkpoint with the most updates in a run's folder, `None` if there is none.

    Warns of each later checkpoint that is not complete.
    """
    for folder in sorted(_checkpoints(Path(output_dir)), key=_step_of, reverse=True):
        reason = flaw(folder)
        if reason is None:
            return folder
        logger.warning("skipped the checkpoint %s, %s", folder, reason)
    return None


def checkpoint_to_resume(
    chosen: str | Path | bool | None, output_dir: str | Path, run: Mapping[str, Any], accepted: list[str]
) -> Path | None:
    """Returns the complete checkpoint for `resume_from_checkpoint`; `None` to start from the beginning.

    Args:
        chosen: a checkpoint's folder, or `True` for the latest complete one in `output_dir`, if any.
        output_dir: the run's folder.
        run, accepted: as in `refuse_another_run`.

    Raises:
        ValueError: the chosen folder is not a complete checkpoint, or of another run.
    """
    if chosen is None or chosen is False:
        return None
    if chosen is True:
        folder = latest_complete(output_dir)
        if folder is None:
            logger.warning("found no complete checkpoint in %s, so training starts from the beginning", output_dir)
            return None
    else:
        folder = Path(chosen)
        reason = flaw(folder) if folder.is_dir() else "which is no folder"
        if reason is not None:
            raise ValueError(
                f"resume_from_checkpoint must be a complete checkpoint, got {folder}, {reason}; choose another one, "
                "or True for the latest complete one."
            )
    refuse_another_run(folder, run, accepted)
    return folder


def recorded(folder: Path) -> dict[str, Any]:
    """Returns the manifest of a checkpoint without a `flaw`: `resumable`, `files`, and `run`, as `write_manifest` has
    it."""
    return dict(read_json(folder / MANIFEST))


def refuse_another_run(folder: Path, run: Mapping[str, Any], accepted: list[str], place: str | None = None) -> None:
    """Refuses a checkpoint of another run.

    Args:
        folder: a complete checkpoint.
        run: the settings of the present run, plain values.
        accepted: the names in `run` that may differ.
        place: the name of the checkpoint in an error; its folder if `None`.

    Raises:
        ValueError: another name differs, or the run has a reference policy that moves.
    """
    if run.get("sync_ref_model") and run.get("beta") and "sync_ref_model" not in accepted:
        raise ValueError(
            f"a run can be resumed with sync_ref_model=False only, got True for {place or folder}, which lacks the "
            "reference policy; start with the initial one by resume_with_changed=['sync_ref_model']."
        )
    before = recorded(folder)["run"]
    if isinstance(before.get("task"), dict):
        before = {**before, "task": with_new_keys(before["task"])}
    tasks, steps = ([one.get(name, "") for one in (run, before)] for name in ("tasks", "max_steps"))
    whole = all(isinstance(size, int) for size in (*tasks, *steps))
    if whole and tasks[0] * steps[1] == tasks[1] * steps[0]:
        accepted = [*accepted, "tasks"]  # they are generated, as many as the updates need: `max_steps` says it
    # A name that one side lacks is of another release.
    other = [name for name in run if name in before and run[name] != before[name] and name not in accepted]
    if other:
        changes = ", ".join(one for name in other for one in _differences(name, run[name], before[name]))
        raise ValueError(
            f"a run must be resumed with the settings of its checkpoint, got {changes} in {place or folder}; set them "
            f"back, or accept the change by --resume_with_changed {' '.join(other)} (from Python, "
            f"resume_with_changed={other!r})."
        )


def _differences(name: str, now: Any, before: Any) -> list[str]:
    """Describes where two plain values differ, by the innermost names."""
    if not (isinstance(now, dict) and isinstance(before, dict)):
        return [] if now == before else [f"{name} {now!r} in place of {before!r}"]
    names = [*now, *(inner for inner in before if inner not in now)]
    return [one for inner in names for one in _differences(f"{name}.{inner}", now.get(inner), before.get(inner))]


def rotate(run_dir: Path, limit: int | None, kept: list[Path]) -> None:
    """Deletes the oldest checkpoints beyond `limit`, incomplete ones first, and never one of `kept` or of others."""
    if limit is None or limit < 1:
        return
    by_age = []
    for folder in _checkpoints(run_dir):
        completed = (folder / MANIFEST).is_file()
        if completed or (folder / _BEGUN).is_file():
            by_age.append(((folder / MANIFEST).stat().st_mtime_ns if completed else -1, _step_of(folder), folder))
    folders = [folder for _, _, folder in sorted(by_age)]
    spare = [folder for folder in folders if folder not in kept]
    for folder in spare[: max(len(folders) - limit, 0)]:
        remove_earlier(folder, (MANIFEST, _BEGUN))


def _checkpoints(run_dir: Path) -> list[Path]:
    named = re.compile(rf"{NUMBERED}\d+")
    return [path for path in run_dir.glob(f"{NUMBERED}*") if named.fullmatch(path.name) and path.is_dir()]


def _step_of(folder: Path) -> int:
    return int(folder.name.rpartition("-")[2])


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def explain_disk_errors(folder: Path) -> Iterator[None]:
    """Raises one `OSError` for a full or failing disk, for which each library has an error of its own."""
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).rpartition("Error while serializing: ")[2]
        if isinstance(error, RuntimeError):
            modules = {frame.f_globals.get("__name__") for frame, _ in traceback.walk_tb(error.__traceback__)}
            if "torch.serialization" not in modules:
                raise
            reason = "torch could not write a whole file"  # torch's own message names its internals
        existing = next(path for path in (folder, *folder.absolute().parents) if path.is_dir())
        free = shutil.disk_usage(existing).free / 2**20
        raise OSError(
            f"a checkpoint must be written to its end, got {reason!r} in {folder} with {free:.1f} MiB left on its "
            "disk; make room and resume from the last complete checkpoint, which is unchanged."
        ) from error
