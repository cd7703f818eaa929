"""A run whose rollouts go through vLLM, and what it left. Run by tests, in a process of its own.

    python play.py POLICY OUTPUT '{"settings": {...}, "transport": "file", "signal": null, "resume": false}'

`OUTPUT/updates.pt` holds, for each update, the policy's weights, its decisions as vLLM reported them, and the metrics.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from trl.generation import vllm_client, vllm_generation

from hf_credit import VerifiableProcessConfig, VerifiableProcessTrainer, make
from hf_credit.collectors import RolloutBatch
from hf_credit.rollouts import Generation


class FileClient(vllm_client.VLLMClient):
    """TRL's client, whose weights reach the server in a file: NCCL, which TRL uses, needs GPUs."""

    def init_communicator(self, device: Any = 0) -> None:
        self.folder = tempfile.TemporaryDirectory()

    def update_named_params(
        self, metadata: list[tuple[str, str, list[int]]], named_params: Iterable[tuple[str, torch.Tensor]]
    ) -> None:
        save_file({name: value.contiguous() for name, value in named_params}, f"{self.folder.name}/model.safetensors")
        request = {"method": "reload_weights", "kwargs": {"weights_path": self.folder.name}}
        self._post(f"{self.base_url}/collective_rpc", json=request)


def prepare_colocated() -> None:
    """What the colocated engine needs on a CPU, where TRL has no setting for it.

    Full precision, to compare with. And plain weights: vLLM's layers on a CPU pack them and let go of the
    parameters, into which TRL then loads the policy's.
    """
    import vllm._custom_ops

    vllm_generation.LLM = functools.partial(vllm_generation.LLM, dtype="float32", enforce_eager=True)
    vllm._custom_ops._supports_onednn = False


def settings(output: Path, **changed: Any) -> VerifiableProcessConfig:
    values: dict[str, Any] = {
        "output_dir": str(output),
        "history": "append",
        "instructions": False,
        "instances_per_update": 16,
        "per_device_train_batch_size": 8,
        "max_steps": 1,
        "max_completion_length": 12,
        # What vLLM reports is the probability after these; the policy's own is the one before the last two.
        "temperature": 0.8,
        "top_p": 1.0,
        "top_k": 0,
        "learning_rate": 1e-2,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "bf16": False,
        "use_cpu": True,
        "use_vllm": True,
        "vllm_server_timeout": 60.0,
        "report_to": "none",
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
    }
    return VerifiableProcessConfig(**{**values, **changed})


class Recorder:
    """What every update played, and with which weights."""

    def __init__(self, trainer: VerifiableProcessTrainer, output: Path) -> None:
        self.trainer, self.output = trainer, output
        self.updates: list[dict[str, Any]] = []
        self.credit, trainer.credit = trainer.credit, self.record  # type: ignore[method-assign]

    def record(self, collected: RolloutBatch) -> Any:
        decisions = [
            {"context": list(decision.context_ids), "reply": list(decision.action_ids), "logprobs": decision.logprobs}
            for episode in collected.episodes
            for decision in episode.decisions
        ]
        weights = {name: value.detach().cpu().clone() for name, value in self.trainer.model.state_dict().items()}
        self.updates.append({"decisions": decisions, "weights": weights})
        return self.credit(collected)

    def save(self) -> None:
        metrics = [entry for entry in self.trainer.state.log_history if "reward" in entry]
        own = metrics[-len(self.updates) :]  # a resumed run has those of the run before it as well
        updates = [{**update, "metrics": entry} for update, entry in zip(self.updates, own, strict=True)]
        torch.save(updates, self.output / "updates.pt")


def signal_in_rollout(trainer: VerifiableProcessTrainer, output: Path, group: int, signal: int, step: int) -> None:
    """Sends a signal to the server's processes between two generation calls of a rollout."""
    generate, calls = trainer.ranks.generate, [0]

    def with_signal(contexts: Sequence[Sequence[int]]) -> Sequence[Generation]:
        calls[0] += trainer.state.global_step == step
        if calls[0] == 2:
            (output / "written.json").write_text(json.dumps(written(output)))
            os.killpg(group, signal)
        return generate(contexts)

    trainer.ranks.generate = with_signal


def written(output: Path) -> dict[str, str]:
    """A digest of each file in the checkpoints of a run."""
    files = [path for path in sorted(output.rglob("checkpoint-*/**/*")) if path.is_file()]
    return {str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def main(policy: str, output: Path, order: dict[str, Any]) -> None:
    args = settings(output, **order["settings"])
    if args.vllm_mode == "colocate":
        prepare_colocated()
    elif order["transport"] == "file":
        vllm_generation.VLLMClient = FileClient
    trainer = VerifiableProcessTrainer(policy, make("sudoku", size=4, blanks=4), args)
    recorder = Recorder(trainer, output)
    if order["signal"]:
        signal_in_rollout(trainer, output, **order["signal"])
    trainer.train(resume_from_checkpoint=order["resume"])
    recorder.save()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3]))
