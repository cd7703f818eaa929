"""Programs that call a model through an SDK of OpenAI or Anthropic, as tasks: each call is a decision.

Imports nothing heavy: the process that is forked for every run imports this module and the program.
"""

from __future__ import annotations

from hf_credit.agents.program import Agent, Model, agent
from hf_credit.trust import on_demand

__all__ = ["Agent", "AgentInteraction", "AgentState", "Model", "agent"]

__getattr__, __dir__ = on_demand(__name__, {"interaction": ("AgentInteraction", "AgentState")})
