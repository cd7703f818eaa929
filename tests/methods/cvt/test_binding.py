"""What CVT-RL and its baselines ask of a task, and what they refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hf_credit import make, methods
from hf_credit.environments.evidence import Evidence
from hf_credit.methods.cvt import BASELINES
from hf_credit.methods.t3 import Truncated, make_rule
from hf_credit.oracles.evidence_audit import EvidenceAuditor, EvidenceInterventions
from hf_credit.rollouts import EnvironmentInteraction


def test_the_parts_of_a_team_of_baselines() -> None:
    interaction = EnvironmentInteraction(make("evidence"), history="current", instructions=False)
    for name in BASELINES:
        method = methods.make("constrained_counterfactual", baseline=name).bind(interaction)
        played = "branches" if name == "information_matched" else "extra" if name == "compute_matched" else "none"
        assert method.collector.counterfactuals == played  # type: ignore[attr-defined]
        assert (method.refresh_frozen_every is None) == (played != "branches")
        assert ("outcome" in method.critics) == (played == "branches")
    whole = methods.make("constrained_counterfactual").bind(interaction)
    assert whole.critics == ("critic", "outcome", "belief")
    assert whole.critic_specs["belief"].slots == (3, 4, 4, 4)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"families": {"deletion": 0.0}}, "must not all be 0"),
        ({"limits": {"tampering": -0.1}}, "the limit of tampering must be at least 0, got -0.1"),
    ],
)
def test_settings_out_of_range_are_refused_in_one_sentence(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as refusal:
        methods.make("constrained_counterfactual", **changed)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"limits": {"time": 1.0}}, "limits must be for costs of the auditor .*, got 'time'"),
        ({"families": {"rewriting": 1.0}}, "families must be among deletion, .*, got 'rewriting'"),
    ],
)
def test_unknown_costs_and_families_are_refused(changed: dict[str, Any], message: str) -> None:
    interaction = EnvironmentInteraction(make("evidence"), history="current", instructions=False)
    with pytest.raises(ValueError, match=message):
        methods.make("constrained_counterfactual", **changed).bind(interaction)
    with pytest.raises(ValueError, match="needs an auditor, got none"):
        methods.make("constrained_counterfactual").bind(EnvironmentInteraction(make("sudoku")))


def test_an_auditor_of_another_environment_is_refused_by_bind() -> None:
    auditor = EvidenceAuditor(documents=4)
    for world, message in (
        (make("sudoku"), "must be made for the environment 'sudoku', got 'evidence'"),
        (make("evidence"), "must audit every legal action of 'evidence', got ValueError"),
    ):
        method = methods.make("constrained_counterfactual", auditor=auditor, counterfactuals="none")
        for interaction in (
            EnvironmentInteraction(world),
            Truncated(EnvironmentInteraction(world), make_rule("random", probability=0.0)),
        ):
            with pytest.raises(ValueError, match=message):
                method.bind(interaction)


def test_an_environment_that_cannot_be_replayed_is_refused_unless_no_step_is_replaced() -> None:
    class Restless(Evidence):
        replayable = False

    interaction = EnvironmentInteraction(Restless(), history="current", instructions=False)
    for baseline in (None, "compute_matched"):
        with pytest.raises(ValueError, match="replays need an environment that is deterministic"):
            methods.make("constrained_counterfactual", baseline=baseline).bind(interaction)
    methods.make("constrained_counterfactual", baseline="ppo_rlvr").bind(interaction)


def test_its_spec_has_the_auditor_and_the_interventions() -> None:
    method = methods.make(
        "constrained_counterfactual", auditor=EvidenceAuditor(documents=4), interventions=EvidenceInterventions()
    )
    described = method.spec()
    assert json.loads(json.dumps(described)) == described
    again = methods.make(described["name"], **described["options"])
    assert again.fingerprint() == method.fingerprint()
