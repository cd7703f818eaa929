"""Collectors choose which episodes an update plays for a batch of task rows."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from hf_credit.collectors.answers import Answers
from hf_credit.collectors.base import Collector, Group, Rollout, RolloutBatch, Single, Tree, Verified, single_or_group
from hf_credit.collectors.forks import (
    Continuations,
    RandomForks,
    UncertainForks,
    VisitedContexts,
    continuation_values,
    fork,
    tree_numbers,
)
from hf_credit.collectors.ratings import Ratings
from hf_credit.collectors.removals import Removals
from hf_credit.options import check_options
from hf_credit.registry import Registry, name_and_options

__all__ = [
    "COLLECTORS", "Answers", "Collector", "Continuations", "Group", "RandomForks", "Ratings", "Removals", "Rollout",
    "RolloutBatch", "Single", "Tree", "UncertainForks", "Verified", "VisitedContexts", "continuation_values", "fork",
    "make", "name_and_options", "single_or_group", "tree_numbers",
]  # fmt: skip


COLLECTORS = {
    "answers": "hf_credit.collectors.answers:Answers",
    "continuations": "hf_credit.collectors.forks:Continuations",
    "group": "hf_credit.collectors.base:Group",
    "random_forks": "hf_credit.collectors.forks:RandomForks",
    "ratings": "hf_credit.collectors.ratings:Ratings",
    "removals": "hf_credit.collectors.removals:Removals",
    "single": "hf_credit.collectors.base:Single",
    "tree": "hf_credit.collectors.base:Tree",
    "uncertain_forks": "hf_credit.collectors.forks:UncertainForks",
    "verified": "hf_credit.collectors.base:Verified",
    "visited_contexts": "hf_credit.collectors.forks:VisitedContexts",
}

NAMED = Registry[Collector]("collector", COLLECTORS, Collector, "derive yours from it.", check=check_options)


def make(name: str, *, instead_of: Collector | None = None, **options: Any) -> Collector:
    """Returns the collector called `name`, with its options: `make("tree", fanout=[2, 2])`.

    Args:
        name: one of `COLLECTORS`, the entry point of an installed package in the group `hf_credit.collectors`, or
            `"package.module:Class"`, which is imported and must be code that you trust.
        instead_of: the collector that it replaces, which provides `inner` and `oracle` if the options lack them.
        **options: of the collector. `inner` is a collector, a name, or a mapping of a `name` and its `options`.

    Raises:
        ValueError: the name, an option or its value is invalid.
    """
    factory: Any = NAMED.find(name)
    replaced: Any = instead_of
    parameters = inspect.signature(factory).parameters
    if "inner" in parameters:
        inner: Any = options.get("inner", replaced)
        same_class = isinstance(factory, type) and isinstance(replaced, factory)
        if inner is replaced and same_class:
            inner = replaced.inner  # replaces it instead of wrapping it
        if isinstance(inner, str | Mapping):
            inner_name, inner_options = name_and_options("inner", inner)
            inner = make(inner_name, **inner_options)
        options |= {} if inner is None else {"inner": inner}
    if "oracle" in parameters and "oracle" not in options and hasattr(replaced, "oracle"):
        options["oracle"] = replaced.oracle
    return NAMED.make(name, **options)
