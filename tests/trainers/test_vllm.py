"""Errors of an absent, slow or stopped vLLM server, in one sentence. With vLLM itself: tests/vllm."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import requests
from trl.generation import vllm_generation

from hf_credit import VerifiableProcessConfig, VerifiableProcessTrainer, make
from hf_credit.rollouts import Generation
from hf_credit.trainers import vllm
from hf_credit.trainers.asynchronous import server as waiting
from hf_credit.trainers.asynchronous.server import AWAY
from hf_credit.trainers.base import EpisodeTrainer, making_engine
from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.vllm import (
    context_length,
    limit_requests,
    naming_server,
    server_url,
    through_vllm,
    wait_for_server,
)


def test_an_engine_takes_as_many_sequences_as_episodes_are_played_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(vllm_generation, "LLM", dict, raising=False)
    with making_engine(config(tmp_path, max_concurrent_episodes=64), enable_lora=True):
        assert vllm_generation.LLM(model="m", max_num_seqs=2) == {
            "model": "m",
            "enable_lora": True,
            "max_num_seqs": 64,
        }
        assert vllm_generation.LLM(max_num_seqs=100)["max_num_seqs"] == 100
        assert vllm_generation.LLM(max_num_seqs=2, max_num_batched_tokens=32)["max_num_seqs"] == 32
    assert vllm_generation.LLM is dict


def test_an_engine_with_sleep_mode_is_awake_for_a_whole_collection_and_gets_its_weights_again() -> None:
    calls: list[Any] = []
    engine = SimpleNamespace(wake_up=lambda tags: calls.append(tags), sleep=lambda level: calls.append(level))
    vllm = SimpleNamespace(
        mode="colocate", llm=engine, enable_sleep_mode=True, sync_weights=lambda: calls.append("weights")
    )
    trainer: Any = SimpleNamespace(vllm=vllm, state=SimpleNamespace(global_step=7))
    with suppress(RuntimeError), EpisodeTrainer.awake(trainer):
        assert calls == ["weights", ["kv_cache"]]  # whose memory is free while weights are gathered
        assert not trainer.vllm.enable_sleep_mode  # by which TRL would wake it for each call
        assert trainer._last_loaded_step == 7  # by which TRL does not transfer the weights again
        raise RuntimeError
    assert trainer.vllm.enable_sleep_mode
    assert calls == ["weights", ["kv_cache"], 2]


def test_an_engine_without_sleep_mode_is_not_woken() -> None:
    for engine in (None, SimpleNamespace(mode="server", enable_sleep_mode=True)):
        trainer: Any = SimpleNamespace(vllm=engine)
        with EpisodeTrainer.awake(trainer):
            assert vars(trainer) == {"vllm": engine}


def config(tmp_path: Path, **changed: Any) -> CreditConfig:
    settings = {"bf16": False, "use_cpu": True, "report_to": "none", "use_vllm": True, "vllm_mode": "server"}
    return CreditConfig(**{"output_dir": str(tmp_path), "vllm_server_timeout": 0.0, **settings, **changed})


@pytest.fixture
def free_url() -> Iterator[str]:
    """An address without a server, reserved for the test."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture
