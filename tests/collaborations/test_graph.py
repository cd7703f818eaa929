"""A graph is a valid protocol, or is refused in one sentence."""

from __future__ import annotations

import pytest

from hf_credit.collaborations.graph import Event, Graph, Loop

CHAIN = [Event("a", "r"), Event("b", "r", after="a"), Event("c", "r", after="b")]
DIAMOND = [
    Event("join", "r", after=("left", "right")),
    Event("right", "r", after=("open",)),
    Event("left", "r", after=("open",)),
    Event("open", "r"),
]


def due(graph, done):
    return [event.name for event in graph.due(set(done))]


def test_events_are_due_once_all_before_them_spoke_in_the_order_of_their_declaration():
    graph = Graph(DIAMOND, "join")
    assert due(graph, []) == ["open"]
    assert due(graph, ["open"]) == ["right", "left"]
    assert due(graph, ["open", "left"]) == ["right"]
    assert due(graph, ["open", "left", "right"]) == ["join"]
    assert due(graph, ["open", "left", "right", "join"]) == []


def test_a_loop_redoes_all_that_follows_its_target():
    events = [*CHAIN, Event("d", "r", after=("c", "side")), Event("side", "r", after="a")]
    graph = Graph(events, "d", [Loop("c", "b", times=1), Loop("d", ("side", "c"), times=1)])
    assert graph.redone["c"] == {"b", "c", "d"}
    assert graph.redone["d"] == {"c", "d", "side"}


def test_an_event_sees_the_events_before_it_by_default():
    graph = Graph([Event("a", "r"), Event("b", "r", "a"), Event("c", "r", "b", sees=["a"])], "c")
    assert graph.sees == {"a": (), "b": ("a",), "c": ("a",)}


def test_an_event_can_see_itself_and_later_events_after_a_loop():
    events = [Event("write", "w", sees=("write", "review")), Event("review", "r", after="write")]
    assert Graph(events, "review", [Loop("review", "write", times=1)]).sees["write"] == ("write", "review")


REFUSED = {
    "no event": (([], "a"), "must have an event, got none; add an Event"),
    "a name twice": (([*CHAIN, Event("a", "r")], "c"), "different names, got 'a' twice; rename one of them"),
    "an unknown final event": (
        (CHAIN, "d"),
        "an event in final='d' must be one of a, b, c, got 'd'; pick one",
    ),
    "an unknown event before": (
        ([Event("a", "r", after="z")], "a"),
        "an event in the event 'a' must be one of .*, got 'z'; ",
    ),
    "an unknown event seen": (
        ([Event("a", "r", sees="z")], "a"),
        "an event in the event 'a' must be one of .*, got 'z'; ",
    ),
    "an unknown source": (
        (CHAIN, "c", [Loop("z", "a", 1)]),
        "an event in the loop from 'z' must be one of .*, got 'z'; ",
    ),
    "an unknown target": (
        (CHAIN, "c", [Loop("b", "z", 1)]),
        "an event in the loop from 'b' must be one of .*, got 'z'; ",
    ),
    "a cycle": (
        ([Event("a", "r", after="b"), Event("b", "r", after="a")], "b"),
        "must not form a cycle by `after`, got (a -> b -> a|b -> a -> b); .* repeat it with a Loop",
    ),
    "an event after itself": (([Event("a", "r", after="a")], "a"), "must not form a cycle by `after`, got a -> a; "),
    "an event that leads nowhere": (
        ([*CHAIN, Event("d", "critic", after="a")], "c"),
        "must lead to the final one, 'c', got 'd' of the role 'critic', which does not; ",
    ),
    "an event after the final one": ((CHAIN, "b"), "must lead to the final one, 'b', got 'c' of the role 'r'"),
    "a loop forwards": ((CHAIN, "c", [Loop("b", "c", 1)]), r"go back to .* got \['c'\]; choose among a, b\."),
    "a loop to nowhere": ((CHAIN, "c", [Loop("b", (), 1)]), r"go back to .* got \[\]; choose among a, b\."),
    "a loop sideways": ((DIAMOND, "join", [Loop("left", "right", 1)]), "choose among left, open"),
    "a loop never taken": (
        (CHAIN, "c", [Loop("b", "a", 0)]),
        "times of the loop from 'b' must be at least 1, got 0; raise it",
    ),
    "two loops from one event": (
        (CHAIN, "c", [Loop("b", "a", 1), Loop("b", "b", 1)]),
        "at most one loop, got two from 'b'; remove one",
    ),
    "an event that sees the future": (
        ([Event("a", "r", sees="b"), Event("b", "r", after="a")], "b"),
        "got 'a' that sees 'b'; add 'b' to its `after`, or add a Loop",
    ),
    "an event that sees itself": (([Event("a", "r", sees="a")], "a"), "got 'a' that sees 'a'; "),
    "one of two at the same time that sees the other": (
        ([DIAMOND[0], Event("right", "r", "open", sees="left"), *DIAMOND[2:]], "join"),
        "got 'right' that sees 'left'; ",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(arguments, message):
    with pytest.raises(ValueError, match=message) as refusal:
        Graph(*arguments)
    assert "\n" not in str(refusal.value)
