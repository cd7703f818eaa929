"""A program's calls are decisions, and episodes can continue from every state, live or not."""

from __future__ import annotations

import json
import logging
import math
import os
import pickle
import shutil
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import agent_programs
import pytest
import torch
from agent_programs import asks, post
from PIL import Image as pil

from hf_credit import collaborations
from hf_credit.agents import AgentInteraction, AgentState
from hf_credit.agents.played import large_packages
from hf_credit.agents.runs import DivergedRunError, LiveRun, RunError
from hf_credit.content import Image, Text
from hf_credit.replies import read_reply
from hf_credit.rollouts import Chat, Ending, Engine, Generation, RolloutRequest, decision_rows, replay_from, verify
from hf_credit.rollouts.interaction import Reply

Made = Callable[..., AgentInteraction]


@pytest.fixture(scope="module")
def made() -> Iterator[Made]:
    """Makes programs of `agent_programs`, each once."""
    known: dict[str, AgentInteraction] = {}

    def make(name: str, **settings: Any) -> AgentInteraction:
        key = json.dumps([name, settings])
        if key not in known:
            known[key] = AgentInteraction(f"agent_programs:{name}", **settings)
        return known[key]

    yield make
    for one in known.values():
        one.close()


def walked(interaction: AgentInteraction, task: dict[str, Any], *replies: str | list[str]) -> list[AgentState]:
    """The states of a walk with these replies, its start included."""
    states = [interaction.start(task, 0)]
    for said in replies:
        states.append(interaction.advance(states[-1], [said] if isinstance(said, str) else said))
    return states


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits up to a minute for another process."""
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come to that")


def calls_of(interaction: AgentInteraction) -> set[Any]:
    """The calls that wait for a reply, of the only run."""
    assert interaction._live is not None
    ((_, waiting),) = interaction._live.endpoint._runs.values()
    return waiting


def said(interaction: AgentInteraction, state: AgentState) -> list[str]:
    (request,) = interaction.pending(state)
    return [message["content"] for message in request.messages]


def call(**arguments: str) -> Reply:
    text = f'<tool_call>{{"name": "look", "arguments": {json.dumps(arguments)}}}</tool_call>'
    return Reply(text, said=read_reply(text))


def test_calls_come_one_after_the_other_and_the_scorer_returns_the_outcome(made: Made) -> None:
    interaction = made("asks")
    first, second, last = walked(interaction, {"number": 2, "other": "column"}, "a", "aaa")
    assert (first.task, said(interaction, first)) == ('{"number":2}', ["2?"])
    assert said(interaction, second) == ["2?", "a", "again?"]
    assert (interaction.pending(last), interaction.ending(last)) == ((), Ending.FINISHED)
    assert interaction.outcome(last) == pytest.approx(1 / 3)  # 4 letters where 2 were right
    told = {"success": 1.0, "raised": 0.0, "calls": 2.0, "refused": 0.0, "conversations": 1.0, "replies_kept": 1.0}
    assert interaction.metrics(last) == told


def test_a_state_is_a_value_that_is_written_and_read(made: Made) -> None:
    interaction = made("asks")
    for state in walked(interaction, {"number": 2}, "a", "b"):
        again = interaction.state_from_json(interaction.state_to_json(state))
        assert (again, hash(again)) == (state, hash(state))
    with pytest.raises(ValueError, match="a state must be a result of state_to_json of 'agent_programs:asks'"):
        interaction.state_from_json('{"task": 1}')


def test_states_hold_each_image_of_a_program_once_and_are_written_restored_and_told(made: Made) -> None:
    interaction = made("watches", score="agent_programs:near")
    states = walked(interaction, {"number": 3}, "a", "b", "c")
    images = [Image.of(pil.new("RGB", (64, 48), (place, 0, 0))) for place in range(3)]
    for place, state in enumerate(states[:-1]):
        (request,) = interaction.pending(state)
        shown = [message["content"] for message in request.messages if message["role"] == "user"]
        assert shown == [(Text(f"{at}?"), image) for at, image in enumerate(images[: place + 1])]
        assert images[0].png not in state.waiting[0].asked
        assert state.waiting[0].whole["messages"][-1]["content"] == (Text(f"{place}?"), images[place])
        again = interaction.state_from_json(interaction.state_to_json(state))
        assert (again, hash(again)) == (state, hash(state))
    held = [dict(state.waiting[0].images) for state in states[:-1]]
    assert all(later[name] is image for name, image in held[0].items() for later in held[1:])
    interaction.close()
    assert interaction.advance(states[2], ["c"]) == states[3]
    assert (interaction.outcome(states[3]), interaction.costs()["forced_replies"]) == (1.0, 2)


def test_every_state_is_restored_by_a_new_run_of_the_program(made: Made) -> None:
    interaction, replies = made("looks"), [call(at="x"), call(at="yy"), "aa"]
    states = walked(interaction, {"number": 1}, *replies)
    interaction.close()
    for place in (2, 1, 0):
        assert interaction.advance(states[place], [replies[place]]) == states[place + 1]
    assert interaction.costs()["forced_replies"] == 2 + 1


def test_a_state_is_gone_on_from_more_than_once(made: Made) -> None:
    interaction = made("asks")
    _, second, _ = walked(interaction, {"number": 2}, "a", "b")
    before = interaction.costs()["forced_replies"]
    worth = [interaction.outcome(interaction.advance(second, ["a" * length])) for length in range(3)]
    assert worth == pytest.approx([1 / 2, 1, 1 / 2])
    assert interaction.costs()["forced_replies"] == before + 3


def test_ids_come_from_the_place_and_tool_calls_with_them(made: Made) -> None:
    interaction = made("looks")
    *_, state = walked(interaction, {"number": 1}, call(at="x"), call(at="y"))
    (request,) = interaction.pending(state)
    assert [message["content"].split()[0] for message in request.messages if message["role"] == "tool"] == [
        "call_0_0",
        "call_1_0",
    ]
    assert [tool["function"]["name"] for tool in request.tools] == ["look"]
    assert request.messages[0] == {"role": "system", "content": "Look."}


def test_a_reply_that_returns_unchanged_is_shown_as_its_text_in_any_spelling(made: Made) -> None:
    *_, state = walked(made("looks"), {"number": 1}, call(at="x"))
    (request,) = made("looks").pending(state)
    assert request.messages[2] == {"role": "assistant", "content": str(call(at="x"))}
    assert state.kept == (1, 1)
    rewritten = walked(made("rewrites"), {"number": 1}, "a", "b")[1]
    assert said(made("rewrites"), rewritten) == ["?", "I said: a", "again?"]
    assert rewritten.kept == (0, 1)


def test_the_reply_that_a_program_goes_on_with_is_its_text_whichever_of_several_it_is(made: Made) -> None:
    interaction = made("best_of_two")
    texts = [f"<think>{place}</think>{place}" for place in "ab"]
    for number in (0, 1):
        *_, last = walked(interaction, {"number": number}, *(Reply(one, said=read_reply(one)) for one in texts))
        assert said(interaction, last) == ["?", texts[number], "more?"]
        assert last.kept == (1, 1)


def test_of_equal_calls_made_together_the_one_whose_reply_returns_goes_on(made: Made) -> None:
    interaction = made("best_of_two_together")
    texts = [f"<think>{place}</think>{place}" for place in "ab"]
    for number in (0, 1):
        start = interaction.start({"number": number}, 0)
        after = interaction.advance(start, [Reply(one, said=read_reply(one)) for one in texts])
        assert said(interaction, after) == ["?", texts[number], "more?"]
        assert [one.event for one in after.waiting] == [("policy", "policy#2")[number]]
        assert after.kept == (1, 1)


def test_a_program_is_trained_on_what_a_server_renders_if_it_says_so(made: Made) -> None:
    for history in ("append", "rendered"):
        first, *_ = walked(made("asks", history=history), {"number": 2}, "a")
        (request,) = made("asks", history=history).pending(first)
        assert request.rendered == (history == "rendered")
    with pytest.raises(ValueError, match="history must be one of append, rendered, got 'current'"):
        made("asks", history="current")


def test_a_tool_call_in_plain_text_is_read_only_where_tools_are_offered(made: Made) -> None:
    looked = made("looks").advance(made("looks").start({"number": 1}, 0), [str(call(at="x"))])
    assert looked.waiting
    asked = made("asks").advance(made("asks").start({"number": 2}, 0), [str(call(at="x"))])
    assert said(made("asks"), asked)[1] == str(call(at="x"))


def test_roles_are_models_and_conversations_of_a_role_have_names(made: Made) -> None:
    interaction = made("together")
    first, second, third, last = walked(interaction, {"number": 1}, "p", "code", "pp")
    events = [interaction.pending(state)[0].event for state in (first, second, third)]
    assert (events, list(interaction.roles)) == (["planner", "coder", "planner"], ["planner", "coder"])
    assert said(interaction, third) == ["plan?", "p", "better?"]
    assert [interaction.reward(state) for state in (first, second, third, last)] == [0.0, 0.5, 0.0, 0.0]
    assert interaction.outcome(last) == 4 + 20


def test_a_program_has_the_variables_that_it_is_given_when_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_CREDIT_AT_IMPORT", "here")
    for given, seen in (((), ""), (("HF_CREDIT_AT_IMPORT",), "here")):
        interaction = AgentInteraction("agent_programs:knows_at_import", environment=given)
        assert said(interaction, interaction.start({"number": 1}, 0)) == [seen]
        interaction.close()


def test_rewards_before_the_first_call_are_those_of_the_first_reply(made: Made) -> None:
    states = walked(made("rewards_first"), {"number": 1}, "a", "b")
    assert [made("rewards_first").reward(state) for state in states] == [0.0, pytest.approx(0.8), 0.0]


def test_rewards_after_a_context_too_long_are_those_of_the_last_reply_if_none_follows(made: Made, chat: Chat) -> None:
    reply = Generation(ids=chat.reply_ids("ab"))
    engine = Engine(made("punished_late"), chat, lambda contexts: [reply] * len(contexts), max_context_tokens=300)
    (episode,) = engine.run([RolloutRequest(task={"number": 1}, seed=0)])
    assert (episode.outcome, [one.reward for one in episode.decisions]) == (0.5, [pytest.approx(-0.75)])


def test_rewards_after_a_context_too_long_are_those_of_the_next_reply(made: Made) -> None:
    interaction = made("rewards_first")
    state = interaction.start({"number": 1}, 0)
    caught = interaction.too_long(state, {state.waiting[0].event: 9}, 5)
    assert (caught.status, caught.owed, caught.reward) == ("raised", 0.0, pytest.approx(0.7))  # none follows


def test_a_role_is_removed_and_the_others_repeat_their_replies_until_their_calls_differ(made: Made) -> None:
    interaction = made("together")
    *_, last = walked(interaction, {"number": 1}, "p", "code", "pp")
    without_coder = interaction.without(last, "coder")
    assert (interaction.pending(without_coder), interaction.outcome(without_coder)) == ((), 20.0)
    without_planner = interaction.without(last, "planner")
    assert said(interaction, without_planner) == [" code?"]
    assert interaction.outcome(interaction.advance(without_planner, ["xyz"])) == 3.0
    assert interaction.outcome(interaction.without(interaction.without(last, "coder"), "planner")) == 0.0
    with pytest.raises(ValueError, match="a removed role must be among the removable roles of 'agent_programs:asks'"):
        made("asks").without(made("asks").start({"number": 1}, 0), "policy")


def test_a_program_that_asks_until_it_gets_a_text_ends_without_the_role_that_it_asks(made: Made) -> None:
    interaction = made("insists", failure=-1.0)
    *_, last = walked(interaction, {"number": 1}, "p", "code")
    without = interaction.without(last, "coder")
    assert (without.status, interaction.outcome(without)) == ("raised", -1.0)


def test_calls_at_once_are_one_step_whatever_their_order(made: Made) -> None:
    interaction = made("at_once")
    state = interaction.start({"number": 1}, 0)
    requests = interaction.pending(state)
    assert sorted(request.messages[0]["content"] for request in requests) == ["0?", "1?", "2?"]
    assert sorted(request.event for request in requests) == ["policy", "policy#2", "policy#3"]
    replies = [request.messages[0]["content"][0] * 2 for request in requests]
    after = interaction.advance(state, replies)
    assert said(interaction, after) == ["00 11 22"]
    interaction.close()
    assert interaction.advance(state, replies) == after
    assert interaction.advance(after, ["abc"]).worth == 3.0


def test_more_calls_at_once_than_a_run_may_make_stop_it(made: Made) -> None:
    assert made("at_once", max_calls=2).start({"number": 1}, 0).status == "stopped"
    state = made("at_once", max_calls=3).start({"number": 1}, 0)
    assert made("at_once", max_calls=3).advance(state, ["a", "b", "c"]).status == "stopped"


def test_of_calls_that_are_cut_the_model_reads_what_the_program_got(made: Made) -> None:
    both = f"{call(at='x')}{call(at='y')}"
    interaction = made("looks_once")
    _, second = walked(interaction, {"number": 1}, both)
    (request,) = interaction.pending(second)
    assert [one["function"]["arguments"] for one in request.messages[1]["tool_calls"]] == [{"at": "x"}]
    whole = walked(interaction, {"number": 1}, str(call(at="x")))[-1]
    assert said(interaction, whole)[1] == str(call(at="x"))


def test_after_a_stop_the_model_reads_what_the_program_got(made: Made) -> None:
    interaction = made("stops")
    _, second, _ = walked(interaction, {"number": 1}, "one. two", "x")
    assert json.loads(second.answered[0].reply)["content"] == "one"
    assert said(interaction, second) == ["?", "one", "more?"]


def test_a_call_that_its_sdk_tries_again_is_the_same_call(made: Made) -> None:
    interaction = AgentInteraction("agent_programs:impatient")
    state = interaction.start({"patience": 0.7, "again": True}, 0)
    waiting = calls_of(interaction)
    wait_until(lambda: sorted(one.gone() for one in waiting) == [False, True])
    after = interaction.advance(state, ["four"])
    assert (after.worth, len(after.answered), interaction.costs()["runs"]) == (4.0, 1, 1)
    interaction.close()


def test_equal_calls_that_time_out_together_are_each_answered_once(made: Made) -> None:
    interaction = AgentInteraction("agent_programs:impatient_together")
    state = interaction.start({"patience": 3.0}, 0)
    waiting = calls_of(interaction)
    wait_until(lambda: sorted(one.gone() for one in waiting) == [False, False, True, True])
    after = interaction.advance(state, ["four", "four"])
    assert (after.worth, len(after.answered), interaction.costs()["runs"]) == (8.0, 2, 1)
    interaction.close()


def test_a_run_that_gave_up_waiting_is_restored(made: Made) -> None:
    interaction = AgentInteraction("agent_programs:impatient")
    state = interaction.start({"patience": 0.7, "again": False}, 0)
    waiting = calls_of(interaction)
    wait_until(lambda: all(one.gone() for one in waiting))
    assert interaction.advance(state, ["four"]).worth == 4.0  # and not an outcome of giving up
    assert (interaction.costs()["lost"], interaction.costs()["runs"]) == (1, 2)
    interaction.close()


def test_a_reply_that_its_program_no_longer_waits_for_is_read_by_a_restored_run(made: Made) -> None:
    interaction = AgentInteraction("agent_programs:turns_away")
    state = interaction.start({"patience": 0.7}, 0)
    waiting = calls_of(interaction)
    wait_until(lambda: sorted(one.gone() for one in waiting) == [False, True])
    after = interaction.advance(state, ["four"])
    assert (after.status, after.worth, len(after.answered)) == ("finished", 4.0, 1)
    assert (interaction.costs()["lost"], interaction.costs()["runs"]) == (1, 2)
    interaction.close()


# What goes wrong


@pytest.mark.parametrize(
    ("what", "status", "worth"),
    [
        ("raise", "raised", 0.0),
        ("exit", "raised", 0.0),
        ("crash", "raised", 0.0),
        ("many", "stopped", 0.0),
        ("fine", "finished", 1.0),
    ],
)
def test_a_failure_after_a_reply_is_an_outcome(made: Made, what: str, status: str, worth: float, caplog: Any) -> None:
    interaction = made("misbehaves")
    state = interaction.start({"what": what}, 0)
    with caplog.at_level(logging.WARNING):
        while interaction.pending(state):
            state = interaction.advance(state, ["?"])
    assert (state.status, interaction.outcome(state)) == (status, worth)
    assert interaction.ending(state) == (Ending.TURN_LIMIT if what == "many" else Ending.FINISHED)
    if what == "raise":
        assert 'raise KeyError("no such tool")' in caplog.text  # the line, of the traceback
    if what == "crash":
        assert "must end by itself, got exit code 7; it printed last: about to crash" in caplog.text


def test_imports_that_every_run_repeats_are_shown_once(made: Made, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert walked(made("imports_late"), {"number": 1}, "abc")[-1].worth == 3.0
        walked(made("asks"), {"number": 1}, "a")
    (record,) = caplog.records
    assert "Each run of the program imports numpy anew" in record.getMessage()


def test_a_run_without_a_call_is_worth_what_it_returned(made: Made) -> None:
    state = made("misbehaves").start({"what": "nothing"}, 0)
    assert (made("misbehaves").pending(state), state.worth) == ((), 1.0)


WRONG = {
    "raise first": "must not raise before its first call, got LookupError: there is no database",
    "crash first": "before its first call, got a run must end by itself, got signal 11",
    "endless": "must go on within 1.5 seconds of a reply",
    "bad scorer": "must have a score, got ZeroDivisionError: by the scorer",
    "text": "must have a score, got ValueError: a scorer must return a finite number, got 'text'",
}


def test_a_failure_that_no_reply_caused_is_an_error_and_loses_no_other_episode(made: Made, chat: Chat) -> None:
    tasks = [*({"what": what} for what in WRONG), {"what": "fine"}]
    end = Generation(ids=[*chat.encode("?"), chat.tokenizer.eos_token_id])
    engine = Engine(made("misbehaves"), chat, lambda contexts: [end] * len(contexts))
    *wrong, fine = engine.run([RolloutRequest(task=task, seed=0) for task in tasks])
    assert (fine.ending, fine.outcome) == (Ending.FINISHED, 1.0)
    for episode, told in zip(wrong, WRONG.values(), strict=True):
        assert episode.ending == Ending.ERROR
        assert told in str(episode.error)
        assert "Traceback" not in str(episode.error)
    notes = ["".join(getattr(one.exception, "__notes__", ())) for one in wrong]
    assert "\n    raise LookupError" in notes[0]  # in lines, as Python shows them
    assert "ZeroDivisionError" in notes[list(WRONG).index("bad scorer")]


def test_a_failure_after_refusals_that_a_program_catches_is_that_of_the_reply(made: Made) -> None:
    last = walked(made("embeds", failure=-1.0), {"number": 1}, "1", "a word")[-1]
    assert (last.status, last.worth, last.refused) == ("raised", -1.0, 2)


def test_a_scorer_that_asks_a_model_has_the_variables_of_the_user_and_not_the_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://judge.example/v1")
    interaction = AgentInteraction("agent_programs:judged_elsewhere")
    assert walked(interaction, {"number": 1}, "four")[-1].worth == 1.0
    interaction.close()


def test_calls_of_a_second_model_without_roles_are_told_once(made: Made, caplog: Any) -> None:
    for _ in range(2):
        assert walked(made("two_models"), {"number": 1}, "a", "b")[-1].worth == 2.0
    (record,) = caplog.records
    assert "calls the models judge-large and policy, and the policy replies to both" in record.getMessage()


def test_a_column_that_is_no_plain_value_is_refused(made: Made) -> None:
    with pytest.raises(ValueError, match="as plain values, got TypeError: Object of type Tensor"):
        made("asks").start({"number": torch.tensor(3)}, 0)


def test_a_run_that_does_not_repeat_is_never_credited(made: Made) -> None:
    interaction = made("drifts")
    _, second, last = walked(interaction, {"number": 1}, "a", "b")
    assert interaction.outcome(last) == 1.0
    with pytest.raises(DivergedRunError, match=r"must repeat itself .* call 1; draw its random numbers") as caught:
        interaction.advance(second, ["b"])
    assert caught.value.got.endswith("at call 1")
    assert interaction.costs()["diverged"] == 1
    compared = made("drifts", canonical="agent_programs:without_times")
    _, second, last = walked(compared, {"number": 1}, "a", "b")
    assert compared.advance(second, ["b"]) == last


def test_a_program_that_does_not_repeat_is_refused_for_replays(made: Made, chat: Chat) -> None:
    end = Generation(ids=[chat.tokenizer.eos_token_id])
    engine = Engine(made("drifts", repeats=False), chat, lambda contexts: [end] * len(contexts))
    with pytest.raises(ValueError, match="replays need an environment that is deterministic"):
        engine.run([RolloutRequest(task={"number": 1}, seed=0, fanout=(2,))])
    (episode,) = engine.run([RolloutRequest(task={"number": 1}, seed=0)])
    assert episode.outcome == 1.0


# Episodes


def test_an_episode_of_a_program_that_sends_replies_back_is_one_row(made: Made, chat: Chat) -> None:
    reply = [*chat.tokenizer.convert_tokens_to_ids(["a", "b"]), chat.tokenizer.eos_token_id]  # no tokens of "ab"
    engine = Engine(made("asks"), chat, lambda contexts: [Generation(ids=reply)] * len(contexts))
    episodes = engine.run([RolloutRequest(task={"number": number}, seed=0) for number in (1, 2, 3)])
    assert [len(episode.decisions) for episode in episodes] == [1, 2, 3]
    for episode in episodes:
        (row,) = decision_rows(episode.decisions, [1.0] * len(episode.decisions))
        assert sum(row.loss_mask) == 3 * len(episode.decisions)


def test_replay_goes_on_from_each_recorded_decision(made: Made, chat: Chat) -> None:
    end = chat.tokenizer.eos_token_id
    engine = Engine(made("asks"), chat, lambda contexts: [Generation(ids=[*chat.encode("c"), end])] * len(contexts))
    (episode,) = engine.run([RolloutRequest(task={"number": 3}, seed=0)])
    made("asks").close()
    starts = [replay_from(made("asks"), chat, episode, index, fanout=(2,)) for index in range(3)]
    replays = engine.run(starts)
    assert [one.outcome for one in replays] == [episode.outcome] * 6
    assert [len(one.decisions) for one in replays] == [3, 3, 2, 2, 1, 1]


def test_a_replay_that_diverges_is_an_error(made: Made, chat: Chat) -> None:
    end = Generation(ids=[chat.tokenizer.eos_token_id])
    engine = Engine(made("drifts"), chat, lambda contexts: [end] * len(contexts))
    (episode,) = engine.run([RolloutRequest(task={"number": 1}, seed=0)])
    made("drifts").close()
    (replayed,) = engine.run([replay_from(made("drifts"), chat, episode, 1)])
    assert replayed.ending == Ending.ERROR
    assert math.isnan(replayed.outcome)
    assert "a run must repeat itself" in str(replayed.error)


def test_a_judge_scores_the_reply_to_each_call(made: Made, chat: Chat) -> None:
    interaction = made("asks", judge="agent_programs:longer")
    replies = iter(["a", "", "abab"])

    def generate(contexts: Any) -> list[Generation]:
        return [Generation(ids=[*chat.encode(next(replies)), chat.tokenizer.eos_token_id])]

    oracle = interaction.check_oracle(None)
    assert oracle is not None
    episodes = Engine(interaction, chat, generate).run([RolloutRequest(task={"number": 3}, seed=0)])
    (episode,) = verify(episodes, oracle, interaction)
    assert [one.verdict.score for one in episode.decisions if one.verdict] == [0.25, 0.0, 1.0]
    assert made("asks").check_oracle(None) is None


def test_of_calls_at_once_each_is_judged_by_its_own_reply(made: Made, chat: Chat) -> None:
    interaction = made("at_once", judge="agent_programs:longer")
    replies = {chat.context([{"role": "user", "content": f"{n}?"}]): "abc"[: n + 1] for n in range(3)}

    def generate(contexts: Any) -> list[Generation]:
        said = [chat.encode(replies.get(tuple(context), "abab")) for context in contexts]
        return [Generation(ids=[*ids, chat.tokenizer.eos_token_id]) for ids in said]

    episodes = Engine(interaction, chat, generate).run([RolloutRequest(task={"number": 1}, seed=0)])
    (episode,) = verify(episodes, interaction.check_oracle(None), interaction)
    assert sorted(one.verdict.score for one in episode.steps[0]) == [0.25, 0.5, 0.75]
    assert [one.verdict.score * 4 for one in episode.steps[0]] == [len(one.action_text) for one in episode.steps[0]]
    assert [one.verdict.score for one in episode.steps[1]] == [1.0]
    with pytest.raises(ValueError, match="needs one call at a time, got 3 at once"):
        made("at_once").action_of(made("at_once").start({"number": 1}, 0), "?")


def test_a_script_of_node_is_a_program(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    (tmp_path / "agent.js").write_text(NODE)
    interaction = AgentInteraction([node, str(tmp_path / "agent.js")], columns=["q"])
    states = walked(interaction, {"q": "how long?"}, "three")
    assert said(interaction, states[0]) == ["how long?"]
    assert interaction.outcome(states[1]) == 5.0
    interaction.close()


NODE = """
const http = require('http');
const task = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const body = JSON.stringify({model: 'policy', messages: [{role: 'user', content: task.q}]});
const headers = {authorization: 'Bearer ' + process.env.OPENAI_API_KEY, 'content-type': 'application/json'};
const request = http.request(process.env.OPENAI_BASE_URL + '/chat/completions', {method: 'POST', headers}, answer => {
  let text = '';
  answer.on('data', part => text += part);
  answer.on('end', () => console.log(JSON.parse(text).choices[0].message.content.length));
});
request.end(body);
"""


# Side effects and what a run can see


@pytest.fixture
def seen(made: Made, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dict[str, Any], AgentInteraction, AgentState]]:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    monkeypatch.setenv("MY_DATABASE", "postgres://here")
    interaction = AgentInteraction("agent_programs:tells")
    state = interaction.start({"number": 1}, 0)
    yield json.loads(said(interaction, state)[0]), interaction, state
    interaction.close()


def test_a_run_gets_only_the_variables_that_are_listed_and_a_folder_that_is_deleted(seen: Any) -> None:
    told, interaction, state = seen
    environment = told["environment"]
    assert "HF_TOKEN" not in environment
    assert environment["MY_DATABASE"] == "postgres://here"
    assert environment["OPENAI_BASE_URL"] == told["url"] == f"{environment['ANTHROPIC_BASE_URL']}/v1"
    assert environment["HOME"] == environment["HF_CREDIT_FOLDER"] == told["folder"]
    assert environment["TMPDIR"] == f"{told['folder']}/.tmp"
    assert interaction._live is not None
    folder = interaction._live.host.folder.path
    assert [one.is_dir() for one in folder.iterdir()] == [True]
    interaction.advance(state, ["?"])
    assert not list(folder.iterdir())
    interaction.close()
    assert not folder.exists()


_SETS_HOME = "import os\nos.environ['HOME'] = {home!r}\n"
_PLAYS = "def play(task, model):\n    return 1.0\n"


@pytest.mark.parametrize("how", ["option", "decorator", "at import", "import fails", "by the scorer", "in the closer"])
def test_no_end_of_a_program_deletes_the_folder_that_home_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "thesis").write_text("years")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.syspath_prepend(str(tmp_path))
    sets = _SETS_HOME.format(home=str(home))
    text, settings = _PLAYS, {}
    if how == "option":
        settings = {"environment": ["HOME"]}
    elif how == "decorator":
        text = f"from hf_credit.agents import agent\n@agent(environment=['HOME'])\n{_PLAYS}"
    elif how.startswith(("by", "in")):
        setting = "score" if how.startswith("by") else "close"
        text += f"def last(task, given):\n    {'; '.join(sets.splitlines())}; return 1.0\n"
        settings = {setting: "my_program:last"}
    else:
        text = sets + _PLAYS + ("1 / 0\n" if how == "import fails" else "")
    (tmp_path / "my_program.py").write_text(text)
    interaction = AgentInteraction("my_program:play", **settings)
    if how == "import fails":
        with pytest.raises(ValueError, match="division by zero"):
            interaction.settings  # noqa: B018
    else:
        assert interaction.start({}, 0).worth == 1.0
        assert not list(home.glob("run-*"))
    interaction.close()
    assert [one.name for one in home.iterdir()] == ["thesis"]


def test_a_generator_of_async_def_is_refused_in_a_sentence_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_program.py").write_text("async def later(task, model):\n    yield 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    interaction = AgentInteraction("my_program:later")
    with pytest.raises(RunError, match="must return, got the async_generator of a yield; return a value"):
        interaction.start({}, 0)
    interaction.close()


def test_a_clean_up_that_is_an_async_def_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    later = f"async def later(task, folder):\n    open({str(tmp_path / 'cleaned')!r}, 'w').close()\n"
    (tmp_path / "my_program.py").write_text(later + _PLAYS)
    monkeypatch.syspath_prepend(str(tmp_path))
    interaction = AgentInteraction("my_program:play", close="my_program:later")
    interaction.start({}, 0)
    interaction.close()
    assert (tmp_path / "cleaned").exists()


def test_a_tensor_of_one_number_is_a_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_program.py").write_text("import torch\n" + _PLAYS.replace("1.0", "torch.tensor(task['worth'])"))
    monkeypatch.syspath_prepend(str(tmp_path))
    interaction = AgentInteraction("my_program:play", columns=("worth",))
    assert interaction.start({"worth": 0.5}, 0).worth == 0.5
    with pytest.raises(RunError, match=r"must have a score, got .*2 elements"):
        interaction.start({"worth": [0.5, 1.0]}, 0)
    interaction.close()


@pytest.mark.parametrize("killed", [False, True])
def test_files_outside_of_a_runs_folder_are_cleaned_up_after_every_end(tmp_path: Path, killed: bool) -> None:
    interaction, file = AgentInteraction("agent_programs:leaves"), tmp_path / "left"
    state = interaction.start({"file": str(file)}, 0)
    assert file.exists()
    if killed:
        interaction.close()
    else:
        interaction.advance(state, ["?"])
    wait_until(lambda: not file.exists())
    interaction.close()


def test_a_key_is_refused_after_its_run_and_is_written_nowhere(seen: Any, caplog: Any) -> None:
    told, interaction, state = seen
    assert told["url"].startswith("http://127.0.0.1:")
    with caplog.at_level(logging.DEBUG):
        after = interaction.advance(state, ["?"])
        for key in (told["key"], "another"):
            for path, body in (("chat/completions", {"messages": []}), ("reward", {"value": 100})):
                with pytest.raises(urllib.error.HTTPError, match="401") as refused:
                    post(f"{told['url']}/{path}", key, body)
                refused.value.close()
    assert told["key"] not in caplog.text + interaction.state_to_json(after)


def test_runs_end_with_what_started_them(made: Made) -> None:
    interaction = AgentInteraction("agent_programs:asks")
    interaction.start({"number": 1}, 0)
    live = interaction._live
    assert live is not None
    process = live.host._process
    interaction.close()
    assert process.returncode is not None
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_runs_end_with_who_started_them_however_that_ends(tmp_path: Path) -> None:
    script = (
        "import os, sys, threading, time; from hf_credit.agents.hosting import Host\n"
        "host = Host('agent_programs:endless', {})\n"
        "told = {'seed': 0, 'base_url': '', 'key': '', 'reward_key': '', 'folder': 'its', 'name': 'policy',"
        " 'variables': {}}\n"
        f"host.start({{**told, 'task': {{'file': {str(tmp_path / 'run')!r}}}}}, print)\n"
        "threading.Event().wait()\n"
    )
    path = Path(agent_programs.__file__).parent
    process = subprocess.Popen([sys.executable, "-c", script], env={**os.environ, "PYTHONPATH": str(path)})
    file = tmp_path / "run"
    wait_until(lambda: file.exists() and bool(file.read_text()))
    process.kill()
    process.wait()
    stat = Path(f"/proc/{file.read_text()}/stat")
    wait_until(lambda: not stat.exists() or " Z " in stat.read_text())


def test_a_host_that_was_killed_is_started_again_and_its_runs_restored(made: Made) -> None:
    interaction = AgentInteraction("agent_programs:asks")
    *_, last = walked(interaction, {"number": 2}, "a", "b")
    again = interaction.advance(interaction.start({"number": 2}, 0), ["a"])
    assert interaction._live is not None
    interaction._live.host._process.kill()
    host = interaction._live.host
    wait_until(lambda: host.dead)
    assert interaction.advance(again, ["b"]) == last
    assert interaction.costs()["lost"] == 1
    interaction.close()
    assert not host.folder.path.exists()


# How it is made


def test_it_is_made_by_name_and_described(made: Made) -> None:
    interaction = collaborations.make("agent", agent=asks, max_calls=2)
    options = {"agent": "agent_programs:asks", "sessions": 64, "max_calls": 2}
    assert interaction.spec() == {"task": "agent", "task_options": options}
    assert interaction.max_replies == 2
    assert pickle.loads(pickle.dumps(interaction)).spec() == interaction.spec()
    with pytest.raises(ValueError, match=r"must have the columns number, got no 'number'; add it"):
        interaction.require_columns(["question"])
    with pytest.raises(ValueError, match=r"must have the columns number as plain values, got KeyError"):
        interaction.start({}, 0)
    assert asks.__name__ == "asks"


def test_a_command_is_given_the_task_and_its_output_is_the_result() -> None:
    script = (
        "import json, os, sys, urllib.request as u; task = json.load(sys.stdin); e = os.environ; "
        "body = json.dumps({'model': 'policy', 'messages': [{'role': 'user', 'content': task['q']}]}).encode(); "
        "url = e['OPENAI_BASE_URL'] + '/chat/completions'; h = {'authorization': 'Bearer ' + e['OPENAI_API_KEY']}; "
        "print(len(json.load(u.urlopen(u.Request(url, body, h)))['choices'][0]['message']['content']))"
    )
    interaction = AgentInteraction([sys.executable, "-c", script], columns=["q"])
    states = walked(interaction, {"q": "how long?"}, "three")
    assert said(interaction, states[0]) == ["how long?"]
    assert interaction.outcome(states[1]) == 5.0
    interaction.close()


def test_a_scorer_gets_the_output_of_a_command_as_it_is() -> None:
    command = [sys.executable, "-c", "print('007')"]
    for settings, worth in (({"score": "agent_programs:as_text"}, 1.0), ({}, 7.0)):
        interaction = AgentInteraction(command, columns=["q"], **settings)
        assert interaction.start({"q": ""}, 0).worth == worth
        interaction.close()


def test_an_undecorated_function_has_the_settings_of_the_task(made: Made) -> None:
    assert walked(made("plain", columns=["question"]), {"question": "?"}, "four")[-1].worth == 4.0


@pytest.mark.parametrize(
    ("agent", "settings", "told"),
    [
        ("agent_programs:missing", {}, "an agent must be importable as 'module:name'"),
        ("agent_programs:asks", {"most": 1}, "agent 'agent_programs:asks' takes the options columns, max_calls"),
        ("agent_programs:asks", {"max_calls": 0}, "max_calls must be at least 1"),
        ("agent_programs:asks", {"score": "near"}, "score must be 'module:function'"),
        ("agent_programs:asks", {"canonical": "agent_programs:missing"}, "canonical must be importable"),
        ([], {}, "a command must be words"),
        (lambda task, model: 1, {}, "must be importable by name"),
    ],
)
def test_other_objects_than_programs_are_refused(agent: Any, settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        AgentInteraction(agent, **settings).settings  # noqa: B018


def test_a_package_that_a_run_imports_anew_is_named_and_within_a_known_one_its_part() -> None:
    parts = [f"{name}.m{place}" for name in ("openai.types", "pandas") for place in range(60)]
    assert large_packages([*parts, "json"], {"sys"}) == ["openai", "pandas"]
    assert large_packages(parts, {"openai", "openai.client"}) == ["openai.types", "pandas"]


def test_a_reward_that_arrives_while_calls_wait_is_told_by_the_next_step_and_ends_nothing() -> None:
    live = LiveRun(cast(Any, None))
    live._events.put(("reward", 0.5))
    assert live.stands([])
    live._events.put(("ended", {"outcome": 1.0}))
    assert live._next(0.0) == ("reward", 0.5)
    assert not live.stands([])
