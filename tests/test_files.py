"""What is written, replaced and deleted: whole files, folders of our own, and one module that does it."""

from __future__ import annotations

import ast
import json
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit import files
from hf_credit.files import (
    FolderHandle,
    OwnFolder,
    append,
    copy,
    filled,
    remove_earlier,
    replaced,
    set_aside,
    write,
    write_json,
)

ROOT = Path(__file__).resolve().parent.parent
NOBODY = 65534

# What other modules may call, and why: `*` stands for every call.
MAY_WRITE = {
    "src/hf_credit/files.py": {"*": "the place"},
    "src/hf_credit/agents/host.py": {"open": "a pipe"},
    "src/hf_credit/parquet_child.py": {"open": "a script without the library, in a folder that its parent made"},
    "src/hf_credit/trainers/asynchronous/weights.py": {"save_file": "in a folder of its own, read at once"},
    "src/hf_credit/trainers/asynchronous/worker.py": {"collection.touch": "no file"},
    "packages/local-hub/src/local_hub/objects.py": {"*": "the place of this package, which stands alone"},
    "packages/local-hub/src/local_hub/database.py": {"path.touch": "before SQLite makes it, for its permissions"},
    "packages/local-hub/src/local_hub/running.py": {"(Path(folder) / 'lock').open": "adds nothing"},
    "packages/code-sandbox/src/code_sandbox/inside/channel.py": {"os.open": "/dev/null"},
    "packages/code-sandbox/src/code_sandbox/inside/confinement.py": {"open": "/proc"},
    "packages/leaderboard/src/hf_credit_leaderboard/entries.py": {"parquet.write_table": "returns bytes"},
    "packages/code-sandbox/src/code_sandbox/pool.py": {"open": "/proc", "os.open": "/dev/null"},
}

_PATH_METHODS = {"unlink", "rmdir", "write_text", "write_bytes", "touch", "symlink_to", "hardlink_to", "rename"}
_MODULE_CALLS = {
    "os": {
        *("remove", "removedirs", "rename", "renames", "replace", "rmdir", "unlink", "truncate", "symlink", "link"),
        *("mkfifo", "open"),
    },
    "shutil": {"copy", "copy2", "copyfile", "copyfileobj", "copymode", "copystat", "copytree", "move", "rmtree"},
    "tempfile": {"NamedTemporaryFile", "TemporaryDirectory", "mkdtemp", "mkstemp"},
}
_BY_PATH = {"savefig", "to_parquet", "to_csv", "save_file", "save_pretrained", "write_table", "save"}
_OURS = {"replaced", "filled", "OwnFolder"}


def source_files() -> list[Path]:
    found = [*ROOT.glob("src/**/*.py"), *ROOT.glob("packages/*/src/**/*.py")]
    assert found
    return sorted(found)


def writings(text: str) -> Iterator[tuple[int, str]]:
    """Every (line, call) of a module that deletes, renames or writes a file by itself.

    A library that writes to a path may do so within `with replaced(...)`, `filled(...)` or `OwnFolder(...)`.
    """
    tree = ast.parse(text)
    imported = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    safe = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.With)
        and any(isinstance(one.context_expr, ast.Call) and _name(one.context_expr) in _OURS for one in node.items)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        what = _writing(node, imported) if isinstance(node, ast.Call) else None
        if what is not None and (what not in _BY_PATH or id(node) not in safe):
            yield node.lineno, ast.unparse(node.func)


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _writing(call: ast.Call, imported: dict[str, tuple[str | None, str]]) -> str | None:
    name = _name(call)
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    module = owner.id if isinstance(owner, ast.Name) else None
    if owner is None and name in imported:
        module, name = imported[name]
    if name in _MODULE_CALLS.get(str(module), ()):
        return (
            None if (module, name) == ("os", "open") and not _mentions(call, "O_WRONLY", "O_RDWR", "O_CREAT") else name
        )
    if owner is not None and name in _PATH_METHODS:
        return name
    if owner is not None and name == "replace" and len(call.args) == 1 and not call.keywords:
        return name  # of a path: that of a text has two arguments
    if name in ("open", "fdopen") and any(_is_mode(one) for one in [*call.args, *(k.value for k in call.keywords)]):
        return name
    if name == "save" and module != "torch":
        return None
    if name in ("write_table", "save_file") and str(module).startswith("hf_credit"):
        return None
    return name if name in _BY_PATH else None


