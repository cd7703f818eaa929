"""Whether credit and gradients are what they were at another commit: the same trainings there and here, compared.

    git worktree add ../before 906c1eb
    python benchmarks/parity.py --before ../before --output benchmarks/results

Each arm trains a micro policy for two updates with each checkout. What is compared is the credit of every decision,
the gradient of every update and the metrics. Arms whose credit was meant to change are not among them.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ARMS = ("c3", "c3 contexts", "c3 normalised", "c3 value-assisted", "magrpo", "mappo", "vpr", "outcome", "mc-pr")
COMMON = {
    "per_device_train_batch_size": 8,
    "max_steps": 2,
    "max_completion_length": 4,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "beta": 0.0,
    "learning_rate": 1e-3,
    "warmup_steps": 0,
    "max_grad_norm": 1e9,
    "gradient_checkpointing": False,
    "bf16": False,
    "use_cpu": True,
    "report_to": "none",
    "save_strategy": "no",
    "logging_steps": 1,
    "disable_tqdm": True,
}
BLANKS = {"vpr": 4, "outcome": 1, "mc-pr": 4}  # the outcome alone needs games that can be won
MEASURED = ("loss", "reward", "tokens/generated", "budget/tokens", "budget/scoring_events")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the other commit")
    parser.add_argument("--output", type=Path, help="where parity.md is written; printed if left out")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--policies", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.side:
        print("RESULT" + json.dumps({arm: train(arm, options.side, options.policies) for arm in options.arms}))
        return
    here = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as folder:
        make_policies(Path(folder))
        before = run(options.before.resolve(), "before", Path(folder), options.arms)
        after = run(here, "after", Path(folder), options.arms)
    told = table(before, after, commit(options.before), options.arms)
    if options.output:
        (options.output / "parity.md").write_text(told, encoding="utf-8")
    print(told)


def commit(checkout: Path) -> str:
    done = subprocess.run(["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip()


def run(checkout: Path, side: str, policies: Path, arms: Sequence[str]) -> dict[str, Any]:
    """The arms, trained with a checkout in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, __file__, "--before", ".", "--side", side, "--policies", str(policies), "--arms", *arms]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT"):
            result: dict[str, Any] = json.loads(line.removeprefix("RESULT"))
            return result
    raise RuntimeError(f"the trainings of {checkout} failed:\n{done.stderr[-4000:]}")


def make_policies(folder: Path) -> None:
    """A policy for the relay and one for Sudoku, which both sides start from."""
    from hf_credit import make
    from hf_credit.collaborations.relay import relay, relay_player, relay_tasks
    from hf_credit.oracles import default_oracle
    from hf_credit.policies.micro import MicroConfig, init_collaboration_policy, init_policy
    from hf_credit.rollouts import EnvironmentInteraction, Start

    config = MicroConfig(hidden_size=32, layers=2, heads=2, episodes=96, epochs=6, batch_rows=16, learning_rate=8e-3)
    starts = [Start[Any](task=row, seed=place) for place, row in enumerate(relay_tasks(rows=96))]
    init_collaboration_policy(relay(), lambda quality: relay_player(quality), starts, folder / "relay", config)
    environment = make("sudoku", size=4, blanks=4)
    interaction = EnvironmentInteraction(environment, history="current", instructions=False)
    tasks = [Start[Any](task={"seed": seed}, seed=seed) for seed in range(96)]
    oracle = default_oracle(environment)
    assert oracle is not None
    init_policy(interaction, oracle, tasks, folder / "sudoku", dataclasses.replace(config, epochs=20))


def train(arm: str, side: str, policies: Path) -> dict[str, Any]:
    """Credits, gradients and metrics of one arm."""
    import torch
    from transformers import PrinterCallback, TrainerCallback

    class Keep(TrainerCallback):
        def __init__(self) -> None:
            self.gradients: list[list[float]] = []

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            parts = [one.grad.flatten() for one in model.parameters() if one.grad is not None]
            self.gradients.append(torch.cat(parts).double()[::7].tolist())

    if side == "after":
        from hf_credit.rollouts import by_episode

    keep, credits = Keep(), []
    with tempfile.TemporaryDirectory() as folder:
        build = build_before if side == "before" else build_after
        trainer = build(arm, policies, {**COMMON, "output_dir": folder})
        trainer.add_callback(keep)
        trainer.remove_callback(PrinterCallback)
        credit = trainer.credit

        def remember(collected: Any) -> Any:
            given = credit(collected)
            credits.append(given if side == "before" else by_episode(collected.episodes, given))
            return given

        trainer.credit = remember
        trainer.train()
    entries = [entry for entry in trainer.state.log_history if "loss" in entry]
    metrics = [[entry.get(name) for name in MEASURED] for entry in entries]
    return {"credits": credits, "gradients": keep.gradients, "metrics": metrics}


