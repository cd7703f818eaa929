"""Whether credit, gradients and metrics are what they were at another commit: the same trainings there and here.

    git worktree add ../before c7be54d
    python benchmarks/parity.py --before ../before --output benchmarks/results

Each arm trains a micro policy for two updates with each checkout: every method, with the conversation in the context
and with only the current observation; for one method the settings of the loss, slices, and two processes; teams, and
adapters by role; and the trainers of the papers with their own settings. The earlier C3 is `equal_steps=False`.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

SETTINGS: Mapping[str, Any] = {
    "instances_per_update": 8,
    "per_device_train_batch_size": 8,
    "max_steps": 2,
    "max_completion_length": 12,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "beta": 0.0,
    "learning_rate": 1e-3,
    "critic_learning_rate": 1e-3,
    "warmup_steps": 0,
    "max_grad_norm": 1e9,
    "gradient_checkpointing": False,
    "bf16": False,
    "use_cpu": True,
    "report_to": "none",
    "save_strategy": "no",
    "logging_steps": 1,
    "log_episodes": 0,
    "disable_tqdm": True,
}
METRICS = ("loss", "reward", "entropy", "kl", "policy_loss", "clip_ratio/region_mean", "clip_ratio/high_max",
           "clip_ratio/low_min", "tokens/generated", "budget/tokens", "advantages/mean", "advantages/std")  # fmt: skip


class Arm(NamedTuple):
    """One training.

    Attributes:
        world: `"current"` and `"append"` are Sudoku by history, `"one turn"` the same without further calls, in which
            processes would draw apart; `"relay"` and `"hinted"` are teams of two;
            `"evidence"` is the world of CVT-RL.
        method, options: as for `hf_credit.methods.make`; options that a checkout does not have yet are left out. With
            the name of a trainer in place of a method, the options are settings of its config.
        settings: in place of `SETTINGS`.
        processes: that train together.
    """

    world: str
    method: str
    options: Mapping[str, Any] = {}
    settings: Mapping[str, Any] = {}
    processes: int = 1


GROUPS = ("alive_baseline", "all_turns_baseline", "gigpo", "grpo", "magrpo", "mappo", "ppo", "rloo")
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "carl": {"initial": 2, "forks": 2},
    "mt_grpo": {"group_size": 2, "turn_scores": "verdict"},
    "outcome_reward": {},
    "reinforce_plus_plus": {"group_size": 2, "gamma": 0.9},
    "replay_loo": {"budget": 4, "alternatives": (2, 2), "equal_steps": False},
    "tree_grpo": {"trees": 2, "expansions": 1},
    "turn_credit": {"group_size": 2, "turn_scores": "verdict"},
    "verifiable_process": {},
    "vineppo": {"group_size": 2, "rollouts": 2},
    "mc_process_reward": {"rollouts": 2},
}
PAIRS = {name: {"group_size": 2} for name in GROUPS} | OTHERS
LOSSES: Mapping[str, Mapping[str, Any]] = {
    "slices": {"instances_per_update": None, "per_device_train_batch_size": 4, "steps_per_generation": 2,
               "gradient_accumulation_steps": 2, "rows_per_forward": 3},
    "a row a pass": {"rows_per_forward": 1, "share_prompts": False},
    "reused twice": {"num_iterations": 2, "max_steps": 4},
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.01, "num_iterations": 2},
    "clipped twice": {"delta": 1.3, "epsilon": 0.01, "num_iterations": 2},
    "divergence": {"beta": 0.2, "use_bias_correction_kl": True, "num_iterations": 2},
    "entropy": {"entropy_coef": 0.1},
    "entropy to a target": {"use_adaptive_entropy": True, "entropy_coef": 0.3, "entropy_target": 9.0},
    "trust region": {"trust_region": 0.01, "trust_region_top": 8, "trust_region_wide": 16, "num_iterations": 2},
    "episodes alike": {"aggregation": "sequence"},
}  # fmt: skip
CUT: Mapping[str, Any] = {"truncation": "metric", "truncation_options": {"metric": "completion"}, "window": 1}
ARMS: dict[str, Arm] = {
    **{
        f"{name}, {world}": Arm(world, name, options)
        for name, options in PAIRS.items()
        for world in ("current", "append")
    },
    **{f"rloo, {name}": Arm("append", "rloo", {"group_size": 2}, settings) for name, settings in LOSSES.items()},
    "gspo": Arm("append", "gspo", {"group_size": 2}, {"importance_sampling_level": "sequence", "num_iterations": 2}),
    "team, magrpo": Arm("relay", "magrpo", {"group_size": 4}),
    "team, mappo": Arm("relay", "mappo", {"group_size": 4}),
    "team, C3": Arm("relay", "replay_loo", {"equal_steps": False}),
    "team, C3 at visited contexts": Arm("relay", "replay_loo", {"reference_rollouts": 3, "alternatives": (2,),
                                                                "num_replays": 2}),
    "team, adapters by role": Arm("relay", "magrpo", {"group_size": 4}, {"role_adapters": ["reasoner", "actor"]}),
    "team, CCPO": Arm("hinted", "counterfactual_grpo", {"group_size": 4, "min_samples": 1}),
    "two processes": Arm("one turn", "rloo", {"group_size": 2},
                         {"per_device_train_batch_size": 4, "ddp_backend": "gloo", "max_steps": 1}, processes=2),
    "VerifiableProcessTrainer": Arm("current", "VerifiableProcessTrainer"),
    "ReplayLOOTrainer": Arm("relay", "ReplayLOOTrainer", {"equal_steps": False}),
    "TruncatedPPOTrainer, a hard cut": Arm("append", "TruncatedPPOTrainer", {**CUT, "lam": 0.9}),
    "TruncatedPPOTrainer, a mask": Arm("append", "TruncatedPPOTrainer",
                                       {**CUT, "algorithm": "grpo", "group_size": 2, "cut": "mask"}),
    "CounterfactualGRPOTrainer": Arm("hinted", "CounterfactualGRPOTrainer", {"group_size": 4, "min_samples": 1}),
    "ConstrainedCounterfactualTrainer": Arm(
        "evidence", "ConstrainedCounterfactualTrainer", {"group_size": 3, "steps": 2.0, "branches": 1},
        {"instances_per_update": 2, "per_device_train_batch_size": 2, "rows_per_forward": 32,
         "max_context_tokens": 512, "max_completion_length": 10, "trust_region_top": 32, "trust_region_wide": 32}),
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the other commit")
    parser.add_argument("--output", type=Path, help="where parity.md is written; printed if left out")
    parser.add_argument("--arms", nargs="+", default=list(ARMS), choices=ARMS, metavar="ARM")
    parser.add_argument("--train", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.train:
        results = {arm: train(ARMS[arm], options.train) for arm in options.arms}
        if os.environ.get("RANK", "0") == "0":
            print("RESULT" + json.dumps(results))
        return
    here = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory() as folder:
        make_policies(Path(folder))
        before = run(options.before.resolve(), Path(folder), options.arms)
        after = run(here, Path(folder), options.arms)
    result = table(before, after, commit(options.before), options.arms)
    if options.output:
        (options.output / "parity.md").write_text(result, encoding="utf-8")
    print(result)


def commit(checkout: Path) -> str:
    done = subprocess.run(["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip()


def run(checkout: Path, policies: Path, arms: Sequence[str]) -> dict[str, Any]:
    """The arms, trained with a checkout in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": "1"}
    found: dict[str, Any] = {}
    for processes in sorted({ARMS[arm].processes for arm in arms}):
        together = [arm for arm in arms if ARMS[arm].processes == processes]
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        words = [sys.executable, *(launcher if processes > 1 else []), __file__, "--before", "."]
        words += ["--train", str(policies), "--arms", *together]
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the trainings of {checkout} failed:\n{done.stderr[-4000:]}")
        results = [line.removeprefix("RESULT") for line in done.stdout.splitlines() if line.startswith("RESULT")]
        found |= json.loads(results[0])
    return found


