"""Recorded traces get the credit of methods that need no replays, and no line loses another."""

from __future__ import annotations

import json
import re
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as pil

from hf_credit import methods
from hf_credit.content import Image, Text
from hf_credit.environments.actions import marked, write_call
from hf_credit.evaluation.traces import credit_traces, methods_of_traces, trace_of
from hf_credit.replies import read_reply
from hf_credit.rollouts.interaction import said_in

QUESTION = {"role": "user", "content": "Which box holds tea?"}
CALL = {"id": "x", "type": "function", "function": {"name": "open", "arguments": '{"box": "a"}'}}
OPENED = [
    QUESTION,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "x", "content": "tea"},
    {"role": "assistant", "content": "a"},
]
GUESSED = [QUESTION, {"role": "assistant", "content": "b"}]


def credit(lines: Any, method: str = "grpo", **options: Any) -> list[list[float]]:
    found = credit_traces(lines, methods.make(method, **options))
    assert found.failures == ()
    return [[round(value, 4) for value in own if isinstance(value, float)] for own in found.credit]


def test_turns_are_credited_as_by_hand() -> None:
    # Rewards .2 and .8: the second is shared as .9 and 1, the mean of both turns is 1/2; outcomes 1 and 0, centred.
    traces = [{"messages": OPENED, "rewards": [0.2, 0.8]}, {"messages": GUESSED, "score": False}]
    shares = [0.2 + 0.8 * 0.9 / 1.9, 0.8 / 1.9]
    assert credit(traces, "turn_credit") == [[round(0.5 + one - 0.5, 4) for one in shares], [-0.5]]


def test_traces_without_rewards_on_the_way_are_told_to_a_method_that_reads_them() -> None:
    traces = [{"messages": OPENED, "reward": 1.0}, {"messages": GUESSED, "reward": 0.0}]
    (told,) = credit_traces(traces, methods.make("turn_credit")).absent
    assert told.startswith("The method reads rewards before the last turn, which no episode had")
    assert credit_traces([{**traces[0], "rewards": [0.5, 0.5]}], methods.make("turn_credit")).absent == ()
    assert credit_traces(traces, methods.make("grpo")).absent == ()


def test_every_suitable_method_credits_each_reply() -> None:
    traces = [{"messages": one, "reward": reward} for one, reward in ((OPENED, 1.0), (GUESSED, 0.0), (OPENED, 0.5))]
    names = methods_of_traces(with_tokens=False)
    assert {name: [len(own) for own in credit(traces, name)] for name in names} == {key: [2, 1, 2] for key in names}
    assert {"gigpo", "mt_grpo", "turn_credit"} < set(names)


def test_traces_of_one_task_are_compared_for_every_key() -> None:
    other = [{"role": "user", "content": "And salt?"}, GUESSED[1]]
    by_messages = [{"messages": one, "reward": reward} for one, reward in ((OPENED, 1), (GUESSED, 0), (other, 1))]
    assert credit(by_messages, "rloo") == [[1.0, 1.0], [-1.0], [0.0]]
    by_task = [{"task": {"n": 1}, **by_messages[0]}, {"task": {"n": 1}, **by_messages[2]}, by_messages[1]]
    assert credit(by_task, "rloo") == [[0.0, 0.0], [0.0], [0.0]]


def test_equal_contexts_are_found_without_tokens() -> None:
    again = [*OPENED[:3], {"role": "assistant", "content": "b"}]
    traces = [{"messages": OPENED, "reward": 1.0}, {"messages": again, "reward": 0.0}]
    found = credit_traces(traces, methods.make("gigpo", anchor="context", gamma=1.0))
    assert [list(own) for own in found.credit] == [[1.0, 1.0], [-1.0, -1.0]]
    shown = found.episode(0).decisions
    assert (shown[0].calls, shown[0].messages) == (('open(box="a")',), (("user", QUESTION["content"]),))
    assert [[other.reply for other in one.alternatives] for one in shown] == [[shown[0].reply], ["b"]]


