"""Sets of problems by name, from the Hub at a fixed revision or from a file with the same rows.

A set is written `NAME`, `NAME@REVISION` or `NAME=FILE`, as in `math500/test`, `cmath/test@<commit>` and
`math/train=data/math_train.json`. Names are `SOURCE/SPLIT`; with a file, any name is possible.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from datasets import Dataset, load_dataset
from huggingface_hub import HfApi

from hf_credit.data.rows import FEATURES, RowError, fingerprint, kind_of, to_problem
from hf_credit.parquet import read_rows
from hf_credit.registry import did_you_mean
from hf_credit.safe_io import parse_json, read_text
from hf_credit.validators import one_of

_SUBJECTS = (
    "algebra", "counting_and_probability", "geometry", "intermediate_algebra", "number_theory", "prealgebra",
    "precalculus",
)  # fmt: skip
_MAX_BYTES = 2**30  # of a file of problems, unpacked
_MBPP_TASKS = {"prompt": (1, 10), "test": (11, 510), "validation": (511, 600), "train": (601, 974)}
"""The first and last task_id of each split of MBPP (Austin et al. 2021)."""


class HubSource(NamedTuple):
    """The location of a set on the Hub."""

    repository: str
    revision: str | None  # a commit; `None` to look up the latest commit, which the run records
    split: str  # its name there
    configs: tuple[str | None, ...] = (None,)  # the subsets, in order
    branch: str = "main"  # the branch of the latest commit


PROBLEM_SETS = {
    **{
        f"math/{split}": HubSource(
            "EleutherAI/hendrycks_math", "21a5633873b6a120296cce3e2df9d5550074f4a3", split, _SUBJECTS
        )
        for split in ("train", "test")
    },
    "math500/test": HubSource("HuggingFaceH4/MATH-500", "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be", "test"),
    **{
        f"gsm8k/{split}": HubSource("openai/gsm8k", "740312add88f781978c0658806c59bc2815b9866", split, ("main",))
        for split in ("train", "test")
    },
    "cmath/dev": HubSource("weitianwen/cmath", None, "validation"),
    "cmath/test": HubSource("weitianwen/cmath", None, "test"),
    **{
        f"mbpp/{split}": HubSource(
            "google-research-datasets/mbpp", "4bb6404fdc6cacfda99d4ac4205087b89d32030c", split, ("full",)
        )
        for split in _MBPP_TASKS
    },
    "humaneval/test": HubSource("openai/openai_humaneval", "7dce6050a7d6d172f3cc5c32aa97f52fa1a2e544", "test"),
    "aime24/test": HubSource("HuggingFaceH4/aime_2024", "2fe88a2f1091d5048c0f36abc874fb997b3dd99a", "train"),
    "aime25/test": HubSource("math-ai/aime25", "563bb8404243c5f09de6ec262f2db674fe5bce9b", "test"),
    "amc23/test": HubSource("math-ai/amc23", "80815d37005feb82cd7f8fbc6901d5d3eff43057", "test"),
    "minervamath/test": HubSource("math-ai/minervamath", "ee46ddc498933b1977577953250ca5c66be64f96", "test"),
    "gaokao2023en/test": HubSource("MARIO-Math-Reasoning/Gaokao2023-Math-En", None, "train"),
    # The main branch of LogiQA has a loading script, which is not run.
    **{
        f"logiqa/{split}": HubSource("lucasmccabe/logiqa", None, split, branch="refs/convert/parquet")
        for split in ("train", "validation", "test")
    },
}
"""The sets on the Hub. CMATH has no training split: use its dev split for the paper's CMATH-train."""


@dataclass(frozen=True, kw_only=True)
class Problems:
    """A set of problems.

    Attributes:
        rows: in the common format, see `hf_credit.data.rows`.
        origin: `repository@commit`, or the file's name.
        dropped: the number of rows without a gold answer or tests, or whose program cannot be read.
        fingerprint: of the rows, see `hf_credit.data.fingerprint`.
    """

    name: str
    rows: Dataset
    origin: str
    dropped: int
    fingerprint: str

    def description(self) -> dict[str, Any]:
        """Returns the record of the set in a run, as plain values."""
        return {**vars(self), "rows": len(self.rows)}


