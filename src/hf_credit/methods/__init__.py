"""Methods of the papers and their baselines. A method is a value: a collector, an estimator and, for some, critics."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Mapping
from typing import Any

from hf_credit import collectors
from hf_credit.methods import t3
from hf_credit.methods.base import Credit, CriticTargets, Estimator, Method
from hf_credit.options import check_options
from hf_credit.registry import Registry
from hf_credit.rollouts.rows import DecisionCredit, DecisionCredits

__all__ = [
    "METHODS", "Credit", "CriticTargets", "DecisionCredit", "DecisionCredits", "Estimator", "Method", "composed",
    "find", "known", "make", "summary",
]  # fmt: skip


METHODS = {
    "active_replay": "hf_credit.methods.active_replay:active_replay",
    "alive_baseline": "hf_credit.methods.turn_baselines:alive_baseline",
    "all_turns_baseline": "hf_credit.methods.turn_baselines:all_turns_baseline",
    "arew": "hf_credit.methods.arew:arew",
    "at2po": "hf_credit.methods.at2po:at2po",
    "carl": "hf_credit.methods.carl:carl",
    "constrained_counterfactual": "hf_credit.methods.cvt.method:constrained_counterfactual",
    "counterfactual_grpo": "hf_credit.methods.counterfactual_grpo:counterfactual_grpo",
    "draco": "hf_credit.methods.draco:draco",
    "gdpo": "hf_credit.methods.gdpo:gdpo",
    "gigpo": "hf_credit.methods.gigpo:gigpo",
    "grpo": "hf_credit.methods.grpo:grpo",
    "gspo": "hf_credit.methods.gspo:gspo",
    "hgpo": "hf_credit.methods.hgpo:hgpo",
    "igpo": "hf_credit.methods.igpo:igpo",
    "magrpo": "hf_credit.methods.magrpo:magrpo",
    "mappo": "hf_credit.methods.mappo:mappo",
    "maxrl": "hf_credit.methods.maxrl:maxrl",
    "mc_process_reward": "hf_credit.methods.verifiable_process:mc_process_reward",
    "mt_grpo": "hf_credit.methods.mt_grpo:mt_grpo",
    "outcome_reward": "hf_credit.methods.verifiable_process:outcome_reward",
    "ppo": "hf_credit.methods.ppo:ppo",
    "reinforce_plus_plus": "hf_credit.methods.reinforce_plus_plus:reinforce_plus_plus",
    "replay_loo": "hf_credit.methods.replay_loo:replay_loo",
    "rloo": "hf_credit.methods.rloo:rloo",
    "trace": "hf_credit.methods.trace:trace",
    "sepo": "hf_credit.methods.sepo:sepo",
    "tree_grpo": "hf_credit.methods.tree_grpo:tree_grpo",
    "turn_credit": "hf_credit.methods.turn_credit:turn_credit",
    "verifiable_process": "hf_credit.methods.verifiable_process:verifiable_process",
    "vineppo": "hf_credit.methods.vineppo:vineppo",
}

NAMED = Registry[Method](
    "method", METHODS, Method, "return Method(name=..., collector=..., estimator=...).", check=check_options
)
find, known = NAMED.find, NAMED.known

PARTS = ("collector", "truncation")
"""Options of every method, unless the method defines an option of that name itself."""

Part = str | Mapping[str, Any]
"""A name, or a mapping with a `name` and its `options`."""


def make(name: str, **options: Any) -> Method:
    """Returns the method `name` with the given options, as in `make("magrpo", group_size=16)`.

    Args:
        name: one of `METHODS`, an entry point of an installed package in the group `hf_credit.methods`, or
            `"package.module:factory"`, which is imported and must be trusted code.
        **options: options of the method; every method also takes `collector` and `truncation`, as for `composed`.

    Raises:
        ValueError: the name, an option or its value is invalid.
    """
    factory = find(name)
    others = [part for part in PARTS if part not in inspect.signature(factory).parameters]
    parts = {part: options.pop(part) for part in others if part in options}
    method = dataclasses.replace(NAMED.make(name, **options), name=name, options=options)
    return composed(method, **parts)


def composed(method: Method, collector: Part | None = None, truncation: Part | None = None) -> Method:
    """Returns the method with other parts, which its `spec` includes.

    Args:
        collector: replaces its collector, as for `hf_credit.collectors.make`. `Method.bind` rejects a collector that
            does not give what the estimator needs.
        truncation: the rule that cuts training episodes, as for `hf_credit.methods.t3.truncation`.

    Raises:
        ValueError: a name, an option or its value is invalid, or the method already has a truncation rule.
    """
    changed: dict[str, Any] = {}
    part_options: dict[str, Any] = {}
    if collector is not None:
        name, options = collectors.name_and_options("collector", collector)
        changed["collector"] = collectors.make(name, instead_of=method.collector, **options)
        part_options["collector"] = {"name": name, "options": options}
    if truncation is not None:
        if method.wrap is not None:
            raise ValueError(
                f"a method must have at most one truncation rule, got {truncation!r} for {method.name!r}, which has "
                "one; remove one of them."
            )
        name, options = collectors.name_and_options("truncation", truncation)
        changed["wrap"] = t3.truncation(name, **options)
        part_options["truncation"] = {"name": name, "options": options}
    if method.options is not None:
        changed["options"] = {**method.options, **part_options}
    return dataclasses.replace(method, **changed)


def summary(name: str) -> str:
    """Returns one sentence about the method `name`: the first of its module if that has one method, else of its
    factory.

    Raises:
        ValueError: the name is unknown.
    """
    factory = find(name)
    module = METHODS.get(name, name).partition(":")[0]
    alone = sum(path.startswith(f"{module}:") for path in METHODS.values()) == 1
    return (inspect.getdoc(sys.modules[module] if alone else factory) or "").partition("\n")[0]
