"""The shaped reward of a step, term by term."""

from __future__ import annotations

import math

import pytest

from hf_credit.credit import RewardWeights, belief_reward, harmonic_mean


def test_each_term_has_its_weight_and_hacks_are_taken_off() -> None:
    weights = RewardWeights()
    terms = {"answer": 1.0, "evidence": 0.45, "meta": 0.18, "belief": 0.25, "contribution": 0.6, "hack": -0.8}
    for name, expected in terms.items():
        assert weights.reward(**{name: 1.0}) == pytest.approx(expected)
    assert weights.reward(1.0, 1.0, 1.0, -2.0, 0.5, 1.0) == pytest.approx(1 + 0.45 + 0.18 - 0.5 + 0.3 - 0.8)


def test_evidence_counts_nothing_where_either_part_is_nothing() -> None:
    assert harmonic_mean(0.5, 1.0) == pytest.approx(2 / 3)
    assert harmonic_mean(0.0, 1.0) == harmonic_mean(1.0, 0.0) == harmonic_mean(0.0, 0.0) == 0.0


def test_a_belief_is_measured_from_what_is_implied_to_what_is_held() -> None:
    implied, held = {"phase": (0.5, 0.5)}, {"phase": (0.9, 0.1)}
    assert belief_reward(implied, held) == pytest.approx(-(0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)))
    assert belief_reward(held, implied) != pytest.approx(belief_reward(implied, held))


def test_slots_are_clipped_and_averaged_and_those_that_are_not_defined_do_not_count() -> None:
    held = {"a": (1.0, 0.0), "b": (0.5, 0.5), "c": (0.1, 0.9)}
    assert belief_reward({"a": (0.0, 1.0)}, held) == -2.0  # infinite, clipped
    assert belief_reward({"a": (0.0, 1.0), "b": (0.5, 0.5)}, held) == -1.0
    assert belief_reward({}, held) == 0.0


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"hack": -1.0}, "hack must be at least 0, got -1.0"),
        ({"meta": math.nan}, "meta must be a finite number, got nan"),
        (dict.fromkeys(RewardWeights.__dataclass_fields__, 0.0), "must not all be 0"),
    ],
)
def test_weights_out_of_range_are_refused(weights: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RewardWeights(**weights)


def test_beliefs_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="of as many values, got 3 for 2 of 'a'"):
        belief_reward({"a": (0.5, 0.5)}, {"a": (0.2, 0.3, 0.5)})
    with pytest.raises(ValueError, match=r"every implied slot must have a held belief"):
        belief_reward({"a": (0.5, 0.5)}, {})
    with pytest.raises(ValueError, match=r"an implied belief must be a distribution, got \[0.5, 0.6\] of 'a'"):
        belief_reward({"a": (0.5, 0.6)}, {"a": (0.5, 0.5)})
