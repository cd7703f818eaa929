"""Capabilities of an Interaction: defaults, errors, and delegation by wrappers."""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hf_credit import CreditConfig, make, methods, registry
from hf_credit.methods.t3 import make_rule
from hf_credit.methods.t3.truncated import Truncated
from hf_credit.rollouts import EnvironmentInteraction, Interaction, Request, capabilities
from hf_credit.rollouts.capabilities import (
    Acting,
    Auditable,
    Batched,
    Capability,
    ContextStyle,
    Costs,
    Enumerable,
    Interruptible,
    Oracled,
    Removable,
    Replayable,
    Scripted,
    TaskSource,
    TrainedRoles,
    evaluated,
    fingerprint,
    require_replayable,
)
from hf_credit.rollouts.dry_run import _StepLimit
from hf_credit.rollouts.interaction import Wrapper
from hf_credit.tasks import TaskSpec
from hf_credit.trainers.saving import save_task

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
    assert ContextStyle(PLAIN).history == "append"
    assert (TrainedRoles(PLAIN).untrained, TrainedRoles(PLAIN).trained("42")) == ((), True)
    assert Batched(PLAIN).most_live is None
    first, second = Batched(PLAIN).advance_many(["", ""], [["42"], ["boom"]])
    assert (first, type(second)) == ("42", RuntimeError)
    assert (Costs(PLAIN).scores("42"), Costs(PLAIN).costs()) == (1, {})
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
    assert TrainedRoles(team).untrained == ("judge",)
    assert TrainedRoles(team).trained("")
    assert TaskSource(team).tasks("train", 2) == [{"split": "train"}] * 2
    assert not TaskSource(team).seeded


def test_an_environment_has_most_capabilities() -> None:
    game = EnvironmentInteraction(make("sudoku", size=4, blanks=4), "current")
    state = game.start({"seed": 1}, 1)
    assert Acting(game).action_of(state, "<action>fill 1 1 2</action>") == (state.world, "fill 1 1 2")
    assert Oracled(game).check_oracle(None) is not None
    assert ContextStyle(game).history == "current"
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


class Hinted(Wrapper[Any, Any]):
    """Changes prompts and outcomes."""

    def __init__(self, inner: Interaction[Any], hint: str = "look at the rows") -> None:
        super().__init__(inner)
        self.hint = hint

    def outcome(self, state: Any) -> float:
        return self.inner.outcome(state) / 2


@registry.remembers_its_call()
def hinted_sudoku(hint: str = "look at the rows") -> Hinted:
    return Hinted(EnvironmentInteraction(make("sudoku", size=4)), hint)


def wrapped(kind: type[Wrapper[Any, Any]], inner: Interaction[Any]) -> Wrapper[Any, Any]:
    rest = {_StepLimit: (3,), Truncated: (make_rule("random"), "hard")}
    return kind(inner, *rest.get(kind, ()))


@pytest.mark.parametrize("kind", [Box, Hinted, Truncated, _StepLimit])
@pytest.mark.parametrize("inner", [PLAIN, EnvironmentInteraction(make("sudoku", size=4))])
def test_a_wrapped_interaction_is_not_its_inner_one(kind: type[Wrapper[Any, Any]], inner: Interaction[Any]) -> None:
    once = wrapped(kind, inner)
    prints = [fingerprint(one) for one in (inner, once, Hinted(once), Hinted(once, "look at the columns"))]
    assert all(one != other for one, other in itertools.combinations(prints, 2))
    assert fingerprint(wrapped(kind, inner)) == prints[1]
    json.dumps(prints)
    if kind is not Truncated:  # which an evaluation never plays
        with pytest.raises(ValueError, match="made by hand; make it with"):
            TaskSpec.of(once)


def test_every_wrapper_of_the_library_is_held_to_that() -> None:
    for module in ("hf_credit.methods", "hf_credit.collaborations", "hf_credit.agents"):
        importlib.import_module(module)
    ours = {one for one in subclasses(Wrapper) if one.__module__.startswith("hf_credit.")}
    assert ours == {Truncated, _StepLimit}


def subclasses(kind: type) -> set[type]:
    return {kind, *(other for one in kind.__subclasses__() for other in subclasses(one))} - {Wrapper}


def test_a_factory_of_a_wrapper_describes_it() -> None:
    made = hinted_sudoku("look at the boxes")
    again = TaskSpec.of(made).build()
    assert (type(again), again.hint) == (Hinted, "look at the boxes")  # type: ignore[attr-defined]
    assert fingerprint(again) == fingerprint(made) != fingerprint(hinted_sudoku())


def test_a_policy_of_a_wrapped_task_is_saved_without_a_task_that_it_was_not_trained_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inner = EnvironmentInteraction(make("sudoku", size=4))
    args = CreditConfig(output_dir=str(tmp_path), bf16=False, use_cpu=True, report_to="none")
    save_task(tmp_path, Hinted(inner), methods.make("grpo"), args)
    assert not list(tmp_path.iterdir())
    assert "saved the policy without hf_credit_task.json" in caplog.text
    save_task(tmp_path, inner, methods.make("grpo"), args)
    assert [one.name for one in tmp_path.iterdir()] == ["hf_credit_task.json"]