def test_a_trace_is_shown_with_eight_alternatives_and_the_number_of_others() -> None:
    answers = [[QUESTION, {"role": "assistant", "content": str(number)}] for number in range(12)]
    found = credit_traces([{"messages": one, "reward": n / 2} for n, one in enumerate(answers)], methods.make("rloo"))
    (shown,) = found.episode(3).decisions
    assert (shown.reply, shown.alternatives_left_out) == ("3", 3)
    assert [one.reply for one in shown.alternatives] == ["0", "1", "2", "4", "5", "6", "7", "8"]
    assert [one.credit for one in (shown, *shown.alternatives[:1])] == [found.credit[3][0], found.credit[0][0]]


def test_a_log_with_images_is_credited_and_its_page_shows_them() -> None:
    red, blue = (Image.of(pil.new("RGB", (4, 3), colour)) for colour in ("red", "blue"))
    logs = []
    for image, score in ((red, 1.0), (blue, 0.0), (red, 0.5)):
        part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image.png}"}}
        asked = {"role": "user", "content": [{"type": "text", "text": "Which box?"}, part]}
        logs.append({"messages": [asked, GUESSED[1]], "score": score})
    assert credit(map(json.dumps, logs), "rloo") == [[0.5], [0.0], [-0.5]]  # another image is another task
    (shown,) = credit_traces(logs, methods.make("rloo")).episode(0).decisions
    assert shown.messages == (("user", (Text("Which box?"), red)),)
    of_python = [{"type": "text", "text": "Which box?"}, {"type": "image", "image": red.pil()}]
    logs[1]["messages"][0]["content"] = of_python
    assert credit(logs, "rloo") == [[0.75], [-0.75], [0.0]]
    logs[2]["messages"][0]["content"][1]["image_url"]["url"] = "https://example.org/x.png"
    ((line, why),) = credit_traces(logs, methods.make("rloo")).failures
    assert (line, "since nothing is fetched" in why) == (3, True)


def test_an_assistant_of_another_name_is_another_role() -> None:
    named = [*OPENED[:3], {"role": "assistant", "content": "a", "name": "answerer"}]
    rows = credit_traces([{"messages": named, "reward": 1.0, "id": "x"}], methods.make("grpo")).rows()
    assert [(row["trace"], row["turn"], row["role"]) for row in rows] == [("x", 0, "policy"), ("x", 1, "answerer")]


def turn(node: str, messages: Any, answer: Any, learned: bool = True) -> dict[str, Any]:
    return {
        "node_id": node,
        "prompt_token_ids": [1, 2],
        "completion_token_ids": [3, 4, 5],
        "per_token_logps": [-0.5, -0.25, -1.0],
        "loss_mask": [0, 0, *([int(learned)] * 3)],
        "request": {"messages": messages},
        "response": {"choices": [{"message": answer}]},
    }


def test_captures_of_openenv_are_traces_with_tokens() -> None:
    turns = [turn("a", OPENED[:1], OPENED[1]), turn("b", OPENED[:3], OPENED[3], learned=False)]
    traces = [
        {"turns": turns, "reward": 1.0},
        {"turns": [turn("a", GUESSED[:1], GUESSED[1])], "reward": 0.0, "schema_version": 1},
    ]
    found = credit_traces(traces, methods.make("reinforce_plus_plus"))
    first, second = found.traces
    assert (first.group, first.with_tokens) == (second.group, True)
    assert [one.action_ids for one in first.episode.decisions] == [(3, 4, 5)] * 2
    assert first.episode.decisions[0].logprobs == (-0.5, -0.25, -1.0)
    # Whitened over 3 and 3 tokens, without those that are not learned: mean 1/2, sample variance (6/4) / 5.
    assert found.credit[0][0] == pytest.approx(0.5 / 0.3**0.5)
    assert found.credit[0][1] is None
    assert found.credit[1][0] == pytest.approx(-0.5 / 0.3**0.5)
    broken = {"turns": [{**turns[0], "loss_mask": [1]}], "reward": 1.0}
    assert [line for line, _ in credit_traces([*traces, broken], methods.make("grpo")).failures] == [3]


def said(**fields: Any) -> dict[str, Any]:
    return {"messages": [QUESTION, {"role": "assistant", **fields}], "reward": 1.0}


