"""Players in words: a model behind a server and the task's script play for roles and continuations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from judge_server import JudgeServer, completion
from simulated_walks import Walks

from hf_credit import make, methods
from hf_credit.agents.endpoint import Endpoint
from hf_credit.oracles.judge_model import JudgeModel
from hf_credit.policies.players import ScriptPlayer, ServedPlayer
from hf_credit.policies.saved import load_role_models
from hf_credit.rollouts import Engine, EnvironmentInteraction, Generation, LocalContext, Request
from hf_credit.rollouts.samplers import BadReplyError

TOOL = {"type": "function", "function": {"name": "open", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[JudgeServer]:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-the-users-own-key")
    started = JudgeServer(lambda _: completion("up", tokens=7))
    yield started
    started.__exit__()


def served(server: JudgeServer, **options: Any) -> ServedPlayer:
    return ServedPlayer(model="m", base_url=server.url, **{"timeout": 5.0, "retries": 0, **options})


def asked(*messages: dict[str, Any], **fields: Any) -> tuple[Any, Request, None]:
    return None, Request(role="agent", messages=messages or [{"role": "user", "content": "Where to?"}], **fields), None


def test_a_served_player_sends_messages_and_tools_and_reads_text_and_calls(server: JudgeServer) -> None:
    called = {"id": "x", "type": "function", "function": {"name": "open", "arguments": '{"box": "b"}'}}
    answer = completion("Now.")
    answer["choices"][0]["message"]["tool_calls"] = [called]
    server.answer = lambda _: answer
    history = (
        {"role": "user", "content": "Find tea."},
        {"role": "assistant", "content": '<tool_call>\n{"name": "open", "arguments": {"box": "a"}}\n</tool_call>'},
        {"role": "tool", "content": "salt"},
    )
    (reply,) = served(server, max_new_tokens=64).replies([asked(*history, tools=[TOOL], max_tokens=9)])
    assert reply == 'Now.\n<tool_call>\n{"arguments": {"box": "b"}, "name": "open"}\n</tool_call>'
    (body,) = server.asked
    assert (body["tools"], body["temperature"], body["max_completion_tokens"]) == ([TOOL], 0, 9)
    _, turn, answered = body["messages"]
    assert turn["tool_calls"][0]["function"] == {"name": "open", "arguments": '{"box": "a"}'}
    assert turn["tool_calls"][0]["id"] == answered["tool_call_id"]
    assert (answered["role"], answered["content"]) == ("tool", "salt")


def test_greedy_answers_are_paid_once_and_sampled_ones_each_time(server: JudgeServer) -> None:
    greedy, sampled = served(server), served(server, request={"temperature": 1.0})
    assert greedy.replies([asked(), asked()]) == ["up", "up"]
    assert greedy.replies([asked()]) == ["up"]
    assert (len(server.asked), greedy.taken(), greedy.taken()) == (1, 7, 0)
    assert sampled.replies([asked(), asked()]) == ["up", "up"]
    assert (len(server.asked), sampled.taken()) == (3, 14)
    assert len({body["seed"] for body in server.asked[1:]}) == 2
    assert sampled.replies([(None, asked()[1], 5)]) == sampled.replies([(None, asked()[1], 5)]) == ["up"]
    assert (len(server.asked), server.asked[-1]["seed"]) == (4, 5)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (completion(""), "unreadable"),
        (completion(None), "unreadable"),  # type: ignore[arg-type]
        ((200, {}, b"{"), "unreadable"),
        ((200, {"Endless": "1"}, b" " * 2**16), "unreadable"),
        ((307, {"Location": "http://127.0.0.1:9/v1/chat/completions"}, b""), "refused"),
        ((401, {}, {"error": {"message": "Incorrect key sk-the-users-own-key"}}), "refused"),
    ],
)
def test_without_an_answer_there_is_an_error_for_the_episode(server: JudgeServer, answer: Any, kind: str) -> None:
    server.answer = lambda _: answer
    (reply,) = served(server).replies([asked()])
    assert isinstance(reply, BadReplyError)
    assert f"(failed/{kind} 1)" in str(reply)
    assert "own-key" not in str(reply)


def test_a_budget_ends_a_players_answers(server: JudgeServer, tmp_path: Path) -> None:
    options: Any = {"budget": 14, "concurrency": 1, "cache": str(tmp_path / "player.sqlite")}
    replies = served(server, **options).replies([asked(max_tokens=number) for number in range(1, 5)])
    assert replies[:2] == ["up", "up"]
    assert all("failed/budget 2" in str(one) for one in replies[2:])
    assert len(server.asked) == 2
    assert b"own-key" not in (tmp_path / "player.sqlite").read_bytes()


def test_the_librarys_own_endpoint_answers_a_player(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = Endpoint()
    said = {"content": "up", "calls": [["open", '{"box": "a"}']], "ended": True, "tokens": [9, 4]}
    keys = endpoint.open(lambda kind, call: call.answer(said, "1") if kind == "call" else None)
    monkeypatch.setenv("OPENAI_API_KEY", keys[0])
    plays = ServedPlayer(model="m", base_url=endpoint.base_url, retries=0).check()
    (reply,) = plays.replies([asked(tools=[TOOL])])
    assert str(reply).startswith("up\n<tool_call>")
    assert plays.taken() == 13
    endpoint.close(keys)
    endpoint.shut()


def test_a_server_is_asked_once_before_a_run_and_refused_in_one_sentence(server: JudgeServer) -> None:
    interaction, given = sudoku(), {"name": "server", "options": {"model": "m", "base_url": server.url, "retries": 0}}
    (found,) = load_role_models({"continuations": given}, interaction, None, 5).values()
    assert isinstance(found, ServedPlayer)
    assert (found.max_new_tokens, len(server.asked)) == (5, 1)
    assert "own-key" not in repr(found)
    with pytest.raises(ValueError, match=r"player 'server' takes the options .*, got 'quality'"):
        loaded("server", model="m", quality=1.0)
    server.__exit__()
    with pytest.raises(
        ValueError, match=r"^a player must answer, got .*refused.* from http://127.*; start the server"
    ):
        load_role_models({"continuations": given}, interaction, None, 5)


def test_a_judge_and_a_player_have_each_their_own_key(server: JudgeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYER_API_KEY", "sk-of-the-player")
    options: dict[str, Any] = {"model": "m", "base_url": server.url, "retries": 0}
    JudgeModel(**options).check()
    ServedPlayer(**options, key="PLAYER_API_KEY").check()
    assert server.keys == ["Bearer sk-the-users-own-key", "Bearer sk-of-the-player"]
    with pytest.raises(
        ValueError, match=r"^key of a player must name an environment variable .*, got sk-\.\.\.; export"
    ):
        ServedPlayer(**options, key="sk-of-the-player").check()
    assert len(server.keys) == 2


def loaded(name: str, **options: Any) -> Any:
    return load_role_models({"continuations": {"name": name, "options": options}}, sudoku(), None, 5)


def sudoku() -> EnvironmentInteraction:
    return EnvironmentInteraction(make("sudoku", size=4, blanks=3), history="current", instructions=False)


def context_of(chat: Any, plays: Any) -> LocalContext:
    """A policy that always fails, with a player of continuations."""
    wrong = Generation(ids=chat.reply_ids("nothing"))
    return LocalContext(Engine(sudoku(), chat, lambda contexts: [wrong] * len(contexts)), player=plays)


def values_of(context: LocalContext) -> list[float]:
    method = methods.make("vineppo", group_size=1, rollouts=2).bind(context.interaction)
    collected = method.collector([{"seed": 0}], context, None)
    return [one.episode.outcome for one in collected.of_kind("continuation")]


def test_the_script_of_the_oracle_plays_continuations_without_tokens(chat: Any) -> None:
    context = context_of(chat, ScriptPlayer(interaction=sudoku()))
    assert set(values_of(context)) == {1.0}
    assert context.ledger.others == {}
    assert context.ledger.tokens > 0  # of the policy
    assert set(values_of(context_of(chat, ScriptPlayer(interaction=sudoku(), quality=0.0)))) != {1.0}


def test_a_role_that_plays_as_in_every_episode_costs_the_same_in_continuations(chat: Any) -> None:
    script = ScriptPlayer(interaction=sudoku())
    context = LocalContext(Engine(sudoku(), chat, {"agent": script}), player={"agent": script})
    values_of(context)
    assert context.ledger.others["continuations"] > context.ledger.tokens > 0


def test_a_server_plays_continuations_and_its_own_count_of_tokens_stands_in_the_ledger(
    server: JudgeServer, chat: Any
) -> None:
    environment, script = make("sudoku", size=4, blanks=3), ScriptPlayer(interaction=sudoku())
    first = environment.initial_state(environment.sample_task(0), 0)
    board = sudoku().pending(sudoku().start({"seed": 0}, 0))[0].messages

    def answer(body: dict[str, Any]) -> Any:
        if body["messages"] != json.loads(json.dumps(list(board))):
            return (500, {}, b"{}")
        (move,) = script.replies([(sudoku().start({"seed": 0}, 0), Request(role="agent", messages=board), 0)])
        return completion(str(move), tokens=1000)

    server.answer = answer
    assert first.status == "active"
    context = context_of(chat, served(server))
    outcomes = values_of(context)
    assert outcomes
    assert all(one != one for one in outcomes)  # their second reply failed, which is unknown and never 0
    assert context.ledger.others == {"continuations": 1000}  # the first was greedy: paid once
    assert "must reply, got no answer of 'm' (failed/refused 1)" in str(context.failures.latest)


def test_a_script_is_refused_where_a_task_has_none_and_with_wrong_options() -> None:
    for options, message in (
        ({"quality": 2.0}, r"quality must be in \[0, 1\], got 2.0"),
        ({"oracle": "mcts"}, r"player 'script' takes the options .*, got 'oracle'"),
    ):
        with pytest.raises(ValueError, match=message):
            loaded("script", **options)
    with pytest.raises(ValueError, match="scripted play needs a task with an oracle or a scripted player"):
        load_role_models({"continuations": "script"}, Walks(), None, 5)
