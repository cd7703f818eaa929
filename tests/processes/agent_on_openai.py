"""A program on the SDK of OpenAI, which it finds the model with by itself."""

from __future__ import annotations

import openai

from hf_credit.agents import agent


@agent(columns=("number",), score="agent_programs:length")
def through_sdk(task, model):
    client = openai.OpenAI()  # by its environment alone
    said = client.chat.completions.create(model="policy", messages=[{"role": "user", "content": "chat?"}])
    parts = client.chat.completions.create(
        model="policy", messages=[{"role": "user", "content": "stream?"}], stream=True
    )
    streamed = "".join(part.choices[0].delta.content or "" for part in parts)
    answer = client.responses.create(model="policy", instructions="Be brief.", input="responses?")
    events = client.responses.create(model="policy", input=f"{answer.id} {said.id} streamed?", stream=True)
    told = [event.type for event in events]
    return f"{said.choices[0].message.content} {streamed} {answer.output_text} {told[-1]}"
