"""The client and the worker of asynchronous training with a real vLLM server on a CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_credit import make, methods
from hf_credit.policies.generation import reply_logprobs
from hf_credit.rollouts import Chat, EnvironmentInteraction
from hf_credit.trainers.asynchronous.server import Server
from hf_credit.trainers.asynchronous.worker import Worker

pytestmark = pytest.mark.vllm

CONTEXTS = [[5, 6, 7, 8], [5, 6, 7, 9, 10], [5, 6]]
PATIENCE = 300.0


@pytest.fixture(scope="module")
def async_server(serve: Any, untied_policy: Path) -> Iterator[Any]:
    """A server with the endpoints for new weights."""
    yield from serve(untied_policy, {"VLLM_SERVER_DEV_MODE": "1"})


@pytest.fixture
def client(async_server: Any, untied_policy: Path) -> Iterator[Any]:
    made: list[Server] = []

    def connect(**settings: Any) -> Server:
        made.append(
            Server(async_server.url, str(untied_policy), **{"max_new_tokens": 8, "patience": PATIENCE, **settings})
        )
        made[-1].wait()
        return made[-1]

    yield connect
    for one in made:
        one.close()


def furthest(client: Server, policy: Path, temperature: float) -> float:
    """The largest difference of the log-probabilities of replies from those of the model, in nats."""
    model = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32)
    replies = [client.submit("agent", context, seed).result(PATIENCE) for seed, context in enumerate(CONTEXTS)]
    asked: list[tuple[Sequence[int], Sequence[int]]] = [
        (context, reply.ids) for context, reply in zip(CONTEXTS, replies, strict=True)
    ]
    pairs = zip(reply_logprobs(model, asked, temperature), replies, strict=True)
    return max(abs(a - b) for own, reply in pairs for a, b in zip(own, reply.logprobs or (), strict=True))


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_replies_have_the_log_probabilities_of_the_policy(
    client: Any, untied_policy: Path, temperature: float
) -> None:
    assert furthest(client(temperature=temperature), untied_policy, temperature) < 1e-3


def test_one_seed_is_one_reply(client: Any) -> None:
    one = client()
    first, second = (one.submit("agent", CONTEXTS[0], 2**64 - 5).result(PATIENCE).ids for _ in range(2))
    assert first == second


def test_log_probabilities_of_what_nobody_sampled(client: Any, untied_policy: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(untied_policy, dtype=torch.float32)
    found = client().logprobs("agent", CONTEXTS[0], [9, 10, 11]).result(PATIENCE)
    assert found == pytest.approx(reply_logprobs(model, [(CONTEXTS[0], [9, 10, 11])])[0], abs=1e-3)


def test_collections_are_played_while_weights_change(client: Any, untied_policy: Path, tmp_path: Path) -> None:
    one = client(max_new_tokens=12)
    chat = Chat(AutoTokenizer.from_pretrained(untied_policy))
    interaction = EnvironmentInteraction(make("sudoku", size=4, blanks=4), instructions=False)
    worker = Worker(
        interaction,
        methods.make("rloo", group_size=2),
        chat,
        one,
        interaction.tasks("train", 8),
        tasks_per_collection=2,
        max_finished=4,
        max_context_tokens=900,
    )
    model = AutoModelForCausalLM.from_pretrained(untied_policy, dtype=torch.float32)
    worker.start()
    found = []
    for version in range(3):
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1.05)
        folder = tmp_path / str(version)
        model.save_pretrained(folder)
        one.ask("/pause?mode=keep")
        one.reload_weights(str(folder))
        one.ask("/resume")
        worker.update_model_version(version + 1)
        for _ in range(2):
            collection = worker.collections.get(timeout=PATIENCE)
            assert not isinstance(collection, Exception), collection
            worker.trained(collection.number)
            found.append(collection)
    worker.stop()
    assert len({collection.number for collection in found}) == 6
    assert {collection.version for collection in found} <= {0, 1, 2, 3}
    assert furthest(one, tmp_path / "2", 1.0) < 1e-3
    one.reload_weights(str(untied_policy))
