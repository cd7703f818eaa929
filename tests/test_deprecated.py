"""Names of earlier releases, which still work and warn."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import subprocess
import sys
import warnings
from typing import Any

import pytest

from hf_credit.collectors import RolloutBatch
from hf_credit.critics.specs import CriticSpec
from hf_credit.methods import Credit, CriticTargets, make
from hf_credit.rollouts import CriticInput, Ending, Episode, LocalContext
from hf_credit.trainers.method_context import TrainerContext

INPUT = CriticInput(ids=(1, 2), at=(2,))


def episode(**given: Any) -> Episode:
    return Episode(decisions=(), outcome=0.0, ending=Ending.FINISHED, **given)


def grpo(**changed: Any) -> Any:
    return dataclasses.replace(make("grpo"), **changed)


@pytest.mark.parametrize(
    ("build", "before", "now", "value"),
    [
        (lambda **given: CriticTargets(targets=[(1.0,)], values=[(0.5,)], **given), "readings", "inputs", [INPUT]),
        (lambda **given: Credit(decisions={}, **given), "lessons", "critic_targets", [None]),
        (lambda **given: RolloutBatch(**given), "samples", "rollouts", (None,)),
        (episode, "path", "branch", (0, 2)),
        (episode, "inherited", "prefix_length", 3),
        (episode, "ways", "num_leaves", 4),
        (grpo, "kinds", "critic_specs", {"critic": CriticSpec()}),
    ],
    ids=["CriticTargets", "Credit", "RolloutBatch", "Episode", "Episode", "Episode", "Method"],
)
def test_a_field_is_given_and_read_by_the_name_it_had(build: Any, before: str, now: str, value: Any) -> None:
    with pytest.warns(DeprecationWarning, match=f"{before} is now called {now} .*use the new name") as warned:
        old = build(**{before: value})
    assert len(warned) == 1
    assert old == build(**{now: value})
    with pytest.warns(DeprecationWarning, match=f"{before} is now called {now} ") as warned:
        assert getattr(old, before) is value
    assert [warning.filename for warning in warned] == [__file__]
    with pytest.warns(DeprecationWarning, match=f"{before} is now called {now} "):
        assert dataclasses.replace(build(**{now: value}), **{before: type(value)()}) != old
    assert before not in inspect.signature(type(old)).parameters
    assert before not in [one.name for one in dataclasses.fields(old)]


def test_an_argument_is_given_by_the_name_it_had() -> None:
    context = LocalContext(critics={"critic": lambda inputs: [(0.5,) for _ in inputs]})
    with pytest.warns(
        DeprecationWarning, match=r"LocalContext.values.readings is now called inputs .*use the"
    ) as warned:
        assert context.values(readings=[INPUT]) == context.values(inputs=[INPUT]) == [(0.5,)]  # type: ignore[call-arg]
    assert [warning.filename for warning in warned] == [__file__]
    assert [*inspect.signature(LocalContext.values).parameters] == [
        *inspect.signature(TrainerContext.values).parameters
    ]


@pytest.mark.parametrize(
    ("module", "before", "now"),
    [
        ("methods", "Lesson", "methods.CriticTargets"),
        ("collectors", "Collected", "collectors.RolloutBatch"),
        ("collectors", "Sample", "collectors.Rollout"),
        ("rollouts", "EnvironmentTurn", "rollouts.EnvironmentState"),
        ("rollouts", "LocalRunner", "rollouts.LocalContext"),
        ("rollouts", "Reading", "rollouts.CriticInput"),
        ("rollouts", "Runner", "rollouts.MethodContext"),
        ("rollouts", "Start", "rollouts.RolloutRequest"),
        ("rollouts", "TruncatedTurn", "methods.t3.TruncatedState"),
        ("critics.readings", "context_readings", "critics.inputs.context_inputs"),
        ("critics.readings", "own_readings", "critics.inputs.policy_inputs"),
        ("evaluation.credit_tables", "said", "evaluation.credit_tables.short_reply"),
        ("evaluation.credited", "asked_anew", "evaluation.credited.new_requests"),
        ("evaluation.traces", "Asked", "evaluation.traces.RecordedState"),
    ],
)
def test_a_name_that_was_changed_is_found_and_warns(module: str, before: str, now: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"hf_credit.{module}.{before} is now called {now.split('.')[-1]} "):
        found = getattr(importlib.import_module(f"hf_credit.{module}"), before)
    assert found is of_path(now)


MOVED = [
    ("collectors", ["AuditedSteps", "context_values", "counterfactual", "step_features"], "methods.cvt"),
    ("rollouts", ["Branch", "Branches", "Gate", "audited", "branches"], "methods.cvt"),
    ("rollouts", ["RULES", "Rule", "Step", "Truncated", "TruncatedState", "first_cut", "make_rule"], "methods.t3"),
    ("methods.constrained_counterfactual", ["LIMITS", "PAPER", "Constraints"], "methods.cvt"),
    ("critics.readings", ["Places", "joint_histories"], "critics.inputs"),
]


@pytest.mark.parametrize(("module", "names", "home"), MOVED)
def test_what_moved_is_found_where_it_was(module: str, names: list[str], home: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = [getattr(importlib.import_module(f"hf_credit.{module}"), name) for name in names]
    assert all(one is of_path(f"{home}.{name}") for one, name in zip(found, names, strict=True))


def test_what_moved_is_imported_when_it_is_first_looked_for() -> None:
    code = """
import sys
from hf_credit import collectors, rollouts
assert "hf_credit.methods.cvt" not in sys.modules and "hf_credit.methods.t3" not in sys.modules
rollouts.Gate
assert "hf_credit.methods.cvt" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("module", ["methods", "collectors", "rollouts", "methods.constrained_counterfactual"])
def test_a_name_that_never_was_is_no_attribute(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'hf_credit.{module}' has no attribute 'never'"):
        of_path(f"{module}.never")


def of_path(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(f"hf_credit.{module}"), name)
