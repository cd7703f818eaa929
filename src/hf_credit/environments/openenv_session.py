"""A session with an OpenEnv server: one live world, its messages, and restoring it from the server's own state."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from hf_credit.boundary import Worth, read
from hf_credit.environments.actions import calls_of
from hf_credit.environments.sessions import FullError
from hf_credit.optional_packages import needed
from hf_credit.words import cut

T = TypeVar("T")

MOST_BYTES = 2**24
"""The largest message."""

_MOST_STATE = 2**20  # characters of a snapshot: every state of an episode keeps one
_SCORED = "hf_credit_scored"  # the key of `scored` in snapshots
_NOT_SHOWN = ("done", "metadata", "reward")  # fields of an observation that are not for the agent
_CODE = re.compile(r"\(code: ([A-Z_]+)\)$")


class ServerError(RuntimeError):
    """The server reported an error, with its `code`."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(eq=False)
class OpenEnvWorld:
    """One session with a server."""

    client: Any  # a connected client of openenv
    action_field: str | None  # the field of an action that takes the text; `None` if the server has tools
    # the field of an observation that the agent sees; if `None`, the only one, or all as JSON
    observation_field: str | None
    most_characters: int  # the longest observation; longer ones are cut
    scored: bool = False  # whether a reward of the episode was a number

    def reset(self, task: Mapping[str, Any], seed: int) -> str:
        self.scored = False
        return self.shown(request(lambda: self.client.reset(**task, seed=seed)))

    def step(self, action: str) -> tuple[str, float, bool, Mapping[str, Any]]:
        payload = self._payload(action)
        if payload is None:
            return "", 0.0, True, {"unscored": not self.scored}
        try:
            result = request(lambda: self.client.step(payload))
        except ServerError as error:
            if error.code != "VALIDATION_ERROR":
                raise
            facts = {"refused": True, "unscored": not self.scored}
            return "Error: the environment does not take this action.", 0.0, False, facts
        reward = read(Worth | bool | None, result.reward, "a reward of an OpenEnv server")
        self.scored |= reward is not None
        return self.shown(result), float(reward or 0.0), bool(result.done), {"unscored": not self.scored}

    def close(self) -> None:
        self.client.close()

    def shown(self, result: Any) -> str:
        """The observation of a result as text, cut to `most_characters`."""
        text = _text_of(result.observation, self.observation_field).encode("utf-8", errors="replace").decode("utf-8")
        return cut(text, self.most_characters)

    def _payload(self, action: str) -> dict[str, Any] | None:
        """The action in the server's form; `None` for an answer, which a server with tools does not receive."""
        if self.action_field is not None:
            return {self.action_field: action}
        calls = calls_of(action)
        return {"type": "call_tool", "tool_name": calls[0].name, "arguments": calls[0].arguments} if calls else None


class RestoredWorld(OpenEnvWorld):
    """A session with a server that can continue from its own earlier state."""

    def snapshot(self) -> str:
        """The server's state as JSON; empty if it is too large to keep with every state of an episode."""
        text = json.dumps({**request(self.client.state), _SCORED: self.scored})
        return text if len(text) <= _MOST_STATE else ""

    def restore(self, snapshot: str) -> str | None:
        """The observation in a restored state; `None` if the server then reports another state."""
        wanted = json.loads(snapshot)
        self.scored = wanted.pop(_SCORED, True)
        try:
            result = request(lambda: self.client.reset(injected_state=wanted))
            restored = request(self.client.state)
        except ServerError:
            return None
        return self.shown(result) if {**restored, "episode_id": None} == {**wanted, "episode_id": None} else None


