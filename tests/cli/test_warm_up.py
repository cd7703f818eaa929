"""`hf-credit warm-up`: a model learns from an oracle, a script or records, and training goes on from it."""

from __future__ import annotations

import json
import string
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from hf_credit.agents import AgentInteraction
from hf_credit.cli.progress import Progress
from hf_credit.cli.warm_up import Taught
from hf_credit.evaluation.credited import credited_episode
from hf_credit.evaluation.runs import read_run
from hf_credit.policies.micro import tokenizer_of
from hf_credit.policies.scripted import play
from hf_credit.rollouts import Chat, RolloutRequest
from hf_credit.tasks import TaskSpec

SUDOKU = ("--task", "sudoku", "-o", "size=4", "-o", "blanks=4", "--history", "current", "--no-instructions")
FAST = ("--max-new-tokens", 12, "--episodes", 12, "--max_steps", 2, "--use_cpu", "true", "--bf16", "false")
QUIET = ("--gradient_checkpointing", "false", "--report_to", "none", "--save_strategy", "no")
LOGS = (*FAST[:2], *FAST[4:], *QUIET)
SCRIPT = """
class Player:
    def __init__(self, quality):
        self.quality = quality

    def __call__(self, state, request, draws):
        return "<action>fill 1 1 1</action>" if draws.random() < self.quality else "?"


def broken(state, request, draws):
    raise RuntimeError("no such board")
"""


def weights(folder: Path) -> torch.Tensor:
    model = AutoModelForCausalLM.from_pretrained(folder)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_a_model_learns_from_the_oracle_and_evaluation_and_training_go_on_from_it(
    command: Callable[..., Any], micro_policy: Path, tmp_path: Path, recipe: Callable[..., Path]
) -> None:
    warm = tmp_path / "warm"
    code, out, err = command(
        "warm-up", micro_policy, *SUDOKU, *FAST, *QUIET, "--learning_rate", 1e-3, "--output", warm
    )
    assert code == 0, err
    assert "12 episodes of 12 tasks, 48 rows with" in out
    assert "evaluated: eval_loss" in err
    run = read_run(warm)
    assert run.facts["episodes"] == 11
    assert run.facts["held_out"] == 1
    steps, held_out = run.curve("eval_loss")
    assert steps == [0, 2]
    assert held_out[1] != held_out[0]
    spec = TaskSpec.load(warm)
    assert spec is not None
    assert (spec.task, spec.history, spec.sampling.max_new_tokens) == ("sudoku", "current", 12)
    assert command("evaluate", warm, "--episodes", 2).code == 0
    trained = recipe(model_name_or_path=str(warm), max_steps=1)
    assert command("train", trained).code == 0


def test_an_adapter_is_merged_so_that_training_goes_on_from_a_whole_model(
    command: Callable[..., Any], micro_policy: Path, tmp_path: Path
) -> None:
    options = ("--use_peft", "--lora_target_modules", "q_proj", "v_proj", "--learning_rate", 1e-2)
    code, _, err = command("warm-up", micro_policy, *SUDOKU, *FAST, *QUIET, *options, "--output", tmp_path / "warm")
    assert code == 0, err
    assert "trained on other prompts" not in err  # nothing is known about those of this folder
    assert not (tmp_path / "warm" / "adapter_config.json").exists()
    changed = weights(tmp_path / "warm") != weights(micro_policy)
    assert 0 < changed.float().mean() < 0.5


def test_a_warm_up_is_published_by_its_own_command(
    command: Callable[..., Any], micro_policy: Path, tmp_path: Path
) -> None:
    words = ("warm-up", micro_policy, *SUDOKU, *FAST, *QUIET, "--push_to_hub", "true", "--output", tmp_path / "warm")
    code, _, err = command(*words)
    assert code == 1
    assert f"got push_to_hub; leave it out, and run hf-credit publish checkpoint {tmp_path / 'warm'} OWNER/NAME" in err


def test_a_resumed_warm_up_ends_as_one_that_was_not_stopped(
    command: Callable[..., Any], micro_policy: Path, tmp_path: Path
) -> None:
    def warmed(name: str, *options: object) -> torch.Tensor:
        arguments = (*SUDOKU, *FAST, *QUIET[:4], "--learning_rate", 1e-3, "--lr_scheduler_type", "constant")
        code, _, err = command("warm-up", micro_policy, *arguments, *options, "--output", tmp_path / name)
        assert code == 0, err
        return weights(tmp_path / name)

    whole = warmed("whole")
    warmed("parts", "--max_steps", 1, "--save_steps", 1)
    assert "None" not in (tmp_path / "parts" / "README.md").read_text()  # which TRL writes with a checkpoint
    parts = warmed("parts", "--resume_from_checkpoint", "true")
    assert torch.allclose(parts, whole, atol=1e-7)
    assert not torch.equal(warmed("other", "--seed", 7), whole)


