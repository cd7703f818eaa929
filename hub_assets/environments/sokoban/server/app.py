"""The server of the environment sokoban: `uvicorn server.app:app --port 8000`."""

from __future__ import annotations

import argparse
from pathlib import Path

import uvicorn

from hf_credit.environments.openenv_server import serve

try:
    from ..models import SokobanAction, SokobanObservation, SokobanState
except ImportError:  # started from the parent folder
    from models import SokobanAction, SokobanObservation, SokobanState

DECLARATION = Path(__file__).resolve().parent.parent / "openenv.yaml"

app = serve(DECLARATION, SokobanAction, SokobanObservation, SokobanState)


def main() -> None:
    """Serves on the given host and port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    uvicorn.run(app, host=arguments.host, port=arguments.port)


if __name__ == "__main__":
    main()
