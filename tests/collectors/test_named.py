"""Collectors by name, instead of a method's default."""

from __future__ import annotations

from pathlib import Path

import pytest

from hf_credit import collectors, methods
from hf_credit.collectors import COLLECTORS, Continuations, Group, Single, Tree, Verified
from hf_credit.collectors.base import gives_of
from hf_credit.environments import make as make_environment
from hf_credit.rollouts import EnvironmentInteraction

NEEDED = {
    "continuations": {"rollouts": 2},
    "tree": {"fanout": [2, 2]},
    "visited_contexts": {"references": 1, "contexts": 1, "alternatives": 2},
}


@pytest.mark.parametrize("name", COLLECTORS)
def test_every_collector_can_be_named_and_put_under_a_method(name: str) -> None:
    part = {"name": name, "options": NEEDED.get(name, {})}
    method = methods.make("reinforce_plus_plus", collector=part)
    assert type(method.collector).__name__ == COLLECTORS[name].partition(":")[2]
    again = methods.make(**{"name": method.spec()["name"], **method.spec()["options"]})
    assert again == method
    assert again.fingerprint() == method.fingerprint()


def test_a_package_brings_its_own_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "of_others-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: of-others\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text("[hf_credit.collectors]\nbush = hf_credit.collectors:Tree\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert collectors.make("bush", fanout=[3]) == Tree(fanout=(3,))


def test_a_list_becomes_a_tuple() -> None:
    assert collectors.make("tree", fanout=[2, 2]) == Tree(fanout=(2, 2))


def test_what_needs_another_takes_the_methods_own_or_one_that_is_named() -> None:
    own = Verified(inner=Group(size=3), oracle="sudoku_constraints")
    assert collectors.make("continuations", instead_of=own, rollouts=2) == Continuations(rollouts=2, inner=own)
    again = collectors.make("verified", instead_of=own, required=False)
    assert again == Verified(inner=Group(size=3), oracle=own.oracle, required=False)
    named = collectors.make("verified", instead_of=own, inner={"name": "tree", "options": {"fanout": [2]}})
    assert named == Verified(inner=Tree(fanout=(2,)), oracle=own.oracle)
    assert collectors.make("continuations", rollouts=1) == Continuations(rollouts=1, inner=Single())


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("trees", "collector must be one of .*; did you mean 'tree'"),
        ("tree", "the collector 'tree' needs the options fanout, got none"),
        ({"name": "tree", "options": {"size": 3}}, "takes the options fanout, .*got 'size'"),
        ({"name": "group", "options": {"size": 1}}, "size must be"),
        ({"options": {}}, "collector must be a name, or a mapping"),
        (3, "collector must be a name, or a mapping"),
        ({"name": "verified", "options": {"inner": {"size": 2}}}, "inner must be a name, or a mapping"),
        ("hf_credit.environments:known", "a collector must be a hf_credit.collectors.Collector, got a list"),
    ],
)
def test_what_is_no_collector_is_refused(given, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        methods.make("rloo", collector=given)


def test_one_that_does_not_give_what_the_estimator_needs_is_refused_at_bind() -> None:
    interaction = EnvironmentInteraction(make_environment("sudoku", size=4, blanks=4))
    method = methods.make("verifiable_process", collector="single")
    assert gives_of(method.collector) == frozenset()
    with pytest.raises(ValueError, match="a collector must give what the estimator needs, verdicts"):
        method.bind(interaction)
    methods.make("rloo", collector={"name": "tree", "options": {"fanout": [2, 2]}}).bind(interaction)
