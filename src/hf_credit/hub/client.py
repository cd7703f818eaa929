"""The client of a Hub, huggingface.co or another one, with the right token."""

from __future__ import annotations

import contextlib
import os
import re
from urllib.parse import urlsplit

from huggingface_hub import HfApi, constants
from huggingface_hub.utils import HFValidationError, get_token, validate_repo_id

from hf_credit._version import __version__
from hf_credit.hub.retries import retried
from hf_credit.trust import installed
from hf_credit.validators import is_loopback, one_of

REPO_TYPES = ("model", "dataset", "space")
_HUGGING_FACE = "huggingface.co"
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,254}")


def connect(endpoint: str | None = None, token: str | None = None) -> HfApi:
    """Returns a client of the Hub at `endpoint`.

    The stored token of huggingface.co goes to no other endpoint. Another endpoint receives `token`, else HF_TOKEN,
    else none.

    Args:
        endpoint: the URL; HF_ENDPOINT, else huggingface.co, if `None`.
        token: the token of the account.

    Raises:
        ValueError: the endpoint is no http or https URL, holds a password, or would send a token unencrypted to
            another machine.
    """
    endpoint = (endpoint or os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"an endpoint must be an http or https address, got {endpoint!r}; write https://hub.example.")
    if "@" in parts.netloc:
        raise ValueError("an endpoint must hold no password, got one before its @; pass a token instead.")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise ValueError(f"an endpoint beyond this machine must be https, got {endpoint!r}; tokens would be readable.")
    sent: str | bool | None = token
    if parts.hostname != _HUGGING_FACE:
        sent = token or os.environ.get("HF_TOKEN") or False
    return HfApi(endpoint=endpoint, token=sent, library_name="hf-credit", library_version=__version__)


def account(token: str | None = None, endpoint: str | None = None) -> str:
    """Returns the name of the account of a token.

    Raises:
        ValueError: no token is given or stored.
        HubError: the Hub does not know the token, or failed after all retries.
    """
    api = connect(endpoint, token)
    if not (api.token or (api.token is None and get_token())):
        raise ValueError("an account is named by its token, got none; set HF_TOKEN, or write owner/name.")
    return str(retried(api.whoami, "requesting the account of the token")["name"])


def check_repo(repo: str, repo_type: str) -> None:
    """Refuses an invalid name or type of a repository.

    Raises:
        ValueError: the name is no valid owner/name, or the type is none of `REPO_TYPES`.
    """
    one_of("a repository", repo_type, REPO_TYPES)
    with contextlib.suppress(HFValidationError):
        validate_repo_id(repo)
        if repo.count("/") == 1:
            return
    raise ValueError(f"a repository must be named as owner/name, got {repo!r}; write for example me/sudoku.")


def check_revision(revision: str | None) -> None:
    """Refuses a text that cannot name a commit, branch or tag.

    Raises:
        ValueError: `revision` has invalid characters or is too long.
    """
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise ValueError(f"a revision must be a commit, a branch or a tag, got {revision!r}; name one of these.")


def check_upload_path(api: HfApi) -> None:
    """Refuses uploads with Xet to a Hub that does not support it.

    Raises:
        ValueError: huggingface_hub would use hf_xet for another Hub than huggingface.co.
    """
    host = urlsplit(api.endpoint).hostname
    if host != _HUGGING_FACE and not constants.HF_HUB_DISABLE_XET and installed("hf_xet"):
        raise ValueError(
            f"uploads to other Hubs than {_HUGGING_FACE} must not use Xet, got {api.endpoint} with hf_xet in use; "
            "set HF_HUB_DISABLE_XET=1 before Python starts."
        )


def repo_url(api: HfApi, repo: str, repo_type: str) -> str:
    """Returns the URL of a repository's page."""
    prefix = "" if repo_type == "model" else f"{repo_type}s/"
    return f"{api.endpoint}/{prefix}{repo}"
