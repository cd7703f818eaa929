"""Live runs of a program: their calls, the replies to them, and their end."""

from __future__ import annotations

import functools
import json
import logging
import os
import queue
import secrets
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hf_credit.agents.calls import difference, digest
from hf_credit.agents.dialects import variables
from hf_credit.agents.hosting import Host, HostDiedError
from hf_credit.agents.program import DEFAULT_ROLE
from hf_credit.agents.states import AgentState, AnsweredCall, Images
from hf_credit.boundary import Worth, read
from hf_credit.content import Image
from hf_credit.environments.replayed import DivergedError
from hf_credit.environments.sessions import Session, Sessions
from hf_credit.optional_packages import needed
from hf_credit.pictures import naming
from hf_credit.registry import find

if TYPE_CHECKING:
    from hf_credit.agents.endpoint import Call

logger = logging.getLogger(__name__)

_SHOWN_FOLDERS = ("programsofcredit", "thisrunsownfoldr")
"""In calls, the names of a host's folder and of a run's, which are random and of this length."""

TO_REPEAT = (
    "draw its random numbers from the seed and leave times and addresses out of calls (see hf-credit agent check), or "
    "set repeats to false for a method without replays."
)
GRACE = 1.0  # seconds to wait for the expected one of simultaneous calls, before an unknown one counts as divergence


class RunError(RuntimeError):
    """A run without a result that credit could be assigned for; the program's own traceback is a note."""

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        if traceback:
            self.add_note(traceback)


class DivergedRunError(DivergedError):
    """A restored run made another call than before, or ended: `got` says which."""

    def __init__(self, got: str) -> None:
        super().__init__(f"a run must repeat itself with the same task, seed and replies, got {got}; {TO_REPEAT}")
        self.got = got


@dataclass(frozen=True, kw_only=True)
class Step:
    """The actions of a run after replies.

    Attributes:
        calls: its next calls, each after its digest and before its images by name, in an order that does not depend on
            time; none if it has ended.
        reward: of the replies before.
        refused: the number of refused calls since.
        refusal: of the last of them, in one sentence.
        outcome: of the run, `None` if it has not ended or has raised.
        raised: the exception, in one line, or how the run crashed.
        traceback: of the exception.
    """

    calls: tuple[tuple[str, dict[str, Any], Images], ...] = ()
    reward: float = 0.0
    refused: int = 0
    refusal: str = ""
    outcome: float | None = None
    raised: str = ""
    traceback: str = ""


