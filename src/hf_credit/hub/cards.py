"""Cards of repositories: their README with the metadata that the Hub reads."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from huggingface_hub import CardData, EvalResultEntry, RepoCard, eval_result_entries_to_yaml

from hf_credit._version import __version__
from hf_credit.evaluation.credit_tables import read_ledger
from hf_credit.evaluation.markdown import code, escaped
from hf_credit.evaluation.results import EvalResults, evaluation_files
from hf_credit.evaluation.runs import Run, read_run
from hf_credit.hub.bases import Bases, Files
from hf_credit.hub.tables import meanings
from hf_credit.loading import ADAPTER_CONFIG, role_folders
from hf_credit.model_cards import corrected, hub_id
from hf_credit.redaction import redacted
from hf_credit.rollouts.metric_names import METRICS, label
from hf_credit.safe_io import parse_yaml
from hf_credit.tasks import TaskSpec
from hf_credit.tasks.commands import evaluation_command

_FRONT = re.compile(r"\A---\r?\n(.*?)\r?\n---\r?\n", re.DOTALL)
LEDGER_FILE = "ledger.json"
_TEMPLATES = Path(__file__).with_name("card_templates")
_BEGIN, _END = "<!-- hf-credit -->", "<!-- /hf-credit -->"


def tasks_card(repo: str, spec: TaskSpec, rows: Mapping[str, int], fingerprints: Mapping[str, str]) -> str:
    """Returns the card of a dataset of tasks."""
    front = dataset_metadata(f"Tasks of {spec.task}", [spec.task], {"default": [f"tasks/{split}" for split in rows]})
    return rendered(_TEMPLATES / "tasks.md", front, repo=repo, spec=spec, rows=rows, fingerprints=fingerprints)


def episodes_card(repo: str, about: Mapping[str, Any]) -> str:
    """Returns the card of a dataset of episodes."""
    name = TaskSpec.untrusted(about["task"]).task
    columns = meanings(bool(about.get("images")))
    configs = {table: [f"{table}/train"] for table in columns}
    front = dataset_metadata(f"Episodes of {name}", [name], configs)
    front["configs"][0]["default"] = True
    return rendered(_TEMPLATES / "episodes.md", front, repo=repo, name=name, about=about, meanings=columns)


def dataset_metadata(name: str, tags: list[str], configs: Mapping[str, list[str]]) -> dict[str, Any]:
    """Returns the metadata of a dataset, with the tables of each configuration, as folder/split."""
    return {
        "pretty_name": name,
        "tags": ["hf-credit", "reinforcement-learning", *tags],
        "configs": [
            {
                "config_name": config,
                "data_files": [{"split": table.partition("/")[2], "path": f"{table}-*"} for table in own],
            }
            for config, own in configs.items()
        ],
    }


def checkpoint_files(
    beside: Files, checkpoint: Path, run_folder: Path, repo: str, url: str, resumable: bool, bases: Bases
) -> dict[str, Path | bytes]:
    """Returns the files of a checkpoint for readers: TRL's card, extended by results, cost, task and loading, the
    results in the format of the Hub, and the cost.

    Args:
        beside: its other files.
        checkpoint: the folder of the checkpoint.
        run_folder: the folder of its run, with the log and the evaluations.
        repo, url: the repository, and the URL of its page.
        resumable: whether the checkpoint holds the trainer's state.
        bases: finds the base model.
    """
    try:
        run = read_run(run_folder)
    except ValueError:
        run = None  # a model without a log
    spec, ledger = TaskSpec.load(checkpoint), None if run is None else read_ledger(run)
    evaluations = {path.name: EvalResults.load(path) for path in evaluation_files(run_folder)}
    written = [one / "README.md" for one in (run_folder, checkpoint) if (one / "README.md").is_file()]
    front, body = _split(written[0].read_text(encoding="utf-8") if written else f"# {repo.rpartition('/')[2]}\n")
    adapter = (checkpoint / ADAPTER_CONFIG).is_file() or bool(role_folders(checkpoint))
    tags = [tag for tag in front.get("tags", ()) if not tag.startswith("base_model:")]  # PEFT's, perhaps of a folder
    front["tags"] = sorted({*tags, "hf-credit", "reinforcement-learning"})
    front.setdefault("library_name", "peft" if adapter else "transformers")
    front.setdefault("pipeline_tag", "text-generation")
    for name in ("base_model", "base_model_relation"):
        front.pop(name, None)
    if base := bases.of(beside, {} if run is None else run.config):
        front |= {"base_model": base, "base_model_relation": "adapter" if adapter else "finetune"}
    plays = None if spec is None else f"{evaluation_command(checkpoint, shown=repo)} --episodes 64"
    body = corrected(body.partition(_BEGIN)[0], repo.rpartition("/")[2], base, plays, url.removesuffix(repo))
    if index := _model_index(repo, spec, evaluations):
        front["model-index"] = index
    facts = {} if run is None else run.facts
    paper = facts.get("paper")
    card = rendered(
        _TEMPLATES / "checkpoint.md",
        front,
        repo=repo,
        body=body.strip(),
        begin=_BEGIN,
        end=_END,
        evaluations=evaluations,
        label=label,
        logged=None if run is None else _last(run),
        ledger=None if ledger is None else {**ledger.to_dict(), "tokens": ledger.tokens},
        facts=facts,
        spec=spec,
        resumable=resumable,
        citation=paper.get("citation") if isinstance(paper, Mapping) else None,
    )
    files: dict[str, Path | bytes] = {"README.md": card.encode(), **_eval_results(evaluations, url)}
    if ledger is not None:
        files[LEDGER_FILE] = (json.dumps(ledger.to_dict(), indent=1) + "\n").encode()
    return files


def _eval_results(evaluations: Mapping[str, EvalResults], source: str) -> dict[str, Path | bytes]:
    """Returns self-reported results on datasets of the Hub: only Hugging Face can add the token of a verified one."""
    files: dict[str, Path | bytes] = {}
    for name, results in evaluations.items():
        dataset, values = str(results.about.get("dataset", "")), results.values("success")
        if "/" not in dataset or not hub_id(dataset) or not values:
            continue
        entry = EvalResultEntry(
            source_name=f"hf-credit {__version__}",
            dataset_id=dataset,
            task_id=str(results.about.get("split", "test")),
            value=fmean(values.values()),
            source_url=source,
            notes=f"success over {len(values)} tasks, {name}",
        )
        text = yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False, allow_unicode=True)
        files[f".eval_results/{dataset.replace('/', '--')}.yaml"] = text.encode()
    return files


def _last(run: Run) -> dict[str, float]:
    names = ("step", *(name for name, metric in METRICS.items() if metric.headline or metric.panel))
    return {name: values[-1] for name in names for _, values in [run.curve(name)] if values}


def _model_index(repo: str, spec: TaskSpec | None, evaluations: Mapping[str, EvalResults]) -> list[dict[str, Any]]:
    results = []
    for name, one in evaluations.items():
        metrics = [
            {"type": key, "name": label(key), "value": round(interval.mean, 6)}
            for key, interval in one.summary().items()
            if not key.startswith("endings/") and math.isfinite(interval.mean)
        ]
        if metrics:
            dataset = str((hub_id(one.about.get("dataset")) or (spec.task if spec else name,))[0])
            about = {"name": dataset, "type": dataset}
            results.append({"task": {"type": "text-generation"}, "dataset": about, "metrics": metrics})
    return [{"name": repo.rpartition("/")[2], "results": results}] if results else []


def _split(card: str) -> tuple[dict[str, Any], str]:
    found = _FRONT.match(card)
    if found is None:
        return {}, card
    front = parse_yaml(found.group(1))
    return (front if isinstance(front, dict) else {}), card[found.end() :]


def rendered(template: Path, front: Mapping[str, Any], **values: Any) -> str:
    """Renders a file, the template of a card, with `front` as its metadata."""
    helpers: dict[str, Any] = {"version": __version__, "fenced": _fenced, "redacted": redacted}
    helpers["indented"] = lambda value: _fenced(json.dumps(redacted(value), indent=1, default=str))
    helpers |= {"escaped": lambda text: escaped(str(text)), "code": lambda text: code(str(text))}
    text = template.read_text(encoding="utf-8")
    return f"{RepoCard.from_template(CardData(**front), template_str=text, **helpers, **values)}\n"


def _fenced(text: str) -> str:
    """Returns a text that cannot close the fence around it."""
    return text.replace("```", "'''")
