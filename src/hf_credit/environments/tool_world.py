"""Objects whose public methods are tools, as TRL's `environment_factory` makes them, as environments."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from hf_credit.environments.replayed import ReplayedEnvironment, ReplayedState
from hf_credit.environments.tool_calls import has_mark, marked, one_action, read_calls, write_call
from hf_credit.registry import find

_NO_TOOLS = ("reset", "get_reward", "close")
_ANSWER = "I am done."
_SHOWN: set[tuple[type[Any], str, type[Exception]]] = set()  # failures that were logged, each kind once a process

logger = logging.getLogger(__name__)

RewardFunction = Callable[..., Any]
"""A reward function of TRL's signature, `f(prompts, completions, environments, **columns) -> list[float | None]`."""


class ToolEnvironment(ReplayedEnvironment):
    """An environment of TRL's `environment_factory`, whose states can be replayed.

    Such an object has `reset(**row) -> str | None`, `get_reward() -> float`, and public methods with type hints and a
    docstring, each of which is a tool. `close()`, where there is one, releases it. Methods may be `async`.

    A reply with one tool call takes it, and its result is shown as a message of the role `tool`; what a tool raises is
    shown as well, and logged with its traceback the first time. Arguments that do not fit its schema never reach it. A
    reply without a call is an answer and ends the episode. Several calls, or one that cannot be read, cost a turn.
    What is shown first is the column `prompt` of a row, if it has one, followed by what `reset` returned.

    The outcome is what `get_reward` returns plus the sum of `reward_funcs`, both called after each action. A
    `get_reward` with a parameter `final_answer` is given the reply that ended the episode, and None before. Reward
    functions have TRL's signature, `f(prompts, completions, environments, **columns)`, and return a list of one number
    or None, which counts as 0. `completions` are the messages of the run so far: tool calls, their results, and the
    final reply as the last message, of the role `assistant`.

    Args:
        factory: returns a new object; or its `"module:name"`, which is imported and must be code that you trust.
        columns: of a task row, all passed to `reset`, and all but `prompt` to the reward functions.
        turns: the most tool calls and answers of an episode.
        instructions: shown before the first message, if instructions are shown.
        sessions: the most live objects.
        reward_funcs: a function, or the `"module:name"` of one, or several; with one, `get_reward` may be left out.
            The same run must have the same reward each time, as a restored state is compared.

    Raises:
        ValueError: `factory` or a reward function cannot be imported, what `factory` returns lacks `reset`,
            `get_reward` or tools, or a tool lacks type hints or a docstring.
    """

    name = "tools"
    longest_action = 16_384  # characters of a call, or of the final reply
    unreadable = "No tool call could be read in the last reply: one call a turn, as JSON."

    def __init__(
        self,
        factory: Callable[[], Any] | str,
        columns: Sequence[str] = ("prompt",),
        turns: int = 16,
        instructions: str = "Use the tools. A reply without a tool call is your answer and ends the task.",
        sessions: int = 64,
        reward_funcs: RewardFunction | str | Sequence[RewardFunction | str] = (),
    ) -> None:
        super().__init__(sessions, turns)
        self.factory = factory
        self.columns = tuple(columns)
        self.task_columns = self.columns  # type: ignore[misc]  # each factory has rows of its own
        self._instructions = instructions
        self._make = find("factory", {}, factory) if isinstance(factory, str) else factory
        listed: Any = (reward_funcs,) if isinstance(reward_funcs, str) or callable(reward_funcs) else reward_funcs
        self.reward_funcs: tuple[RewardFunction | str, ...] = tuple(listed)
        self._rewards = [find("reward function", {}, f) if isinstance(f, str) else f for f in self.reward_funcs]
        self.tools = tuple(_schemas(self._make(), not self._rewards))
        self._validators = {one["function"]["name"]: _validator(one["function"]) for one in self.tools}

    @property
    def instructions(self) -> str:
        return self._instructions

    def sample_task(self, seed: int) -> dict[str, Any]:
        if not self.columns:
            return {}
        raise ValueError(
            f"tasks of {self.name!r} are rows of a dataset with the columns {', '.join(self.columns)}, got none; pass "
            "one, with a column seed beside them."
        )

    def open_world(self) -> ToolWorld:
        return ToolWorld(self._make(), self._validators, self._rewards)

    def read_action(self, reply: str) -> str:
        return one_action(reply)

    def write_action(self, action: str) -> str:
        return marked(action) if read_calls(action) else action

    def understands(self, state: ReplayedState, action: str) -> bool:
        return not has_mark(action)

    def answers_as(self, action: str) -> str:
        return "tool" if read_calls(action) else "user"

    def examples(self, state: ReplayedState) -> Sequence[str]:
        free = [one["function"] for one in self.tools if not one["function"]["parameters"].get("required")]
        return (*(write_call(one["name"], {}) for one in free), _ANSWER)


