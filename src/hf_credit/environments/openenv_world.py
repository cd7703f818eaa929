"""Any OpenEnv server as an environment whose states are values. Nothing of it is installed; its text is data."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any
from urllib.parse import urlsplit

from hf_credit.environments import openenv_session
from hf_credit.environments.actions import tag
from hf_credit.environments.openenv_session import MOST_BYTES, ServerError, request
from hf_credit.environments.replayed import ReplayedEnvironment, ReplayedState, World
from hf_credit.replies import spoken
from hf_credit.validators import finite_number, is_loopback, whole_number

logger = logging.getLogger(__name__)

_MOST_TOOLS = 128
_PLAYED_SEEDS = 2
_PROBED_SEEDS = 16  # with fewer, a server that ignores the seed and has few starts is repeatable too often by chance
_PROBE_SECONDS = 5.0  # a slower server starts fewer episodes
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ANSWER = "I am done."


class OpenEnvEnvironment(ReplayedEnvironment):
    """An environment behind an OpenEnv server, played over sessions.

    A state is the task, the seeds and the actions so far, with digests of the observations. A state without a live
    session is restored: from the server's own state if `set_state` is declared and the probe confirmed it, else by
    playing the actions again and comparing what they show. At construction two seeds are played twice with the same
    actions, and up to 14 more are started twice, for at most five seconds. If anything differs, the environment is not
    `replayable`, and methods that replay refuse it. Most differences that the probe misses show in the comparison,
    which ends an episode as an error.

    The server takes one text, or has tools behind MCP. With tools, a reply with one call runs it, and a reply without
    one ends the episode. Otherwise the action is in the last action tag of a reply, or is the whole reply. Outcome:
    the sum of the rewards.

    Args:
        url: the server, `https://...` or `http://...`.
        action_field: the field of an action that takes the text; if `None`, the only required one.
        observation_field: the field of an observation that the agent sees; if `None`, the only one, or all as JSON.
        task: the arguments of `reset` besides `seed`, and so the columns of a task row; its values are used by the
            probe and for tasks that are not rows of a dataset.
        turns: the most actions of an episode.
        instructions: the text before the first observation, if instructions are shown; `None` for the action format.
        tagged: whether an action is in an action tag; otherwise it is the whole reply, without its thoughts.
        probe: actions that are played at construction, in order, and serve as examples.
        set_state: whether the server declares that `reset(injected_state=...)` continues from an earlier `state`.
        sessions: the most live sessions; fewer if the server takes fewer.
        timeout: seconds to wait for an answer, at least 1.
        most_characters: the longest observation, at least 1 character; longer ones are cut.
        token_variable: the environment variable with the token of a private Space.

    Raises:
        ValueError: an option is not possible, the server cannot be reached, or its actions are not text.
    """

    name = "openenv"
    instructions = ""
    longest_action = 65_536

    def __init__(
        self,
        url: str,
        action_field: str | None = None,
        observation_field: str | None = None,
        task: Mapping[str, Any] | None = None,
        turns: int = 16,
        instructions: str | None = None,
        tagged: bool = True,
        probe: Sequence[str] = ("look",),
        set_state: bool = False,
        sessions: int = 64,
        timeout: float = 60.0,
        most_characters: int = 16_384,
        token_variable: str | None = None,
    ) -> None:
        super().__init__(sessions, turns)
        if isinstance(probe, str) or not probe:
            raise ValueError(f"probe must be a list of actions to try, got {probe!r}; name one or more.")
        _refuse_url(url, token_variable)
        self.url = url.rstrip("/")
        self.observation_field = observation_field
        self.task = dict(task or {})
        self.task_columns = tuple(self.task)  # type: ignore[misc]  # each server has its own
        self.tagged = tagged
        self.probe = tuple(probe)
        self.set_state = set_state
        self.timeout = finite_number("timeout", timeout, least=1)
        self.most_characters = whole_number("most_characters", most_characters, 1)
        self.token_variable = token_variable
        fields = openenv_session.action_fields(self._schema())
        has_tools = {"tool_name", "arguments"} <= set(fields)
        self.action_field = None if has_tools else openenv_session.text_field(fields, action_field)
        self.tools = self._listed_tools() if has_tools else ()
        self.instructions = self._action_format() if instructions is None else instructions
        self.restores = set_state
        self.repeats = self._repeats()
        self.restores = set_state and self._is_restored()
        self.replayable = self.repeats or self.restores
        if not self.replayable:
            logger.warning(
                "%s does not repeat itself: the same seed and actions gave another episode. Methods that replay "
                "refuse it.",
                url,
            )
        self.close()

    def sample_task(self, seed: int) -> dict[str, Any]:
        return dict(self.task)

    def open_world(self) -> World:
        # The world holds no reference to this environment, so that both are collected together.
        kind = openenv_session.RestoredWorld if self.restores else openenv_session.OpenEnvWorld
        return kind(self._client(), self.action_field, self.observation_field, self.most_characters)

    # Replies

    def read_action(self, reply: str) -> str:
        return super().read_action(reply) if self.tools or self.tagged else spoken(reply).strip()

    def write_action(self, action: str) -> str:
        return super().write_action(action) if self.tools or self.tagged else action

    def examples(self, state: ReplayedState) -> Sequence[str]:
        return (*self.probe, _ANSWER) if self.tools else self.probe

    def _action_format(self) -> str:
        if self.tools:
            return "Use the tools. A reply without a tool call is your answer and ends the task."
        return f"Reply with your action as {tag('...')}." if self.tagged else "Your whole reply is your action."

    # The server

    def _schema(self) -> Any:
        import requests  # slow to import

        address = re.sub("^ws", "http", self.url)
        try:
            with requests.get(
                f"{address}/schema", timeout=self.timeout, headers=self._headers(), stream=True
            ) as answer:
                answer.raise_for_status()
                content = answer.raw.read(MOST_BYTES + 1, decode_content=True)
            if len(content) > MOST_BYTES:
                raise ValueError(f"more than {MOST_BYTES} bytes")
            return json.loads(content)
        except (requests.RequestException, OSError, ValueError, RecursionError) as error:
            raise ValueError(
                f"an OpenEnv environment must answer at its url, got {type(error).__name__} from {self.url!r} "
                f"({str(error)[:200]}); start the server, or wake the Space."
            ) from None

    def _headers(self) -> dict[str, str]:
        if self.token_variable is None:
            return {}
        if self.token_variable not in os.environ:
            raise ValueError(
                f"a private Space needs a token, got no environment variable {self.token_variable!r}; set it."
            )
        return {"Authorization": f"Bearer {os.environ[self.token_variable]}"}

    def _client(self) -> Any:
        client = openenv_session.session_type()(
            base_url=self.url,
            connect_timeout_s=self.timeout,
            message_timeout_s=self.timeout,
            max_message_size_mb=MOST_BYTES / 2**20,
            headers=self._headers(),
            mode="simulation",
        ).sync()
        try:
            client.connect()
            with suppress(ServerError):  # some servers have no state before the first reset
                request(client.state)  # a full server refuses the first message
        except BaseException:
            with suppress(Exception):
                client.close()
            raise
        return client

    def _listed_tools(self) -> tuple[Mapping[str, Any], ...]:
        client = self._client()
        try:
            listed = request(lambda: client.step({"type": "list_tools"})).observation.get("tools") or []
        finally:
            client.close()
        if not 0 < len(listed) <= _MOST_TOOLS or not all(_TOOL_NAME.fullmatch(str(one.get("name"))) for one in listed):
            raise ValueError(
                f"a server must have 1 to {_MOST_TOOLS} tools with plain names, got {str(listed)[:200]} from "
                f"{self.url!r}; use another server."
            )
        return tuple(
            {
                "type": "function",
                "function": {
                    "name": one["name"],
                    "description": str(one.get("description", ""))[: self.most_characters],
                    "parameters": one.get("input_schema") or {"type": "object", "properties": {}},
                },
            }
            for one in listed
        )

    # The probe

    def _probed(self, seed: int) -> list[ReplayedState]:
        states = [self.initial_state(self.task, seed)]
        for action in self.probe:
            if states[-1].status == "active":
                states.append(self.step(states[-1], action).state)
        return states

    def _repeats(self) -> bool:
        """Whether seeds and actions give the same observations in two sessions, and further seeds the same start."""
        if any(self._probed(seed)[-1].seen != self._probed(seed)[-1].seen for seed in range(_PLAYED_SEEDS)):
            return False
        latest = time.monotonic() + _PROBE_SECONDS
        for seed in range(_PLAYED_SEEDS, _PROBED_SEEDS):
            if time.monotonic() > latest:
                break
            if self._start(seed) != self._start(seed):
                return False
        return True

    def _start(self, seed: int) -> tuple[str, ...]:
        """The first observation's digest; the session is free afterwards."""
        state = self.initial_state(self.task, seed)
        session = self._live.take(state.past)
        if session is not None:
            self._live.give(session, None)
        return state.seen

    def _is_restored(self) -> bool:
        """Whether the server continues from an earlier state as it did before: at the start, and after an action."""
        for before, after in pairwise(self._probed(seed=0)):
            session = self._from_snapshot(before) if before.snapshot else None
            if session is None:
                logger.warning("%s declares set_state, but does not restore a state.", self.url)
                return False
            self._live.give(session, before.past)
            if self.step(before, after.actions[-1]).state.seen != after.seen:
                logger.warning("%s declares set_state, but continues differently from a restored state.", self.url)
                return False
        return True


def _refuse_url(url: str, token_variable: str | None) -> None:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
        raise ValueError(
            f"url must be that of an OpenEnv server, got {url!r}; write https://OWNER-SPACE.hf.space, or use "
            "hf_credit.hub.environments.load_environment for the name of a Space."
        )
    if parts.username or parts.password:
        raise ValueError(
            "url must hold no password, got one; put a token into an environment variable and name it token_variable."
        )
    if token_variable is not None and parts.scheme in ("http", "ws") and not is_loopback(parts.hostname):
        raise ValueError(f"a token is sent over https only, got {url!r}; use https.")
