"""The interface for a user's program: a function of a task and a model."""

from __future__ import annotations

import functools
import http.client
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from hf_credit.boundary import Range
from hf_credit.options import Count, NotNegative, Options, Positive
from hf_credit.trust import importable, is_code
from hf_credit.validators import finite_number

DEFAULT_ROLE = "policy"
TEMPORARY = ".tmp"  # of the folder of a run
_CODE = ("score", "close", "judge", "canonical")


@dataclass(frozen=True, kw_only=True)
class Model:
    """The model of one run, for a program.

    Attributes:
        base_url: for SDKs of OpenAI; also in `OPENAI_BASE_URL`.
        anthropic_base_url: for SDKs of Anthropic; also in `ANTHROPIC_BASE_URL`.
        api_key: valid for this run only; also in `OPENAI_API_KEY` and `ANTHROPIC_API_KEY`.
        seed: for all random numbers of the run; it already seeds Python's and NumPy's global ones.
        folder: of the run, in which it starts, and which is deleted afterwards.
        name: of the model, if the program declares no roles.
    """

    base_url: str
    api_key: str
    seed: int
    folder: Path
    name: str = DEFAULT_ROLE
    _reward_key: str = field(default="", repr=False)

    @property
    def anthropic_base_url(self) -> str:
        return self.base_url.removesuffix("/v1")

    def reward(self, value: float) -> None:
        """Adds a reward for the last replies; before the first call, for the first ones. Rewards before a call add up.

        Raises:
            ValueError: `value` is not a finite number.
        """
        body = json.dumps({"value": finite_number("a reward", value)})
        host, _, path = self.base_url.removeprefix("http://").partition("/")
        connection = http.client.HTTPConnection(host, timeout=60)
        try:
            connection.request("POST", f"/{path}/reward", body, {"authorization": f"Bearer {self._reward_key}"})
            connection.getresponse().read()
        finally:
            connection.close()


@dataclass(frozen=True, kw_only=True)
class Settings(Options):
    """The settings of a program, from the decorator `agent` or the options of its task.

    Attributes:
        columns: of a task row, for the program.
        max_calls: the most calls of a run; a run that makes more is stopped with the outcome `failure`.
        score: a function, or its `"module:function"`, that takes a task and the program's result, and returns the
            outcome. Without it the result must be a number, the outcome.
        roles: the names of models that it calls, each a role; if empty, every call has the role `policy`.
        settle: seconds without another call until simultaneous calls are complete; 0 for a program that makes one call
            at a time. `hf-credit agent check` reports whether it does.
        repeats: whether the same task, seed and replies produce the same calls, which replays need.
        seconds: the most between a reply and the next call.
        failure: the outcome of a run that raises or crashes after a reply, or makes too many calls.
        close: `"module:function"` that takes a task and the folder of its run, called after every end of a run, to
            clean up outside of the folder.
        judge: `"module:function"` that takes a call, as plain values, and a reply, and returns a score in [0, 1] for
            methods with an oracle. Imported in the training process.
        canonical: `"module:function"` that takes a call, as plain values, and returns the part that is compared when a
            run is restored, without times and addresses. Imported in the training process.
        history: of earlier replies that return unchanged, as in `hf_credit.playing.Prompts`.
        environment: names of variables for the program, besides those that every program gets. Those of a run, such as
            `HOME`, its folder, come before them.
        disk_bytes: the most bytes of a file that a run writes, and of all files in its folder together, which are
            measured again and again, so that they may exceed it for some seconds.
        checked: the number of the first tasks with which a training by a method that replays checks, before it starts,
            that the program repeats itself, as `hf-credit agent check` does; 0 for no check. Each takes two runs, and
            one for each call.
    """

    columns: tuple[str, ...] = ()
    max_calls: Count = 16
    score: str | None = None
    roles: tuple[str, ...] = ()
    settle: NotNegative = 0.0
    repeats: bool = True
    seconds: Positive = 60.0
    failure: float = 0.0
    close: str | None = None
    judge: str | None = None
    canonical: str | None = None
    history: Literal["append", "rendered"] = "append"
    environment: tuple[str, ...] = ()
    disk_bytes: Count = 2**30
    checked: Annotated[int, Range(0)] = 2

    def __post_init__(self) -> None:
        for name in _CODE:
            code = getattr(self, name)
            if callable(code):
                object.__setattr__(self, name, code := importable(code))
            if code is not None and not is_code(code):
                raise ValueError(f"{name} must be 'module:function', got {code!r}; name a function of a module.")
        super().__post_init__()


class Agent:
    """A function of a task and a `Model`, with its settings. A call of it calls the function.

    Args:
        function: the program.
        settings: of the program.
    """

    def __init__(self, function: Callable[[Mapping[str, Any], Model], Any], settings: Settings) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.settings = settings

    def __call__(self, task: Mapping[str, Any], model: Model) -> Any:
        return self.function(task, model)


def agent(**settings: Any) -> Callable[[Callable[[Mapping[str, Any], Model], Any]], Agent]:
    """Decorates a function of a task and a model, `f(task, model)`, as a program to train.

    The function is defined at the top level of a module, which is imported once and then forked for every run. It may
    call the model through any SDK or framework. Its result goes to the scorer, or is itself the outcome.

    Args:
        **settings: attributes of `Settings`. Functions of the same module may go by their names alone.

    Raises:
        ValueError: a setting is not possible.
        TypeError: a setting is unknown.
    """

    def decorated(function: Callable[[Mapping[str, Any], Model], Any]) -> Agent:
        code = {name: settings[name] for name in _CODE if isinstance(settings.get(name), str)}
        here = {name: f"{function.__module__}:{one}" for name, one in code.items() if one.isidentifier()}
        return Agent(function, Settings(**{**settings, **here}))

    return decorated
