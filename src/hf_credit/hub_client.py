"""Guards the client of huggingface_hub from its first import on, whoever imports it: a guard that a caller must call
is forgotten. The import of this module imports nothing of huggingface_hub."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_PACKAGES = ("huggingface_hub", "huggingface_hub.utils")  # both export what the module defines
_MODULE = "huggingface_hub.utils._http"


class Guarded:
    """Makes clients by `factory`, and adds the checks of `hf_credit.http_guard`."""

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.factory = factory

    def __call__(self) -> Any:
        from hf_credit.http_guard import hooked  # imports huggingface_hub

        return hooked(self.factory())


def install() -> None:
    """Guards all clients that huggingface_hub makes, at once or once it is imported."""
    if _MODULE in sys.modules:
        _guard(sys.modules[_MODULE])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == _MODULE else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _guard(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _guard(module: Any) -> None:
    """Guards the present factory of clients, and each that a program sets later."""
    set_factory = module.set_client_factory
    if isinstance(module._GLOBAL_CLIENT_FACTORY, Guarded):
        return

    def set_client_factory(client_factory: Callable[[], Any]) -> None:
        set_factory(client_factory if isinstance(client_factory, Guarded) else Guarded(client_factory))

    for exporting in (module, *(sys.modules.get(name) for name in _PACKAGES)):
        if vars(exporting).get("set_client_factory") is set_factory:
            exporting.set_client_factory = set_client_factory
    set_client_factory(module._GLOBAL_CLIENT_FACTORY)
