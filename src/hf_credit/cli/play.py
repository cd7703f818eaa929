"""`hf-credit play`: a person plays an environment, and can ask the oracle."""

from __future__ import annotations

import secrets
import sys
from typing import Annotated, Any

import typer

from hf_credit.cli.options import EnvironmentName, EnvironmentOptions, parse_options
from hf_credit.content import in_words
from hf_credit.environments.actions import plain_action
from hf_credit.redaction import written_out


def play(
    environment: EnvironmentName,
    option: EnvironmentOptions = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the task; by default random, and shown.", min=0)] = None,
) -> None:
    """Plays an environment in the terminal: one of hf-credit envs, or module:Class from the current folder.

    Type an action, `?` for the actions that the oracle accepts, or `quit`. Actions can also be piped to stdin.

    \b
    Examples:
      hf-credit play tic_tac_toe --option opponent=mcts --option agent=second
      hf-credit play sudoku --option size=4 --seed 3
      hf-credit play my_games:Wordle --option length=4
      printf 'place 2 2\\nquit\\n' | hf-credit play tic_tac_toe --seed 0
    """
    from hf_credit import collaborations, environments
    from hf_credit.oracles import default_oracle

    if environment in collaborations.known() and environment not in environments.known():
        raise ValueError(
            f"hf-credit play needs an environment, got the collaboration {environment!r}, whose roles a policy plays; "
            "choose an environment, or use hf-credit evaluate."
        )
    world = environments.make(environment, **parse_options(option))
    seed = secrets.randbelow(2**31) if seed is None else seed
    state = world.initial_state(world.sample_task(seed), seed)
    oracle = default_oracle(world)
    asking = "" if oracle is None else " ? for the actions that the oracle accepts,"
    print(f"{written_out(world.instructions)}\n\nSeed {seed}. Type an action,{asking} or quit.", flush=True)
    turns = 0
    while state.status == "active" and turns < world.max_turns:
        print(f"\n{written_out(in_words(world.observe(state)))}", flush=True)
        action = _ask(world, oracle, state)
        if action is None:
            break
        state = world.step(state, action).state
        turns += 1
    ending = "not finished" if state.status == "active" else state.status
    metrics = ", ".join(f"{name} {value:g}" for name, value in world.metrics(state).items())
    print(f"\n{written_out(in_words(world.observe(state)))}\n\n{ending}: {metrics}", flush=True)


def _ask(world: Any, oracle: Any, state: Any) -> str | None:
    """Reads a legal action; returns `None` to quit."""
    legal = world.legal_actions(state)
    while True:
        print("> ", end="", flush=True)
        line = sys.stdin.readline()
        word = line.strip().lower()
        if not line or word in ("quit", "exit"):
            print("quit")
            return None
        if word in ("?", "oracle"):
            accepted = None if oracle is None else ", ".join(sorted(oracle.valid_actions(state)))
            print("This environment has no oracle." if accepted is None else f"The oracle accepts: {accepted}")
            continue
        for action in (world.read_action(line), " ".join(line.split()), plain_action(line)):
            if action in legal or (world.open_actions and world.step(state, action).state.status != "invalid"):
                return str(action)
        if word:
            print(
                f"{word!r} is illegal, which would end a policy's episode; a legal action is for example {legal[0]!r}"
            )
