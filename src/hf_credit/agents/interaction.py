"""A program as an Interaction. Its state is a task, a seed and the replies so far."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import logging
import shlex
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from hf_credit.agents.calls import estimated_tokens, shown_message, written
from hf_credit.agents.check import check
from hf_credit.agents.formats import fits
from hf_credit.agents.program import DEFAULT_ROLE, Settings
from hf_credit.agents.runs import TO_REPEAT, RunError, Runs, Step
from hf_credit.agents.states import AgentState, AnsweredCall, Waiting, asking, with_replies
from hf_credit.boundary import encodable, read
from hf_credit.environments.sessions import Session
from hf_credit.oracles import Oracle
from hf_credit.registry import find, plain, refuse_options
from hf_credit.replies import begun_thought, read_reply
from hf_credit.rollouts.capabilities import cannot_leave_out, in_threads
from hf_credit.rollouts.chat import Chat
from hf_credit.rollouts.episode import Ending
from hf_credit.rollouts.interaction import Interaction, Reply, Request, readable_state
from hf_credit.safe_io import parse_json
from hf_credit.trust import importable, is_code
from hf_credit.validators import whole_number

logger = logging.getLogger(__name__)


class CallJudge:
    """An oracle of calls.

    Args:
        judge: takes a call, as plain values, and a reply, and returns a score in [0, 1].
    """

    name = "judge"

    def __init__(self, judge: Callable[[dict[str, Any], str], float]) -> None:
        self.judge = judge

    def valid_actions(self, state: AgentState) -> frozenset[str]:
        """Returns none: replies are free text."""
        return frozenset()

    def score(self, state: AgentState, action: str) -> float:
        """Returns the judge's score of a reply to the waiting call of `state`."""
        return float(self.judge(state.waiting[0].whole, action))


