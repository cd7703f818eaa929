"""Collaborations by name, with scorers by name."""

from __future__ import annotations

import pytest

from hf_credit.collaborations import COLLABORATIONS, make
from hf_credit.collaborations.relay import relay_score
from hf_credit.rollouts import Interaction


def test_every_name_makes_a_collaboration():
    alone = {"roles": {"poet": ""}, "events": [{"name": "poem", "role": "poet"}], "final": "poem"}
    options = {
        "agent": {"agent": "agent_programs:asks"},
        "graph": {**alone, "scorer": relay_score},
        "reasoner_actor": {"domain": "math", "scorer": relay_score},
        "think_solve": {"scorer": relay_score},
        "voting": {"scorer": relay_score, "extract": str.strip},
    }
    for name in COLLABORATIONS:
        assert isinstance(make(name, **options.get(name, {})), Interaction)


def test_options_are_passed_on():
    assert make("relay", size=4).roles["actor"] == "answer mod 4"


def test_a_scorer_is_given_by_name():
    made = make("reasoner_actor", domain="code", scorer="hf_credit.collaborations.relay:relay_score")
    assert made.scorer is relay_score


def test_an_unknown_name_or_option_is_refused():
    known = ", ".join(sorted(COLLABORATIONS))
    with pytest.raises(ValueError, match=f"collaboration must be one of {known}, or 'module:object', got 'nobody'; "):
        make("nobody")
    with pytest.raises(ValueError, match="'relay' takes the options size, speakers, got 'length'; "):
        make("relay", length=3)
    with pytest.raises(ValueError, match=r"importable as 'package.module:function', got 'exact'"):
        make("reasoner_actor", domain="math", scorer="exact")
