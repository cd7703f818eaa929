"""What programs on real SDKs see of the endpoint: counts, log-probabilities, limits, models and errors."""

from __future__ import annotations

import importlib.util
import json
import string
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hf_credit.agents import AgentInteraction
from hf_credit.environments.actions import marked, write_call
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import Chat, Ending, Engine, Generation, RolloutRequest, replay_from

if importlib.util.find_spec("openai") is None:  # its import takes a second, which only its programs should spend
    pytest.skip("needs openai", allow_module_level=True)

Played = Callable[..., tuple[Any, Any]]


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(tokenizer_of([string.printable], tools=True))


@pytest.fixture(scope="module")
def interaction() -> Iterator[AgentInteraction]:
    interaction = AgentInteraction("agent_wire:wire")
    yield interaction
    interaction.close()


@pytest.fixture
def play(interaction: AgentInteraction, chat: Chat, tmp_path: Path) -> Played:
    """Plays a program of `agent_wire`, to each call with the same reply; returns the episode, and what it saw."""

    def play(what: str, reply: str = "ab", limit: int | None = None) -> tuple[Any, Any]:
        ids = chat.reply_ids(reply, tools=())
        generation = Generation(ids=ids, logprobs=[-0.25 * (1 + at) for at in range(len(ids))])
        engine = Engine(interaction, chat, lambda contexts: [generation] * len(contexts), max_context_tokens=limit)
        seen = tmp_path / "seen.json"
        (episode,) = engine.run([RolloutRequest(task={"what": what, "to": str(seen)}, seed=0)])
        return episode, json.loads(seen.read_text()) if seen.exists() else None

    return play


def test_usage_is_what_the_engine_counted(play: Played) -> None:
    for what in ("reads_usage", "streams_usage"):
        episode, seen = play(what)
        (decision,) = episode.decisions
        counts = [len(decision.context_ids), len(decision.action_ids)]
        assert seen[-3:] == [*counts, sum(counts)]
    assert seen[0] == "ab"


def test_log_probabilities_are_those_of_the_sampled_tokens(play: Played, chat: Chat) -> None:
    _, (tokens, logprobs) = play("reads_logprobs")
    assert tokens == ["a", "b", chat.tokenizer.eos_token]
    assert logprobs == [-0.25, -0.5, -0.75]


def test_a_sampler_without_log_probabilities_is_an_error_where_they_are_asked_for(
    interaction: AgentInteraction, chat: Chat
) -> None:
    generation = Generation(ids=chat.reply_ids("ab"))
    engine = Engine(interaction, chat, lambda contexts: [generation] * len(contexts))
    tasks = [{"what": what, "to": ""} for what in ("reads_logprobs", "reads_usage")]
    wrong, right = engine.run([RolloutRequest(task=task, seed=0) for task in tasks])
    assert "log-probabilities of a call need a sampler that reports them" in wrong.error
    assert right.outcome == 1.0


def test_a_program_may_compact_its_history_when_the_context_is_too_long(
    play: Played, interaction: AgentInteraction, chat: Chat
) -> None:
    episode, compacted = play("compacts", limit=300)
    assert (episode.ending, compacted) == (Ending.FINISHED, 1)
    assert len(episode.decisions) == 3
    assert (episode.metrics["calls"], episode.metrics["refused"]) == (4.0, 0.0)
    assert max(len(one.context_ids) for one in episode.decisions) <= 300
    # The error is part of the record: a state after it is restored with it.
    interaction.close()
    end = Generation(ids=chat.reply_ids("ab"))
    engine = Engine(interaction, chat, lambda contexts: [end] * len(contexts), max_context_tokens=300)
    (again,) = engine.run([replay_from(interaction, chat, episode, 2)])
    assert (again.ending, again.outcome, again.metrics) == (episode.ending, episode.outcome, episode.metrics)


def test_a_context_too_long_that_no_program_catches_truncates_the_episode(play: Played) -> None:
    episode, _ = play("never_compacts", limit=300)
    assert (episode.ending, episode.outcome, len(episode.decisions)) == (Ending.TRUNCATED, 0.0, 2)
    episode, _ = play("never_compacts", limit=4)
    assert (episode.ending, episode.outcome, len(episode.decisions)) == (Ending.TRUNCATED, 0.0, 0)


def test_models_are_listed_with_the_most_tokens_of_a_context(play: Played) -> None:
    assert play("lists_models", limit=500)[1] == ["policy", "policy", 500]


def test_refusals_that_a_program_catches_are_counted_and_no_error(
    play: Played, interaction: AgentInteraction, chat: Chat
) -> None:
    before = interaction.costs()["refused_calls"]
    episode, (refused, answer) = play("falls_back")
    assert refused == [[400, "logit_bias"], [404, None], [400, "previous_response_id"], [400, "functions"]]
    assert (episode.ending, answer, episode.metrics["refused"]) == (Ending.FINISHED, "ab", 4.0)
    assert interaction.costs()["refused_calls"] == before + 4
    end = Generation(ids=chat.reply_ids("ab"))
    (again,) = Engine(interaction, chat, lambda contexts: [end]).run([replay_from(interaction, chat, episode, 0)])
    assert (again.outcome, again.metrics) == (1.0, episode.metrics)


def test_a_refusal_that_a_program_does_not_catch_is_an_error_and_no_failure_of_the_policy(play: Played) -> None:
    episode, _ = play("is_refused")
    assert (episode.ending, len(episode.decisions)) == (Ending.ERROR, 1)
    assert "logit_bias of a call must be left out" in episode.error


def test_a_cut_response_is_incomplete_and_ids_come_from_the_place(play: Played) -> None:
    episode, seen = play("goes_on_after_a_cut", reply="abcdef")
    assert seen == ["incomplete", "max_output_tokens", "completed", 3, ["msg_0", "msg_1"]]
    assert episode.metrics["replies_kept"] == 1.0


def test_a_choice_of_no_tool_and_one_call_at_a_time_have_effect(play: Played) -> None:
    one, two = (marked(write_call("look", {"at": at})) for at in "xy")
    assert play("answers_without_tools", reply=f"Hm. {one}")[1] == ["stop", None, f"Hm. {one}"]
    assert play("calls_one_tool", reply=f"Hm. {one}{two}")[1] == ["Hm.", ['{"at": "x"}']]


def test_a_stop_ends_the_raw_reply_wherever_it_stands(play: Played) -> None:
    call = '<tool_call>{"name": "look", "arguments": {"at": "box"}}</tool_call>'
    assert play("stops_at_an_observation", reply=f"foo Observation: done{call}")[1][0] == ["stop", "foo ", []]
    episode, seen = play("stops_at_an_observation", reply=f"<think>\nbox</think>foo{call}Observation: done")
    called = ["tool_calls", "foo", ['{"at": "box"}']]
    whole = ["tool_calls", "fooObservation: done", called[2]]  # the break after the mark of a thought ends nothing
    assert seen == [called, called, ["stop", "", []], whole]
    assert all(one.action_text.endswith("Observation: done") for one in episode.decisions)


def test_a_system_prompt_that_changes_is_seen_by_the_number_of_conversations(play: Played) -> None:
    episode, _ = play("changes_its_system_prompt")
    assert (episode.metrics["conversations"], episode.metrics["calls"]) == (3.0, 3.0)
