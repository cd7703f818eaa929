"""An audit refuses invalid values."""

from __future__ import annotations

import math

import pytest

from hf_credit.oracles.auditing import Audit


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"costs": {"unsafe": -1.0}}, "a cost must be at least 0, got -1.0 of 'unsafe'"),
        ({"costs": {"unsafe": math.nan}}, "a cost must be at least 0, got nan of 'unsafe'"),
        ({"hacks": {"spoof": 1.5}}, r"an audit's hack score of 'spoof' must be in \[0, 1\], got 1.5"),
        ({"uncertainty": (0.5, -0.1)}, r"uncertainty after the step must be in \[0, 1\], got -0.1"),
        ({"evidence": 2.0}, r"an audit's evidence must be in \[0, 1\], got 2.0"),
        ({"entailment": math.nan}, r"an audit's entailment must be in \[0, 1\], got nan"),
        ({"beliefs": {"phase": (0.5, 0.4)}}, "a belief must be a distribution .* for the slot 'phase'"),
        ({"beliefs": {"phase": (1.5, -0.5)}}, "a belief must be a distribution .* for the slot 'phase'"),
        ({"beliefs": {"phase": ()}}, "a belief must be a distribution .* for the slot 'phase'"),
    ],
)
def test_invalid_values_of_an_audit_are_refused(values, message):
    with pytest.raises(ValueError, match=message):
        Audit(**values)


def test_an_audit_of_nothing_is_one():
    assert Audit() == Audit(kind="", costs={}, evidence=None, beliefs={})
