"""What was found of an entry, proposed to its models as `.eval_results`: the form of the Hub that model pages show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import fmean

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from hf_credit._version import __version__
from hf_credit.hub.leaderboard.entries import Entry
from hf_credit.hub.leaderboard.records import Record
from hf_credit.hub.leaderboard.submission import Hub


def verified_results(record: Record) -> list[tuple[float, str]]:
    """The mean outcome of each checkpoint on the secret tasks, as a verifier found it, and a note."""
    return [
        (fmean(own), f"mean outcome on {len(own)} secret tasks, verified (entry {record.entry})")
        for own in record.secret
    ]


def propose(hub: Hub, entry: Entry, results: Sequence[tuple[float, str]], source: str) -> list[str]:
    """Opens a pull request with a result in the repository of each checkpoint. Whoever owns it merges it or does not.

    Nobody's badge is claimed by it: `verifyToken` is Hugging Face's alone to fill.

    Args:
        hub: as an account that may open pull requests.
        entry: whose checkpoints.
        results: a value and a note for each.
        source: the address that the results are from.

    Returns:
        The addresses of the pull requests.
    """
    benchmark, _, commit = entry.benchmark.partition("@")
    name = re.sub(r"[^A-Za-z0-9]+", "-", f"{benchmark} {entry.board}").strip("-")
    opened = []
    for checkpoint, (value, note) in zip(entry.checkpoints, results, strict=True):
        told = EvalResultEntry(
            dataset_id=benchmark,
            task_id=entry.board,
            value=value,
            dataset_revision=commit,
            source_url=source,
            source_name=f"hf-credit {__version__}",
            notes=note,
        )
        text = yaml.safe_dump(eval_result_entries_to_yaml([told]), sort_keys=False, allow_unicode=True)
        made = hub.publish(
            {f".eval_results/{name}.yaml": text.encode("utf-8")},
            checkpoint.repo,
            "model",
            pr=True,
            message=f"Add a result on {entry.board}",
        )
        opened.append(str(made.pull_request))
    return opened
