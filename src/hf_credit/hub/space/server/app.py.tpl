"""The server of the environment $name: `uvicorn server.app:app --port 8000`."""

from __future__ import annotations

import argparse
from pathlib import Path

import uvicorn

from hf_credit.environments.openenv_server import serve

try:
    from ..models import ${prefix}Action, ${prefix}Observation, ${prefix}State
except ImportError:  # started from the parent folder
    from models import ${prefix}Action, ${prefix}Observation, ${prefix}State

DECLARATION = Path(__file__).resolve().parent.parent / "openenv.yaml"

app = serve(DECLARATION, ${prefix}Action, ${prefix}Observation, ${prefix}State)


def main() -> None:
    """Serves on the given host and port."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    uvicorn.run(app, host=arguments.host, port=arguments.port)


if __name__ == "__main__":
    main()
