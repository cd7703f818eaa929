"""Nested values with tensors as safetensors and JSON, in place of the pickle of `torch.save`, which can run code.

One file holds the tensors, the other one the structure around them, in which

    {"tensor": name}   is a tensor of the first file, {"array": name} a numpy array
    {"tuple": [...]}, {"list": [...]}, {"map": [[key, value], ...]}   are containers; keys keep their types
    {"float": "nan"}   is a number that JSON lacks
"""

from __future__ import annotations

import json
import math
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from hf_credit.files import replaced, write
from hf_credit.hub.safety import check_json, check_safetensors

_MAPS = (dict, OrderedDict, defaultdict)


def save_values(value: Any, stem: Path) -> None:
    """Writes a nested value as `<stem>.safetensors` and `<stem>.json`.

    Args:
        value: dicts, lists and tuples of tensors, arrays of numbers and plain values.
        stem: the path of both files without a suffix.

    Raises:
        ValueError: `value` holds an object of another type, such as a shard of a tensor.
    """
    tensors: dict[str, torch.Tensor] = {}
    structure = _take_apart(value, tensors)
    with replaced(stem.with_name(f"{stem.name}.safetensors")) as path:
        save_file(tensors, path)
    text = json.dumps(structure, separators=(",", ":"), allow_nan=False)
    write(stem.with_name(f"{stem.name}.json"), text + "\n")


def load_values(stem: Path) -> Any:
    """Loads a value that `save_values` wrote, with tensors on the CPU.

    Raises:
        ValueError: a file has another form.
    """
    tensor_file = stem.with_name(f"{stem.name}.safetensors")
    check_safetensors(tensor_file)
    structure = check_json(stem.with_name(f"{stem.name}.json").read_bytes())
    try:
        return _put_together(structure, load_file(tensor_file))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"the values in {stem.name}.json must be what was saved, got {type(error).__name__}: {error}; publish the "
            "checkpoint again."
        ) from None


def _take_apart(value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, torch.Tensor) and type(value) in (torch.Tensor, torch.nn.Parameter):
        return {"tensor": _keep(value, tensors)}
    if type(value) is np.ndarray and value.dtype.kind in "biuf":
        return {"array": _keep(torch.from_numpy(value.copy()), tensors)}
    if type(value) in (list, tuple):
        return {type(value).__name__: [_take_apart(inner, tensors) for inner in value]}
    if type(value) in _MAPS and all(type(key) in (bool, int, str) for key in value):
        return {"map": [[key, _take_apart(inner, tensors)] for key, inner in value.items()]}
    raise ValueError(
        f"the state of a trainer must be tensors and plain values to be published, got a {type(value).__name__}; "
        "publish the model alone (resumable=False), or save whole tensors (FULL_STATE_DICT)."
    )


def _keep(tensor: torch.Tensor, tensors: dict[str, torch.Tensor]) -> str:
    name = str(len(tensors))
    # A copy, since safetensors refuses tensors that share memory.
    tensors[name] = tensor.detach().to("cpu", copy=True).contiguous()
    return name


def _put_together(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = value.items()
    match kind:
        case "tensor":
            return tensors[inner]
        case "array":
            return tensors[inner].numpy()
        case "float":
            return float(inner)
        case "list":
            return [_put_together(one, tensors) for one in inner]
        case "tuple":
            return tuple(_put_together(one, tensors) for one in inner)
        case "map":
            return {key: _put_together(one, tensors) for key, one in inner}
    raise KeyError(kind)