def worlds() -> dict[str, Callable[[], Any]]:
    from hf_credit import make
    from hf_credit.collaborations.hinted_relay import hinted_relay
    from hf_credit.collaborations.relay import relay
    from hf_credit.rollouts import EnvironmentInteraction

    class Uneven(EnvironmentInteraction):
        """4x4 Sudoku in which any two grids differ in worth, so that no credit is 0 by chance."""

        def outcome(self, state: Any) -> float:
            return sum(place * ord(cell) for place, cell in enumerate(state.world.cells, state.turns)) % 5 / 4

    def sudoku(history: str, turns: int = 3) -> Any:
        return Uneven(make("sudoku", size=4, blanks=4), history, instructions=False, max_turns=turns)

    def uneven(team: Any) -> Any:
        team.scorer = lambda task, text: sum(map(ord, text)) % 5 / 4
        return team

    return {
        "current": lambda: sudoku("current"),
        "append": lambda: sudoku("append"),
        "one turn": lambda: sudoku("append", 1),
        "relay": lambda: uneven(relay()),
        "hinted": lambda: uneven(hinted_relay()),
        "evidence": lambda: EnvironmentInteraction(make("evidence"), "current", instructions=False),
    }


def make_policies(folder: Path) -> None:
    """The policies that both sides start from, which play rightly now and then."""
    from hf_credit.oracles import default_oracle
    from hf_credit.policies.micro import MicroConfig
    from hf_credit.rollouts import RolloutRequest
    from hf_credit.rollouts.scripts import OraclePlayer
    from hf_credit.trainers.micro import init_scripted_policy

    starts = [RolloutRequest[Any](task={"seed": seed}, seed=seed) for seed in range(96)]
    config = MicroConfig(hidden_size=32, layers=2, heads=2, episodes=96, epochs=10, batch_rows=16, learning_rate=8e-3)
    for name in ("append", "evidence"):
        interaction = worlds()[name]()
        player = interaction.scripted_player(0.8) if name == "evidence" else None
        if player is not None:
            init_scripted_policy(interaction, player, starts, folder / name, config)
        else:
            oracle = default_oracle(interaction.environment)
            assert oracle is not None
            player = OraclePlayer(interaction.environment, oracle, config.quality)
            init_scripted_policy(interaction, player, starts, folder / name, config)