def build_before(arm: str, policies: Path, settings: dict[str, Any]) -> Any:
    """A trainer of commit 906c1eb."""
    from hf_credit import ReplayLOOConfig, ReplayLOOTrainer, VerifiableProcessConfig, VerifiableProcessTrainer, make
    from hf_credit.collaborations.relay import relay, relay_tasks

    if arm in ("vpr", "outcome", "mc-pr"):
        reward = {"vpr": "oracle", "outcome": "outcome", "mc-pr": "rollout_value"}[arm]
        shown = {
            "history": "current",
            "instructions": False,
            "trajectories_per_update": 16,
            "max_completion_length": 12,
        }
        args = VerifiableProcessConfig(**{**settings, **shown, "process_reward": reward, "value_rollouts": 3})
        return VerifiableProcessTrainer(str(policies / "sudoku"), make("sudoku", size=4, blanks=BLANKS[arm]), args)
    chosen = {
        "c3": {},
        "c3 contexts": {"reference_rollouts": 3, "contexts": 2, "alternatives": [2], "replays": 2},
        "c3 normalised": {"normalise_credit": True},
        "c3 value-assisted": {"value_assistance": 0.5, "critic_learning_rate": 1e-3},
        "magrpo": {"estimator": "group"},
        "mappo": {"estimator": "critic", "critic_learning_rate": 1e-3},
    }[arm]
    args = ReplayLOOConfig(**{**settings, "trajectories_per_update": 8, "max_context_tokens": None, **chosen})
    return ReplayLOOTrainer(str(policies / "relay"), scored_unevenly(relay()), args, relay_tasks(rows=64))


def build_after(arm: str, policies: Path, settings: dict[str, Any]) -> Any:
    """The same trainer of this checkout."""
    from hf_credit import (
        CreditConfig,
        CreditTrainer,
        ReplayLOOConfig,
        ReplayLOOTrainer,
        VerifiableProcessConfig,
        VerifiableProcessTrainer,
        make,
        methods,
    )
    from hf_credit.collaborations.relay import relay, relay_tasks
    from hf_credit.rollouts import EnvironmentInteraction

    settings = {**settings, "instances_per_update": 8}
    if arm in ("vpr", "outcome", "mc-pr"):
        shown = {"history": "current", "instructions": False, "max_completion_length": 12}
        shown["instances_per_update"] = 16
        environment = make("sudoku", size=4, blanks=BLANKS[arm])
        args = VerifiableProcessConfig(**{**settings, **shown})
        if arm == "vpr":
            return VerifiableProcessTrainer(str(policies / "sudoku"), environment, args)
        method = methods.make("outcome_reward") if arm == "outcome" else methods.make("mc_process_reward", rollouts=3)
        interaction = EnvironmentInteraction(environment, "current", False)
        rows = interaction.tasks("train", args.generation_batch_size * args.max_steps)
        return CreditTrainer(str(policies / "sudoku"), interaction, args, rows, method=method)
    rows = relay_tasks(rows=64)
    if arm.startswith("c3"):
        chosen = {
            "c3": {},
            "c3 contexts": {"reference_rollouts": 3, "contexts": 2, "alternatives": [2], "num_replays": 2},
            "c3 normalised": {"normalise_credit": True},
            "c3 value-assisted": {"value_assistance": 0.5, "critic_learning_rate": 1e-3},
        }[arm]
        args = ReplayLOOConfig(**{**settings, "max_context_tokens": None, **chosen})
        return ReplayLOOTrainer(str(policies / "relay"), scored_unevenly(relay()), args, rows)
    # The settings of paper C3 that its config has by default, and a critic's.
    papers = {"shuffle_dataset": False, "lr_scheduler_type": "cosine", "adam_beta2": 0.95, "num_train_epochs": 5}
    config = CreditConfig(**{**settings, **papers, "critic_learning_rate": 1e-3})
    return CreditTrainer(str(policies / "relay"), scored_unevenly(relay()), config, rows, method=arm)


def scored_unevenly(interaction: Any) -> Any:
    """Any text has a score of its own, so that no credit is 0 by chance."""
    interaction.scorer = lambda task, text: sum(map(ord, text)) % 5 / 4
    return interaction


def table(before: dict[str, Any], after: dict[str, Any], against: str, arms: Sequence[str]) -> str:
    """The largest differences of each arm, as Markdown."""
    lines = [
        "| arm | decisions with credit | mean size of credit | largest difference of credit "
        "| of gradient, over its largest entry | of metrics |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for arm in arms:
        one, other = before[arm], after[arm]
        first, second = flat(one["credits"]), flat(other["credits"])
        if [value is None for value in first] != [value is None for value in second]:
            lines.append(f"| {arm} | credited decisions differ ({len(first)} and {len(second)}) | | | | |")
            continue
        known = [(a, b) for a, b in zip(first, second, strict=True) if a is not None]
        gradients = list(zip(flat(one["gradients"]), flat(other["gradients"]), strict=True))
        scale = max(abs(a) for a, _ in gradients) or 1.0
        metrics = [(a, b) for a, b in zip(flat(one["metrics"]), flat(other["metrics"]), strict=True) if a is not None]
        told = [largest(known), largest(gradients) / scale, largest(metrics)]
        size = sum(abs(a) for a, _ in known) / max(len(known), 1)
        lines.append(f"| {arm} | {len(known)} | {size:.3f} | " + " | ".join(f"{value:.1e}" for value in told) + " |")
    return (
        "# The same credit and gradients as before\n\n"
        f"Against commit {against}; two updates of each arm on one processor thread.\n\n"
        "    python benchmarks/parity.py --before ../before --output benchmarks/results\n\n" + "\n".join(lines) + "\n"
    )


def flat(values: Any) -> list[Any]:
    return [one for inner in values for one in flat(inner)] if isinstance(values, list) else [values]


def largest(pairs: Sequence[tuple[float, float]]) -> float:
    return max((abs(a - b) for a, b in pairs), default=0.0)


if __name__ == "__main__":
    main()
