"""The real pipelines of mathematics and code, once each, with a small random model: does the accounting hold?

    python evaluation/c3/pipelines.py --data FOLDER

FOLDER holds math_train.json, math500.jsonl and mbpp.jsonl. A random model scores about 0. What is looked at is
the way from rows to credit: how often the scorer was really called and what the ledger says, replies by role,
failures, and what the scorer says of the reference answers of the same rows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from running import ON_A_PROCESSOR, prepare_process

BUDGET = 8


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """A domain with its sets of problems.

    Attributes:
        domain: `"math"` or `"code"`.
        train, held_out: problem sets, with `{data}` for the folder.
        scorer: as a recipe names it.
    """

    domain: Any
    train: str
    held_out: str
    scorer: str


PIPELINES = (
    Pipeline(
        domain="math",
        train="math/train={data}/math_train.json",
        held_out="math500/test={data}/math500.jsonl",
        scorer="hf_credit.verifiers.math:score_task",
    ),
    Pipeline(
        domain="code",
        train="mbpp/train={data}/mbpp.jsonl",
        held_out="mbpp/test={data}/mbpp.jsonl",
        scorer="hf_credit.verifiers.code:score",
    ),
)


class Counted:
    """A scorer that knows how often it was called."""

    def __init__(self, name: str) -> None:
        from hf_credit.collaborations.scorers import resolve_scorer

        self.scorer = resolve_scorer(name)
        self.calls = 0

    def __call__(self, task: Mapping[str, Any], text: str) -> float:
        self.calls += 1
        return self.scorer(task, text)


def run(pipeline: Pipeline, data: Path, work: Path, updates: int = 2, instances: int = 4, tokens: int = 48) -> Any:
    """Trains a random model on some rows, evaluates it on others, and returns what was counted on the way.

    Args:
        pipeline: which.
        data: the folder with the files.
        work: gets the model and the run.
        updates, instances: of the training.
        tokens: of a reply at most.
    """
    from transformers import PrinterCallback

    from hf_credit import ReplayLOOConfig, ReplayLOOTrainer
    from hf_credit.collaborations.think_solve import PROMPTS, reasoner_actor
    from hf_credit.data import drop_overlap, load_problems
    from hf_credit.policies.micro import MicroConfig, build_model, tokenizer_of

    train = load_problems(pipeline.train.format(data=data), on_missing="drop")
    held_out = load_problems(pipeline.held_out.format(data=data))
    kept, overlap = drop_overlap(train.rows, {held_out.name: held_out.rows})
    rows = kept.select(range(updates * instances))
    tests = held_out.rows.select(range(instances))
    words = "".join(map(chr, range(32, 127)))
    tokenizer = tokenizer_of([*PROMPTS[pipeline.domain].values(), *rows["problem"], *tests["problem"], words])
    config = MicroConfig(hidden_size=32, heads=2)
    build_model(tokenizer, config).save_pretrained(work / "model")
    tokenizer.save_pretrained(work / "model")

    scorer = Counted(pipeline.scorer)
    args = ReplayLOOConfig(
        output_dir=str(work / "run"),
        budget=BUDGET,
        equal_steps=False,
        instances_per_update=instances,
        per_device_train_batch_size=instances,
        max_steps=updates,
        max_completion_length=tokens,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        learning_rate=1e-4,
        **ON_A_PROCESSOR,
    )
    interaction = reasoner_actor(pipeline.domain, scorer)
    trainer = ReplayLOOTrainer(str(work / "model"), interaction, args, rows, eval_dataset=tests)
    trainer.remove_callback(PrinterCallback)
    scorer.calls = 0  # without those of the dry run of the trainer's construction
    trainer.train()
    calls, ledger = scorer.calls, trainer.ledger
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    evaluated = trainer.evaluate()
    return {
        "domain": pipeline.domain,
        "trained_on": train.description(),
        "evaluated_on": held_out.description(),
        "overlap_dropped": sum(overlap.values()),
        "updates": updates,
        "instances": instances,
        "scores_expected": updates * instances * BUDGET,
        "scores_in_ledger": ledger.scoring_events,
        "scorer_calls": calls,
        "decisions": dict(ledger.decisions),
        "tokens": ledger.tokens,
        "generated": ledger.completion_tokens,
        "errors": sum(entry["endings/error"] for entry in log) / len(log),
        "reward": sum(entry["reward"] for entry in log) / len(log),
        "held_out_reward": evaluated["eval_reward"],
        "scorer_calls_in_evaluation": scorer.calls - calls,
        "reference_score": _of_references(pipeline, data, [dict(row) for row in rows], scorer),
    }


def _of_references(pipeline: Pipeline, data: Path, rows: Sequence[Mapping[str, Any]], scorer: Counted) -> float:
    """The mean score of the reference answers of the rows."""
    if pipeline.domain == "math":
        answers = [f"So it is \\boxed{{{row['answer']}}}." for row in rows]
    else:
        with (data / "mbpp.jsonl").open(encoding="utf-8") as lines:
            code = {str(task["task_id"]): task["code"] for task in map(json.loads, lines)}
        answers = [code[row["source_id"]] for row in rows]
    return sum(scorer(row, answer) for row, answer in zip(rows, answers, strict=True)) / len(rows)


def write(found: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Writes `pipelines.json` and `pipelines.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pipelines.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    rows = {
        "trained on": lambda one: f"{one['updates'] * one['instances']} rows of {one['trained_on']['name']}",
        "rows dropped before, for being in the held-out set": lambda one: one["overlap_dropped"],
        "scores: expected": lambda one: one["scores_expected"],
        "scores: in the ledger": lambda one: one["scores_in_ledger"],
        "calls of the scorer": lambda one: one["scorer_calls"],
        "replies by role": lambda one: ", ".join(f"{role} {n}" for role, n in sorted(one["decisions"].items())),
        "tokens, given and generated": lambda one: f"{one['tokens']:,}",
        "generated tokens": lambda one: f"{one['generated']:,}",
        "episodes that ended in an error": lambda one: f"{one['errors']:.3f}",
        "mean score in training": lambda one: f"{one['reward']:.3f}",
        "mean score on held-out rows": lambda one: f"{one['held_out_reward']:.3f}",
        "calls of the scorer in evaluation": lambda one: one["scorer_calls_in_evaluation"],
        "mean score of the reference answers": lambda one: f"{one['reference_score']:.3f}",
    }
    lines = [
        "# The real pipelines with a random model",
        "",
        "Written by `evaluation/c3/pipelines.py`; do not edit. One run each, seed 42, one thread of a processor.",
        "",
        "| | " + " | ".join(one["domain"] for one in found) + " |",
        "| --- |" + " --- |" * len(found),
        *(f"| {label} | " + " | ".join(_name(get(one)) for one in found) + " |" for label, get in rows.items()),
    ]
    (folder / "pipelines.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _name(value: Any) -> str:
    """The value without the folder that the files happened to lie in."""
    text = str(value)
    return text.partition("=")[0] if "=" in text else text


def main(arguments: Sequence[str] | None = None) -> None:
    results = Path(__file__).resolve().parent / "results"
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="holds math_train.json, math500.jsonl and mbpp.jsonl")
    parser.add_argument("--results", type=Path, default=results, help="the table goes there")
    options = parser.parse_args(arguments)
    prepare_process()
    found = []
    for pipeline in PIPELINES:
        with tempfile.TemporaryDirectory() as work:
            found.append(run(pipeline, options.data, Path(work)))
    for one in found:
        for side in ("trained_on", "evaluated_on"):
            one[side] = {**one[side], "name": _name(one[side]["name"]), "origin": Path(one[side]["origin"]).name}
    write(found, options.results)


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    main()
