"""Metrics as Spaces of the Hub, which `evaluate.load("owner/name")` loads, and a way to load them that asks first.

`evaluate.load` runs whatever lies in the Space now. `load_metric` takes one commit, and runs code that is not this
library's with consent only.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_credit.hub import safety
from hf_credit.hub.loading import fetch
from hf_credit.hub.publishing import Published, publish
from hf_credit.metrics import FILES, METRICS, PAGE, build
from hf_credit.metrics.standalone import COMPUTATION


def code_digest(files: Mapping[str, Path], name: str) -> str | None:
    """SHA-256 of the digests of `<name>.py` and `computation.py`, which is what runs; `None` where one is missing."""
    if not {f"{name}.py", COMPUTATION} <= files.keys():
        return None
    parts = [hashlib.sha256(files[one].read_bytes()).digest() for one in (f"{name}.py", COMPUTATION)]
    return hashlib.sha256(b"".join(parts)).hexdigest()


@functools.cache
def own_digest(name: str) -> str | None:
    """The `code_digest` of one of this library's own metrics."""
    with tempfile.TemporaryDirectory() as place:
        return code_digest({file.name: file for file in build(name, place).iterdir()}, name)


def publish_metric(metric: str | Path, repo: str, **where: Any) -> Published:
    """Publishes a metric as a Space.

    Args:
        metric: the name of one of `hf_credit.metrics.METRICS`, which no folder of that name hides, or a folder with
            `<folder>.py` and the other files that `hf_credit.metrics.build` writes. The page may be left out: there is
            one for all.
        repo: owner/name, where the name is that of the metric: clients look for the file of that name.
        **where: as for `publish`: token, endpoint, private, pr, dry_run, tag.

    Raises:
        ValueError: there is no such metric, a file is missing, or the name is another one; and as for `publish`.
    """
    if metric in METRICS or not Path(metric).is_dir():
        with tempfile.TemporaryDirectory() as place:
            return publish_metric(build(str(metric), place), repo, **where)
    folder = Path(metric)
    files = {name: path for name, path in safety.files_of(folder).items() if "__pycache__" not in name}
    files.setdefault(PAGE.name, PAGE)
    name = folder.resolve().name
    missing = [one for one in (f"{name}.py", *FILES) if one not in files]
    if missing:
        raise ValueError(f"a metric must have {', '.join(missing)}, got {str(folder)!r} without; add it.")
    if repo.rpartition("/")[2] != name:
        raise ValueError(f"the repository of a metric must be called {name!r} like its file, got {repo!r}; rename it.")
    return publish(files, repo, repo_type="space", space_sdk="gradio", message=f"Publish the metric {name}", **where)


def load_metric(
    repo: str,
    *,
    trust_remote_code: bool = False,
    revision: str | None = None,
    token: str | None = None,
    endpoint: str | None = None,
    **options: Any,
) -> Any:
    """The metric of a Space, or this library's own, as `evaluate.load` gives one.

    Args:
        repo: owner/name; or the name of one of `hf_credit.metrics.METRICS`, which is built here, without any Hub.
        trust_remote_code: whether code that is not this library's may run.
        revision, token, endpoint: as for `fetch`.
        **options: for `evaluate.load`, such as `keep_in_memory`.

    Raises:
        ValueError: it holds no metric, its code is not this library's and there is no consent, or a revision is named
            of this library's own; and as for `fetch`.
    """
    import evaluate

    if "/" not in repo:
        if revision is not None:
            raise ValueError(f"a metric of hf-credit has no revision, got {revision!r} of {repo!r}; name owner/name.")
        with tempfile.TemporaryDirectory() as place:
            return evaluate.load(str(build(repo, place)), **options)
    name = repo.rpartition("/")[2]
    fetched = fetch(
        repo, repo_type="space", revision=revision, token=token, endpoint=endpoint, allow=["*.py", "README.md"]
    )
    if f"{name}.py" not in fetched.files:
        raise ValueError(f"{repo} must hold {name}.py to be a metric, got none; name another repository.")
    code = {path: file for path, file in fetched.files.items() if path.endswith(".py") and "/" not in path}
    if name in METRICS and code_digest(code, name) == own_digest(name):
        code = {path: code[path] for path in (f"{name}.py", COMPUTATION)}
    elif not trust_remote_code:
        raise ValueError(
            f"a metric whose code is not hf-credit's needs consent to run, got {repo}@{fetched.commit}; read it, then "
            f"load it with trust_remote_code=True and revision={fetched.commit!r}."
        )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / name
        folder.mkdir()
        for path, file in code.items():
            shutil.copyfile(file, folder / path)
        return evaluate.load(str(folder), **options)
