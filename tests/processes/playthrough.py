"""One episode of an environment as text, to compare with: `python tests/processes/playthrough.py sudoku`."""

from __future__ import annotations

import inspect
import json
import sys
from typing import Any

from hf_credit.content import in_words
from hf_credit.environments import make
from hf_credit.environments.base import Environment, State
from hf_credit.environments.randomness import stream


def playthrough(environment: Environment[Any], seed: int = 0) -> str:
    """The text of an episode with random legal actions; `seed` determines the task and all draws."""
    rng = stream(seed, "playthrough")
    task = environment.sample_task(seed)
    state = environment.initial_state(task, seed)
    names = inspect.signature(type(environment)).parameters
    options = {name: getattr(environment, name) for name in names if hasattr(environment, name)}
    lines = [
        f"# {environment.name}, seed {seed}",
        "",
        f"options: {json.dumps(options)}",
        f"max_turns: {environment.max_turns}",
        f"task: {json.dumps(task)}",
        "instructions:",
        environment.instructions,
    ]
    turn = 0
    while state.status == "active" and turn < environment.max_turns:
        turn += 1
        legal = environment.legal_actions(state)
        action = rng.choice(legal)
        lines += ["", f"## turn {turn}", "", *_shown(environment, state)]
        lines += [f"legal actions: {len(legal)}, from {legal[0]!r} to {legal[-1]!r}", f"action: {action}"]
        transition = environment.step(state, action)
        lines += [f"reward: {transition.reward}", f"info: {json.dumps(dict(transition.info))}"]
        state = transition.state
    lines += ["", f"## the end, after {turn} turns", "", *_shown(environment, state)]
    lines += [
        f"status: {state.status}",
        f"outcome: {environment.outcome(state)}",
        f"metrics: {json.dumps(environment.metrics(state))}",
    ]
    return "\n".join(lines) + "\n"


def _shown(environment: Environment[Any], state: State) -> list[str]:
    return [f"state: {state.to_json()}", "observation:", in_words(environment.observe(state))]


if __name__ == "__main__":
    print(playthrough(make(*sys.argv[1:])), end="")
