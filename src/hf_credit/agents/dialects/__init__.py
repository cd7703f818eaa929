"""The dialects in which programs call a model. Each is a module and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hf_credit.agents.dialects.base import CREATED, Dialect, completion
from hf_credit.agents.dialects.chat_completions import ChatCompletions
from hf_credit.agents.dialects.messages import Messages
from hf_credit.agents.dialects.responses import Responses
from hf_credit.agents.formats import schema_of
from hf_credit.agents.white_lists import unheeded

__all__ = ["CREATED", "DIALECTS", "Dialect", "completion", "dialect_of", "read_call", "variables"]

DIALECTS: tuple[Dialect, ...] = (ChatCompletions(), Responses(), Messages())
"""All dialects; the first is that of errors where the caller's is not known."""


def dialect_of(path: str, headers: Mapping[str, str]) -> Dialect:
    """Returns the dialect of an address, or that of an error at another one."""
    own = (one for one in DIALECTS if one.reads(path))
    return next(own, next((one for one in DIALECTS if one.marker and one.marker in headers), DIALECTS[0]))


def read_call(dialect: Dialect, body: Any, path: str = "") -> tuple[dict[str, Any], int]:
    """Returns a call in the form of chat completions, and the number of its values without effect.

    Raises:
        RefusedCallError: the call has what training does not support.
    """
    ignored = unheeded(body, dialect.shape)
    call = dialect.request(body, path)
    choice = call.get("tool_choice")
    choice = choice.get("type") if isinstance(choice, Mapping) else choice
    call["format"] = schema_of(call.get("response_format"))
    call["most_calls"] = 0 if choice == "none" else 1 if call.get("parallel_tool_calls") is False else None
    return call, ignored + (choice not in (None, "auto", "none"))


def variables(base_url: str, key: str) -> dict[str, str]:
    """Returns the environment variables by which SDKs find the endpoint, with a run's key."""
    return {name: value for one in DIALECTS for name, value in one.variables(base_url, key).items()}
