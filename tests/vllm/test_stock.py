"""vLLM's own server answers with the fields of the table that the endpoint of programs is held to."""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests
from stock import STOCK, collapsed, differences

from hf_credit.agents.dialects import completion, dialect_of

pytestmark = pytest.mark.vllm

# Of a reply of a few tokens of a tiny policy, which may end or be cut.
ENDS = {"finish_reason", "stop_reason", "status", "incomplete_details", "max_output_tokens"}
# Of vLLM alone, and null in an answer to a call that does not ask for more.
OF_VLLM = {"kv_transfer_params", "ec_transfer_params", "prompt_text", "metrics", "routed_experts", "input_messages"}
OF_VLLM |= {"output_messages", "input_tokens_per_turn", "cached_tokens_per_turn", "output_tokens_per_turn"}
OF_VLLM |= {"tool_output_tokens", "tool_output_tokens_per_turn"}


def freed(value: Any) -> Any:
    """A table whose ends are free."""
    if isinstance(value, dict):
        return {name: "<any>" if name in ENDS else freed(one) for name, one in value.items()}
    return [freed(one) for one in value] if isinstance(value, list) else value


def fields(value: Any, place: str = "") -> set[str]:
    """The places of all fields of an answer, but those of vLLM alone."""
    if isinstance(value, list):
        return set().union(*(fields(one, f"{place}[]") for one in value))
    if not isinstance(value, dict):
        return set()
    named = {name: one for name, one in value.items() if name not in OF_VLLM}
    return {f"{place}.{name}" for name in named}.union(
        *(fields(one, f"{place}.{name}") for name, one in named.items())
    )


def asked(server: Any, name: str, **more: Any) -> requests.Response:
    most = {"chat": "max_tokens", "responses": "max_output_tokens", "messages": "max_tokens"}[name]
    body = {**STOCK[name]["body"], "model": str(server.policy), most: 3, **more}
    response = requests.post(f"{server.url}{STOCK[name]['path']}", json=body, timeout=120)
    if response.status_code == 404:
        pytest.skip(f"this version of the server has no {STOCK[name]['path']}")
    response.raise_for_status()
    return response


@pytest.mark.parametrize("what", ["reply", "logprobs"])
@pytest.mark.parametrize("name", STOCK)
def test_the_server_answers_with_the_fields_of_the_table(server: Any, name: str, what: str) -> None:
    if what not in STOCK[name]:
        pytest.skip("this dialect has none")
    more = STOCK[name]["asks_logprobs"] if what == "logprobs" else {}
    table = freed({**STOCK[name]["reply"], "model": "<text>"})
    for _ in range(50):  # until a reply is not empty
        reply = asked(server, name, **more).json()
        if what == "logprobs" or not (wrong := differences(table, reply)):
            break
    else:
        pytest.fail(str(wrong))
    ended = reply.get("status") != "incomplete"
    record: dict[str, Any] = {"content": "Hi.", "calls": [], "ended": ended, "tokens": [9, 3]}
    record |= {"logprobs": [["Hi", -0.5]]} if more else {}
    ours = dialect_of(STOCK[name]["path"], {}).reply(completion(record, "0", "m"), {**STOCK[name]["body"], **more})
    assert fields(reply) - fields(ours) == set()


@pytest.mark.parametrize("name", STOCK)
def test_the_server_streams_the_events_of_the_table(server: Any, name: str) -> None:
    types: list[str] = []
    for _ in range(50):  # until a reply is not empty
        lines = asked(server, name, stream=True).text.splitlines()
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        types = collapsed([event.get("type") or event["object"] for event in events])
        if len(types) == len(STOCK[name]["stream"]):
            break
    ends = {"response.incomplete": "response.completed"}
    assert [ends.get(one, one) for one in types] == STOCK[name]["stream"]
