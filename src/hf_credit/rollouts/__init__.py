"""Rollouts: from a task to an episode of decisions, and from decisions to training rows."""

from hf_credit.rollouts.buckets import Alternative, alternatives
from hf_credit.rollouts.chat import Chat
from hf_credit.rollouts.engine import Engine
from hf_credit.rollouts.environment_interaction import EnvironmentInteraction, EnvironmentState
from hf_credit.rollouts.episode import Context, Decision, Ending, Episode, Verdict
from hf_credit.rollouts.failures import EveryEpisodeFailedError, refuse_total_failure
from hf_credit.rollouts.interaction import Interaction, Request
from hf_credit.rollouts.ledger import Ledger
from hf_credit.rollouts.method_context import CriticInput, LocalContext, MethodContext
from hf_credit.rollouts.replay import context_key, continued, replay_from
from hf_credit.rollouts.rows import Row, by_episode, decision_rows, sequence_mean
from hf_credit.rollouts.running import RolloutRequest
from hf_credit.rollouts.samplers import GenerateFn, Generation, SeededGenerateFn
from hf_credit.rollouts.verification import verify

__all__ = [
    "Alternative", "Chat", "Context", "CriticInput", "Decision", "Ending",
    "Engine", "EnvironmentInteraction", "EnvironmentState", "Episode", "EveryEpisodeFailedError", "GenerateFn",
    "Generation", "Interaction", "Ledger", "LocalContext", "MethodContext", "Request", "RolloutRequest", "Row",
    "SeededGenerateFn", "Verdict", "alternatives", "by_episode", "context_key", "continued", "decision_rows",
    "refuse_total_failure", "replay_from", "sequence_mean", "verify",
]  # fmt: skip