def _is_mode(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and len(node.value) <= 3
        and set(node.value) <= set("rwaxbt+")
        and bool(set(node.value) & set("wax+"))
    )


def _mentions(call: ast.Call, *flags: str) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in flags for node in ast.walk(call))


def test_one_module_writes_replaces_and_deletes() -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), call, line)
        for path in source_files()
        for line, call in writings(path.read_text(encoding="utf-8"))
    }
    allowed = {(name, call) for name, calls in MAY_WRITE.items() for call in calls}
    assert sorted(one for one in found if not {one[:2], (one[0], "*")} & allowed) == []
    assert allowed <= {one[:2] for one in found} | {(one[0], "*") for one in found}


@pytest.mark.parametrize(
    "text",
    [
        "import shutil\nshutil.rmtree(folder)",
        "from shutil import rmtree as gone\ngone(folder)",
        "import os\nos.replace(a, b)",
        "path.replace(target)",
        "path.unlink(missing_ok=True)",
        "open(path, 'w')",
        "open(path, mode='x')",
        "path.open('ab')",
        "import gzip\ngzip.open(path, 'wt')",
        "import os\nos.open(path, os.O_WRONLY)",
        "path.write_text(text)",
        "from tempfile import TemporaryDirectory\nTemporaryDirectory()",
        "figure.savefig(path)",
        "import torch\ntorch.save(value, path)",
        "from pyarrow import parquet\nparquet.write_table(table, path)",
        "with replaced(path) as beside:\n    beside.write_text(text)",
    ],
)
def test_a_writing_of_its_own_is_seen(text: str) -> None:
    assert len(list(writings(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "text.replace('a', 'b')",
        "from dataclasses import replace\nreplace(spec, trusted=False)",
        "path.open()",
        "open(path, 'rb')",
        "names.remove(name)",
        "import os\nos.open(folder, os.O_RDONLY)",
        "with replaced(path) as beside:\n    figure.savefig(beside)",
        "with OwnFolder() as folder:\n    model.save_pretrained(folder)",
    ],
)
def test_what_writes_no_file_by_itself_is_free(text: str) -> None:
    assert list(writings(text)) == []


# Of a saved policy and its run: who names a file is who reads it.
SAVED = {
    "adapter_config.json": "loading.py",
    "config.yaml": "evaluation/runs.py",
    "episodes.jsonl": "evaluation/credited.py",
    "evaluation*.json": "evaluation/results.py",
    "hf_credit_checkpoint.json": "checkpoints.py",
    "hf_credit_task.json": "tasks/spec.py",
    "metrics.jsonl": "evaluation/runs.py",
    "run.json": "evaluation/runs.py",
    "trainer_state.json": "evaluation/runs.py",
}


def test_each_file_of_a_saved_policy_and_its_run_is_named_by_one_module() -> None:
    source = ROOT / "src" / "hf_credit"
    named = {
        (node.value, path.relative_to(source).as_posix())
        for path in source.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in SAVED
    }
    assert named == set(SAVED.items())


def names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@contextmanager
def full_disk() -> Iterator[None]:
    """No file may grow beyond 100 bytes, nor what the tests print where that goes to a file: hence only within."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


# Files


def test_what_a_folder_takes_counts_small_files_as_blocks_and_links_once(tmp_path: Path) -> None:
    handle = FolderHandle(tmp_path)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "long").write_bytes(b"x" * 3 * 4096)
    assert (handle.takes_more(5 * 4096), handle.takes_more(5 * 4096 - 1)) == (False, True)
    os.link(tmp_path / "a" / "b" / "long", tmp_path / "again")
    os.symlink(tmp_path, tmp_path / "a" / "round")
    (tmp_path / "short").write_text("x")
    assert (handle.takes_more(7 * 4096), handle.takes_more(7 * 4096 - 1)) == (False, True)
    handle.remove()


def test_a_folder_of_any_depth_takes_too_much_and_goes_whole(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("x")
    handle = OwnFolder(tmp_path)
    (handle.path / "kept").symlink_to(tmp_path / "kept")
    here = os.open(handle.path, os.O_RDONLY)
    for _ in range(1500):  # more than Python's recursion and the length of a path allow
        os.mkdir("a" * 8, dir_fd=here)
        deeper = os.open("a" * 8, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    assert handle.takes_more(10**9)
    handle.remove()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "kept"]


def test_a_full_disk_leaves_the_old_file_and_nothing_beside(tmp_path: Path) -> None:
    path = write(tmp_path / "report.md", "old")
    with full_disk():
        write(path, "new" * 100)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["report.md"]


def test_a_process_that_is_killed_while_it_writes_leaves_the_old_file(tmp_path: Path) -> None:
    path = write(tmp_path / "report.md", "old")
    code = (
        "import os, sys\nfrom hf_credit.files import replaced\n"
        "with replaced(sys.argv[1]) as beside:\n    beside.write_text('half')\n    os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -signal.SIGKILL
    assert path.read_text() == "old"


def test_a_writer_that_raises_leaves_the_old_file(tmp_path: Path) -> None:
    path = write(tmp_path / "a" / "plot.png", b"old")
    with pytest.raises(KeyboardInterrupt), replaced(path) as beside:  # noqa: PT012
        assert beside.suffix == ".png"
        beside.write_bytes(b"half")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a", "a/plot.png"]


def test_a_link_is_replaced_and_what_it_points_to_stays(tmp_path: Path) -> None:
    secret = tmp_path / "bashrc"
    secret.write_text("mine")
    folder = tmp_path / "downloaded"
    folder.mkdir()
    for name in ("report.md", "gone.md"):
        (folder / name).symlink_to(secret if name == "report.md" else tmp_path / "elsewhere")
        write(folder / name, "theirs")
        assert not (folder / name).is_symlink()
        assert (folder / name).read_text() == "theirs"
    (folder / "metrics.jsonl").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic link"):
        append(folder / "metrics.jsonl", "line\n")
    assert secret.read_text() == "mine"
    assert not (tmp_path / "elsewhere").exists()


def test_permissions_are_those_of_the_old_file_or_of_any_new_one(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        new = write(tmp_path / "new", "")
        log = tmp_path / "log"
        append(log, "line\n")
    finally:
        os.umask(before)
    assert stat.S_IMODE(new.stat().st_mode) == stat.S_IMODE(log.stat().st_mode) == 0o640
    new.chmod(0o600)
    assert stat.S_IMODE(write(new, "again").stat().st_mode) == 0o600
    assert stat.S_IMODE(files.write_private(tmp_path / "secret", b"salt").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError):
        files.write_private(tmp_path / "secret", b"other")


def test_a_read_only_file_is_not_replaced() -> None:
    as_any_user(refuse_to_replace)


def refuse_to_replace(tmp_path: Path) -> None:
    path = write(tmp_path / "kept", "mine")
    path.chmod(0o444)
    with pytest.raises(PermissionError, match="kept"):
        write(path, "other")
    assert path.read_text() == "mine"
    assert names(tmp_path) == ["kept"]


def test_a_file_that_may_not_be_written_is_refused_before_anything_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "kept", "mine")
    monkeypatch.setattr(files.os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match="kept"):
        write(path, "other")
    with pytest.raises(PermissionError, match="kept"), filled(tmp_path) as new:
        (new / "kept").write_text("other")
    assert path.read_text() == "mine"


def test_a_folder_in_the_place_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "report.md" / "sub").mkdir(parents=True)
    with pytest.raises(OSError, match="report") as refused:
        write(tmp_path / "report.md", "text")
    assert str(refused.value).endswith("report.md'")
    assert names(tmp_path) == ["report.md", "report.md/sub"]


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write(pipe, "text")
    reader.join()
    assert read == ["text"]
    done = subprocess.run(
        [sys.executable, "-c", "from hf_credit.files import write; write('/dev/stdout', 'text')"],
        capture_output=True,
        check=True,
    )
    assert done.stdout == b"text"


def test_two_processes_that_replace_a_file_leave_one_of_both_whole(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    code = (
        "import sys\nfrom hf_credit.files import write_json\n"
        "for _ in range(30): write_json(sys.argv[1], [sys.argv[2]] * 999)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), name]) for name in "ab"]
    while any(one.poll() is None for one in writers):
        if path.exists():
            assert len(set(json.loads(path.read_text()))) == 1
    assert [one.returncode for one in writers] == [0, 0]
    assert names(tmp_path) == ["file.json"]


def test_a_log_has_whole_lines_only_at_a_full_disk_too(tmp_path: Path) -> None:
    log = tmp_path / "metrics.jsonl"
    append(log, "1" * 59 + "\n")
    with full_disk():
        append(log, "2" * 59 + "\n")
    append(log, "3\n")
    assert log.read_text().split() == ["1" * 59, "3"]


@given(st.binary(max_size=3), st.lists(st.text(alphabet="ab", min_size=1), max_size=3))
def test_lines_after_half_a_line_are_whole(left: bytes, lines: list[str]) -> None:
    with OwnFolder() as folder:
        log = folder / "log"
        log.write_bytes(left)
        for line in lines:
            append(log, f"{line}\n")
        content = log.read_bytes()
        assert content.startswith(left)
        assert not lines or content.decode(errors="replace").split("\n")[-len(lines) - 1 :] == [*lines, ""]


# Several files


def test_files_go_to_a_folder_together_beside_others(tmp_path: Path) -> None:
    write(tmp_path / "README.md", "of the user")
    write(tmp_path / "config.json", "old")
    write(tmp_path / "adapter" / "old.bin", "old")
    with filled(tmp_path, without=["adapter/old.bin", "config.json"]) as new:
        write(new / "config.json", "new")
        write(new / "sub" / "weights", "new")
    assert names(tmp_path) == ["README.md", "adapter", "config.json", "sub", "sub/weights"]
    assert (tmp_path / "config.json").read_text() == "new"


def test_a_folder_that_cannot_be_filled_stays_as_it_was(tmp_path: Path) -> None:
    write(tmp_path / "config.json", "old")
    with pytest.raises(OSError, match="full"), filled(tmp_path, without=["config.json"]) as new:  # noqa: PT012
        write(new / "config.json", "new")
        raise OSError("full")
    assert names(tmp_path) == ["config.json"]
    assert (tmp_path / "config.json").read_text() == "old"


@pytest.mark.parametrize("without", [[], ["sub/mine"]])
def test_a_link_to_a_folder_leads_no_file_out_of_the_filled_one(tmp_path: Path, without: list[str]) -> None:
    write(tmp_path / "home" / "mine", "mine")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "sub").symlink_to(tmp_path / "home")
    with pytest.raises(ValueError, match="must lie in it, got"), filled(tmp_path / "model", without) as new:  # noqa: PT012
        write(new / "config.json", "new")
        if not without:
            write(new / "sub" / "mine", "theirs")
    assert (tmp_path / "home" / "mine").read_text() == "mine"
    assert names(tmp_path / "model") == ["sub"]


# Folders


@pytest.mark.parametrize("variable", ["HOME", "TMPDIR", "PWD"])
def test_a_folder_of_ours_goes_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    write(tmp_path / "home" / "thesis", "mine")
    own = OwnFolder(tmp_path / "runs")
    write(own.path / "sub" / "file", "ours")
    monkeypatch.setenv(variable, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "home")
    own.remove()
    own.remove()
    assert names(tmp_path) == ["home", "home/thesis", "runs"]


@pytest.mark.parametrize("put", ["a folder", "a link", "nothing"])
def test_another_folder_under_the_name_of_ours_stays(tmp_path: Path, put: str) -> None:
    write(tmp_path / "thesis" / "text", "mine")
    own = OwnFolder(tmp_path)
    write(own.path / "file", "ours")
    own.path.rename(tmp_path / "taken")
    if put == "a folder":
        shutil.copytree(tmp_path / "thesis", own.path)
    elif put == "a link":
        own.path.symlink_to(tmp_path / "thesis")
    before = names(tmp_path)
    own.remove()
    assert names(tmp_path) == before


def test_a_folder_that_was_removed_and_made_again_is_not_ours(tmp_path: Path) -> None:
    own = OwnFolder(tmp_path)
    own.path.rmdir()
    write(own.path / "text", "mine")  # an inode that is free may be given to it
    own.remove()
    assert (own.path / "text").read_text() == "mine"


def test_a_link_in_a_folder_of_ours_goes_and_its_target_stays(tmp_path: Path) -> None:
    write(tmp_path / "thesis" / "text", "mine")
    with OwnFolder(tmp_path) as folder:
        (folder / "link").symlink_to(tmp_path / "thesis")
    assert names(tmp_path) == ["thesis", "thesis/text"]


def as_any_user(act: Callable[[Path], None]) -> None:
    """Runs a function in a process of a user who is not root, with an empty folder of theirs."""
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, *((NOBODY, NOBODY) if os.geteuid() == 0 else (-1, -1)))
        if not (child := os.fork()):
            code = 1
            try:
                if os.geteuid() == 0:
                    os.setgroups([])
                    os.setresgid(NOBODY, NOBODY, NOBODY)
                    os.setresuid(NOBODY, NOBODY, NOBODY)
                act(Path(folder))
                code = 0
            finally:
                if code:
                    traceback.print_exc()
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("mode", [0o000, 0o100, 0o200, 0o300, 0o400, 0o500])
@pytest.mark.parametrize("inner", ["d", "a/b/d", "."])
def test_a_folder_of_ours_goes_whatever_may_not_be_written_in_it(inner: str, mode: int) -> None:
    def act(folder: Path) -> None:
        own = OwnFolder(folder / "runs")
        for name in ("d/e/f", "d/e/g"):
            write(own.path / inner / name, "text")
        (own.path / inner / "d" / "link").symlink_to(folder / "home")
        write(folder / "home" / "mine", "mine")
        (folder / "home").chmod(0o500)
        for name in ("d/e", "d", "."):
            (own.path / inner / name).chmod(mode)
        own.remove()
        assert names(folder) == ["home", "home/mine", "runs"]
        assert stat.S_IMODE((folder / "home").stat().st_mode) == 0o500
        (folder / "home").chmod(0o700)

    as_any_user(act)


def test_a_folder_of_ours_goes_with_its_process_and_not_with_a_fork(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom hf_credit.files import OwnFolder\nown = OwnFolder(sys.argv[1])\n"
        "kept = OwnFolder(sys.argv[1], prefix='kept-', kept=True)\n"
        "if os.fork() == 0:\n    del own, kept\n    sys.exit()\n"
        "os.wait()\nassert own.path.is_dir()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    (left,) = tmp_path.iterdir()
    assert left.name.startswith("kept-")


def test_only_a_marked_folder_of_an_earlier_run_goes(tmp_path: Path) -> None:
    write(tmp_path / "checkpoint-1" / "mark", "")
    write(tmp_path / "checkpoint-2" / "model", "mine")
    (tmp_path / "checkpoint-3").symlink_to(tmp_path / "checkpoint-1")
    assert [remove_earlier(tmp_path / f"checkpoint-{step}", ["mark"]) for step in (3, 2, 1, 7)] == [
        False,
        False,
        True,
        False,
    ]
    aside = set_aside(tmp_path / "checkpoint-2")
    assert (aside / "model").read_text() == "mine"
    assert aside.name.startswith("checkpoint-2.before-")
    assert not (tmp_path / "checkpoint-2").exists()


def test_a_copy_and_json_are_written_alike(tmp_path: Path) -> None:
    path = write_json(tmp_path / "a.json", {"x": [1]}, indent=None)
    copy(path, tmp_path / "sub" / "b.json")
    assert (tmp_path / "sub" / "b.json").read_text() == '{"x": [1]}\n'
