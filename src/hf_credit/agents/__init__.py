"""Programs that call a model through an SDK of OpenAI or Anthropic, as tasks: each call is a decision.

Imports nothing heavy: the process that is forked for every run imports this module and the program.
"""

from __future__ import annotations

from typing import Any

from hf_credit.agents.program import Agent, Model, agent

__all__ = ["Agent", "AgentInteraction", "AgentState", "Model", "agent"]


def __getattr__(name: str) -> Any:
    if name in ("AgentInteraction", "AgentState"):
        from hf_credit.agents import interaction

        return getattr(interaction, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
