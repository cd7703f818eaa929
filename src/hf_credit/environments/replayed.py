"""Worlds that cannot be copied, as environments whose state is a value: the task, the seeds and the actions so far."""

from __future__ import annotations

import hashlib
import json
import math
import uuid
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from hf_credit.boundary import encodable
from hf_credit.content import Content, Image, content_of, has_images, joined, plain_image
from hf_credit.environments.actions import calls_of, marked, one_action, spelled_action
from hf_credit.environments.base import Environment, State, Transition
from hf_credit.environments.sessions import Session, Sessions
from hf_credit.pictures import apart, name_of, together
from hf_credit.validators import whole_number


class World(Protocol):
    """One live world: any object with these three methods. `hf_credit.content.content_of` reads its observations.

    Further methods are optional. `reseed(seed)` replaces the source of all later random draws. `legal_actions()` lists
    some or all actions. `snapshot()` returns a text, empty if it cannot; `restore(text)`, called on any world,
    continues from it and returns the last observation, or `None` if it cannot.

    A world that raises `ConnectionError` is lost. Its state is then restored once in another world, which takes the
    step.
    """

    def reset(self, task: Mapping[str, Any], seed: int) -> Content:
        """Begins a task, whatever was played before, and returns the first observation. `seed` determines all random
        draws: the same task and seed give the same start."""

    def step(self, action: str) -> tuple[Content, float, bool, Mapping[str, Any]]:
        """Takes an action and returns the observation, the reward, whether the episode is over, and further facts.

        Three facts are read: `"refused"` (whether the action was meaningless and changed nothing), `"success"`
        (whether the task is solved; by default whether the episode is over with a positive sum of rewards), and
        `"unscored"` (whether the rewards so far are unknown; an episode that ends so has no outcome).
        """

    def close(self) -> None:
        """Releases the resources of the world."""


class LostError(RuntimeError):
    """The world of an episode is lost, and cannot be restored because it does not repeat itself."""


class DivergedError(RuntimeError):
    """A world behaved differently when the same task, seeds and actions were played again."""


@dataclass(frozen=True, kw_only=True)
class ReplayedState(State):
    """The history of a world."""

    task: str  # the task's columns, as JSON with names of its images
    images: tuple[Image, ...] = ()  # of the task
    # (turn, seed) of past random draws: the seed of `reset`, at turn 0, and each later one with the number of actions
    # before it. `seed` is the source of the draws ahead.
    seeds: tuple[tuple[int, int], ...]
    actions: tuple[str, ...] = ()  # the actions that reached the world
    seen: tuple[str, ...] = ()  # a digest of each observation, reward and end, from the first observation on
    observation: Content = ""
    unread: bool = False  # whether the last reply contained no action, so that it did not reach the world
    why: str = ""  # why no tool call could be read in it, if there are tools
    total: float = 0.0  # the sum of the rewards
    success: bool = False  # whether the task is solved
    unscored: bool = False  # whether the rewards are unknown
    # the text that restores the world, if it has snapshots; ignored in comparisons
    snapshot: str = field(default="", compare=False)
    walk: str = ""  # a unique id of the episode if the world does not repeat itself; otherwise empty

    @property
    def past(self) -> tuple[str, tuple[tuple[int, int], ...], tuple[str, ...], str]:
        """Everything that determines where the world stands: the key of its live world."""
        return self.task, self.seeds, self.actions, self.walk


