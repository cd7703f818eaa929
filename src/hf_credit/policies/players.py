"""Players that reply in words, for roles or continuations: a model behind a server, and the task's own script."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

import torch

from hf_credit.boundary import read
from hf_credit.content import in_words
from hf_credit.environments.actions import marked, write_call
from hf_credit.options import Count
from hf_credit.policies.scripted import player_of
from hf_credit.replies import listed_calls
from hf_credit.rollouts import Interaction, Request
from hf_credit.rollouts.interaction import or_error
from hf_credit.rollouts.samplers import Asked, BadReplyError, Player
from hf_credit.rollouts.scripts import Script
from hf_credit.rollouts.templates import as_served
from hf_credit.served_model import Question, ServedModel


@dataclass(frozen=True, kw_only=True)
class ServedPlayer(ServedModel, Player):
    """Plays by what a model behind a server answers to the messages and tools of each request.

    It decodes greedily, unless `request` has a `temperature`, and then asks with a seed. An answer in `cache` is that
    to the same request with the same seed.
    It gets images in words. Without an answer the episode ends in an error. Its other options are those of every
    `ServedModel`.

    Args:
        max_new_tokens: maximum length of a reply, in tokens of the server.
    """

    owner: ClassVar[str] = "a player"

    max_new_tokens: Count = 1024

    @property
    def trial(self) -> Question:
        return self._question(Request(role="agent", messages=[{"role": "user", "content": "What is 2 + 3?"}]), None)

    def replies(self, asked: Sequence[Asked]) -> list[str | Exception]:
        costs = Counter[str]()
        found = self.asked([self._question(one, seed) for _, one, seed in asked], str, costs)
        self._taken.update(tokens=costs["tokens"])
        why = ", ".join(f"{name} {count}" for name, count in costs.items() if name.startswith("failed/"))
        none = BadReplyError(f"a player must reply, got no answer of {self.model!r} ({why}); look at its server.")
        return [none if one is None else one for one in found]

    def taken(self) -> int:
        return self._taken.pop("tokens", 0)

    @cached_property
    def _taken(self) -> Counter[str]:
        return Counter()

    def _question(self, request: Request, seed: int | None) -> Question:
        most = min(self.max_new_tokens, request.max_tokens or self.max_new_tokens)
        tools = [{"type": "function", "function": one.get("function", one)} for one in request.tools]
        messages = [_on_the_wire(one) for one in as_served(request.messages, request.tools)]
        fields = {"messages": messages, "tools": tools or None, "temperature": 0, "max_completion_tokens": most}
        drawn = {} if self.request.get("temperature", 0) == 0 else {"seed": _seed(seed)}
        return {**fields, **drawn}, _text


def _seed(seed: int | None) -> int:
    return int(torch.randint(2**62, ())) if seed is None else seed % 2**62


def _on_the_wire(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of a template in the form of chat completions."""
    sent = {name: message[name] for name in ("role", "tool_call_id") if name in message}
    sent["content"] = in_words(message.get("content"))
    if message.get("tool_calls"):
        made = [(call["id"], call.get("function", call)) for call in message["tool_calls"]]
        called = [(number, {"name": it["name"], "arguments": json.dumps(it["arguments"])}) for number, it in made]
        sent["tool_calls"] = [{"id": number, "type": "function", "function": function} for number, function in called]
    return sent


def _text(choice: Mapping[str, Any]) -> str | None:
    """The reply in a choice, with its calls as scripts write them; `None` without text or calls, or with bad ones."""
    message = read(dict, choice["message"], "the message of an answer")
    calls = listed_calls([call["function"] for call in message.get("tool_calls") or ()])
    said = read(str, message.get("content") or "", "the text of an answer")
    if any(call.why for call in calls) or not (said or calls):
        return None
    return "\n".join([*([said] if said else []), *(marked(write_call(one.name, one.arguments)) for one in calls)])


@dataclass(frozen=True, kw_only=True, eq=False)
class ScriptPlayer(Player):
    """Plays by the script of a task, such as that of its oracle, without a model.

    Args:
        quality: the probability of a good action, as for `hf_credit.policies.scripted.player_of`.
        script: another one, as `"module:object"`.
    """

    seeded: ClassVar[bool | None] = True

    interaction: Interaction[Any] = field(repr=False)
    quality: float = 1.0
    script: str | None = None

    def check(self) -> Self:
        _ = self._play
        return self

    def replies(self, asked: Sequence[Asked]) -> list[str | Exception]:
        return [or_error(self._play, state, one, random.Random(_seed(seed))) for state, one, seed in asked]

    @cached_property
    def _play(self) -> Script:
        return player_of(self.interaction, self.quality, self.script)


PLAYERS: dict[str, Any] = {"server": ServedPlayer, "script": ScriptPlayer}
"""By the name of a role's model."""
