"""Who is spoken to, and with which token: the client of a Hub, ours or huggingface.co."""

from __future__ import annotations

import ipaddress
import os
import re
from importlib.util import find_spec
from urllib.parse import urlsplit

from huggingface_hub import HfApi, constants
from huggingface_hub.utils import HFValidationError, validate_repo_id

from hf_credit._version import __version__

REPO_TYPES = ("model", "dataset", "space")
_HUGGING_FACE = "huggingface.co"
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,254}")


def connect(endpoint: str | None = None, token: str | None = None) -> HfApi:
    """A client of the Hub at `endpoint`.

    The token that is stored for huggingface.co goes there alone: another endpoint is sent the one given, or that of
    HF_TOKEN, or none.

    Args:
        endpoint: the address; that of HF_ENDPOINT, or else huggingface.co, if left out.
        token: what to prove oneself with.

    Raises:
        ValueError: the address is none, holds a password, or would send a token unencrypted to another machine.
    """
    endpoint = (endpoint or os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"an endpoint must be an http or https address, got {endpoint!r}; write https://hub.example.")
    if "@" in parts.netloc:
        raise ValueError("an endpoint must hold no password, got one before its @; pass a token instead.")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise ValueError(f"an endpoint beyond this machine must be https, got {endpoint!r}; tokens would be readable.")
    sent: str | bool | None = token
    if parts.hostname != _HUGGING_FACE:
        sent = token or os.environ.get("HF_TOKEN") or False
    return HfApi(endpoint=endpoint, token=sent, library_name="hf-credit", library_version=__version__)


def check_repo(repo: str, repo_type: str) -> None:
    """Refuses what is no name of a repository.

    Raises:
        ValueError: the name has no owner or another form, or there is no such kind of repository.
    """
    if repo_type not in REPO_TYPES:
        raise ValueError(f"a repository must be one of {', '.join(REPO_TYPES)}, got {repo_type!r}; name its kind.")
    try:
        validate_repo_id(repo)
    except HFValidationError:
        repo_is_named = False
    else:
        repo_is_named = repo.count("/") == 1
    if not repo_is_named:
        raise ValueError(f"a repository must be named as owner/name, got {repo!r}; write for example me/sudoku.")


def check_revision(revision: str | None) -> None:
    """Refuses what can name no commit, branch or tag.

    Raises:
        ValueError: it has other characters or is too long.
    """
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise ValueError(f"a revision must be a commit, a branch or a tag, got {revision!r}; name one of these.")


def check_upload_path(api: HfApi) -> None:
    """Refuses to upload by Xet to a Hub that does not have it.

    Raises:
        ValueError: hf_xet would be used off huggingface.co.
    """
    host = urlsplit(api.endpoint).hostname
    if host != _HUGGING_FACE and not constants.HF_HUB_DISABLE_XET and find_spec("hf_xet"):
        raise ValueError(
            f"uploads off {_HUGGING_FACE} must go without Xet, got {api.endpoint} with hf_xet in use; "
            "set HF_HUB_DISABLE_XET=1 before Python starts."
        )


def repo_url(api: HfApi, repo: str, repo_type: str) -> str:
    """Where a person sees the repository."""
    prefix = "" if repo_type == "model" else f"{repo_type}s/"
    return f"{api.endpoint}/{prefix}{repo}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