class ReplayedEnvironment(Environment[ReplayedState]):
    """An environment over live worlds. A step continues in the live world of its state, or in
    one that is restored by playing the actions again. Subclasses open the worlds and draw the tasks.

    They define `name`, `task_columns`, `instructions`, `sample_task`, `open_world`, and `turns` or `max_turns`, and
    keep the options of their constructor as attributes. By default any text is an action, and a reply's action is its
    last action tag, with case kept. With `tools`, the action of a reply is its one tool call; a reply without a call
    is an answer. A subclass narrows that with `understands` or its own `read_action`.

    At most `sessions` worlds are live, and as many steps run concurrently. With more episodes than sessions, states
    are restored again and again; `costs` counts these replays.

    A new seed reaches the world by its `reseed`, right before its next action. A world without `reseed` draws nothing
    after `reset`, so all replays of a state meet the same future.

    Args:
        sessions: the most live worlds, at least 1.
        turns: the most actions of an episode, at least 1.

    Raises:
        ValueError: `sessions` or `turns` is less than 1.
    """

    state_type = ReplayedState
    open_actions = True
    forgiving = True
    self_contained = False
    acts = True
    turns: int | None = None
    repeats = True  # whether the same task, seeds and actions give the same episode
    longest_action = 4096  # characters; simulators behind pipes and buffers are not made for more

    def __init__(self, sessions: int = 64, turns: int | None = None) -> None:
        self.sessions = self.slow_steps = whole_number("sessions", sessions, 1)
        if turns is not None:  # a subclass may define its own
            self.turns = whole_number("turns", turns, 1)
        self._live = Sessions(sessions)

    @abstractmethod
    def open_world(self) -> World:
        """Opens a live world; called from several threads."""

    def understands(self, state: ReplayedState, action: str) -> bool:
        """Whether an action is passed to the world; others count as unreadable, such as a broken tool call."""
        if not self.tools:
            return True
        made = calls_of(action)
        return not made or (len(made) == 1 and not made[0].why)

    def examples(self, state: ReplayedState) -> Sequence[str]:
        """Example actions, for worlds that list none."""
        return ("look",)

    @property
    def max_turns(self) -> int:
        return cast(int, self.turns)

    @property
    def most_live(self) -> int | None:  # type: ignore[override]
        return None if self.replayable else self._live.limit

    def release(self, state: ReplayedState) -> None:
        if not self.repeats and (session := self._live.take(state.past)) is not None:
            self._live.give(session, None)

    def close(self) -> None:
        """Closes all live worlds. States stay valid: the next step from one restores its world."""
        self._live.close()

    def costs(self) -> dict[str, float]:
        """The costs so far: `worlds_opened`, `world_steps`, `replayed_steps` (steps that restored states), `restored`
        (states restored from snapshots), `lost` worlds and `diverged` ones."""
        return dict(self._live.costs)

    # The rules

    def initial_state(self, task: Mapping[str, Any], seed: int) -> ReplayedState:
        columns = {column: task[column] for column in self.task_columns}
        row, found = apart(json.dumps(columns, sort_keys=True, default=_plain))
        images, walk = tuple(found.values()), "" if self.repeats else uuid.uuid4().hex
        state = ReplayedState(seed=seed, task=row, images=images, seeds=((0, seed),), walk=walk)
        session, observation = self._begun(state)
        with self._live.held(session) as world:
            snapshot = _snapshot(world)
        seen = (_digest(observation, 0.0, False),)
        state = replace(state, observation=observation, seen=seen, snapshot=snapshot)
        self._live.give(session, state.past)
        return state

    def observe(self, state: ReplayedState) -> Content:
        if not state.unread:
            return state.observation
        kind = "tool call" if self.tools else "action"
        unread = f"No {kind} could be read in the last reply{state.why and ': '}{state.why}."
        return joined((unread, state.observation), "\n\n")

    def legal_actions(self, state: ReplayedState) -> tuple[str, ...]:
        if state.status != "active":
            return ()
        session = self._at(state)
        with self._live.held(session) as world:
            listed = world.legal_actions() if hasattr(world, "legal_actions") else ()
        self._live.give(session, state.past)
        return tuple(dict.fromkeys(listed)) or tuple(self.examples(state))

    def read_action(self, reply: str) -> str:
        return one_action(reply, self.tools) if self.tools else spelled_action(reply) or ""

    def write_action(self, action: str) -> str:
        if not self.tools:
            return super().write_action(action)
        return marked(action) if action[:1] == "{" and any(not call.why for call in calls_of(action)) else action

    def answers_as(self, action: str) -> str:
        return "tool" if self.tools and calls_of(action) else "user"

    def step(self, state: ReplayedState, action: str) -> Transition[ReplayedState]:
        plain = self.read_action(action) or action.strip()
        if state.status != "active":
            return self._transition(state, 0.0, plain)
        # What any world can receive: text that is not too long, without NUL and lone surrogates.
        passable = 0 < len(plain) <= self.longest_action and "\x00" not in plain and encodable(plain) == plain
        if not passable or not self.understands(state, plain):
            why = _why_unread(plain) if self.tools else ""
            if len(plain) > self.longest_action:
                why = f"it has more than {self.longest_action:,} characters"
            unread = replace(state, unread=True, why=why)
            unread = unread if self.forgiving else replace(unread, status="invalid")
            return self._transition(unread, 0.0, None)
        try:
            return self._step_in(self._at(state), state, plain)
        except ConnectionError:
            self._live.count("lost")
            return self._step_in(self._restored(state), state, plain)

    def outcome(self, state: ReplayedState) -> float:
        """The sum of the world's rewards; NaN if they are unknown."""
        return math.nan if state.unscored else state.total

    def metrics(self, state: ReplayedState) -> dict[str, float]:
        """`success`; `world_actions`: the number of actions that reached the world."""
        return {"success": float(state.success), "world_actions": float(len(state.actions))}

    # Live worlds

    def _step_in(self, session: Session, state: ReplayedState, action: str) -> Transition[ReplayedState]:
        """Takes a step in a session whose world stands in `state`, and gives the session back."""
        seeds = state.seeds
        with self._live.held(session) as world:
            if state.seed != seeds[-1][1] and hasattr(world, "reseed"):
                world.reseed(state.seed)
                seeds = (*seeds, (len(state.actions), state.seed))
            observation, reward, over, info = self._stepped(world, action)
            snapshot = "" if over else _snapshot(world)
            total, understood = state.total + reward, not info.get("refused")
            after = replace(
                state,
                seeds=seeds,
                actions=(*state.actions, str(action)),
                seen=(*state.seen, _digest(observation, reward, over)),
                observation=observation,
                unread=False,
                why="",
                total=total,
                success=bool(info.get("success", over and total > 0)),
                unscored=bool(info.get("unscored", False)),
                status="finished" if over else "active",
                snapshot=snapshot,
            )
        self._live.give(session, None if over else after.past)
        return self._transition(after, reward, action if understood else None)

    def _stepped(self, world: World, action: str) -> tuple[Content, float, bool, Mapping[str, Any]]:
        observation, reward, over, info = world.step(action)
        self._live.count("world_steps")
        if not math.isfinite(reward):
            raise ValueError(
                f"a world's reward must be a finite number, got {reward} for {action[:100]!r}; correct it."
            )
        return _content(observation), float(reward), bool(over), info

    def _begun(self, state: ReplayedState) -> tuple[Session, Content]:
        """A session that has begun a state's task, and its first observation; lost sessions on the way are dropped."""
        task, seed = together(state.task, {name_of(image): image for image in state.images}), state.seeds[0][1]
        while True:
            session = self._live.any(self.open_world)
            try:
                with self._live.held(session) as world:
                    return session, _content(world.reset(json.loads(task, object_hook=_shown), seed))
            except ConnectionError:
                if session.fresh:
                    raise
                self._live.count("lost")

    def _at(self, state: ReplayedState) -> Session:
        return self._live.take(state.past) or self._restored(state)

    def _restored(self, state: ReplayedState) -> Session:
        if state.snapshot and (session := self._from_snapshot(state)) is not None:
            return session
        if not self.repeats:
            raise LostError(
                f"an episode of {self.name!r}, which does not repeat itself, must continue in its own world, got one "
                f"that was lost or had to make room; raise sessions, {self._live.limit} now, or play fewer at once."
            )
        session, observation = self._begun(state)
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
                shown = world.restore(state.snapshot)
                if shown is not None and content_of(shown) == state.observation:
                    self._live.count("restored")
                    return session
        except ConnectionError:
            return None
        self._live.give(session, None)
        return None

    def _compare(self, state: ReplayedState, turn: int, seen: str) -> None:
        if seen != state.seen[turn]:
            self._live.count("diverged")
            where = (
                f"after action {turn} of {len(state.actions)}, {state.actions[turn - 1]!r}," if turn else "at reset"
            )
            raise DivergedError(
                f"a world must repeat itself when the same task, seeds and actions are played again, got another "
                f"observation, reward or end {where} of {self.name!r}; draw its random numbers from the seed of "
                "reset, and leave times and addresses out of its observations."
            )


def _plain(value: Any) -> Any:
    if has_images(value):
        return plain_image(value)
    kind = type(value).__name__
    raise ValueError(f"a task row must have plain values or images of PIL, got {kind}; convert it, or leave it out.")


def _shown(value: dict[str, Any]) -> Any:
    is_image = value.keys() == {"png"} and str(value["png"]).startswith("iVBORw0KGgo")
    return Image(value["png"]).pil() if is_image else value


def _snapshot(world: Any) -> str:
    return world.snapshot() if hasattr(world, "snapshot") else ""


def _content(observation: Any) -> Content:
    if observation is None or isinstance(observation, bytes | int | float):
        raise TypeError(f"a world must show text or images, got {type(observation).__name__}; render it.")
    return content_of(observation)


def _digest(observation: Content, reward: float, over: bool) -> str:
    content = repr((observation, float(reward), bool(over))).encode("utf-8", errors="surrogatepass")
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _why_unread(action: str) -> str:
    unreadable = [call.why for call in calls_of(action) if call.why]
    return (unreadable[0] if unreadable else "one call a turn").rstrip(".")
