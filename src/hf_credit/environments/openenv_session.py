"""A session with an OpenEnv server: a live world, what is said in it, and going on from a state of the server's."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hf_credit.environments.sessions import FullError
from hf_credit.environments.tool_calls import read_calls

T = TypeVar("T")

MOST_BYTES = 2**24
"""Of a message."""

_MOST_STATE = 2**20  # characters of a state that is kept, so that an episode can be gone on from it
_UNREAD = ("done", "metadata", "reward")  # of an observation: not for the agent
_CODE = re.compile(r"\(code: ([A-Z_]+)\)$")


class ServerError(RuntimeError):
    """The server says that something went wrong."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class OpenEnvWorld:
    """One session with a server.

    Args:
        client: openenv's, connected.
        action_field: of an action that takes its text; `None` where the server has tools.
        observation_field: of an observation that is shown; if `None`, the only one, or all as JSON.
        most_characters: of an observation that are shown.
    """

    def __init__(
        self, client: Any, action_field: str | None, observation_field: str | None, most_characters: int
    ) -> None:
        self.client = client
        self.action_field = action_field
        self.observation_field = observation_field
        self.most_characters = most_characters

    def reset(self, task: Mapping[str, Any], seed: int) -> str:
        return self.shown(asked(lambda: self.client.reset(**task, seed=seed)))

    def step(self, action: str) -> tuple[str, float, bool, Mapping[str, Any]]:
        payload = self._payload(action)
        if payload is None:
            return "", 0.0, True, {}
        try:
            result = asked(lambda: self.client.step(payload))
        except ServerError as error:
            if error.code != "VALIDATION_ERROR":
                raise
            return "Error: the environment does not take this action.", 0.0, False, {"refused": True}
        return self.shown(result), _reward(result.reward), bool(result.done), {}

    def close(self) -> None:
        self.client.close()

    def shown(self, result: Any) -> str:
        """What an agent is shown of an answer, within limits."""
        text = _text_of(result.observation, self.observation_field).encode("utf-8", errors="replace").decode("utf-8")
        if len(text) <= self.most_characters:
            return text
        return f"{text[: self.most_characters]}\n[{len(text) - self.most_characters} more characters]"

    def _payload(self, action: str) -> dict[str, Any] | None:
        """The action as the server takes it; `None` of an answer in words, which one with tools is not told."""
        if self.action_field is not None:
            return {self.action_field: action}
        calls = read_calls(action)
        return {"type": "call_tool", "tool_name": calls[0][0], "arguments": calls[0][1]} if calls else None


class RestoredWorld(OpenEnvWorld):
    """The same, of a server that goes on from what its state was."""

    def snapshot(self) -> str:
        """The server's state; empty where it is too large to be kept with every state of an episode."""
        text = json.dumps(asked(self.client.state))
        return text if len(text) <= _MOST_STATE else ""

    def restore(self, snapshot: str) -> str | None:
        """What the server shows of a state that it was given; `None` where it says that it stands elsewhere."""
        given = json.loads(snapshot)
        try:
            result = asked(lambda: self.client.reset(injected_state=given))
            stands = asked(self.client.state)
        except ServerError:
            return None
        return self.shown(result) if {**stands, "episode_id": None} == {**given, "episode_id": None} else None


@functools.cache
def session_type() -> Any:
    """openenv's client, for as long as its connection lasts.

    openenv's own connects anew where a connection was lost, and so would step in an episode that nobody has begun.
    """
    try:
        from openenv.core import GenericEnvClient
    except ImportError as error:
        raise ValueError(
            "OpenEnv environments need the package openenv, got none; install hf-credit[openenv]."
        ) from error

    class OneSession(GenericEnvClient):  # type: ignore[misc]
        begun = False

        async def _connect_async(self) -> Any:
            if not self.begun:
                await super()._connect_async()
                self.begun = True
            elif self._ws is None:
                raise ConnectionError(f"the session with {self.base_url} was lost")
            return self  # one that is closed may hold a last message, that the server is full, say

    return OneSession


def asked(ask: Callable[[], T]) -> T:
    """What a client answers; what it raises, as what it means here.

    Raises:
        FullError: the server has no room.
        ConnectionError: the session is lost.
        TimeoutError: there was no answer in time.
        ServerError: the server says that something went wrong.
    """
    from websockets.exceptions import ConnectionClosed

    try:
        return ask()
    except ConnectionClosed as error:
        raise ConnectionError(f"the session was lost: {error}"[:500]) from None
    except TimeoutError:
        raise TimeoutError("the server did not answer in time; raise timeout.") from None
    except RuntimeError as error:
        code = _CODE.search(str(error))
        if code is None:
            raise
        if code[1] == "CAPACITY_REACHED":
            raise FullError(str(error).removeprefix("Server error: ")[:500]) from None
        raise ServerError(str(error).removeprefix("Server error: ")[:500], code[1]) from None


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


def _reward(reward: Any) -> float:
    if reward is None:
        return 0.0
    if not isinstance(reward, bool | int | float) or not math.isfinite(reward):
        raise ValueError(f"a reward must be a finite number, got {str(reward)[:100]}; mend the server.")
    return float(reward)
