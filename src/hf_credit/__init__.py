"""hf-credit: which decision deserves the credit?

The import of this package is cheap: names are looked up on first use, and only modules that need torch import it.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hf_credit import checkpoint_store, hub_client
from hf_credit._version import __version__
from hf_credit.noise import silence_missing_kernel
from hf_credit.trust import on_demand

if TYPE_CHECKING:
    from hf_credit.environments import make
    from hf_credit.trainers.asynchronous.config import AsyncCreditConfig
    from hf_credit.trainers.asynchronous.trainer import AsyncCreditTrainer
    from hf_credit.trainers.config import CreditConfig, RunSettings
    from hf_credit.trainers.constrained_counterfactual import (
        ConstrainedCounterfactualConfig,
        ConstrainedCounterfactualTrainer,
    )
    from hf_credit.trainers.counterfactual_grpo import CounterfactualGRPOConfig, CounterfactualGRPOTrainer
    from hf_credit.trainers.credit import CreditTrainer
    from hf_credit.trainers.replay_loo import ReplayLOOConfig, ReplayLOOTrainer
    from hf_credit.trainers.truncated_ppo import TruncatedPPOConfig, TruncatedPPOTrainer
    from hf_credit.trainers.verifiable_process import VerifiableProcessConfig, VerifiableProcessTrainer

_HOMES = {
    "environments": ("make",),
    "trainers.asynchronous.config": ("AsyncCreditConfig",),
    "trainers.asynchronous.trainer": ("AsyncCreditTrainer",),
    "trainers.config": ("CreditConfig", "RunSettings"),
    "trainers.constrained_counterfactual": ("ConstrainedCounterfactualConfig", "ConstrainedCounterfactualTrainer"),
    "trainers.counterfactual_grpo": ("CounterfactualGRPOConfig", "CounterfactualGRPOTrainer"),
    "trainers.credit": ("CreditTrainer",),
    "trainers.replay_loo": ("ReplayLOOConfig", "ReplayLOOTrainer"),
    "trainers.truncated_ppo": ("TruncatedPPOConfig", "TruncatedPPOTrainer"),
    "trainers.verifiable_process": ("VerifiableProcessConfig", "VerifiableProcessTrainer"),
}

__all__ = [
    "AsyncCreditConfig", "AsyncCreditTrainer", "ConstrainedCounterfactualConfig", "ConstrainedCounterfactualTrainer",
    "CounterfactualGRPOConfig", "CounterfactualGRPOTrainer", "CreditConfig", "CreditTrainer", "ReplayLOOConfig",
    "ReplayLOOTrainer", "RunSettings", "TruncatedPPOConfig", "TruncatedPPOTrainer", "VerifiableProcessConfig",
    "VerifiableProcessTrainer", "__version__", "make",
]  # fmt: skip


_PACKAGES = {path.parent.name for path in Path(__file__).parent.glob("*/__init__.py")}

checkpoint_store.home = "hf_credit.hub.checkpoints"
hub_client.install()
silence_missing_kernel()  # before the first import of bitsandbytes


_named, _names = on_demand(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    return importlib.import_module(f"hf_credit.{name}") if name in _PACKAGES else _named(name)


def __dir__() -> list[str]:
    return sorted({*_names(), *_PACKAGES})
