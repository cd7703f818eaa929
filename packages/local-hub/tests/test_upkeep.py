"""A Hub's folder: sweeps, checks, and the commands."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import CommitOperationAdd, HfApi

from local_hub.auth import token_is_known
from local_hub.commands import main
from local_hub.running import open_hub, serve, serving
from local_hub.upkeep import check, sweep

REPO = "org/kept"


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a Hub with a small and a large file on main, and another file in a deleted repository."""
    folder = tmp_path_factory.mktemp("hub")
    with serving(folder) as hub:
        api = HfApi(endpoint=hub.url, token=hub.token("root", "admin"))
        for name in (REPO, "org/gone"):
            api.create_repo(name)
            files = [CommitOperationAdd("a.txt", name.encode()), CommitOperationAdd("in/b.bin", name.encode() * 50)]
            api.create_commit(name, files, commit_message="Fill")
        api.delete_repo("org/gone")
    return folder


@pytest.fixture
def folder(filled: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(filled, tmp_path / "hub")


def objects(folder: Path) -> list[Path]:
    return [path for path in folder.glob("objects/*/*") if path.is_file()]


def make_old(path: Path) -> None:
    old = time.time() - 2 * 24 * 3600
    os.utime(path, (old, old))


def problems(folder: Path) -> list[str]:
    with open_hub(folder) as hub:
        return list(check(hub))


def test_what_no_commit_has_goes_after_a_day(folder: Path) -> None:
    with open_hub(folder) as hub:
        assert len(objects(folder)) == 5
        assert sweep(hub) == 0
        for path in objects(folder):
            make_old(path)
        assert sweep(hub) == 2
    assert len(objects(folder)) == 3
    assert problems(folder) == []


def test_a_server_starts_without_unfinished_files(folder: Path) -> None:
    (folder / "tmp" / ("0" * 32)).write_bytes(b"half")
    with serving(folder):
        assert list((folder / "tmp").iterdir()) == []


def test_check_finds_what_changed_and_what_is_missing(folder: Path) -> None:
    assert problems(folder) == []
    small = next(path for path in objects(folder) if path.read_bytes() == REPO.encode())
    large = next(path for path in objects(folder) if path.read_bytes() == REPO.encode() * 50)
    small.write_bytes(b"x" * len(REPO))
    large.unlink()
    found = problems(folder)
    assert f"the content of object {small.name} does not match its name." in found
    assert f"object {large.name} is missing." in found
    assert any(re.match("the content of file .* does not match its id", one) for one in found)


def test_check_finds_a_head_and_a_folder_that_are_not_there(folder: Path) -> None:
    for path in objects(folder):
        make_old(path)
    with open_hub(folder) as hub, hub.database.write() as writing:
        writing.execute("UPDATE refs SET oid = ?", ("0" * 40,))
        writing.execute("UPDATE trees SET content = X'00' WHERE length(content) < 40")
    with serving(folder):  # what can still be read is served, and nothing is swept
        assert len(objects(folder)) == 5
    found = " ".join(problems(folder))
    assert "refs/heads/main of repository 1 is at 0000" in found
    assert re.search("folder [0-9a-f]{40} is missing, or its content does not match", found)


def test_every_connection_to_the_tables_is_closed(folder: Path) -> None:
    """Also connections in use when a server ends, and that to a file that is not a database."""
    opened: list[sqlite3.Connection] = []
    with open_hub(folder) as hub, hub.database.write() as writing:
        opened.append(writing)
        hub.database.close()
        assert hub.database.one("SELECT 1 FROM repos") is not None
    (folder / "hub.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(sqlite3.DatabaseError) as refused, open_hub(folder):
        pass
    frames = [frame.f_locals for frame, _ in traceback.walk_tb(refused.value.__traceback__)]
    opened += [one["connection"] for one in frames if isinstance(one.get("connection"), sqlite3.Connection)]
    assert len(opened) > 1
    for connection in opened:
        with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
            connection.execute("SELECT 1")


def test_two_servers_do_not_share_a_folder(tmp_path: Path) -> None:
    with (
        serving(tmp_path),
        pytest.raises(ValueError, match="one server at a time may serve a folder"),
        serving(tmp_path),
    ):
        pass


@contextlib.contextmanager
def served_by_command(folder: Path) -> Iterator[str]:
    """The address of a Hub that `serve` serves."""
    command = [sys.executable, "-m", "local_hub.commands", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().rpartition(" at ")[2].strip()
        process.terminate()


def test_the_command_serves_and_writes_what_clients_need(tmp_path: Path) -> None:
    with served_by_command(tmp_path / "hub") as url:
        shown = (tmp_path / "hub/env.sh").read_text()
        values = dict(re.findall(r"export (\w+)=(.+)", shown))
        assert values["HF_ENDPOINT"] == url
        assert values["HF_HUB_DISABLE_XET"] == "1"
        assert (tmp_path / "hub/env.sh").stat().st_mode & 0o077 == 0
        HfApi(endpoint=url, token=values["HF_TOKEN"]).create_repo(REPO)
    with served_by_command(tmp_path / "hub") as url:  # with the same token
        assert HfApi(endpoint=url, token=values["HF_TOKEN"]).repo_exists(REPO)


def test_a_token_file_that_holds_something_else_is_refused_and_stays(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.write_bytes(b"\xffmine")
    with serving(tmp_path / "hub") as hub:
        token = hub.token("admin", "admin")
    with pytest.raises(ValueError, match="must be new or hold a token of this Hub"):
        serve(tmp_path / "hub", token_file=notes)
    assert notes.read_bytes() == b"\xffmine"
    with open_hub(tmp_path / "hub") as opened:
        assert token_is_known(opened.database, token)


# Commands


def test_hub_token_prints_a_token_with_its_rights_and_ends_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run("token", str(folder), "ada", "--rights", "none", "--repo", "ada/*=write")
    token = capsys.readouterr().out.strip()
    with serving(folder) as hub:
        api = HfApi(endpoint=hub.url, token=token)
        assert api.whoami()["name"] == "ada"
        api.create_repo("ada/own")
        _run("token", str(folder), "ada", "--revoke")
        assert capsys.readouterr().out == "revoked 1 tokens of ada\n"
        with pytest.raises(Exception, match=r"401|Invalid user token"):
            api.whoami()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["token", "{folder}", "ada", "--rights", "all"], "rights must be one of none, read, write, admin"),
        (["token", "{folder}", "ada", "--repo", "x"], "--repo must be owner/name=right"),
        (["token", "{folder}/none", "ada"], "the folder of a Hub must have hub.sqlite"),
        (["check", "{folder}/none"], "the folder of a Hub must have hub.sqlite"),
    ],
)
def test_a_command_that_fails_prints_the_reason(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert _run(*(one.format(folder=folder) for one in arguments)) == 1
    assert message in capsys.readouterr().err


def test_hub_check_prints_problems_and_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run("check", str(folder)) == 0
    assert capsys.readouterr().out == "1 repositories, 2 commits, 5 files: no problems\n"
    objects(folder)[0].write_bytes(b"")
    assert _run("check", str(folder)) == 1
    assert "does not match its name" in capsys.readouterr().out


def _run(*arguments: str) -> int:
    try:
        main(list(arguments))
    except SystemExit as ended:
        return int(ended.code or 0)
    return 0


def test_a_folder_of_a_user_is_not_served_and_keeps_its_files(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp" / "thesis").write_text("mine")
    with (
        pytest.raises(ValueError, match="a Hub needs a new or empty folder, or that of"),
        serving(tmp_path),
    ):
        pass
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["thesis", "tmp"]


def test_files_of_others_in_the_folders_of_a_hub_stay(tmp_path: Path) -> None:
    with serving(tmp_path):
        pass
    (tmp_path / "objects" / "ab").mkdir()
    ours = tmp_path / "tmp" / ("0" * 32)
    others = [tmp_path / "tmp" / "thesis", tmp_path / "objects" / "ab" / "thesis"]
    for path in (ours, *others):
        path.write_text("text")
        os.utime(path, (0, 0))
    with serving(tmp_path), open_hub(tmp_path) as hub:
        sweep(hub)
    assert [path.exists() for path in (ours, *others)] == [False, True, True]
