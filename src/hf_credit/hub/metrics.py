"""Publishes metrics as Spaces, of which `evaluate.load("owner/name")` runs the current code, and `load_metric` that of
one commit, with consent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hf_credit.files import OwnFolder, copy
from hf_credit.hub import safety
from hf_credit.hub.loading import fetch
from hf_credit.hub.publishing import Published, publish
from hf_credit.metrics import FILES, METRICS, PAGE, build, module


def publish_metric(metric: str | Path, repo: str, **where: Any) -> Published:
    """Publishes a metric as a Space.

    Args:
        metric: one of `hf_credit.metrics.METRICS`, even if a folder has its name; or a folder with `<folder>.py` and
            the other files that `hf_credit.metrics.build` writes. The page is optional, since all metrics share it.
        repo: owner/name, with the name of the metric, since clients load the file of that name.
        **where: as for `publish`: token, endpoint, private, pr, dry_run, tag.

    Raises:
        ValueError: there is no such metric, a file is missing, or `repo` has another name; and as for `publish`.
    """
    if metric in METRICS or not Path(metric).is_dir():
        with OwnFolder() as place:
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
    """Loads a metric from a Space or from this library, as `evaluate.load` does.

    Args:
        repo: owner/name; or one of `hf_credit.metrics.METRICS`, which needs no Hub.
        trust_remote_code: whether code of others may run.
        revision, token, endpoint: as for `fetch`.
        **options: options of `evaluate.load`, such as `keep_in_memory`.

    Raises:
        ValueError: the Space holds no metric, or code of others without consent, or `revision` is given for a metric
            of this library; and as for `fetch`.
    """
    import evaluate

    if "/" not in repo:
        if revision is not None:
            raise ValueError(f"a metric of hf-credit has no revision, got {revision!r} of {repo!r}; write owner/name.")
        with OwnFolder() as place:
            return evaluate.load(str(build(repo, place)), **options)
    name = repo.rpartition("/")[2]
    fetched = fetch(
        repo, repo_type="space", revision=revision, token=token, endpoint=endpoint, allow=["*.py", "README.md"]
    )
    if f"{name}.py" not in fetched.files:
        raise ValueError(f"{repo} must hold {name}.py to be a metric, got none; name another repository.")
    code = {path: file for path, file in fetched.files.items() if path.endswith(".py") and "/" not in path}
    if name in METRICS and code[f"{name}.py"].read_bytes() == module(name).encode():
        code = {f"{name}.py": code[f"{name}.py"]}
    elif not trust_remote_code:
        raise ValueError(
            f"code that is not hf-credit's must have consent to run, got {repo}@{fetched.commit}; read it, then load "
            f"it with trust_remote_code=True and revision={fetched.commit!r}."
        )
    with OwnFolder() as place:
        for path, file in code.items():
            copy(file, place / name / path)
        return evaluate.load(str(place / name), **options)
