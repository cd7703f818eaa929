"""What a user writes: a function of a task and a model."""

from __future__ import annotations

import functools
import http.client
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from hf_credit.validators import finite_number, whole_number

DEFAULT_ROLE = "policy"


@dataclass(frozen=True, kw_only=True)
class Model:
    """The model as a program meets it, for as long as one run lasts.

    Attributes:
        base_url: for SDKs of OpenAI; also in `OPENAI_BASE_URL`.
        anthropic_base_url: for those of Anthropic; also in `ANTHROPIC_BASE_URL`.
        api_key: of this run alone; also in `OPENAI_API_KEY` and `ANTHROPIC_API_KEY`.
        seed: of all that is random in the run; Python's and NumPy's own random numbers start from it already.
        folder: the run's own, in which it starts, and which is deleted behind it.
        name: the model's, where no roles are declared.
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
        """Pays for what was replied last; what is paid until the next call adds up.

        Raises:
            ValueError: `value` is no finite number.
        """
        paid = finite_number("a reward", value)
        host, _, path = self.base_url.removeprefix("http://").partition("/")
        connection = http.client.HTTPConnection(host, timeout=60)
        try:
            connection.request(
                "POST", f"/{path}/reward", json.dumps({"value": paid}), {"authorization": f"Bearer {self._reward_key}"}
            )
            connection.getresponse().read()
        finally:
            connection.close()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a program is run; what `agent` says of one, or the options of its task.

    Attributes:
        columns: of a task row, which the program is given.
        max_calls: the most calls of a run; one that asks for more is stopped, and worth `failure`.
        score: `"module:function"`, which says of a task and what the program returned what the run is worth. Without,
            what it returns must be the number itself.
        roles: the names of models that it calls, each a role of its own; without, every call is of the role `policy`.
        settle: seconds without another call until calls at once are complete; 0 for a program that makes one call at a
            time. `hf-credit agent check` says whether one does.
        repeats: whether the same task, seed and replies lead to the same calls, without which nothing is replayed.
        seconds: the most that a run may take between a reply and what follows.
        failure: what a run is worth that raises after a reply, or calls too often.
        close: `"module:function"` of a task and the folder of its run, which is called once the run has ended, however
            it ended: for what it leaves elsewhere.
        judge: `"module:function"` from a call, as plain values, and a reply to a score in [0, 1]: the verdict that
            methods with an oracle ask for. Imported where training runs.
        canonical: `"module:function"` from a call, as plain values, to what of it is compared when a run is restored:
            times and addresses are left out there. Imported where training runs.
        environment: names of variables that it gets beside those that every program needs.
    """

    columns: tuple[str, ...] = ()
    max_calls: int = 16
    score: str | None = None
    roles: tuple[str, ...] = ()
    settle: float = 0.0
    repeats: bool = True
    seconds: float = 60.0
    failure: float = 0.0
    close: str | None = None
    judge: str | None = None
    canonical: str | None = None
    environment: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        whole_number("max_calls", self.max_calls, 1)
        finite_number("settle", self.settle, least=0)
        finite_number("seconds", self.seconds, above=0)
        finite_number("failure", self.failure)
        for name in ("columns", "roles", "environment"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(one, str) for one in value):
                raise ValueError(f"{name} must be names, got {value!r}; write a list of them.")
            object.__setattr__(self, name, tuple(value))
        for name in ("score", "close", "judge", "canonical"):
            code = getattr(self, name)
            if code is not None and (not isinstance(code, str) or code.count(":") != 1):
                raise ValueError(f"{name} must be 'module:function', got {code!r}; name a function at the top of one.")


SETTINGS = tuple(one.name for one in fields(Settings))


class Agent:
    """A function of a task and a `Model`, with how it is run. Called, it is that function.

    Args:
        function: the program.
        settings: how it is run.
    """

    def __init__(self, function: Callable[[Mapping[str, Any], Model], Any], settings: Settings) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.settings = settings

    def __call__(self, task: Mapping[str, Any], model: Model) -> Any:
        return self.function(task, model)


def agent(
    *,
    columns: Sequence[str] = (),
    max_calls: int = 16,
    score: str | None = None,
    roles: Sequence[str] = (),
    **others: Any,
) -> Callable[[Callable[[Mapping[str, Any], Model], Any]], Agent]:
    """Decorates a function of a task and a model, `f(task, model)`, which makes it a program to train.

    It stands at the top of a module, which is imported once and then forked for every run, and may call the model
    through any SDK or framework. What it returns is read by the scorer, or is the run's worth itself.

    Args:
        columns, max_calls, score, roles, **others: as the attributes of `Settings`.

    Raises:
        ValueError: a setting is not possible.
        TypeError: a setting is unknown.
    """
    settings = Settings(columns=tuple(columns), max_calls=max_calls, score=score, roles=tuple(roles), **others)
    return lambda function: Agent(function, settings)


def model_environment(model: Model) -> dict[str, str]:
    """The variables by which a program, or a command, finds its model."""
    return {
        "OPENAI_BASE_URL": model.base_url,
        "OPENAI_API_KEY": model.api_key,
        "ANTHROPIC_BASE_URL": model.anthropic_base_url,
        "ANTHROPIC_API_KEY": model.api_key,
        "HF_CREDIT_SEED": str(model.seed),
        "HF_CREDIT_FOLDER": os.fspath(model.folder),
        "HOME": os.fspath(model.folder),
    }