def silent_url() -> Iterator[str]:
    """An address that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


class Server:
    """A local server that returns its answers in order, then the last one repeatedly; 0 closes the connection."""

    def __init__(self, answers: list[int]) -> None:
        self.paths: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.paths.append(self.path)
                status = answers[min(len(outer.paths), len(answers)) - 1]
                if status:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                self.close_connection = True

            do_POST = do_GET

            def log_message(self, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*answers: int) -> Server:
        servers.append(Server(list(answers)))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


@pytest.fixture
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        yield session


def test_the_url_is_that_of_the_settings(tmp_path: Path) -> None:
    assert server_url(config(tmp_path, vllm_server_host="10.0.0.7", vllm_server_port=81)) == "http://10.0.0.7:81"
    assert server_url(config(tmp_path, vllm_server_base_url="https://vllm:443/a")) == "https://vllm:443/a"


def test_a_run_without_a_server_has_no_url_and_waits_for_none(tmp_path: Path) -> None:
    for settings in (config(tmp_path, vllm_mode="colocate"), config(tmp_path, use_vllm=False)):
        assert server_url(settings) is None
        wait_for_server(settings)


def test_a_run_without_a_server_keeps_its_sampler(tmp_path: Path) -> None:
    def generate(contexts: Any) -> list[Generation]:
        return []

    assert through_vllm(generate, None, config(tmp_path, use_vllm=False)) is generate


def test_a_trainer_names_the_server_that_is_absent_when_it_is_built(
    tmp_path: Path, micro_policy: Path, free_url: str
) -> None:
    args = VerifiableProcessConfig(
        output_dir=str(tmp_path),
        bf16=False,
        use_cpu=True,
        report_to="none",
        instances_per_update=8,
        use_vllm=True,
        vllm_mode="server",
        vllm_server_base_url=free_url,
        vllm_server_timeout=0.0,
    )
    with pytest.raises(ConnectionError, match=rf"must be up within 0 s .*, got '{free_url}: .*; look into its log"):
        VerifiableProcessTrainer(str(micro_policy), make("sudoku", size=4, blanks=4), args)


def test_a_wait_for_a_server_is_told(
    tmp_path: Path, free_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waiting, "_TOLD_SECONDS", 0.0)
    with pytest.raises(ConnectionError):
        wait_for_server(config(tmp_path, vllm_server_base_url=free_url, vllm_server_timeout=0.5))
    assert caplog.messages[0].startswith(f"waiting for the vLLM server at {free_url}, 0 of at most 0.5 s: {free_url}")


def test_a_silent_server_is_given_up_after_its_timeout(tmp_path: Path, silent_url: str) -> None:
    with pytest.raises(ConnectionError, match=f"up within 0 s .*, got 'no answer from {silent_url}'"):
        wait_for_server(config(tmp_path, vllm_server_base_url=silent_url))


def test_a_server_that_is_up_but_unwell_is_given_up_too(tmp_path: Path, serve: Callable[..., Server]) -> None:
    one = serve(503)
    with pytest.raises(ConnectionError, match=f"got 'status 503 from {one.url}"):
        wait_for_server(config(tmp_path, vllm_server_base_url=one.url))


def test_a_server_that_comes_up_late_is_waited_for(tmp_path: Path, serve: Callable[..., Server]) -> None:
    server = serve(503, 0, 200)
    wait_for_server(config(tmp_path, vllm_server_base_url=server.url, vllm_server_timeout=60.0))
    assert server.paths == ["/health"] * 3


def test_only_the_process_that_talks_to_the_server_waits_for_it(
    tmp_path: Path, free_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CreditConfig, "process_index", 1)
    wait_for_server(config(tmp_path, vllm_server_base_url=free_url))


def test_a_slow_answer_ends_with_a_sentence_and_is_asked_for_once(session: requests.Session, silent_url: str) -> None:
    limit_requests(session, timeout=0.2, patience=60.0)
    with (
        pytest.raises(
            TimeoutError, match=f"within vllm_server_request_timeout, got nothing from {silent_url} for 0.2 s"
        ),
        naming_server(silent_url, 0.2),
    ):
        session.post(f"{silent_url}/v1/completions")


def test_a_server_that_is_gone_ends_with_a_sentence(
    session: requests.Session, free_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm, "_RETRIES", 1)
    limit_requests(session, timeout=5.0, patience=60.0)
    with (
        pytest.raises(ConnectionError, match=f"must stay up during training, got '.*refused' from {free_url}"),
        naming_server(free_url, 5.0),
    ):
        session.post(f"{free_url}/v1/completions")


@pytest.mark.parametrize("status", AWAY)
def test_a_server_that_fails_for_good_ends_with_a_sentence(
    session: requests.Session, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(vllm, "LONGEST_PAUSE", 0.1)
    server = serve(status)
    limit_requests(session, timeout=5.0, patience=0.5)
    with (
        pytest.raises(ConnectionError, match=f"got 'too many {status} error responses' from {server.url}"),
        naming_server(server.url, 5.0),
    ):
        session.post(f"{server.url}/v1/completions")
    assert len(server.paths) == 7  # six more times, in five pauses or more


@pytest.mark.parametrize("hitch", [0, *AWAY])
def test_a_passing_hitch_is_tried_again(
    session: requests.Session, serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, hitch: int
) -> None:
    monkeypatch.setattr(vllm, "LONGEST_PAUSE", 0.01)
    failures = 9 if hitch else 1
    server = serve(*[hitch] * failures, 200)
    limit_requests(session, timeout=5.0, patience=60.0)
    assert session.post(f"{server.url}/v1/completions").status_code == 200
    assert len(server.paths) == failures + 1


def test_what_the_server_refuses_is_told_in_one_line() -> None:
    with (
        pytest.raises(ConnectionError, match=r"got 'Request failed: 400, too long' from http://vllm; start it with"),
        naming_server("http://vllm", 5.0),
    ):
        raise Exception("Request failed: 400,\n too long")  # as TRL's client does


def test_errors_of_other_parts_stay_what_they_are() -> None:
    with pytest.raises(KeyError), naming_server("http://vllm", 5.0):
        raise KeyError("choices")


def test_a_process_that_does_not_talk_to_the_server_knows_no_length() -> None:
    class OnSecondProcess:
        mode = "server"

    assert context_length(OnSecondProcess()) == 0