def test_failed_episodes_are_left_out_and_none_left_is_refused(
    command: Callable[..., Any], micro_policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_players.py").write_text(SCRIPT)
    common = ("warm-up", micro_policy, *SUDOKU, *FAST, *QUIET, "--output", "warm")
    code, _, err = command(*common, "--script", "my_players:Player")
    assert code == 1
    assert "a warm-up must have an episode to learn from, got none: 12 failed (success below 1); lower" in err
    assert not Path("warm", "model.safetensors").exists()
    code, out, err = command(*common, "--script", "my_players:Player", "--quality", 0.5, "--min-success", -1)
    assert code == 0, err
    assert "12 episodes of" in out
    code, _, err = command(*common, "--script", "my_players:broken")
    assert code == 1
    assert "got none: 12 raised RuntimeError; lower" in err


def test_it_learns_from_the_episodes_of_a_run(
    command: Callable[..., Any], micro_policy: Path, tmp_path: Path, trained_run: Path
) -> None:
    recorded = trained_run / "episodes.jsonl"
    lines = recorded.read_text().splitlines()
    assert all(json.loads(line)["state"] for line in lines)
    # A file cannot claim a success that its replies do not have.
    claims = [{**json.loads(line), "outcome": 1.0, "metrics": {"success": 1.0}} for line in lines]
    failed = [claim for claim, line in zip(claims, lines, strict=True) if json.loads(line)["outcome"] != 1.0]
    (tmp_path / "claims.jsonl").write_text("".join(json.dumps(one) + "\n" for one in failed))
    common = ("warm-up", micro_policy, *SUDOKU, *LOGS, "--min-success", -1, "--output", tmp_path / "warm")
    code, out, err = command(*common, "--traces", recorded)
    assert code == 0, err
    assert f"{len(lines)} episodes of" in out
    assert failed
    code, _, err = command(*common, "--traces", tmp_path / "claims.jsonl")
    assert code == 1
    assert "an episode must play again as it was recorded, got ValueError: its outcome is 0, and was 1" in err


def test_it_learns_from_chat_logs_without_a_task(
    command: Callable[..., Any], micro_policy: Path, tmp_path: Path
) -> None:
    def log(answer: int, **facts: Any) -> dict[str, Any]:
        said = {"role": "assistant", "content": f"<action>fill 1 1 {answer}</action>"}
        return {"messages": [{"role": "user", "content": f"R1 {answer} ."}, said], **facts}

    rows = [log(1, reward=1.0), log(2, reward=0.0), log(3), {"messages": "?"}]
    logs = tmp_path / "logs.jsonl"
    logs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, err = command(
        "warm-up", micro_policy, *LOGS[2:], "--traces", logs, "--held-out", 0, "--output", tmp_path / "warm"
    )
    assert code == 0, err
    assert "Left out 2 of 4 episodes: 1 on lines that cannot be used, 1 failed (success below 1)." in out
    assert "2 episodes of 2 tasks, 2 rows" in out
    assert "Skipped line 4: " in err
    assert "eval_loss" not in err
    assert TaskSpec.load(tmp_path / "warm") is None


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--script", "a:b", "--oracle", "sudoku"), "one player plays, got --script 'a:b'"),
        (("--traces", "a.jsonl", "--script", "a:b"), "--traces are learned as they are"),
        (("--learning_rat", "1"), "has the fields of TRL's SFTConfig and ModelConfig, got --learning_rat"),
        (
            ("--packing", "true"),
            "packing must be False, got True: demonstrations are rows of tokens already",
        ),
        (("--max_length", "3"), "got none: 12 above 3 tokens (max_length); lower"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(
    command: Callable[..., Any], micro_policy: Path, tmp_path: Path, options: tuple[str, ...], sentence: str
) -> None:
    fast = FAST if options[0] != "--traces" else (*FAST[:2], *FAST[4:])
    code, _, err = command("warm-up", micro_policy, *SUDOKU, *fast, *QUIET, *options, "--output", tmp_path / "warm")
    assert code == 1
    assert sentence in err
    assert err.count("\n") < 8


def test_a_recipe_gives_the_task_its_prompts_and_the_oracle_that_plays(
    command: Callable[..., Any], micro_policy: Path, tmp_path: Path, recipe: Callable[..., Path]
) -> None:
    """The oracle that is asked first knows no game of Sudoku."""
    own = recipe(method="grpo", oracle="mcts", oracle_options={"simulations": 2}, max_completion_length=11)
    code, _, err = command("warm-up", micro_policy, "--recipe", own, *FAST[2:], *QUIET, "--output", tmp_path / "warm")
    assert code != 0
    assert "mcts" in err
    code, _, err = command(
        "warm-up", micro_policy, "--recipe", own, "--oracle", "sudoku_constraints", *FAST[2:], *QUIET, "--output",
        tmp_path / "warm",
    )  # fmt: skip
    assert code == 0, err
    spec = TaskSpec.load(tmp_path / "warm")
    assert spec is not None
    assert (spec.history, spec.instructions, spec.sampling.max_new_tokens) == ("current", False, 11)


def test_a_recipe_is_given_no_other_task_prompts_or_sampling() -> None:
    own: dict[str, Any] = {"option": ["size=9"], "max_turns": 2, "dataset": "me/rows"}
    with pytest.raises(
        ValueError, match=r"names its task and rows, got 'r' and .*--option.*--dataset; leave these out"
    ):
        Taught(recipe="r", **own)
    assert Taught(recipe="r", trust_remote_code=True).recipe == "r"


def test_recorded_actions_of_a_program_play_again_by_an_option_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agent, chat = AgentInteraction("agent_programs:asks"), Chat(tokenizer_of([string.printable], tools=True))
    episode = play(agent, chat, lambda *_: "a", RolloutRequest(task={"number": 1}, seed=1))
    row = credited_episode(episode, [0.0] * len(episode.decisions), chat.tokenizer, interaction=agent).to_json()
    path = tmp_path / "episodes.jsonl"
    log = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "a"}]}
    path.write_text(f"{row}\n{json.dumps(log)}\n")
    for agreed in (False, True):
        taught = Taught(traces=[path], replay_actions=agreed)
        dropped: Counter[str] = Counter()
        assert len(list(taught.demonstrations(agent, None, chat, dropped, Progress()))) == 1 + agreed
        assert dropped.total() == 1 - agreed
    assert capsys.readouterr().err.count("read them, then set --replay-actions") == 1
    agent.close()