@functools.cache
def session_type() -> Any:
    """openenv's client, limited to one connection.

    openenv's own client reconnects after a loss, and would then step in an episode that was never reset.
    """
    core = needed("OpenEnv environments need", "openenv.core", "openenv")

    class OneSession(core.GenericEnvClient):  # type: ignore[misc]
        begun = False

        async def _connect_async(self) -> Any:
            if not self.begun:
                await super()._connect_async()
                self.begun = True
            elif self._ws is None:
                raise ConnectionError(f"the session with {self.base_url} was lost")
            return self  # a closed connection may still hold a last message, for example that the server is full

    return OneSession


def request(send: Callable[[], T]) -> T:
    """The result of a call of the client, with openenv's exceptions translated.

    Raises:
        FullError: the server takes no further session.
        ConnectionError: the session is lost.
        TimeoutError: the server did not answer in time.
        ServerError: the server reported an error.
    """
    from websockets.exceptions import ConnectionClosed

    try:
        return send()
    except ConnectionClosed as error:
        raise ConnectionError(f"the session was lost: {error}"[:500]) from None
    except TimeoutError:
        raise TimeoutError("the server did not answer in time; raise timeout.") from None
    except RuntimeError as error:
        code = _CODE.search(str(error))
        if code is None:
            raise
        message = str(error).removeprefix("Server error: ")[:500]
        raise (FullError(message) if code[1] == "CAPACITY_REACHED" else ServerError(message, code[1])) from None


def action_fields(schema: Any) -> dict[str, dict[str, bool]]:
    """The fields of an action without `metadata`; for each, whether it is `text` and whether it is `required`."""
    action = schema.get("action") if isinstance(schema, dict) else None
    fields = action.get("properties") if isinstance(action, dict) else None
    if not isinstance(fields, dict) or not all(isinstance(field, dict) for field in fields.values()):
        raise ValueError(f"an OpenEnv server must describe its actions, got {str(schema)[:200]}; use another server.")
    required = action.get("required") or () if isinstance(action, dict) else ()
    return {
        name: {"text": field.get("type") == "string" and "const" not in field, "required": name in required}
        for name, field in fields.items()
        if name != "metadata"
    }


def text_field(fields: Mapping[str, Mapping[str, bool]], chosen: str | None) -> str:
    """The field that takes the action's text: `chosen`, or the only possible one."""
    texts = [name for name, field in fields.items() if field["text"]]
    required = [name for name, field in fields.items() if field["required"]]
    candidates = required or texts
    name = candidates[0] if chosen is None and len(candidates) == 1 else chosen
    if name is None or name not in texts or set(required) - {name}:
        listed = ", ".join(f"{name}{' (required)' if name in required else ''}" for name in fields) or "none"
        raise ValueError(
            f"an action must have exactly one text to fill in, got action_field={name!r} of the fields "
            f"{listed[:300]}; name the only required one, or use another server."
        )
    return name


def _text_of(observation: Any, field: str | None) -> str:
    if not isinstance(observation, dict):
        raise ValueError(f"an observation must be a mapping, got {str(observation)[:200]}; correct the server.")
    if field is not None:
        if field not in observation:
            listed = ", ".join(map(str, observation))[:300]
            raise ValueError(f"observation_field must be one of {listed}, got {field!r}; correct it.")
        return _plain_text(observation[field])
    if "tool_name" in observation and "result" in observation:
        return _tool_text(observation)
    shown = {name: value for name, value in observation.items() if name not in _NOT_SHOWN}
    if not shown:  # the first observation of a server with tools, whose text is in the metadata
        return _plain_text(observation.get("metadata") or "")
    return _plain_text(next(iter(shown.values())) if len(shown) == 1 else shown)


def _tool_text(observation: Mapping[str, Any]) -> str:
    error, result = observation.get("error"), observation["result"]
    if error:
        return f"Error: {_plain_text(error.get('message', error) if isinstance(error, dict) else error)}"
    content = result.get("content") if isinstance(result, dict) else None
    if isinstance(content, list) and all(isinstance(part, dict) and "text" in part for part in content):
        return "\n".join(str(part["text"]) for part in content)
    return _plain_text(result)


def _plain_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