def train(arm: Arm, policies: Path) -> dict[str, Any]:
    """Credits, gradients and metrics of one arm."""
    import torch
    from peft import LoraConfig
    from transformers import PrinterCallback, TrainerCallback

    import hf_credit
    from hf_credit import methods

    class Keep(TrainerCallback):
        def __init__(self) -> None:
            self.gradients: list[list[float]] = []

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            torch.manual_seed(10 * state.global_step + args.process_index)  # whatever the updates before drew

        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
            parts = [one.grad.flatten() for one in model.parameters() if one.grad is not None]
            self.gradients.append(torch.cat(parts).double()[::7].tolist())

    keep, credits = Keep(), []
    with tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(1)
        interaction = worlds()[arm.world]()
        kind = arm.method.removesuffix("Trainer") if arm.method.endswith("Trainer") else "Credit"
        settings = {**SETTINGS, **arm.settings, "output_dir": folder}
        own: dict[str, Any] = {}
        if kind == "Credit":
            known = inspect.signature(methods.find(arm.method)).parameters
            options = {name: value for name, value in arm.options.items() if name in known}
            own = {"method": methods.make(arm.method, **options)}
        else:
            config = getattr(hf_credit, f"{kind}Config")
            settings |= {name: value for name, value in arm.options.items() if hasattr(config, name)}
        lora = {"peft_config": LoraConfig(r=4, target_modules="all-linear")}
        trainer = getattr(hf_credit, f"{kind}Trainer")(
            str(policies / ("evidence" if arm.world == "evidence" else "append")),
            interaction,
            getattr(hf_credit, f"{kind}Config")(**settings),
            interaction.tasks("train", 16),
            callbacks=[keep],
            **own,
            **(lora if "role_adapters" in arm.settings or kind == "CounterfactualGRPO" else {}),
        )
        trainer.remove_callback(PrinterCallback)
        credit = trainer.credit

        def remember(collected: Any) -> Any:
            given = credit(collected)
            credits.append(given if isinstance(given, list) else laid_out(collected, given))
            return given

        trainer.credit = remember  # type: ignore[method-assign]
        trainer.train()
    entries = [entry for entry in trainer.state.log_history if "loss" in entry]
    metrics = [[entry.get(name) for name in METRICS] for entry in entries]
    return {"credits": credits, "gradients": keep.gradients, "metrics": metrics}


def laid_out(collected: Any, credit: Any) -> list[Any]:
    from hf_credit.rollouts import by_episode

    return by_episode(collected.episodes, credit)


def table(before: dict[str, Any], after: dict[str, Any], against: str, arms: Sequence[str]) -> str:
    """The largest differences of each arm, as Markdown."""
    lines = [
        "| arm | credits | mean size | largest difference of credit | of gradient, over its largest entry "
        "| of metrics |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for arm in arms:
        one, other = before[arm], after[arm]
        first, second = flat(one["credits"]), flat(other["credits"])
        if [value is None for value in first] != [value is None for value in second]:
            lines.append(f"| {arm} | credited decisions differ | | | | |")
            continue
        known = [(a, b) for a, b in zip(first, second, strict=True) if a is not None]
        gradients = list(zip(flat(one["gradients"]), flat(other["gradients"]), strict=True))
        scale = max(abs(a) for a, _ in gradients) or 1.0
        metrics = [
            (a, b) for a, b in zip(flat(one["metrics"]), flat(other["metrics"]), strict=True) if None not in (a, b)
        ]
        told = [largest(known), largest(gradients) / scale, largest(metrics)]
        size = sum(abs(a) for a, _ in known) / max(len(known), 1)
        cells = " | ".join(f"{value:.1e}" for value in told)
        lines.append(f"| {arm} | {len(known)} | {size:.3f} | {cells} |")
    return (
        "# The same credit and gradients as before\n\n"
        f"Against commit {against}; two updates of each arm on one processor thread. An update without "
        "a signal reads one row, so its entropy is that row's.\n\n"
        "    python benchmarks/parity.py --before ../before --output benchmarks/results\n\n" + "\n".join(lines) + "\n"
    )


def flat(values: Any) -> list[Any]:
    return [one for inner in values for one in flat(inner)] if isinstance(values, list | tuple) else [values]


def largest(pairs: Sequence[tuple[float, float]]) -> float:
    return max((abs(a - b) for a, b in pairs), default=0.0)


if __name__ == "__main__":
    main()
