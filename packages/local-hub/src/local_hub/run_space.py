"""Runs a Space of a Hub's folder on this machine, with consent, since it is code of others.

It has a home, a working folder and variables of its own. That is no sandbox: it is a process of this user.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from local_hub.calls import as_repo, repo_row
from local_hub.cards import card_data
from local_hub.errors import HubError
from local_hub.history import find_commit, snapshot
from local_hub.limits import check_path
from local_hub.plain import parse_yaml
from local_hub.running import LOOPBACK, open_hub
from local_hub.spaces import environment_of

# Variables that a program needs to start. No tokens, and no home, which has some: a Space has its own secrets.
_KEPT = ("PATH", "LANG", "LC_ALL", "HF_ENDPOINT", "VIRTUAL_ENV")
_STATIC = "http.server"
_APPLICATION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)


def run_space(
    folder: Path, repo_id: str, consents: Callable[[str, list[str]], bool], revision: str = "main", port: int = 7860
) -> int:
    """Runs a Space until it ends; returns its exit code.

    Args:
        folder: of the Hub, served or not.
        repo_id: `owner/name`.
        consents: gets `owner/name@commit` and the command, and returns whether it may run.
        revision: of the Space.
        port: for the Space to listen at, on loopback.

    Raises:
        ValueError: the Hub has no such Space, it cannot run here, or there is no consent.
    """
    with tempfile.TemporaryDirectory(prefix="local-hub-space-") as temporary:
        files, home = Path(temporary, "files"), Path(temporary, "home")
        for own in (files, home):
            own.mkdir()
        name, sdk, variables = unpack(folder, repo_id, revision, files)
        command = command_of(files, name, sdk, port)
        if not consents(name, command):
            raise ValueError(f"a Space must have consent to run, got none for {name}; read its files first.")
        kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
        chosen = {"PORT": str(port), "GRADIO_SERVER_NAME": LOOPBACK, "GRADIO_SERVER_PORT": str(port)}
        chosen |= {"HF_HUB_DISABLE_XET": "1", "GRADIO_ANALYTICS_ENABLED": "False"}
        theirs = {} if _STATIC in command else variables  # a variable could name code
        environment = {**kept, **chosen, **theirs, "HOME": str(home), "TMPDIR": str(home)}
        return subprocess.run(command, cwd=files, env=environment, check=False).returncode


def unpack(folder: Path, repo_id: str, revision: str, target: Path) -> tuple[str, str, dict[str, str]]:
    """Writes the files of a Space to a folder, and checks their names again.

    Returns:
        `owner/name@commit`, the subject of consent; its SDK; its variables and secrets.

    Raises:
        ValueError: the Hub has no such Space or revision.
    """
    with open_hub(folder) as hub:
        namespace, _, name = repo_id.partition("/")
        row = repo_row(hub.database, "space", namespace, name)
        if row is None:
            raise ValueError(f"the Space must be in this Hub, got {repo_id[:100]!r}; correct the name.")
        repo = as_repo(row)
        try:
            commit = find_commit(hub.database, repo, revision)
        except HubError:
            raise ValueError(f"the revision must be in {repo.id}, got {revision[:100]!r}; correct it.") from None
        files = snapshot(hub.database, commit)
        for path, blob in files.files.items():
            check_path(path)
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).write_bytes(hub.objects.path(blob.sha256).read_bytes())
        sdk = str((card_data(hub, files) or {}).get("sdk", repo.sdk))
        return f"{repo.id}@{commit.oid}", sdk, environment_of(hub.database, repo.key)


def command_of(folder: Path, name: str, sdk: str, port: int) -> list[str]:
    """Returns the command that starts a Space without Docker.

    An environment of OpenEnv names its application in openenv.yaml; a gradio Space runs app.py; a file server serves a
    static one.

    Raises:
        ValueError: the Space needs more than that.
    """
    described = folder / "openenv.yaml"
    if described.is_file():
        value = parse_yaml(described.read_text(encoding="utf-8"))
        app = value.get("app") if isinstance(value, dict) else None
        if not isinstance(app, str) or not _APPLICATION.fullmatch(app):
            raise ValueError(f"app of openenv.yaml must be 'module:object', got {str(app)[:100]!r}; correct it.")
        return [sys.executable, "-P", "-m", "uvicorn", app, "--host", LOOPBACK, "--port", str(port)]
    if sdk == "gradio" and (folder / "app.py").is_file():
        return [sys.executable, "app.py"]
    if sdk == "static":
        return [sys.executable, "-P", "-m", _STATIC, str(port), "--bind", LOOPBACK]  # runs no file of it
    raise ValueError(
        "a Space must have an openenv.yaml, be static, or use gradio with an app.py, got sdk "
        f"{sdk!r} in {name.partition('@')[0]}; run its Dockerfile."
    )
