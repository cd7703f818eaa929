"""Names of earlier releases, which still work and warn."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from hf_credit.collectors import RolloutBatch
from hf_credit.critics.specs import CriticSpec
from hf_credit.methods import Credit, CriticTargets, make
from hf_credit.rollouts import CriticInput, Ending, Episode

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
