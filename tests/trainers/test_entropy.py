"""The entropy bonus, also where its weight follows the entropy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

ADAPTIVE = {"use_adaptive_entropy": True, "entropy_coef": 0.3, "entropy_coef_max": 0.8, "entropy_coef_delta": 0.2}
REGION = {"trust_region": 0.1, "trust_region_top": 16, "trust_region_wide": 32}


def test_entropy_is_not_rewarded_before_it_is_measured_or_above_its_target(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    plain = one_update(micro_policy, max_steps=2)
    high = one_update(micro_policy, max_steps=2, entropy_target=0.0, **ADAPTIVE)
    low = one_update(micro_policy, max_steps=2, entropy_target=9.0, **ADAPTIVE)
    assert [one["entropy_coef"] for one in low.state.log_history[:2]] == pytest.approx([0.5, 0.7])
    assert [one["entropy_coef"] for one in high.state.log_history[:2]] == pytest.approx([0.1, 0.0])
    for name, gradient in plain.kept[1].items():
        torch.testing.assert_close(high.kept[1][name], gradient)
    assert any(not torch.allclose(low.kept[1][name], gradient) for name, gradient in plain.kept[1].items())
    for name, gradient in plain.kept[0].items():
        torch.testing.assert_close(low.kept[0][name], gradient)


def test_a_resumed_run_has_the_weight_that_the_bonus_had(one_update: Callable[..., Any], micro_policy: Path) -> None:
    steps = {"max_steps": 2, "save_strategy": "steps", "save_steps": 1, "entropy_target": 9.0}
    whole = one_update(micro_policy, **steps, **ADAPTIVE)
    checkpoint = Path(whole.args.output_dir) / "checkpoint-1"
    resumed = one_update(micro_policy, resume_from=checkpoint, **steps, **ADAPTIVE)
    assert whole.entropy.weight == resumed.entropy.weight == pytest.approx(0.7)
    assert whole.entropy.last == resumed.entropy.last


@pytest.mark.parametrize("added", [{"entropy_coef": 0.1}, REGION], ids=["entropy", "trust region"])
def test_a_resumed_run_may_have_a_term_that_the_run_before_had_not(
    one_update: Callable[..., Any], micro_policy: Path, added: dict[str, float]
) -> None:
    steps = {"save_strategy": "steps", "save_steps": 1}
    checkpoint = Path(one_update(micro_policy, max_steps=1, **steps).args.output_dir) / "checkpoint-1"
    accepted = {"resume_with_changed": ["max_steps", *added]}
    resumed = one_update(micro_policy, resume_from=checkpoint, max_steps=2, **steps, **added, **accepted)
    assert resumed.state.global_step == 2
