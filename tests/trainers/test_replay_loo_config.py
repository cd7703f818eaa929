"""The paper's settings, and layouts that cannot meet their budget."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hf_credit import ReplayLOOConfig, methods


def config(tmp_path: Path, **changed: Any) -> ReplayLOOConfig:
    base = {"output_dir": str(tmp_path), "bf16": False, "use_cpu": True, "report_to": "none"}
    return ReplayLOOConfig(**{**base, **changed})


def test_the_defaults_are_the_papers(tmp_path: Path) -> None:
    settings = config(tmp_path)
    assert (settings.budget, settings.alternatives) == (8, [2, 4])
    assert replace(settings.method(), options={}) == replace(methods.make("replay_loo"), options={})
    assert (settings.baseline, settings.match_contexts, settings.normalise_credit) == ("leave_one_out", True, False)
    assert settings.equal_steps
    assert (settings.epsilon, settings.return_clip, settings.num_train_epochs) == (0.2, 10, 5)
    assert (settings.adam_beta1, settings.adam_beta2, settings.max_grad_norm, settings.weight_decay) == (
        0.9,
        0.95,
        1,
        0,
    )
    assert (settings.lr_scheduler_type, settings.warmup_steps, settings.shuffle_dataset) == ("cosine", 0.03, False)
    assert (settings.temperature, settings.top_p, settings.top_k) == (0.7, 0.8, 20)
    assert (settings.max_context_tokens, settings.max_completion_length) == (2560, 512)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alternatives": [2, 3]}, r"the product of alternatives=\[2, 3\] = 6, got 8; "),
        ({"critic_clip": 0.0}, "clip of a critic must be above 0, got 0.0; raise it"),
    ],
)
def test_a_setting_out_of_range_is_refused_in_one_sentence(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        config(tmp_path, **settings)
