"""Each benchmark runs and prints its one table, and what it compares is the same work on both sides."""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from launched import finish, launch, start
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_credit import make


@pytest.fixture(autouse=True)
def _folder_of_scripts(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts find their neighbours because Python looks in the script's folder first."""
    monkeypatch.syspath_prepend(root / "benchmarks")


@pytest.fixture
def copied_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The processes that a benchmark starts are copies of one that has imported everything."""

    def run_copy(command: list[str], env: dict[str, str], **how_to_read: Any) -> subprocess.CompletedProcess[str]:
        _, *words = command
        logs = Path(tempfile.mkdtemp(dir=tmp_path))
        if words[0] != "-m":
            log = logs / "log"
            return subprocess.CompletedProcess(command, 0, finish(start(*words, log=log, environment=env), log), "")
        processes, script, *arguments = words[words.index("--nproc_per_node") + 1 :]
        launch(script, *arguments, processes=int(processes), folder=logs, environment=env)
        printed = "".join(log.read_text(encoding="utf-8") for log in sorted(logs.glob("*.log")))
        return subprocess.CompletedProcess(command, 0, printed, "")

    monkeypatch.setattr(subprocess, "run", run_copy)


def table(printed: str) -> list[list[str]]:
    """The cells of the one Markdown table."""
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert set("".join(rows[1])) == {"-"}
    assert len({len(row) for row in rows}) == 1
    return [rows[0], *rows[2:]]


def run(name: str, capsys: pytest.CaptureFixture[str], output: Path, *options: str) -> list[dict[str, str]]:
    """The rows that a benchmark printed, having checked that it wrote the same."""
    importlib.import_module(name).main([*options, "--output", str(output)])
    columns, *rows = table(capsys.readouterr().out)
    written = (output / f"{name}.md").read_text(encoding="utf-8")
    assert table(written) == [columns, *rows]
    assert f"python benchmarks/{name}.py " in written
    record = json.loads((output / f"{name}.json").read_text(encoding="utf-8"))
    assert len(record["rows"]) == len(rows)
    assert {"python", "torch", "trl"} <= record["versions"].keys()
    return [dict(zip(columns, row, strict=True)) for row in rows]


TINY_POLICY = ("--blanks=2", "--games=2", "--epochs=2", "--hidden-size=128", "--layers=3")


def test_rollouts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = run("rollouts", capsys, tmp_path, *TINY_POLICY, "--plays=2", "--large-plays=2", "--repeats=1")
    assert [row["loop"] for row in rows] == 2 * ["TRL environment_factory", "hf-credit trainer", "hf-credit engine"]
    assert all(float(row["tokens/s"]) > 0 for row in rows)


@pytest.mark.usefixtures("copied_processes")
def test_processes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sizes = ("--blanks=2", "--games=4", "--epochs=2", "--plays=2", "--rows-at-once=4", "--steps=1")
    rows = run("processes", capsys, tmp_path, *sizes)
    assert [row["run"] for row in rows] == [
        "1 process",
        "2 processes",
        "1/2 of the rows, alone",
        "1/2 of the rows each, unconnected",
    ]
    assert [len(row["decode steps"].split(" and ")) for row in rows] == [1, 2, 1, 1]
    assert all(float(row["step, s"]) > 0 for row in rows)


@pytest.mark.usefixtures("copied_processes")
def test_large_policies(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    small = ("--cases=VPR (LoRA)", "--shape=tiny", "--reply-tokens=8", "--updates=1", "--vllm=none")
    (row,) = run("large_policies", capsys, tmp_path, *small)
    assert row["case"] == "VPR (LoRA)"
    shares = [float(row[label].rstrip("%")) for label in ("generation", "forward", "backward", "optimizer", "own")]
    assert sum(shares) == pytest.approx(100, abs=0.5)
    assert min(shares[:3]) > 0


def test_step_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sizes = ("--plays=2", "--large-plays=2", "--rows-at-once=2", "--steps=1")
    rows = run("step_time", capsys, tmp_path, *TINY_POLICY, *sizes)
    assert [(row["history"], row["trainer"]) for row in rows] == [
        *2 * [("append", "hf-credit"), ("append", "TRL")],
        *2 * [("current", "hf-credit")],
    ]
    for row in rows:
        shares = [float(row[label].rstrip("%")) for label in ("generation", "forward", "backward", "optimizer", "own")]
        assert sum(shares) == pytest.approx(100, abs=0.5)
        assert all(share >= 0 for share in shares)


def test_oracles(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    missing = [peer for peer in ("constraint", "pyspiel") if importlib.util.find_spec(peer) is None]
    rows = run("oracles", capsys, tmp_path, "--games=2", "--puzzles=1", "--boards=1")
    expected = ["posterior"] * 4
    expected += [] if "constraint" in missing else ["Sudoku"] * 4
    expected += [] if "pyspiel" in missing else ["MCTS"] * 3
    assert [row["oracle"] for row in rows] == expected
    if missing:
        pytest.skip(f"the extra 'benchmarks' is not installed, so rows of {missing} are left out")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the kernel's account of memory in /proc")
@pytest.mark.usefixtures("copied_processes")
def test_memory(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sizes = ("--episodes=4", "--turns=2", "--rows-at-once=2", "--hidden-size=64", "--layers=1", "--steps=2")
    rows = run("memory", capsys, tmp_path, *sizes, "--repeats=1")
    assert [row["trainer"] for row in rows] == ["TRL GRPO", "hf-credit"]
    assert all(float(row["step, s"]) > float(row["backward, s"]) > 0 for row in rows)
    assert rows[0]["tokens a step"] == rows[1]["tokens a step"]


def test_multi_turn_ppo(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sizes = ("--episodes=4", "--turns=2", "--rows-at-once=2", "--hidden-size=64", "--layers=1", "--steps=1")
    theirs, ours = run("multi_turn_ppo", capsys, tmp_path, *sizes, "--repeats=1")
    assert [theirs["trainer"], ours["trainer"]] == ["TRL GRPO", "hf-credit PPO"]
    for column in ("forward", "backward", "optimizer"):
        assert float(theirs[column]) > 0
        assert float(ours[column]) > 0
        assert float(theirs[f"critic {column}"]) == 0
        assert float(ours[f"critic {column}"]) > 0


# What the numbers rest on


def test_every_loop_plays_the_same_episodes(micro_policy_append: Path) -> None:
    rollouts = importlib.import_module("rollouts")
    policy = (
        AutoModelForCausalLM.from_pretrained(micro_policy_append),
        AutoTokenizer.from_pretrained(micro_policy_append),
    )
    loops = rollouts.loops(make("sudoku", size=4, blanks=4), policy, games=6, plays=2, top_k=1)
    trl, trainer, engine = [play() for play in loops.values()]
    assert trainer.replies == engine.replies
    assert any(len(replies) > 20 for replies in engine.replies)  # more than one turn
    # TRL's loop goes on after the end of the game, by a turn or more.
    for own, other in zip(engine.replies, trl.replies, strict=True):
        assert other[: len(own)] == own


def test_an_enlarged_policy_computes_the_same_function(micro_policy: Path) -> None:
    players = importlib.import_module("players")
    small = AutoModelForCausalLM.from_pretrained(micro_policy)
    large = players.enlarged(small, 4 * small.config.hidden_size, small.config.num_hidden_layers + 2)
    assert large.num_parameters() > 10 * small.num_parameters()
    ids = torch.arange(4, 40)[None]
    # Apart from the small number that a norm adds to the mean over its entries, which are more here.
    torch.testing.assert_close(large(input_ids=ids).logits, small(input_ids=ids).logits, rtol=0, atol=2e-3)


def test_a_policy_knows_its_games_by_heart_and_ends_them_with_an_empty_reply() -> None:
    players, rollouts = importlib.import_module("players"), importlib.import_module("rollouts")
    environment = make("sudoku", size=4, blanks=2)
    policy = players.memorised_policy(environment, "append", games=2, epochs=60)
    loops = rollouts.loops(environment, policy, games=2, plays=2, top_k=1)
    trl, trainer, _ = [play() for play in loops.values()]
    end = policy[1].eos_token_id
    assert [replies.count(end) for replies in trainer.replies] == [2] * 4
    assert trl.replies == [[*replies, end] for replies in trainer.replies]


def test_every_moment_belongs_to_the_innermost_labelled_call() -> None:
    common = importlib.import_module("common")
    moments = iter([0.0, 1.0, 3.0, 7.0, 15.0, 31.0])
    clock = common.Clock(now=lambda: next(moments))

    class Work:
        def outer(self) -> None:
            self.inner()

        def inner(self) -> None:
            pass

    work = Work()
    clock.label(work, "inner", "inner")
    clock.label(work, "outer", "outer")
    work.outer()
    clock.flush()
    # to 1 nothing, to 3 outer, to 7 inner, to 15 outer again, to 31 nothing
    assert clock.seconds == {"rest": 1.0 + 16.0, "outer": 2.0 + 8.0, "inner": 4.0}


def test_cases_take_turns() -> None:
    common = importlib.import_module("common")
    order: list[str] = []
    cases: dict[str, Any] = {name: lambda name=name: order.append(name) or len(order) for name in "ab"}
    assert common.take_turns(cases, repeats=2) == {"a": [1, 3], "b": [2, 4]}


def test_a_table_is_printed_and_written_only_where_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    common = importlib.import_module("common")
    rows = [{"case": "first", "ms": 1234.5}, {"case": "second", "ms": 0.012345}]
    common.report(argparse.Namespace(output=None, repeats=3), "name", "What it shows.", rows)
    assert table(capsys.readouterr().out) == [["case", "ms"], ["first", "1234"], ["second", "0.0123"]]
    assert list(tmp_path.iterdir()) == []


def test_slow_worlds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = run("slow_worlds", capsys, tmp_path, "--episodes=2", "--repeats=1")
    # One step and two: serial is three waits, side by side at least two.
    assert [(row["steps are taken"], row["steps"]) for row in rows] == [("serial", "3"), ("side by side", "3")]
    assert float(rows[0]["seconds"]) >= 0.15
    assert float(rows[1]["seconds"]) >= 0.1


def test_remote_worlds(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("openenv")
    rows = run("remote_worlds", capsys, tmp_path, "--episodes=2", "--repeats=1")
    assert [row["steps"] for row in rows] == ["16"] * 4  # two puzzles of 8 blanks
    assert rows[0]["to local"] == "1"


def test_sandbox(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = run("sandbox", capsys, tmp_path, "--snippets=8", "--repeats=1")
    assert rows[0]["runs"] == "a subprocess each"
    assert all(float(row["CPU ms a snippet"]) > 0 for row in rows)


def test_hub(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = run("hub", capsys, tmp_path, "--megabytes=1", "--files=2", "--repeats=1")
    assert [row["way"] for row in rows] == 2 * ["plain copy", "upload", "download"]
    assert all(float(row["MB/s"]) > 0 for row in rows)


def test_answers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = run("answers", capsys, tmp_path, "--answers=4", "--attacks=1", "--repeats=1")
    assert {row["judged rightly"] for row in rows if row["answers"] != "towers of powers"} == {"4/4"}


def test_tree_update(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    sizes = (
        "--tokens=40",
        "--prefix=64",
        "--turns=2",
        "--planned=40",
        "--hidden-size=64",
        "--layers=1",
        "--repeats=1",
    )
    rows = run("tree_update", capsys, tmp_path, *sizes)
    # Eight rows of 40 after 37 tokens: the last is only predicted, and the place before a parting is read by each.
    counts = ("tokens apart", "asynchronous: tokens", "synchronous: tokens")
    assert [int(rows[0][name]) for name in counts] == [8 * 39, 36 + 8 * 3, 36 + 8 * 3]
    assert all(float(row["gradient's difference"]) < 1e-5 for row in rows[:9])
    # Instructions are read once a pass, whatever the board after them.
    assert float(rows[7]["synchronous: fewer"]) > 2
    assert [row["asynchronous: tokens"] for row in rows[9:]] == 2 * [str(64 * 39)]


def test_asynchronous(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = run("asynchronous", capsys, tmp_path, "--places=8", "--episodes=32")
    waits = [float(row["times generation alone"]) for row in rows]
    assert [row["walks a place"] for row in rows] == ["1", "1", "2", "3", "4", "4", "4", "8"]
    assert min(waits) >= 1
    # In rounds every walk waits for the longest reply; a place with several walks waits for none.
    assert waits[0] > waits[1] > waits[4]
    assert waits[5] > waits[6] >= waits[7]


@pytest.mark.usefixtures("copied_processes")
def test_both_seams(capsys: pytest.CaptureFixture[str], tmp_path: Path, root: Path) -> None:
    """With a tiny policy, as `benchmarks/gpu.sh --dry-run` has it."""
    (small,) = re.findall(r"small=\((--.*)\)", (root / "benchmarks" / "gpu.sh").read_text(encoding="utf-8"))
    rows = run("both_seams", capsys, tmp_path, "--shape=tiny", *small.split())
    assert [row["seam"] for row in rows] == ["asynchronous", "synchronous"]
    assert all(float(row["tokens generated a second"]) > 0 for row in rows)


@pytest.mark.parametrize("script", ["benchmarks/gpu.sh", "trainers/slurm/two_nodes.sbatch"])
def test_a_script_is_one_for_bash(root: Path, script: str) -> None:
    subprocess.run(["bash", "-n", root / script], check=True)
