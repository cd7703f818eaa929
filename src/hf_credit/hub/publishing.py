"""How anything is published: checked, uploaded, one commit, downloaded and compared, and only then public.

A run that is cut off at any point leaves the repository as it was before or with the whole commit, private if it is
new. The same call again takes up where the first one ended: large files that have arrived are not sent again, and a
commit that was made is found, by the digest in its description.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, GitCommitInfo, HfApi, hf_hub_url
from huggingface_hub.errors import RepositoryNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers, get_session, get_token, hf_raise_for_status

from hf_credit.http_guard import MOST_BODY
from hf_credit.hub import safety
from hf_credit.hub.client import REPO_TYPES, check_repo, check_revision, check_upload_path, connect, repo_url
from hf_credit.hub.retries import (
    ATTEMPTS,
    Conflict,
    HubError,
    retried,
    status_of,
    wait_after,
)

T = TypeVar("T")

TRAILER = "Hf-Credit-Publish"
"""Of a commit's description: the digest of all that was published with it."""

_READ_SECONDS = 60.0


@dataclass(frozen=True)
class Published:
    """What became of a publication."""

    repo: str
    repo_type: str
    commit: str | None
    """Where all of it can be had; `None` of what was only checked (`dry_run`)."""
    url: str
    pull_request: str | None = None
    """Its address, if one was asked for."""
    private: bool = False
    """Whether others can not see it."""
    files: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Of the files of `last`, those that the Hub would not take."""


@dataclass(frozen=True)
class _Content:
    """A file as it is to be there."""

    path: str
    source: Path | bytes
    size: int
    sha256: str
    git_id: str

    @classmethod
    def of(cls, path: str, source: Path | bytes) -> _Content:
        size = len(source) if isinstance(source, bytes) else source.stat().st_size
        sha256, git_id = hashlib.sha256(), hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
        for chunk in _chunks(source):
            sha256.update(chunk)
            git_id.update(chunk)
        return cls(path, source, size, sha256.hexdigest(), git_id.hexdigest())

    def is_at(self, there: Mapping[str, RepoFile]) -> bool:
        """Whether a tree holds it, as far as the tree says."""
        file = there.get(self.path)
        if file is None:
            return False
        return file.lfs.sha256 == self.sha256 if file.lfs is not None else file.blob_id == self.git_id


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
    last: Collection[str] = (),
    replaces: Collection[str] = (),
) -> Published:
    """Publishes files as one commit, and makes a new repository public once they were downloaded and compared.

    Args:
        files: contents by name within the repository.
        repo: owner/name. Made, private, if there is none.
        repo_type: model, dataset or space.
        token: of an account that may write there; as in `client.connect` if left out.
        endpoint: of the Hub; as in `client.connect` if left out.
        private: whether a new repository stays private. One that exists keeps its visibility.
        pr: open a pull request instead. Anybody who may read a repository may.
        dry_run: check all that can be checked here, and send nothing.
        tag: a name for the commit, given once it is verified. One that another commit has is not moved.
        message: first line of the commit.
        space_sdk: of a new Space: static, docker or gradio.
        last: names of files that are committed after the others, alone, and that the Hub may refuse.
        replaces: folders, each ending in /, whose other files this publication takes away.

    Raises:
        ValueError: a name, a kind or a file is not as it must be (see `safety`), a secret is in a file, or the
            repository is of another kind.
        Conflict: somebody else changed the repository meanwhile.
        HubError: the Hub refused, failed to the end, or gave back other bytes.
    """
    check_repo(repo, repo_type)
    check_revision(tag)
    if tag is not None and pr:
        raise ValueError(f"a tag names what is published, got {tag!r} for a pull request; tag it once it is merged.")
    api = connect(endpoint, token)
    check_upload_path(api)
    contents = _checked(files, _tokens(api), last)
    main = [content for content in contents if content.path not in last]
    url = repo_url(api, repo, repo_type)
    done = Published(repo, repo_type, None, url, private=private, files=tuple(content.path for content in contents))
    if dry_run:
        return done
    target = _Repository(api, repo, repo_type)
    if pr:
        commit, request = target.request(main, message or _message(main), replaces)
        target.compare(main, commit)
        return replace(done, commit=commit, pull_request=request)
    is_new, is_private = target.prepare(space_sdk)
    if tag is not None:
        target.check_tag(tag, main)
    commit = target.commit(main, message or _message(main), replaces)
    target.compare(main, commit)
    refused = []
    for content in contents:
        if content.path in last:
            try:
                commit = target.commit([content], f"Add {content.path}", ())
            except HubError as error:
                if status_of(error) not in (400, 403, 422):
                    raise
                refused.append(content.path)
    # A first publication that was cut off before this line is still private, and is finished here.
    if not private and (is_new or (is_private and target.is_first(commit, digest_of(main)))):
        target.show()
        is_private = False
    if tag is not None:
        target.tag(tag, commit)
    return replace(done, commit=commit, private=private if is_new else is_private, refused=tuple(refused))


def digest_of(contents: Iterable[_Content]) -> str:
    """SHA-256 over names and SHA-256s of files, whatever their order."""
    lines = sorted(f"{content.sha256} {content.path}\n" for content in contents)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


class _Repository:
    """A repository as it is written to."""

    def __init__(self, api: HfApi, repo: str, repo_type: str) -> None:
        self.api, self.repo, self.repo_type = api, repo, repo_type

    def prepare(self, space_sdk: str | None) -> tuple[bool, bool]:
        """Makes the repository, private, if there is none; whether it did, and whether it is private."""
        info = self._info(self.repo_type)
        if info is not None:
            return False, bool(info.private)
        for other in REPO_TYPES:
            if other != self.repo_type and self._info(other) is not None:
                raise ValueError(
                    f"{self.repo} must be free or a {self.repo_type}, got a {other}; choose another name."
                )
        self._ask(
            lambda: self.api.create_repo(
                self.repo, repo_type=self.repo_type, private=True, exist_ok=True, space_sdk=space_sdk
            ),
            "making",
        )
        return True, True

    def commit(self, contents: list[_Content], message: str, replaces: Collection[str]) -> str:
        """The commit that holds all contents: a new one, or the newest if nothing is to be changed."""
        head = self.head()
        there = self.tree(head)
        stale = _stale(there, contents, replaces)
        if not stale and all(content.is_at(there) for content in contents):
            return head
        operations = self._uploaded(contents, stale, create_pr=False)
        description = f"{TRAILER}: {digest_of(contents)}"
        for attempt in range(ATTEMPTS):
            try:
                made = self.api.create_commit(
                    self.repo,
                    operations,
                    commit_message=message,
                    commit_description=description,
                    repo_type=self.repo_type,
                    parent_commit=head,
                )
                return str(made.oid)
            except Exception as error:
                # The answer may be lost where the commit was made: the history tells.
                now = self.head()
                if now != head:
                    return self._settled(head, now, description, contents, stale)
                wait_after(error, attempt, f"publishing {self.repo}")
        raise AssertionError("the last attempt returns or raises")

    def request(self, contents: list[_Content], message: str, replaces: Collection[str]) -> tuple[str, str]:
        """The commit and the address of a pull request: a new one, or the one that is open with the same contents."""
        head = self.head()
        stale = _stale(self.tree(head), contents, replaces)
        description = f"{TRAILER}: {digest_of(contents)}"
        operations = self._uploaded(contents, stale, create_pr=True)
        for attempt in range(ATTEMPTS):
            if found := self._open_request(description):
                return found
            try:
                made = self.api.create_commit(
                    self.repo,
                    operations,
                    commit_message=message,
                    commit_description=description,
                    repo_type=self.repo_type,
                    parent_commit=head,
                    create_pr=True,
                )
                return str(made.oid), str(made.pr_url)
            except Exception as error:
                wait_after(error, attempt, f"opening a pull request at {self.repo}")
        raise AssertionError("the last attempt returns or raises")

    def compare(self, contents: list[_Content], commit: str) -> None:
        """Downloads all contents at a commit, and refuses other bytes than were sent."""
        for content in contents:
            received = self._ask(functools.partial(self._download, content, commit), "comparing")
            if received != content.sha256:
                raise HubError(
                    f"{self.repo} must give back what was sent, got other bytes for {content.path!r} at {commit}; "
                    "it was not made public, publish again."
                )

    def is_first(self, commit: str, digest: str) -> bool:
        """Whether a commit, or the one before it, is this publication, and nothing was published before."""
        history = [entry for entry in self.history() if TRAILER in entry.message]
        return bool(history) and f"{TRAILER}: {digest}" in history[-1].message and self.head() == commit

    def show(self) -> None:
        """Makes the repository public."""
        self._ask(
            lambda: self.api.update_repo_settings(self.repo, private=False, repo_type=self.repo_type), "making public"
        )

    def check_tag(self, name: str, contents: Iterable[_Content]) -> None:
        """Refuses a tag that names something else."""
        target = self._tags().get(name)
        if target is not None:
            there = self.tree(target)
            if not all(content.is_at(there) for content in contents):
                raise Conflict(
                    f"a tag of {self.repo} must be free, got {name!r}, which is at {target}; take a new one."
                )

    def tag(self, name: str, commit: str) -> None:
        """Names a commit, unless there is one of that name."""
        if name not in self._tags():
            self._ask(
                lambda: self.api.create_tag(
                    self.repo, tag=name, revision=commit, repo_type=self.repo_type, exist_ok=True
                ),
                "tagging",
            )

    def _tags(self) -> dict[str, str]:
        refs = self._ask(lambda: self.api.list_repo_refs(self.repo, repo_type=self.repo_type), "reading")
        return {one.name: one.target_commit for one in refs.tags}

    def head(self) -> str:
        """The newest commit."""
        info = self._ask(lambda: self.api.repo_info(self.repo, repo_type=self.repo_type), "reading")
        return str(info.sha)

    def tree(self, commit: str) -> dict[str, RepoFile]:
        """All files at a commit."""
        listed = self._ask(
            lambda: list(
                self.api.list_repo_tree(self.repo, recursive=True, revision=commit, repo_type=self.repo_type)
            ),
            "reading",
        )
        return {entry.path: entry for entry in listed if isinstance(entry, RepoFile)}

    def history(self) -> list[GitCommitInfo]:
        """All commits, newest first."""
        return self._ask(lambda: self.api.list_repo_commits(self.repo, repo_type=self.repo_type), "reading")

    def _info(self, repo_type: str) -> Any:
        def look() -> Any:
            try:
                return self.api.repo_info(self.repo, repo_type=repo_type)
            except RepositoryNotFoundError:
                return None

        return self._ask(look, "reading")

    def _uploaded(self, contents: list[_Content], stale: Iterable[str], create_pr: bool) -> list[Any]:
        """What a commit is to do, once all large files have arrived."""
        additions = [
            CommitOperationAdd(
                content.path, content.source if isinstance(content.source, bytes) else str(content.source)
            )
            for content in contents
        ]
        self._ask(
            lambda: self.api.preupload_lfs_files(
                self.repo, additions, repo_type=self.repo_type, create_pr=create_pr, free_memory=False
            ),
            "uploading to",
        )
        return [*additions, *(CommitOperationDelete(path) for path in stale)]

    def _settled(
        self, before: str, now: str, description: str, contents: list[_Content], stale: Collection[str]
    ) -> str:
        """What became of a commit whose answer never came, or said that another was first."""
        for entry in self.history():
            if entry.commit_id == before:
                break
            if description in entry.message:
                return entry.commit_id
        there = self.tree(now)
        if all(content.is_at(there) for content in contents) and not any(path in there for path in stale):
            return now
        raise Conflict(
            f"{self.repo} must not change while it is published to, got {now} instead of {before} from somebody else; "
            "look at what they did and publish again."
        )

    def _open_request(self, description: str) -> tuple[str, str] | None:
        """The open pull request that a publication made, if any: its newest commit and its address."""
        opened = self._ask(
            lambda: list(
                self.api.get_repo_discussions(
                    self.repo, repo_type=self.repo_type, discussion_type="pull_request", discussion_status="open"
                )
            ),
            "reading",
        )
        for request in opened:
            look = functools.partial(self.api.list_repo_commits, self.repo, repo_type=self.repo_type)
            newest, *_ = self._ask(functools.partial(look, revision=f"refs/pr/{request.num}"), "reading")
            if description in newest.message:
                return newest.commit_id, str(request.url)
        return None

    def _download(self, content: _Content, commit: str) -> str:
        """SHA-256 of what the Hub gives back; a download that is cut goes on where it was."""
        url = hf_hub_url(
            self.repo, content.path, repo_type=self.repo_type, revision=commit, endpoint=self.api.endpoint
        )
        digest, done = hashlib.sha256(), 0

        def receive() -> None:
            nonlocal digest, done
            headers = build_hf_headers(token=self.api.token)
            if done:
                headers["Range"] = f"bytes={done}-"
            with get_session().stream("GET", url, headers=headers, timeout=_READ_SECONDS) as response:
                if response.status_code >= 400:
                    response.read()
                hf_raise_for_status(response)
                if response.status_code != 206:
                    digest, done = hashlib.sha256(), 0
                for chunk in response.iter_bytes():
                    digest.update(chunk)
                    done += len(chunk)

        def receive_rest() -> None:
            if not done or done < content.size:
                receive()

        self._ask(receive_rest, "downloading from", content.size)
        return digest.hexdigest()

    def _ask(self, call: Callable[[], T], doing: str, body: int = MOST_BODY) -> T:
        return retried(call, f"{doing} {self.repo}", body)


def _checked(files: Mapping[str, Path | bytes], tokens: Collection[str], last: Collection[str]) -> list[_Content]:
    """The contents in order of their names, once none is refused."""
    missing = [name for name in last if name not in files]
    if missing or len(files) == len(last):
        raise ValueError(f"there must be files to publish before the last, got {list(files)} and {missing}; add some.")
    safety.check_names(files)
    safety.check_files(files)
    for name, source in files.items():
        if safety.find_secret(source, tokens):
            raise ValueError(f"a file must hold no token and no key, got one in {name!r}; take it out and revoke it.")
    return [_Content.of(name, files[name]) for name in sorted(files)]


def _tokens(api: HfApi) -> list[str]:
    """The secrets of this machine that must not be in what is published."""
    found = [api.token, os.environ.get("HF_TOKEN"), get_token()]
    return [token for token in found if isinstance(token, str) and token]


def _stale(there: Mapping[str, RepoFile], contents: Iterable[_Content], replaces: Collection[str]) -> list[str]:
    new = {content.path for content in contents}
    return [path for path in there if path not in new and path.startswith(tuple(replaces))]


def _message(contents: Collection[_Content]) -> str:
    return f"Publish {len(contents)} file{'' if len(contents) == 1 else 's'} with hf-credit"


def _chunks(source: Path | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with source.open("rb") as file:
        while chunk := file.read(2**20):
            yield chunk
