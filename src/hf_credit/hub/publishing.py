"""Publishes files: checks and uploads them, makes one commit, compares a download of it, and then makes it public. A
second call after an interruption finds the commit by its digest, and sends no large file again."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, GitCommitInfo, HfApi
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import get_token

from hf_credit.files import OwnFolder
from hf_credit.hub import safety
from hf_credit.hub.client import REPO_TYPES, check_repo, check_revision, check_upload_path, connect, repo_url
from hf_credit.hub.loading import git_id
from hf_credit.hub.retries import ATTEMPTS, Conflict, HubError, retried, wait_after
from hf_credit.words import counted

T = TypeVar("T")

TRAILER = "Hf-Credit-Publish"
"""The line of a commit's description that holds the digest of the published files."""

_UNFINISHED = "hf-credit-unfinished"  # the branch of a new repository that is not public yet, and shall be


@dataclass(frozen=True)
class Published:
    """The result of a publication.

    Attributes:
        repo, repo_type: the repository.
        commit: the commit that holds all files; `None` after a dry run.
        url: the URL of the repository's page.
        pull_request: the URL of the pull request, if one was requested.
        private: whether the repository is private.
        files: the paths of the files.
    """

    repo: str
    repo_type: str
    commit: str | None
    url: str
    pull_request: str | None = None
    private: bool = False
    files: tuple[str, ...] = ()


def publish(
    files: Mapping[str, Path | bytes],
    repo: str,
    *,
    repo_type: str,
    token: str | None = None,
    endpoint: str | None = None,
    private: bool = False,
    pr: bool = False,
    dry_run: bool = False,
    tag: str | None = None,
    message: str = "",
    space_sdk: str | None = None,
    replaces: Collection[str] = (),
    parent: str | None = None,
) -> Published:
    """Publishes files as one commit, and makes a new repository public after a download and comparison of all files.

    Args:
        files: the contents by path in the repository.
        repo: owner/name. A new repository is private at first.
        repo_type: model, dataset or space.
        token: the token of an account with write access; as for `client.connect`.
        endpoint: the Hub; as for `client.connect`.
        private: whether a new repository stays private. An existing one keeps its visibility.
        pr: opens a pull request instead, which needs read access only.
        dry_run: runs all local checks and sends nothing.
        tag: a tag for the verified commit. A tag of another commit is not moved.
        message: the first line of the commit.
        space_sdk: the SDK of a new Space: static, docker or gradio.
        replaces: path prefixes, such as folders with their /, whose other files this publication deletes.
        parent: the commit that the publication changes; the newest one if `None`.

    Raises:
        ValueError: a name, a type or a file is invalid (see `safety`), a file holds a secret, or the repository exists
            with another type.
        Conflict: somebody else changed the repository during the publication, or since `parent`.
        HubError: the Hub refused, failed after all retries, or returned other bytes.
    """
    check_repo(repo, repo_type)
    check_revision(tag)
    if tag is not None and pr:
        raise ValueError(
            f"a tag must name a published commit, got {tag!r} for a pull request; tag it after the merge."
        )
    api = connect(endpoint, token)
    check_upload_path(api)
    contents = _checked(files, _tokens(api))
    url = repo_url(api, repo, repo_type)
    done = Published(repo, repo_type, None, url, private=private, files=tuple(sorted(files)))
    if dry_run:
        return done
    target = Repository(api, repo, repo_type)
    message = message or f"Publish {counted(len(contents), 'file')} with hf-credit"
    if not pr:
        target.prepare(space_sdk, private)
    if tag is not None:
        target.check_tag(tag, contents)
    commit, request = target.commit(contents, message, replaces, create_pr=pr, parent=None if pr else parent)
    target.compare(contents, commit)
    if not (pr or private):
        target.ask(target.make_public, doing="making public")
    if tag is not None:
        target.ask(api.create_tag, tag=tag, revision=commit, exist_ok=True, doing="tagging")
    return replace(done, commit=commit, pull_request=request, private=bool(target.ask(api.repo_info).private))


