"""Presets for `AsyncCreditTrainer`: the options of a method as fields, and the defaults of its paper."""

from __future__ import annotations

import dataclasses
from types import new_class
from typing import Any

from hf_credit.trainers.asynchronous.config import AsyncCreditConfig
from hf_credit.trainers.counterfactual_grpo import CounterfactualGRPOConfig
from hf_credit.trainers.preset import Preset
from hf_credit.trainers.replay_loo import ReplayLOOConfig
from hf_credit.trainers.verifiable_process import VerifiableProcessConfig

_SETTINGS = {one.name for one in dataclasses.fields(AsyncCreditConfig)} - {"temperature"}


def impossible(preset: type[Preset]) -> dict[str, Any]:
    """The defaults of a preset that asynchronous training cannot have, by name: it has no such setting, or
    `temperature`, which is 1 there."""
    neutral = {"temperature": 1.0, "beta": 0.0}
    return {
        name: value for name, value in preset.defaults.items() if name not in _SETTINGS and value != neutral.get(name)
    }


def _served(preset: Any) -> Any:
    possible = {name: value for name, value in preset.defaults.items() if name in _SETTINGS}
    body = {"__doc__": preset.__doc__, "__module__": __name__, "complete": preset.complete}
    options = {"method": preset.method_name, "defaults": possible}
    return new_class(f"Async{preset.__name__}", (Preset, AsyncCreditConfig), options, lambda names: names.update(body))


AsyncCounterfactualGRPOConfig = _served(CounterfactualGRPOConfig)
AsyncReplayLOOConfig = _served(ReplayLOOConfig)
AsyncVerifiableProcessConfig = _served(VerifiableProcessConfig)
