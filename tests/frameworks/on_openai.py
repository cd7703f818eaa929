"""A loop on OpenAI's SDK."""

import json

import openai
from boxes import BOXES

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "open_box",
            "description": "Open a box and see what is in it.",
            "parameters": {"type": "object", "properties": {"box": {"type": "string"}}, "required": ["box"]},
        },
    }
]


def open_box(box):
    return BOXES[box]


def run(task, model):
    client = openai.OpenAI()
    messages = [{"role": "user", "content": f"Which box holds {task['wanted']}?"}]
    while True:
        response = client.chat.completions.create(model="gpt-5", messages=messages, tools=TOOLS)
        message = response.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            return message.content
        for call in message.tool_calls:
            result = {"open_box": open_box}[call.function.name](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
