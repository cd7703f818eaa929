"""Remote worlds: what a step over the network costs against the same one in this process, and what side by side gains.

The same Sudokus are played with the same scripted replies: by the rules in this process, and by a Space of them that
`uvicorn` serves on this machine, over WebSockets. Remote episodes are played one after the other or side by side, and
with the server's state fetched after each step (`set_state`), which saves the replay of earlier steps. `replayed` goes
on once from every state of each episode: by the same actions again, or from the server's state.

Nothing is generated, so what is timed is the environment, the engine and the network of one machine. Seconds are those
of a clock on the wall: the server works in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import requests
from common import arguments, report, take_turns

from hf_credit import make
from hf_credit.environments.openenv_world import OpenEnvEnvironment
from hf_credit.hub.spaces import write_space
from hf_credit.oracles import default_oracle
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import Chat, Engine, EnvironmentInteraction, Generation, RolloutRequest
from hf_credit.rollouts.capabilities import Batched

OPTIONS = {"size": 4, "blanks": 8}


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """The address of a Space while it is served."""
    write_space(folder, "sudoku", OPTIONS)
    port = random.randint(20_000, 60_000)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(port), "--log-level", "warning"]
    with subprocess.Popen(command, cwd=folder, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}) as process:
        try:
            for _ in range(600):
                try:
                    requests.get(f"{url}/health", timeout=5)
                    break
                except requests.ConnectionError:
                    time.sleep(0.2)
            yield url
        finally:
            process.kill()


class Scripted:
    """The next cell of each grid, by the grid that was shown last."""

    def __init__(self, chat: Chat, episodes: int) -> None:
        self.chat = chat
        environment = make("sudoku", **OPTIONS)
        oracle = default_oracle(environment)
        assert oracle is not None
        self.replies: dict[str, str] = {}
        for seed in range(episodes):
            state = environment.initial_state(environment.sample_task(seed), seed)
            while state.status == "active":
                action = min(oracle.valid_actions(state))
                self.replies[environment.observe(state)] = environment.write_action(action)
                state = environment.step(state, action).state

    def __call__(self, contexts: Sequence[Sequence[int]]) -> Sequence[Generation]:
        shown = self.chat.tokenizer.batch_decode([list(ids) for ids in contexts], skip_special_tokens=True)
        found = [next(reply for grid, reply in self.replies.items() if text.endswith(grid)) for text in shown]
        return [Generation(ids=[*self.chat.encode(one), self.chat.tokenizer.eos_token_id]) for one in found]


def run(environment: Any, chat: Chat, replies: Scripted, episodes: int, side_by_side: bool) -> dict[str, float]:
    """Seconds of all episodes, and of going on once from each of their states."""
    environment.slow_steps = environment.sessions if side_by_side and hasattr(environment, "sessions") else 1
    interaction = EnvironmentInteraction(environment, instructions=False)
    engine = Engine(interaction, chat, replies)
    begun = time.perf_counter()
    played = engine.run([RolloutRequest(task={"seed": seed}, seed=seed) for seed in range(episodes)])
    seconds = time.perf_counter() - begun
    assert all(one.outcome == 1.0 for one in played)
    # The last first: what follows a state is then not the state that is gone on from next.
    decisions = [decision for one in played for decision in reversed(one.decisions)]
    begun = time.perf_counter()
    after = Batched(interaction).advance_many(
        [one.state for one in decisions], [[one.action_text] for one in decisions]
    )
    replayed = time.perf_counter() - begun
    assert not any(isinstance(one, Exception) for one in after)
    return {"seconds": seconds, "replayed": replayed, "steps": len(decisions)}


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    texts = [f"<action>fill {n} {n} {n}</action>" for n in range(10)]
    environment = make("sudoku", **OPTIONS)
    grids = [environment.observe(environment.initial_state(environment.sample_task(seed), seed)) for seed in range(8)]
    chat = Chat(tokenizer_of([*texts, *grids]))
    replies = Scripted(chat, options.episodes)

    def local() -> dict[str, float]:
        return run(make("sudoku", **OPTIONS), chat, replies, options.episodes, side_by_side=False)

    def remote(url: str, side_by_side: bool, set_state: bool = False) -> Callable[[], dict[str, float]]:
        def once() -> dict[str, float]:
            made = OpenEnvEnvironment(
                url, probe=["fill 1 1 1"], turns=16, set_state=set_state, sessions=options.episodes
            )
            try:
                return run(made, chat, replies, options.episodes, side_by_side)
            finally:
                made.close()

        return once

    with tempfile.TemporaryDirectory() as folder, serving(Path(folder) / "space") as url:
        cases = {
            "in this process": local,
            "remote, in turn": remote(url, side_by_side=False),
            "remote, side by side": remote(url, side_by_side=True),
            "remote, side by side, with set_state": remote(url, side_by_side=True, set_state=True),
        }
        results = take_turns(cases, options.repeats)
    table = []
    first = results["in this process"]
    for name, runs in results.items():
        table.append(
            {
                "played": name,
                "episodes": options.episodes,
                "steps": runs[0]["steps"],
                "ms a step": 1e3 * median(one["seconds"] / one["steps"] for one in runs),
                "to local": median(one["seconds"] / other["seconds"] for one, other in zip(runs, first, strict=True)),
                "replayed, ms a state": 1e3 * median(one["replayed"] / one["steps"] for one in runs),
            }
        )
    return table


def main(arguments_given: list[str] | None = None) -> None:
    options = arguments(__doc__ or "", episodes=32, repeats=5).parse_args(arguments_given)
    rows = compare(options)
    text = (
        f"{options.episodes} games of 4x4 Sudoku with {OPTIONS['blanks']} blanks, scripted, in this process and on a "
        "Space of the same rules on this machine. Seconds on the clock, other work on the machine included: medians "
        "over repeats in turns. `to local` is the median ratio in a turn; `replayed` goes on once from every state."
    )
    report(options, "remote_worlds", text, rows)


if __name__ == "__main__":
    main()
