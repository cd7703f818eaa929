"""Rollouts: how many tokens and episodes a second, side by side with TRL's `environment_factory` loop.

All loops play the same 4x4 Sudokus with the same policy: same weights, same sampling, single precision, one thread,
at most 16 tokens a reply. The contexts are the same tokens on both sides, since an action in its tags is a tool call
to TRL and a tool's answer is rendered like an observation. Only tokens that the model generated count. Both sides
play all episodes side by side. The larger policy computes the function of the smaller one. A pretrained model
(`--model`) takes the place of both, after it has learnt the same games by heart.

What differs:

- TRL's loop has no word for the end of a game. The policy ends an episode by a reply without a call, which it has
  learnt to give, so every TRL episode has one more reply, of one token, than ours.
- After an invalid action our episode is over. TRL's goes on, on the same grid, until the calls are used up.
- `trainer` is the rollout of `VerifiableProcessTrainer`; `engine` is `Engine` with
  `hf_credit.policies.generation.sampler`, as in evaluation. Both keep the keys and values of the last turn, where
  TRL's call reads the whole context again at every turn.

Timed is from the task rows to the tokens of all episodes; rewards, advantages and training are not part of it.
Seconds are those of the process on a processor.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import Clock, arguments, cpu_seconds, report_of_one_thread, take_turns
from players import (
    MAX_REPLY,
    credit_trainer,
    enlarged,
    game_rows,
    memorised_policy,
    trl_row,
    trl_trainer,
)

from hf_credit import make
from hf_credit.policies.generation import sampler
from hf_credit.rollouts import Engine, RolloutRequest

TEXT = (
    "4x4 Sudoku with the whole conversation in view; medians over interleaved repeats, CPU seconds of one thread. "
    "The aim is 3 times TRL's rate."
)


@dataclass(frozen=True, kw_only=True)
class Played:
    """What one run of a loop took and gave.

    Attributes:
        seconds: of the whole rollout.
        generating: of them, in the call that generates.
        replies: the generated tokens of each episode.
    """

    seconds: float
    generating: float
    replies: list[list[int]]

    @property
    def tokens(self) -> int:
        return sum(map(len, self.replies))


class _Enough(Exception):
    """The tokens are there; what TRL does with them next is not part of the comparison."""


def trl_loop(trainer: Any, rows: Sequence[dict[str, Any]]) -> Callable[[], Played]:
    """TRL's rollout of task rows."""
    clock, generate, output = Clock(), trainer._generate, []
    clock.label(trainer, "_generate_single_turn", "generating")

    def stop_after(prompts: Any) -> None:
        output[:] = generate(prompts)
        raise _Enough

    trainer._generate = stop_after

    def play() -> Played:
        trainer.model.eval()
        clock.restart()
        begun = cpu_seconds()
        try:
            trainer._generate_and_score_completions([trl_row(row) for row in rows])
        except _Enough:
            seconds = cpu_seconds() - begun
        _, completions, masks, *_ = output
        replies = [
            [token for token, own in zip(*pair, strict=True) if own] for pair in zip(completions, masks, strict=True)
        ]
        return Played(seconds=seconds, generating=clock.seconds["generating"], replies=replies)

    return play


def own_loop(engine: Engine[Any], rows: Sequence[dict[str, Any]]) -> Callable[[], Played]:
    """This library's rollout of task rows."""
    clock = Clock()
    clock.label(engine, "generate", "generating")

    def play() -> Played:
        clock.restart()
        begun = cpu_seconds()
        episodes = engine.run([RolloutRequest(task=row, seed=row["seed"]) for row in rows])
        seconds = cpu_seconds() - begun
        replies = [[token for d in episode.decisions for token in d.action_ids] for episode in episodes]
        return Played(seconds=seconds, generating=clock.seconds["generating"], replies=replies)

    return play


def loops(environment: Any, policy: Any, games: int, plays: int, **sampling: Any) -> dict[str, Callable[[], Played]]:
    """The loops side by side."""
    rows = game_rows(environment, games, plays)
    trl = trl_trainer(environment, policy, rows, plays, **sampling)
    own = credit_trainer(environment, policy, rows, **sampling)
    own.model.eval()
    generate = sampler(*policy, max_new_tokens=MAX_REPLY, **sampling)
    engine = Engine(own.interaction, own.chat, generate, max_concurrent=len(rows))
    return {
        "TRL environment_factory": trl_loop(trl, rows),
        "hf-credit trainer": own_loop(own.engine, rows),
        "hf-credit engine": own_loop(engine, rows),
    }


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    environment = make("sudoku", size=4, blanks=options.blanks)
    small, tokenizer = memorised_policy(environment, "append", options.games, options.epochs, options.model)
    policies = [(small, options.plays)]
    if options.model is None:
        policies.append((enlarged(small, options.hidden_size, options.layers), options.large_plays))
    table = []
    for model, plays in policies:
        torch.manual_seed(0)
        results = take_turns(loops(environment, (model, tokenizer), options.games, plays), options.repeats)
        reference = next(iter(results.values()))
        for name, played in results.items():
            tokens = [one.tokens / one.seconds for one in played]
            episodes = [len(one.replies) / one.seconds for one in played]
            table.append(
                {
                    "parameters": f"{model.num_parameters() / 1e6:.1f}M",
                    "loop": name,
                    "episodes": len(played[0].replies),
                    "tokens an episode": median(one.tokens / len(one.replies) for one in played),
                    "tokens/s": median(tokens),
                    "episodes/s": median(episodes),
                    "generating": f"{median(one.generating / one.seconds for one in played):.0%}",
                    "tokens/s to TRL's": median(
                        own / (other.tokens / other.seconds) for own, other in zip(tokens, reference, strict=True)
                    ),
                    "episodes/s to TRL's": median(
                        own * other.seconds / len(other.replies)
                        for own, other in zip(episodes, reference, strict=True)
                    ),
                }
            )
    return table


def main(arguments_given: list[str] | None = None) -> None:
    parser = arguments(
        __doc__, blanks=8, games=16, epochs=200, plays=8, large_plays=2, hidden_size=256, layers=4, repeats=5
    )
    parser.add_argument("--model", type=Path, help="the folder of a pretrained chat model with SmolLM2's marks")
    report_of_one_thread(parser, arguments_given, "rollouts", compare, TEXT)


if __name__ == "__main__":
    main()
