"""Runs the Hub: in a thread, or as a process of its own."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import shlex
import socket
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from local_hub.app import make_app
from local_hub.auth import create_token, revoke_tokens, token_is_known
from local_hub.calls import Hub
from local_hub.hooks import Hooks
from local_hub.limits import Limits
from local_hub.objects import write_private

LOOPBACK = "127.0.0.1"
_START_SECONDS = 60.0
_ADMIN = "admin"


@dataclass(frozen=True)
class Served:
    """A running Hub.

    Args:
        url: for `HF_ENDPOINT`, without a final slash.
        folder: holds all data.
    """

    url: str
    folder: Path

    def token(self, name: str = _ADMIN, rights: str = "write", repos: Mapping[str, str] | None = None) -> str:
        """Creates a token for this Hub (see `auth.create_token`)."""
        return new_token(self.folder, name, rights, repos)


def new_token(folder: Path, name: str, rights: str, repos: Mapping[str, str] | None = None) -> str:
    """Creates a token for the Hub of a folder, served or not."""
    with open_hub(folder) as hub:
        return create_token(hub.database, name, rights, repos)


@contextlib.contextmanager
def open_hub(folder: Path) -> Iterator[Hub]:
    """Opens a Hub's folder without serving it.

    Raises:
        ValueError: the folder has no Hub.
    """
    if not (Path(folder) / "hub.sqlite").is_file():
        raise ValueError(
            f"the folder of a Hub must have hub.sqlite, got none in {str(folder)!r}; serve the Hub first."
        )
    hub = Hub(Path(folder), Hooks(), Limits())
    with contextlib.closing(hub.database):
        yield hub


@contextlib.contextmanager
def serving(
    folder: Path, port: int = 0, *, hooks: Hooks | None = None, limits: Limits | None = None
) -> Iterator[Served]:
    """Serves a Hub on loopback, in a thread, until the context ends.

    Args:
        folder: holds all data.
        port: to listen at, 0 for any free port.
        hooks: called during each request.
        limits: of accepted data.
    """
    with _locked(folder), _listening(LOOPBACK, port) as listener:
        app = make_app(folder, hooks=hooks, limits=limits)
        with contextlib.closing(app.state.hub.database):
            app.state.hub.objects.empty_temporary()
            server = uvicorn.Server(_config(app))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="hub", daemon=True)
            thread.start()
            try:
                _wait_until_started(server, thread)
                yield Served(_url(listener), Path(folder))
            finally:
                server.should_exit = True
                thread.join()


def serve(folder: Path, host: str = LOOPBACK, port: int = 0, *, token_file: Path | None = None) -> None:
    """Serves a Hub until the process is stopped, and prints its address.

    `env.sh` in the folder sets the variables of clients, with a token that has all rights; only its owner can read it.

    Args:
        folder: holds all data.
        host: the address to listen at.
        port: to listen at, 0 for any free port.
        token_file: holds the token of `env.sh`; a new token is written to a missing file.

    Raises:
        ValueError: another process serves the folder, or `token_file` holds something else.
    """
    with _locked(folder), _listening(host, port) as listener:
        app = make_app(folder)
        hub: Hub = app.state.hub
        hub.objects.empty_temporary()
        url = _url(listener)
        _write_environment(hub, url, token_file)
        print(f"serving {folder} at {url}", flush=True)
        print(f"in another shell: . {shlex.quote(str(Path(folder).resolve() / 'env.sh'))}", flush=True)
        uvicorn.Server(_config(app)).run(sockets=[listener])


def client_environment(folder: Path, url: str, token: str) -> dict[str, str]:
    """Returns the environment variables that clients read at start."""
    return {
        "HF_ENDPOINT": url,
        "HF_TOKEN": token,
        "HF_HUB_DISABLE_XET": "1",
        # A cache does not distinguish one Hub from another.
        "HF_HOME": str(Path(folder).resolve() / "hf-home"),
        "HF_UPDATE_DOWNLOAD_COUNTS": "0",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def _write_environment(hub: Hub, url: str, token_file: Path | None) -> None:
    kept = token_file or hub.folder / "token"
    token = kept.read_text(errors="replace").strip() if kept.is_file() else ""
    if not token_is_known(hub.database, token):
        if token_file is not None and token_file.exists():
            raise ValueError(f"a token file must be new or hold a token of this Hub, got {str(kept)!r}; name another.")
        revoke_tokens(hub.database, _ADMIN)
        token = create_token(hub.database, _ADMIN, "admin")
        write_private(kept, token)
    values = client_environment(hub.folder, url, token)
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in values.items()]
    write_private(hub.folder / "env.sh", "".join(lines))


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keeps a second server out of a folder; the lock ends with its process, however that ends."""
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(Path(folder).iterdir()) and not any((Path(folder) / name).is_file() for name in ("hub.sqlite", "lock")):
        raise ValueError(
            f"a Hub needs a new or empty folder, or that of a Hub, got {str(folder)!r} with other files; name another."
        )
    with (Path(folder) / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(
                f"one server at a time may serve a folder, got {str(folder)!r}, which has one; stop that first."
            ) from None
        yield


@contextlib.contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The explicit protocol lets asyncio set TCP_NODELAY, which saves 40 ms a request.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(128)  # an early client waits for the server, and is not refused
        yield listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _config(app: Starlette) -> uvicorn.Config:
    # uvicorn would log a traceback for a cut connection, which this server handles.
    return uvicorn.Config(app, log_level=logging.CRITICAL, access_log=False, http="h11", lifespan="on")


def _wait_until_started(server: uvicorn.Server, thread: threading.Thread) -> None:
    waiting = threading.Event()
    for _ in range(int(_START_SECONDS / 0.02)):
        if server.started:
            return
        if not thread.is_alive():
            break
        waiting.wait(0.02)
    raise OSError(f"the Hub must start within {_START_SECONDS:.0f} seconds, got no answer; read its log.")
