"""Credit cost: what one terminal score costs when alternatives are replayed, beside playing whole episodes.

Both sides spend the same budget of terminal scores on the same problems, with the same policy. Replay samples
alternatives at frozen contexts and continues each from the recorded state (paper C3, section 5.1). Whole episodes are
what MAPPO and MAGRPO play, and what it takes to try alternatives where no state can be restored: everything upstream
is generated again for every score.

Every message has the same number of tokens, so that what is saved is due to the layout alone. Tokens are counted as in
the paper's ledger (Appendix M): what the policy was given and what it produced, for each message.

Seconds are those of the process on a processor, with one thread.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from statistics import median
from typing import Any

import torch
from common import arguments, cpu_seconds, report_of_one_thread, take_turns
from transformers import GenerationConfig

from hf_credit.collaborations import Collaboration, Event
from hf_credit.policies.generation import PrefixSampler
from hf_credit.policies.micro import MicroConfig, build_model, tokenizer_of
from hf_credit.rollouts import Chat, Engine, Ledger, RolloutRequest

BUDGET = 8
ROLES = ("planner", "reasoner", "actor")
LAYOUTS = {2: (2, 4), 3: (2, 2, 2)}
"""Alternatives at each step, by the number of roles. That of two is the paper's."""
TEXT = (
    f"What one terminal score costs at a budget of {BUDGET} scores a problem, messages of {{message}} "
    "tokens and problems of {problem} words; medians over repeats in turns, CPU seconds of one thread. "
    "The aim is 0.6 of the generated tokens of whole episodes."
)


def chain(roles: Sequence[str]) -> Collaboration:
    """Roles that speak one after the other and hear all before them; the score is of no interest here."""
    return Collaboration(
        roles={role: f"You are the {role}." for role in roles},
        events=[
            Event(role, role=role, after=roles[place - 1] if place else (), sees=tuple(roles[:place]))
            for place, role in enumerate(roles)
        ],
        final=roles[-1],
        scorer=lambda task, text: 0.0,
    )


def play(engine: Engine[Any], tasks: Sequence[dict[str, str]], fanout: tuple[int, ...]) -> tuple[Ledger, float]:
    """What the episodes cost, and their seconds."""
    begun = cpu_seconds()
    episodes = engine.run([RolloutRequest(task=task, fanout=fanout) for task in tasks])
    return Ledger.of(episodes), cpu_seconds() - begun


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    words = [f"word{number}" for number in range(50)]
    tokenizer = tokenizer_of([" ".join(words), *ROLES, "You are the . Problem: Context: \n"])
    size = MicroConfig(hidden_size=options.hidden_size, layers=options.layers, heads=max(options.hidden_size // 64, 1))
    model = build_model(tokenizer, size)
    config = GenerationConfig(
        max_new_tokens=options.message,
        min_new_tokens=options.message,
        do_sample=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        disable_compile=True,
    )
    problem = " ".join(words[place % len(words)] for place in range(options.problem))
    tasks = [{"problem": f"{number} {problem}"} for number in range(options.tasks)]
    table = []
    for count, fanout in LAYOUTS.items():
        roles = ROLES[-count:]
        sides = {"replayed": fanout, "whole episodes": (BUDGET,)}
        with torch.inference_mode():
            played = take_turns(
                {
                    name: lambda split=split, roles=roles: play(
                        Engine(chain(roles), Chat(tokenizer), PrefixSampler(model, config)), tasks, split
                    )
                    for name, split in sides.items()
                },
                options.repeats,
            )
        whole, seconds = played["whole episodes"][0][0], [taken for _, taken in played["whole episodes"]]
        for name, runs in played.items():
            cost, taken = runs[0][0], [time for _, time in runs]
            scores = cost.scoring_events
            assert scores == BUDGET * options.tasks
            table.append(
                {
                    "roles": count,
                    "episodes": name,
                    "alternatives": " x ".join(map(str, sides[name])),
                    "messages a score": sum(cost.decisions.values()) / scores,
                    "generated tokens a score": cost.completion_tokens / scores,
                    "all tokens a score": cost.tokens / scores,
                    "ms a score": 1000 * median(taken) / scores,
                    "generated, ratio": cost.completion_tokens / whole.completion_tokens,
                    "all, ratio": cost.tokens / whole.tokens,
                    "seconds, ratio": median(own / other for own, other in zip(taken, seconds, strict=True)),
                }
            )
    return table


def main(arguments_given: list[str] | None = None) -> None:
    parser = arguments(__doc__, message=64, problem=128, tasks=4, hidden_size=256, layers=4, repeats=5)
    report_of_one_thread(parser, arguments_given, "credit_cost", compare, TEXT)


if __name__ == "__main__":
    main()
