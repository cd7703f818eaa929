"""Step time: how much of a training step is neither generation nor forward nor backward nor optimizer.

The trainers play and train on the same 4x4 Sudokus. Every moment of a step, from the end of one to the end of the
next, belongs to one column:

- generation: the trainer's call of `generate`, with TRL's padding and unpadding around it;
- forward: the model's pass over the rows and TRL's loss; backward; optimizer: clipping and AdamW;
- rollouts: what collecting episodes takes besides generation: templates, tokens, the game, the oracle;
- credit: from episodes to advantages;
- rest: all else, be it this library's, TRL's or transformers': task rows, layout of the batch, metrics, callbacks.

The last three together are the trainer's own time. TRL's own trainer with `environment_factory` is the comparison. Its
rollouts are what its tool loop takes besides generation, and its rewards and advantages count as rest.

Seconds are those of the process on a processor, with one thread.
"""

from __future__ import annotations

import argparse
from statistics import median
from typing import Any

from common import arguments, policy_passes, report_of_one_thread, timed_updates
from players import credit_trainer, enlarged, game_rows, memorised_policy, trl_trainer

from hf_credit import make

TEXT = (
    "4x4 Sudoku, a training step of the whole trainer; medians over steps, CPU seconds of one thread. "
    "The aim is an own time under 5 %."
)
WORK = ("generation", "forward", "backward", "optimizer")
OWN = ("rollouts", "credit", "rest")


def step_times(trainer: Any) -> list[dict[str, float]]:
    """The seconds of each step of a run, by label."""
    rollouts = "collect" if hasattr(trainer, "collect") else "_generate"
    labelled = [
        (trainer, "_generate_single_turn", "generation"),
        *policy_passes(trainer),
        (trainer, rollouts, "rollouts"),
    ]
    if hasattr(trainer, "credit"):
        labelled += [
            (trainer, "credit", "credit"),
            (trainer.ranks, "generate", "generation"),  # TRL's call or the one that keeps keys and values
        ]
    return timed_updates(trainer, labelled)


def compare(options: argparse.Namespace) -> list[dict[str, Any]]:
    environment = make("sudoku", size=4, blanks=options.blanks)
    table = []
    for history in ("append", "current"):
        small, tokenizer = memorised_policy(environment, history, options.games, options.epochs)
        large = enlarged(small, options.hidden_size, options.layers)
        for model, plays in ((small, options.plays), (large, options.large_plays)):
            rows = game_rows(environment, options.games, plays)
            common = {
                "per_device_train_batch_size": options.rows_at_once,
                "max_steps": options.steps + 1,
                "logging_steps": 1,
            }
            trainers = {"hf-credit": credit_trainer(environment, (model, tokenizer), rows, history=history, **common)}
            if history == "append":  # TRL's loop knows no other
                common["gradient_accumulation_steps"] = len(rows) // options.rows_at_once
                trainers["TRL"] = trl_trainer(environment, (model, tokenizer), rows, plays, **common)
            for name, trainer in trainers.items():
                table.append(
                    {"parameters": f"{model.num_parameters() / 1e6:.1f}M", "history": history, "trainer": name}
                    | _line(step_times(trainer))
                )
    return table


def _line(steps: list[dict[str, float]]) -> dict[str, Any]:
    totals = [sum(step.values()) for step in steps]

    def share(*labels: str) -> str:
        shares = [
            sum(step.get(label, 0.0) for label in labels) / total for step, total in zip(steps, totals, strict=True)
        ]
        return f"{median(shares):.1%}"

    return {"step, s": median(totals)} | {label: share(label) for label in (*WORK, *OWN)} | {"own": share(*OWN)}


def main(arguments_given: list[str] | None = None) -> None:
    parser = arguments(
        __doc__,
        blanks=8,
        games=16,
        epochs=200,
        plays=4,
        large_plays=2,
        hidden_size=256,
        layers=4,
        rows_at_once=16,
        steps=5,
    )
    report_of_one_thread(parser, arguments_given, "step_time", compare, TEXT)


if __name__ == "__main__":
    main()
