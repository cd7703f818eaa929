"""Leaderboards: the results in `.eval_results/*.yaml` of models, ranked for the dataset that is their benchmark."""

from __future__ import annotations

import math
from typing import Any

from starlette.responses import Response

from local_hub.calls import Call, Hub, Repo, answer_json, as_repo
from local_hub.cards import MOST_YAML_BYTES, card_data, small_text
from local_hub.discussions import ref_of
from local_hub.errors import HubError
from local_hub.history import Commit, find_commit, snapshot
from local_hub.plain import parse_yaml

_FOLDER = ".eval_results/"


def results_of(hub: Hub, repo: Repo, commit: Commit) -> list[dict[str, Any]]:
    """Returns the results of a model, and for each file that cannot be read the reason."""
    found: list[dict[str, Any]] = []
    for path, blob in sorted(snapshot(hub.database, commit).files.items()):
        if not path.startswith(_FOLDER) or not path.endswith((".yaml", ".yml")):
            continue
        try:
            text = small_text(hub, blob, MOST_YAML_BYTES)
            if text is None:
                raise ValueError(f"results must be UTF-8 of at most {MOST_YAML_BYTES} bytes; shorten them.")
            entries = parse_yaml(text)
            if not isinstance(entries, list):
                raise ValueError("results must be a list; write one.")
            found += [{"filename": path, "data": _checked(entry)} for entry in entries]
        except ValueError as error:
            found.append({"filename": path, "error": str(error)})
    return found


def _checked(entry: Any) -> dict[str, Any]:
    dataset = entry.get("dataset") if isinstance(entry, dict) else None
    if not isinstance(dataset, dict) or not all(isinstance(dataset.get(name), str) for name in ("id", "task_id")):
        raise ValueError("a result must name its dataset's id and task_id; add them.")
    value = entry.get("value")
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"a result's value must be a finite number, got {str(value)[:50]!r}; correct it.")
    return dict(entry)


def leaderboard(call: Call) -> Response:
    """`GET /api/datasets/{id}/leaderboard`: the results of all models on this benchmark, the highest first.

    Leaves out models with a `base_model` unless `base_model=false`, as the Hub does. Lists the results of an open pull
    request with its number.
    """
    if call.kind != "dataset":
        raise HubError(404, "only a dataset has a leaderboard; name one.")
    benchmark = call.repo()
    files = snapshot(call.database, find_commit(call.database, benchmark, "main")).files
    if "eval.yaml" not in files:
        raise HubError(404, "this dataset has no leaderboard: it has no eval.yaml; add one.")
    roots_only = call.query("base_model", "true").lower() != "false"
    entries = []
    for row in call.database.read("SELECT * FROM repos WHERE kind = 'model' ORDER BY id"):
        if call.may_read(row):
            entries += _entries(call, as_repo(row), benchmark, roots_only)
    entries.sort(key=lambda entry: (-entry["value"], entry["modelId"], entry["filename"]))
    return answer_json([{"rank": rank, **entry} for rank, entry in enumerate(entries, 1)])


def _entries(call: Call, model: Repo, benchmark: Repo, roots_only: bool) -> list[dict[str, Any]]:
    main = find_commit(call.database, model, "main")
    card = card_data(call.hub, snapshot(call.database, main)) or {}
    if roots_only and card.get("base_model"):
        return []
    stated = results_of(call.hub, model, main)
    found = [_entry(model, one, None) for one in stated if _is_of(one, benchmark)]
    open_pulls = call.database.read(
        "SELECT num, author FROM discussions WHERE repo = ? AND base IS NOT NULL AND status = 'open' ORDER BY num",
        model.key,
    )
    for row in open_pulls:
        proposed = find_commit(call.database, model, ref_of(row["num"]))
        for one in results_of(call.hub, model, proposed):
            if _is_of(one, benchmark) and one not in stated:
                found.append(_entry(model, one, row["num"]))
    return found


def _is_of(one: dict[str, Any], benchmark: Repo) -> bool:
    return "data" in one and one["data"]["dataset"]["id"].lower() == benchmark.id.lower()


def _entry(model: Repo, one: dict[str, Any], pull: int | None) -> dict[str, Any]:
    data = one["data"]
    return {
        "modelId": model.id,
        "value": data["value"],
        "filename": one["filename"],
        # Only Hugging Face itself verifies results.
        "verified": False,
        "source": data.get("source"),
        "notes": data.get("notes"),
        "author": {"name": model.namespace, "fullname": model.namespace, "avatarUrl": "", "type": "user"},
        "pullRequest": pull,
    }
