"""Collectors: which walks to make for a batch of task rows."""

from hf_credit.collectors.base import Collector, Group, Rollout, RolloutBatch, Single, Tree, single_or_group
from hf_credit.collectors.contexts import VisitedContexts
from hf_credit.collectors.continuations import Continuations, continuation_values
from hf_credit.collectors.forks import RandomForks, UncertainForks, fork, tree_numbers
from hf_credit.collectors.removals import Removals
from hf_credit.collectors.verified import Verified
from hf_credit.deprecated import renamed

__all__ = [
    "Collector",
    "Continuations",
    "Group",
    "RandomForks",
    "Removals",
    "Rollout",
    "RolloutBatch",
    "Single",
    "Tree",
    "UncertainForks",
    "Verified",
    "VisitedContexts",
    "continuation_values",
    "fork",
    "single_or_group",
    "tree_numbers",
]

_CVT = ("AuditedSteps", "context_values", "counterfactual", "step_features")

__getattr__ = renamed(
    __name__,
    {"Collected": "RolloutBatch", "Sample": "Rollout"},
    moved=dict.fromkeys(_CVT, "hf_credit.methods.cvt"),
)
