"""An endpoint that means harm: no loader writes beyond its cache, takes without end, or fails with a raw error."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from huggingface_hub import CommitOperationAdd, HfApi, constants, set_client_factory, snapshot_download
from huggingface_hub.utils import _http, close_session, get_session
from peft import PeftConfig
from transformers import AutoTokenizer

from hf_credit import http_guard, hub_client
from hf_credit import hub as loaders
from hf_credit.critics.backbone import own_backbone
from hf_credit.data import load_problems
from hf_credit.hub import retries
from hf_credit.hub.episode_rows import episode_of
from hf_credit.hub.loading import fetch
from hf_credit.hub.retries import HubError
from hf_credit.hub.task_sets import publish_tasks
from hf_credit.hub_client import Guarded
from hf_credit.loading import load_model, load_policy
from hf_credit.tasks import TaskSpec
from hf_credit.tasks.rows import load_splits
from hf_credit_leaderboard.sources import Hub
from local_hub.running import Served

COMMIT = "0123456789" * 4
BODY = b"{}"
ETAG = hashlib.sha1(b"blob 2\0{}", usedforsecurity=False).hexdigest()
LOADERS = {
    "load_tasks": "hf_credit_dataset.json",
    "load_episodes": "hf_credit_dataset.json",
    "load_metric": "x.py",
    "load_checkpoint": "model.safetensors",
    "load_environment": "openenv.yaml",
    "season": "season.json",
}


class Hostile(ThreadingHTTPServer):
    """A Hub with one file in every repository; `harm` says what it does about it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.harm: dict[str, Any] = {}
        self.sent = 0
        self.asked = 0
        self.file = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    server: Hostile

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.server.asked += 1
        harm = self.server.harm
        if self.path.endswith(harm.get("missing", ())):
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif "/api/" in self.path and "/tree/" not in self.path and "renamed" in harm:
            self.send_response(307)
            self.send_header("Location", harm["renamed"])
            self.send_header("Content-Length", "0")
            self.end_headers()
        elif "/resolve/" in self.path:
            headers = {"ETag": f'"{ETAG}"', "X-Repo-Commit": COMMIT, "Content-Length": "2", **harm.get("headers", {})}
            self.send(BODY, {name: value for name, value in headers.items() if value is not None})
        elif "/tree/" in self.path:
            entry = {"type": "file", "path": self.server.file, "size": 2, "oid": ETAG, **harm.get("entry", {})}
            more = {"Link": f'<{self.server.url}/tree/{self.server.asked}>; rel="next"'} if "pages" in harm else {}
            self.send(json.dumps(harm.get("pages", [entry])).encode(), more)
        else:
            about = {"id": "me/x", "sha": harm.get("sha", COMMIT), "private": False, "siblings": []}
            self.send(json.dumps(about).encode(), {})

    def send(self, body: bytes, headers: dict[str, str]) -> None:
        headers = {"Content-Length": str(len(body)), **headers}
        if "endless" in self.server.harm and "/resolve/" in self.path and self.command == "GET":
            headers = {name: value for name, value in headers.items() if name != "Content-Length"}
            headers["Connection"] = "close"
        self.send_response(200)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body)
        if headers.get("Connection") == "close":
            with contextlib.suppress(OSError):
                while self.server.sent < 2**28:
                    self.server.sent += self.wfile.write(b"x" * 2**16)
            self.close_connection = True

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture
def hostile() -> Iterator[Hostile]:
    with Hostile() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def load(
    hostile: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], BaseException | None]]:
    """What a loader of the hostile endpoint raises, once it was found to have written to its cache alone."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(retries, "pause", lambda seconds: None)
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")

    def loading(name: str) -> BaseException | None:
        hostile.file = LOADERS[name]
        season = Hub(endpoint=hostile.url).season
        load = season if name == "season" else functools.partial(getattr(loaders, name), endpoint=hostile.url)
        with pytest.raises(Exception) as raised:  # noqa: PT011 - each test looks at it
            load("me/x")
        assert victim.read_bytes() == b"mine"
        assert {one.name for one in tmp_path.iterdir()} <= {"cache", "victim"}
        written = [one for one in (tmp_path / "cache").rglob("*") if one.is_file()]
        assert sum(one.stat().st_size for one in written) < 10_000
        return raised.value

    yield loading
    close_session()


@pytest.mark.parametrize(
    "headers",
    [
        {"ETag": '"{tmp}/victim"'},
        {"ETag": "{tmp}/made"},
        {"ETag": '"../../../made"'},
        {"ETag": "W.."},
        {"ETag": '".."'},
        {"ETag": '"a/b"'},
        {"X-Linked-Etag": '"{tmp}/victim"'},
        {"X-Repo-Commit": "../../../made"},
        {"X-Repo-Commit": "{tmp}/made"},
    ],
    ids=str,
)
@pytest.mark.parametrize("name", LOADERS)
def test_no_header_names_a_file_beyond_the_cache(
    hostile: Hostile, load: Any, name: str, headers: dict[str, str], tmp_path: Path
) -> None:
    hostile.harm = {"headers": {one: value.format(tmp=tmp_path) for one, value in headers.items()}}
    error = load(name)
    assert isinstance(error, HubError)
    assert "which could name any file of this machine; do not use this Hub." in str(error)
    assert not list((tmp_path / "cache").rglob("*.incomplete"))


@pytest.mark.parametrize("name", LOADERS)
def test_a_client_that_is_made_after_a_failure_checks_too(hostile: Hostile, load: Any, name: str) -> None:
    hostile.harm = {"headers": {"ETag": '"../made"'}}
    load(name)
    close_session()  # as huggingface_hub does after a connection failed
    assert isinstance(load(name), HubError)


def _of_an_adapter(folder: Path) -> None:
    folder.mkdir()
    about = {"peft_type": "LORA", "base_model_name_or_path": "me/x", "task_type": "CAUSAL_LM"}
    (folder / "adapter_config.json").write_text(json.dumps(about))
    load_model(folder)


WAYS: dict[str, Callable[[Path], Any]] = {
    "rows of tasks": lambda folder: load_splits("me/x", only="test"),
    "rows in streaming": lambda folder: next(iter(load_splits("me/x", only="test", streaming=True)["test"])),
    "a set of problems": lambda folder: load_problems("gsm8k/test"),
    "the latest commit of a set": lambda folder: load_problems("cmath/test"),
    "the base of an adapter": lambda folder: _of_an_adapter(folder / "policy"),
    "a model": lambda folder: load_model("me/x"),
    "the model of a role": lambda folder: load_policy("me/x"),
    "a critic": lambda folder: own_backbone("me/x", torch.nn.Linear(1, 1), None, torch.device("cpu"), False),
    "a task file": lambda folder: TaskSpec.load("me/x"),
    "datasets itself": lambda folder: datasets.load_dataset("me/x"),
    "transformers itself": lambda folder: AutoTokenizer.from_pretrained("me/x"),
    "peft itself": lambda folder: PeftConfig.from_pretrained("me/x"),
    "huggingface_hub itself": lambda folder: snapshot_download("me/x"),
}
"""Ways to a Hub that no loader of `hf_credit.hub` is on."""


@pytest.fixture
def by_default(hostile: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The hostile endpoint as the only Hub, and a folder with a victim and the caches of all clients."""
    caches = tmp_path / "caches"
    monkeypatch.setattr(constants, "ENDPOINT", hostile.url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", hostile.url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(caches / "hub"))
    monkeypatch.setattr(datasets.config, "HF_ENDPOINT", hostile.url)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(caches / "datasets" / "here"))
    monkeypatch.setattr(datasets.config, "HF_MODULES_CACHE", str(caches / "modules"))
    (tmp_path / "victim").write_bytes(b"mine")
    hostile.file = "train.csv"
    yield tmp_path
    close_session()


