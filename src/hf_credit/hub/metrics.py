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

OWN_CODE: Mapping[str, str] = {
    "answer_f1": "805b60f4019104dc59a09c819587f116cd3e1a6d76825bc89cd3e69c23c20b97",
    "belief_deviation": "6e8794f55e1d3c58c9907502a87d36493f521dd82c77c91592a7146639ac043c",
    "belief_potential": "ec957febbb1f59d639c0ff5a25f8d18c44ad1c569f12f7fe79b710ab5ba516e0",
    "constraint_violation": "331b0df0d8d9ae66e536924a164dc30894d2c928fa021442487b6da6ed25099e",
    "context_variance": "f58009564a462d64c164288430009981482013d92a776828cd08a741e1d093fa",
    "credit_fidelity": "9b896ef69e07c5920c7c8ad6907fa08e17f9b821723554f32f5bee764aaea16e",
    "cut_quality": "a26c5fd7538fc52e1565ce2f5377e79e2425bf6c56f03fe30bbcdc981439fbf2",
    "evidence_f1": "0dd5619774d00944572879e3b25114ef5dd5e90300db989265669b1b0af3a489",
    "free_rider_index": "2e9c9f12cc1a9ca29aa56a3672695e4a80bf49e41c806a0bcdb6a573537657fb",
    "hack_rate": "502134ba51005c669c3c6b8f5106d3dada0bd839f82b9c96cf7b47439c07214a",
    "influence": "572a7bb147c1d7767d89eb33068c86e430a355aa88ecd6edbe061973282e677a",
    "intervention_validity": "9e3c47e4caf2d17f6e3f1534aa291f1f835a5acd5e1645eb94af3fccdeedaf0e",
    "kl_compliance": "4fc732139f5b891e212ff49c19391eb238abc5f17e57d6f2b4305dd9fbb32276",
    "overlap": "69fc94692da2867750309682ddd0f7d19bb30bdf46cff45198ea69d13dac8739",
    "pass_at_k": "2c177deb24d51a65849e71f999fe04b3b4c80177d8b2c51f61c47147134a59d8",
    "pccc_fidelity": "64faa911ca3606908346b4a131e9ab7f4a12ffaa19340f87344d195b239c5d1a",
    "vote_contribution": "e7618de92eea487a822399a5d843bd34735a63d822900f5775287f65e905037e",
}
"""SHA-256 of the code of each metric in `hub_assets/metrics`."""

_NEEDED = ("README.md", "requirements.txt", "tests.py")
_PAGE = "app.py"


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
    code = fetched.files.get(f"{name}.py")
    if code is None:
        raise ValueError(f"{repo} must hold {name}.py to be a metric, got none; name another repository.")
    if hashlib.sha256(code.read_bytes()).hexdigest() != OWN_CODE.get(name) and not trust_remote_code:
        raise ValueError(
            f"a metric whose code is not hf-credit's needs consent to run, got {repo}@{fetched.commit}; read it, then "
            f"load it with trust_remote_code=True and revision={fetched.commit!r}."
        )
    import evaluate

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / name
        folder.mkdir()
        shutil.copyfile(code, folder / code.name)
        return evaluate.load(str(folder), **options)
