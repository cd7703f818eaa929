"""A loop on Anthropic's SDK."""

import anthropic
from boxes import BOXES

TOOLS = [
    {
        "name": "open_box",
        "description": "Open a box and see what is in it.",
        "input_schema": {"type": "object", "properties": {"box": {"type": "string"}}, "required": ["box"]},
    }
]


def open_box(box):
    return BOXES[box]


def run(task, model):
    client = anthropic.Anthropic()
    messages = [{"role": "user", "content": f"Which box holds {task['wanted']}?"}]
    while True:
        response = client.messages.create(model="claude-5", max_tokens=1024, messages=messages, tools=TOOLS)
        if response.stop_reason != "tool_use":
            return response.content[0].text
        messages.append({"role": "assistant", "content": response.content})
        results = [
            {
                "type": "tool_result",
                "tool_use_id": block.id,
                "content": {"open_box": open_box}[block.name](**block.input),
            }
            for block in response.content
            if block.type == "tool_use"
        ]
        messages.append({"role": "user", "content": results})
