"""Environments from objects whose public methods are tools, in the form of TRL's `environment_factory`."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import operator
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hf_credit.content import Content, Image, content_of, has_images, joined
from hf_credit.environments.actions import calls_of, one_action, write_call
from hf_credit.environments.replayed import ReplayedEnvironment, ReplayedState
from hf_credit.optional_packages import needed
from hf_credit.registry import find
from hf_credit.words import cut

_NO_TOOLS = ("reset", "get_reward", "close")
_ANSWER = "I am done."
_MOST = 2**14  # characters of a result
_SHOWN: set[tuple[type[Any], str, type[Any]]] = set()  # the kinds of failures that this process has logged

logger = logging.getLogger(__name__)

RewardFunction = Callable[..., Any]
"""A reward function of TRL's signature, `f(prompts, completions, environments, **columns) -> list[float | None]`."""


class ToolEnvironment(ReplayedEnvironment):
    """An environment of TRL's `environment_factory`, whose states can be replayed.

    Such an object has `reset(**row) -> str | list | None`, `get_reward() -> float`, and public methods with type hints
    and a docstring, each of which is a tool. An optional `close()` releases it. Methods may be `async`.

    A reply with one tool call runs the tool, and the observation is its result, as a message of the role `tool`: its
    text, or an image of PIL or a list with one, as `hf_credit.content.content_of` reads. An exception of a tool is
    its result, and is logged with its traceback the first time. Arguments that do not fit the schema never reach the
    tool. A reply without a call is an answer and ends the episode. A reply with several calls, or with one that cannot
    be read, costs a turn. The first observation is the row's `prompt`, if it has one, followed by the result of
    `reset`. The images of a column `images` or `image`, if the columns name one, are in the prompt as in TRL: in their
    places, or before the text of the first user.

    The outcome is the result of `get_reward` plus the sum of `reward_funcs`, all called after each action. A
    `get_reward` with a parameter `final_answer` receives the reply that ended the episode, and None before. Reward
    functions have TRL's signature, `f(prompts, completions, environments, **columns)`, and return a list of one number
    or None, where they do not apply. An episode for which all rewards are None at its end has no outcome: it is an
    error, and in no comparison. `completions` are the messages of the episode so far: tool calls, their results, and
    the final reply as the last message, of the role `assistant`.

    Args:
        factory: returns a new object; or its `"module:name"`, which is imported and must be code that you trust.
        columns: the columns of a task row; all are passed to `reset`, and all but `prompt` to the reward functions.
        turns: the most tool calls and answers of an episode.
        instructions: the text before the first message, if instructions are shown.
        sessions: the most live objects.
        reward_funcs: a function, its `"module:name"`, or several; with one, `get_reward` is optional. The same episode
            must have the same reward each time, as restored states are compared. With one, an object may have no tool,
            for rows that are answered at once.

    Raises:
        ValueError: `factory` or a reward function cannot be imported, the object lacks `reset`, `get_reward` or
            tools, or a tool lacks type hints or a docstring.
    """

    name = "tools"
    instructions = ""
    longest_action = 2**17  # characters of a call or a final reply; the longest call in a reply, escaped, has fewer

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
        self.instructions = instructions
        self._make = find("factory", {}, factory) if isinstance(factory, str) else factory
        listed: Any = (reward_funcs,) if isinstance(reward_funcs, str) or callable(reward_funcs) else reward_funcs
        self.reward_funcs: tuple[RewardFunction | str, ...] = tuple(listed)
        self._rewards = [find("reward function", {}, f) if isinstance(f, str) else f for f in self.reward_funcs]
        shown = ToolWorld(self._make(), {})
        self.tools = tuple(_schemas(shown.tools, not self._rewards))
        with suppress(Exception):  # which may need a reset first
            shown.close()
        kind = needed("environments of tools need", "jsonschema", "tools").Draft202012Validator
        self._validators = {
            one["name"]: kind({**one["parameters"], "additionalProperties": False})
            for one in (tool["function"] for tool in self.tools)
        }

    def sample_task(self, seed: int) -> dict[str, Any]:
        if not self.columns:
            return {}
        raise ValueError(
            f"tasks of {self.name!r} are rows of a dataset with the columns {', '.join(self.columns)}, got none; pass "
            "one that also has the column seed."
        )

    def read_action(self, reply: str) -> str:
        return one_action(reply, self.tools)

    def write_action(self, action: str) -> str:
        return super().write_action(action) if self.tools else action

    def open_world(self) -> ToolWorld:
        return ToolWorld(self._make(), self._validators, self._rewards)

    def examples(self, state: ReplayedState) -> Sequence[str]:
        functions = [tool["function"] for tool in self.tools]
        calls = [write_call(one["name"], {}) for one in functions if not one["parameters"].get("required")]
        return (*calls, _ANSWER)


