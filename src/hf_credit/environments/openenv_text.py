"""What a text of an agent's stands for at an OpenEnv server, and what of a server's words an agent is shown."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from hf_credit.environments.tool_calls import read_calls

_UNREAD = ("done", "metadata", "reward")  # of an observation: not for the agent


def action_fields(schema: Any) -> dict[str, Any]:
    """The fields of an action, `metadata` apart; each with whether it is needed."""
    action = schema.get("action") if isinstance(schema, dict) else None
    fields = action.get("properties") if isinstance(action, dict) else None
    if not isinstance(fields, dict) or not all(isinstance(one, dict) for one in fields.values()):
        raise ValueError(f"an OpenEnv server must describe its actions, got {str(schema)[:200]}; play another one.")
    needed = action.get("required") or () if isinstance(action, dict) else ()
    return {
        name: {"text": one.get("type") == "string" and "const" not in one, "needed": name in needed}
        for name, one in fields.items()
        if name != "metadata"
    }


def text_field(fields: Mapping[str, Any], asked: str | None) -> str:
    """The field that takes the action."""
    texts = [name for name, one in fields.items() if one["text"]]
    needed = [name for name, one in fields.items() if one["needed"]]
    if asked is None:
        named = needed or texts
        asked = named[0] if len(named) == 1 else None
    if asked is None or asked not in texts or set(needed) - {asked}:
        listed = ", ".join(f"{name}{' (needed)' if name in needed else ''}" for name in fields) or "none"
        raise ValueError(
            f"an action must have one text to fill in, got action_field={asked!r} of the fields {listed[:300]}; "
            "name the only one that is needed, or play another environment."
        )
    return asked


def payload_of(field: str | None, action: str) -> dict[str, Any] | None:
    """The action as the server takes it; `None` of an answer, which one with tools (`field` is `None`) is not told."""
    if field is not None:
        return {field: action}
    calls = read_calls(action)
    if not calls:
        return None
    name, arguments = calls[0]
    return {"type": "call_tool", "tool_name": name, "arguments": arguments}


def shown(field: str | None, most_characters: int, observation: Any) -> str:
    """What an agent is shown of an observation, within limits."""
    text = _text_of(observation, field).encode("utf-8", errors="replace").decode("utf-8")
    if len(text) <= most_characters:
        return text
    return f"{text[:most_characters]}\n[{len(text) - most_characters} more characters]"


def _text_of(observation: Any, field: str | None) -> str:
    """What an agent is shown of an observation."""
    if not isinstance(observation, dict):
        raise ValueError(f"an observation must be a mapping, got {str(observation)[:200]}; mend the server.")
    if field is not None:
        if field not in observation:
            listed = ", ".join(map(str, observation))[:300]
            raise ValueError(f"observation_field must be one of {listed}, got {field!r}; correct it.")
        return _plain_text(observation[field])
    if "tool_name" in observation and "result" in observation:
        return _tool_text(observation)
    rest = {name: value for name, value in observation.items() if name not in _UNREAD}
    if not rest:  # as a server of tools begins: what it says, it says beside
        return _plain_text(observation.get("metadata") or "")
    return _plain_text(next(iter(rest.values())) if len(rest) == 1 else rest)


def _tool_text(observation: Mapping[str, Any]) -> str:
    error, result = observation.get("error"), observation["result"]
    if error:
        return f"Error: {_plain_text(error.get('message', error) if isinstance(error, dict) else error)}"
    content = result.get("content") if isinstance(result, dict) else None
    if isinstance(content, list) and all(isinstance(one, dict) and "text" in one for one in content):
        return "\n".join(str(one["text"]) for one in content)
    return _plain_text(result)


def _plain_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)


def reward_of(reward: Any) -> float:
    if reward is None:
        return 0.0
    if not isinstance(reward, bool | int | float) or not math.isfinite(reward):
        raise ValueError(f"a reward must be a finite number, got {str(reward)[:100]}; mend the server.")
    return float(reward)
