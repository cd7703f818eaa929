"""The problem sets of recipes become the trainer's rows, with local files instead of the Hub."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, IterableDataset

from hf_credit.data import OverlapError, fingerprint, load_problems
from hf_credit.tasks.rows import without_evaluation
from hf_credit.trainers.recipes import read_job
from hf_credit.trainers.saving import task_spec
from hf_credit.trainers.training import build_trainer, load_rows
from hf_credit.verifiers.math import WORKER

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
MATHEMATICS = {
    "problem_sets": ["math/train=math_train.json", "cmath/dev=cmath_dev.json"],
    "evaluation_problem_sets": [
        "math500/test=math500.jsonl",
        "gsm8k/test=gsm8k_test.parquet",
        "cmath/test=cmath_test.json",
    ],
}
CODE = {
    "problem_sets": ["mbpp/train=mbpp.jsonl"],
    "evaluation_problem_sets": ["mbpp/test=mbpp.jsonl", "humaneval/test=humaneval.jsonl.gz"],
}


def local(recipe: str, sets: dict[str, list[str]], *others: str) -> list[str]:
    """The recipe with files in place of the Hub, as a user would name them."""
    if not DATA.is_dir():
        pytest.skip("the folder of real benchmark rows, shared/data next to the repository, is not there")
    words = ["--config", recipe, "--use_cpu", "true"]
    for name, values in sets.items():
        words += [f"--{name}", *(value.replace("=", f"={DATA}/") for value in values)]
    return [*words, *others]


def own(path: Path, *problems: str) -> str:
    path.write_text("".join(json.dumps({"problem": one, "answer": "2"}) + "\n" for one in problems))
    return f"own/{path.stem}={path}"


# The recipes


@pytest.fixture(scope="module")
def mathematics() -> tuple[Any, Any]:
    """The job of the recipe for mathematics, and its rows."""
    job = read_job(local("qwen3_4b_math", MATHEMATICS))
    return job, load_rows(job)


def test_the_recipe_for_mathematics_trains_on_no_evaluation_problem(mathematics: tuple[Any, Any]) -> None:
    _, rows = mathematics
    assert isinstance(rows.train, Dataset)
    facts = rows.facts["problems"]
    assert [(one["name"], one["rows"], one["dropped"]) for one in facts["train"]] == [
        ("math/train", 7496, 4),
        ("cmath/dev", 600, 0),
    ]
    assert [(one["name"], one["rows"]) for one in facts["evaluation"]] == [
        ("math500/test", 500),
        ("gsm8k/test", 1319),
        ("cmath/test", 1098),
    ]
    assert facts["overlap_dropped"] == {"cmath/test": 3}
    assert facts["rows"] == len(rows.train) == 7496 + 600 - 3
    assert facts["fingerprint"] == fingerprint(rows.train["uid_sha"])
    json.dumps(rows.facts)
    assert rows.held_out is None


def test_the_recipe_for_an_adapter_has_the_rows_of_the_recipe_for_mathematics(mathematics: tuple[Any, Any]) -> None:
    job, adapter = mathematics[0], read_job(local("qwen3_4b_math_lora", MATHEMATICS))
    assert (adapter.task, adapter.spec(), adapter.args.eval_strategy) == (job.task, job.spec(), job.args.eval_strategy)


def test_the_recipe_for_mathematics_scores_its_rows(mathematics: tuple[Any, Any]) -> None:
    job, rows = mathematics
    task: Any = job.spec().build()
    train = rows.train
    for row in train.select([0, 500, 7500, 8000]):
        assert task.scorer(row, rf"I think it is $\boxed{{{row['answer']}}}$.") == 1.0
        assert task.scorer(row, r"\boxed{-12345}") == 0.0
    WORKER.close()


def test_the_recipe_for_code_trains_on_no_evaluation_problem() -> None:
    rows = load_rows(read_job(local("qwen2_5_coder_3b_code", CODE)))
    assert rows.facts["problems"]["overlap_dropped"] == {"mbpp/test": 3}
    assert len(rows.train) == 374 - 3
    assert all("Implement this signature:\n\ndef " in row["problem"] and row["tests"] for row in rows.train)


def test_overlap_is_refused_unless_it_may_be_dropped() -> None:
    with pytest.raises(OverlapError, match=r"got 3 of its 374 rows \(3 in mbpp/test\)"):
        load_rows(read_job(local("qwen2_5_coder_3b_code", CODE, "--on_overlap", "refuse")))
    with pytest.raises(ValueError, match=r"must have a gold answer, got none in row 1634"):
        load_rows(read_job(local("qwen3_4b_math", MATHEMATICS, "--on_missing", "refuse")))


# Any recipe


@pytest.fixture
def reasoning(together: Callable[..., Path]) -> Callable[..., Path]:
    """`reasoning(problem_sets=[...])` writes a small recipe for a reasoner and an actor on mathematics."""

    def write(**changed: Any) -> Path:
        options = {"domain": "math", "scorer": "hf_credit.verifiers.math:score_task"}
        return together(task="reasoner_actor", task_options=options, **changed)

    return write


def test_problem_sets_become_the_trainers_rows(reasoning: Callable[..., Path], tmp_path: Path) -> None:
    train, test = own(tmp_path / "train.jsonl", *"12345"), own(tmp_path / "test.jsonl", "6", "7", " 2")
    path = reasoning(problem_sets=[train], evaluation_problem_sets=[test], on_overlap="drop")
    job = read_job(["--config", str(path), "--eval_strategy", "steps", "--held_out_tasks", "2"])
    trainer = build_trainer(job)
    assert list(trainer.train_dataset["problem"]) == list("1345")
    assert len(trainer.eval_dataset) == 2
    assert task_spec(trainer.evaluation_interaction, trainer.method, trainer.args).task == "reasoner_actor"
    assert load_rows(job).facts["problems"]["overlap_dropped"] == {"own/test": 1}


def test_a_dataset_is_kept_apart_from_the_evaluation_too(reasoning: Callable[..., Path], tmp_path: Path) -> None:
    own(tmp_path / "train.jsonl", "1 + 1", "2 + 2")
    test = own(tmp_path / "test.jsonl", "2  +2")
    path = reasoning(dataset_name=str(tmp_path / "train.jsonl"), evaluation_problem_sets=[test])
    with pytest.raises(OverlapError, match=r"got 1 of its 2 rows \(1 in own/test\), the first '2 \+ 2' in row 1"):
        load_rows(read_job(["--config", str(path)]))
    job = read_job(["--config", str(path), "--on_overlap", "drop"])
    assert list(load_rows(job).train["problem"]) == ["1 + 1"]


def test_rows_without_evaluation_sets_are_unchanged(together: Callable[..., Path]) -> None:
    rows = load_rows(read_job(["--config", str(together())]))
    assert rows.facts == {}
    assert len(rows.train) == 8


def test_what_does_not_fit_is_refused(reasoning: Callable[..., Path], tmp_path: Path) -> None:
    train, test = own(tmp_path / "train.jsonl", "1 + 1"), own(tmp_path / "test.jsonl", "2 + 2")
    path = str(reasoning(problem_sets=[train]))
    with pytest.raises(ValueError, match="draws its tasks from evaluation_problem_sets, got none; name a set"):
        load_rows(read_job(["--config", path, "--eval_strategy", "steps"]))
    with pytest.raises(ValueError, match="on_overlap must be one of refuse, drop, got 'ignore'"):
        load_rows(read_job(["--config", path, "--on_overlap", "ignore"]))
    with pytest.raises(ValueError, match="problem_sets replace the dataset of a collaboration, got"):
        read_job(["--config", path, "--dataset_name", "rows.jsonl"])
    evaluation = [load_problems(test)]
    stream = Dataset.from_list([{"problem": "1"}]).to_iterable_dataset()
    assert isinstance(stream, IterableDataset)
    with pytest.raises(ValueError, match=r"must have the column 'problem', and not be a stream, .*, got a stream"):
        without_evaluation(stream, evaluation, "drop", "problem")
    with pytest.raises(ValueError, match=r"must have the column 'problem', .*, got the columns question"):
        without_evaluation(Dataset.from_list([{"question": "1"}]), evaluation, "drop", "problem")
