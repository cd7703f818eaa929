"""Checks that an environment satisfies the interface of `hf_credit.environments.base`."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import json
import math
import pickle
import random
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, get_args

from hf_credit.content import Part, content_of
from hf_credit.environments.actions import OPEN, plain_action, tag
from hf_credit.environments.base import Environment, State, Status, Transition
from hf_credit.environments.randomness import stream
from hf_credit.environments.reseeding import reseed_problems

# A broken rule and an example of it.
Problem = tuple[str, str]

# Replies of a policy that contain no action.
_BAD_REPLIES = (
    "",
    " \n\t",
    "\x00",
    "\ud800",
    "I do not know.",
    "<action>",
    "</action><action>",
    "<action></action>",
    "<action>\x00\ud800\U0001f600 \u0661\u0662 ½ \u202e</action>",
    tag("9" * 5000),
    "<action>" * 10_000,
    "x" * 100_000,
)

_RAISES = "step must not raise, whatever the reply"
_REFUSES = "an unreadable or illegal reply must end the episode as invalid"
_FORGIVES = "a forgiving environment must continue after an unreadable or illegal reply, with no action in info"
_READS = "read_action must return a string for any text, and the action that write_action wrote"
_LEGAL = "a legal action must be accepted"
_FORMS = "an action must have the same effect plain, tagged, in upper case and after other text"
_SAME = "the same task, seed and actions must give the same episode, from any of its states"
_OVER = "an action after the end must change nothing and earn nothing"
_REWARDS = "the rewards of an episode that is over must sum to its outcome"


def check_env(environment: Environment[Any], seeds: Iterable[int] = range(20)) -> None:
    """Checks an environment against every rule of the interface, with random legal episodes and bad replies.

    Tasks and states must depend only on their seeds, be plain values and survive JSON; an episode must replay
    from any of its states, and a new seed must change only its future; exactly the legal actions must be accepted, in
    every form; no reply may raise; rewards must sum to the outcome; playing must not change the object.

    With `open_actions`, actions outside `legal_actions` may be accepted. A `forgiving` environment gets some bad
    replies within its episodes, and each must cost a turn. An environment with its own `read_action` decides which
    forms of an action are equal, in addition to what its `write_action` writes.

    Args:
        seeds: each gives one task and one episode.

    Raises:
        AssertionError: a rule is broken; the message lists each broken rule with its first example.
    """
    broken: dict[str, str] = {}
    for rule, example in _caught(_constant_problems(environment)):
        broken.setdefault(rule, example)
    before = _options(environment)
    kinds: dict[str, str] = {}
    for seed in seeds:
        found = _task_problems(environment, seed, kinds), _episode_problems(environment, seed)
        for rule, example in chain.from_iterable(map(_caught, found)):
            broken.setdefault(rule, f"{example} (seed {seed})")
    after = _options(environment)
    if after != before:
        changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
        broken["playing must leave the environment object unchanged"] = f"{', '.join(changed)} changed"
    if broken:
        lines = "".join(f"\n- {rule}: {seen}" for rule, seen in broken.items())
        raise AssertionError(f"environment {type(environment).__name__} breaks {len(broken)} rule(s):{lines}")


def _caught(problems: Iterator[Problem]) -> Iterator[Problem]:
    """The problems, and one more for an exception that the environment raises."""
    try:
        yield from problems
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        called = next((frame.name for frame in frames if frame.filename != __file__), frames[-1].name)
        yield f"{called} must not raise on the environment's own tasks and states", repr(error)


def _options(environment: Environment[Any]) -> dict[str, bytes | str]:
    values: dict[str, bytes | str] = {}
    for name, value in vars(environment).items():
        try:
            values[name] = pickle.dumps(value)
        except Exception:  # objects that cannot be pickled are compared by their repr
            values[name] = repr(value)
    return values


def _constant_problems(environment: Environment[Any]) -> Iterator[Problem]:
    if not (isinstance(environment.name, str) and environment.name):
        yield "name must be a string that is not empty", repr(environment.name)
    if not (isinstance(environment.state_type, type) and issubclass(environment.state_type, State)):
        yield "state_type must be a subclass of State", repr(environment.state_type)
    columns = environment.task_columns
    if not (isinstance(columns, tuple) and all(isinstance(name, str) for name in columns)) or "seed" in columns:
        yield "task_columns must be a tuple of strings without 'seed'", repr(columns)
    for flag in ("open_actions", "forgiving", "self_contained"):
        if type(getattr(environment, flag)) is not bool:
            yield f"{flag} must be True or False", repr(getattr(environment, flag))
    if not (isinstance(environment.instructions, str) and environment.instructions):
        yield "instructions must be a string that is not empty", repr(environment.instructions)
    elif _reads_tags(environment) and OPEN not in environment.instructions:
        yield "instructions must be a string that shows an <action> tag", repr(environment.instructions)
    if environment.instructions != environment.instructions:
        yield "instructions must be the same each time", "two calls differ"
    if not (type(environment.max_turns) is int and environment.max_turns >= 1):
        yield "max_turns must be a whole number of at least 1", repr(environment.max_turns)


def _reads_tags(environment: Environment[Any]) -> bool:
    """Whether the environment reads actions by the default: in tags, ignoring case."""
    return type(environment).read_action is Environment.read_action


def _kind(value: Any) -> str:
    """The column type of a value; empty if it fits any. Raises `TypeError` if it fits none."""
    if value is None or value == []:
        return ""
    if type(value) in (str, bool, float) or (type(value) is int and -(2**63) <= value < 2**63):
        return type(value).__name__
    if type(value) is list:
        kinds = {_kind(item) for item in value} - {""}
        if len(kinds) <= 1:
            return f"list of {''.join(kinds)}"
    if type(value) is dict and all(type(key) is str for key in value):
        return f"dict of {', '.join(f'{key}: {_kind(item)}' for key, item in value.items())}"
    raise TypeError(f"{value!r} of type {type(value).__name__}")


def _task_problems(environment: Environment[Any], seed: int, kinds: dict[str, str]) -> Iterator[Problem]:
    task = environment.sample_task(seed)
    if environment.sample_task(seed) != task:
        yield "sample_task must depend only on its seed", "two calls differ"
    if type(task) is not dict:
        yield "sample_task must return a dict", f"a {type(task).__name__}"
        return
    missing = [column for column in environment.task_columns if column not in task]
    if missing or "seed" in task:
        yield "a task must have all task_columns, and no seed", f"its columns are {list(task)}"
    for column, value in task.items():
        try:
            kind = _kind(value)
        except TypeError as error:
            yield (
                "a task's values must be plain: text, numbers, None, or lists and dicts of values of one type",
                f"{column}: {error}",
            )
            continue
        if kind and kinds.setdefault(column, kind) != kind:
            yield "a task's column must have values of one type", f"{column}: {kinds[column]}, then {kind}"


def _episode_problems(environment: Environment[Any], seed: int) -> Iterator[Problem]:
    task = environment.sample_task(seed)
    given = copy.deepcopy(task)
    start = environment.initial_state(task, seed)
    if task != given:
        yield "initial_state must leave the task unchanged", f"{given!r} became {task!r}"
    if not isinstance(start, environment.state_type) or start.status != "active":
        yield "initial_state must return an active state of state_type", repr(start)
        return

    rng = stream(seed, "check_env")
    state = start
    steps: list[tuple[State, str, Transition[Any]]] = []
    known: dict[str, None] = {}  # legal actions of all states so far, in order
    while state.status == "active" and len(steps) < environment.max_turns:
        yield from _state_problems(environment, state)
        legal = environment.legal_actions(state)
        if not legal:
            yield "an active state must have a legal action", repr(state)
            return
        known.update(dict.fromkeys(legal))
        yield from _action_problems(environment, state, legal, list(known), rng, every=state is start)
        refused = environment.forgiving and rng.random() < 0.25
        action = rng.choice(("", *_refused(environment, legal, list(known), rng)) if refused else legal)
        transition = environment.step(state, action)
        yield from _transition_problems(environment, transition)
        steps.append((state, action, transition))
        state = transition.state
    yield from _state_problems(environment, state)
    if state.status != "active":
        yield from _end_problems(environment, state, [step[2].reward for step in steps], list(known))
    for turn in sorted({0, len(steps) // 2}) if steps else ():
        earned = [transition.reward for _, _, transition in steps[:turn]]
        yield from _refusal_problems(environment, steps[turn][0], earned, list(known), first=turn == 0)
    yield from _replay_problems(environment, given, seed, steps)
    yield from reseed_problems(environment, [*(before for before, _, _ in steps), state])


def _is_plain(value: Any) -> bool:
    return (
        value is None
        or type(value) in (str, int, float, bool)
        or isinstance(value, Part)
        or (type(value) is tuple and all(map(_is_plain, value)))
    )


def _state_problems(environment: Environment[Any], state: State) -> Iterator[Problem]:
    for field in dataclasses.fields(state):
        value = getattr(state, field.name)
        if not _is_plain(value):
            yield "a state must hold text, numbers, None and tuples of these only", f"{field.name}: {value!r}"
            return
        with contextlib.suppress(dataclasses.FrozenInstanceError):
            setattr(state, field.name, value)
            yield "a state must be frozen", f"{field.name} of {type(state).__name__} can be set"
    text = state.to_json()
    back = type(state).from_json(text)
    if back != state or hash(back) != hash(state) or "\n" in text:
        yield "a state must equal the one read back from its JSON, with an equal hash", f"{text} gave {back!r}"
    if state.status not in get_args(Status):
        yield "status must be active, finished or invalid", repr(state.status)
    if (state.status == "active") != bool(environment.legal_actions(state)):
        yield "there must be legal actions in active states and in no other", f"{state!r}"
    views = [(environment.observe(it), environment.legal_actions(it), environment.outcome(it)) for it in (state, back)]
    if views[0] != views[1]:
        yield "equal states must have equal observe, legal_actions and outcome", f"{views[0]!r} and {views[1]!r}"
    shown = views[0][0]
    try:
        content_of(shown if isinstance(shown, list | tuple) else [shown])
    except ValueError:
        yield "observe must return a string, or parts of a message", repr(shown)
    if not _is_finite(views[0][2]):
        yield "outcome must be a finite number in every state", repr(views[0][2])
    metrics = environment.metrics(state)
    if not (isinstance(metrics, dict) and all(map(_is_finite, metrics.values())) and metrics.get("success") in (0, 1)):
        yield "metrics must be a dict of finite numbers with a success of 0 or 1", repr(metrics)


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def _transition_problems(environment: Environment[Any], transition: Transition[Any]) -> Iterator[Problem]:
    if not _is_finite(transition.reward):
        yield "a reward must be a finite number", repr(transition.reward)
    if transition.terminated != (transition.state.status != "active"):
        yield "terminated must say whether the state is over", repr(transition)
    if transition.observation != environment.observe(transition.state):
        yield "a transition's observation must be that of its state", repr(transition)
    if not (isinstance(transition.info, Mapping) and "action" in transition.info):
        yield "a transition's info must have the action as read, or None", repr(transition.info)


def _action_problems(
    environment: Environment[Any],
    state: State,
    legal: tuple[str, ...],
    known: list[str],
    rng: random.Random,
    every: bool,
) -> Iterator[Problem]:
    tags = _reads_tags(environment)
    spelt = (
        type(legal) is tuple and all(type(text) is str and text for text in legal) and len(set(legal)) == len(legal)
    )
    if not spelt or (tags and any(plain_action(text) != text for text in legal)):
        yield "legal_actions must be a tuple of different plain actions", repr(legal)
        return
    tried = legal if every else rng.sample(legal, min(3, len(legal)))
    for action in tried:
        plain = environment.step(state, action)
        if plain.state.status == "invalid":
            yield _LEGAL, f"{action!r} in {state!r}"
        if plain.info.get("action") != action:
            yield "info['action'] must be the action as read", f"{plain.info!r} for {action!r}"
        read = environment.read_action(environment.write_action(action))
        if read != action:
            yield _READS, f"{environment.write_action(action)!r}, written for {action!r}, was read as {read!r}"
    action = rng.choice(tried)
    plain, last = environment.step(state, action), environment.write_action(action)
    forms = (last.upper(), f"<think>{tag('?')}\n</think> so\n{last} it is", f"  {action.upper()}\n") if tags else ()
    for reply in (last, *forms):
        if environment.step(state, reply) != plain:
            yield _FORMS, f"{reply!r} and {action!r} differ in {state!r}"
    for other in _refused(environment, legal, known, rng, near=action):
        transition = environment.step(state, other)
        if not _is_refusal(environment, transition):
            rule = _FORGIVES if environment.forgiving else _REFUSES
            yield rule, f"{other!r} is not among the legal actions but was accepted in {state!r}"


def _refused(
    environment: Environment[Any],
    legal: tuple[str, ...],
    known: list[str],
    rng: random.Random,
    near: str | None = None,
) -> list[str]:
    """Actions that must be refused if `legal` is legal: some of other states, and near misses in spelling."""
    if environment.open_actions:
        return []
    allowed = set(legal)
    elsewhere = [other for other in known if other not in allowed]
    misses = _near_misses(rng.choice(legal) if near is None else near)
    return [*rng.sample(elsewhere, min(3, len(elsewhere))), *(other for other in misses if other not in allowed)]


def _is_refusal(environment: Environment[Any], transition: Transition[Any]) -> bool:
    if environment.forgiving:
        return transition.info.get("action") is None
    return bool(transition.state.status == "invalid")


def _near_misses(action: str) -> list[str]:
    words = action.split(" ")
    changed = [
        " ".join([*words[:index], other, *words[index + 1 :]])
        for index, word in enumerate(words)
        for beside in [(int(word) - 1, int(word) + 1) if word.isdecimal() else ()]
        for other in (f"-{word}", f"0{word}", f"{word}x", "0", "9999", *map(str, beside))
    ]
    return [" ".join(words[:-1]), f"{action} 1", f"{action}.", *changed]


def _shown(reply: str) -> str:
    return repr(reply) if len(reply) <= 40 else f"{reply[:40]!r}... ({len(reply)} characters)"


def _tried(rule: str, call: Callable[..., Any], *arguments: Any) -> tuple[Any, list[Problem]]:
    """The result of a call whose last argument is a reply, or `None` and the broken rule if it raises."""
    try:
        return call(*arguments), []
    except Exception as error:
        return None, [(rule, f"{error!r} on {_shown(arguments[-1])}")]


def _refusal_problems(
    environment: Environment[Any], state: State, earned: list[float], known: list[str], first: bool
) -> Iterator[Problem]:
    transition = None
    for reply in _BAD_REPLIES:
        transition, raised = _tried(_RAISES, environment.step, state, reply)
        read, unread = _tried(_READS, environment.read_action, reply)
        yield from (*raised, *unread)
        if not unread and not isinstance(read, str):
            yield _READS, f"{read!r} in {_shown(reply)}"
        if transition is None:
            continue
        # With open actions, any other text may be an action.
        if (not environment.open_actions or not reply.strip()) and not _is_refusal(environment, transition):
            yield (_FORGIVES if environment.forgiving else _REFUSES), f"{_shown(reply)} gave {transition.state!r}"
        if environment.forgiving and first and transition.state.status == "invalid":
            yield _FORGIVES, f"{_shown(reply)} gave {transition.state!r}"
    if transition is not None:
        yield from _transition_problems(environment, transition)
        yield from _state_problems(environment, transition.state)
        if transition.state.status != "active":
            yield from _end_problems(environment, transition.state, [*earned, transition.reward], known)


def _end_problems(
    environment: Environment[Any], state: State, rewards: list[float], known: list[str]
) -> Iterator[Problem]:
    outcome = environment.outcome(state)
    if not math.isclose(sum(rewards), outcome, abs_tol=1e-9):
        yield _REWARDS, f"{rewards} and {outcome} in {state!r}"
    for reply in (known[0], environment.write_action(known[-1]), "", "<action>\x00</action>"):
        after, raised = _tried(_RAISES, environment.step, state, reply)
        yield from raised
        if after is None:
            continue
        if (after.state, after.reward, after.terminated) != (state, 0, True):
            yield _OVER, f"{reply!r} in {state!r} resulted in {after!r}"
        yield from _transition_problems(environment, after)


def _replay_problems(
    environment: Environment[Any],
    task: Mapping[str, Any],
    seed: int,
    steps: list[tuple[State, str, Transition[Any]]],
) -> Iterator[Problem]:
    # Backwards, so that anything the environment has cached of the episode is stale.
    for state, action, transition in reversed(steps):
        again = environment.step(type(state).from_json(state.to_json()), action)
        if again != transition:
            yield _SAME, f"{action!r} in {state!r} resulted in {transition!r}, then in {again!r}"
    # As from a dataset: through JSON, with the columns of the task only.
    row = {column: json.loads(json.dumps(task[column])) for column in environment.task_columns}
    state = environment.initial_state(row, seed)
    for before, action, _ in steps:
        if state != before:
            yield _SAME, f"{before!r} became {state!r}"
            return
        state = environment.step(state, action).state
    if steps and state != steps[-1][2].state:
        yield _SAME, f"{steps[-1][2].state!r} became {state!r}"