THOUGHT = "<think>\nthink hard\n</think>\n\n4"
OPEN_A = marked(write_call("open", {"box": "a"}))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"content": "4", "reasoning_content": "think hard"}, THOUGHT),
        ({"content": "4", "reasoning": "think hard", "reasoning_content": "think hard"}, THOUGHT),
        ({"content": "4", "thinking": "think hard", "images": []}, THOUGHT),
        ({"content": [{"type": "thinking", "thinking": "think hard", "signature": "x"}, "4"]}, THOUGHT),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "think hard"}]}, "4"]}, THOUGHT),
        ({"content": "4", "reasoning": "think hard", "reasoning_details": [{"text": "think hard"}]}, THOUGHT),
        ({"content": "4", "reasoning_details": [{"type": "reasoning.summary", "summary": "think hard"}]}, THOUGHT),
        ({"content": "4", "thinking_blocks": [{"type": "thinking", "thinking": "think hard"}]}, THOUGHT),
        ({"reasoning_content": "think hard", "tool_calls": [CALL]}, f"<think>\nthink hard\n</think>\n\n{OPEN_A}"),
        ({"content": None, "function_call": CALL["function"], "tool_calls": None}, OPEN_A),
        ({"content": None, "refusal": "No."}, "No."),
        ({"content": [{"type": "refusal", "refusal": "No."}]}, "No."),
        ({"content": "4", "audio": None, "provider_specific_fields": {"refusal": None}, "prefix": False}, "4"),
    ],
)
def test_thoughts_calls_and_refusals_of_the_common_servers_are_read(fields: dict[str, Any], text: str) -> None:
    (trace,) = credit_traces([said(**{"content": "", **fields})], methods.make("grpo")).traces
    assert [one.action_text for one in trace.episode.decisions] == [text]


_WORD = st.integers(100, 999).map(lambda number: f"w{number}")
_PART = st.one_of(
    _WORD,
    st.fixed_dictionaries({"type": st.just("text"), "text": _WORD}),
    st.fixed_dictionaries({"text": _WORD, "more": _WORD}),
    *(
        st.fixed_dictionaries({"type": st.just(name), name: _WORD})
        for name in ("thinking", "reasoning", "refusal", "x")
    ),
)
_FUNCTION = st.fixed_dictionaries({"name": _WORD, "arguments": st.fixed_dictionaries({"at": _WORD})})
_FIELDS = {
    "content": _WORD | st.lists(_PART, max_size=3),
    "tool_calls": st.lists(st.fixed_dictionaries({"function": _FUNCTION}), max_size=2),
    "function_call": _FUNCTION,
    "reasoning_details": st.lists(_PART, max_size=2),
    "thinking_blocks": st.lists(_PART, max_size=2),
    "tool_call_id": st.just(""),
    **dict.fromkeys(("refusal", "reasoning_content", "reasoning", "thinking", "thoughts", "output"), _WORD),
}


_WORDS = st.text('ab <>/{}"\n', max_size=6) | st.sampled_from(
    ["</tool_call>", "<think>", "[TOOL_CALLS]", " a ", '{"name": "b"}']
)
_CALLED = st.builds(
    lambda name, arguments: {"function": {"name": name, "arguments": json.dumps(arguments)}},
    st.sampled_from(["open", "b.c"]),
    st.dictionaries(
        st.sampled_from("xy"), _WORDS | st.integers(0, 9) | st.lists(st.none() | st.booleans()), max_size=2
    ),
)


@given(
    st.fixed_dictionaries({"content": _WORDS}, optional={"reasoning_content": _WORDS, "tool_calls": st.lists(_CALLED)})
)
def test_the_parts_of_a_reply_are_those_that_its_text_is_read_as(fields: dict[str, Any]) -> None:
    with suppress(ValueError):  # some are refused, as other tests say
        trace = trace_of({"messages": [QUESTION, {"role": "assistant", **fields}], "reward": 1}, 1)
        (reply,) = (one.action_text for one in trace.episode.decisions)
        assert said_in(reply) == read_reply(reply)


