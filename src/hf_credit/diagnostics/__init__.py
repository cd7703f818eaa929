"""Measures of how accurate credit is, as functions of plain numbers and texts (paper C3, Appendices G, I, J and N).

They need no model and no episodes. `hf_credit.diagnostics.bucket_sampling` samples their inputs from a policy.
"""

from hf_credit.diagnostics.beliefs import (
    BeliefDeviation,
    BeliefPotential,
    CutQuality,
    belief_deviation,
    belief_potential,
    cut_quality,
)
from hf_credit.diagnostics.constraints import (
    ConstraintViolation,
    DetectorErrors,
    HackRate,
    KLCompliance,
    constraint_violation,
    detector_errors,
    discounted_cost,
    hack_rate,
    kl_compliance,
)
from hf_credit.diagnostics.contribution import VoteContribution, free_rider_index, vote_contribution
from hf_credit.diagnostics.evidence import EvidenceF1, evidence_f1
from hf_credit.diagnostics.fidelity import (
    Fidelity,
    FidelityStatus,
    credit_fidelity,
    fidelity_interval,
    target_advantages,
)
from hf_credit.diagnostics.influence import Influence, influence, influence_by_chance, response_symbol
from hf_credit.diagnostics.interventions import (
    InterventionValidity,
    Overlap,
    PCCCFidelity,
    intervention_validity,
    overlap,
    pccc_fidelity,
)
from hf_credit.diagnostics.replays import ReplayBlock, ReplayGain, replay_gain
from hf_credit.diagnostics.success import (
    mean_pass_at_k,
    mean_score,
    pass_at_k,
    pass_at_k_by_instance,
    seed_averaged_difference,
)
from hf_credit.diagnostics.taxonomy import Failure, failure_category
from hf_credit.diagnostics.variance import ContextVariance, context_variance

__all__ = [
    "BeliefDeviation",
    "BeliefPotential",
    "ConstraintViolation",
    "ContextVariance",
    "CutQuality",
    "DetectorErrors",
    "EvidenceF1",
    "Failure",
    "Fidelity",
    "FidelityStatus",
    "HackRate",
    "Influence",
    "InterventionValidity",
    "KLCompliance",
    "Overlap",
    "PCCCFidelity",
    "ReplayBlock",
    "ReplayGain",
    "VoteContribution",
    "belief_deviation",
    "belief_potential",
    "constraint_violation",
    "context_variance",
    "credit_fidelity",
    "cut_quality",
    "detector_errors",
    "discounted_cost",
    "evidence_f1",
    "failure_category",
    "fidelity_interval",
    "free_rider_index",
    "hack_rate",
    "influence",
    "influence_by_chance",
    "intervention_validity",
    "kl_compliance",
    "mean_pass_at_k",
    "mean_score",
    "overlap",
    "pass_at_k",
    "pass_at_k_by_instance",
    "pccc_fidelity",
    "replay_gain",
    "response_symbol",
    "seed_averaged_difference",
    "target_advantages",
    "vote_contribution",
]
