"""A method with another collector, or with a truncation rule for its training episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hf_credit import collectors
from hf_credit.methods import t3
from hf_credit.methods.base import Method

PARTS = ("collector", "truncation")
"""Options of every method, unless the method defines an option of that name itself."""

Part = str | Mapping[str, Any]
"""A name, or a mapping with a `name` and its `options`."""


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
