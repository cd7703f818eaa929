"""Programs that show where they run, and programs that take more than they should."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from agent_programs import chat, user

from hf_credit.agents import agent


@agent(columns=("number",))
def shows_paths(task, model):
    """Shows its folder in every form, and does what the model says with it."""
    Path("notes").write_text("tea")
    made = tempfile.mkdtemp(), tempfile.mkstemp()[1]
    told = subprocess.run([sys.executable, Path("no.py").absolute()], capture_output=True, text=True).stderr
    messages = [user(f"{Path.cwd()} {Path.home().name} {Path('notes').absolute().as_uri()} {made} {told}")]
    messages.append(chat(model, messages))
    path = Path(messages[-1]["content"].removeprefix("read "))
    messages.append(user(path.read_text() if path.is_file() else f"no {path}"))
    return float(chat(model, messages)["content"] == "tea")


def same(task, answer):
    return answer


async def later(task, answer):
    return answer


@agent(columns=("number",), score=same, settle=1.0)
async def at_once(task, model):
    loop = asyncio.get_running_loop()
    said = await asyncio.gather(*(loop.run_in_executor(None, chat, model, [user(f"{n}?")]) for n in range(2)))
    return len("".join(one["content"] for one in said))


@agent(columns=("file",), settle=0.05)
def later_in_some_runs(task, model):
    """Two calls at once, of which one comes late in every second run."""
    file = Path(task["file"])
    with file.open("a") as runs:
        runs.write("a")

    def ask(number):
        time.sleep(0.3 * number * (len(file.read_text()) % 2))
        return chat(model, [user(f"{number}?")])["content"]

    with ThreadPoolExecutor() as threads:
        return len(chat(model, [user(" ".join(threads.map(ask, range(2))))])["content"])


@agent(columns=("number",), score="halved")
def is_scored(task, model):
    return len(chat(model, [user("?")])["content"])


def halved(task, answer):
    return answer / 2


@agent(columns=("number",))
def calls_no_model(task, model):
    return 1.0


@agent(columns=("file",))
def counts_its_runs(task, model):
    """Never shows the same twice."""
    with Path(task["file"]).open("a") as runs:
        runs.write("a")
        runs.flush()
        messages = [user("a" * runs.tell())]  # the end of what this run wrote, whatever others write meanwhile
    for _ in range(2):
        messages += [chat(model, messages), user("a")]
    return 1.0


@agent(columns=("file",))
def leaves_a_daemon(task, model):
    """A process in a session of its own, whose parents have ended, as daemons are."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            Path(task["file"]).write_text(str(os.getpid()))
            time.sleep(600)
        os._exit(0)
    os.wait()
    while not os.path.exists(task["file"]) or not Path(task["file"]).read_text():
        time.sleep(0.01)
    return len(chat(model, [user("?")])["content"])


@agent(columns=("what",), disk_bytes=2**20)
def takes_much(task, model):
    """After a reply, or before it; the numbers are larger than every bound."""
    if task["what"] == "before":
        for number in range(300):  # a block each, though a few bytes long
            Path(f"small{number}").write_text("x")
    chat(model, [user("?")])
    match task["what"]:
        case "raise":
            raise ValueError("x" * 2**21)
        case "return":
            return "x" * 2**21
        case "print":
            for _ in range(64):
                print("x" * 2**16)
            print("that was much", flush=True)
            os._exit(3)
        case "write":
            Path("large").write_bytes(b"x" * 2**21)
        case "files":
            for number in range(4):
                Path(f"large{number}").write_bytes(b"x" * 2**19)
            time.sleep(600)
        case "child":
            return float(subprocess.run("yes > large", shell=True).returncode != 0)
        case "unspeakable":
            raise Unspeakable
        case "fork":
            if os.fork():
                os.wait()
                return 0.5
            return 1.0  # in the fork
    return 0.5


class Unspeakable(Exception):
    def __str__(self):
        raise ValueError("no words")
