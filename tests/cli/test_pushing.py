"""A run that pushes what it trained, over HTTP, to a Hub that keeps what it is sent."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from hf_credit.tasks.spec import TaskSpec


class Hub(ThreadingHTTPServer):
    """As much of the Hub as a push of small files asks for; the files of each commit go to `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        self.folder = folder
        self.commits: list[list[str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def answer(self, path: str, body: bytes) -> dict[str, Any]:
        if path == "/api/repos/create":
            return {"url": f"{self.url}/me/{json.loads(body)['name']}"}
        if path == "/api/validate-yaml":
            return {"errors": [], "warnings": []}
        if "/preupload/" in path:
            names = [file["path"] for file in json.loads(body)["files"]]
            return {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]}
        if "/commit/" in path:
            lines = [json.loads(line) for line in body.splitlines()]
            files = {line["value"]["path"]: line["value"]["content"] for line in lines if line["key"] == "file"}
            for name, content in files.items():
                (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self.folder / name).write_bytes(base64.b64decode(content))
            self.commits.append(sorted(files))
            return {"commitOid": "0" * 40, "commitUrl": f"{self.url}/me/run/commit/{'0' * 40}"}
        return {}


class Asked(BaseHTTPRequestHandler):
    """Answers in JSON."""

    server: Hub

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = json.dumps(self.server.answer(self.path.partition("?")[0], body)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with Hub(tmp_path / "hub") as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield server
        server.shutdown()
        serving.join()


def test_an_adapter_is_pushed_once_with_its_game_and_can_be_loaded(
    hub: Hub, recipe: Callable[..., Path], micro_policy: Path
) -> None:
    path = recipe(max_steps=1, warmup_steps=0, push_to_hub=True, use_peft=True, lora_r=4)
    finished = subprocess.run(
        [sys.executable, "-m", "hf_credit.cli", "train", str(path)],
        env={**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_TOKEN": "hf_x", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr[-3000:]
    assert len(hub.commits) == 1
    run = path.parent / "run"
    for name in ("adapter_model.safetensors", "adapter_config.json", "README.md"):
        assert (hub.folder / name).read_bytes() == (run / name).read_bytes(), name
    assert TaskSpec.load(hub.folder) == TaskSpec.load(run)
    base = AutoModelForCausalLM.from_pretrained(micro_policy)
    tokens = torch.arange(12)[None]
    before = base(tokens).logits.detach()
    loaded = PeftModel.from_pretrained(base, hub.folder)
    assert not torch.equal(loaded(tokens).logits, before)
