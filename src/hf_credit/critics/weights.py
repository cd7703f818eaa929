"""Weights that every process holds a copy of, with their optimizer: stepped alike, saved, and resumed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # what AdamW keeps of each parameter


class ReplicatedWeights:
    """Parameters that stay the same on every process: they start alike, and their gradients are summed.

    Args:
        parameters: by name, the same names on every process.
        accelerator: knows the other processes.
        learning_rate, betas, weight_decay: of AdamW.
        warmup_steps: over how many steps the learning rate rises evenly, from 0 in the first; 0 for a constant one.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        accelerator: Accelerator,
        learning_rate: float,
        betas: tuple[float, float],
        weight_decay: float,
        warmup_steps: int = 0,
    ) -> None:
        self.parameters = dict(parameters)
        self.accelerator = accelerator
        self.optimizer = torch.optim.AdamW(
            list(self.parameters.values()), lr=learning_rate, betas=betas, weight_decay=weight_decay
        )
        self.learning_rate, self.warmup_steps = learning_rate, warmup_steps
        self.steps = 0
        self._share()

    def step(self, max_grad_norm: float | None) -> float:
        """One optimizer step on the sum of all processes' gradients, called on all of them at the same time.

        Args:
            max_grad_norm: to which that sum is clipped; `None` leaves it.

        Returns:
            The norm of the sum before clipping. Where it is not finite, the step is left out.
        """
        for parameter in self.parameters.values():
            # A process without rows has no gradient, but the others wait for it.
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = self.accelerator.reduce(gradient, "sum")
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), max_grad_norm or math.inf).item()
        if math.isfinite(norm):
            risen = min(1.0, self.steps / self.warmup_steps) if self.warmup_steps else 1.0
            for group in self.optimizer.param_groups:
                group["lr"] = risen * self.learning_rate  # by the count, which is in every checkpoint
            self.optimizer.step()
            self.steps += 1
        self.optimizer.zero_grad()
        return norm

    def state(self) -> dict[str, Any]:
        """As `Saved.state`."""
        state: dict[str, Any] = {"steps": self.steps}
        if self.accelerator.is_main_process:
            state["weights"] = _copied(self.parameters)
            state["optimizer"] = _copied(self.optimizer.state_dict())
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` gave, on all processes at the same time.

        Raises:
            ValueError: the state is of other weights.
        """
        self.steps = state["steps"]
        if self.accelerator.is_main_process:
            self._put(state["weights"], "a checkpoint")
            self.optimizer.load_state_dict(_copied(state["optimizer"]))
        self._share()

    def save(self, path: Path, **about: float) -> None:
        """Writes the weights, on the main process, as safetensors, with numbers about them."""
        if self.accelerator.is_main_process:
            path.parent.mkdir(parents=True, exist_ok=True)
            numbers = {name: str(value) for name, value in {"steps": self.steps, **about}.items()}
            save_file(_copied(self.parameters), path, {"format": "pt", **numbers})

    def load(self, path: Path) -> None:
        """Reads weights that `save` wrote, on every process. The optimizer starts anew.

        Raises:
            ValueError: there is no such file, or it is of other weights.
        """
        if not path.is_file():
            raise ValueError(
                f"a critic must be loaded from a folder that one was saved to, got {path.parent.parent} without "
                f"{path.parent.name}/{path.name}; save one there first."
            )
        self._put(load_file(path), str(path))
        self.optimizer.state.clear()
        self.steps = 0

    def _put(self, weights: Mapping[str, Tensor], source: str) -> None:
        ours = {name: tuple(parameter.shape) for name, parameter in self.parameters.items()}
        theirs = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        other = sorted(name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name))
        if other:
            more = f" and {len(other) - 1} more" if other[1:] else ""
            raise ValueError(
                f"a critic must be loaded from one of the same backbone, got {source}, which differs in {other[0]}"
                f"{more}; build it on the backbone that it was saved with."
            )
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(weights[name])

    def _share(self) -> None:
        """Gives every process the weights and the optimizer of the main one."""
        if self.accelerator.num_processes == 1:
            return
        for parameter in self.parameters.values():
            self._send(parameter.data)
            if not self.steps:
                continue
            kept = self.optimizer.state[parameter]
            for name in _MOMENTS:
                if not self.accelerator.is_main_process:
                    kept[name] = torch.tensor(0.0) if name == "step" else torch.zeros_like(parameter.data)
                self._send(kept[name])

    def _send(self, tensor: Tensor) -> None:
        tensor.copy_(broadcast(tensor.to(self.accelerator.device)))


def weights_file(folder: str | Path, name: str) -> Path:
    """Where a policy's folder has what is trained of a critic, of this name."""
    return Path(folder) / name / f"{name}.safetensors"


class Saved:
    """Something with `ReplicatedWeights` that a run takes up again, and that lies in a folder beside the policy."""

    weights: ReplicatedWeights

    def state(self) -> dict[str, Any]:
        """What a run needs to go on exactly: tensors on the CPU and plain values, copied.

        The main process has the weights and the optimizer; the others have the counters, and get the rest from it.
        """
        return self.weights.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes back what `state` gave, on all processes at the same time.

        Raises:
            ValueError: the state is of another critic.
        """
        self.weights.load_state(state)

    def save(self, folder: str | Path, name: str = "critic") -> None:
        """Writes what is trained into a policy's folder, on the main process; called on any."""
        self.weights.save(weights_file(folder, name))

    def load(self, folder: str | Path, name: str = "critic") -> None:
        """Reads what `save` wrote, on every process. The optimizer starts anew.

        Raises:
            ValueError: the folder holds no critic, or another one.
        """
        self.weights.load(weights_file(folder, name))


def _copied(value: Any) -> Any:
    """Copies on the CPU of the tensors in dictionaries and lists."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
    if isinstance(value, dict):
        return {name: _copied(inner) for name, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value
