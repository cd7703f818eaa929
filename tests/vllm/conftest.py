"""vLLM servers and runs, each a process of its own: what vLLM leaves in a process would change other tests."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

START_SECONDS = 600.0


@dataclass
class Server:
    """A vLLM server on the loopback, started as its users do."""

    policy: Path
    port: int
    log: Path
    env: dict[str, str]
    flags: tuple[str, ...] = ()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [
            str(Path(sys.executable).with_name("trl")),
            "vllm-serve",
            "--model",
            str(self.policy),
            "--dtype",
            "float32",
        ]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--max_model_len", "1024", "--enforce_eager"]
        command += self.flags
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env=self.env, start_new_session=True
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.is_up():
            if self.process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the vLLM server did not start:\n{self.log.read_text(errors='replace')[-5000:]}")
            time.sleep(0.5)
        # What is compiled at the first request is compiled now.
        request = {"model": str(self.policy), "prompt": [[5, 6, 7]], "max_tokens": 4, "logprobs": 0}
        requests.post(f"{self.url}/v1/completions", json=request, timeout=START_SECONDS).raise_for_status()

    def is_up(self) -> bool:
        try:
            return requests.get(f"{self.url}/health", timeout=5.0).status_code == 200
        except requests.RequestException:
            return False

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)

    def stop(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="session")
def vllm_env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of vLLM's processes: little memory, nothing sent, nothing left behind."""
    cache = tmp_path_factory.mktemp("vllm-cache")
    return {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CACHE_ROOT": str(cache / "vllm"),
        "TORCHINDUCTOR_CACHE_DIR": str(cache / "inductor"),
    }


@pytest.fixture(scope="session")
def policy(micro_policy_append: Path) -> Path:
    """A tiny policy with tied embeddings, as most small ones have."""
    return micro_policy_append


@pytest.fixture(scope="session")
def untied_policy(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with an output layer of its own: vLLM on a CPU never packs a tied one anew after an update."""
    folder = tmp_path_factory.mktemp("untied")
    model = AutoModelForCausalLM.from_pretrained(policy)
    output = torch.nn.Parameter(model.get_input_embeddings().weight.detach().clone())
    model.config.tie_word_embeddings = False
    model.lm_head.weight = output
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(policy).save_pretrained(folder)
    return folder


@pytest.fixture
def new_server(
    untied_policy: Path, vllm_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server that a test may do away with."""
    yield from _serve(untied_policy, vllm_env, tmp_path_factory)


@pytest.fixture(scope="session")
def server(
    untied_policy: Path, vllm_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server that tests share; it holds the weights of whoever trained last."""
    yield from _serve(untied_policy, vllm_env, tmp_path_factory)


@pytest.fixture(scope="session")
def serve(vllm_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Iterator[Server]]:
    """`yield from serve(policy, variables, flags)`: a server with variables and flags besides those of all."""
    return lambda policy, variables, flags=(): _serve(policy, {**vllm_env, **variables}, tmp_path_factory, flags)


@pytest.fixture(scope="session")
def role_server(policy: Path, vllm_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that takes two adapters while it runs."""
    env = {**vllm_env, "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    flags = ["--enable-lora", "--max-loras", "2", "--max-lora-rank", "8"]
    yield from _serve(policy, env, tmp_path_factory, flags)


def _serve(
    policy: Path, env: dict[str, str], factory: pytest.TempPathFactory, flags: Sequence[str] = ()
) -> Iterator[Server]:
    """A server as long as it is needed, with flags of `vllm serve` besides those of all."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = Server(policy, port, factory.mktemp("server") / "log", env, tuple(flags))
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def play(vllm_env: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`play(policy, output, resume=False, transport="file", signal=None, **settings)`: a run of `play.py`."""

    def run(
        policy: Path,
        output: Path,
        transport: str = "file",
        signal: dict[str, int] | None = None,
        resume: bool = False,
        **settings: Any,
    ) -> subprocess.CompletedProcess[str]:
        output.mkdir(parents=True, exist_ok=True)
        order = {"settings": settings, "transport": transport, "signal": signal, "resume": resume}
        command = [sys.executable, str(Path(__file__).with_name("play.py")), str(policy), str(output)]
        return subprocess.run(
            [*command, json.dumps(order)], env=vllm_env, capture_output=True, text=True, errors="replace", check=False
        )

    return run


@pytest.fixture(scope="session")
def played(play: Callable[..., Any]) -> Callable[..., list[dict[str, Any]]]:
    """`played(policy, output, ...)`: the updates of a run that ends well."""

    def run(policy: Path, output: Path, **kwargs: Any) -> list[dict[str, Any]]:
        result = play(policy, output, **kwargs)
        assert result.returncode == 0, result.stderr[-5000:]
        return torch.load(output / "updates.pt")

    return run
