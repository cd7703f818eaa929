"""Metrics as Spaces of the Hub, which `evaluate.load("owner/name")` loads, and a way to load them that asks first.

`evaluate.load` runs whatever lies in the Space now. `load_metric` takes one commit, and runs code that is not this
library's with consent only.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hf_credit.hub import safety
from hf_credit.hub.loading import fetch
from hf_credit.hub.publishing import Published, publish
from hf_credit.hub.standalone import COMPUTATION

OWN_CODE: Mapping[str, str] = {
    "answer_f1": "252707748c042a963ee423441c26ea43757295cacd32bbd167a92fd3df9a9079",
    "belief_deviation": "f8c9b28980b06570a724b7b0d4aaff61d2770cef527a7e41deb5c201ba60c49c",
    "belief_potential": "62b8df0a06a8a8bfc99ffbed398fb65ea9c85767de1edd36ae1bcf190f2af584",
    "constraint_violation": "1e6d9e040330caa77a523321c737ef8b54cd079ecc955f03a6054c6fabba1889",
    "context_variance": "7fdfdff05264b0a1d6157532c4790df3874263192ef08f4f2c47c73b19d4e46a",
    "credit_fidelity": "7ac143d8ac59dd630da68a982ec77d710f94cad38a9bd0dc56e32b0375853833",
    "cut_quality": "72b39f59a153251e06f65dbd01f5686d9a3c970f1d97060db50371d60c26fd6c",
    "evidence_f1": "366ffaf49eebb46d1adfe6f1600aa76628f82738e741021a887f0f8a814b3afe",
    "free_rider_index": "cc864da64f2b7cdd79eff03661e42412f13fc9129e285ec60bb808c74c697a35",
    "hack_rate": "bbc7a1b97d46ccde389a25802a6daa7c84147ecd67df1a6332798f0c561e3db2",
    "influence": "27be10165fbbf43636417927e6bc78237d54c63b70a01cc477ca9e15be72f393",
    "intervention_validity": "171aec87a352236c731c97a76c5b3620f5bfb8a330ffa0bc18ad691983f0bfca",
    "kl_compliance": "47a7631bd229c7753768ca7d5ff91976a6275dab79e2dce29e28c51bfde5070f",
    "overlap": "1936e066b2cf0483928bcc039ed573131c317adaaf082d4c903dae91023ebfa8",
    "pass_at_k": "abdc3030144022547c3f1d6977ddd0f08241a5b268a912a0e0d8df14ad46e3c7",
    "pccc_fidelity": "e348dc49aeea79add2709539719a49ccf038f84f412b1e33b0c6eb4d71f6c9fd",
    "vote_contribution": "f78883c40ad6a072a3664b9cb7181a8834cc98958f7e3fbab92aa440102ff734",
}
"""SHA-256 of the code of each metric in `hub_assets/metrics`, as `code_digest` gives it."""

_NEEDED = ("README.md", "requirements.txt", "tests.py")
_PAGE = "app.py"


def code_digest(files: Mapping[str, Path], name: str) -> str | None:
    """SHA-256 of the digests of `<name>.py` and `computation.py`, which is what runs; `None` where one is missing."""
    if not {f"{name}.py", COMPUTATION} <= files.keys():
        return None
    parts = [hashlib.sha256(files[one].read_bytes()).digest() for one in (f"{name}.py", COMPUTATION)]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def publish_metric(folder: str | Path, repo: str, **where: Any) -> Published:
    """Publishes a metric as a Space.

    Args:
        folder: of the metric, with `<folder>.py`, as in `hub_assets/metrics`. Its page `app.py` is in it or beside it.
        repo: owner/name, where the name is that of the folder: clients look for the file of that name.
        **where: as for `publish`: token, endpoint, private, pr, dry_run, tag.

    Raises:
        ValueError: a file is missing, or the name is another one; and as for `publish`.
    """
    folder = Path(folder)
    files = {name: path for name, path in safety.files_of(folder).items() if "__pycache__" not in name}
    if _PAGE not in files and (folder.parent / _PAGE).is_file():
        files[_PAGE] = folder.parent / _PAGE
    name = folder.resolve().name
    missing = [one for one in (f"{name}.py", _PAGE, *_NEEDED) if one not in files]
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
    """The metric of a Space, as `evaluate.load` gives one.

    Args:
        repo: owner/name.
        trust_remote_code: whether code that is not this library's may run.
        revision, token, endpoint: as for `fetch`.
        **options: for `evaluate.load`, such as `keep_in_memory`.

    Raises:
        ValueError: it holds no metric, or its code is not this library's and there is no consent; and as for `fetch`.
    """
    name = repo.rpartition("/")[2]
    fetched = fetch(
        repo, repo_type="space", revision=revision, token=token, endpoint=endpoint, allow=["*.py", "README.md"]
    )
    if f"{name}.py" not in fetched.files:
        raise ValueError(f"{repo} must hold {name}.py to be a metric, got none; name another repository.")
    code = {path: file for path, file in fetched.files.items() if path.endswith(".py") and "/" not in path}
    if code_digest(code, name) == OWN_CODE.get(name, ""):
        code = {path: code[path] for path in (f"{name}.py", COMPUTATION)}
    elif not trust_remote_code:
        raise ValueError(
            f"a metric whose code is not hf-credit's needs consent to run, got {repo}@{fetched.commit}; read it, then "
            f"load it with trust_remote_code=True and revision={fetched.commit!r}."
        )
    import evaluate

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / name
        folder.mkdir()
        for path, file in code.items():
            shutil.copyfile(file, folder / path)
        return evaluate.load(str(folder), **options)
