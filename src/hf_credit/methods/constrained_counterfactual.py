"""The former module of CVT-RL, now a package: `hf_credit.methods.cvt`."""

from hf_credit.deprecated import renamed

_MOVED = (
    "BASELINES",
    "ESTIMATORS",
    "FAMILIES",
    "LIMITS",
    "OUTCOMES",
    "PAPER",
    "ConstrainedCounterfactual",
    "Constraints",
    "constrained_counterfactual",
)

__getattr__ = renamed(__name__, {}, moved=dict.fromkeys(_MOVED, "hf_credit.methods.cvt"))
