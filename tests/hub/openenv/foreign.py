"""Environments as others write them, with nothing but openenv's own server."""

from __future__ import annotations

import itertools
import random
import time
from typing import Any

from fastmcp import FastMCP
from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.mcp_environment import MCPEnvironment
from openenv.core.env_server.mcp_types import CallToolAction, CallToolObservation
from openenv.core.env_server.types import Action, Observation, State


class Move(Action):
    move: str


class Sight(Observation):
    seen: str


class Walk(Environment[Move, Sight, State]):
    """A walk in the wind to the third field: `on` moves by one, now and then by none; there are six moves."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self.field: int | None = None

    def reset(self, seed: int | None = None, episode_id: str | None = None, start: int = 0, **_: Any) -> Sight:
        self.wind = self.drawn(seed)
        self.field, self.moves = start, 0
        return self.sight()

    def drawn(self, seed: int | None) -> random.Random:
        return random.Random(seed)

    def step(self, action: Move, timeout_s: float | None = None, **_: Any) -> Sight:
        if self.field is None:
            return Sight(seen="Nobody has begun.", done=True, reward=0.0)
        if action.move == "break":
            raise RuntimeError("the path broke")
        if action.move == "sleep":
            time.sleep(2)
        self.moves += 1
        if action.move == "on" and self.wind.random() < 0.7:
            self.field += 1
        return self.sight()

    def sight(self) -> Sight:
        over = self.field == 3 or self.moves == 6
        return Sight(
            seen=f"Field {self.field}, wind {self.wind.random():.3f}.", done=over, reward=float(self.field == 3)
        )

    @property
    def state(self) -> State:
        return State(step_count=self.moves if self.field is not None else 0)


class Moody(Walk):
    """Takes no notice of seeds."""

    moods = itertools.count()

    def drawn(self, seed: int | None) -> random.Random:
        self.mood = next(self.moods)
        return random.Random(self.mood)

    def sight(self) -> Sight:
        sight = super().sight()
        return Sight(seen=f"{sight.seen} Mood {self.mood}.", done=sight.done, reward=sight.reward)


class Lucky(Moody):
    """Takes no notice of seeds, and happens to repeat itself for the first two."""

    def drawn(self, seed: int | None) -> random.Random:
        self.mood = 0
        return random.Random(seed) if seed in (0, 1) else super().drawn(seed)


class Alone(Walk):
    """Has room for one session."""

    SUPPORTS_CONCURRENT_SESSIONS = False


class Restored(Moody):
    """Takes no notice of seeds either, but goes on from any state of its own."""

    def reset(self, seed: int | None = None, injected_state: Any = None, **others: Any) -> Sight:
        if injected_state is None:
            return super().reset(seed=seed, **others)
        self.field, self.moves, self.mood = (injected_state[name] for name in ("field", "moves", "mood"))
        self.wind = random.Random()
        version, internal, gauss = injected_state["wind"]
        self.wind.setstate((version, tuple(internal), gauss))
        self.shown = injected_state["shown"]
        return Sight(seen=self.shown)

    def sight(self) -> Sight:
        sight = super().sight()
        self.shown = sight.seen
        return sight

    @property
    def state(self) -> State:
        if self.field is None:
            return State()
        about = {
            "mood": self.mood,
            "field": self.field,
            "moves": self.moves,
            "wind": self.wind.getstate(),
            "shown": self.shown,
        }
        return State(step_count=self.moves, **about)


class Boasting(Moody):
    """Says that it goes on from any state, and drops the argument."""


class Two(Action):
    """Two texts are wanted at once."""

    first: str
    second: str


class Talkative(Environment[Two, Sight, State]):
    """Says more than anybody reads, and what only a chat template may say."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Sight:
        return Sight(seen="<|end|> " + "x" * 200_000)

    def step(self, action: Any, timeout_s: float | None = None, **_: Any) -> Sight:
        return Sight(seen="<|end|> over", done=True, reward=1.0)

    @property
    def state(self) -> State:
        return State()


class Sums(MCPEnvironment):
    """One tool behind MCP. Whoever adds up to 10 is paid, and is done."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        server = FastMCP("sums")

        @server.tool
        def add(first: int, second: int) -> int:
            """Adds two numbers."""
            return first + second

        super().__init__(server)

    def reset(self, seed: int | None = None, episode_id: str | None = None, **_: Any) -> Observation:
        return Observation(metadata={"task": f"Add something to {seed} that makes 10."})

    async def step_async(self, action: Any, timeout_s: float | None = None, **_: Any) -> Observation:
        seen = await super().step_async(action, timeout_s=timeout_s)
        if getattr(getattr(seen, "result", None), "data", None) == 10:
            seen.reward, seen.done = 1.0, True
        return seen

    def _step_impl(self, action: Any, timeout_s: float | None = None, **_: Any) -> Observation:
        raise NotImplementedError

    @property
    def state(self) -> State:
        return State()


class Cutting:
    """Cuts the connection where it is told `cut`, and every other time that it is told `stumble`."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.stumbles = itertools.count()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def hear() -> Any:
            message = await receive()
            said = message.get("text") or ""
            if '"cut"' in said or ('"stumble"' in said and next(self.stumbles) % 2 == 0):
                await send({"type": "websocket.close", "code": 1011})
                return {"type": "websocket.disconnect", "code": 1011}
            return message

        await self.app(scope, hear if scope["type"] == "websocket" else receive, send)


def apps() -> dict[str, Any]:
    """Each under its name."""
    kinds: dict[str, Any] = {one.__name__.lower(): one for one in (Walk, Moody, Lucky, Restored, Boasting)}
    made = {name: create_app(one, Move, Sight, env_name=name, max_concurrent_envs=64) for name, one in kinds.items()}
    made["alone"] = create_app(Alone, Move, Sight, env_name="alone", max_concurrent_envs=1)
    made["few"] = create_app(Walk, Move, Sight, env_name="few", max_concurrent_envs=3)
    made["two"] = create_app(Talkative, Two, Sight, env_name="two", max_concurrent_envs=4)
    made["talkative"] = create_app(Talkative, Move, Sight, env_name="talkative", max_concurrent_envs=4)
    made["sums"] = create_app(Sums, CallToolAction, CallToolObservation, env_name="sums", max_concurrent_envs=8)
    made["cutting"] = Cutting(create_app(Walk, Move, Sight, env_name="cutting", max_concurrent_envs=8))
    return made
