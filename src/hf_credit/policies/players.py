"""Players that reply in words, for roles or continuations: a model behind a server, and the task's own script."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch

from hf_credit.boundary import read
from hf_credit.content import in_words
from hf_credit.environments.actions import marked, write_call
from hf_credit.options import Count
from hf_credit.policies.scripted import player_of
from hf_credit.registry import refuse_options
from hf_credit.replies import listed_calls
from hf_credit.rollouts import Interaction, Request
from hf_credit.rollouts.samplers import Asked, BadReplyError, Player
from hf_credit.rollouts.templates import as_served
from hf_credit.served_model import Question, ServedModel


@dataclass(frozen=True, kw_only=True)
class ServedPlayer(ServedModel, Player):
    """Plays by what a model behind a server answers to the messages and tools of each request.

    It decodes greedily, unless `request` has a `temperature`; a greedy answer in `cache` is that to the same request.
    It gets images in words. Without an answer the episode ends in an error. Its other options are those of every
    `ServedModel`.

    Args:
        max_new_tokens: maximum length of a reply, in tokens of the server.
    """

    owner: ClassVar[str] = "a player"

    max_new_tokens: Count = 1024

    @property
    def trial(self) -> Question:
        return self._question(Request(role="agent", messages=[{"role": "user", "content": "What is 2 + 3?"}]))

    def replies(self, asked: Sequence[Asked]) -> list[str | Exception]:
        costs = Counter[str]()
        greedy = self.request.get("temperature", 0) == 0
        found = self.asked([self._question(one) for _, one, _ in asked], str, costs, kept=greedy)
        self._taken.update(tokens=costs["tokens"])
        why = ", ".join(f"{name} {count}" for name, count in costs.items() if name.startswith("failed/"))
        none = BadReplyError(f"a player must reply, got no answer of {self.model!r} ({why}); look at its server.")
        return [none if one is None else one for one in found]

    def taken(self) -> int:
        return self._taken.pop("tokens", 0)

    @cached_property
    def _taken(self) -> Counter[str]:
        return Counter()

    def _question(self, request: Request) -> Question:
        most = min(self.max_new_tokens, request.max_tokens or self.max_new_tokens)
        tools = [{"type": "function", "function": one.get("function", one)} for one in request.tools]
        messages = as_served([_in_words(one) for one in request.messages], request.tools)
        fields = {"messages": [_on_the_wire(one) for one in messages], "tools": tools or None}
        return {**fields, "temperature": 0, "max_completion_tokens": most}, _text


def _in_words(message: Mapping[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    return {**message, "content": content if isinstance(content, str) else in_words(content)}


def _on_the_wire(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of a template in the form of chat completions."""
    one = {name: message[name] for name in ("role", "content", "tool_call_id") if name in message}
    if message.get("tool_calls"):
        made = [(call["id"], call.get("function", call)) for call in message["tool_calls"]]
        called = [(number, {"name": it["name"], "arguments": json.dumps(it["arguments"])}) for number, it in made]
        one["tool_calls"] = [{"id": number, "type": "function", "function": function} for number, function in called]
    return one


def _text(choice: Mapping[str, Any]) -> str | None:
    """The reply in a choice, with its calls as scripts write them; `None` without text or calls, or with bad ones."""
    message = read(dict, choice["message"], "the message of an answer")
    calls = listed_calls([call["function"] for call in message.get("tool_calls") or ()])
    said = read(str, message.get("content") or "", "the text of an answer")
    if any(call.why for call in calls) or not (said or calls):
        return None
    return "\n".join([*([said] if said else []), *(marked(write_call(one.name, one.arguments)) for one in calls)])


class ScriptPlayer(Player):
    """Plays by the script of a task, such as that of its oracle, without a model.

    Args:
        quality: the probability of a good action, as for `hf_credit.policies.scripted.player_of`.
        script: another one, as `"module:object"`.
    """

    seeded = True

    def __init__(self, interaction: Interaction[Any], quality: float = 1.0, script: str | None = None) -> None:
        self.quality, self.script = quality, script
        self._play = player_of(interaction, quality, script)

    def __repr__(self) -> str:
        return f"script({self.quality}, {self.script})"

    def replies(self, asked: Sequence[Asked]) -> list[str | Exception]:
        return [self._reply(*one) for one in asked]

    def _reply(self, state: Any, request: Request, seed: int | None) -> str | Exception:
        draws = random.Random(int(torch.randint(2**62, ())) if seed is None else seed)
        try:
            return self._play(state, request, draws)
        except Exception as error:  # of the task's own code
            return error


def player(name: str, options: Mapping[str, Any], interaction: Interaction[Any], max_new_tokens: int) -> Player:
    """Returns the player that plays a task as a `"server"` or a `"script"`.

    Args:
        options: of `ServedPlayer` or `ScriptPlayer`.
        max_new_tokens: of a server, unless `options` say it.

    Raises:
        ValueError: an option is unknown or out of range, the server does not answer, or the task has no script.
    """
    if name == "server":
        refuse_options("player", ServedPlayer, name, options)
        return ServedPlayer(**{"max_new_tokens": max_new_tokens, **options}).check()
    known = {"interaction": interaction, **options}
    refuse_options("player", ScriptPlayer, name, known)
    return ScriptPlayer(**known)
