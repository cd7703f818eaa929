"""Any OpenEnv server as an environment whose states are values: nothing of it is installed, its words are data."""

from __future__ import annotations

import ipaddress
import itertools
import json
import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar
from urllib.parse import urlsplit

from hf_credit.environments.actions import spelled_action, tag
from hf_credit.environments.openenv_session import (
    MOST_BYTES,
    OpenEnvWorld,
    RestoredWorld,
    ServerError,
    action_fields,
    asked,
    session_type,
    text_field,
)
from hf_credit.environments.replayed import ReplayedEnvironment, ReplayedState, World
from hf_credit.environments.tool_calls import has_mark, marked, one_action, read_calls

logger = logging.getLogger(__name__)

_MOST_TOOLS = 128
_PLAYED_SEEDS = 2
_PROBED_SEEDS = 16  # of few starts that are drawn whatever the seed, two are equal too often to tell by fewer
_PROBE_SECONDS = 5.0  # beyond which a slow server is asked for no more starts
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ANSWER = "I am done."


class OpenEnvEnvironment(ReplayedEnvironment):
    """An environment behind an OpenEnv server, played over sessions of its own.

    A state is the task, the seeds and the actions so far, with digests of what was shown. Where its session is gone or
    has gone on, it is restored: from the server's own state, where `set_state` is declared and was found true; else by
    the same actions, and what they show is compared. At construction two seeds are played twice with the same actions
    and up to 14 more started twice, for five seconds at most; what differs is not `replayable`, and methods that
    replay refuse it. Much that cannot be seen in so few steps is seen in the comparison, which ends an episode as an
    error.

    The server has one text to be filled in, or tools behind MCP. With tools a reply with one call takes it, and a
    reply without one ends the episode. Otherwise the action is in the last action tag of a reply, or the whole reply.
    Outcome: the sum of the rewards.

    Args:
        url: of the server, `https://...`, or `http://...`.
        action_field: of the action that takes the text; the only one that is needed if `None`.
        observation_field: of the observation that the agent is shown; if `None`, the only one, or all as JSON.
        task: what `reset` gets beside `seed`, and so the columns of a task row; its values are those of the probe, and
            of tasks that are not rows of a dataset.
        turns: the most actions of an episode.
        instructions: shown before the first observation, if instructions are shown; `None` says how to act.
        tagged: whether an action stands in an action tag; otherwise it is all of a reply, without its thoughts.
        probe: actions that are played at construction, in turn, and shown as examples.
        set_state: whether the server declares that `reset(injected_state=...)` goes on from what `state` was.
        sessions: the most live sessions; fewer where the server has room for fewer.
        timeout: seconds to wait for an answer.
        most_characters: of an observation that are shown.
        token_variable: the environment variable with the token of a private Space.

    Raises:
        ValueError: an option is not possible, the server cannot be reached, or its actions are no text; in one
            sentence.
    """

    name = "openenv"
    task_columns: ClassVar[tuple[str, ...]] = ()
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
        for option, value in (("most_characters", most_characters), ("timeout", timeout)):
            if not (isinstance(value, int | float) and value >= 1):
                raise ValueError(f"{option} must be at least 1, got {value!r}; raise it.")
        if isinstance(probe, str) or not probe:
            raise ValueError(f"probe must be a list of actions to try, got {probe!r}; name one or more.")
        _refuse_url(url, token_variable)
        self.url = url.rstrip("/")
        self.observation_field = observation_field
        self.task = dict(task or {})
        self.task_columns = tuple(self.task)  # type: ignore[misc]  # each server has tasks of its own
        self.tagged = tagged
        self.probe = tuple(probe)
        self.set_state = set_state
        self.timeout = timeout
        self.most_characters = most_characters
        self.token_variable = token_variable
        fields = action_fields(self._schema())
        self.calls_tools = {"tool_name", "arguments"} <= set(fields)
        self.action_field = None if self.calls_tools else text_field(fields, action_field)
        self.unreadable = (
            "No tool call could be read in the last reply: one call a turn, as JSON."
            if self.calls_tools
            else ReplayedEnvironment.unreadable
        )
        self._instructions = self._how_to_act() if instructions is None else instructions
        self.tools = self._listed_tools() if self.calls_tools else ()
        self.restores = set_state
        self.repeats = self._repeats()
        self.restores = set_state and self._is_restored()
        self.replayable = self.repeats or self.restores
        if not self.replayable:
            logger.warning(
                "%s does not repeat itself: the same seed and actions led elsewhere. Methods that replay refuse it.",
                url,
            )
        self.close()

    @property
    def instructions(self) -> str:
        return self._instructions

    def sample_task(self, seed: int) -> dict[str, Any]:
        return dict(self.task)

    def open_world(self) -> World:
        # The world knows nothing of this environment, which is gone, with its sessions, when nobody has it any more.
        kind = RestoredWorld if self.restores else OpenEnvWorld
        return kind(self._client(), self.action_field, self.observation_field, self.most_characters)

    # Replies

    def read_action(self, reply: str) -> str:
        if self.calls_tools:
            return one_action(reply)
        return (spelled_action(reply) or "") if self.tagged else reply.rpartition("</think>")[2].strip()

    def write_action(self, action: str) -> str:
        if self.calls_tools:
            return marked(action) if read_calls(action) else action
        return tag(action) if self.tagged else action

    def understands(self, state: ReplayedState, action: str) -> bool:
        return not (self.calls_tools and has_mark(action))

    def answers_as(self, action: str) -> str:
        return "tool" if self.calls_tools and read_calls(action) else "user"

    def examples(self, state: ReplayedState) -> Sequence[str]:
        return (*self.probe, _ANSWER) if self.calls_tools else self.probe

    def _how_to_act(self) -> str:
        if self.calls_tools:
            return "Use the tools. A reply without a tool call is your answer and ends the task."
        return f"Reply with your action as {tag('...')}." if self.tagged else "Your whole reply is your action."

    # The server

    def _schema(self) -> Any:
        import requests  # takes a moment, which only those who play over the network should wait

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
        """A session of its own.

        Raises:
            FullError: the server has no room for it.
            ConnectionError: it cannot be reached.
        """
        client = session_type()(
            base_url=self.url,
            connect_timeout_s=self.timeout,
            message_timeout_s=self.timeout,
            max_message_size_mb=MOST_BYTES / 2**20,
            headers=self._headers(),
            mode="simulation",
        ).sync()
        try:
            client.connect()
            with suppress(ServerError):  # not every server has a state before its first reset
                asked(client.state)  # one that is full says so to the first message
        except BaseException:
            with suppress(Exception):
                client.close()
            raise
        return client

    def _listed_tools(self) -> tuple[Mapping[str, Any], ...]:
        client = self._client()
        try:
            listed = asked(lambda: client.step({"type": "list_tools"})).observation.get("tools") or []
        finally:
            client.close()
        if not 0 < len(listed) <= _MOST_TOOLS or not all(_TOOL_NAME.fullmatch(str(one.get("name"))) for one in listed):
            raise ValueError(
                f"a server must have 1 to {_MOST_TOOLS} tools with plain names, got {str(listed)[:200]} from "
                f"{self.url!r}; play another one."
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

    def _played(self, state: ReplayedState) -> tuple[str, ...]:
        """What the probe's actions show from a state on."""
        for action in self.probe:
            if state.status == "active":
                state = self.step(state, action).state
        return state.seen

    def _repeats(self) -> bool:
        """Whether the same seeds and actions show the same in two sessions, and more seeds the same start."""
        for seed in range(_PLAYED_SEEDS):
            first, second = (self._played(self.initial_state(self.task, seed)) for _ in range(2))
            if first != second:
                return False
        latest = time.monotonic() + _PROBE_SECONDS
        for seed in range(_PLAYED_SEEDS, _PROBED_SEEDS):
            if time.monotonic() > latest:
                break
            if self._start(seed) != self._start(seed):
                return False
        return True

    def _start(self, seed: int) -> tuple[str, ...]:
        """What is shown first, in a session that is free again afterwards."""
        state = self.initial_state(self.task, seed)
        session = self._live.take(state.past)
        if session is not None:
            self._live.give(session, None)
        return state.seen

    def _is_restored(self) -> bool:
        """Whether the server goes on from what its state was: at the start, and after an action."""
        start = self.initial_state(self.task, 0)
        states = [start]
        for action in self.probe:
            if states[-1].status == "active":
                states.append(self.step(states[-1], action).state)
        for before, after in itertools.pairwise(states):
            session = self._from_snapshot(before) if before.snapshot else None
            if session is None:
                logger.warning("%s declares set_state, but does not go on from the state it was given.", self.url)
                return False
            self._live.give(session, before.past)
            if self.step(before, after.actions[-1]).state.seen != after.seen:
                logger.warning("%s declares set_state, but goes on otherwise from the state it was given.", self.url)
                return False
        return True


def _refuse_url(url: str, token_variable: str | None) -> None:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https", "ws", "wss") or not parts.hostname:
        raise ValueError(
            f"url must be that of an OpenEnv server, got {url!r}; write https://OWNER-SPACE.hf.space, say, or take "
            "hf_credit.hub.environments.load_environment for the name of a Space."
        )
    if parts.username or parts.password:
        raise ValueError("url must hold no password, got one; put a token into the variable token_variable.")
    if token_variable is not None and parts.scheme in ("http", "ws") and not _is_loopback(parts.hostname):
        raise ValueError(f"a token is sent over https only, got {url!r}; use https.")


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
