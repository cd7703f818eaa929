"""A run of a program while it is live: what it calls, what it is answered, and how it ends."""

from __future__ import annotations

import json
import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hf_credit.agents.calls import difference, digest
from hf_credit.agents.hosting import Host, HostDiedError
from hf_credit.agents.program import DEFAULT_ROLE, Settings
from hf_credit.environments.replayed import DivergedError

if TYPE_CHECKING:
    from hf_credit.agents.endpoint import Call, Endpoint

logger = logging.getLogger(__name__)

GRACE = 1.0  # seconds that another call may take where calls are made at once, before it counts as another path


class RunError(RuntimeError):
    """A run that came to nothing that credit could be given for."""


class DivergedRunError(DivergedError):
    """A run that was restored did otherwise than before.

    Attributes:
        place: of the call, counted from 1.
        asked: the call that was made; `None` where the run ended in place of one.
    """

    def __init__(self, message: str, place: int, asked: dict[str, Any] | None) -> None:
        super().__init__(message)
        self.place = place
        self.asked = asked


@dataclass(frozen=True, kw_only=True)
class Answered:
    """A call that was replied to.

    Attributes:
        call: the digest of what of it is compared.
        reply: the reply as JSON: its `text`, its `content` and `calls`, and whether it `ended`.
    """

    call: str
    reply: str


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a run does after replies.

    Attributes:
        calls: by digest, what it asks for next, in an order that does not depend on time; none where it has ended.
        reward: what it paid for the replies before.
        outcome: what it was worth, `None` where it has not ended or raised.
        raised: what it raised, in one line.
        traceback: of what it raised.
    """

    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    reward: float = 0.0
    outcome: float | None = None
    raised: str = ""
    traceback: str = ""


@dataclass(kw_only=True)
class Runs:
    """What runs of one program share.

    Attributes:
        make_host: makes another host where one has died.
        host: starts them.
        endpoint: that they call.
        settings: how they are run.
        compared: what of a call is compared when a run is restored.
        count: adds to a cost, by name.
    """

    make_host: Callable[[], Host]
    host: Host
    endpoint: Endpoint
    settings: Settings
    compared: Callable[[dict[str, Any]], Any]
    count: Callable[[str, float], None]
    _making: threading.Lock = field(default_factory=threading.Lock)
    _shown: set[str] = field(default_factory=set)

    def alive(self) -> Host:
        """The host, or another one where it has died."""
        with self._making:
            if self.host.dead:
                self.host.close()
                self.host = self.make_host()
            return self.host

    def show_imported(self, packages: Collection[str]) -> None:
        """Shows once which large packages a run imported, as every run then does anew."""
        if new := sorted(set(packages) - self._shown):
            self._shown.update(new)
            logger.warning(
                "Each run of the program imports %s anew, which takes longer than to restore it; import it at the top "
                "of the program's module.",
                ", ".join(new),
            )


@dataclass(eq=False)
class LiveRun:
    """A place for a live run, one after the other. `hf_credit.environments.sessions.Sessions` keeps these.

    Args:
        runs: what it shares with others.
    """

    runs: Runs
    _run: int | None = None
    _host: Host | None = None
    _keys: tuple[str, str] | None = None
    _told: queue.SimpleQueue[tuple[str, Any]] = field(default_factory=queue.SimpleQueue)
    _waiting: list[tuple[str, Call]] = field(default_factory=list)  # by digest, in the order they came
    _replied: dict[str, tuple[Answered, int]] = field(default_factory=dict)  # what a call got last
    _without: Collection[str] = ()
    _silent: int = 0

    def begin(self, task: str, seed: int, without: Collection[str]) -> None:
        """Starts a run, whatever ran here before.

        Args:
            task: the columns of its row, as JSON.
            seed: of all that is random in it.
            without: the roles whose calls are answered with nothing at once.
        """
        self.close()
        self._without, self._silent, self._waiting, self._replied = without, 0, [], {}
        told = self._told = queue.SimpleQueue()
        self._keys = self.runs.endpoint.open(lambda kind, what: told.put((kind, what)))
        run = {
            "task": json.loads(task),
            "seed": seed,
            "base_url": self.runs.endpoint.base_url,
            "key": self._keys[0],
            "reward_key": self._keys[1],
            "name": (self.runs.settings.roles or (DEFAULT_ROLE,))[0],
        }
        self._host = self.runs.alive()
        self._run = self._host.start(run, lambda what: told.put(("ended", what)))
        self.runs.count("runs", 1)

    def close(self) -> None:
        """Ends the run; its keys are refused from here on."""
        if self._keys is not None:
            self.runs.endpoint.close(self._keys)
            self._keys = None
        if self._host is not None and self._run is not None:
            self._host.stop(self._run)
            self._run = None

    def answer(self, call: str, answered: Answered, place: int) -> None:
        """Replies to a call that waits.

        Args:
            call: its digest.
            answered: the reply.
            place: of the reply in the run, counted from 0.
        """
        at = next(at for at, (one, _) in enumerate(self._waiting) if one == call)
        self._replied[call] = (answered, place)
        _reply_to(self._waiting.pop(at)[1], json.loads(answered.reply), str(place))

    def stands(self, calls: Collection[str]) -> bool:
        """Whether it still waits for replies to these calls, and no time-out of its own has ended it meanwhile."""
        while True:
            try:
                kind, what = self._told.get_nowait()
            except queue.Empty:
                break
            if kind != "call":
                return False
            self._take(what)
        return not Counter(calls) - Counter(call for call, _ in self._waiting)

    def step(self) -> Step:
        """What it does next, where everything that it waited for has been replied to.

        Raises:
            TimeoutError: it takes too long.
            RunError: a call is refused, the run crashed, or its scorer failed.
            HostDiedError: it is gone, through no fault of its own.
        """
        settings, began, reward = self.runs.settings, time.monotonic(), 0.0
        try:
            while True:
                left = began + settings.seconds - time.monotonic()
                kind, what = self._next(min(settings.settle, left) if self._waiting else left)
                if kind == "nothing":
                    if self._waiting:
                        break
                    raise TimeoutError(
                        f"a run must go on within {settings.seconds:g} seconds of a reply, got one that does not; "
                        "mend what it waits for, or raise seconds."
                    )
                if kind == "reward":
                    reward += what
                elif kind == "ended":
                    return self._ended(what, reward)
                else:
                    self._take(what)
                    if not settings.settle and self._waiting:
                        break
        finally:
            self.runs.count("tool_seconds", time.monotonic() - began)
        calls = sorted(((call, waiting.asked) for call, waiting in self._waiting), key=lambda one: one[0])
        return Step(calls=tuple(calls), reward=reward)

    def restore(self, answered: Sequence[Answered], waiting: Sequence[tuple[str, dict[str, Any]]]) -> None:
        """Answers the calls of a run that has begun as before, until it waits for the same replies.

        Args:
            answered: what was called and replied, in order.
            waiting: by digest, the calls that it then waited for.

        Raises:
            DivergedRunError: it calls for something else, or ends.
            TimeoutError, RunError, HostDiedError: as `step`.
        """
        record: dict[str, deque[int]] = {}
        for place, one in enumerate(answered):
            record.setdefault(one.call, deque()).append(place)
        known = dict(waiting)
        left, missing = len(answered), Counter(call for call, _ in waiting)
        unknown: list[dict[str, Any]] = []
        while left or sum(missing.values()):
            settings = self.runs.settings
            kind, what = self._next(GRACE if unknown else settings.seconds)
            if kind == "reward":
                continue
            place = len(answered) - left + 1
            if kind == "nothing" and not unknown:
                raise TimeoutError(
                    f"a run that is restored must go on within {settings.seconds:g} seconds, got one that does not "
                    f"come to call {place}; set settle where it makes calls at once, or raise seconds."
                )
            if kind in ("nothing", "ended"):
                if kind == "ended" and what.get("lost"):
                    raise HostDiedError("the process that programs are forked from ended.")
                self._diverged(place, unknown[0] if unknown else None, {} if left else known)
            if not self._take(what):
                continue
            call, made = self._waiting[-1]
            in_turn = settings.settle > 0 or call == (answered[place - 1].call if left else next(iter(known)))
            if in_turn and record.get(call):
                at = record[call].popleft()
                left -= 1
                self.answer(call, answered[at], at)
                self.runs.count("forced_replies", 1)
            elif in_turn and missing[call]:
                missing[call] -= 1
            elif settings.settle:
                unknown.append(made.asked)
            else:
                self._diverged(place, made.asked, {} if left else known)

    def _diverged(self, place: int, asked: dict[str, Any] | None, known: Mapping[str, dict[str, Any]]) -> None:
        self.runs.count("diverged", 1)
        before = next(iter(known.values()), None)
        if asked is None:
            what = "ended"
        elif before is not None:
            what = f"called otherwise ({difference(before, asked)})"
        else:
            what = "called otherwise"
        raise DivergedRunError(
            f"a run must repeat itself when the same task, seed and replies are played again, got one that {what} at "
            f"call {place}; draw its random numbers from the seed, and leave times and addresses out of its calls "
            "(hf-credit agent check shows the difference).",
            place,
            asked,
        )

    def _next(self, seconds: float) -> tuple[str, Any]:
        try:
            kind, what = self._told.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            return "nothing", None
        if kind == "refused":
            raise RunError(what)
        return kind, what

    def _take(self, made: Call) -> bool:
        """Whether a call waits from here on: not one of a role that is left out, nor a repeated try."""
        self.runs.count("ignored_settings", made.ignored)
        if made.asked["model"] in self._without:
            nothing = {"content": "", "calls": [], "ended": True}
            _reply_to(made, nothing, f"silent_{self._silent}")
            self._silent += 1
            return False
        call = digest(self.runs.compared(made.asked))
        if made.retry:
            for at, (one, _) in enumerate(self._waiting):
                if one == call:
                    self._waiting[at] = (call, made)
                    return False
            if call in self._replied:  # the reply came when its SDK had just given up
                answered, place = self._replied[call]
                _reply_to(made, json.loads(answered.reply), str(place))
                return False
        self._waiting.append((call, made))
        return True

    def _ended(self, what: Mapping[str, Any], reward: float) -> Step:
        self._run = None  # nothing is left to be stopped
        self.close()
        if what.get("lost"):
            raise HostDiedError("the process that programs are forked from ended.")
        self.runs.show_imported(what.get("imported", ()))
        if "crashed" in what:
            raise RunError(f"a run must come to an end by itself, got {what['crashed']}")
        if "unscored" in what:
            raise RunError(f"a run must be scored, got {what['unscored']}\n{what['traceback']}")
        if "raised" in what:
            return Step(reward=reward, raised=what["raised"], traceback=what["traceback"])
        return Step(reward=reward, outcome=float(what["outcome"]))


def _reply_to(call: Call, reply: Mapping[str, Any], place: str) -> None:
    """Answers a call with a recorded reply."""
    content, calls = reply["content"], reply["calls"]
    finish = "tool_calls" if calls else "stop" if reply["ended"] else "length"
    made = [
        {"id": f"call_{place}_{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (name, arguments) in enumerate(calls)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": None if calls and not content else content}
    call.answer({**message, **({"tool_calls": made} if made else {})}, finish, place)