class Runs:
    """The live runs of a program, the process that forks them, and the endpoint that they call.

    Args:
        agent, settings: as for `Host`.
        limit: the most live runs.
        costs: the counts of `count`.

    Attributes:
        host: starts the runs.
        endpoint: that they call.
        settings: of the program.
        compared: returns the part of a call that is compared when a run is restored.
        sessions: of live runs.
    """

    def __init__(
        self, agent: str | list[str], settings: Mapping[str, Any], limit: int, costs: dict[str, float]
    ) -> None:
        for package in ("starlette", "uvicorn"):
            needed("agents need", package, "agents")
        from hf_credit.agents.endpoint import Endpoint

        self._make_host = functools.partial(Host, agent, settings)
        self.host = self._make_host()
        self.settings = self.host.settings
        self.endpoint = Endpoint(self.settings.roles)
        self.compared = _compared(self.settings.canonical)
        self.sessions = Sessions(limit)
        self._costs, self._owner = costs, os.getpid()
        self._counting, self._making = threading.Lock(), threading.Lock()
        self._shown: set[str] = set()
        self._models: set[str] = set()

    def count(self, cost: str, much: float) -> None:
        """Adds to a cost, by name."""
        with self._counting:
            self._costs[cost] += much

    def begun(self, state: AgentState) -> Session:
        """Returns a session with a new run of a state's task."""
        session = self.sessions.any(lambda: LiveRun(self))
        with self.sessions.held(session) as run:
            run.begin(state.task, state.seed, state.without)
        return session

    def at(self, state: AgentState) -> Session:
        """Returns a session whose run is in `state`, restored if none is."""
        session = self.sessions.take(state.past)
        if session is None:
            return self.restored(state)
        with self.sessions.held(session) as run:
            stands = run.stands([one.call for one in state.waiting])
        if stands:
            return session
        self.sessions.discard(session)  # its own time-out has ended it
        self.count("lost", 1)
        return self.restored(state)

    def restored(self, state: AgentState) -> Session:
        """Returns a session with a new run, restored to `state`."""
        session = self.begun(state)
        with self.sessions.held(session) as run:
            run.restore(state)
        return session

    def close(self) -> None:
        """Ends all runs, the host and the endpoint, in the process that started them."""
        if os.getpid() == self._owner:
            self.sessions.close()
            self.host.close()
            self.endpoint.shut()

    def alive(self) -> Host:
        """Returns the host, or another one if it has died."""
        with self._making:
            if self.host.dead:
                self.host.close()
                self.host = self._make_host()
            return self.host

    def show_imported(self, packages: Collection[str]) -> None:
        """Warns once for each large package that runs import, since every run then imports it again."""
        if new := sorted(set(packages) - self._shown):
            self._shown.update(new)
            logger.warning(
                "Each run of the program imports %s anew, which takes longer than to restore a run; import it at the "
                "top of the program's module.",
                ", ".join(new),
            )

    def show_model(self, name: str) -> None:
        """Warns once of calls of several models without roles: a judge or a simulated user may be among them."""
        if name not in self._models and len(self._models) < 2:
            self._models.add(name)
            if len(self._models) == 2:
                logger.warning(
                    "The program calls the models %s, and the policy replies to both; name them in roles, or give the "
                    "client of another model its own base_url.",
                    " and ".join(sorted(self._models)),
                )


