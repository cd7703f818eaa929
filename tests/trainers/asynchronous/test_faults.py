"""A server that dies, fails and hangs, a process that is killed: a run goes on, no episode is lost or doubled."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from launched import finish, start
from micro_server import MicroServer
from simulated_walks import Walks, tasks
from transformers import AutoTokenizer

from hf_credit import methods
from hf_credit.rollouts import Chat
from hf_credit.trainers.asynchronous.server import Server
from hf_credit.trainers.asynchronous.worker import Worker

PATIENCE = 120.0
HELPERS = Path(__file__).parents[2] / "processes"


def worker_of(url: str, policy: Path, **settings: Any) -> Worker:
    server = Server(url, str(policy), max_new_tokens=4, patience=PATIENCE, **settings)
    server.restore = lambda: server.reload_weights(str(policy))
    chat = Chat(AutoTokenizer.from_pretrained(policy))
    rloo = methods.make("rloo", group_size=2)
    options = {"tasks_per_collection": 2, "concurrent_collections": 2, "max_concurrent": 4, "max_finished": 9}
    return Worker(Walks(), rloo, chat, server, tasks(6), **options)


def trained(worker: Worker, count: int) -> list[Any]:
    """The next collections; each is trained on."""
    found = []
    for _ in range(count):
        one = worker.collections.get(timeout=PATIENCE)
        assert not isinstance(one, Exception), one
        worker.trained(one.number)
        found.append(one)
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_a_server_that_is_killed_and_started_again_gets_its_weights_and_no_reply_is_lost(
    policy: Path, tmp_path: Path
) -> None:
    port = free_port()

    def served(number: int) -> Any:
        return start(HELPERS / "micro_server.py", policy, port, 0.02, log=tmp_path / f"server-{number}")

    process = served(0)
    worker = worker_of(f"http://127.0.0.1:{port}", policy)
    worker.sampler.wait()
    worker.start()
    found = trained(worker, 2)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    process = served(1)
    found += trained(worker, 6)
    worker.stop()
    worker.sampler.close()
    process.kill()
    process.join()
    assert max(Counter(one.number for one in found).values()) == 1
    assert {one.number for one in found} >= set(range(6))
    assert all(one.ledger.scoring_events == 4 for one in found)
    assert worker.sampler.retried > 0


def test_errors_and_answers_that_never_come_cost_no_episode(policy: Path) -> None:
    served = MicroServer(policy).start()
    served.statuses = [500, 503, 0, 500]
    worker = worker_of(served.url, policy, request_timeout=1.0, retries=99)
    worker.start()
    found: list[Any] = []
    while not {0, 1} <= {one.number for one in found}:  # those that met the errors
        found += trained(worker, 1)
    worker.stop()
    worker.sampler.close()
    served.stop()
    assert max(Counter(one.number for one in found).values()) == 1
    assert worker.sampler.retried >= 4  # a slow machine answers late, too
    assert all(one.metrics["endings/error"] == 0 for one in found)


def test_a_run_that_is_killed_goes_on_from_its_checkpoint_without_losing_or_doubling_an_episode(
    policy: Path, tmp_path: Path
) -> None:
    served = MicroServer(policy, seconds=0.01).start()
    log = tmp_path / "trained.json"
    draws = random.Random(0)
    for number in range(4):
        process = start(HELPERS / "killed_worker.py", served.url, policy, log, 10, log=tmp_path / f"run-{number}")
        begun = time.monotonic()
        while not (log.exists() and process.is_alive()) and time.monotonic() < begun + PATIENCE:
            time.sleep(0.01)
        time.sleep(draws.random() / 3)
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
    finish(start(HELPERS / "killed_worker.py", served.url, policy, log, 10, log=tmp_path / "last"), tmp_path / "last")
    served.stop()
    trained_on = json.loads(log.read_text())
    assert max(Counter(trained_on).values()) == 1
    assert set(trained_on) >= set(range(10 - 2))


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
