"""The client of a server over a real loopback connection: replies, outages, errors, answers that never come."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from micro_server import MicroServer
from transformers import AutoModelForCausalLM

from hf_credit import boundary
from hf_credit.policies.generation import reply_logprobs
from hf_credit.trainers.asynchronous import server
from hf_credit.trainers.asynchronous.server import AWAY, Server
from hf_credit.trainers.vllm import context_length

CONTEXT = [5, 6, 7, 8]
PATIENCE = 60.0


@pytest.fixture
def served(policy: Path) -> Iterator[MicroServer]:
    server = MicroServer(policy).start()
    yield server
    server.stop()


@pytest.fixture
def client(served: MicroServer) -> Iterator[Any]:
    """Makes clients, and closes them at the end."""
    made: list[Server] = []

    def make(**settings: Any) -> Server:
        settings = {"max_new_tokens": 6, "request_timeout": PATIENCE, "patience": PATIENCE, **settings}
        made.append(Server(served.url, served.name, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_reply_comes_with_its_log_probabilities_at_the_temperature(
    client: Any, policy: Path, temperature: float
) -> None:
    reply = client(temperature=temperature).submit("agent", CONTEXT, 3).result(PATIENCE)
    model = AutoModelForCausalLM.from_pretrained(policy)
    (expected,) = reply_logprobs(model, [(CONTEXT, reply.ids)], temperature)
    assert reply.logprobs == pytest.approx(expected, abs=1e-5)
    assert 1 <= len(reply.ids) <= 6


def test_a_server_of_adapters_is_refused_for_whole_weights_which_it_could_not_reload(
    client: Any, served: MicroServer
) -> None:
    client().refuse_adapters()
    served.max_loras = 2
    with pytest.raises(ValueError, match=r"needs a server without adapters, got one with --enable-lora at http"):
        client().refuse_adapters()


def test_one_seed_is_one_reply_and_any_size_of_seed_is_taken(client: Any) -> None:
    one = client()
    futures = [one.submit("agent", CONTEXT, seed) for seed in (7, 7, 2**64 - 1, 1, 2)]
    first, second, *others = [future.result(PATIENCE).ids for future in futures]
    assert first == second
    assert len({first, *others}) > 1


def test_log_probabilities_of_what_nobody_sampled_are_at_temperature_one(client: Any, policy: Path) -> None:
    ids = [9, 10, 11]
    found = client(temperature=0.7).logprobs("agent", CONTEXT, ids).result(PATIENCE)
    (expected,) = reply_logprobs(AutoModelForCausalLM.from_pretrained(policy), [(CONTEXT, ids)])
    assert found == pytest.approx(expected, abs=1e-5)


def test_what_the_server_says_of_itself(client: Any, served: MicroServer) -> None:
    one = client()
    one.wait()
    one.load_adapter("policy-v1", "/somewhere")  # as of an earlier run
    assert (one.dtype(), one.max_model_len()) == ("float32", served.model.config.max_position_embeddings)
    assert one.models() == {served.name, "policy-v1"}
    of_trl: Any = SimpleNamespace(mode="server", vllm_client=SimpleNamespace(base_url=one.url))
    assert context_length(of_trl) == one.max_model_len()


def test_requests_stand_still_while_the_server_is_paused(client: Any, served: MicroServer) -> None:
    one = client()
    one.ask("/pause?mode=keep")
    assert served.paused
    reply = one.submit("agent", CONTEXT, 1)
    assert not reply.done()
    one.ask("/resume")
    assert reply.result(PATIENCE).ids


def test_weights_are_loaded_from_a_folder_and_half_a_transfer_is_an_error(
    client: Any, served: MicroServer, policy: Path, tmp_path: Path
) -> None:
    one = client()
    model = AutoModelForCausalLM.from_pretrained(policy)
    for weight in model.parameters():
        weight.data.mul_(1.5)
    model.save_pretrained(tmp_path / "whole")
    one.reload_weights(str(tmp_path / "whole"))
    reply = one.submit("agent", CONTEXT, 1).result(PATIENCE)
    assert reply.logprobs == pytest.approx(reply_logprobs(model, [(CONTEXT, reply.ids)])[0], abs=1e-4)
    (tmp_path / "half").mkdir()
    one.patience = 0.5
    with pytest.raises(ConnectionError, match=r"must be up within 0.5 s .*, got 'status 500 .*no weights in"):
        one.reload_weights(str(tmp_path / "half"))


def test_an_adapter_is_asked_for_by_role_and_version(client: Any, served: MicroServer) -> None:
    one = client()
    one.adapter = {"agent": "agent", "judge": "judge"}
    one.update_model_version(4)
    one.load_adapter("agent-v4", "/somewhere")
    assert one.submit("agent", CONTEXT, 1).result(PATIENCE).ids
    with pytest.raises(
        ConnectionError, match=r"must accept the trainer's requests, got status 404 .*no model judge-v4"
    ):
        one.submit("judge", CONTEXT, 1).result(PATIENCE)


def test_a_repeated_request_asks_for_the_present_version(
    client: Any, served: MicroServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LONGEST_PAUSE", 0.01)
    one, complete = client(), served._complete
    one.adapter = "policy"
    one.load_adapter("policy-v1", "/somewhere")

    def later(asked: Any) -> Any:
        one.update_model_version(1)
        return (503, {}) if asked["model"] == "policy-v0" else complete(asked)

    monkeypatch.setattr(served, "_complete", later)
    assert one.submit("agent", CONTEXT, 1).result(PATIENCE).ids


def test_answers_leave_nothing_behind(client: Any) -> None:
    one = client()
    shapes = set()
    for seed in range(3):
        assert one.submit("agent", CONTEXT, seed).result(PATIENCE).ids
        shapes.add(boundary._types_of.cache_info().currsize)
    assert len(shapes) == 1


@pytest.mark.parametrize("statuses", [[500], [503, 500, 502], [501, 504], *([status] * 9 for status in AWAY)], ids=str)
def test_errors_and_proxies_are_asked_again(
    client: Any, served: MicroServer, monkeypatch: pytest.MonkeyPatch, statuses: list[int]
) -> None:
    monkeypatch.setattr(server, "LONGEST_PAUSE", 0.01)
    served.statuses = [*statuses]
    one = client()
    assert one.submit("agent", CONTEXT, 1).result(PATIENCE).ids
    assert one.retried == len(statuses)
    assert served.asked == len(statuses) + 1


def test_a_server_that_goes_on_refusing_to_work_is_an_error_that_names_it(client: Any, served: MicroServer) -> None:
    served.statuses = [501] * 9
    with pytest.raises(ConnectionError, match=rf"the vLLM server must not fail, got status 501 from {served.url}"):
        client(retries=1).submit("agent", CONTEXT, 1).result(PATIENCE)
    assert served.asked == 2


@pytest.mark.parametrize("status", AWAY)
def test_a_server_that_fails_for_too_long_is_an_error(client: Any, served: MicroServer, status: int) -> None:
    served.statuses = [status] * 99
    with pytest.raises(ConnectionError, match=rf"must be up within 0.5 s .*, got 'status {status} from {served.url}"):
        client(patience=0.5).submit("agent", CONTEXT, 1).result(PATIENCE)


def test_an_answer_that_never_comes_is_asked_for_again(client: Any, served: MicroServer) -> None:
    served.statuses = [0]
    assert client(request_timeout=0.5, retries=99).submit("agent", CONTEXT, 1).result(PATIENCE).ids
    served.statuses = [0, 0]
    with pytest.raises(TimeoutError, match=r"must answer within request_timeout, got nothing from .* for 0.5 s; "):
        client(request_timeout=0.5, retries=1).submit("agent", CONTEXT, 1).result(PATIENCE)


def test_a_request_that_nobody_waits_for_is_closed(client: Any, served: MicroServer) -> None:
    served.statuses = [0]
    one = client()
    reply = one.submit("agent", CONTEXT, 1)
    while not served.asked:
        pass
    assert reply.cancel()
    assert one.submit("agent", CONTEXT, 1).result(PATIENCE).ids


def test_a_server_that_was_away_gets_the_weights_before_anything_is_asked(
    client: Any, served: MicroServer, policy: Path
) -> None:
    one = client()
    assert one.submit("agent", CONTEXT, 1).result(PATIENCE).ids
    served.stop()
    port = int(served.url.rpartition(":")[2])
    replies = [one.submit("agent", CONTEXT, seed) for seed in range(4)]
    one.restore = lambda: one.reload_weights(str(policy))
    while not one._mending.locked():
        pass
    again = MicroServer(policy, port)
    again.start()
    assert all(reply.result(PATIENCE).ids for reply in replies)
    assert again.loaded == [str(policy)]
    again.stop()


def test_a_server_that_was_away_without_anybody_to_bring_weights_is_an_error(
    client: Any, served: MicroServer, policy: Path
) -> None:
    one = client()
    served.stop()
    reply = one.submit("agent", CONTEXT, 1)
    while not one._mending.locked():
        pass
    again = MicroServer(policy, int(served.url.rpartition(":")[2])).start()
    with pytest.raises(ConnectionError, match=r"must stay up during training, got an outage of .* other weights"):
        reply.result(PATIENCE)
    again.stop()


@pytest.mark.parametrize("waiting", [True, False])
def test_a_server_that_answered_and_has_ended_is_an_error_at_once(
    client: Any, served: MicroServer, waiting: bool
) -> None:
    one = client(patience=1e6)
    one.wait()
    served.stop()
    with pytest.raises(
        ConnectionError, match=rf"got no connection to {served.url} after it answered status 200 to /health; its log"
    ):
        one.wait() if waiting else one.submit("agent", CONTEXT, 1).result(PATIENCE)


def test_a_server_whose_health_is_an_error_is_not_waited_for(client: Any, served: MicroServer) -> None:
    other = Server(f"{served.url}/elsewhere", "policy", max_new_tokens=1, patience=1e6)
    with pytest.raises(ConnectionError, match=rf"got status 404 from {served.url}/elsewhere/health"):
        other.wait()
    other.close()


def test_a_server_that_stays_away_is_an_error_that_names_it(client: Any, served: MicroServer) -> None:
    served.stop()
    one = client(patience=0.3)
    with pytest.raises(ConnectionError, match=rf"must be up within 0.3 s .*, got '{served.url}.*'; look into its log"):
        one.submit("agent", CONTEXT, 1).result(PATIENCE)
    with pytest.raises(ConnectionError, match=r"must be up within 0.3 s"):
        one.wait()


def _choice(ids: Any, logprobs: Any) -> Any:
    return {"choices": [{"token_ids": ids, "logprobs": {"token_logprobs": logprobs}}]}


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({}, "must have the fields choices"),
        (None, "must be an object, got None"),
        ([], "must be an object, got []"),
        ({"choices": []}, "choices of the answer of"),
        ({"choices": [5]}, "choices[0] of"),
        ({"choices": [{"token_ids": [1, 2], "logprobs": None}]}, "choices[0].logprobs of"),
        (_choice([1, 2], [-1.0]), "must give a log-probability for each token of a reply, got 1 for 2"),
        (_choice([1] * 7, [-1.0] * 7), "choices[0].token_ids of"),
        (_choice([1, -7], [-1.0, -1.0]), "choices[0].token_ids[1] of"),
        (_choice([1, 50], [-1.0, -1.0]), "must be a whole number from 0 to 49, got 50"),
        (_choice([2**70], [-1.0]), "choices[0].token_ids[0] of"),
        (_choice(["5"], [-1.0]), "choices[0].token_ids[0] of"),
        (_choice([True], [-1.0]), "choices[0].token_ids[0] of"),
        (_choice([1], [3.0]), "must be at most 0.001, got 3.0"),
        (_choice([1], [float("nan")]), "must be a finite number, got nan"),
        (_choice([1], [float("-inf")]), "must be a finite number, got -inf"),
        (_choice([1], [10**400]), "must be an object"),
        (_choice([1], [None]), "choices[0].logprobs.token_logprobs[0] of"),
    ],
    ids=str,
)
def test_a_reply_that_cannot_be_is_refused_and_the_server_is_named(
    client: Any, served: MicroServer, monkeypatch: Any, answer: Any, told: str
) -> None:
    monkeypatch.setattr(served, "_complete", lambda asked: (200, answer))
    with pytest.raises(ConnectionError) as refusal:
        client(vocabulary=50, retries=0).submit("agent", CONTEXT, 1).result(PATIENCE)
    assert told in str(refusal.value)
    assert served.url in str(refusal.value)
    assert len(str(refusal.value)) < 700


@pytest.mark.parametrize(
    "found", [None, [], [None, {"6": 5}], [None, {"6": {"logprob": "x"}}], 5, [None] * 5], ids=str
)
def test_log_probabilities_of_a_prompt_that_cannot_be_are_refused(
    client: Any, served: MicroServer, monkeypatch: Any, found: Any
) -> None:
    monkeypatch.setattr(served, "_complete", lambda asked: (200, {"choices": [{"prompt_logprobs": found}]}))
    with pytest.raises(ConnectionError, match=served.url):
        client().logprobs("agent", CONTEXT, [9]).result(PATIENCE)


@pytest.mark.parametrize(
    ("path", "answer"),
    [("/v1/models", {"data": [{"max_model_len": "8"}]}), ("/v1/models", {"data": []}), ("/server_info", {}),
     ("/server_info", {"vllm_config": {"model_config": {"dtype": 5}}})],
)  # fmt: skip
def test_what_a_server_says_of_itself_has_its_shape(
    client: Any, served: MicroServer, monkeypatch: Any, path: str, answer: Any
) -> None:
    monkeypatch.setattr(served, "answer", lambda asked, body: (200, answer))
    with pytest.raises(ConnectionError, match=r"of the answer of the vLLM server at|must have the fields"):
        client().max_model_len() if path == "/v1/models" else client().dtype()


def test_rounding_above_zero_is_zero(client: Any, served: MicroServer, monkeypatch: Any) -> None:
    monkeypatch.setattr(served, "_complete", lambda asked: (200, _choice([1, 2], [1e-6, -1])))
    assert client().submit("agent", CONTEXT, 1).result(PATIENCE).logprobs == (0.0, -1.0)


@pytest.mark.parametrize(
    ("headers", "body", "told"),
    [
        ("HTTP/1.1 307 Temporary Redirect\r\nLocation: {other}/v1/completions", b"", "got status 307"),
        ("HTTP/1.1 200 OK\r\nContent-Encoding: gzip", gzip.compress(b" " * 2**20), "plain bytes, got 'gzip'"),
        ("HTTP/1.1 200 OK", b"<html>" + b"x" * 2**10, "must be an object, got '<html>xxx"),
        ("HTTP/1.1 200 OK", b" " * 2**21, "at most 1048576 bytes, got more"),
        ("HTTP/1.1 200 OK", b"[" * 10_000, "must be an object"),
    ],
    ids=["redirect", "gzip", "html", "endless", "nested"],
)
def test_no_answer_leads_elsewhere_or_is_without_end(
    client: Any, served: MicroServer, monkeypatch: Any, headers: str, body: bytes, told: str
) -> None:
    monkeypatch.setattr("hf_credit.trainers.asynchronous.server._MOST_BYTES", 2**20)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_answer_once, args=(listener, headers.format(other=served.url), body))
        thread.start()
        one = Server(
            f"http://127.0.0.1:{listener.getsockname()[1]}", served.name, max_new_tokens=6, retries=0, patience=0
        )
        with pytest.raises(ConnectionError) as refusal:
            one.submit("agent", CONTEXT, 1).result(PATIENCE)
        one.close()
        thread.join()
    assert told in str(refusal.value)
    assert served.asked == 0


def _answer_once(listener: socket.socket, headers: str, body: bytes) -> None:
    connection, _ = listener.accept()
    with connection, suppress(OSError):
        connection.recv(2**16)
        connection.sendall(f"{headers}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)


def test_a_wait_for_a_server_is_told(caplog: pytest.LogCaptureFixture) -> None:
    one = Server("http://127.0.0.1:9", "policy", max_new_tokens=1, patience=0.3)
    with pytest.raises(ConnectionError, match=r"must be up within 0\.3 s"):
        one.wait()
    one.close()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("waiting for the vLLM server at http://127.0.0.1:9, 0 of at most 0.3 s: ")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens must be a whole number from 1 to"),
        ({"url": "localhost:8000"}, "must begin with http"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Server(**{"url": "http://localhost:1", "model": "policy", "max_new_tokens": 1, **settings})
