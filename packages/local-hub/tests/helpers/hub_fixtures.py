"""Fixtures for tests against a Hub on loopback, for a `conftest.py`."""

from __future__ import annotations

import os
import time
import types
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub.errors import HfHubHTTPError

from local_hub import database
from local_hub.running import Served, client_environment, serving

# Nothing waits for the disk: only a loss of power could tell.
database.SYNCHRONOUS = "OFF"
os.fsync = lambda file: None

httpx: Any = import_module(HfHubHTTPError.__bases__[0].__module__.partition(".")[0])
"""What huggingface_hub asks through: httpx, and since its version 2 httpx2."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `fault_seed` runs for two seeds, and for twenty in `make soak`."""
    if "fault_seed" in metafunc.fixturenames:
        metafunc.parametrize("fault_seed", range(int(os.environ.get("LOCAL_HUB_FAULT_SEEDS", "2"))))


@pytest.fixture(scope="module", autouse=True)
def online() -> Iterator[None]:
    """Lets huggingface_hub call loopback, without Xet; the other tests run offline."""
    from huggingface_hub import constants

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", False)
        patch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        patch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        yield


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A Hub with a fresh folder. In-process clients pass `endpoint=hub.url` and `token=hub.token()`."""
    with serving(tmp_path_factory.mktemp("hub")) as served:
        yield served


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets huggingface_hub retry at once instead of after a second and more."""
    from huggingface_hub import file_download
    from huggingface_hub.utils import _http

    without_waiting = types.SimpleNamespace(**{**vars(time), "sleep": lambda seconds: None})
    for module in (_http, file_download):
        monkeypatch.setattr(module, "time", without_waiting)


@pytest.fixture
def hub_env(hub: Served, tmp_path: Path) -> dict[str, str]:
    """The environment of a client in a process of its own."""
    return environment_of(hub, tmp_path)


def environment_of(hub: Served, folder: Path) -> dict[str, str]:
    """Returns the environment of a client process: this Hub, a token with the right to write, a cache in a folder."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "TRANSFORMERS_"))}
    return {**kept, **client_environment(folder, hub.url, hub.token())}
