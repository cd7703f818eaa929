"""`hf-credit train`: trains a policy from a recipe."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from hf_credit.cli.options import RecipeArgument, RecipeOption, recipe_words
from hf_credit.cli.progress import Progress, be_quiet


def train(
    context: typer.Context,
    config: RecipeArgument = None,
    named: RecipeOption = None,
    helped: Annotated[
        bool,
        typer.Option("--help", help="Show this message and every field with its default, for CONFIG or --method."),
    ] = False,
) -> None:
    """Trains a policy from a recipe. `--field value` after CONFIG overrides any field of the recipe.

    The fields are those of the method's config (VerifiableProcessConfig, ReplayLOOConfig, TruncatedPPOConfig,
    CounterfactualGRPOConfig, ConstrainedCounterfactualConfig, or CreditConfig for any other method, with all of TRL's
    GRPOConfig; AsyncCreditConfig with training: asynchronous), of TRL's ModelConfig (dtype, LoRA, quantization ...),
    and: method, method_options, training, task, task_options, history, instructions, max_turns, oracle,
    oracle_options, role_models, dataset_name, training_tasks, held_out_tasks, problem_sets, evaluation_problem_sets,
    on_overlap, on_missing. Name your own method, task, oracle or scorer as module:object; the module may be in the
    current folder. The task agent runs a program that calls a model, which its option agent names.

    \b
    Examples:
      hf-credit train sudoku_micro
      hf-credit train relay_micro --help    # every field, with its default and the recipe's value
      hf-credit train sudoku_micro --max_steps 50 --learning_rate 5e-4
      hf-credit train recipe.yaml --method outcome_reward --output_dir runs/outcome
      hf-credit train recipe.yaml --task_options '{"size": 6}' --use_peft --lora_r 32
      hf-credit train relay_micro --alternatives 4 2
      hf-credit train recipe.yaml --task agent --task_options '{"agent": "my_agent:sql_agent"}' --method vineppo
      hf-credit train recipe.yaml --resume_from_checkpoint true
    """
    if helped and not named and (config is None or config.startswith("-")):
        arguments = [*([config] if config else []), *context.args]
    else:
        arguments = recipe_words(config, named, context.args)
    be_quiet()
    if helped:
        from hf_credit.trainers.recipes import describe_fields

        typer.echo(f"{context.get_help()}\n\n{describe_fields(arguments)}")
        return
    from hf_credit.cli.training_progress import ShowProgress
    from hf_credit.evaluation.credited import EPISODES_FILE
    from hf_credit.trainers.recipes import read_job
    from hf_credit.trainers.training import evaluation_of, run_job

    job = read_job(arguments)
    with Progress() as progress:
        run_job(job, [] if job.args.disable_tqdm else [ShowProgress(progress)])
    if job.args.process_index == 0:
        folder = job.args.output_dir
        kept = {EPISODES_FILE: "the credit of replies", "completions": "the tables of completions"}
        found = [f"{name} has {what}" for name, what in kept.items() if Path(folder, name).exists()]
        wrote = "; ".join([f"Wrote {folder}", *found])
        typer.echo(f"{wrote}. Try: {evaluation_of(job, folder)}; {shlex.join(['hf-credit', 'report', folder])}")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        # Everything is saved and the process group is closed, but its C++ threads may abort the interpreter at exit.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