@given(st.fixed_dictionaries({}, optional=_FIELDS))
def test_no_word_of_a_message_vanishes(fields: dict[str, Any]) -> None:
    found = credit_traces([said(**fields), GOOD], methods.make("grpo"))
    told = [error for _, error in found.failures] or [found.traces[0].episode.decisions[0].action_text]
    words = [set(re.findall(r"w\d{3}", text)) for text in (json.dumps(fields), *told)]
    assert words[0] == words[1] or ("messages[1]" in told[0] and found.failures)


UNKNOWN = {
    "messages[1].reasoned of a trace must be left out, got 'x'": said(content="4", reasoned="x"),
    "messages[1].audio of a trace must be left out": said(content="4", audio={"id": "x"}),
    "messages[1].content[0] of a trace must be of the type text": said(content=[{"type": "redacted_thinking"}]),
    "messages[1].content[0].image of a trace must be left out": said(content=[{"text": "4", "image": "x"}]),
    "messages[1].tool_calls[0].type of a trace must be function": said(tool_calls=[{**CALL, "type": "custom"}]),
    "messages[1].tool_calls[0].function.name of a trace must be given": said(tool_calls=[{"function": {}}]),
    "messages[1].weight of a trace must be 0 or 1, got 0.5": said(content="4", weight=0.5),
    "messages[1] of a trace, an assistant's, must have content, thoughts, calls or a refusal": said(refusal=""),
    "messages[1] of a trace, an assistant's, must have content, thoughts, calls": said(content=[{"text": ""}]),
    "a thought must not contain marks": said(content="4", reasoning="a</think>b"),
    "thoughts and calls must be an assistant's, got them of 'user' in message 1": {
        "messages": [{**QUESTION, "reasoning": "x"}, GUESSED[1]],
        "reward": 1,
    },
}


@pytest.mark.parametrize("told", UNKNOWN)
def test_what_is_unknown_in_a_message_is_refused_with_its_line_and_field(told: str) -> None:
    found = credit_traces([GOOD] * 5 + [UNKNOWN[told]] + [GOOD] * 5, methods.make("grpo"))
    assert len(found.traces) == 10
    ((line, error),) = found.failures
    assert line == 6
    assert told in error
    assert error.endswith((".", ";"))


@pytest.mark.parametrize("told", list(UNKNOWN)[:4])
def test_captures_know_the_fields_of_logs(told: str) -> None:
    answer = UNKNOWN[told]["messages"][1]
    for one, place in (
        (turn("a", [QUESTION], answer), "turns[0].response.choices[0].message"),
        (turn("a", [QUESTION, answer], GUESSED[1]), "turns[0].request.messages[1]"),
    ):
        found = credit_traces([GOOD, {"turns": [one], "reward": 1.0}], methods.make("grpo"))
        ((_, error),) = found.failures
        assert told.replace("messages[1]", place) in error


def test_weight_0_is_not_trained_on() -> None:
    unlearned = [QUESTION, {**GUESSED[1], "weight": 0}, QUESTION, {**GUESSED[1], "weight": 1}]
    found = credit_traces([{"messages": unlearned, "reward": 1.0}, GOOD], methods.make("grpo"))
    assert [one.trained for one in found.traces[0].episode.decisions] == [False, True]
    assert [one is None for one in found.credit[0]] == [True, False]


def test_a_legacy_log_is_that_of_tools() -> None:
    function = {"name": "open", "parameters": {"type": "object", "properties": {"box": {"type": "string"}}}}
    legacy = [
        QUESTION,
        {"role": "assistant", "content": None, "function_call": CALL["function"]},
        {"role": "function", "name": "open", "content": "tea"},
        OPENED[3],
    ]
    traces = [
        {"messages": OPENED, "tools": [{"type": "function", "function": function}], "reward": 1.0},
        {"messages": legacy, "functions": [function], "reward": 0.0},
    ]
    one, other = credit_traces(traces, methods.make("grpo")).traces
    assert [it.state for it in one.episode.decisions] == [it.state for it in other.episode.decisions]
    assert [it.action_text for it in one.episode.decisions] == [it.action_text for it in other.episode.decisions]


