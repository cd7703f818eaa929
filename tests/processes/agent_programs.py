"""Programs that call a model, as strangers write them, with nothing but Python's own libraries."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image as pil

from hf_credit.agents import agent
from hf_credit.content import Image

AT_IMPORT = os.environ.get("HF_CREDIT_AT_IMPORT", "")
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks somewhere.",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    },
}


def post(url, key, body):
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"authorization": f"Bearer {key}", "content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as response:
        return json.load(response)


def chat(model, messages, name="policy", **more):
    body = {"model": name, "messages": messages, **more}
    return post(f"{model.base_url}/chat/completions", model.api_key, body)["choices"][0]["message"]


def user(content):
    return {"role": "user", "content": content}


def near(task, answer):
    """1 for the number itself, and less the further an answer is from it."""
    return 1 / (1 + abs(task["number"] - len(answer)))


def right(task, answer):
    """A scorer that finds everything right."""
    return 1.0


@agent(columns=("number",), max_calls=3, score="agent_programs:near")
def asks(task, model):
    """Asks as often as the number says, at most three times, and sends back what it got as it got it."""
    messages = [user(f"{task['number']}?")]
    for _ in range(min(3, task["number"])):
        messages += [chat(model, messages), user("again?")]
    return "".join(message["content"] for message in messages if message["role"] == "assistant")


@agent(columns=("number",), max_calls=4)
def looks(task, model):
    """Looks where the model tells it to, with a file of its own, until the model says something else."""
    notes = Path("notes")
    messages = [{"role": "system", "content": [{"type": "text", "text": "Look."}]}, user(f"{task['number']}?")]
    while True:
        reply = chat(model, messages, tools=[TOOL], tool_choice="auto", temperature=0.5)
        calls = reply.get("tool_calls") or []
        for call in calls:  # re-spaced, as some frameworks do
            call["function"]["arguments"] = json.dumps(json.loads(call["function"]["arguments"]), indent=2)
        messages.append(reply)
        if not calls:
            return float(reply["content"].count("a"))
        for call in calls:
            with notes.open("a") as file:
                file.write(call["function"]["arguments"])
            seen = len(notes.read_text())
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"{call['id']} {seen}"})


@agent(columns=("number",), max_calls=6)
def watches(task, model):
    """Sends an image in each call, and all before."""
    messages, pictures = [], []
    for place in range(task["number"]):
        pictures.append(Image.of(pil.new("RGB", (64, 48), (place, 0, 0))).png)
        part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{pictures[-1]}"}}
        messages.append(user([{"type": "text", "text": f"{place}?"}, part]))
        messages.append(chat(model, messages))
    return "".join(message["content"] for message in messages[1::2])


@agent(columns=("number",), max_calls=4)
def rewrites(task, model):
    messages = [user("?")]
    for _ in range(2):
        messages += [{"role": "assistant", "content": f"I said: {chat(model, messages)['content']}"}, user("again?")]
    return 1


@agent(columns=("number",), roles=("planner", "coder"), max_calls=4)
def together(task, model):
    plan = chat(model, [user("plan?")], "planner")["content"]
    model.reward(0.25)
    model.reward(0.25)
    code = chat(model, [user(f"{plan} code?")], "coder")["content"]
    again = chat(model, [user("plan?"), {"role": "assistant", "content": plan}, user("better?")], "planner")["content"]
    return len(code) + 10 * len(again)


@agent(columns=("number",))
def rewards_first(task, model):
    """Is rewarded before its first call, and after it."""
    model.reward(0.5)
    model.reward(0.2)
    chat(model, [user("first?")])
    model.reward(0.1)
    chat(model, [user("second?")])
    return 1


@agent(columns=("number",))
def knows_at_import(task, model):
    chat(model, [user(AT_IMPORT)])
    return 1


@agent(columns=("number",))
def punished_late(task, model):
    """Is rewarded after its last call, whose context may be too long."""
    chat(model, [user("?")])
    model.reward(0.25)
    with contextlib.suppress(urllib.error.HTTPError):
        chat(model, [user("more, " * 100)])
    model.reward(-1)
    return 0.5


@agent(columns=("number",), max_calls=8)
def refused_late(task, model):
    """Makes five calls, then one that is refused."""
    for place in range(5):
        chat(model, [user(f"{place}?")])
    try:
        chat(model, [{"role": "user", "content": "?", "audio": "x"}])
    except urllib.error.HTTPError as error:  # SDKs tell the sentence in their exception
        raise RuntimeError(error.read().decode()) from None


@agent(columns=("word",), roles=("planner", "coder"), max_calls=2)
def as_a_team(task, model):
    plan = chat(model, [user("plan?")], "planner")["content"]
    code = chat(model, [user(f"{plan} code?")], "coder")["content"]
    return float(task["word"] in (plan, code))


@agent(columns=("number",), settle=1.0, max_calls=8)
def at_once(task, model):
    with ThreadPoolExecutor(3) as pool:
        said = list(pool.map(lambda n: chat(model, [user(f"{n}?")])["content"], range(3)))
    return len(chat(model, [user(" ".join(said))])["content"])


@agent(columns=("number",), max_calls=8)
def unsettled(task, model):
    return at_once(task, model)


@agent(columns=("number",), max_calls=3)
def drifts(task, model):
    for _ in range(2):
        chat(model, [user(f"at {time.time_ns()}")])
    return 1


def without_times(call):
    return {**call, "messages": len(call["messages"])}


@agent(columns=("what",), max_calls=2, seconds=1.5, score="agent_programs:scored")
def misbehaves(task, model):
    """Does what its task says, after one reply."""
    what = task["what"]
    if what == "nothing":
        return "fine"
    if what == "raise first":
        raise LookupError("there is no database")
    if what == "crash first":
        os.kill(os.getpid(), signal.SIGSEGV)
    chat(model, [user("?")])
    match what:
        case "raise":
            raise KeyError("no such tool")
        case "exit":
            sys.exit(3)
        case "crash":
            print("about to crash", flush=True)
            os._exit(7)
        case "endless":
            threading.Event().wait()
        case "many":
            while True:
                with contextlib.suppress(Exception):
                    chat(model, [user("?")])
        case "refused":
            try:
                chat(model, [user("?")], n=2)
            except urllib.error.HTTPError:
                return "swallowed"
    return what


def scored(task, answer):
    if answer == "bad scorer":
        raise ZeroDivisionError("by the scorer")
    return {"fine": 1.0, "text": "text"}.get(answer, 0.5)


@agent(columns=("number",), environment=("MY_DATABASE",))
def tells(task, model):
    """Tells what it sees of the machine."""
    seen = {"environment": dict(os.environ), "folder": os.getcwd(), "key": model.api_key, "url": model.base_url}
    chat(model, [user(json.dumps(seen))])
    return 1


def plain(task, model):
    return len(chat(model, [user(task["question"])])["content"])


def length(task, answer):
    return len(answer)


@agent(columns=("patience", "again"), max_calls=3)
def impatient(task, model):
    """Gives up on a reply after some time, and tries again as SDKs do, or raises."""
    body = json.dumps({"model": "policy", "messages": [user("?")]}).encode()
    for attempt in range(2):
        headers = {"authorization": f"Bearer {model.api_key}", "x-stainless-retry-count": str(attempt)}
        request = urllib.request.Request(f"{model.base_url}/chat/completions", body, headers)
        try:
            with urllib.request.urlopen(request, timeout=60 if attempt else task["patience"]) as response:
                return len(json.load(response)["choices"][0]["message"]["content"])
        except TimeoutError:
            if not task["again"]:
                raise
    return 0


@agent(columns=("patience",), max_calls=4, settle=1.0)
def impatient_together(task, model):
    """Asks the same twice at the same time, with the time-out and the retry of `impatient`."""
    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(lambda _: impatient({**task, "again": True}, model), range(2)))


@agent(columns=("patience",), max_calls=3)
def turns_away(task, model):
    """Gives up on a reply after some time, and asks something else."""
    body = json.dumps({"model": "policy", "messages": [user("?")]}).encode()
    request = urllib.request.Request(
        f"{model.base_url}/chat/completions", body, {"authorization": f"Bearer {model.api_key}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=task["patience"]) as response:
            return len(json.load(response)["choices"][0]["message"]["content"])
    except TimeoutError:
        return len(chat(model, [user("Then something short.")])["content"])


@agent(columns=("number",))
def stops(task, model):
    """Wants a reply to the first full stop."""
    messages = [user("?")]
    messages += [chat(model, messages, stop=["."]), user("more?")]
    return len(chat(model, messages)["content"])


@agent(columns=("number",))
def imports_late(task, model):
    import numpy

    return float(numpy.add(0, len(chat(model, [user("?")])["content"])))


@agent()
def endless(task, model):
    """Leaves its process's number in a file, and goes on for ever."""
    Path(task["file"]).write_text(str(os.getpid()))
    threading.Event().wait()


