"""Capabilities of an Interaction: defaults, errors, and delegation by wrappers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hf_credit import make
from hf_credit.rollouts import EnvironmentInteraction, Interaction, Request, capabilities
from hf_credit.rollouts.capabilities import (
    Acting,
    Auditable,
    Batched,
    Capability,
    Enumerable,
    Interruptible,
    Learned,
    Metered,
    Oracled,
    Removable,
    Replayable,
    Scripted,
    Shown,
    TaskSource,
    evaluated,
    fingerprint,
    require_replayable,
)
from hf_credit.rollouts.interaction import Wrapper

KINDS = [one for _, one in inspect.getmembers(capabilities, inspect.isclass) if issubclass(one, Capability)]


class Question(Interaction[str]):
    """An Interaction with only the four methods."""

    def start(self, task, seed):
        return ""

    def pending(self, state):
        return () if state else (Request(role="agent", messages=[]),)

    def advance(self, state, replies):
        if replies[0] == "boom":
            raise RuntimeError("no such word")
        return replies[0]

    def outcome(self, state):
        return float(state == "42")


PLAIN = Question()


def members(kind: type[Capability]) -> list[str]:
    return [name for name in vars(kind) if not name.startswith("_")]


def test_an_interaction_has_few_members() -> None:
    assert len([name for name in vars(Interaction) if not name.startswith("_")]) <= 12


def test_capabilities_have_defaults() -> None:
    assert Shown(PLAIN).history == "append"
    assert (Learned(PLAIN).untrained, Learned(PLAIN).trained("42")) == ((), True)
    assert Batched(PLAIN).most_live is None
    first, second = Batched(PLAIN).advance_many(["", ""], [["42"], ["boom"]])
    assert (first, type(second)) == ("42", RuntimeError)
    assert (Metered(PLAIN).scores("42"), Metered(PLAIN).costs()) == (1, {})
    asked = Interruptible(PLAIN)
    assert (asked.asks_for_answers, asked.answer_prompt(""), asked.force_answer("")) == (False, None, "")
    assert asked.bootstrap_requests("") == ()
    assert (Replayable(PLAIN).replayable, Enumerable(PLAIN).enumerable, Removable(PLAIN).removable) == (
        True,
        False,
        (),
    )
    assert (Oracled(PLAIN).default_oracle(), Oracled(PLAIN).check_oracle(None)) == (None, None)
    judged = Auditable(PLAIN)
    assert (judged.default_auditor(), judged.default_interventions(), judged.check_auditor(None)) == (None, None, None)
    TaskSource(PLAIN).require_columns(["any"])
    assert not TaskSource(PLAIN).seeded
    assert (Scripted(PLAIN).scripted_player(1.0), Scripted(PLAIN).texts(3)) == (None, None)
    assert evaluated(PLAIN) is PLAIN
    assert fingerprint(PLAIN) == {"interaction": f"{__name__}:Question"}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: TaskSource(PLAIN).tasks("train", 1), "'Question' needs a dataset of tasks, got none; name one"),
        (lambda: Removable(PLAIN).without("", "agent"), r"\(none\), got 'agent'; implement its method"),
        (
            lambda: Acting(PLAIN).action_of("", "x"),
            "got a reply of 'Question', which has no environment; leave the oracle out",
        ),
        (lambda: Acting(PLAIN).write_action("x"), "got 'x' for 'Question', which has none"),
        (lambda: Acting(PLAIN).with_world("", None), "got 'Question', which has none; leave such interventions out"),
        (
            lambda: Oracled(PLAIN).check_oracle(object()),
            "got one for 'Question', which has no environment; leave it out",
        ),
        (
            lambda: Replayable(PLAIN).state_to_json(""),
            "got one of 'Question', which does not support it; implement its",
        ),
        (
            lambda: Replayable(PLAIN).state_from_json(""),
            "got one of 'Question', which does not support it; implement its",
        ),
    ],
)
def test_missing_capabilities_are_refused_in_one_sentence(ask: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ask()


def test_an_interaction_that_is_not_replayable_is_refused() -> None:
    class Noisy(Question):
        replayable = False

    require_replayable(PLAIN, "this")
    with pytest.raises(
        ValueError, match="deterministic given seed and actions, got this for 'Noisy', which is not; use"
    ):
        require_replayable(Noisy(), "this")


def test_an_interaction_has_a_capability_by_defining_some_of_its_members() -> None:
    class Team(Question):
        untrained = ("judge",)

        def tasks(self, split, size, start=0):
            return [{"split": split}] * size

    team = Team()
    assert Learned(team).untrained == ("judge",)
    assert Learned(team).trained("")
    assert TaskSource(team).tasks("train", 2) == [{"split": "train"}] * 2
    assert not TaskSource(team).seeded


def test_an_environment_has_most_capabilities() -> None:
    game = EnvironmentInteraction(make("sudoku", size=4, blanks=4), "current")
    state = game.start({"seed": 1}, 1)
    assert Acting(game).action_of(state, "<action>fill 1 1 2</action>") == (state.world, "fill 1 1 2")
    assert Oracled(game).check_oracle(None) is not None
    assert Shown(game).history == "current"
    assert TaskSource(game).seeded
    with pytest.raises(ValueError, match="column"):
        TaskSource(game).require_columns([])
    assert Replayable(game).state_from_json(Replayable(game).state_to_json(state)) == state


@dataclass(frozen=True)
class Boxed:
    inner: Any


class Box(Wrapper[Boxed, str]):
    def within(self, value):
        return value.inner if isinstance(value, Boxed) else value


def test_a_wrapper_delegates_all_members_of_the_inner_interaction() -> None:
    """Every wrapper delegates a new member of a capability, with the inner state."""

    class Everything(Question):
        roles = ("agent",)
        max_replies = 3

    names = [name for kind in KINDS for name in members(kind)]
    assert len(names) > 20
    for name in names:
        setattr(Everything, name, lambda self, *asked, name=name: (name, *asked))
    inner = Everything()
    box = Box(inner)
    for kind in KINDS:
        for name in members(kind):
            assert getattr(kind(box), name)(Boxed("42"), 1) == (name, "42", 1)
    assert (box.roles, box.max_replies, box.name) == (("agent",), 3, "Everything")
    assert box.outcome(Boxed("42")) == 1.0
    with pytest.raises(AttributeError, match="nothing_like_it"):
        box.nothing_like_it  # noqa: B018
    with pytest.raises(ValueError, match="made by hand"):
        box.spec()