def test_traces_take_memory_in_proportion_to_their_messages() -> None:
    def most(count: int) -> int:
        messages = [{"role": role, "content": f"{at}" * 9} for at in range(count) for role in ("user", "assistant")]
        tracemalloc.start()
        found = credit_traces([{"messages": messages, "reward": 1.0}], methods.make("grpo"))
        assert len(found.credit[0]) == count
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return peak

    most(10)
    assert most(2000) < 3 * most(1000)  # four times as much if it were quadratic


GOOD = {"messages": GUESSED, "reward": 1.0, "id": "good"}
BAD = {
    "no JSON": "a text must be JSON",
    '{"messages": [], "turns": []}': "an object with messages or turns",
    '{"messages": []}': "must have a reply of an assistant, got none",
    '{"messages": null}': "must have a reply of an assistant, got none",
    json.dumps({"messages": GUESSED, "reward": 1, "tools": "[]"}): "the tools of a call must be a list, got '[]'",
    json.dumps({"messages": [QUESTION], "reward": 1}): "must have a reply of an assistant, got none",
    json.dumps({"messages": GUESSED}): "must have one of reward, score, outcome or rewards",
    json.dumps({"messages": GUESSED, "reward": float("nan")}): "must be a finite number",
    json.dumps({"messages": GUESSED, "reward": "1"}): "reward of a trace must be",
    json.dumps({"messages": GUESSED, "rewards": [1, 2]}): "one number for each of 1 replies",
    json.dumps(
        {"messages": [{"role": "user", "content": [{"type": "image"}]}, GUESSED[1]]}
    ): "content[0].image of a trace must be given, got none",
    json.dumps(
        {"messages": [QUESTION, {"role": "assistant", "tool_calls": "x"}], "reward": 1}
    ): "messages[1].tool_calls of a trace must be a list, got 'x'",
    '{"messages": ' + "[" * 200 + "]" * 200 + "}": "must be nested 100 deep",
    '{"turns": [{}], "reward": 1}': "ValidationError",
}


def test_a_bad_line_is_reported_and_the_others_are_read(tmp_path: Path) -> None:
    file = tmp_path / "traces.jsonl"
    good = json.dumps(GOOD).encode()
    file.write_bytes(b"\n".join([good, b"", *(line.encode() for line in BAD), b'{"messages": "\xff', good]))
    found = credit_traces(file, methods.make("grpo"))
    assert [trace.line for trace in found.traces] == [1, len(BAD) + 4]
    assert [line for line, _ in found.failures] == [*range(3, len(BAD) + 4)]
    for (_, error), expected in zip(found.failures, [*BAD.values(), "must be JSON"], strict=True):
        assert expected in error
    rows = list(found.rows())
    assert rows[0] == {"line": 1, "trace": "good", "turn": 0, "role": "policy", "credit": 0.0, "error": None}
    assert {row["error"] is None for row in rows[2:]} == {False}


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("vineppo", "continuations and replays"),
        ("ppo", "a critic"),
        ("tree_grpo", "replays"),
        ("verifiable_process", "verdicts"),
        ("reinforce_plus_plus", "tokens"),
    ],
)
def test_a_method_that_needs_more_is_refused_with_alternatives(name: str, needs: str) -> None:
    with pytest.raises(
        ValueError, match=rf"'{name}', which needs {needs}; use one of alive_baseline, .*grpo.*turn_credit"
    ):
        credit_traces([GOOD], methods.make(name))


def test_a_file_without_a_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ValueError, match="must have a readable trace, got an empty file"):
        credit_traces(tmp_path / "empty", methods.make("grpo"))
    with pytest.raises(ValueError, match="got line 1: a text must be JSON"):
        credit_traces(["x"], methods.make("grpo"))


@pytest.mark.parametrize("worth", ["1e308", "-1e308", "1e10", "NaN", "Infinity", "1e999", "9" * 400, '"1"', "[]"])
@pytest.mark.parametrize("name", ["reward", "score", "outcome"])
def test_an_outcome_that_no_mean_can_take_is_an_unreadable_line_alone(name: str, worth: str) -> None:
    line = '{"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}], "%s": %s}'
    found = credit_traces([line % (name, worth), line % (name, "1"), line % (name, "0")], methods.make("rloo"))
    assert [number for number, _ in found.failures] == [1]
    assert [one for (one,) in found.credit] == [1.0, -1.0]
