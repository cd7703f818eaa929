"""Ids equal those of git itself; an object is stored whole or not at all."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hub_faults import Fault, Faults

from local_hub.database import Database
from local_hub.objects import (
    Objects,
    git_commit,
    git_id,
    git_trees,
    lfs_pointer,
    tree_entries,
    write_private,
)

FILES = {
    ".gitattributes": b"*.bin filter=lfs\n",
    "a": b"",
    "a.b": b"one\n",
    "a-b/c": b"two\n",
    "ab/c/d": b"\0\1\2",
    "ab.c": b"three",
    "ünï": b"four",
}


def git(folder: Path, *arguments: str, **environment: str) -> str:
    kept = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", **environment}
    return subprocess.run(["git", *arguments], cwd=folder, env=kept, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def work_tree(tmp_path: Path) -> Path:
    for path, content in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(content)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    return tmp_path


def test_files_folders_and_commits_have_the_ids_that_git_gives_them(work_tree: Path) -> None:
    root, trees = git_trees({path: git_id("blob", content) for path, content in FILES.items()})
    assert root == git(work_tree, "write-tree").strip()

    who = {
        f"GIT_{role}_{name}": value
        for role in ("AUTHOR", "COMMITTER")
        for name, value in (("NAME", "ada"), ("EMAIL", "ada@users.noreply.invalid"), ("DATE", "1700000000 +0000"))
    }
    first = git(work_tree, "commit-tree", root, "-m", "One", **who).strip()
    assert git_id("commit", git_commit(root, [], "ada", 1_700_000_000, "One")) == first
    second = git(work_tree, "commit-tree", root, "-p", first, "-m", "Two", "-m", "More\nof it.", **who).strip()
    made = git_commit(root, [first], "ada", 1_700_000_000, "Two\n\nMore\nof it.\n")
    assert git_id("commit", made) == second
    assert next(tree_entries(trees[root])) == (".gitattributes", git_id("blob", FILES[".gitattributes"]), False)


def test_an_author_cannot_add_a_header_to_a_commit() -> None:
    content = git_commit("0" * 40, [], "eve>\nparent " + "1" * 40, 0, "One")
    assert content.count(b"\n\n") == 1
    assert b"\nparent" not in content


def test_the_pointer_of_a_large_file_is_that_of_git_lfs() -> None:
    # From the specification of git-lfs.
    oid = "4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393"
    expected = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize 12345\n"
    assert lfs_pointer(oid, 12345) == expected.encode()


def test_an_object_without_room_leaves_nothing_behind(tmp_path: Path) -> None:
    for point in ("object-write", "object-rename"):
        objects = Objects(tmp_path, Faults([Fault(effect="disk_full", point=point)]))
        with pytest.raises(OSError, match="No space left"):
            objects.put(b"content")
        assert list(objects.all()) == []
        assert list(objects.temporary.iterdir()) == []


def test_a_transaction_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    database = Database(tmp_path / "hub.sqlite", Faults([Fault(effect="disk_full", point="transaction-commit")]))
    with pytest.raises(OSError, match="No space left"), database.write() as writing:
        writing.execute("INSERT INTO trees VALUES ('a', 'b')")
    assert database.read("SELECT * FROM trees") == []
    database.close()


def test_a_secret_that_cannot_be_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_private(tmp_path / "token", "old")

    def full(_: int) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_private(tmp_path / "token", "new")
    assert (tmp_path / "token").read_text() == "old"
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600
