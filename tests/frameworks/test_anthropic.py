"""Programs on Anthropic's SDK stream, count, compact and catch errors as with its server."""

from __future__ import annotations

import string
from collections.abc import Iterator

import pytest

from hf_credit.agents import AgentInteraction
from hf_credit.environments.actions import marked, write_call
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import Chat, Engine, Generation, RolloutRequest

pytestmark = pytest.mark.frameworks


@pytest.fixture(scope="module")
def interaction() -> Iterator[AgentInteraction]:
    interaction = AgentInteraction("on_anthropic_wire:run")
    yield interaction
    interaction.close()


@pytest.mark.parametrize(
    ("what", "decisions", "refused"), [("streams", 2, 0), ("counts", 1, 0), ("compacts", 3, 0), ("falls_back", 1, 3)]
)
def test_a_program_of_anthropic_s_sdk_goes_as_deployed(
    interaction: AgentInteraction, what: str, decisions: int, refused: int
) -> None:
    chat = Chat(tokenizer_of([string.printable], tools=True))
    reply = Generation(ids=chat.reply_ids(f"Let me see. {marked(write_call('look', {'at': 'x'}))}"))
    engine = Engine(interaction, chat, lambda contexts: [reply] * len(contexts), max_context_tokens=400)
    (episode,) = engine.run([RolloutRequest(task={"what": what}, seed=0)])
    assert (episode.error, episode.outcome, len(episode.decisions)) == (None, 1.0, decisions)
    assert episode.metrics["refused"] == refused
