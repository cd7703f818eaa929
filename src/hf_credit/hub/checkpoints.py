"""Publishes and loads checkpoints as safetensors and JSON only: the trainer's state, which is pickled on the disk,
becomes `trainer_state-<rank>.safetensors` and `.json`, and is pickled again when it is loaded."""

from __future__ import annotations

import filecmp
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Unpack

from hf_credit.boundary import Range, read
from hf_credit.checkpoint_store import PREFIX
from hf_credit.checkpoints import MANIFEST, NUMBERED, flaw, latest_complete, make_room, recorded, write_manifest
from hf_credit.evaluation.results import evaluation_files
from hf_credit.evaluation.runs import CONFIG_FILE, FACTS_FILE, LOG_FILE, TRAINER_STATE_FILE
from hf_credit.files import OwnFolder, copy, filled, move, replaced, write_json
from hf_credit.hub import cards, safety
from hf_credit.hub.bases import Bases
from hf_credit.hub.client import account as account  # part of the interface of `hf_credit.checkpoint_store`
from hf_credit.hub.client import connect, repo_url
from hf_credit.hub.loading import Where, fetch
from hf_credit.hub.publishing import Published, publish
from hf_credit.safe_io import read_json

logger = logging.getLogger(__name__)

LOADED_FILE = "hf_credit_loaded.json"
"""Lists the files that `load_checkpoint` wrote to a folder."""