@dataclass(eq=False)
class LiveRun:
    """A session for live runs, one after the other. `hf_credit.environments.sessions.Sessions` keeps these."""

    runs: Runs
    _run: int | None = None
    _host: Host | None = None
    _keys: tuple[str, str] | None = None
    _events: queue.SimpleQueue[tuple[str, Any]] = field(default_factory=queue.SimpleQueue)
    _waiting: list[tuple[str, Call]] = field(default_factory=list)  # with digests, in order of arrival
    _replied: dict[str, tuple[AnsweredCall, int]] = field(default_factory=dict)  # the last reply by a call's digest
    _without: Collection[str] = ()
    _silent: int = 0
    _folders: tuple[str, str] = _SHOWN_FOLDERS
    _refusals: tuple[int, str] = (0, "")  # since the last step, and the last one
    _early: deque[tuple[str, Any]] = field(default_factory=deque)  # events that `stands` took, for the next step
    unread: set[str] = field(default_factory=set)  # the digests of calls that it gave up before their replies

    def begin(self, task: str, seed: int, without: Collection[str]) -> None:
        """Starts a run, and ends the one before.

        Args:
            task: the columns of its row, as JSON.
            seed: of all its random numbers.
            without: the roles whose calls get an empty reply at once.
        """
        self.close()
        self._without, self._silent, self._waiting, self._replied = without, 0, [], {}
        self._refusals = 0, ""
        self._early.clear()
        self.unread.clear()
        events = self._events = queue.SimpleQueue()
        self._host, run_folder = self.runs.alive(), secrets.token_hex(8)
        self._folders = self._host.folder.path.name[-len(run_folder) :], run_folder
        self._keys = self.runs.endpoint.open(lambda kind, value: events.put((kind, value)))
        run = {
            "task": json.loads(task),
            "seed": seed,
            "base_url": self.runs.endpoint.base_url,
            "key": self._keys[0],
            "reward_key": self._keys[1],
            "variables": variables(self.runs.endpoint.base_url, self._keys[0]),
            "folder": run_folder,
            "name": (self.runs.settings.roles or (DEFAULT_ROLE,))[0],
        }
        self._run = self._host.start(run, lambda result: events.put(("ended", result)))
        self.runs.count("runs", 1)

    def close(self) -> None:
        """Ends the run and revokes its keys."""
        if self._keys is not None:
            self.runs.endpoint.close(self._keys)
            self._keys = None
        if self._host is not None and self._run is not None:
            self._host.stop(self._run)
            self._run = None

    def answer(self, call: str, answered: AnsweredCall, place: int) -> None:
        """Replies to a waiting call.

        Args:
            call: its digest.
            answered: with the reply.
            place: the index of the reply in the run.
        """
        at = next(at for at, (one, _) in enumerate(self._waiting) if one == call)
        self._replied[call] = (answered, place)
        _, made = self._waiting.pop(at)
        if made.gone():
            self.unread.add(call)
        self._reply(made, answered, place)

    def _reply(self, made: Call, answered: AnsweredCall, place: int) -> None:
        made.answer(json.loads(_renamed(answered.reply, _SHOWN_FOLDERS, self._folders)), str(place))

    def stands(self, calls: Collection[str]) -> bool:
        """Returns whether it still waits for replies to these calls, and no time-out of its own has ended it."""
        while not self._events.empty():
            kind, value = self._events.get()
            if kind == "refused":
                self._refused(value)
            elif kind == "call":
                self._take(value)
            elif kind == "reward" or (kind == "ended" and value.get("large")):
                self._early.append((kind, value))
            else:
                return False
        return not Counter(calls) - Counter(call for call, _ in self._waiting)

    def step(self) -> Step:
        """Waits for the next calls of the run or its end, after replies to all its calls.

        Raises:
            TimeoutError: it takes too long.
            RunError: its scorer failed.
            HostDiedError: the host died, for a reason outside of the run.
        """
        settings, began, reward = self.runs.settings, time.monotonic(), 0.0
        try:
            while True:
                left = began + settings.seconds - time.monotonic()
                kind, value = self._next(min(settings.settle, left) if self._waiting else left)
                if kind == "nothing":
                    if self._waiting:
                        break
                    raise TimeoutError(
                        f"a run must go on within {settings.seconds:g} seconds of a reply, got no call in that time; "
                        "correct what it waits for, or raise seconds."
                    )
                if kind == "reward":
                    reward += value
                elif kind == "ended":
                    return self._ended(value, reward)
                else:
                    self._take(value)
                    if not settings.settle and self._waiting:
                        break
        finally:
            self.runs.count("tool_seconds", time.monotonic() - began)
        waiting = ((call, made.asked, made.images) for call, made in self._waiting)
        calls = sorted(waiting, key=lambda one: one[0])
        return Step(calls=tuple(calls), reward=reward, **self._refused())

    def restore(self, state: AgentState) -> None:
        """Answers the calls of a new run as before, until the run waits for the same replies.

        Raises:
            DivergedRunError: the run makes another call, or ends.
            TimeoutError, RunError, HostDiedError: as in `step`.
        """
        answered, record = state.answered, dict[str, deque[int]]()
        for place, one in enumerate(answered):
            record.setdefault(one.call, deque()).append(place)
        left, missing = len(answered), Counter(one.call for one in state.waiting)
        unknown: list[dict[str, Any]] = []
        while left or sum(missing.values()):
            settings = self.runs.settings
            kind, value = self._next(GRACE if unknown else settings.seconds)
            if kind == "reward":
                continue
            place = len(answered) - left + 1
            if kind == "nothing" and not unknown:
                raise TimeoutError(
                    f"a restored run must go on within {settings.seconds:g} seconds, got no call {place} by then; "
                    "set settle if it makes simultaneous calls, or raise seconds."
                )
            if kind in ("nothing", "ended"):
                if kind == "ended" and (value.get("large") or "crashed" in value):
                    raise RunError(value.get("raised") or _crash(value))
                self._diverged(place, unknown[0] if unknown else None, state)
            if not self._take(value):
                continue
            call, made = self._waiting[-1]
            in_turn = settings.settle > 0 or call == (answered[place - 1] if left else state.waiting[0]).call
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
                self._diverged(place, made.asked, state)
        self._refused()  # which the state has counted

    def _diverged(self, place: int, asked: dict[str, Any] | None, state: AgentState) -> None:
        self.runs.count("diverged", 1)
        before = state.asked_at(place)
        what = "the end" if asked is None else "another call"
        if asked is not None and before is not None:
            what += f" ({difference(before, asked)})"
        raise DivergedRunError(f"{what} at call {place}")

    def _next(self, seconds: float) -> tuple[str, Any]:
        deadline = time.monotonic() + seconds
        while True:
            try:
                left = max(deadline - time.monotonic(), 0.0)
                kind, value = self._early.popleft() if self._early else self._events.get(timeout=left)
            except queue.Empty:
                return "nothing", None
            if kind == "failed":
                raise RunError(value)
            if kind == "ended" and value.get("lost"):
                raise HostDiedError("the process that forks programs ended; it is started again.")
            if kind != "refused":
                return kind, value
            self._refused(value)

    def _refused(self, sentence: str = "") -> dict[str, Any]:
        """Counts the refusal of a call, or returns those since the last step."""
        (count, last), self._refusals = self._refusals, (0, "")
        if sentence:
            self._refusals = count + 1, sentence
            self.runs.count("refused_calls", 1)
        return {"refused": count, "refusal": last}

    def _take(self, made: Call) -> bool:
        """Takes a call; returns whether it waits, unlike a call of a removed role or a retry."""
        self.runs.count("ignored_settings", made.ignored)
        images: dict[str, Image] = {}
        text = json.dumps(made.asked, default=naming(images))
        made.asked = json.loads(_renamed(text, self._folders, _SHOWN_FOLDERS))
        made.images = tuple(images.items())
        if not self.runs.settings.roles:
            self.runs.show_model(made.asked["model"])
        if made.asked["model"] in self._without:
            if self._silent >= self.runs.settings.max_calls:  # it may call until it gets a text
                self.close()
                self._events.put(("ended", {"raised": f"more than {self._silent} calls of a removed role"}))
                return False
            made.answer({"content": "", "calls": [], "ended": True}, f"silent_{self._silent}")
            self._silent += 1
            return False
        call = digest(self.runs.compared(made.asked))
        if made.retry:
            equal = [at for at, (one, _) in enumerate(self._waiting) if one == call]
            if equal:  # made together, they time out together, and each retry takes the place of another
                self._waiting[min(equal, key=lambda at: not self._waiting[at][1].gone())] = (call, made)
                return False
            if call in self._replied:  # the reply arrived after its SDK gave up
                answered, place = self._replied[call]
                self.unread.discard(call)
                self._reply(made, answered, place)
                return False
        self._waiting.append((call, made))
        return True

    def _ended(self, result: Mapping[str, Any], reward: float) -> Step:
        self._run = None  # the host has ended it
        self.close()
        self.runs.show_imported(result.get("imported", ()))
        if result.get("large"):  # it was ended for its files, and did not give up a call
            self.unread.clear()
        if "crashed" in result:
            return Step(reward=reward, raised=_crash(result), **self._refused())
        if "unscored" in result:
            raise RunError(f"a run must have a score, got {result['unscored']}", result.get("traceback", ""))
        if "raised" in result:
            traceback = result.get("traceback", "")
            return Step(reward=reward, raised=result["raised"], traceback=traceback, **self._refused())
        outcome = read(Worth, result.get("outcome"), "the outcome of a run")
        return Step(reward=reward, outcome=outcome, **self._refused())


def _crash(result: Mapping[str, Any]) -> str:
    return f"a run must end by itself, got {result['crashed']}"


def _renamed(text: str, before: Sequence[str], after: Sequence[str]) -> str:
    for one, other in zip(before, after, strict=True):
        text = text.replace(one, other)
    return text


def _compared(canonical: str | None) -> Callable[[dict[str, Any]], Any]:
    if canonical is None:
        return lambda asked: asked
    function = find("canonical", {}, canonical)
    return lambda asked: function(json.loads(json.dumps(asked)))
