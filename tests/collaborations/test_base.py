"""A collaboration walks its graph over immutable states, and shows each role the outputs of the protocol."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.collaborations import Collaboration, Event, Loop
from hf_credit.rollouts import Ending

TASK = {"problem": "What is 2 + 3?", "answer": "5"}


def exact(task, text):
    return text == task["answer"]


def pair(**options):
    settings = {
        "roles": {"planner": "Plan.", "solver": "Solve."},
        "events": [Event("plan", "planner"), Event("solve", "solver", after="plan")],
        "final": "solve",
        "scorer": exact,
    }
    return Collaboration(**{**settings, **options})


def users(collaboration, state):
    return [request.messages[1]["content"] for request in collaboration.pending(state)]


def walk(collaboration, task, replies):
    state = collaboration.start(task, 0)
    for reply in replies:
        state = collaboration.advance(state, reply if isinstance(reply, list) else [reply])
    return state


# Messages


def test_each_occurrence_gets_one_system_and_one_user_message():
    collaboration = pair()
    state = collaboration.start(TASK, 0)
    (request,) = collaboration.pending(state)
    assert (request.role, request.event) == ("planner", "plan")
    assert request.messages == [
        {"role": "system", "content": "Plan."},
        {"role": "user", "content": "Problem: What is 2 + 3?\n\nContext:"},
    ]
    (request,) = collaboration.pending(collaboration.advance(state, ["Add them."]))
    assert (request.role, request.event) == ("solver", "solve")
    assert request.messages == [
        {"role": "system", "content": "Solve."},
        {"role": "user", "content": "Problem: What is 2 + 3?\n\nContext: Add them."},
    ]


def test_texts_are_trimmed_and_have_one_kind_of_line_break():
    collaboration = pair(roles={"planner": "\r\nPlan.\r\n", "solver": "Solve. "})
    state = walk(collaboration, {**TASK, "problem": " 2\r\n+ 3?\r"}, ["\tAdd\rthem.\r\n\r\n"])
    (request,) = collaboration.pending(state)
    assert [message["content"] for message in request.messages] == [
        "Solve.",
        "Problem: 2\n+ 3?\n\nContext: Add\nthem.",
    ]
    assert walk(collaboration, TASK, ["", " 5\r\n"]).transcript == (("plan", ""), ("solve", "5"))


def test_a_role_sees_the_column_of_its_event():
    events = [Event("plan", "planner", column="half"), Event("solve", "solver", after="plan")]
    collaboration = pair(events=events)
    task = {**TASK, "half": "2"}
    assert users(collaboration, walk(collaboration, task, [])) == ["Problem: 2\n\nContext:"]
    assert users(collaboration, walk(collaboration, task, ["x"])) == ["Problem: What is 2 + 3?\n\nContext: x"]


VOTE = [
    Event("plan", "planner"),
    Event("second", "solver", after="plan"),
    Event("first", "solver", after="plan"),
    Event("judge", "judge", after=("first", "second"), sees=("plan", "first", "second")),
]
VOTERS = {"planner": "p", "solver": "s", "judge": "j"}


def test_simultaneous_events_do_not_see_each_other_and_keep_their_declared_order():
    collaboration = Collaboration(VOTERS, VOTE, "judge", exact)
    state = walk(collaboration, TASK, ["do"])
    assert [(request.role, request.event) for request in collaboration.pending(state)] == [
        ("solver", "second"),
        ("solver", "first"),
    ]
    assert users(collaboration, state) == ["Problem: What is 2 + 3?\n\nContext: do"] * 2
    state = collaboration.advance(state, ["six", "five"])
    assert state.transcript == (("plan", "do"), ("second", "six"), ("first", "five"))
    assert users(collaboration, state) == ["Problem: What is 2 + 3?\n\nContext: do\n\nsix\n\nfive"]


def test_an_empty_output_leaves_no_gap():
    collaboration = Collaboration(VOTERS, VOTE, "judge", exact)
    state = walk(collaboration, TASK, ["do", ["\n", "five"]])
    assert users(collaboration, state) == ["Problem: What is 2 + 3?\n\nContext: do\n\nfive"]


def test_outputs_are_sanitised_before_anybody_sees_them():
    collaboration = pair(sanitise=lambda text: text.replace("#", " "))
    state = walk(collaboration, TASK, ["#a#b#", "5#"])
    assert state.transcript == (("plan", "a b"), ("solve", "5"))
    assert collaboration.outcome(state) == 1


def test_thoughts_of_a_role_reach_nobody():
    state = walk(pair(), TASK, ["<think>Is it 6?</think>Add the numbers.", "so 6</think>5"])
    assert state.transcript == (("plan", "Add the numbers."), ("solve", "5"))


@given(st.text(max_size=20), st.text(max_size=20))
def test_nothing_but_the_shown_columns_reaches_a_message(problem, reply):
    secret = "\ue123gold\ue124"
    task = {"problem": problem, "answer": secret, "tests": [secret], secret: 1}
    collaboration = pair()
    state = collaboration.start(task, 0)
    while requests := collaboration.pending(state):
        assert secret not in json.dumps([*requests[0].messages], ensure_ascii=False)
        state = collaboration.advance(state, [reply])


# Loops

REVIEW = [Event("write", "writer", sees=("write", "review")), Event("review", "reviewer", after="write")]
PROSE = {"writer": "w", "reviewer": "r"}


def review(times=2, **options):
    loop = Loop("review", "write", times, until=lambda text: text.startswith("good"))
    return Collaboration(
        PROSE, options.pop("events", REVIEW), "review", exact, [loop], scored_event="write", **options
    )


def test_a_loop_ends_when_its_condition_holds():
    collaboration = review()
    state = walk(collaboration, TASK, ["4", "bad", "5", "good!"])
    assert collaboration.pending(state) == ()
    assert collaboration.outcome(state) == 1
    assert [event for event, _ in state.transcript] == ["write", "review", "write", "review"]


def test_a_loop_ends_after_its_times():
    collaboration = review(times=2)
    state = walk(collaboration, TASK, ["1", "bad", "2", "bad", "3", "bad"])
    assert state.loops == (2,)
    assert collaboration.pending(state) == ()
    assert collaboration.outcome(state) == 0


def test_after_a_loop_the_last_outputs_are_seen_in_the_order_of_their_making():
    collaboration = review()
    state = walk(collaboration, TASK, ["one", "bad one", "two", "bad two"])
    assert users(collaboration, state) == ["Problem: What is 2 + 3?\n\nContext: two\n\nbad two"]


def test_with_history_all_outputs_are_seen():
    collaboration = review(events=[replace(REVIEW[0], history=True), REVIEW[1]])
    state = walk(collaboration, TASK, ["one", "bad one", "two", "bad two"])
    assert users(collaboration, state)[0].endswith("Context: one\n\nbad one\n\ntwo\n\nbad two")


def test_a_loop_repeats_only_the_events_from_its_target_on():
    events = [
        Event("plan", "planner"),
        Event("first", "solver", after="plan"),
        Event("second", "solver", after="plan"),
        Event("check", "planner", after="first"),
        Event("end", "solver", after=("check", "second")),
    ]
    collaboration = pair(events=events, final="end", loops=[Loop("check", "first", times=1)])
    state = walk(collaboration, TASK, ["p", ["1", "2"], "no"])
    assert state.done == ("plan", "second")
    assert [request.event for request in collaboration.pending(state)] == ["first"]


def test_of_two_loops_at_the_same_time_one_that_undoes_the_other_s_source_leaves_it_untaken():
    events = [
        Event("open", "planner"),
        Event("left", "solver", after="open"),
        Event("right", "solver", after="open"),
        Event("end", "solver", after=("left", "right")),
    ]
    loops = [Loop("right", "open", times=1), Loop("left", "open", times=1)]
    collaboration = pair(events=events, final="end", loops=loops)
    state = walk(collaboration, TASK, ["o", ["l", "r"]])
    assert (state.done, state.loops) == ((), (0, 1))
    state = collaboration.advance(collaboration.advance(state, ["o"]), ["l", "r"])
    assert (state.done, state.loops) == ((), (1, 1))
    assert collaboration.pending(walk(collaboration, TASK, ["o", ["l", "r"]] * 3 + ["e"])) == ()


# Outcomes


def test_the_scorer_is_asked_once_with_the_task_and_the_final_text():
    asked = []
    task = {**TASK, "tests": [1, None, {"é": 0.5}]}
    collaboration = pair(scorer=lambda row, text: asked.append((row, text)) or 0.5)
    state = walk(collaboration, task, ["plan", " 5\n"])
    assert asked == []
    assert collaboration.outcome(state) == 0.5
    assert asked == [(task, "5")]
    assert collaboration.metrics(state) == {}
    assert len(asked) == 1
    assert collaboration.ending(state) == Ending.FINISHED


def test_an_unfinished_collaboration_has_outcome_0_without_scoring():
    collaboration = pair(scorer=lambda task, text: math.nan)
    assert collaboration.outcome(walk(collaboration, TASK, ["plan"])) == 0


def test_a_score_out_of_range_is_refused_by_name():
    collaboration = pair(scorer=lambda task, text: 2)
    with pytest.raises(ValueError, match=r"in \[0, 1\], got 2 from .*lambda.*; "):
        collaboration.outcome(walk(collaboration, TASK, ["plan", "5"]))


def failing(task, text):
    if text == "out of range":
        return 7
    raise RuntimeError("no sandbox")


def test_a_scorer_that_fails_marks_its_own_episode_only(play):
    collaboration = pair(scorer=lambda task, text: exact(task, text) or (text != "4" and failing(task, text)))
    said = {"a": "5", "b": "4", "c": "out of range", "d": "?"}
    speak = lambda system, user: said[user.split()[1]]  # noqa: E731
    episodes = play(collaboration, speak, [{"problem": name, "answer": "5"} for name in said])
    assert [episode.ending for episode in episodes] == [Ending.FINISHED] * 2 + [Ending.ERROR] * 2
    assert [episode.outcome for episode in episodes[:2]] == [1, 0]
    assert all(math.isnan(episode.outcome) for episode in episodes[2:])
    assert "got 7 from " in episodes[2].error
    assert episodes[3].error == "RuntimeError: no sandbox"
    assert [len(episode.decisions) for episode in episodes] == [2, 2, 2, 2]


# States

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), st.text(max_size=10))
def test_a_state_keeps_any_row_and_goes_through_json(row, reply):
    task = {**row, "problem": "p"}
    collaboration = pair()
    state = walk(collaboration, task, [reply])
    assert state.row == task
    again = collaboration.state_from_json(collaboration.state_to_json(state))
    assert again == state
    assert hash(again) == hash(state)
    assert collaboration.pending(again) == collaboration.pending(state)


def test_the_order_of_columns_and_the_seed_make_no_difference():
    collaboration = pair()
    assert collaboration.start(TASK, 0) == collaboration.start(dict(reversed(TASK.items())), 1)


# Every graph


@st.composite
def collaborations(draw):
    names = [f"e{index}" for index in range(draw(st.integers(1, 6)))]
    after = {n: draw(st.lists(st.sampled_from(names[:i]), unique=True)) if i else [] for i, n in enumerate(names)}
    upstream = {}
    for name in names:
        upstream[name] = {name}.union(*(upstream[earlier] for earlier in after[name]))
    sinks = [name for name in names[:-1] if not any(name in after[other] for other in names)]
    after[names[-1]] = sorted({*after[names[-1]], *sinks})
    upstream[names[-1]] = set(names)
    sources = draw(st.lists(st.sampled_from(names), unique=True, max_size=3))
    loops = [
        Loop(
            source,
            draw(st.lists(st.sampled_from(sorted(upstream[source])), min_size=1, unique=True)),
            times=draw(st.integers(1, 3)),
            until=draw(st.sampled_from([None, lambda text: text.endswith("0"), lambda text: len(text) > 5])),
        )
        for source in sources
    ]
    events = []
    for name in names:
        visible = upstream[name] - {name}
        for loop in loops:
            if upstream[name] & set(loop.target):
                visible |= upstream[loop.source]
        sees = draw(st.none() | st.lists(st.sampled_from(sorted(visible)), unique=True) if visible else st.none())
        events.append(Event(name, draw(st.sampled_from("xy")), after[name], sees, history=draw(st.booleans())))
    roles = {event.role: f"role {event.role}" for event in events}
    return Collaboration(roles, draw(st.permutations(events)), names[-1], exact, loops)


@given(collaborations(), st.randoms(use_true_random=False))
def test_every_walk_ends_and_is_a_function_of_its_states(collaboration, draws):
    graph = collaboration.graph
    state = collaboration.start(TASK, 0)
    most = len(graph.events) * (1 + sum(loop.times for loop in graph.loops.values()))
    while requests := collaboration.pending(state):
        assert len({request.event for request in requests}) == len(requests)
        assert collaboration.pending(collaboration.state_from_json(collaboration.state_to_json(state))) == requests
        for request in requests:
            context = request.messages[1]["content"].partition("Context:")[2].split()
            said = [text for event, text in state.transcript if event in graph.sees[request.event]]
            history = next(event for event in graph.events if event.name == request.event).history
            last = {text.partition("/")[0]: text for text in said}
            assert context == [text for text in said if history or text in last.values()]
        made = len(state.transcript)
        replies = [f"{request.event}/{made + place}{draws.randrange(2)}" for place, request in enumerate(requests)]
        state = collaboration.advance(state, replies)
        assert [(request.event, reply) for request, reply in zip(requests, replies, strict=True)] == list(
            state.transcript[made:]
        )
        assert len(state.transcript) <= most
    assert graph.final in state.done
    assert {event for event, _ in state.transcript} == {event.name for event in graph.events}
    assert collaboration.outcome(state) == 0


# Refused


def refusal(make):
    with pytest.raises(ValueError) as error:  # noqa: PT011 (the caller looks at the message)
        make()
    assert "\n" not in str(error.value)
    return str(error.value)


def test_an_unknown_role_is_refused():
    message = refusal(lambda: pair(roles={"planner": "Plan."}))
    assert message.startswith("the role of the event 'solve' must be one of planner, got 'solver'; ")


def test_a_role_that_never_speaks_is_refused():
    message = refusal(lambda: pair(roles={"planner": "p", "solver": "s", "critic": "c"}))
    assert message.startswith("every role must speak at some event, got 'critic', which never does; ")


def test_a_role_that_no_event_sees_is_refused():
    events = [Event("plan", "planner"), Event("solve", "solver")]
    message = refusal(lambda: pair(events=events))
    assert message.startswith("every event must lead to the final one, 'solve', got 'plan' of the role 'planner', ")


def test_an_unknown_scored_event_is_refused():
    assert refusal(lambda: pair(scored_event="write")).startswith(
        "the scored event must be one of plan, solve, got 'write'"
    )


@pytest.mark.parametrize("row", [{"question": "q"}, {"problem": None}, {"problem": ["p"]}, {}])
def test_a_row_without_the_text_of_a_column_is_refused(row):
    message = refusal(lambda: pair().start(row, 0))
    assert message.startswith("a task row must have text in the column 'problem', which the event 'plan' shows, got ")
    assert message.endswith("; add it, or choose another column in the Event.")


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), {("a", "b"): 1}])
def test_a_row_with_other_values_than_json_is_refused(value):
    message = refusal(lambda: pair().start({"problem": "p", "x": value}, 0))
    assert message.startswith("a task row must contain JSON values, got another value (")