@agent(columns=("file",), close="agent_programs:tidies")
def leaves(task, model):
    """Leaves something outside of its folder."""
    Path(task["file"]).write_text("something")
    return len(chat(model, [user("?")])["content"])


def tidies(task, folder):
    assert folder.is_dir()
    Path(task["file"]).unlink()


@agent(columns=("number",), environment=("OPENAI_BASE_URL",), score="agent_programs:asks_its_own_model")
def judged_elsewhere(task, model):
    return chat(model, [user("?")])["content"] if os.environ["OPENAI_BASE_URL"] == model.base_url else ""


def asks_its_own_model(task, answer):
    own = (os.environ["OPENAI_BASE_URL"], os.environ.get("OPENAI_API_KEY"))
    return float(own == ("http://judge.example/v1", None) and answer == "four")


@agent(columns=("number",), roles=("planner", "coder"), max_calls=3)
def insists(task, model):
    """Asks until it gets a text."""
    plan = chat(model, [user("plan?")], "planner")["content"]
    while not (code := chat(model, [user(f"{plan} code?")], "coder")["content"]):
        pass
    return len(code)


@agent(columns=("number",), max_calls=3)
def embeds(task, model):
    """Tries before every call one that no model here answers."""
    total = 0
    while True:
        with contextlib.suppress(urllib.error.HTTPError):
            post(f"{model.base_url}/embeddings", model.api_key, {"model": "policy", "input": "x"})
        total += int(chat(model, [user("a number?")])["content"])