_MODEL_ONLY = "save_only_model"  # in the reason of `flaw` for a complete checkpoint without the trainer's state
STATE_PREFIX = "trainer_state-"
"""What the names of files begin with that hold the state of a training, on each process."""
_STATE_FILES = re.compile(rf"{STATE_PREFIX}(\d+)\.(safetensors|json)")
_PICKLED = frozenset({".pt", ".pth"})
_RANK = re.compile(r"_(\d+)\.pth?$")
_ARGUMENTS = "training_args.bin"  # pickled, with the token of the user
_SHARDED = re.compile(r"(^|/)(global_step\d+|pytorch_model_fsdp_\d+|optimizer_\d+)/|\.distcp$|^optimizer\.bin$")
_OF_A_RUN = (CONFIG_FILE, FACTS_FILE, LOG_FILE)
_OWN = ("README.md", cards.LEDGER_FILE, LOADED_FILE, MANIFEST)
_FOR_A_SERVER = (".weights/", ".vllm_lora/")  # copies of weights for a server that played during training


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A loaded checkpoint.

    Attributes:
        folder: the folder of its files, as training wrote them.
        commit: the commit that it was loaded from.
        resumable: whether training can resume from it.
    """

    folder: Path
    commit: str
    resumable: bool


def publish_checkpoint(
    folder: str | Path, repo: str, *, resumable: bool = True, base: str | None = None, **where: Any
) -> Published:
    """Publishes the latest checkpoint of a run.

    Args:
        folder: a checkpoint, or the folder of a run: its latest complete checkpoint, else its model.
        repo: owner/name.
        resumable: whether to publish the trainer's state with the model.
        base: the base model of adapters on the Hub, as owner/name[@revision], if they were trained on a folder.
        **where: as for `publish`: token, endpoint, private, pr, dry_run, tag.

    Raises:
        ValueError: the checkpoint is incomplete, holds no model in safetensors, has a sharded trainer's state, or has
            adapters or a critic whose base model others cannot load; and as for `publish`.
    """
    api = connect(where.get("endpoint"), where.get("token"))
    bases = Bases(None if where.get("dry_run") else api, bool(where.get("private")), base)
    with OwnFolder() as work:
        files = collect(Path(folder), repo, repo_url(api, repo, "model"), work, resumable, bases)
        # An earlier publication may have had more files with these beginnings.
        folders = {name.rpartition("/")[0] + "/" for name in files if "/" in name and not name.startswith(".eval")}
        replaces, message = ("model-", STATE_PREFIX, *folders), f"Publish {Path(folder).resolve().name}"
        return publish(files, repo, repo_type="model", message=message, replaces=replaces, **where)


def require_bases(adapters: Iterable[Any], critic: str | None, token: str | None, private: bool | None) -> None:
    """Refuses, before a training, adapters and a critic whose bases others could not load: see `Bases.require`."""
    bases = Bases(connect(None, token), bool(private))
    for adapter in adapters:
        bases.require(adapter.base_model_name_or_path, adapter.revision)
    if critic is not None:
        bases.require(critic, critic=True)


def collect(
    folder: Path, repo: str, url: str, work: Path, resumable: bool = True, bases: Bases | None = None
) -> dict[str, Path | bytes]:
    """Returns the files of a checkpoint to publish.

    Args:
        folder, repo, resumable: as for `publish_checkpoint`.
        url: the URL of the repository, for its card.
        work: an empty folder for converted files, which must exist until the upload ends.
        bases: finds the base models that are named.

    Raises:
        ValueError: as for `publish_checkpoint`.
    """
    checkpoint, run_folder = _places(folder)
    whole = (checkpoint / MANIFEST).is_file()
    if whole and (reason := flaw(checkpoint)) and _MODEL_ONLY not in reason:
        raise ValueError(f"a checkpoint must be whole to be published, got {checkpoint}, {reason}; take another one.")
    if not whole and checkpoint.name.startswith(NUMBERED):
        raise ValueError(f"a checkpoint must be whole to be published, got {checkpoint} without {MANIFEST}; train on.")
    present = {
        name: path
        for name, path in safety.files_of(checkpoint).items()
        if Path(name).name not in _OWN and not name.startswith((NUMBERED, "runs/", *_FOR_A_SERVER))
    }
    pickled = {name for name in present if Path(name).suffix in _PICKLED}
    sharded = sorted(name for name in present if _SHARDED.search(name))
    if sharded and resumable:
        raise ValueError(
            f"the state of a trainer must be whole to be published, got shards such as {sharded[0]!r}; save whole "
            "tensors (FSDP_STATE_DICT_TYPE=FULL_STATE_DICT), or publish the model alone (resumable=False)."
        )
    resumable = resumable and whole and bool(pickled)
    left_out = {*pickled, *sharded, _ARGUMENTS}
    files = {name: path for name, path in present.items() if name not in left_out}
    if not any(Path(name).suffix == ".safetensors" for name in files):
        raise ValueError(f"a model must be saved as safetensors, got {str(checkpoint)!r} without; save it again.")
    for name in (*_OF_A_RUN, *(path.name for path in evaluation_files(run_folder))):
        if (run_folder / name).is_file():
            files.setdefault(name, run_folder / name)
    bases = bases or Bases()
    files |= bases.adapters(files) | bases.task(files)
    if resumable:
        files |= _state(checkpoint, pickled, work)
    if whole:
        manifest = recorded(checkpoint)
        kept = {name for name, content in files.items() if isinstance(content, Path)}  # as they are here
        manifest["files"] = {name: about for name, about in manifest["files"].items() if name in kept}
        manifest["resumable"] = resumable
        files[MANIFEST] = (json.dumps(manifest, indent=1) + "\n").encode()
    return files | cards.checkpoint_files(files, checkpoint, run_folder, repo, url, resumable, bases)


def load_checkpoint(repo: str, *, folder: str | Path | None = None, **where: Unpack[Where]) -> Checkpoint:
    """Downloads a checkpoint that `publish_checkpoint` published, to load its policy or to resume training.

    Args:
        repo: owner/name.
        folder: the target: a new or empty folder, or one that this function filled before, whose files it replaces. If
            `None`, the cache of huggingface_hub, from which training cannot resume.
        **where: as for `fetch`: revision, token, endpoint.

    Raises:
        ValueError: the repository holds no complete checkpoint, or the folder has other files; and as for `fetch`.
    """
    earlier = [] if folder is None else _written_before(Path(folder))
    fetched = fetch(repo, repo_type="model", **where)
    if not any(name.endswith(".safetensors") for name in fetched.files):
        raise ValueError(f"{repo} must hold a model in safetensors, got none; name another repository.")
    manifest = read_json(fetched.files[MANIFEST]) if MANIFEST in fetched.files else {}
    resumable = isinstance(manifest, dict) and manifest.get("resumable") is True
    if resumable:
        read(Mapping[str, Any], manifest.get("run"), f"run in {MANIFEST} of {repo}")
    if folder is None:
        return Checkpoint(folder=fetched.folder, commit=fetched.commit, resumable=False)
    with filled(folder, without=earlier) as new:
        for name, path in fetched.files.items():
            if name != MANIFEST and not _STATE_FILES.fullmatch(name):
                copy(path, new / name)
        if resumable:
            _rebuild_state(fetched.folder, fetched.files, new, repo)
            # `flaw` requires the facts of the run in the manifest.
            write_manifest(new, manifest["run"])
        written = sorted(path.relative_to(new).as_posix() for path in new.rglob("*") if path.is_file())
        write_json(new / LOADED_FILE, written, indent=1)
    return Checkpoint(folder=Path(folder), commit=fetched.commit, resumable=resumable)


def _written_before(folder: Path) -> list[str]:
    """The files of a folder; refuses any that `load_checkpoint` did not write."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    present = {path.relative_to(folder).as_posix() for path in paths}
    listed = read_json(folder / LOADED_FILE) if LOADED_FILE in present else []
    written = {LOADED_FILE, *(name for name in listed if isinstance(name, str))} if isinstance(listed, list) else set()
    if others := sorted(present - written) or (folder.is_file() and [folder.name]):
        raise ValueError(
            f"folder must be new, empty, or filled by load_checkpoint alone, got {str(folder)!r} with {others[0]!r}; "
            "name another one."
        )
    return sorted(present)


