"""CVT-RL: what drawing steps and estimating their contributions take of an update, beside playing and learning.

A micro policy plays `evidence`, with counterfactuals and the projection, as in its recipe. Every moment of an update
belongs to one column:

- generation: every reply, those of counterfactual episodes included;
- passes: what critics, outcome model, belief head and both policies are asked, and what the critics learn;
- learning: the policy's loss with the projection, backward and optimizer;
- selection: the probabilities of steps, the draw, and the selector that learns which steps matter;
- estimator: from outcomes, readings and ratios to contributions, without the passes that it asks for;
- rest: the world, auditor, interventions, layout, metrics.

Seconds are those of the process on a processor, with one thread.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import torch
from common import arguments, one_thread, report, timed_updates

from hf_credit import ConstrainedCounterfactualConfig, ConstrainedCounterfactualTrainer, make
from hf_credit.credit import StepSelector
from hf_credit.environments.tasks import task_seed
from hf_credit.methods.cvt import audited_steps
from hf_credit.methods.cvt.contributions import StepContributions
from hf_credit.policies.micro import MicroConfig
from hf_credit.rollouts import EnvironmentInteraction, RolloutRequest
from hf_credit.trainers.micro import init_scripted_policy

LABELS = ("generation", "passes", "learning", "selection", "estimator", "rest")


def trained(folder: Path, episodes: int, updates: int) -> Any:
    """A trainer of the micro world at a policy that was shown scripted play."""
    interaction = EnvironmentInteraction(make("evidence"), history="current", instructions=False)
    config = MicroConfig(quality=0.5, episodes=episodes)
    starts = [
        RolloutRequest[Any](task=row, seed=task_seed("train", place))
        for place, row in enumerate(interaction.tasks("train", config.episodes))
    ]
    init_scripted_policy(interaction, interaction.scripted_player(config.quality), starts, folder, config)
    args = ConstrainedCounterfactualConfig(
        output_dir=str(folder / "run"),
        group_size=4,
        steps=2.0,
        branches=2,
        refresh_every=20,
        trust_region_top=32,
        trust_region_wide=32,
        instances_per_update=8,
        per_device_train_batch_size=8,
        rows_per_forward=64,
        learning_rate=1e-3,
        critic_learning_rate=1e-3,
        lr_scheduler_type="constant",
        warmup_steps=0,
        weight_decay=0.0,
        max_completion_length=12,
        max_context_tokens=512,
        max_steps=2 * (updates + 1),
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
    )
    return ConstrainedCounterfactualTrainer(str(folder), interaction, args, interaction.tasks("train", 512, 10**6))


def measure(trainer: Any) -> list[dict[str, float]]:
    """The seconds of each update of a run, by label."""
    shared = (
        (audited_steps, "inclusion_probabilities", "selection"),
        (audited_steps, "systematic_sample", "selection"),
        (StepSelector, "scores", "selection"),
        (StepSelector, "updated", "selection"),
        (StepContributions, "steps", "estimator"),
        (StepContributions, "__call__", "estimator"),
    )
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in shared]
    labelled = (
        (trainer.ranks, "generate", "generation"),
        (trainer.context, "values", "passes"),
        (trainer.context, "logprobs", "passes"),
        (trainer, "_compute_loss", "learning"),
        (trainer.accelerator, "backward", "learning"),
        (trainer.accelerator, "clip_grad_norm_", "learning"),
        *shared,
        *((critic, "learn", "passes") for critic in trainer.critics.values()),
    )
    try:
        return timed_updates(trainer, labelled, optimizer="learning", steps=trainer.args.num_iterations)
    finally:
        for owner, name, call in before:
            setattr(owner, name, call)


def line(updates: list[dict[str, float]]) -> dict[str, str]:
    """Medians over updates: seconds of one, and the share of each label."""
    totals = [sum(update.values()) for update in updates]
    shares = {
        label: median(update[label] / total for update, total in zip(updates, totals, strict=True)) for label in LABELS
    }
    return {"update, s": f"{median(totals):.2f}"} | {label: f"{share:.2%}" for label, share in shares.items()}


def main(arguments_given: list[str] | None = None) -> None:
    options = arguments(__doc__, episodes=3000, updates=5).parse_args(arguments_given)
    with one_thread(), tempfile.TemporaryDirectory() as folder:
        torch.manual_seed(0)
        row = line(measure(trained(Path(folder), options.episodes, options.updates)))
    text = (
        "An update of CVT-RL on `evidence`, 32 episodes and their counterfactuals; medians over updates, CPU seconds "
        "of one thread. The aim: selection and estimator together under 1 %."
    )
    report(options, "constrained_step", text, [row])


if __name__ == "__main__":
    main()
