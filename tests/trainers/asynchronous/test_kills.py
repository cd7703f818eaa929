"""A training that is killed at any moment goes on without an episode lost or learned from twice."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import async_run
import torch
from async_run import GROUP, TASKS, prompts_of
from launched import finish, start
from micro_server import MicroServer

from hf_credit.checkpoints import latest_complete

KILLS = 6
STEPS = 8


def steps_of(path: Path) -> list[dict[str, Any]]:
    """What was learned from so far; the last line may be cut where a process was killed."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in lines]


def test_six_kills_lose_and_double_no_episode(micro_policy: Path, tmp_path: Path) -> None:
    """Each process that is killed has to load a policy first, so there are no more."""
    draws, learned, log = Random(0), tmp_path / "learned.jsonl", tmp_path / "run.log"
    server = MicroServer(micro_policy).start()
    arguments = (micro_policy, tmp_path, server.url, STEPS)
    log.touch()
    for life in range(KILLS):
        process = start(async_run.__file__, *arguments, log=log)
        while log.read_text().count("begins") <= life and process.is_alive():
            time.sleep(0.01)
        before = steps_of(learned)
        # Some die before their first update, in the middle of a checkpoint, or a little later.
        wanted, until = draws.randrange(2), time.monotonic() + 30
        while len(steps_of(learned)) < len(before) + wanted and process.is_alive() and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(draws.uniform(0, 0.3))
        process.kill()
        process.join()
    finish(start(async_run.__file__, *arguments, log=log), log)
    server.stop()

    lines = {line["step"]: line for line in steps_of(learned)}  # of each step the one that lasts
    assert sorted(lines) == list(range(1, STEPS + 1))
    assert len({line["number"] for line in lines.values()}) == STEPS
    opening = prompts_of(micro_policy, TASKS * (STEPS + 20))
    prompts = [tuple(prompt) for line in lines.values() for prompt in line["prompts"]]
    played = Counter(opening[prompt] for prompt in prompts if prompt in opening)
    assert set(played.values()) == {GROUP}
    assert len(played) == TASKS * STEPS
    saved = latest_complete(tmp_path)
    assert saved is not None
    state = torch.load(saved / "hf_credit_state_0.pt", weights_only=True)
    worker = state["worker"]
    waiting = [task for name in ("finished", "under_way") for one in worker[name] for task in one["tasks"]]
    assert worker["again"] == []
    assert len(played) + len(waiting) == worker["next_task"]
    assert state["ledger"]["scoring_events"] == GROUP * len(played)
