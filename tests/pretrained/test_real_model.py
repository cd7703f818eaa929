"""What a user does, once each, with a pretrained chat model."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants, snapshot_download
from peft import PeftConfig, PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_credit.evaluation.credited import read_episodes
from hf_credit.evaluation.runs import read_log
from hf_credit.rollouts import Chat
from hf_credit.rollouts.reply_ends import end_tokens
from local_hub.running import serving

pytestmark = pytest.mark.pretrained


def steps(run: Path) -> list[int]:
    return [entry["step"] for entry in read_log(run / "metrics.jsonl") if "reward" in entry]


def test_the_model_answers_and_ends_its_reply(chat_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(chat_model)
    model = AutoModelForCausalLM.from_pretrained(chat_model, dtype=torch.bfloat16)
    chat = Chat(tokenizer)
    context = chat.context([{"role": "user", "content": "What is the capital of France?"}])
    answer = model.generate(torch.tensor([context]), max_new_tokens=24, do_sample=False)[0, len(context) :].tolist()
    reply = chat.reply(answer)
    assert "Paris" in reply
    assert reply.ended
    assert answer[-1] in end_tokens(model, tokenizer)
    assert chat.reply_ids("Paris.")[-1] == answer[-1]


def test_a_preview_shows_the_models_own_template(hf_credit: Callable[..., str], recipe: Callable[..., Path]) -> None:
    shown = hf_credit("preview", recipe(), "--tasks", 2)
    assert "<|im_start|>user\nYou are solving a 4x4 Sudoku." in shown
    assert "The policy cannot begin: " in shown


@pytest.mark.parametrize("history", ["current", "append"])
def test_full_training_writes_episodes_and_a_run_that_can_be_evaluated_and_reported(
    hf_credit: Callable[..., str], recipe: Callable[..., Path], history: str
) -> None:
    path = recipe(history=history, max_steps=1)
    hf_credit("train", path)
    run = path.with_name("run")
    assert steps(run) == [1]
    assert [episode.update for episode in read_episodes(run)] == [1, 1]
    if history == "current":
        hf_credit("evaluate", "run", "--episodes", 2)
        assert "report.md" in hf_credit("report", "run")


def test_an_adapter_is_saved_killed_resumed_evaluated_and_published(
    hf_credit: Callable[..., str], recipe: Callable[..., Path], chat_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recipe(max_steps=3, use_peft=True, lora_r=4, save_strategy="steps", save_steps=1)
    run = path.with_name("run")
    command = [sys.executable, "-m", "hf_credit.cli", "train", str(path)]
    with subprocess.Popen(command, cwd=path.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as training:
        while training.poll() is None and not (run / "checkpoint-1" / "trainer_state.json").is_file():
            time.sleep(0.2)
        os.kill(training.pid, signal.SIGKILL)
    hf_credit("train", path, "--resume_from_checkpoint", "true")
    assert steps(run) == [1, 2, 3]
    assert "success" in hf_credit("evaluate", "run", "--episodes", 2)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
    with serving(path.with_name("hub")) as hub:
        there = {"HF_ENDPOINT": hub.url, "HF_TOKEN": hub.token("me", "write"), "HF_HUB_OFFLINE": "0"}
        there["HF_HUB_DISABLE_XET"] = "1"  # which only the Hub of Hugging Face has
        hf_credit("publish", "checkpoint", chat_model, "me/base", **there)
        hf_credit("publish", "checkpoint", "run", "me/adapter", "--base", "me/base", **there)
        folder = snapshot_download("me/adapter", endpoint=hub.url, cache_dir=path.with_name("cache"))
    name = "adapter_model.safetensors"
    assert Path(folder, name).read_bytes() == (run / name).read_bytes()
    assert PeftConfig.from_pretrained(folder).base_model_name_or_path == "me/base"
    loaded = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(chat_model), folder)
    assert loaded(torch.arange(3, 15)[None]).logits.isfinite().all()


def test_weights_of_four_bits_train_an_adapter(hf_credit: Callable[..., str], recipe: Callable[..., Path]) -> None:
    path = recipe(max_steps=1, use_peft=True, lora_r=4, load_in_4bit=True)
    hf_credit("train", path)
    assert steps(path.with_name("run")) == [1]


TOOLS = '''
class Library:
    def reset(self, **row):
        return "Answer with the number alone."

    def look_up(self, place: str) -> str:
        """Looks up how high a mountain is, in metres.

        Args:
            place: the mountain's name.
        """
        return {"Rigi": "1798", "Eiger": "3967"}.get(place, "unknown")


def correct(completions, answer, **columns):
    return [float(run[-1]["content"] == gold) for run, gold in zip(completions, answer)]
'''

# Hermes' form, for a model whose own template has no tools.
WITH_TOOLS = (
    "{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }}\nCall one by "
    '<tool_call>{"name": ..., "arguments": {...}}</tool_call><|im_end|>\n{% endif %}'
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% for call in message.tool_calls %}\n<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def with_tools(chat_model: Path, folder: Path) -> Path:
    """The model with a template that has tools."""
    folder.mkdir()
    for file in chat_model.iterdir():
        if file.name != "chat_template.jinja":
            os.link(file, folder / file.name)
    (folder / "chat_template.jinja").write_text(WITH_TOOLS)
    return folder


def test_a_template_with_tools_trains_a_tools_environment(
    hf_credit: Callable[..., str], recipe: Callable[..., Path], chat_model: Path, tmp_path: Path
) -> None:
    (tmp_path / "my_tools.py").write_text(TOOLS)
    rows = [{"prompt": [{"role": "user", "content": "How high is the Rigi?"}], "answer": "1798", "seed": 0}] * 2
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"factory": "my_tools:Library", "columns": ["prompt", "answer"], "reward_funcs": ["my_tools:correct"]}
    path = recipe(
        method="grpo",
        method_options={"group_size": 2},
        model_name_or_path=str(with_tools(chat_model, tmp_path / "model")),
        task="tools",
        task_options={**options, "turns": 2},
        history=None,
        instructions=False,
        max_turns=None,
        dataset_name="json",
        dataset_config=None,
        max_steps=1,
    )
    data = tmp_path / "data"
    data.mkdir()
    (tmp_path / "rows.jsonl").rename(data / "train.jsonl")
    shown = hf_credit("preview", path, "--dataset_name", data, "--tasks", 2)
    assert "Tools: [" in shown
    hf_credit("train", path, "--dataset_name", data)
    assert steps(path.with_name("run")) == [1]


AGENT = """
import json
import urllib.request

