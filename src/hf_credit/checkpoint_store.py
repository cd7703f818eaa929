"""Where checkpoints are published and fetched from, beside a run's folder: the Hub, which trainers do not import.

`hf_credit` itself, above all rooms, names the module that does it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, cast

PREFIX = "hub:"
"""Of a checkpoint's place where a folder may stand as well: `hub:owner/name` or `hub:owner/name@revision`."""

home = ""
"""The name of the module."""


class StoreError(OSError):
    """What a store refused or failed to do, in one sentence."""


class CheckpointStore(Protocol):
    """What a trainer asks of the module, which raises `ValueError` or `StoreError`."""

    def account(self, token: str | None = None) -> str:
        """The name of the account that a token is of."""

    def publish_checkpoint(self, folder: Path, repo: str, **where: Any) -> Any:
        """Publishes a run or one of its checkpoints as one commit; where: the token, and whether it is private."""

    def fetch_resumable(
        self, place: str, output_dir: str, token: str | None = None, check: Callable[[Path], None] | None = None
    ) -> Path:
        """The complete checkpoint at a place, in a run's folder, once `check` refuses nothing of it."""


def checkpoint_store() -> CheckpointStore:
    """The module, imported only now."""
    return cast(CheckpointStore, importlib.import_module(home))
