"""Tables of tasks, episodes and decisions in a folder: their columns, with a type each, parquet files, a description.

A type that is inferred from values differs between splits, as where one of them has no errors, and then the splits
cannot be loaded together. So each is written down here, or found over all rows at once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, List, Value
from datasets.features.features import FeatureType

from hf_credit._version import __version__
from hf_credit.evaluation.runs import versions
from hf_credit.hub import parquet
from hf_credit.hub.loading import Fetched, fetch
from hf_credit.safe_io import read_json
from hf_credit.tasks import TaskSpec

DESCRIPTION_FILE = "hf_credit_dataset.json"
"""What kind of data set it is, and how it was made."""

FORMAT = 2
_MOST_SHARDS = 50
_ROWS_A_SHARD = 20_000

_Column = tuple[FeatureType, str]
_STRING, _WHOLE, _NUMBER, _TOKENS = Value("string"), Value("int32"), Value("float64"), List(Value("int32"))

_EPISODES: Mapping[str, _Column] = {
    "id": (_STRING, "of the episode"),
    "environment": (_STRING, "or collaboration that was played, by its name"),
    "options": (_STRING, "of it, as JSON"),
    "task": (_STRING, "the task row that the episode started from, as JSON"),
    "seed": (Value("int64"), "of what is drawn at random in it"),
    "policy": (_STRING, "who played"),
    "policy_commit": (_STRING, "at which commit of its repository"),
    "messages": (
        List({"role": _STRING, "content": _STRING}),
        "the conversation: each message of a context once, and the replies",
    ),
    "ending": (_STRING, "how it ended"),
    "outcome": (_NUMBER, "what the whole episode was worth"),
    "metrics": (_STRING, "what the task reports of it, such as `success`, as JSON"),
    "turns": (_WHOLE, "how many decisions it has"),
    "tokens": (Value("int64"), "that were generated in it"),
    "error": (_STRING, "the failure in one line, where `ending` is `error`"),
    "start": (_WHOLE, "its place among the starts that were played together"),
    "path": (_TOKENS, "in a tree of episodes, the branch that was taken at each fork"),
    "inherited": (
        _WHOLE,
        "how many of its first decisions an earlier episode of the same start holds too",
    ),
    "ways": (_WHOLE, "how many leaves of the tree it stands for: more than 1 where it ended before a fork"),
    "scored": (_WHOLE, "how many scores its outcome took; 0 where nobody asked, and then `outcome` is NaN"),
    "next_context": (_TOKENS, "of a truncated episode, the tokens that the policy would have been given next"),
    "verified": (_NUMBER, "whether an auditor takes it for a success, in [0, 1]; null where none was asked"),
    "final_state": (_STRING, "in which it ended, as JSON"),
    "versions": (_STRING, "of the packages that played it, as JSON"),
}
_DECISIONS: Mapping[str, _Column] = {
    "episode_id": (_STRING, "`id` of its episode"),
    "index": (_WHOLE, "its place in the episode, from 0"),
    "step": (_WHOLE, "decisions of one step were made at once, from one state"),
    "id": (_STRING, "of the decision; episodes that share it hold it under the same id"),
    "role": (_STRING, "who decided"),
    "event": (_STRING, "which kind of decision it was; the role itself where there is one kind"),
    "state": (_STRING, "before the decision, as JSON; a replay starts from it"),
    "context_key": (Value("int64"), "equal for equal `context_ids`"),
    "context_ids": (_TOKENS, "the tokens that the policy was given"),
    "action_ids": (_TOKENS, "the tokens that it produced, its end of turn included"),
    "logprobs": (List(_NUMBER), "log-probability of each of these when it was drawn, in nats"),
    "text": (_STRING, "the reply without special tokens"),
    "broken_text": (_STRING, "the reply as JSON, where it is no Unicode"),
    "reward": (_NUMBER, "what the task paid for the step"),
    "verdict": (
        {"score": _NUMBER, "valid": Value("bool")},
        "what an oracle says of it: a score in [0, 1], and whether it counts as right",
    ),
    "audit": (_STRING, "what an auditor says of it, as JSON"),
    "trained": (Value("bool"), "whether it may be trained on"),
    "credits": (
        List({"estimator": _STRING, "values": List(_NUMBER)}),
        "of each estimator one value, or one for each token; none where the decision is not trained on",
    ),
    "tokenizer": (_STRING, "SHA-256 of the tokenizer's vocabulary and rules"),
    "template": (_STRING, "SHA-256 of the chat template and its switches"),
}

EPISODES, DECISIONS = (
    Features({name: kind for name, (kind, _) in columns.items()}) for columns in (_EPISODES, _DECISIONS)
)
"""The columns of episodes, one row each, and of decisions."""

MEANINGS = {
    table: {name: meaning for name, (_, meaning) in columns.items()}
    for table, columns in (("episodes", _EPISODES), ("decisions", _DECISIONS))
}
"""What each column holds, by table and name."""


def write_table(folder: Path, config: str, split: str, rows: Sequence[Mapping[str, Any]], features: Features) -> None:
    """Writes rows as parquet files named as the Hub has it: `<config>/<split>-00000-of-00001.parquet`."""
    shards = min(_MOST_SHARDS, max(1, math.ceil(len(rows) / _ROWS_A_SHARD)))
    (folder / config).mkdir(parents=True, exist_ok=True)
    for index in range(shards):
        part = rows[len(rows) * index // shards : len(rows) * (index + 1) // shards]
        columns = {name: [row[name] for row in part] for name in features}
        file = folder / config / f"{split}-{index:05d}-of-{shards:05d}.parquet"
        Dataset.from_dict(columns, features=features).to_parquet(file)


def read_table(folder: Path, config: str, split: str, features: Features | None) -> Iterator[dict[str, Any]]:
    """The rows of `write_table`, in order.

    Raises:
        ValueError: a file is missing, cut short, too large, or has other columns.
    """
    files = sorted((folder / config).glob(f"{split}-*-of-*.parquet"))
    if not files or len(files) != int(files[0].stem.rpartition("-of-")[2]):
        raise ValueError(f"the table {config}/{split} must be whole, got {len(files)} files of it; download it again.")
    columns = None if features is None else {field.name: str(field.type) for field in features.arrow_schema}
    yield from parquet.read_rows({file.name: file for file in files}, columns)


def fetch_tables(repo: str, *tables: str, **where: Any) -> Fetched:
    """Downloads tables of a data set and its description; `where` is as for `fetch`: revision, token, endpoint."""
    allow = [DESCRIPTION_FILE, *(f"{table}/*.parquet" for table in tables)]
    return fetch(repo, repo_type="dataset", allow=allow, **where)


def infer_features(rows: Sequence[Mapping[str, Any]]) -> Features:
    """The types of columns over all rows.

    Raises:
        ValueError: rows have other columns than the first, or a column has values of several types, or NaN.
    """
    names = list(rows[0])
    for place, row in enumerate(rows):
        if list(row) != names:
            raise ValueError(f"all rows must have the columns {', '.join(names)}, got {', '.join(row)} at {place}.")
    return Features({name: _feature(name, [row[name] for row in rows]) for name in names})


def _feature(name: str, values: Sequence[Any]) -> FeatureType:
    known = [value for value in values if value is not None]
    if any(isinstance(value, float) and not math.isfinite(value) for value in known):
        raise ValueError(f"a number of a task must be finite, got NaN or infinity in {name!r}; correct it.")
    kinds = {type(value) for value in known}
    if kinds <= {list, tuple} and kinds:
        return List(_feature(name, [inner for value in known for inner in value]))
    if kinds == {dict}:
        names = {key for value in known for key in value}
        return {key: _feature(f"{name}.{key}", [value.get(key) for value in known]) for key in sorted(names)}
    for plain, type_name in ({str}, "string"), ({bool}, "bool"), ({int}, "int64"), ({int, float}, "float64"):
        if kinds <= plain:
            return Value(type_name)
    types = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise ValueError(f"a column must have values of one plain type, got {types} in {name!r}; convert them.")


def write_description(folder: Path, kind: str, facts: Mapping[str, Any]) -> None:
    """Writes what a data set says of itself, by which `read_description` knows it."""
    about = {"kind": kind, "format": FORMAT, "version": __version__, "versions": versions(), **facts}
    (folder / DESCRIPTION_FILE).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


def read_description(folder: Path, kind: str, repo: str) -> dict[str, Any]:
    """What a data set says of itself.

    Args:
        folder: of its files.
        kind: that it must be of.
        repo: its name, for errors.

    Raises:
        ValueError: it says nothing, is of another kind, or is of another version of this library.
    """
    file = folder / DESCRIPTION_FILE
    if not file.is_file():
        raise ValueError(f"{repo} must hold {kind} and {DESCRIPTION_FILE}, got none; it was published otherwise.")
    values = read_json(file)
    if not isinstance(values, dict) or not isinstance(values.get("kind"), str):
        raise ValueError(f"{DESCRIPTION_FILE} of {repo} must say what kind of data it is, got none; publish it again.")
    if values["kind"] != kind:
        raise ValueError(f"{repo} must hold {kind}, got {values['kind']}; load it as that.")
    if values.get("format") != FORMAT:
        raise ValueError(
            f"{repo} must be in format {FORMAT}, got {values.get('format')!r} of hf-credit {values.get('version')!r}; "
            "install that version, or publish it again with this one."
        )
    return values


def untrusted_spec(values: Any) -> TaskSpec:
    """The task that a data set names; code that it names is not trusted."""
    return replace(TaskSpec.from_dict(values), trusted=False)


def compact_json(value: Any) -> str:
    """A value as JSON in one form, so that equal values have equal hashes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
