"""Weights that are replicated on every process, with their optimizer and checkpoints."""

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

from hf_credit.files import replaced

_MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # the state of AdamW for each parameter


class ReplicatedWeights:
    """Parameters that are equal on every process: the main process sends its own, and gradients are summed.

    Args:
        parameters: the parameters by name; the same names on every process.
        learning_rate, betas, weight_decay: as in AdamW.
        warmup_steps: number of steps of linear warm-up from 0; 0 for a constant learning rate.
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
        """Makes one optimizer step on the sum of the gradients of all processes; call it on all at the same time.

        Args:
            max_grad_norm: the norm to which the sum is clipped; `None` for no clipping.

        Returns:
            The norm of the sum before clipping. If it is not finite, the step is skipped.
        """
        for parameter in self.parameters.values():
            # A process without rows has no gradient, but must take part in the reduction.
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = self.accelerator.reduce(gradient, "sum")
        norm = nn.utils.clip_grad_norm_(self.parameters.values(), max_grad_norm or math.inf).item()
        if math.isfinite(norm):
            warmup = min(1.0, self.steps / self.warmup_steps) if self.warmup_steps else 1.0
            for group in self.optimizer.param_groups:
                group["lr"] = warmup * self.learning_rate  # a function of `steps`, which checkpoints hold
            self.optimizer.step()
            self.steps += 1
        self.optimizer.zero_grad()
        return norm

    def state(self) -> dict[str, Any]:
        """Returns the state for a checkpoint, as `Saved.state`."""
        state: dict[str, Any] = {"steps": self.steps}
        if self.accelerator.is_main_process:
            state["weights"] = _copied(self.parameters)
            state["optimizer"] = _copied(self.optimizer.state_dict())
        return state

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state`, as `Saved.load_state`."""
        self.steps = state["steps"]
        if self.accelerator.is_main_process:
            self._set(state["weights"], "a checkpoint")
            self.optimizer.load_state_dict(_copied(state["optimizer"]))
        self._share()

    def save(self, path: Path, **about: float) -> None:
        """Writes the weights as safetensors, on the main process, with numbers as metadata."""
        if self.accelerator.is_main_process:
            numbers = {name: str(value) for name, value in {"steps": self.steps, **about}.items()}
            with replaced(path) as unfinished:
                save_file(_copied(self.parameters), unfinished, {"format": "pt", **numbers})

    def load(self, path: Path) -> None:
        """Reads weights that `save` wrote, as `Saved.load`."""
        if not path.is_file():
            raise ValueError(
                f"a critic must be loaded from a folder with a saved critic, got {path.parent.parent} without "
                f"{path.parent.name}/{path.name}; save one there first."
            )
        self._set(load_file(path), str(path))
        self.optimizer.state.clear()
        self.steps = 0

    def _set(self, weights: Mapping[str, Tensor], source: str) -> None:
        expected = {name: tuple(parameter.shape) for name, parameter in self.parameters.items()}
        shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        different = sorted(name for name in expected.keys() | shapes.keys() if expected.get(name) != shapes.get(name))
        if different:
            more = f" and {len(different) - 1} more" if different[1:] else ""
            raise ValueError(
                f"a saved critic must have the same backbone, got {source}, which differs in {different[0]}{more}; "
                "use the backbone that it was saved with."
            )
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(weights[name])

    def _share(self) -> None:
        """Sends the weights and the optimizer state of the main process to every process."""
        if self.accelerator.num_processes == 1:
            return
        for parameter in self.parameters.values():
            self._send(parameter.data)
            if not self.steps:
                continue
            state = self.optimizer.state[parameter]
            for name in _MOMENTS:
                if not self.accelerator.is_main_process:
                    state[name] = torch.tensor(0.0) if name == "step" else torch.zeros_like(parameter.data)
                self._send(state[name])

    def _send(self, tensor: Tensor) -> None:
        tensor.copy_(broadcast(tensor.to(self.accelerator.device)))


def weights_file(folder: str | Path, name: str) -> Path:
    """Returns the path of the trained weights of a critic in a policy's folder."""
    return Path(folder) / name / f"{name}.safetensors"


class Saved:
    """A base class for models with `ReplicatedWeights` that checkpoints and policies' folders hold."""

    weights: ReplicatedWeights

    def state(self) -> dict[str, Any]:
        """Returns everything needed to resume exactly: copies of tensors on the CPU, and plain values.

        On the main process it includes weights and optimizer; on the others only counters.
        """
        return self.weights.state()

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Restores a result of `state`; call it on all processes at the same time.

        Raises:
            ValueError: the names or shapes of the weights differ.
        """
        self.weights.load_state(state)

    def save(self, folder: str | Path, name: str = "critic") -> None:
        """Writes the trained weights into a policy's folder; only the main process writes."""
        self.weights.save(weights_file(folder, name))

    def load(self, folder: str | Path, name: str = "critic") -> None:
        """Reads the trained weights that `save` wrote, on every process, and resets the optimizer.

        Raises:
            ValueError: the folder holds no critic of this name, or the names or shapes of its weights differ.
        """
        self.weights.load(weights_file(folder, name))


def _copied(value: Any) -> Any:
    """The value, with copies on the CPU for tensors in dictionaries and lists."""
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
    if isinstance(value, dict):
        return {name: _copied(inner) for name, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value