def digest_of(contents: Iterable[CommitOperationAdd]) -> str:
    """Returns the SHA-256 over the paths and SHA-256s of files, in any order."""
    lines = sorted(f"{content.upload_info.sha256.hex()} {content.path_in_repo}\n" for content in contents)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class Repository:
    """A repository of the Hub at `api`, whose every request is retried."""

    def __init__(self, api: HfApi, repo: str, repo_type: str) -> None:
        self.api, self.repo, self.repo_type = api, repo, repo_type

    def ask(self, call: Callable[..., T], *values: Any, doing: str = "reading", **options: Any) -> T:
        """Calls a method of the client for this repository, with retries."""
        options.setdefault("repo_type", self.repo_type)
        return retried(lambda: call(self.repo, *values, **options), f"{doing} {self.repo}")

    def prepare(self, space_sdk: str | None, private: bool) -> None:
        """Creates the repository, private, if there is none, with a mark for `make_public` unless it stays private."""
        if self.ask(self.api.repo_exists):
            return
        for other in REPO_TYPES:
            if other != self.repo_type and self.ask(self.api.repo_exists, repo_type=other):
                raise ValueError(
                    f"{self.repo} must be free or a {self.repo_type}, got a {other}; choose another name."
                )
        self.ask(self.api.create_repo, private=True, exist_ok=True, space_sdk=space_sdk, doing="making")
        if not private:
            self.ask(self.api.create_branch, branch=_UNFINISHED, exist_ok=True, doing="marking")

    def make_public(self, repo: str, repo_type: str) -> None:
        """Makes a repository that has the mark of `prepare` public, and removes the mark."""
        if any(one.name == _UNFINISHED for one in self.api.list_repo_refs(repo, repo_type=repo_type).branches):
            self.api.update_repo_settings(repo, private=False, repo_type=repo_type)
            self.api.delete_branch(repo, branch=_UNFINISHED, repo_type=repo_type)

    def commit(
        self,
        contents: list[CommitOperationAdd],
        message: str,
        replaces: Collection[str] = (),
        create_pr: bool = False,
        parent: str | None = None,
    ) -> tuple[str, str | None]:
        """Returns the commit that holds all contents, and the URL of its pull request, if any.

        Makes no new commit if the newest one holds all contents, or an open pull request has the same ones.
        """
        head = parent or self.head()
        tree, paths = self.tree(head), {content.path_in_repo for content in contents}
        stale = [path for path in tree if path not in paths and path.startswith(tuple(replaces))]
        if not create_pr and not stale and _all_in(tree, contents):
            return head, None
        upload = functools.partial(self.api.preupload_lfs_files, create_pr=create_pr, free_memory=False)
        self.ask(upload, contents, doing="uploading to")
        description = f"{TRAILER}: {digest_of(contents)}"
        for attempt in range(ATTEMPTS):
            if create_pr and (opened := self._open_request(description)):
                return opened
            try:
                made = self.api.create_commit(
                    self.repo,
                    [*contents, *map(CommitOperationDelete, stale)],
                    commit_message=message,
                    commit_description=description,
                    repo_type=self.repo_type,
                    parent_commit=head,
                    create_pr=create_pr,
                )
                return str(made.oid), made.pr_url
            except Exception as error:
                # The response may be lost although the commit was made; the history shows whether it was.
                if not create_pr and (now := self.head()) != head:
                    return self._settled(head, now, description, contents, stale), None
                wait_after(error, attempt, f"publishing to {self.repo}")
        raise AssertionError("the last attempt returns or raises")

    def compare(self, contents: list[CommitOperationAdd], commit: str) -> None:
        """Downloads all contents at a commit and compares their hashes.

        Raises:
            HubError: a file has other bytes.
        """
        for content in contents:
            if self._download(content, commit) != content.upload_info.sha256.hex():
                raise HubError(
                    f"{self.repo} must return the bytes that were sent, got others for {content.path_in_repo!r} at "
                    f"{commit}; it was not made public, publish again."
                )

    def check_tag(self, name: str, contents: Iterable[CommitOperationAdd]) -> None:
        """Refuses a tag whose commit has other contents."""
        tags = {one.name: one.target_commit for one in self.ask(self.api.list_repo_refs).tags}
        target = tags.get(name)
        if target is not None and not _all_in(self.tree(target), contents):
            raise Conflict(f"a tag of {self.repo} must be free, got {name!r}, which is at {target}; choose a new one.")

    def head(self, revision: str | None = None) -> str:
        """Returns the newest commit."""
        return str(self.ask(self.api.repo_info, revision=revision).sha)

    def tree(self, commit: str) -> dict[str, RepoFile]:
        """Returns all files at a commit, or a revision, by path."""
        listed = self.ask(_all_of(self.api.list_repo_tree), recursive=True, revision=commit)
        return {entry.path: entry for entry in listed if isinstance(entry, RepoFile)}

    def history(self, revision: str | None = None) -> list[GitCommitInfo]:
        """Returns all commits, newest first."""
        return self.ask(self.api.list_repo_commits, revision=revision)

    def open_requests(self) -> list[Any]:
        """Returns the open pull requests."""
        wanted = {"discussion_type": "pull_request", "discussion_status": "open"}
        return self.ask(_all_of(self.api.get_repo_discussions), **wanted)

    def _settled(
        self, before: str, now: str, description: str, contents: list[CommitOperationAdd], stale: Collection[str]
    ) -> str:
        """The commit of a publication whose response was lost, or that lost a race to the same contents."""
        for entry in self.history():
            if entry.commit_id == before:
                break
            if description in entry.message:
                return entry.commit_id
        tree = self.tree(now)
        if _all_in(tree, contents) and not any(path in tree for path in stale):
            return now
        raise Conflict(
            f"{self.repo} must not change during a publication, got {now} instead of {before} from somebody else; "
            "check their commit and publish again."
        )

    def _open_request(self, description: str) -> tuple[str, str] | None:
        """Returns the newest commit and the URL of the open pull request with these contents, if any."""
        for request in self.open_requests():
            newest, *_ = self.history(f"refs/pr/{request.num}")
            if description in newest.message:
                return newest.commit_id, str(request.url)
        return None

    def _download(self, content: CommitOperationAdd, commit: str) -> str:
        """Returns the SHA-256 of a file on the Hub; an interrupted download continues where it ended."""
        with OwnFolder() as folder:
            where = {"repo_type": self.repo_type, "revision": commit, "cache_dir": folder}
            download = functools.partial(self.api.hf_hub_download, self.repo, content.path_in_repo, **where)
            path = retried(download, f"downloading from {self.repo}", content.upload_info.size)
            with open(path, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()


def _all_in(tree: Mapping[str, RepoFile], contents: Iterable[CommitOperationAdd]) -> bool:
    return all(_has_hash(tree.get(content.path_in_repo), content) for content in contents)


def _has_hash(listed: RepoFile | None, content: CommitOperationAdd) -> bool:
    if listed is None:
        return False
    if listed.lfs is not None:
        return listed.lfs.sha256 == content.upload_info.sha256.hex()
    with content.as_file() as file:
        return listed.blob_id == git_id(file, content.upload_info.size)


def _all_of(listing: Callable[..., Iterable[T]]) -> Callable[..., list[T]]:
    """Makes a listing eager, so that a retry requests all of its pages again."""
    return lambda *values, **options: list(listing(*values, **options))


def _checked(files: Mapping[str, Path | bytes], tokens: Collection[str]) -> list[CommitOperationAdd]:
    if not files:
        raise ValueError("a publication must have files, got none; add some.")
    safety.check_names(files)
    safety.check_files(files)
    for name, source in files.items():
        if safety.find_secret(source, tokens):
            raise ValueError(f"a file must hold no token and no key, got one in {name!r}; remove and revoke it.")
    return [CommitOperationAdd(name, files[name]) for name in sorted(files)]


def _tokens(api: HfApi) -> list[str]:
    tokens = [api.token, os.environ.get("HF_TOKEN"), get_token()]
    return [token for token in tokens if isinstance(token, str) and token]