def _refusal(way: Callable[[Path], Any], folder: Path) -> str:
    """What a way says, with the causes of it: clients wrap errors in their own."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the test looks at it
        way(folder)
    error, said = raised.value, []
    while error is not None:
        said.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(said)


@pytest.mark.parametrize("header", ["ETag", "X-Linked-Etag", "X-Repo-Commit"])
@pytest.mark.parametrize("way", WAYS)
def test_no_way_to_the_hub_writes_beyond_its_cache(hostile: Hostile, by_default: Path, way: str, header: str) -> None:
    hostile.harm = {"headers": {header: f'"{by_default}/victim"', "Content-Length": "2"}}
    assert "could name any file of this machine" in _refusal(WAYS[way], by_default)
    assert (by_default / "victim").read_bytes() == b"mine"
    assert {one.name for one in by_default.iterdir()} <= {"caches", "victim", "policy"}


@pytest.mark.parametrize("renamed", [{}, {"renamed": "/elsewhere"}], ids=["", "redirected"])
@pytest.mark.parametrize("name", ["{tmp}/made", "../../../../made", "..", 5, ["a"]], ids=str)
@pytest.mark.parametrize("way", ["rows of tasks", "rows in streaming", "datasets itself", "huggingface_hub itself"])
def test_no_commit_in_a_body_names_a_folder(
    hostile: Hostile, by_default: Path, way: str, name: Any, renamed: dict[str, str]
) -> None:
    commit = name.format(tmp=by_default) if isinstance(name, str) else name
    hostile.harm = {"sha": commit, "missing": ("README.md", ".py"), **renamed}
    assert "could name any file of this machine" in _refusal(WAYS[way], by_default)
    assert {one.name for one in by_default.iterdir()} <= {"caches", "victim"}


@pytest.mark.parametrize("order", ["hf_credit, datasets", "datasets, hf_credit", "hf_credit.data, transformers"])
def test_the_guard_is_there_in_whatever_order_a_program_imports(order: str) -> None:
    program = (
        f"import {order}\n"
        "from huggingface_hub import get_session, set_client_factory\n"
        "from huggingface_hub.utils import _http\n"
        "seen = [get_session().event_hooks['response'][-1].__module__]\n"
        "set_client_factory(_http.default_client_factory)\n"
        "print(*seen, get_session().event_hooks['response'][-1].__module__)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["hf_credit.http_guard"] * 2


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        ({"endless": True}, "at most 2 bytes, got more"),
        ({"headers": {"Content-Length": "264000000"}}, "Content-Length must be at most 2, got '264000000'"),
        ({"headers": {"X-Linked-Size": "3"}}, "X-Linked-Size must be at most 2, got '3'"),
        ({"headers": {"Content-Encoding": "gzip"}}, "must answer with plain bytes, got 'gzip'"),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", LOADERS)
def test_nothing_is_taken_without_end(hostile: Hostile, load: Any, name: str, harm: dict[str, Any], told: str) -> None:
    hostile.harm = harm
    error = load(name)
    assert isinstance(error, HubError)
    assert told in str(error)
    assert hostile.sent < 2**24


def test_a_list_of_files_without_end_is_refused(hostile: Hostile, load: Any) -> None:
    hostile.harm = {"pages": []}
    assert "must answer at most 1000 times to one call" in str(load("load_tasks"))
    hostile.harm = {"pages": [{"type": "file", "path": "a", "size": 2, "oid": ETAG}] * 1000}
    assert "at most 20000 files and folders, got more in me/x" in str(load("load_tasks"))


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"size": "2"}, "must list files by name and size, got '.*' of '2' bytes"),
        ({"size": -1}, "must list files by name and size"),
        ({"size": True}, "must list files by name and size"),
        ({"path": 5}, "must list files by name and size, got 5 of 2 bytes"),
        ({"type": "directory", "path": 5}, "must list files by name and size, got 5"),
        ({"lfs": "x"}, "reading me/x: TypeError"),
    ],
)
def test_a_list_that_is_none_is_refused_in_one_sentence(
    hostile: Hostile, load: Any, entry: dict[str, Any], told: str
) -> None:
    hostile.harm = {"entry": entry}
    with pytest.raises(HubError, match=told):
        raise load("load_checkpoint")


def test_the_clients_of_others_are_kept_and_wrapped_once(hostile: Hostile) -> None:
    before = _http._GLOBAL_CLIENT_FACTORY
    made: list[Any] = []

    def own() -> Any:
        made.append(_http.default_client_factory())
        return made[-1]

    try:
        set_client_factory(own)
        hub_client.install()
        assert get_session() is made[-1]
        assert get_session().event_hooks["response"][-1:] == [http_guard._check]
        factory = _http._GLOBAL_CLIENT_FACTORY
        assert isinstance(factory, Guarded)
        assert factory.factory is own
    finally:
        set_client_factory(before)


@pytest.fixture(scope="module")
def described(hub: Served) -> tuple[HfApi, dict[str, Any]]:
    """A dataset of tasks on a Hub, and what it says of itself."""
    where = {"endpoint": hub.url, "token": hub.token()}
    spec = TaskSpec(task="sudoku", task_options={"size": 4, "blanks": 4})
    publish_tasks(spec, "me/described", train=2, held_out=2, **where)
    found = fetch("me/described", repo_type="dataset", endpoint=hub.url, allow=["*.json"])
    return HfApi(**where), json.loads(found.files["hf_credit_dataset.json"].read_text())


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"rows": {"train": 2, "test": 2}}, "must list the columns"),
        ({"rows": [1]}, "must list the columns"),
        ({"rows": 5}, "must list the columns"),
        ({"rows": {}}, "must list the columns"),
        ({"columns": [5]}, "must list the columns"),
        ({"columns": None}, "must list the columns"),
        ({"fingerprints": {}}, "must list the columns"),
        ({"columns": ["seed", "missing"]}, "must have the columns seed, missing, got none or others in train"),
        ({"task": None}, "a task's spec must be a mapping"),
    ],
    ids=str,
)
def test_a_data_set_that_describes_another_one_is_refused(
    described: tuple[HfApi, dict[str, Any]], changed: dict[str, Any], told: str
) -> None:
    api, about = described
    text = json.dumps({**about, **changed}).encode()
    added = [CommitOperationAdd("hf_credit_dataset.json", text)]
    api.create_commit("me/described", added, commit_message="Change", repo_type="dataset")
    with pytest.raises(ValueError, match=told):
        loaders.load_tasks("me/described", endpoint=api.endpoint)


def test_an_episode_that_claims_more_decisions_than_memory_holds_is_refused() -> None:
    interaction = TaskSpec(task="sudoku", task_options={"size": 4}).build()
    with pytest.raises(ValueError, match="must have all its decisions, got 1 of 4611686018427387904 for a"):
        episode_of(interaction, {"turns": 2**62, "id": "a"}, [{"index": 0}])
