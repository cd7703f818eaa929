"""Runs a script in two processes by torch's elastic agent, as `torchrun` does: `elastic.py script arguments`.

They are copies of this process, and started again once.
"""

from __future__ import annotations

import runpy
import sys

from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def work(script: str, *arguments: str) -> None:
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        max_restarts=1,
        start_method="fork",
        rdzv_backend="c10d",
        rdzv_endpoint="127.0.0.1:0",
        run_id="test",
    )
    elastic_launch(config, work)(*sys.argv[1:])
