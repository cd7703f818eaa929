"""A session with an OpenEnv server: a live world, what its answers mean, and going on from a state of the server's."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from hf_credit.environments.openenv_text import reward_of
from hf_credit.environments.sessions import FullError

T = TypeVar("T")

MOST_BYTES = 2**24
"""Of a message."""

_MOST_STATE = 2**20  # characters of a state that is kept, so that an episode can be gone on from it
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
        payload: the action that a text stands for; `None` of one that the server is not told.
        shown: the text of an observation.
    """

    def __init__(
        self, client: Any, payload: Callable[[str], dict[str, Any] | None], shown: Callable[[Any], str]
    ) -> None:
        self.client = client
        self.payload = payload
        self.shown = shown

    def reset(self, task: Mapping[str, Any], seed: int) -> str:
        return self.shown(asked(lambda: self.client.reset(**task, seed=seed)).observation)

    def step(self, action: str) -> tuple[str, float, bool, Mapping[str, Any]]:
        payload = self.payload(action)
        if payload is None:
            return "", 0.0, True, {}
        try:
            result = asked(lambda: self.client.step(payload))
        except ServerError as error:
            if error.code != "VALIDATION_ERROR":
                raise
            return "Error: the environment does not take this action.", 0.0, False, {"refused": True}
        return self.shown(result.observation), reward_of(result.reward), bool(result.done), {}

    def close(self) -> None:
        self.client.close()


class RestoredWorld:
    """The same, of a server that goes on from what its state was.

    Args:
        world: the session.
    """

    def __init__(self, world: OpenEnvWorld) -> None:
        self.world = world
        self.reset, self.step, self.close = world.reset, world.step, world.close

    def snapshot(self) -> str:
        """The server's state; empty where it is too large to be kept with every state of an episode."""
        text = json.dumps(asked(self.world.client.state))
        return text if len(text) <= _MOST_STATE else ""

    def restore(self, snapshot: str) -> str | None:
        """What the server shows of a state that it was given; `None` where it says that it stands elsewhere."""
        given = json.loads(snapshot)
        try:
            result = asked(lambda: self.world.client.reset(injected_state=given))
            stands = asked(self.world.client.state)
        except ServerError:
            return None
        if {**stands, "episode_id": None} != {**given, "episode_id": None}:
            return None
        return self.world.shown(result.observation)


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