@agent(columns=("number",))
def looks_once(task, model):
    """Takes one call of a tool at a time."""
    messages = [user("?")]
    messages.append(chat(model, messages, tools=[TOOL], parallel_tool_calls=False))
    for call in messages[-1]["tool_calls"]:
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "seen"})
    return len(chat(model, messages, tools=[TOOL])["content"])


@agent(columns=("number",))
def best_of_two(task, model):
    """Asks twice, and goes on with the reply that the number says."""
    messages = [user("?")]
    said = [chat(model, messages) for _ in range(2)]
    return len(chat(model, [*messages, said[task["number"]], user("more?")])["content"])


@agent(columns=("number",), settle=1.0)
def best_of_two_together(task, model):
    """As `best_of_two`, with both asked at the same time."""
    messages = [user("?")]
    with ThreadPoolExecutor(2) as pool:
        said = list(pool.map(lambda _: chat(model, messages), range(2)))
    chosen = {"role": "assistant", "content": "ab"[task["number"]]}
    assert chosen in [{name: one[name] for name in chosen} for one in said]
    return len(chat(model, [*messages, chosen, user("more?")])["content"])


@agent(columns=("number",))
def two_models(task, model):
    return len(chat(model, [user("?")])["content"] + chat(model, [user("good?")], "judge-large")["content"])


def as_text(task, answer):
    return float(answer == "007")


def longer(call, reply):
    """A judge of single calls: better the longer a reply is, up to four letters."""
    assert call["messages"][-1]["role"] == "user"
    return min(len(reply), 4) / 4
