"""A method with other parts: another collector, and a rule that cuts what training plays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from hf_credit import collectors
from hf_credit.methods import t3
from hf_credit.methods.base import Method

PARTS = ("collector", "truncation")
"""Options that every method has, unless it has one of that name itself."""

Part = str | Mapping[str, Any]
"""A name, or a mapping of a `name` and its `options`."""


def composed(method: Method, collector: Part | None = None, truncation: Part | None = None) -> Method:
    """The method with other parts, which its `spec` then holds too.

    Args:
        method: whose credit it is.
        collector: plays in place of the method's own, as for `hf_credit.collectors.make`. `Method.bind` refuses one
            that does not give what the estimator needs.
        truncation: the rule that cuts episodes in training, as for `hf_credit.methods.t3.truncation`.

    Raises:
        ValueError: a name, an option or its value is not possible, or the method has a rule already.
    """
    changed: dict[str, Any] = {}
    noted: dict[str, Any] = {}
    if collector is not None:
        name, options = collectors.name_and_options("collector", collector)
        changed["collector"] = collectors.make(name, instead_of=method.collector, **options)
        noted["collector"] = {"name": name, "options": options}
    if truncation is not None:
        if method.wrap is not None:
            raise ValueError(
                f"a method has one rule that cuts, got {truncation!r} for {method.name!r}, which has one; leave one "
                "of them out."
            )
        name, options = collectors.name_and_options("truncation", truncation)
        changed["wrap"] = t3.truncation(name, **options)
        noted["truncation"] = {"name": name, "options": options}
    if method.options is not None:
        changed["options"] = {**method.options, **noted}
    return dataclasses.replace(method, **changed)