def is_problem_set(name: str) -> bool:
    """Returns whether a dataset's name denotes a set of problems: `NAME`, `NAME@REVISION` or `NAME=FILE`.

    An existing path with a `=` does not.
    """
    return ("=" in name and not Path(name).exists()) or name.partition("@")[0] in PROBLEM_SETS


def load_problems(wanted: str, on_missing: str = "refuse") -> Problems:
    """Loads a set of problems in the common format.

    Args:
        wanted: `NAME`, `NAME@REVISION` or `NAME=FILE`; the file is JSON, JSON lines or Parquet (.json, .jsonl, both
            also as .gz, or .parquet).
        on_missing: `refuse` or `drop` rows without a gold answer or tests, or whose program cannot be read.

    Raises:
        ValueError: the set does not exist, a row is incomplete or cannot be read, or a file has another format.
        OSError: the file or the repository cannot be read.
    """
    one_of("on_missing", on_missing, ("refuse", "drop"))
    name, origin, rows = _open(wanted)
    source, _, split = name.partition("/")
    first, last = _MBPP_TASKS.get(split if source == "mbpp" else "", (0, float("inf")))
    problems: list[dict[str, Any]] = []
    dropped = 0
    kind = ""
    for index, row in enumerate(rows):
        kind = kind or kind_of(set(row), origin, source)
        try:
            if first == 0 or first <= int(row["task_id"]) <= last:
                problems.append(to_problem(row, kind, source, split, index))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            can_be_dropped = isinstance(error, RowError)
            if on_missing == "drop" and can_be_dropped:
                dropped += 1
                continue
            fault = error if isinstance(error, ValueError) else f"must be complete, got {error!r}"
            otherwise = ", or drop such rows with on_missing: drop" if can_be_dropped else ""
            raise ValueError(f"a row of {origin} {fault} in row {index} (from 0); correct it{otherwise}.") from error
    if not problems:
        raise ValueError(f"a set must have problems, got none for {wanted!r} in {origin}; check the split's name.")
    table = Dataset.from_list(problems, features=FEATURES)
    return Problems(name=name, rows=table, origin=origin, dropped=dropped, fingerprint=fingerprint(table["uid_sha"]))


def _open(wanted: str) -> tuple[str, str, Iterator[Mapping[str, Any]]]:
    name, is_file, file = wanted.partition("=")
    if is_file:
        return name, Path(file).name, _read(Path(file))
    name, _, revision = name.partition("@")
    if name not in PROBLEM_SETS:
        raise ValueError(
            f"a set of problems must be one of {', '.join(PROBLEM_SETS)}, or NAME=FILE, got {name!r}; "
            f"{did_you_mean(name, PROBLEM_SETS) or 'pick one of these.'}"
        )
    hub = PROBLEM_SETS[name]
    commit = revision or hub.revision or HfApi().dataset_info(hub.repository, revision=hub.branch).sha or ""
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise ValueError(f"a revision must be a commit of 40 hexadecimal digits, got {commit!r} for {name}; pin one.")
    parts = (load_dataset(hub.repository, config, split=hub.split, revision=commit) for config in hub.configs)
    return name, f"{hub.repository}@{commit}", chain.from_iterable(parts)


def _read(path: Path) -> Iterator[Mapping[str, Any]]:
    name = path.name.removesuffix(".gz")
    if path.name.endswith(".parquet"):
        return read_rows({path.name: path})
    if not name.endswith((".json", ".jsonl")):
        raise ValueError(
            "a file of problems must end in .json, .jsonl, .json.gz, .jsonl.gz or .parquet, "
            f"got {path.name!r}; convert it."
        )
    try:
        text = read_text(path, _MAX_BYTES)
        # Not splitlines: a problem may contain other line breaks than \n, such as U+2028.
        lines = (line for line in text.split("\n") if line.strip())
        values = parse_json(text) if name.endswith(".json") else list(map(parse_json, lines))
    except ValueError as error:
        raise ValueError(
            f"a file of problems must be JSON in UTF-8, got ({error}) in {path.name!r}; correct it."
        ) from None
    if not isinstance(values, list) or not all(isinstance(row, dict) for row in values):
        raise ValueError(
            f"a file of problems must be a list of JSON objects, got another form in {path.name!r}; convert it."
        )
    return iter(values)
