"""The store of published checkpoints, the Hub, for trainers, which do not import `hf_credit.hub`.

`hf_credit/__init__.py`, above all packages, sets the name of the module.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

PREFIX = "hub:"
"""Marks a place in the store, where a folder is possible too: `hub:owner/name` or `hub:owner/name@revision`."""

home = ""
"""The name of the module."""


class StoreError(OSError):
    """A request that a store refused or could not fulfil, in one sentence."""


class CheckpointStore(Protocol):
    """The functions of the module for a trainer. They raise `ValueError` or `StoreError`."""

    def account(self, token: str | None = None) -> str:
        """Returns the name of a token's account."""

    def publish_checkpoint(self, folder: Path, repo: str, **where: Any) -> Any:
        """Publishes a run or one of its checkpoints as one commit; where: the token, and whether it is private."""

    def fetch_resumable(
        self, place: str, output_dir: str, token: str | None = None, check: Callable[[Path], None] | None = None
    ) -> Path:
        """Fetches the complete checkpoint at a place into a run's folder, if `check` accepts it; returns its path."""


def checkpoint_store() -> CheckpointStore:
    """Returns the module, imported on the first call."""
    return cast(CheckpointStore, importlib.import_module(home))
