"""CVT-RL: counterfactual credit of steps, under constraints (the paper CVT-RL).

In the order of the paper: `audits` judges every step (section 3.1); `audited_steps` draws steps and continues from
their replacements by `interventions` (section 3.2, Algorithm 1); `drawn_steps` and `contributions` estimate the
contribution of each (eqs. 4 to 6); `method` computes the reward, the advantage and the constraints (eqs. 2, 3, 7 and
10).
"""

from hf_credit.methods.cvt.audited_steps import REPLACEMENT as REPLACEMENT
from hf_credit.methods.cvt.audited_steps import AuditedSteps as AuditedSteps
from hf_credit.methods.cvt.audited_steps import Replacement as Replacement
from hf_credit.methods.cvt.audited_steps import counterfactual as counterfactual
from hf_credit.methods.cvt.audited_steps import replacement_of as replacement_of
from hf_credit.methods.cvt.audited_steps import step_features as step_features
from hf_credit.methods.cvt.audits import audit_of as audit_of
from hf_credit.methods.cvt.audits import audited as audited
from hf_credit.methods.cvt.audits import verified_success as verified_success
from hf_credit.methods.cvt.interventions import Branches as Branches
from hf_credit.methods.cvt.interventions import Gate as Gate
from hf_credit.methods.cvt.interventions import branches as branches
from hf_credit.methods.cvt.method import BASELINES as BASELINES
from hf_credit.methods.cvt.method import FAMILIES as FAMILIES
from hf_credit.methods.cvt.method import LIMITS as LIMITS
from hf_credit.methods.cvt.method import PAPER as PAPER
from hf_credit.methods.cvt.method import ConstrainedCounterfactual as ConstrainedCounterfactual
from hf_credit.methods.cvt.method import Constraints as Constraints
from hf_credit.methods.cvt.method import constrained_counterfactual as constrained_counterfactual
