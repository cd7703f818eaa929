"""The server of the environment evidence: `uvicorn server.app:app --port 8000`."""

from __future__ import annotations

import argparse
from pathlib import Path

import uvicorn

from hf_credit.environments.openenv_server import serve

try:
    from ..models import EvidenceAction, EvidenceObservation, EvidenceState
except ImportError:  # started in the folder above
    from models import EvidenceAction, EvidenceObservation, EvidenceState

DECLARATION = Path(__file__).resolve().parent.parent / "openenv.yaml"

app = serve(DECLARATION, EvidenceAction, EvidenceObservation, EvidenceState)


def main() -> None:
    """Serves on the port that is given."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host", default="0.0.0.0")
    parser.add_argument("--port", type=int, default=8000)
    given = parser.parse_args()
    uvicorn.run(app, host=given.host, port=given.port)


if __name__ == "__main__":
    main()