@dataclass(eq=False)
class ToolWorld:
    """One live object with tools."""

    tools: Any
    validators: Mapping[str, Any]  # for each tool's name, the validator of its arguments
    reward_funcs: Sequence[RewardFunction] = ()
    _loop: asyncio.AbstractEventLoop | None = None
    _reward: float = 0.0

    def reset(self, task: Mapping[str, Any], seed: int) -> Content:
        self._reward = 0.0
        shown = self._awaited(self.tools.reset(**task))
        images = task.get("images", [task["image"]] if task.get("image") is not None else None)
        prompt = _prompt(task.get("prompt"), images or ())
        first = joined((content_of(one) for one in (*prompt, shown) if one), "\n\n")
        self._prompt: list[dict[str, Any]] = [{"role": "user", "content": _as_in_trl(first)}]
        self._completion: list[dict[str, Any]] = []
        self._columns = {name: [value] for name, value in task.items() if name != "prompt"}
        return first

    def step(self, action: str) -> tuple[Content, float, bool, Mapping[str, Any]]:
        calls = calls_of(action)
        shown: Content = ""
        refused = False
        if calls:
            name, arguments = calls[0].name, calls[0].arguments
            shown, refused = self._called(name, arguments)
            call = {"type": "function", "function": {"name": name, "arguments": arguments}}
            self._completion += [
                {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "name": name, "content": _as_in_trl(shown)},
            ]
        else:
            self._completion.append({"role": "assistant", "content": action})
        rewards = [one for one in self._scored(None if calls else action) if one is not None]
        before = self._reward
        if rewards:
            self._reward = functools.reduce(operator.add, map(float, rewards))
        elif not calls:
            self._tell_once("reward", TypeError, "All rewards of an episode are None, so its outcome is unknown.")
        facts = {"refused": refused, "success": self._reward > 0, "unscored": not rewards}
        return shown, self._reward - before, not calls, facts

    def _scored(self, final_answer: str | None) -> Iterator[Any]:
        """All rewards for the episode so far; `None` where one does not apply."""
        if (get_reward := getattr(self.tools, "get_reward", None)) is not None:
            takes_answer = "final_answer" in inspect.signature(get_reward).parameters
            yield self._awaited(get_reward(final_answer=final_answer) if takes_answer else get_reward())
        for function in self.reward_funcs:
            episode = {"prompts": [list(self._prompt)], "completions": [list(self._completion)]}
            rewards = self._awaited(function(**episode, environments=[self.tools], **self._columns))
            if not isinstance(rewards, Sequence) or len(rewards) != 1:
                raise ValueError(
                    f"a reward function must return a list with one reward for each completion, got {rewards!r} of "
                    f"{getattr(function, '__name__', function)!r} for one; return such a list."
                )
            yield rewards[0]

    def close(self) -> None:
        if hasattr(self.tools, "close"):
            self._awaited(self.tools.close())
        if self._loop is not None:
            self._loop.close()

    def _called(self, name: str, arguments: dict[str, Any]) -> tuple[Content, bool]:
        if name not in self.validators:
            return f"Error: there is no tool {name[:100]!r}; there are {', '.join(self.validators)}.", True
        problem = next(self.validators[name].iter_errors(arguments), None)
        if problem is not None:
            return f"Error: {problem.message[:500]}", True
        try:
            result = self._awaited(getattr(self.tools, name)(**arguments))
            return content_of(result) if has_images(result) else cut(str(result), _MOST), False
        except (Exception, SystemExit) as error:  # the message becomes the result, as in TRL
            self._tell_once(name, type(error), f"The tool {name!r} raised; the agent is shown the message.", error)
            return cut(f"Error: {error}", _MOST), False

    def _tell_once(self, name: str, kind: type[Any], message: str, error: BaseException | None = None) -> None:
        if (type(self.tools), name, kind) not in _SHOWN:
            _SHOWN.add((type(self.tools), name, kind))
            logger.warning(message, exc_info=error)

    def _awaited(self, result: Any) -> Any:
        if not isinstance(result, Coroutine):
            return result
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        return self._loop.run_until_complete(result)


def _schemas(tools: Any, owns_reward: bool) -> list[dict[str, Any]]:
    """The JSON schema of each tool of an object, in TRL's order; with `owns_reward`, it must have `get_reward`."""
    from transformers.utils import get_json_schema  # takes a second to import

    methods = [name for name, _ in inspect.getmembers(type(tools), predicate=inspect.isfunction)]
    for method in ("reset", "get_reward") if owns_reward else ("reset",):
        if method not in methods:
            other = ", or pass reward_funcs" if method == "get_reward" else ""
            raise ValueError(
                f"an environment of tools must have the methods reset and get_reward, got a {type(tools).__name__} "
                f"without {method}; add it{other}."
            )
    public = [name for name in methods if name not in _NO_TOOLS and not name.startswith("_")]
    if not public and owns_reward:
        raise ValueError(
            f"an environment of tools must have a public method, got a {type(tools).__name__} without one; add a tool "
            "or, for rows that are answered at once, reward_funcs."
        )
    try:
        return [get_json_schema(getattr(tools, name)) for name in public]
    except Exception as error:
        raise ValueError(
            f"every tool must have type hints and a docstring that describes its arguments, got {error} for a "
            f"{type(tools).__name__}; add them, or begin the names of other methods with an underscore."
        ) from error


def _as_in_trl(content: Content) -> Any:
    """Returns what a message says in the form in which reward functions of TRL get it."""
    if isinstance(content, str):
        return content
    images = [{"image": one.pil()} if isinstance(one, Image) else {"text": one.text} for one in content]
    return [{"type": next(iter(one)), **one} for one in images]


def _prompt(prompt: Any, images: Sequence[Any]) -> list[Content]:
    """What each message of a prompt says, with its images."""
    left, said = list(images), []
    text = "" if prompt is None else str(prompt)
    for message in prompt if isinstance(prompt, list) else [{"role": "user", "content": text}]:
        content, others = message.get("content"), {name for name, value in message.items() if value}
        if others - {"role", "content"} or not isinstance(content, str | list):
            raise ValueError(
                f"a prompt must be text or messages of text and images, got {str(message)[:200]}; correct it."
            )
        if isinstance(content, list):
            content = [left.pop(0) if left and _is_place(part) else part for part in content]
        elif message.get("role") == "user":
            content, left = [*left, content], []
        said.append(content_of(content))
    if left:
        raise ValueError(f"a prompt must have a place for each image, got {len(left)} too many; add places.")
    return said


def _is_place(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "image" and not part.get("image")
