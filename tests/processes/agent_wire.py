"""Programs on the SDK of OpenAI, as users write them, that read more of a server than the text of a reply."""

import json

import openai

from hf_credit.agents import agent

LOOK = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
TOOLS = [{"type": "function", "function": LOOK}]


def user(text):
    return {"role": "user", "content": text}


def chat(messages, **more):
    return openai.OpenAI().chat.completions.create(model="policy", messages=messages, **more)


def compacts(limit_caught=True):
    """Summarises its history when the context is too long."""
    messages, compacted = [user("go")], 0
    for _ in range(4):
        try:
            messages += [chat(messages).choices[0].message, user("more, " * 40)]
        except openai.BadRequestError as error:
            if not limit_caught or error.code != "context_length_exceeded":
                raise
            compacted += 1
            messages = [user(f"summary {compacted}")]
    return compacted


def never_compacts():
    return compacts(limit_caught=False)


def reads_usage():
    used = chat([user("hi")]).usage
    return [used.prompt_tokens, used.completion_tokens, used.total_tokens]


def streams_usage():
    text, used = "", None
    for part in chat([user("hi")], stream=True, stream_options={"include_usage": True}):
        used = part.usage or used
        text += part.choices[0].delta.content or "" if part.choices else ""
    return [text, used.prompt_tokens, used.completion_tokens, used.total_tokens]


def reads_logprobs():
    tokens = chat([user("hi")], logprobs=True).choices[0].logprobs.content
    return [[one.token for one in tokens], [one.logprob for one in tokens]]


def lists_models():
    client = openai.OpenAI()
    (model,) = client.models.list()
    shown = client.models.retrieve(model.id)
    chat([user("hi")])
    return [model.id, shown.id, shown.max_model_len]


def falls_back():
    """Asks for a bias, for a memory and for an earlier response, which it can do without."""
    client, refused = openai.OpenAI(), []
    for ask in (
        lambda: chat([user("json")], logit_bias={"1": 1}),
        lambda: client.embeddings.create(model="policy", input="x"),
        lambda: client.responses.create(model="policy", input="q", previous_response_id="resp_0"),
        lambda: chat([user("look")], functions=[LOOK]),
    ):
        try:
            ask()
        except openai.APIStatusError as error:
            refused.append([error.status_code, error.param])
    return [refused, chat([user("hi")]).choices[0].message.content]


def is_refused():
    chat([user("hi")])
    chat([user("json")], logit_bias={"1": 1})


def goes_on_after_a_cut():
    client = openai.OpenAI()
    cut = client.responses.create(model="policy", input="long", max_output_tokens=3)
    history = [user("long"), *cut.output, user("go on")]
    whole = client.responses.create(model="policy", input=history)
    ids = [item.id for reply in (cut, whole) for item in reply.output]
    return [cut.status, cut.incomplete_details.reason, whole.status, cut.usage.output_tokens, ids]


def answers_without_tools():
    reply = chat([user("look")], tools=TOOLS, tool_choice="none").choices[0]
    return [reply.finish_reason, reply.message.tool_calls, reply.message.content]


def calls_one_tool():
    reply = chat([user("look")], tools=TOOLS, parallel_tool_calls=False).choices[0]
    return [reply.message.content, [call.function.arguments for call in reply.message.tool_calls]]


def stops_at_an_observation():
    seen = []
    for stop in (["Observation:"], ["</tool_call>", "never"], ["box"], ["\n"]):
        reply = chat([user("look")], tools=TOOLS, stop=stop).choices[0]
        calls = [call.function.arguments for call in reply.message.tool_calls or ()]
        seen.append([reply.finish_reason, reply.message.content, calls])
    return seen


def changes_its_system_prompt():
    messages = []
    for step in range(3):
        messages.append(user("go"))
        messages.append(chat([{"role": "system", "content": f"step {step}"}, *messages]).choices[0].message)
    return "done"


@agent(columns=("what", "to"), score="agent_wire:told", max_calls=8)
def wire(task, model):
    return globals()[task["what"]]()


def told(task, answer):
    """Leaves what a program saw where the test finds it."""
    if task.get("to"):
        with open(task["to"], "w") as file:
            json.dump(answer, file)
    return 1.0
