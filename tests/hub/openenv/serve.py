"""Serves the Spaces in folders and the environments of `foreign.py`, each under a path: `python serve.py FOLDER...`.

Prints the port. What would be missing in a Space's image cannot be imported here either.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount


class Missing:
    """Finds what no image of a Space has, and refuses it."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] in ("torch", "transformers", "trl", "accelerate", "peft", "datasets", "evaluate"):
            raise ImportError(f"an image of a Space has no {name}")


def main() -> None:
    sys.meta_path.insert(0, Missing())
    roots = [Path(one) for one in sys.argv[1:]]
    sys.path[:0] = [*map(str, roots), str(Path(__file__).parent)]
    spaces = [one.name for root in roots for one in sorted(root.iterdir())]
    apps = {}
    for name in spaces:
        os.environ["ENABLE_WEB_INTERFACE"] = str(name == "small")  # as in what openenv pushes
        apps[name] = importlib.import_module(f"{name}.server.app").app
    os.environ["ENABLE_WEB_INTERFACE"] = "false"
    apps |= importlib.import_module("foreign").apps()
    app = Starlette(routes=[Mount(f"/{name}", one) for name, one in apps.items()])
    config = uvicorn.Config(app, port=0, log_level="warning")
    socket = config.bind_socket()
    socket.listen()  # who connects from now on waits
    print(socket.getsockname()[1], flush=True)
    uvicorn.Server(config).run(sockets=[socket])


if __name__ == "__main__":
    main()
