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
    "AsyncCreditConfig": "hf_credit.trainers.asynchronous.config",
    "AsyncCreditTrainer": "hf_credit.trainers.asynchronous.trainer",
    "ConstrainedCounterfactualConfig": "hf_credit.trainers.constrained_counterfactual",
    "ConstrainedCounterfactualTrainer": "hf_credit.trainers.constrained_counterfactual",
    "CounterfactualGRPOConfig": "hf_credit.trainers.counterfactual_grpo",
    "CounterfactualGRPOTrainer": "hf_credit.trainers.counterfactual_grpo",
    "CreditConfig": "hf_credit.trainers.config",
    "CreditTrainer": "hf_credit.trainers.credit",
    "make": "hf_credit.environments",
    "ReplayLOOConfig": "hf_credit.trainers.replay_loo",
    "ReplayLOOTrainer": "hf_credit.trainers.replay_loo",
    "RunSettings": "hf_credit.trainers.config",
    "TruncatedPPOConfig": "hf_credit.trainers.truncated_ppo",
    "TruncatedPPOTrainer": "hf_credit.trainers.truncated_ppo",
    "VerifiableProcessConfig": "hf_credit.trainers.verifiable_process",
    "VerifiableProcessTrainer": "hf_credit.trainers.verifiable_process",
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


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"hf_credit.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'hf_credit' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES, *_PACKAGES])
