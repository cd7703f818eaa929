"""A program on the SDK of OpenAI, which it finds the model with by itself."""

from __future__ import annotations

import openai
from PIL import Image as pil

from hf_credit.agents import agent
from hf_credit.content import Image

RED = Image.of(pil.new("RGB", (4, 3), "red"))


@agent(columns=("number",), score="agent_programs:length")
def through_sdk(task, model):
    client = openai.OpenAI()  # by its environment alone
    said = client.chat.completions.create(model="policy", messages=[{"role": "user", "content": "chat?"}])
    parts = client.chat.completions.create(
        model="policy", messages=[{"role": "user", "content": "stream?"}], stream=True
    )
    streamed = "".join(part.choices[0].delta.content or "" for part in parts)
    answer = client.responses.create(model="policy", instructions="Be brief.", input="responses?")
    seen = f"data:image/png;base64,{RED.png}"
    client.chat.completions.create(
        model="policy",
        messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": seen}}]}],
    )
    client.responses.create(
        model="policy",
        input=[{"role": "user", "content": [{"type": "input_image", "image_url": seen, "detail": "auto"}]}],
    )
    events = client.responses.create(model="policy", input=f"{answer.id} {said.id} streamed?", stream=True)
    told = [event.type for event in events]
    return f"{said.choices[0].message.content} {streamed} {answer.output_text} {told[-1]}"


@agent(columns=("number",))
def typed(task, model):
    """Gets a typed answer from both APIs; the SDK raises if a reply is none."""
    from pydantic import BaseModel

    class Answer(BaseModel):
        city: str
        sights: list[str]

    client, asked = openai.OpenAI(), [{"role": "user", "content": "Where?"}]
    said = client.chat.completions.parse(model="policy", messages=asked, response_format=Answer)
    told = client.responses.parse(model="policy", input="Where?", text_format=Answer)
    return len(said.choices[0].message.parsed.sights) + len(told.output_parsed.sights)