from hf_credit.agents import agent


@agent(columns=("question", "answer"), max_calls=2)
def ask(task, model):
    asked = {"model": model.name, "messages": [{"role": "user", "content": task["question"]}]}
    headers = {"authorization": f"Bearer {model.api_key}", "content-type": "application/json"}
    request = urllib.request.Request(f"{model.base_url}/chat/completions", json.dumps(asked).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        choice = json.load(answer)["choices"][0]
    return float(task["answer"] in choice["message"]["content"])
"""


def test_a_program_that_calls_the_model_is_trained(
    hf_credit: Callable[..., str], recipe: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "my_agent.py").write_text(AGENT)
    data = tmp_path / "data"
    data.mkdir()
    row = json.dumps({"question": "What is the capital of France?", "answer": "Paris", "seed": 0})
    (data / "train.jsonl").write_text(f"{row}\n" * 2)
    path = recipe(
        method="grpo",
        method_options={"group_size": 2},
        task=None,
        task_options=None,
        history=None,
        max_turns=None,
        agent="my_agent:ask",
        dataset_name=str(data),
        max_steps=1,
    )
    hf_credit("train", path)
    (entry,) = [entry for entry in read_log(path.with_name("run") / "metrics.jsonl") if "reward" in entry]
    assert entry["reward"] > 0.0
    assert entry["endings/error"] == 0.0


def test_the_credit_of_its_decisions_is_diagnosed(
    hf_credit: Callable[..., str], chat_model: Path, tmp_path: Path
) -> None:
    task = ["--task", "sudoku", "--option", "size=4", "--option", "blanks=2"]
    size = ["--buckets", 1, "--replays", 2, "--attempts", 0, "--episodes", 1, "--max-new-tokens", 12]
    hf_credit("diagnose", chat_model, *task, *size, "--output", tmp_path / "found")
    assert (tmp_path / "found").is_dir()


def test_the_demo_warms_up_trains_and_compares(chat_model: Path, tmp_path: Path) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "sql_agent"
    sizes = ["--warm-up", "1", "--updates", "1", "--episodes", "4", "--output", str(tmp_path)]
    command = [sys.executable, "demo_real.py", str(chat_model), *sizes]
    done = subprocess.run(command, cwd=example, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert steps(tmp_path / "trained") == [1]
    assert all((tmp_path / name / "evaluation.json").is_file() for name in ("start", "trained"))
