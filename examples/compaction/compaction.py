"""An agent that reads notes and then answers a question. It summarises its history when that grows over a limit."""

import json

import openai

from hf_credit.agents import agent

LIMIT = 10  # characters of a history; a real agent would compare response.usage.total_tokens
SUMMARISE = "Summarise."
CLIENT = openai.OpenAI(api_key="of a run", base_url="http://127.0.0.1")


@agent(columns=("notes", "asked", "gold"), max_calls=8, score="same")
def reader(task, model):
    client = CLIENT.with_options(base_url=model.base_url, api_key=model.api_key)
    messages, summary = [], ""

    def asked(content):
        messages.append({"role": "user", "content": content if messages or not summary else f"{summary}\n{content}"})
        reply = client.chat.completions.create(model=model.name, messages=messages)
        messages.append({"role": "assistant", "content": reply.choices[0].message.content or ""})
        return messages[-1]["content"]

    for note in json.loads(task["notes"]):
        asked(note)
        if sum(len(one["content"]) for one in messages) > LIMIT:
            summary = asked(SUMMARISE)
            messages.clear()
    return asked(f"{task['asked']}?")


def same(task, answer):
    return float(answer.strip() == task["gold"])
