"""Measures of how accurate credit is, as functions of plain numbers and texts (paper C3, Appendices G, I, J and N).

They need no model and no episodes. `hf_credit.diagnostics.bucket_sampling` samples their inputs from a policy.
"""

from hf_credit.diagnostics.beliefs import BeliefDeviation as BeliefDeviation
from hf_credit.diagnostics.beliefs import BeliefPotential as BeliefPotential
from hf_credit.diagnostics.beliefs import CutQuality as CutQuality
from hf_credit.diagnostics.beliefs import belief_deviation as belief_deviation
from hf_credit.diagnostics.beliefs import belief_potential as belief_potential
from hf_credit.diagnostics.beliefs import cut_quality as cut_quality
from hf_credit.diagnostics.constraints import ConstraintViolation as ConstraintViolation
from hf_credit.diagnostics.constraints import DetectorErrors as DetectorErrors
from hf_credit.diagnostics.constraints import HackRate as HackRate
from hf_credit.diagnostics.constraints import KLCompliance as KLCompliance
from hf_credit.diagnostics.constraints import constraint_violation as constraint_violation
from hf_credit.diagnostics.constraints import detector_errors as detector_errors
from hf_credit.diagnostics.constraints import hack_rate as hack_rate
from hf_credit.diagnostics.constraints import kl_compliance as kl_compliance
from hf_credit.diagnostics.contribution import VoteContribution as VoteContribution
from hf_credit.diagnostics.contribution import free_rider_index as free_rider_index
from hf_credit.diagnostics.contribution import vote_contribution as vote_contribution
from hf_credit.diagnostics.evidence import EvidenceF1 as EvidenceF1
from hf_credit.diagnostics.evidence import evidence_f1 as evidence_f1
from hf_credit.diagnostics.fidelity import Fidelity as Fidelity
from hf_credit.diagnostics.fidelity import FidelityStatus as FidelityStatus
from hf_credit.diagnostics.fidelity import credit_fidelity as credit_fidelity
from hf_credit.diagnostics.fidelity import fidelity_interval as fidelity_interval
from hf_credit.diagnostics.fidelity import target_advantages as target_advantages
from hf_credit.diagnostics.influence import Influence as Influence
from hf_credit.diagnostics.influence import influence as influence
from hf_credit.diagnostics.influence import influence_by_chance as influence_by_chance
from hf_credit.diagnostics.influence import response_symbol as response_symbol
from hf_credit.diagnostics.interventions import InterventionValidity as InterventionValidity
from hf_credit.diagnostics.interventions import Overlap as Overlap
from hf_credit.diagnostics.interventions import PCCCFidelity as PCCCFidelity
from hf_credit.diagnostics.interventions import intervention_validity as intervention_validity
from hf_credit.diagnostics.interventions import overlap as overlap
from hf_credit.diagnostics.interventions import pccc_fidelity as pccc_fidelity
from hf_credit.diagnostics.success import mean_pass_at_k as mean_pass_at_k
from hf_credit.diagnostics.success import pass_at_k as pass_at_k
from hf_credit.diagnostics.success import pass_at_k_by_instance as pass_at_k_by_instance
from hf_credit.diagnostics.success import seed_averaged_difference as seed_averaged_difference
from hf_credit.diagnostics.taxonomy import Failure as Failure
from hf_credit.diagnostics.taxonomy import failure_category as failure_category
from hf_credit.diagnostics.variance import ContextVariance as ContextVariance
from hf_credit.diagnostics.variance import context_variance as context_variance
