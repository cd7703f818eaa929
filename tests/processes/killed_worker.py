"""A worker and a trainer that only notes what it has trained on, with a checkpoint after each; killed by tests.

python killed_worker.py URL POLICY LOG COLLECTIONS
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from simulated_walks import Walks, tasks
from transformers import AutoTokenizer

from hf_credit import methods
from hf_credit.rollouts import Chat
from hf_credit.trainers.asynchronous.server import Server
from hf_credit.trainers.asynchronous.worker import Worker


def main() -> None:
    url, policy, log, collections = sys.argv[1:]
    checkpoint = Path(log).with_suffix(".pt")
    worker = Worker(
        Walks(),
        methods.make("rloo", group_size=2),
        Chat(AutoTokenizer.from_pretrained(policy)),
        Server(url, policy, max_new_tokens=4),
        tasks(6),
        tasks_per_collection=2,
        concurrent_collections=2,
        max_concurrent=4,
    )
    trained: list[int] = []
    if checkpoint.exists():
        saved: dict[str, Any] = torch.load(checkpoint, weights_only=True)
        trained = saved["trained"]
        worker.load_state(saved["worker"])
    worker.start()
    while len(trained) < int(collections):
        one = worker.collections.get(timeout=120)
        if isinstance(one, Exception):
            raise one
        trained.append(one.number)
        worker.trained(one.number)
        unfinished = checkpoint.with_suffix(".unfinished")
        torch.save({"trained": trained, "worker": worker.state()}, unfinished)
        os.replace(unfinished, checkpoint)
        Path(log).write_text(json.dumps(trained), encoding="utf-8")
    worker.stop()


if __name__ == "__main__":
    main()