def fetch_resumable(
    place: str, output_dir: str | Path, token: str | None = None, check: Callable[[Path], None] | None = None
) -> Path:
    """Downloads the complete checkpoint `hub:owner/name[@revision]` into a run's folder, to resume from it.

    The checkpoint moves to its name in the run's folder only after all checks. A complete local checkpoint of the same
    step is never replaced: with the same weights it is returned, so that a command can be repeated; with others, or
    without the trainer's state, it is an error. An incomplete one is replaced. The log of the run is copied if the
    folder has none.

    Args:
        place: the checkpoint, with `PREFIX`.
        output_dir: the folder of the resumed run.
        token: as for `fetch`.
        check: raises a `ValueError` if the run cannot resume from the checkpoint in this folder.

    Raises:
        ValueError: the checkpoint is incomplete, or another complete one has its name; and as for `load_checkpoint`
            and `check`.
    """
    repo, _, revision = place.removeprefix(PREFIX).partition("@")
    output = Path(output_dir)
    with OwnFolder(output, prefix="resumed-") as unchecked:
        loaded = load_checkpoint(repo, folder=unchecked / "loaded", revision=revision or None, token=token)
        step = _step(loaded, place)
        logger.warning("took the checkpoint of update %d of %s at the commit %s", step, repo, loaded.commit)
        reason = flaw(loaded.folder)
        if reason is not None:
            raise ValueError(f"{place} must be a complete checkpoint, got one {reason}; publish it again.")
        if check is not None:
            check(loaded.folder)
        target = output / f"{NUMBERED}{step}"
        reason = flaw(target)
        if reason is not None and _MODEL_ONLY not in reason:
            make_room(target)
            move(loaded.folder, target)
        elif reason is not None or _weights(loaded.folder) != _weights(target):
            raise ValueError(
                f"a complete checkpoint is never replaced by another, got {target} in the place of {place}; choose "
                "another output_dir, move the folder, or resume from that folder."
            )
    if (target / LOG_FILE).is_file() and not (output / LOG_FILE).is_file():
        copy(target / LOG_FILE, output / LOG_FILE)
    return target


def _step(loaded: Checkpoint, place: str) -> int:
    path = loaded.folder / TRAINER_STATE_FILE
    if not loaded.resumable or not path.is_file():
        raise ValueError(
            f"{place} must hold the state of a trainer to resume from, got only the model; publish the run's "
            "checkpoint with it."
        )
    state = read_json(path)
    step = state.get("global_step") if isinstance(state, dict) else None
    return int(read(Annotated[int, Range(0, 2**63 - 1)], step, f"global_step in {TRAINER_STATE_FILE} of {place}"))


def _weights(checkpoint: Path) -> dict[str, Any]:
    return {name: about for name, about in recorded(checkpoint)["files"].items() if name.endswith(".safetensors")}


def _places(folder: Path) -> tuple[Path, Path]:
    """Returns the checkpoint that a folder is or holds, and the folder of its run."""
    if not folder.is_dir():
        raise ValueError(f"a checkpoint must be a folder, got {str(folder)!r}, which is none; name an existing one.")
    if (folder / MANIFEST).is_file() or folder.name.startswith(NUMBERED):
        return folder, folder.parent
    latest = latest_complete(folder)
    if latest is None:
        return folder, folder
    # A run's folder may hold another model than its latest checkpoint, such as the best one; of roles in folders.
    names = [path.name for path in folder.glob("*.safetensors")]
    of_roles = (str(path.relative_to(latest)) for path in latest.glob("*/adapter_model.safetensors"))
    names += [name for name in of_roles if (folder / name).is_file()]
    _, different, missing = filecmp.cmpfiles(folder, latest, names, shallow=False)
    return (folder if different or missing else latest), folder


def _state(checkpoint: Path, pickled: set[str], work: Path) -> dict[str, Path | bytes]:
    import torch
    from transformers.trainer_pt_utils import safe_globals

    from hf_credit.hub.tensors import save_values

    by_rank: dict[int, dict[str, Any]] = {}
    for name in sorted(pickled):
        rank = _RANK.search(name)
        with safe_globals():
            value = torch.load(checkpoint / name, map_location="cpu", weights_only=True)
        by_rank.setdefault(int(rank.group(1)) if rank else 0, {})[name] = value
    for number, values in by_rank.items():
        save_values(values, work / f"{STATE_PREFIX}{number}")
    return {path.name: path for path in sorted(work.glob(f"{STATE_PREFIX}*"))}


def _rebuild_state(source: Path, names: Mapping[str, Path], folder: Path, repo: str) -> None:
    import torch

    from hf_credit.hub.tensors import load_values

    stems = sorted({Path(name).stem for name in names if _STATE_FILES.fullmatch(name)})
    for stem in stems:
        values = load_values(source / stem)
        if not isinstance(values, dict):
            raise ValueError(f"the state of a trainer in {repo} must be files by name, got {type(values).__name__}.")
        for name, value in values.items():
            safety.check_path(str(name))
            if Path(str(name)).suffix not in _PICKLED:
                raise ValueError(f"the state of a trainer must be .pt or .pth files, got {name!r} in {repo}.")
            with replaced(folder / name) as path:
                torch.save(value, path)
