"""Updates of a real `AsyncCreditTrainer` on rows that were played before, and their gradients. Run by tests, alone or
in several processes."""

from __future__ import annotations

import json
import queue
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from small_runs import ON_A_PROCESSOR, let_shard
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from hf_credit import make
from hf_credit.rollouts import EnvironmentInteraction, Ledger, Row
from hf_credit.trainers.asynchronous.collection import Collection, CreditedRollouts
from hf_credit.trainers.asynchronous.config import AsyncCreditConfig
from hf_credit.trainers.asynchronous.trainer import AsyncCreditTrainer


class Played:
    """A worker whose collections were played before it started.

    Attributes:
        told: what it was told, in order.
    """

    def __init__(self, collections: Sequence[Collection | Exception]) -> None:
        self.collections: queue.Queue[Collection | Exception] = queue.Queue()
        for one in collections:
            self.collections.put(one)
        self.rollout_buffer: queue.Queue[Any] = queue.Queue()
        self.metrics_queue: queue.Queue[Any] = queue.Queue()
        self.told: list[tuple[str, int]] = []

    def start(self) -> None:
        self.told.append(("start", 0))

    def stop(self) -> None:
        self.told.append(("stop", 0))

    def update_model_version(self, version: int) -> None:
        self.told.append(("version", version))

    def check_health(self, stale_after_s: float) -> None:
        raise RuntimeError("nothing more was played")

    def trained(self, number: int) -> None:
        self.told.append(("trained", number))

    def dropped(self, number: int) -> None:
        self.told.append(("dropped", number))

    def state(self) -> dict[str, Any]:
        return {"told": len(self.told)}

    def load_state(self, state: dict[str, Any]) -> None:
        self.told.append(("loaded", state["told"]))


class Nowhere:
    """A transfer of weights to nobody."""

    def init_weight_transfer(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def send_weights(self, iterator: Any) -> None:
        for _ in iterator:
            pass

    def resume(self) -> None:
        pass

    def destroy(self) -> None:
        pass


class KeepGradients(TrainerCallback):
    """Copies the gradients as the optimizer would see them."""

    def __init__(self) -> None:
        self.kept: list[dict[str, torch.Tensor]] = []

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.kept.append(
            {
                name.removeprefix("module."): (
                    one.grad.full_tensor() if isinstance(one.grad, DTensor) else one.grad
                ).clone()
                for name, one in model.named_parameters()
                if one.grad is not None
            }
        )


def collection(
    rows: Sequence[Row], number: int = 0, version: int = 1, credited: CreditedRollouts | None = None, **metrics: float
) -> Collection:
    return Collection(
        number=number,
        version=version,
        rows=tuple(rows),
        metrics={"reward": 0.5, **metrics},
        ledger=Ledger(scoring_events=1, prompt_tokens=10, completion_tokens=5),
        credited=credited,
    )


def small_trainer(policy: Path, output: Path, collections: Sequence[Any], **changed: Any) -> Any:
    """A trainer of a small policy on such collections, with its worker and its gradients in `played` and `kept`."""
    values: dict[str, Any] = {
        **ON_A_PROCESSOR,
        "output_dir": str(output),
        "max_steps": 1,
        "instances_per_update": 2,
        "token_budget": 4096,
        "max_completion_length": 12,
        "max_grad_norm": 1e9,
        "learning_rate": 1e-3,
    }
    kwargs = changed.pop("trainer_kwargs", {})
    keep, played = KeepGradients(), Played(collections)
    let_shard()
    trainer: Any = AsyncCreditTrainer(
        str(policy),
        kwargs.pop("interaction", None) or EnvironmentInteraction(make("sudoku", size=4, blanks=4)),
        AsyncCreditConfig(**{**values, **changed}),
        method=kwargs.pop("method", "outcome_reward"),
        callbacks=[keep],
        worker=played,
        weight_transfer=Nowhere(),
        **kwargs,
    )
    trainer.played, trainer.kept = played, keep.kept
    return trainer


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]


if __name__ == "__main__":
    policy, output, settings = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    rows = [Row(**{k: tuple(v) if isinstance(v, list) else v for k, v in one.items()}) for one in settings.pop("rows")]
    trained = small_trainer(policy, output, [collection(rows)], **settings)
    trained.train()
    if trained.accelerator.is_main_process:
        torch.save(
            {
                "gradient": trained.kept[0],
                "processes": trained.accelerator.num_processes,
                "kind": str(type(trained.model_wrapped).__name__),
                "log": trained.state.log_history[0],
            },
            output / "update.pt",
        )
    torch.distributed.destroy_process_group()
