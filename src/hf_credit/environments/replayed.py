"""Worlds that cannot be copied, as environments whose state is a value: the task, the seeds and the actions so far.

A game behind a socket, a shell or a simulator has a state that nobody can hold. What can be held is how it came
about. `ReplayedEnvironment` keeps that, with what was seen on the way, and looks after the live worlds behind it: a
state whose world is still live goes on in it, any other is restored by playing its actions again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from hf_credit.environments.actions import spelled_action
from hf_credit.environments.base import Environment, State, Transition
from hf_credit.environments.sessions import Session, Sessions


class World(Protocol):
    """One live world. Any object with these three methods is one; nothing needs to be inherited.

    More are used where they are there. `reseed(seed)` gives a world that draws random numbers others from here on.
    `copy()` returns a second world in the same state. `legal_actions()` lists some or all actions. `snapshot()`
    returns a text from which `restore(text)`, called on any world, goes on: it returns what was shown last, or `None`
    if it cannot.

    One that raises `ConnectionError` is lost. Its state is restored in another, once, and the step taken there.
    """

    def reset(self, task: Mapping[str, Any], seed: int) -> str:
        """Begins a task, whatever was played before, and returns the first observation. `seed` drives all that is
        random: the same task and seed begin the same."""

    def step(self, action: str) -> tuple[str, float, bool, Mapping[str, Any]]:
        """Takes an action: observation, reward, whether the episode is over, and further facts.

        Of these, `"refused"` (True where the action meant nothing and nothing happened) and `"success"` (whether the
        task is done; by default whether it is over with a positive sum of rewards) are read.
        """

    def close(self) -> None:
        """Releases what the world holds."""


_Step = tuple[str, float, bool, Mapping[str, Any]]


class LostError(RuntimeError):
    """The world of an episode is gone, and does not repeat itself."""


class DivergedError(RuntimeError):
    """A world did not repeat itself when the same task, seeds and actions were played again."""


@dataclass(frozen=True, kw_only=True)
class ReplayedState(State):
    """How a world came to be where it is.

    Attributes:
        task: the task's columns, as JSON.
        seeds: (turn, seed) of the random numbers behind: the seed the world began with, at turn 0, and each that was
            given to it before an action. `seed` is of those ahead.
        actions: that the world has taken.
        seen: a digest of what the world showed at its start and after each action, for comparison.
        observation: what it showed last.
        unread: whether the last reply held no action, so that the world did not see it.
        total: the sum of the rewards.
        success: whether the task is done.
        snapshot: what the world can be restored from, if anything; no part of what is compared.
        walk: names the episode, where the world does not repeat itself: another of the same task and seeds stands
            elsewhere.
    """

    task: str
    seeds: tuple[tuple[int, int], ...]
    actions: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()
    observation: str = ""
    unread: bool = False
    total: float = 0.0
    success: bool = False
    snapshot: str = field(default="", compare=False)
    walk: str = ""

    @property
    def past(self) -> tuple[str, tuple[tuple[int, int], ...], tuple[str, ...], str]:
        """What the world has to be told to get here: by this, live worlds are found."""
        return self.task, self.seeds, self.actions, self.walk


class ReplayedEnvironment(Environment[ReplayedState]):
    """An environment over worlds that live elsewhere. Subclasses say which, and how tasks are drawn.

    They give `name`, `task_columns`, `instructions`, `sample_task`, `open_world`, and `turns` or `max_turns`, and keep
    the options of their constructor as attributes. By default any text is an action, and the last one in an action tag
    is taken as it is spelled. A subclass narrows that with `understands`, or reads replies its own way.

    At most `sessions` worlds are live at once, and as many steps wait side by side. That should be the number of
    episodes under way, or states are restored again and again: `costs` tells.

    A new seed reaches the world right before its next action, by its `reseed`. A world without that is taken as having
    nothing random ahead but what `reset` was told: replays of a state all meet the same future.

    Args:
        sessions: the most live worlds.
        turns: the most actions of an episode.

    Raises:
        ValueError: `sessions` or `turns` is less than 1.
    """

    state_type = ReplayedState
    open_actions = True
    forgiving = True
    self_contained = False
    turns: int | None = None
    repeats = True  # whether the same task, seeds and actions lead to the same
    longest_action = 4096  # characters; simulators behind pipes and buffers are not made for more
    unreadable = "No action could be read in the last reply."

    def __init__(self, sessions: int = 64, turns: int | None = None) -> None:
        for option, value in (("sessions", sessions), ("turns", turns)):
            if value is not None and not (isinstance(value, int) and value >= 1):
                raise ValueError(f"{option} must be at least 1, got {value!r}; raise it.")
        self.sessions = sessions
        if turns is not None:  # a subclass may have said it by itself
            self.turns = turns
        self.slow_steps = sessions
        self._live = Sessions(sessions)

    @abstractmethod
    def open_world(self) -> World:
        """A new live world; called from several threads."""

    def understands(self, state: ReplayedState, action: str) -> bool:
        """Whether an action is passed on to the world; what is not counts as unreadable."""
        return True

    def examples(self, state: ReplayedState) -> Sequence[str]:
        """Actions to show where the world itself lists none."""
        return ("look",)

    @property
    def max_turns(self) -> int:
        return cast(int, self.turns)

    @property
    def most_live(self) -> int | None:  # type: ignore[override]
        return None if self.replayable else self._live.limit

    def close(self) -> None:
        """Releases all live worlds. States stay what they are: whoever goes on from one has it restored."""
        self._live.close()

    def costs(self) -> dict[str, float]:
        """What was spent so far: `worlds_opened`, `world_steps`, `replayed_steps` to restore states, `restored` ones
        that needed none, worlds that were `lost`, and `diverged`."""
        return dict(self._live.costs)

    # The rules

    def initial_state(self, task: Mapping[str, Any], seed: int) -> ReplayedState:
        row = json.dumps({column: task[column] for column in self.task_columns}, sort_keys=True)
        state = ReplayedState(seed=seed, task=row, seeds=((0, seed),), walk="" if self.repeats else uuid.uuid4().hex)
        session, observation = self._begun(row, seed)
        with self._live.held(session) as world:
            snapshot = world.snapshot() if hasattr(world, "snapshot") else ""
        seen = (_digest(observation, 0.0, False),)
        state = dataclasses.replace(state, observation=observation, seen=seen, snapshot=snapshot)
        self._live.give(session, state.past)
        return state

    def observe(self, state: ReplayedState) -> str:
        return f"{self.unreadable}\n\n{state.observation}" if state.unread else state.observation

    def legal_actions(self, state: ReplayedState) -> tuple[str, ...]:
        if state.status != "active":
            return ()
        session = self._at(state)
        with self._live.held(session) as world:
            listed = world.legal_actions() if hasattr(world, "legal_actions") else ()
        self._live.give(session, state.past)
        return tuple(dict.fromkeys(listed)) or tuple(self.examples(state))

    def read_action(self, reply: str) -> str:
        return spelled_action(reply) or ""

    def step(self, state: ReplayedState, action: str) -> Transition[ReplayedState]:
        plain = self.read_action(action) or action.strip()
        if state.status != "active":
            return self._transition(state, 0.0, plain)
        if not _passable(plain, self.longest_action) or not self.understands(state, plain):
            unread = dataclasses.replace(state, unread=True, status="active" if self.forgiving else "invalid")
            return self._transition(unread, 0.0, None)
        try:
            session, taken = self._taken(self._leaving(state), state, plain)
        except ConnectionError:
            self._live.count("lost")
            session, taken = self._taken(self._restored(state), state, plain)
        (observation, reward, over, info), seeds, snapshot = taken
        total = state.total + reward
        after = dataclasses.replace(
            state,
            seeds=seeds,
            actions=(*state.actions, plain),
            seen=(*state.seen, _digest(observation, reward, over)),
            observation=observation,
            unread=False,
            total=total,
            success=bool(info.get("success", over and total > 0)),
            status="finished" if over else "active",
            snapshot=snapshot,
        )
        self._live.give(session, None if over else after.past)
        return self._transition(after, reward, None if info.get("refused") else plain)

    def outcome(self, state: ReplayedState) -> float:
        """The sum of the world's rewards."""
        return state.total

    def metrics(self, state: ReplayedState) -> dict[str, float]:
        """`success`; `world_actions`: how many actions reached the world."""
        return {"success": float(state.success), "world_actions": float(len(state.actions))}

    # Live worlds

    def _stepped(self, world: World, action: str) -> _Step:
        observation, reward, over, info = world.step(action)
        self._live.count("world_steps")
        if not math.isfinite(reward):
            raise ValueError(f"a world's reward must be a finite number, got {reward} for {action[:100]!r}; mend it.")
        return _text(observation), float(reward), bool(over), info

    def _taken(
        self, session: Session, state: ReplayedState, action: str
    ) -> tuple[Session, tuple[_Step, tuple[tuple[int, int], ...], str]]:
        """A step of a session that stands in `state`: what it led to, the seeds behind it, and a snapshot after it."""
        with self._live.held(session) as world:
            seeds = state.seeds
            if state.seed != seeds[-1][1] and hasattr(world, "reseed"):
                world.reseed(state.seed)
                seeds = (*seeds, (len(state.actions), state.seed))
            step = self._stepped(world, action)
            over = step[2]
            snapshot = "" if over or not hasattr(world, "snapshot") else world.snapshot()
        return session, (step, seeds, snapshot)

    def _begun(self, task: str, seed: int) -> tuple[Session, str]:
        """A session that has begun a task, and its first observation; those that turn out to be lost are let go."""
        while True:
            session = self._live.any(self.open_world)
            try:
                with self._live.held(session) as world:
                    return session, _text(world.reset(json.loads(task), seed))
            except ConnectionError:
                if session.fresh:
                    raise
                self._live.count("lost")

    def _at(self, state: ReplayedState) -> Session:
        """A session whose world stands in `state`: the one that does, or one in which it is restored."""
        return self._live.take(state.past) or self._restored(state)

    def _restored(self, state: ReplayedState) -> Session:
        """A session in which `state` is restored, from its snapshot or by playing its actions again."""
        if state.snapshot and (session := self._from_snapshot(state)) is not None:
            return session
        if not self.repeats:
            raise LostError(
                f"an episode of {self.name!r}, which does not repeat itself, goes on in its own world alone, got one "
                f"that was lost or had to make room; raise sessions, {self._live.limit} now, or play fewer at once."
            )
        session, observation = self._begun(state.task, state.seeds[0][1])
        with self._live.held(session) as world:
            self._compare(state, 0, _digest(observation, 0.0, False))
            seeds = dict(state.seeds[1:])
            for turn, action in enumerate(state.actions):
                if turn in seeds:
                    world.reseed(seeds[turn])
                observation, reward, over, _ = self._stepped(world, action)
                self._live.count("replayed_steps")
                self._compare(state, turn + 1, _digest(observation, reward, over))
        return session

    def _from_snapshot(self, state: ReplayedState) -> Session | None:
        session = self._live.any(self.open_world)
        try:
            with self._live.held(session) as world:
                if world.restore(state.snapshot) == state.observation:
                    self._live.count("restored")
                    return session
        except ConnectionError:
            return None
        self._live.give(session, None)
        return None

    def _leaving(self, state: ReplayedState) -> Session:
        """The same, where a world that can be copied leaves one behind."""
        session = self._at(state)
        if not hasattr(session.world, "copy"):
            return session
        with self._live.held(session):
            second = self._live.copy(session)
        if second is None:
            return session
        self._live.give(session, state.past, behind=True)
        return second

    def _compare(self, state: ReplayedState, turn: int, seen: str) -> None:
        if seen != state.seen[turn]:
            self._live.count("diverged")
            what = f"after action {turn} of {len(state.actions)}, {state.actions[turn - 1]!r}," if turn else "at reset"
            raise DivergedError(
                f"a world must repeat itself when the same task, seeds and actions are played again, got another "
                f"observation, reward or end {what} of {self.name!r}; draw its random numbers from the seed of reset, "
                "and leave times and addresses out of what it shows."
            )


def _passable(action: str, longest: int) -> bool:
    """Whether an action is text that any world can be sent: not too long, without NUL and halves of characters."""
    if not action or len(action) > longest or "\x00" in action:
        return False
    with suppress(UnicodeEncodeError):
        action.encode()
        return True
    return False


def _text(observation: Any) -> str:
    if not isinstance(observation, str):
        raise TypeError(f"a world must show text, got {type(observation).__name__}; render it.")
    return observation


def _digest(observation: str, reward: float, over: bool) -> str:
    shown = repr((observation, float(reward), bool(over))).encode("utf-8", errors="surrogatepass")
    return hashlib.blake2b(shown, digest_size=8).hexdigest()
