"""CVT-RL: counterfactual credit of steps, under constraints (the paper CVT-RL).

In the order of the paper: `audits` judges every step (section 3.1); `audited_steps` draws steps and continues from
their replacements by `interventions` (section 3.2, Algorithm 1); `drawn_steps` and `contributions` estimate the
contribution of each (eqs. 4 to 6); `method` computes the reward, the advantage and the constraints (eqs. 2, 3, 7 and
10).
"""

from hf_credit.methods.cvt.audited_steps import (
    REPLACEMENT,
    AuditedSteps,
    Replacement,
    counterfactual,
    replacement_of,
    step_features,
)
from hf_credit.methods.cvt.audits import audit_of, audited, verified_success
from hf_credit.methods.cvt.interventions import Branches, Gate, branches
from hf_credit.methods.cvt.method import (
    BASELINES,
    FAMILIES,
    LIMITS,
    PAPER,
    ConstrainedCounterfactual,
    Constraints,
    constrained_counterfactual,
)

__all__ = [
    "BASELINES", "FAMILIES", "LIMITS", "PAPER", "REPLACEMENT", "AuditedSteps", "Branches", "ConstrainedCounterfactual",
    "Constraints", "Gate", "Replacement", "audit_of", "audited", "branches", "constrained_counterfactual",
    "counterfactual", "replacement_of", "step_features", "verified_success",
]  # fmt: skip
