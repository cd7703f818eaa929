"""Downloads from a Hub at one commit: checks every file against the hash in the commit, and executes nothing."""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypedDict

from huggingface_hub import HfApi
from huggingface_hub.hf_api import RepoFile

from hf_credit.hub import safety
from hf_credit.hub.client import check_repo, check_revision, connect
from hf_credit.hub.retries import HubError, retried

_COMMIT = re.compile(r"[0-9a-f]{40}")
_AT_ONCE = 4
_MOST_ENTRIES = 2 * safety.MOST_FILES  # folders included


class TooLarge(ValueError):
    """Files are larger than the caller's limit."""


class NoFiles(ValueError):
    """A repository holds none of the files that were asked for."""


class Where(TypedDict, total=False):
    """The arguments of `fetch` that name the place of a repository."""

    revision: str | None
    token: str | None
    endpoint: str | None


@dataclass(frozen=True)
class Fetched:
    """Downloaded files of a repository.

    Attributes:
        folder: the folder of the files.
        commit: the commit of the files, 40 hexadecimal digits.
        files: the files by path in the repository, which is also their path in `folder`.
    """

    folder: Path
    commit: str
    files: Mapping[str, Path]


def fetch(
    repo: str,
    *,
    repo_type: str,
    revision: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
    allow: Collection[str] | None = None,
    cache_dir: str | Path | None = None,
    most_bytes: int | None = None,
    checked: bool = True,
) -> Fetched:
    """Downloads files of a repository at one commit, and checks each against the hash in the commit.

    Args:
        repo: owner/name.
        repo_type: model, dataset or space.
        revision: a commit, a branch or a tag, resolved once; the main branch if `None`.
        token, endpoint: as for `client.connect`.
        allow: patterns of paths, such as `data/*.parquet`; all files if `None`.
        cache_dir: the folder of downloads; the cache of huggingface_hub if `None`.
        most_bytes: the most bytes of all files together, checked before the download; no limit if `None`.
        checked: whether one file that breaks the rules of its format is an error; else the caller judges each.

    Raises:
        TooLarge: the files have more than `most_bytes`.
        NoFiles: no file matches.
        ValueError: a name is invalid, or a file breaks the rules of its format (see `safety`).
        HubError: the Hub refused, failed after all retries, or sent bytes that do not match the commit.
    """
    check_repo(repo, repo_type)
    check_revision(revision)
    api = connect(endpoint, token)
    commit = resolve(api, repo, repo_type, revision)
    tree = functools.partial(api.list_repo_tree, repo, recursive=True, revision=commit, repo_type=repo_type)
    listed = retried(lambda: list(itertools.islice(tree(), _MOST_ENTRIES + 1)), f"reading {repo}")
    _refuse_bad_list(listed, repo)
    wanted = {
        entry.path: entry
        for entry in listed
        if isinstance(entry, RepoFile) and (allow is None or any(fnmatchcase(entry.path, each) for each in allow))
    }
    if not wanted:
        patterns = "any file" if allow is None else " or ".join(sorted(allow))
        raise NoFiles(f"{repo} at {commit} must hold {patterns}, got no such file; check repository and revision.")
    safety.check_names(wanted)
    size = sum(entry.size for entry in wanted.values())
    if most_bytes is not None and size > most_bytes:
        raise TooLarge(
            f"the files of {repo} must have at most {most_bytes} bytes together, got {size}; publish smaller ones, or "
            "raise the limit."
        )

    download = functools.partial(api.hf_hub_download, repo, repo_type=repo_type, revision=commit, cache_dir=cache_dir)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        received = pool.map(lambda entry: _received(download, entry, repo, commit), wanted.values())
        files = dict(zip(wanted, received, strict=True))
    if checked:
        safety.check_files(files)
    name, file = next(iter(files.items()))
    folder = file.parents[name.count("/")]
    return Fetched(folder, commit, files)


def _refuse_bad_list(listed: Sequence[Any], repo: str) -> None:
    if len(listed) > _MOST_ENTRIES:
        raise ValueError(
            f"a repository must have at most {_MOST_ENTRIES} files and folders, got more in {repo}; put rows into "
            "tables."
        )
    for entry in listed:
        is_file = isinstance(entry, RepoFile)
        if not isinstance(entry.path, str) or (is_file and (type(entry.size) is not int or entry.size < 0)):
            about = f"{entry.path!r} of {entry.size!r} bytes" if is_file else repr(entry.path)
            raise HubError(f"{repo} must list files by name and size, got {about[:200]}; do not use this Hub.")


def resolve(api: HfApi, repo: str, repo_type: str, revision: str | None = None) -> str:
    """Returns the current commit of a revision.

    Raises:
        HubError: the revision does not exist, or the Hub's response is no commit.
    """
    info: Any = retried(lambda: api.repo_info(repo, repo_type=repo_type, revision=revision), f"reading {repo}")
    if not _COMMIT.fullmatch(str(info.sha)) or (_COMMIT.fullmatch(revision or "") and info.sha != revision):
        raise HubError(f"{revision or 'main'} of {repo} must be a commit, got {info.sha!r}; name another revision.")
    return str(info.sha)


def _received(download: Callable[..., str], entry: RepoFile, repo: str, commit: str) -> Path:
    """Downloads a file; if its bytes are wrong, once more without the cache, which may be damaged."""
    for force in (False, True):
        call = functools.partial(download, filename=entry.path, force_download=force)
        path = Path(retried(call, f"downloading from {repo}", entry.size))
        if _has_named_bytes(path, entry):
            return path
    raise HubError(
        f"files of {repo} must match the hashes in commit {commit}, got other bytes for {entry.path!r}; do not use it."
    )


def _has_named_bytes(path: Path, entry: RepoFile) -> bool:
    size = path.stat().st_size
    if size != entry.size:
        return False
    with path.open("rb") as file:
        if entry.lfs is not None:
            return hashlib.file_digest(file, "sha256").hexdigest() == entry.lfs.sha256
        return git_id(file, size) == entry.blob_id


def git_id(file: Any, size: int) -> str:
    """Returns the id in git of the content of an open file, which has this many bytes."""
    begun = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    return hashlib.file_digest(file, lambda: begun).hexdigest()
