"""The store of published checkpoints, the Hub, for trainers, which do not import `hf_credit.hub`.

`hf_credit/__init__.py`, above all packages, sets the name of the module.
"""

from __future__ import annotations

import importlib
from typing import Any

PREFIX = "hub:"
"""Marks a place in the store, where a folder is possible too: `hub:owner/name` or `hub:owner/name@revision`."""

home = ""
"""The name of the module."""


class StoreError(OSError):
    """A request that a store refused or could not fulfil, in one sentence."""


def checkpoint_store() -> Any:
    """Returns the module, imported on the first call. Trainers use its functions `account`, `require_bases`,
    `publish_checkpoint` and `fetch_resumable`, which raise `ValueError` or `StoreError`."""
    return importlib.import_module(home)
