"""A policy that replies with a function of its context, and a tokenizer with every printable character."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence

import pytest

from hf_credit.collaborations import Collaboration
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import Chat, Engine, Episode, Generation, RolloutRequest

Speaker = Callable[[str, str], str]
"""The reply of the role with a system prompt to a user message."""


@pytest.fixture(scope="session")
def chat() -> Chat:
    return Chat(tokenizer_of([string.printable, "→’é"]))


@pytest.fixture
def play(chat: Chat) -> Callable[..., list[Episode]]:
    """Plays task rows through an Engine with a speaker as the policy."""

    def run(collaboration: Collaboration, speak: Speaker, tasks: Sequence[dict[str, object]]) -> list[Episode]:
        def reply(context: Sequence[int]) -> Generation:
            _, _, text = chat.tokenizer.decode(list(context)).partition("<|system|>")
            system, user = text.removesuffix("<|end|><|assistant|>").split("<|end|><|user|>")
            ids = chat.tokenizer(speak(system, user), add_special_tokens=False)["input_ids"]
            return Generation(ids=[*ids, chat.tokenizer.eos_token_id])

        def generate(contexts: Sequence[Sequence[int]]) -> list[Generation]:
            return [reply(context) for context in contexts]

        return Engine(collaboration, chat, generate).run([RolloutRequest(task=task) for task in tasks])

    return run