class AgentInteraction(Interaction[AgentState]):
    """A program that calls a model through an SDK of OpenAI or Anthropic. Its calls are decisions.

    Each run is a process of its own, forked from one that has imported the program. To restore a state whose run has
    ended, the program runs again with the recorded replies to its first calls. So replays run its tools again. The
    program should write to its own folder only, which is deleted after the run.

    A reply that returns unchanged in a later call is shown as its sampled tokens; the form of JSON, ids and empty
    texts do not matter. A changed reply makes the next context a new row of training: the metric `replies_kept` is the
    fraction of unchanged ones.

    An exception or a crash of the program after a reply gives the outcome `failure`: the reply caused it. A failure
    that no reply caused is an error of the episode: the program raises before its first call or at a refused one (but
    not if a run has gone on after such a refusal), or does not end in time, the scorer fails, or a run does not repeat
    itself.

    Args:
        agent: a program, preferably decorated by `hf_credit.agents.agent`; or its `"module:name"`, which is imported
            in the process that runs it and must be code that you trust; or a command, such as `"node agent.js"` or
            `["node", "agent.js"]`, which gets the task as JSON on its standard input and prints its result.
        sessions: the most live runs, which is the most concurrent episodes.
        **settings: attributes of `hf_credit.agents.program.Settings` that override the program's own.

    Raises:
        ValueError: a setting is unknown or not possible, or the program has no importable name.
    """

    reads_tokens = True
    acts = True

    def __init__(self, agent: Callable[..., Any] | str | Sequence[str], sessions: int = 64, **settings: Any) -> None:
        whole_number("sessions", sessions, 1)
        self.agent = _named(agent)
        refuse_options("agent", Settings, self.name, settings)
        known = Settings(**settings)
        self.sessions = self.most_live = self.side_by_side = sessions
        self._changed = {name: getattr(known, name) for name in settings}
        self._costs = dict.fromkeys(_COSTS, 0.0)
        self._live: Runs | None = None
        self._starting = threading.Lock()
        self._raised: set[str] = set()
        self._caught: set[str] = set()  # refusals after which a run went on

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(type(self), self.agent, self.sessions, **self._changed), ()

    @property
    def name(self) -> str:
        return self.agent if isinstance(self.agent, str) else " ".join(self.agent)

    def spec(self) -> dict[str, Any]:
        options = {"agent": self.agent, "sessions": self.sessions, **plain(self._changed)}
        return {"task": "agent", "task_options": options}

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings of the program, with those of this Interaction.

        Raises:
            ValueError: the program cannot be imported, or a setting is not possible.
        """
        return self._alive().settings

    @property
    def roles(self) -> Collection[str]:  # type: ignore[override]
        return self.settings.roles or (DEFAULT_ROLE,)

    @property
    def history(self) -> str:
        return self.settings.history

    @property
    def max_replies(self) -> int:  # type: ignore[override]
        return self.settings.max_calls

    @property
    def replayable(self) -> bool:
        return self.settings.repeats

    def require_columns(self, columns: Iterable[str] | None) -> None:
        missing = [] if columns is None else [one for one in self.settings.columns if one not in columns]
        if missing:
            raise ValueError(
                f"task rows of {self.name!r} must have the columns {', '.join(self.settings.columns)}, got no "
                f"{missing[0]!r}; add it, or leave it out of columns."
            )

    def close(self) -> None:
        """Ends all runs and the process that forks them. A later step from a state restores its run."""
        with self._starting:
            if self._live is not None:
                self._live.close()
                self._live = None

    def costs(self) -> Mapping[str, float]:
        """Returns the costs so far: `runs` started, `replies`, `forced_replies` to restore states, `lost` runs, those
        that `diverged`, `refused_calls`, `ignored_settings` of calls, and `tool_seconds` of programs."""
        return dict(self._costs)

    # Steps

    def start(self, task: Mapping[str, Any], seed: int) -> AgentState:
        try:
            row = written(encodable({column: task[column] for column in self.settings.columns}), default=None)
        except (KeyError, TypeError) as error:
            raise ValueError(
                f"a task of {self.name!r} must have the columns {', '.join(self.settings.columns)} as plain values, "
                f"got {type(error).__name__}: {error}; correct the row, or columns."
            ) from None
        return self._begun(AgentState(task=row, seed=seed))

    def pending(self, state: AgentState) -> tuple[Request, ...]:
        return tuple(self._request(state, one) for one in state.waiting)

    def advance(self, state: AgentState, replies: Sequence[str]) -> AgentState:
        answered = tuple(
            AnsweredCall(call=one.call, reply=written(_recorded(json.loads(one.asked), reply)))
            for one, reply in zip(state.waiting, replies, strict=True)
        )
        after = self._stepped(state, answered)
        return dataclasses.replace(after, reward=state.owed + after.reward, owed=0.0)

    def start_many(self, tasks: Sequence[Mapping[str, Any]], seeds: Sequence[int]) -> list[Any]:
        """Starts episodes in parallel, a thread for each live run."""
        return in_threads(self.sessions, self.start, tasks, seeds)

    def outcome(self, state: AgentState) -> float:
        return state.worth

    def reward(self, state: AgentState) -> float:
        return state.reward

    def ending(self, state: AgentState) -> Ending:
        if state.status == "raised" and state.answered and "too_long" in json.loads(state.answered[-1].reply):
            return Ending.TRUNCATED
        return Ending.TURN_LIMIT if state.status == "stopped" else Ending.FINISHED

    def count_with(self, chat: Chat, most: int | None) -> None:
        """Sets what counts tokens for programs, and the most tokens of a context, which models show."""
        self._alive().endpoint.count_with(chat, most)

    def too_long(self, state: AgentState, tokens: Mapping[str, int], most: int) -> AgentState:
        """Returns the state after these calls got the error of a context that is too long."""
        refused = tuple(
            AnsweredCall(call=one.call, reply=written({"too_long": [tokens[one.event], most]}))
            for one in state.waiting
            if one.event in tokens
        )
        after = self._stepped(state, refused)
        reward = state.owed + after.reward
        owed = reward if after.waiting else 0.0
        return dataclasses.replace(after, reward=reward - owed, owed=owed)

    def metrics(self, state: AgentState) -> Mapping[str, float]:
        """Returns the metrics of an episode.

        They are `success`, whether the outcome is above 0; `raised`, whether an exception or a crash ended it;
        `calls`; `refused`, the number of refused calls; `conversations`, each at least a row of training: a system
        prompt that changes at every call begins one at every call; `replies_kept`, the fraction of returned replies
        that are unchanged, if any returned; and `formatted`, the fraction of replies without tool calls that have the
        format that their calls ask for, if any asks.
        """
        kept, of = state.kept
        found = [reply["fits"] for one in state.answered if "fits" in (reply := json.loads(one.reply))]
        return {
            "success": float(state.worth > 0),
            "raised": float(state.status == "raised"),
            "calls": float(len(state.answered)),
            "refused": float(state.refused),
            "conversations": float(len(state.conversations)),
            **({"replies_kept": kept / of} if of else {}),
            **({"formatted": sum(found) / len(found)} if found else {}),
        }

    def settle_for(self, seconds: float) -> None:
        """Sets `settle` of its next steps."""
        live = self._alive()
        live.settings = dataclasses.replace(live.settings, settle=seconds)

    def restore(self, state: AgentState) -> None:
        """Restores `state` in a new run and ends the run, as a check.

        Raises:
            DivergedRunError: the program does not repeat itself.
        """
        live = self._alive()
        session = live.restored(state)
        session.world.close()
        live.sessions.give(session, None)

    def check_repeats(self, tasks: Iterable[Mapping[str, Any]]) -> None:
        """Checks the first `checked` tasks, as `hf-credit agent check` does.

        Raises:
            ValueError: the program does not repeat itself.
        """
        found = check(self, itertools.islice(tasks, self.settings.checked))
        if found.differences:
            raise ValueError(
                f"a program must repeat itself for a method that replays, got {found.differences[0]}; {TO_REPEAT}"
            )

    @property
    def removable(self) -> Collection[str]:
        return self.settings.roles if len(self.settings.roles) > 1 else ()

    def without(self, state: AgentState, role: str) -> AgentState:
        """Runs the program again with empty replies to calls of `role`, and the recorded replies to others as long as
        they are the same calls. Returns the state after these."""
        if role not in self.removable:
            raise cannot_leave_out(self, role)
        recorded: dict[str, list[AnsweredCall]] = {}
        for one in state.answered:
            recorded.setdefault(one.call, []).append(one)
        after = self._begun(AgentState(task=state.task, seed=state.seed, without=(*state.without, role)))
        while after.waiting and all(recorded.get(one.call) for one in after.waiting):
            after = self._stepped(after, tuple(recorded[one.call].pop(0) for one in after.waiting))
        return after

    def as_asked(self, state: AgentState, event: str) -> AgentState:
        return dataclasses.replace(state, waiting=tuple(one for one in state.waiting if one.event == event))

    def action_of(self, state: AgentState, reply: str) -> tuple[AgentState, str]:
        if len(state.waiting) != 1:
            raise ValueError(
                f"a judge of calls needs one call at a time, got {len(state.waiting)} at once of {self.name!r}; "
                "use a method without an oracle."
            )
        return state, reply

    def default_oracle(self) -> Oracle[Any] | None:
        judge = self.settings.judge
        return None if judge is None else CallJudge(find("judge", {}, judge))

    def check_oracle(self, oracle: Oracle[Any] | None) -> Oracle[Any] | None:
        return self.default_oracle() if oracle is None else oracle

    def state_to_json(self, state: AgentState) -> str:
        values = dataclasses.asdict(state)
        for one in values["waiting"]:
            if not one["images"]:
                del one["images"]
        return written(values)

    def state_from_json(self, text: str) -> AgentState:
        with readable_state(self):
            state: AgentState = read(AgentState, parse_json(text, broken_text=True), "a state of a program")
            self.pending(state)
            return state

    # Live runs

    def _begun(self, state: AgentState) -> AgentState:
        live = self._alive()
        session = live.begun(state)
        with live.sessions.held(session) as run:
            step = run.step()
        after = self._after(session, state, step)
        return dataclasses.replace(after, reward=0.0, owed=after.reward)

    def _stepped(self, state: AgentState, answered: tuple[AnsweredCall, ...]) -> AgentState:
        live = self._alive()
        session = live.at(state)
        for again in (True, False):
            try:
                with live.sessions.held(session) as run:
                    for place, one in enumerate(answered, start=len(state.answered)):
                        run.answer(one.call, one, place)
                    step = run.step()
                    if run.unread:  # a restored run reads these replies
                        raise ConnectionError(
                            "a program must wait for replies, got one that did not; raise its time-out."
                        )
                break
            except ConnectionError:
                live.count("lost", 1)
                if not again:
                    raise
                session = live.restored(state)
        live.count("replies", len(answered))
        return self._after(session, with_replies(state, answered), step)

    def _after(self, session: Session, state: AgentState, step: Step) -> AgentState:
        """Returns the state after a step, and gives its session back."""
        live = self._alive()
        state = dataclasses.replace(state, refused=state.refused + step.refused)
        if step.refused and not step.raised and len(self._caught) < _MOST_KINDS:
            self._caught.add(_rule(step.refusal))
        if step.calls and len(state.answered) + len(step.calls) <= self.settings.max_calls:
            after = asking(dataclasses.replace(state, reward=step.reward), step.calls, bool(self.settings.roles))
            live.sessions.give(session, after.past)
            return after
        with live.sessions.held(session) as run:
            run.close()
        live.sessions.give(session, None)
        if step.outcome is not None:
            return dataclasses.replace(state, reward=step.reward, status="finished", worth=step.outcome)
        if step.calls:
            return dataclasses.replace(state, reward=step.reward, status="stopped", worth=self.settings.failure)
        if not state.answered and not state.without:
            raise RunError(f"a program must not raise before its first call, got {step.raised}", step.traceback)
        if step.refused and _rule(step.refusal) not in self._caught:
            kind = step.raised.partition(":")[0]  # the rest mostly says the same
            raise RunError(f"a program must catch the error of a refused call, got {kind}: {step.refusal}")
        self._show(step)
        return dataclasses.replace(state, reward=step.reward, status="raised", worth=self.settings.failure)

    def _show(self, step: Step) -> None:
        """Logs the first exception of each kind, of a few kinds."""
        kind = step.raised.partition(":")[0]
        if kind not in self._raised and len(self._raised) < _MOST_KINDS:
            self._raised.add(kind)
            logger.warning(
                "A program raised or crashed after a reply, so its run has the outcome %g; more are counted.\n%s",
                self.settings.failure,
                step.traceback or step.raised,
            )

    def _alive(self) -> Runs:
        with self._starting:
            if self._live is None:
                self._live = Runs(self.agent, self._changed, self.sessions, self._costs)
                weakref.finalize(self, self._live.close)
            return self._live

    def _request(self, state: AgentState, waiting: Waiting) -> Request:
        asked = waiting.whole
        messages = [shown_message(message) for message in asked["messages"]]
        for at, reply in waiting.replies:
            messages[at] = {"role": "assistant", "content": json.loads(state.answered[reply].reply)["text"]}
        return Request(
            role=asked["model"] if self.settings.roles else DEFAULT_ROLE,
            event=waiting.event,
            messages=messages,
            tools=asked["tools"],
            max_tokens=asked["max_tokens"],
            rendered=self.settings.history == "rendered",
            logprobs=asked["logprobs"],
        )


_MOST_KINDS = 20  # of exceptions that are logged: a program may make up their names
_COSTS = ("runs", "replies", "forced_replies", "lost", "diverged", "refused_calls", "ignored_settings", "tool_seconds")


def _named(agent: Any) -> str | list[str]:
    """Returns the name of a program, or the words of a command."""
    if isinstance(agent, str):
        return agent if is_code(agent) else shlex.split(agent)
    if not isinstance(agent, list | tuple):
        return importable(agent)
    if not agent or not all(isinstance(word, str) for word in agent):
        raise ValueError(f"a command must be words, got {agent!r}; write, for example, ['node', 'agent.js'].")
    return [str(word) for word in agent]


def _recorded(asked: Mapping[str, Any], reply: str) -> dict[str, Any]:
    """Returns the record of a reply, as in `AnsweredCall`. A text that was not sampled has the probability 1, and an
    estimated number of tokens. As for a server, the reply ends where the first text of `stop` begins in it."""
    text = str(reply)
    mark_length = len(begun_thought(text))  # the template may have written the mark
    stops = [(at, stop) for stop in filter(None, asked["stop"]) if (at := text.find(stop, mark_length)) >= 0]
    end, found = min(stops, default=(len(text), None))
    if not isinstance(reply, Reply) or found is not None:
        said = read_reply(text[:end], asked["tools"])
        content, calls = (said.content, said.written_calls) if asked["tools"] else (said.spoken, ())
    else:
        content, calls = reply.content, reply.calls
    if asked["most_calls"] == 0:
        content = read_reply(text[:end]).spoken
    if not isinstance(reply, Reply):
        reply = Reply(text)
        reply.logprobs, reply.context = ((content, 0.0),), estimated_tokens(written(asked["messages"]))
    if asked["logprobs"] and not reply.logprobs and reply.ids:
        raise ValueError(
            "log-probabilities of a call need a sampler that reports them, got one that does not; leave logprobs out."
        )
    kept = calls[: asked["most_calls"]]
    return {
        "text": text,
        "content": content,
        "calls": [list(one) for one in kept],
        **({"cut": True} if len(kept) < len(calls) else {}),
        "ended": reply.ended,
        "stop": found,
        "tokens": [reply.context, len(reply.ids) or estimated_tokens(reply)],
        **({"logprobs": reply.logprobs} if asked["logprobs"] else {}),
        **({"fits": fits(content, asked["format"])} if asked.get("format") and not calls else {}),
    }


def _rule(refusal: str) -> str:
    """The rule that a refused call broke, without its value, which may be another each time."""
    return refusal.partition(", got ")[0]
