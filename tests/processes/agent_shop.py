"""A stranger's program on nothing but Python's own libraries: it opens boxes until it says which to take."""

import http.client
import json
import os
from urllib.parse import urlsplit

from hf_credit.agents import agent

BOXES = {"a": "tea", "b": "salt"}
OPEN = {
    "name": "open",
    "description": "Opens a box.",
    "parameters": {"type": "object", "properties": {"box": {"type": "string"}}},
}


def complete(messages):
    url = urlsplit(os.environ["OPENAI_BASE_URL"])
    connection = http.client.HTTPConnection(url.netloc)
    tools = [{"type": "function", "function": OPEN}]
    body = {"model": "gpt-5", "messages": messages, "tools": tools, "max_tokens": 64}
    key = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    connection.request("POST", url.path + "/chat/completions", json.dumps(body), key)
    return json.load(connection.getresponse())["choices"][0]["message"]


@agent(columns=("wanted",), max_calls=3, score="agent_shop:right")
def shop(task, model):
    messages = [{"role": "user", "content": task["wanted"]}]
    while True:
        messages.append(complete(messages))
        if not messages[-1].get("tool_calls"):
            return messages[-1]["content"]
        for call in messages[-1]["tool_calls"]:
            box = json.loads(call["function"]["arguments"])["box"]
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": BOXES[box]})


def right(task, answer):
    return float(BOXES.get(answer) == task["wanted"])
