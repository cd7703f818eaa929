"""A thousand updates of a program, ten times killed: nothing grows, nothing is lost, nothing is said twice."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from statistics import mean

import long_run
import pytest
from micro_server import MicroServer
from small_agents import build_policy

from hf_credit.evaluation.credited import read_episodes
from hf_credit.evaluation.runs import read_log

STEPS, QUIET, KILLS = int(os.environ.get("HF_CREDIT_LONG_RUN", "1000")), 0.7, 10
"""Updates, the share of them before the first kill, and kills."""
GROWS = 32
"""MiB that a process may take more at the end than from the hundredth update on, since memory comes in parts."""


def lines_of(path: Path) -> int:
    """How many a log has, counted without reading them: the server of replies is in this process."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.soak
@pytest.mark.parametrize("seam", ["synchronous", "asynchronous"])
def test_a_long_run_takes_no_more_and_its_record_is_complete(seam: str, tmp_path: Path) -> None:
    policy = build_policy(tmp_path / "policy")
    server = MicroServer(policy).start()
    output, draws = tmp_path / "run", Random(0)
    command = [sys.executable, long_run.__file__, seam, policy, output, STEPS, server.url]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    said: list[str] = []
    for life in range(KILLS + 1):
        log = tmp_path / f"life-{life}.log"
        with (
            log.open("w") as file,
            subprocess.Popen(list(map(str, command)), stdout=file, stderr=file, env=environment) as process,
        ):
            if life < KILLS:
                begun = lines_of(output / "metrics.jsonl")
                wanted = QUIET * STEPS if not life else begun + draws.uniform(0, 0.05) * STEPS
                while process.poll() is None and lines_of(output / "metrics.jsonl") < wanted:
                    time.sleep(draws.uniform(0.01, 0.2))
                process.kill()
            ended = process.wait()
        said.append(log.read_text())
        assert ended in ((0,) if life == KILLS else (0, -9)), said[-1][-2000:]
    server.stop()

    # The log has every update once, in order, and the ledger what all of them sampled.
    logged = [entry for entry in read_log(output / "metrics.jsonl") if "loss" in entry]
    assert [entry["step"] for entry in logged] == list(range(1, STEPS + 1))
    # Collections that were too old on a loaded machine were played again.
    again = sum(entry.get("collections/dropped_total", 0.0) for entry in logged)
    assert logged[-1]["budget/scoring_events"] == 4 * (STEPS + again)
    assert all(entry["endings/error"] == 0.0 for entry in logged)
    recorded = Counter(episode.update for episode in read_episodes(output))
    assert set(recorded.values()) == {2}
    assert set(recorded) <= set(range(1, STEPS + 1))
    assert (output / "episodes.jsonl").stat().st_size < 17 * 2**20
    assert len([*output.glob("checkpoint-*")]) == 2

    # No process of the first life takes more at its end than after a hundred updates.
    lines = [json.loads(line) for line in (output / "memory.jsonl").read_text().splitlines()]
    first = [line for line in lines if line["pid"] == lines[0]["pid"] and line["step"] >= 100]
    early, late = first[: len(first) // 3], first[-len(first) // 3 :]
    for place in range(min(len(line["taken"]) for line in first)):
        grown = mean(one["taken"][place] for one in late) - mean(one["taken"][place] for one in early)
        assert grown < GROWS, [line["taken"] for line in first]
    # How many programs there are changes from moment to moment; with processes that stay, there would always be more.
    assert min(len(line["taken"]) for line in late) <= max(len(line["taken"]) for line in early)

    # A warning is said once in a life.
    for text in said:
        warnings = Counter(line for line in text.splitlines() if "warning" in line.lower())
        assert not {line for line, count in warnings.items() if count > 1}
