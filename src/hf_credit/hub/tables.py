"""Tables of tasks, episodes and decisions, and the description of a dataset. Types are fixed, or inferred over all
rows at once: types that differ between splits, such as one without errors, cannot be loaded together."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import pyarrow.parquet as pq
from datasets import Dataset, Features, Image, List, Value
from datasets.features.features import FeatureType

from hf_credit import parquet
from hf_credit._version import __version__
from hf_credit.content import plain_image
from hf_credit.evaluation.runs import versions
from hf_credit.files import replaced, write_json
from hf_credit.hub.loading import Fetched, Where, fetch
from hf_credit.safe_io import read_json

DESCRIPTION_FILE = "hf_credit_dataset.json"
"""Holds the kind of a dataset and its provenance."""

FORMAT = 2
_MOST_SHARDS = 50
_ROWS_A_SHARD = 20_000
_BYTES_A_SHARD = 2**29  # of images

_Column = tuple[FeatureType, str]
_STRING, _WHOLE, _NUMBER, _TOKENS = Value("string"), Value("int32"), Value("float64"), List(Value("int32"))

_EPISODES: Mapping[str, _Column] = {
    "id": (_STRING, "id of the episode"),
    "environment": (_STRING, "name of the environment or collaboration"),
    "options": (_STRING, "its options, as JSON"),
    "task": (_STRING, "task row that the episode started from, as JSON"),
    "seed": (Value("int64"), "seed of the environment's random numbers"),
    "policy": (_STRING, "policy that played"),
    "policy_commit": (_STRING, "commit of the policy's repository"),
    "messages": (
        List({"role": _STRING, "content": _STRING}),
        "conversation: each message of a context once, and the replies",
    ),
    "ending": (_STRING, "how the episode ended"),
    "outcome": (_NUMBER, "outcome of the whole episode"),
    "metrics": (_STRING, "metrics of the task, such as `success`, as JSON"),
    "turns": (_WHOLE, "number of decisions"),
    "tokens": (Value("int64"), "number of generated tokens"),
    "error": (_STRING, "error in one line, if `ending` is `error`"),
    "start": (_WHOLE, "index of its start among those played together"),
    "path": (_TOKENS, "in a tree of episodes, the branch taken at each fork"),
    "inherited": (_WHOLE, "number of first decisions that an earlier episode of the same start holds too"),
    "ways": (_WHOLE, "number of leaves of the tree that it stands for: more than 1 if it ended before a fork"),
    "scored": (_WHOLE, "number of scores of its outcome; 0 if it was not scored, and then `outcome` is NaN"),
    "next_context": (_TOKENS, "tokens of the next context, if the episode was truncated"),
    "next_context_images": (_STRING, "the index of the first token of each image in it, and the image, as JSON"),
    "images": (List(Image()), "images of the episode, each once; JSON has its `path` in the place of each"),
    "verified": (_NUMBER, "success according to an auditor, in [0, 1]; null without an auditor"),
    "final_state": (_STRING, "last state, as JSON"),
    "versions": (_STRING, "versions of the packages that played it, as JSON"),
}
_DECISIONS: Mapping[str, _Column] = {
    "episode_id": (_STRING, "`id` of its episode"),
    "index": (_WHOLE, "position in the episode, from 0"),
    "step": (_WHOLE, "step of the decision; decisions of one step are simultaneous, from one state"),
    "id": (_STRING, "id of the decision; episodes that share a decision share its id"),
    "role": (_STRING, "role that decided"),
    "event": (_STRING, "kind of decision; equal to the role if there is one kind"),
    "state": (_STRING, "state before the decision, as JSON; a replay starts from it"),
    "context_key": (Value("int64"), "equal for equal `context_ids`"),
    "context_ids": (_TOKENS, "tokens of the context"),
    "context_images": (_STRING, "the index of the first token of each image in it, and the image, as JSON"),
    "action_ids": (_TOKENS, "tokens of the reply, with its end of turn"),
    "logprobs": (List(_NUMBER), "log-probability of each token when it was sampled, in nats"),
    "text": (_STRING, "reply without special tokens"),
    "broken_text": (_STRING, "reply as JSON, if it is not valid Unicode"),
    "reward": (_NUMBER, "reward of the step"),
    "verdict": (
        {"score": _NUMBER, "valid": Value("bool")},
        "verdict of an oracle: a score in [0, 1], and whether it accepts the action",
    ),
    "audit": (_STRING, "result of an auditor, as JSON"),
    "trained": (Value("bool"), "whether training may use the decision"),
    "credits": (
        List({"estimator": _STRING, "values": List(_NUMBER)}),
        "one value per estimator, or one per token; empty if training does not use the decision",
    ),
    "tokenizer": (_STRING, "SHA-256 of the tokenizer's vocabulary and rules"),
    "template": (_STRING, "SHA-256 of the chat template and its switches"),
}

_TABLES = {"episodes": _EPISODES, "decisions": _DECISIONS}
_OF_IMAGES = ("images", "next_context_images", "context_images")  # columns of tables with images alone


def features(table: str, images: bool = False) -> Features:
    """Returns the columns and types of the table of `"episodes"` or `"decisions"`, with or without images."""
    return Features({name: kind for name, (kind, _) in _TABLES[table].items() if images or name not in _OF_IMAGES})


def meanings(images: bool = False) -> dict[str, dict[str, str]]:
    """Returns the meaning of each column of these tables, by table and name."""
    return {
        table: {name: text for name, (_, text) in columns.items() if images or name not in _OF_IMAGES}
        for table, columns in _TABLES.items()
    }


def write_table(folder: Path, config: str, split: str, rows: Sequence[Mapping[str, Any]], features: Features) -> None:
    """Writes rows as parquet files named by the Hub's convention: `<config>/<split>-00000-of-00001.parquet`."""
    size = sum(len(one["bytes"]) for row in rows for one in row.get("images") or ()) if "images" in features else 0
    shards = min(_MOST_SHARDS, max(1, math.ceil(len(rows) / _ROWS_A_SHARD), math.ceil(size / _BYTES_A_SHARD)))
    for index in range(shards):
        part = rows[len(rows) * index // shards : len(rows) * (index + 1) // shards]
        columns = {name: [row[name] for row in part] for name in features}
        file = folder / config / f"{split}-{index:05d}-of-{shards:05d}.parquet"
        with replaced(file) as new:
            pq.write_table(Dataset.from_dict(columns, features=features).data.table, new)  # to_parquet shows a bar


def read_table(folder: Path, config: str, split: str, features: Features | None) -> Iterator[dict[str, Any]]:
    """Yields the rows that `write_table` wrote, in order.

    Raises:
        ValueError: a file is missing, truncated, too large, or has other columns.
    """
    files = sorted((folder / config).glob(f"{split}-*-of-*.parquet"))
    if not files or len(files) != int(files[0].stem.rpartition("-of-")[2]):
        raise ValueError(f"the table {config}/{split} must be whole, got {len(files)} files of it; download it again.")
    columns = None if features is None else {field.name: str(field.type) for field in features.arrow_schema}
    yield from parquet.read_rows({file.name: file for file in files}, columns)


def fetch_tables(repo: str, *tables: str, **where: Unpack[Where]) -> Fetched:
    """Downloads tables of a dataset and its description; `where` is as for `fetch`: revision, token, endpoint."""
    allow = [DESCRIPTION_FILE, *(f"{table}/*.parquet" for table in tables)]
    return fetch(repo, repo_type="dataset", allow=allow, **where)


def infer_features(rows: Sequence[Mapping[str, Any]]) -> Features:
    """Infers the types of columns over all rows.

    Raises:
        ValueError: rows differ in their columns, or a column holds several types, NaN or infinity.
    """
    names = list(rows[0])
    for index, row in enumerate(rows):
        if list(row) != names:
            raise ValueError(f"all rows must have the columns {', '.join(names)}, got {', '.join(row)} at {index}.")
    return Features({name: _feature(name, [row[name] for row in rows]) for name in names})


def _feature(name: str, values: Sequence[Any]) -> FeatureType:
    present = [value for value in values if value is not None]
    if any(isinstance(value, float) and not math.isfinite(value) for value in present):
        raise ValueError(f"a number of a task must be finite, got NaN or infinity in {name!r}; correct it.")
    kinds = {type(value) for value in present}
    if kinds <= {list, tuple} and kinds:
        return List(_feature(name, [inner for value in present for inner in value]))
    if kinds == {dict}:
        names = {key for value in present for key in value}
        return {key: _feature(f"{name}.{key}", [value.get(key) for value in present]) for key in sorted(names)}
    for plain, type_name in ({str}, "string"), ({bool}, "bool"), ({int}, "int64"), ({int, float}, "float64"):
        if kinds <= plain:
            return Value(type_name)
    types = ", ".join(sorted(kind.__name__ for kind in kinds))
    raise ValueError(f"a column must have values of one plain type, got {types} in {name!r}; convert them.")


def write_description(folder: Path, kind: str, facts: Mapping[str, Any]) -> None:
    """Writes the description of a dataset, which `read_description` reads."""
    about = {"kind": kind, "format": FORMAT, "version": __version__, "versions": versions(), **facts}
    write_json(folder / DESCRIPTION_FILE, about, indent=1)


def read_description(folder: Path, kind: str, repo: str) -> dict[str, Any]:
    """Reads the description of a dataset.

    Raises:
        ValueError: the description is missing, or of another kind or format.
    """
    file = folder / DESCRIPTION_FILE
    if not file.is_file():
        raise ValueError(f"{repo} must hold {kind} and {DESCRIPTION_FILE}, got none; publish it with hf-credit.")
    values = read_json(file)
    if not isinstance(values, dict) or not isinstance(values.get("kind"), str):
        raise ValueError(f"{DESCRIPTION_FILE} of {repo} must have a kind, got none; publish the dataset again.")
    if values["kind"] != kind:
        raise ValueError(f"{repo} must hold {kind}, got {values['kind']}; load it as that.")
    if values.get("format") != FORMAT:
        raise ValueError(
            f"{repo} must be in format {FORMAT}, got {values.get('format')!r} of hf-credit {values.get('version')!r}; "
            "install that version, or publish it again with this one."
        )
    return values


def compact_json(value: Any) -> str:
    """Serializes a value as canonical JSON, so that equal values have equal hashes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=plain_image)
