"""The limits of sizes, numbers and names, checked before anything is stored."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from local_hub.errors import bad_request


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of one server.

    Args:
        lfs_bytes: LFS stores files of this size or more.
        commit_bytes: size of the body of one commit, with its regular files in base64.
        commit_files: operations of one commit.
        body_bytes: size of any other body.
        file_bytes: size of one file.
        link_seconds: lifetime of a signed link.
        garbage_seconds: lifetime of an object that no commit refers to.
    """

    lfs_bytes: int = 10 * 2**20
    commit_bytes: int = 2**30
    commit_files: int = 25_000
    body_bytes: int = 10 * 2**20
    file_bytes: int = 200 * 2**30
    link_seconds: int = 6 * 3600
    garbage_seconds: int = 24 * 3600

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}; raise it.")


MOST_NAME_BYTES = 255
MOST_FOLDERS = 100  # that a file lies in, one in the other
MOST_PATH_BYTES = 4096
MOST_REPO_NAME = 96

# The first parts of this server's paths.
_TAKEN = frozenset({"api", "buckets", "datasets", "lfs", "models", "oauth", "spaces"})
_REPO_PART = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9_])?", re.ASCII)
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._+/-]{0,199}", re.ASCII)
# These change the order in which text is displayed, so that a name reads as another one.
_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def check_repo_name(namespace: str, name: str) -> None:
    """Raises `HubError` 400 unless `namespace/name` is a valid name of a repository."""
    for part in (namespace, name):
        wrong = not _REPO_PART.fullmatch(part) or "--" in part or ".." in part or part.endswith(".git")
        if wrong or len(part) > MOST_REPO_NAME:
            raise bad_request(
                "a repository is named namespace/name, each of at most 96 of A-Z a-z 0-9 . _ -, with a letter, digit "
                f"or _ at its ends and no --, .. or .git, got {part[:100]!r}; rename it."
            )
    if namespace.lower() in _TAKEN:
        raise bad_request(f"a namespace must not be part of the server's paths, got {namespace!r}; pick another.")


def check_ref_name(name: str) -> None:
    """Raises `HubError` 400 unless git accepts the name for a branch or a tag and it does not look like a commit."""
    wrong = ".." in name or "//" in name or name.endswith((".", "/", ".lock")) or "/." in name
    if not _REF.fullmatch(name) or wrong or name.startswith("refs/") or re.fullmatch(r"[0-9a-f]{40}", name):
        raise bad_request(
            f"a branch or tag must have a name valid in git without refs/, got {name[:100]!r}; rename it."
        )


def check_path(path: str) -> None:
    """Raises `HubError` 400 for a path that some system could read as another place or name."""
    problem = path_problem(path)
    if problem:
        raise bad_request(f"the path of a file must {problem}, got {path[:200]!r}; rename the file.")


def path_problem(path: str) -> str | None:
    """Returns the rule that a path breaks, `None` if none."""
    if not path or path.startswith("/") or re.match(r"[A-Za-z]:", path):
        return "be relative to the repository"
    if "\\" in path:
        return "have / between folders, and no backslash"
    if any(unicodedata.category(one) in ("Cc", "Cs") or one in _BIDI for one in path):
        return "hold no NUL, control or bidirectional characters"
    if len(path.encode()) > MOST_PATH_BYTES:
        return f"have at most {MOST_PATH_BYTES} bytes"
    if path.count("/") >= MOST_FOLDERS:
        return f"lie in at most {MOST_FOLDERS} folders"
    for part in path.split("/"):
        if part in ("", ".", ".."):
            return "hold no empty part, . or .."
        # As file systems of macOS and Windows read it: without invisible characters and a stream's name.
        seen = "".join(one for one in part if unicodedata.category(one) != "Cf").partition(":")[0]
        if seen.rstrip(" .").casefold() in (".git", "git~1"):
            return "not lie in .git"
        if len(part.encode()) > MOST_NAME_BYTES:
            return f"have parts of at most {MOST_NAME_BYTES} bytes"
    return None


def check_twins(paths: Iterable[str]) -> None:
    """Raises `HubError` 400 for files that are one on a file system that ignores case or the form of accents."""
    seen: dict[str, str] = {}
    folders: dict[str, str] = {}
    for path in paths:
        key = unicodedata.normalize("NFC", path).casefold()
        if key in seen:
            raise bad_request(
                f"no two paths may differ only in case or form of accents, got {path!r} and {seen[key]!r}; rename one."
            )
        seen[key] = path
        cut = key.rfind("/")
        while cut > 0 and key[:cut] not in folders:
            folders[key[:cut]] = path
            cut = key.rfind("/", 0, cut)
    for key in seen.keys() & folders.keys():
        raise bad_request(f"a path must be a file or a folder, got {seen[key]!r} and {folders[key]!r}; rename one.")