class ToolWorld:
    """One live object with tools.

    Args:
        tools: the object.
        validators: of the arguments of each tool, by its name.
        reward_funcs: of TRL's signature.
    """

    def __init__(self, tools: Any, validators: Mapping[str, Any], reward_funcs: Sequence[RewardFunction] = ()) -> None:
        self.tools = tools
        self.validators = validators
        self.reward_funcs = reward_funcs
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reward = 0.0

    def reset(self, task: Mapping[str, Any], seed: int) -> str:
        self._reward = 0.0
        shown = self._awaited(self.tools.reset(**task))
        first = "\n\n".join(text for text in (_prompt(task.get("prompt")), shown) if text)
        self._prompt: list[dict[str, Any]] = [{"role": "user", "content": first}]
        self._completion: list[dict[str, Any]] = []
        self._columns = {name: [value] for name, value in task.items() if name != "prompt"}
        return first

    def step(self, action: str) -> tuple[str, float, bool, Mapping[str, Any]]:
        calls = read_calls(action)
        shown, refused = "", False
        if calls:
            name, arguments = calls[0]
            shown, refused = self._called(name, arguments)
            call = {"type": "function", "function": {"name": name, "arguments": arguments}}
            self._completion += [
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "name": name, "content": shown},
            ]
        else:
            self._completion.append({"role": "assistant", "content": action})
        before, self._reward = self._reward, self._scored(None if calls else action)
        return shown, self._reward - before, not calls, {"refused": refused, "success": self._reward > 0}

    def _scored(self, final_answer: str | None) -> float:
        """What the run so far is worth."""
        total = 0.0
        if (own := getattr(self.tools, "get_reward", None)) is not None:
            takes_answer = "final_answer" in inspect.signature(own).parameters
            total += float(self._awaited(own(final_answer=final_answer) if takes_answer else own()))
        for function in self.reward_funcs:
            rewards = self._awaited(
                function(
                    prompts=[list(self._prompt)],
                    completions=[list(self._completion)],
                    environments=[self.tools],
                    **self._columns,
                )
            )
            if not isinstance(rewards, Sequence) or len(rewards) != 1:
                raise ValueError(
                    f"a reward function must return a list with one reward for each completion, got {rewards!r} of "
                    f"{getattr(function, '__name__', function)!r} for one; return such a list."
                )
            total += 0.0 if rewards[0] is None else float(rewards[0])
        return total

    def close(self) -> None:
        if hasattr(self.tools, "close"):
            self._awaited(self.tools.close())
        if self._loop is not None:
            self._loop.close()

    def _called(self, name: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        if name not in self.validators:
            return f"Error: there is no tool {name[:100]!r}; there are {', '.join(self.validators)}.", True
        problem = next(self.validators[name].iter_errors(arguments), None)
        if problem is not None:
            return f"Error: {problem.message[:500]}", True
        try:
            return str(self._awaited(getattr(self.tools, name)(**arguments))), False
        except Exception as error:  # as TRL does: what a tool raises is what it answers
            kind = (type(self.tools), name, type(error))
            if kind not in _SHOWN:
                _SHOWN.add(kind)
                logger.warning("The tool %r raised; the agent is shown the message.", name, exc_info=error)
            return f"Error: {error}", False

    def _awaited(self, result: Any) -> Any:
        if not isinstance(result, Coroutine):
            return result
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(result)


def _schemas(tools: Any, owns_reward: bool) -> list[dict[str, Any]]:
    """What a chat template shows of each tool of an object, in TRL's order.

    Args:
        tools: the object.
        owns_reward: whether it must have `get_reward`.
    """
    from transformers.utils import get_json_schema  # takes a second, which only those who have tools should wait

    methods = [name for name, _ in inspect.getmembers(type(tools), predicate=inspect.isfunction)]
    for needed in ("reset", "get_reward") if owns_reward else ("reset",):
        if needed not in methods:
            other = ", or pass reward_funcs" if needed == "get_reward" else ""
            raise ValueError(
                f"an environment of tools must have the methods reset and get_reward, got a {type(tools).__name__} "
                f"without {needed}; add it{other}."
            )
    public = [name for name in methods if name not in _NO_TOOLS and not name.startswith("_")]
    if not public:
        raise ValueError(
            f"an environment of tools must have a public method, got a {type(tools).__name__} without one; add a tool."
        )
    try:
        return [get_json_schema(getattr(tools, name)) for name in public]
    except Exception as error:
        raise ValueError(
            f"every tool must have type hints and a docstring that describes its arguments, got {error} for a "
            f"{type(tools).__name__}; add them, or call what is no tool by a name with an underscore."
        ) from error


def _validator(function: Mapping[str, Any]) -> Any:
    try:
        from jsonschema import Draft202012Validator
    except ImportError as error:
        raise ValueError(
            "environments of tools need the package jsonschema, got none; install hf-credit[tools]."
        ) from error
    return Draft202012Validator({**function["parameters"], "additionalProperties": False})


def _prompt(prompt: Any) -> str:
    """The text of a prompt column: text, or the messages of a conversation."""
    if isinstance(prompt, list):
        return "\n\n".join(str(message["content"]) for message in prompt)
    return "" if prompt is None else str(prompt)
