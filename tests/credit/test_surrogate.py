"""Importance ratios and the clipped surrogate against numbers worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from hf_credit.credit import clipped_surrogate, next_entropy_coefficient, reference_divergence, sampling_ratio

NAN = math.nan
MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")

# Ratios of 2, 4, 1/4 and, off the mask, 1000.
SAMPLING = torch.zeros(1, 4, dtype=torch.float64)
POLICY = torch.tensor([[2.0, 4.0, 0.25, 1000.0]], dtype=torch.float64).log()
MASK = torch.tensor([[1, 1, 1, 0]])


@pytest.mark.parametrize(
    ("mode", "clip_min", "clip_max", "expected"),
    [
        ("token_truncate", None, 3.0, [2, 3, 0.25, 1]),
        ("token_truncate", 0.5, 3.0, [2, 3, 0.5, 1]),
        ("token_truncate", None, None, [2, 4, 0.25, 1]),
        ("token_mask", None, 3.0, [2, 0, 0.25, 1]),
        ("token_mask", 0.5, 3.0, [2, 0, 0, 1]),
        ("token_mask", 0.5, None, [2, 4, 0, 1]),
        ("sequence_truncate", None, 3.0, [2]),
        ("sequence_truncate", None, 1.5, [1.5]),
        ("sequence_truncate", 2.5, None, [2.5]),
        ("sequence_mask", None, 3.0, [2]),
        ("sequence_mask", None, 1.5, [0]),
        ("sequence_mask", 2.5, None, [0]),
    ],
)
def test_ratios_by_hand(mode, clip_min, clip_max, expected):
    result = sampling_ratio(POLICY, SAMPLING, MASK, mode, clip_min, clip_max)
    torch.testing.assert_close(result, torch.tensor([expected], dtype=torch.float64))


def test_the_default_truncates_each_token_at_three():
    torch.testing.assert_close(
        sampling_ratio(POLICY, SAMPLING, MASK), torch.tensor([[2.0, 3.0, 0.25, 1.0]], dtype=torch.float64)
    )


@pytest.mark.parametrize("bound", [2.0, 0.25])
def test_a_ratio_on_a_bound_is_kept(bound):
    result = sampling_ratio(torch.tensor([[bound]]).log(), torch.zeros(1, 1), torch.ones(1, 1).int(), "token_mask")
    assert result.item() == pytest.approx(bound)


@pytest.mark.parametrize("mode", MODES)
def test_where_the_sampler_reported_nothing_the_ratio_is_one(mode):
    policy, sampling = torch.tensor([[-1.0, -2.0]]), torch.tensor([[NAN, NAN]])
    result = sampling_ratio(policy, sampling, torch.ones(1, 2).int(), mode)
    assert result.tolist() == ([[1.0]] if mode.startswith("sequence") else [[1.0, 1.0]])


@pytest.mark.parametrize("mode", MODES)
def test_a_token_without_report_leaves_the_others_as_they_are(mode):
    policy, sampling = torch.tensor([[math.log(2), -5.0]]), torch.tensor([[0.0, NAN]])
    result = sampling_ratio(policy, sampling, torch.ones(1, 2).int(), mode)
    torch.testing.assert_close(result, torch.tensor([[2.0]] if mode.startswith("sequence") else [[2.0, 1.0]]))


@pytest.mark.parametrize("mode", MODES)
def test_what_lies_off_the_mask_does_not_count(mode):
    policy, sampling = torch.tensor([[NAN, -0.5, 1e9]]), torch.tensor([[0.0, -0.5, -1e9]])
    assert (sampling_ratio(policy, sampling, torch.tensor([[0, 1, 0]]), mode) == 1).all()


@pytest.mark.parametrize(("mode", "expected"), [("token_truncate", 3.0), ("token_mask", 0.0)])
def test_a_token_that_the_sampler_held_impossible_stays_within_the_bounds(mode, expected):
    result = sampling_ratio(torch.tensor([[-1.0]]), torch.tensor([[-math.inf]]), torch.ones(1, 1).int(), mode)
    assert result.item() == expected


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=5), st.sampled_from(MODES))
def test_the_same_probabilities_have_ratio_one(logprobs, mode):
    row = torch.tensor([logprobs])
    assert (sampling_ratio(row, row, torch.ones(1, len(logprobs)).int(), mode) == 1).all()


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.booleans()), min_size=1, max_size=5))
def test_the_ratio_of_a_row_is_the_product_of_those_of_its_tokens(tokens):
    policy, sampling, mask = (torch.tensor([column]) for column in zip(*tokens, strict=True))
    of_tokens = sampling_ratio(policy, sampling, mask.int(), "token_truncate", None, None)
    of_row = sampling_ratio(policy, sampling, mask.int(), "sequence_truncate", None, None)
    assert of_row.item() == pytest.approx(math.prod(of_tokens[0].tolist()), rel=1e-4)


@pytest.mark.parametrize("mode", ["token", "truncate", "token_clip", "word_mask", "", "sequence_mask_"])
def test_an_unknown_mode_is_refused(mode):
    with pytest.raises(ValueError, match=r"mode must be one of token_truncate.*, got .*; (did you mean|pick one)"):
        sampling_ratio(POLICY, SAMPLING, MASK, mode)


ONE = torch.tensor([[1]])


def number(value: float) -> torch.Tensor:
    return torch.tensor([[value]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "low", "high"),
    [
        (1.1, 2.0, -2.2, False, False),
        (1.5, 2.0, -2.4, False, True),  # above 1.2
        (1.5, 0.5, -0.6, False, True),
        (0.9, 2.0, -1.8, False, False),
        (1.5, -2.0, 3.0, False, False),  # the worse of the two
        (0.5, -2.0, 1.6, True, False),  # below 0.8
        (0.5, 2.0, -1.0, False, False),
        (9.0, -2.0, 6.0, False, False),  # bounded by delta
    ],
)
def test_a_token_by_hand(ratio: float, advantage: float, loss: float, low: bool, high: bool) -> None:
    found = clipped_surrogate(number(math.log(ratio)), number(0.0), number(advantage), ONE, delta=3.0)
    assert (found.losses.item(), found.ratio.item()) == pytest.approx((loss, ratio))
    assert (found.clipped_low.item(), found.clipped_high.item()) == (low, high)


@pytest.mark.parametrize("loss_type", ["dapo", "cispo"])
@pytest.mark.parametrize(
    ("ratio", "advantage", "low", "high"),
    [
        *((1.0, 2.0, 0.0, None), (1.0, -2.0, 0.0, None), (4.0, 0.0, 0.2, 0.2), (0.5, 0.0, 0.2, 0.2)),
        *((4.0, -2.0, 0.2, 0.2), (1.1, -2.0, 0.2, 0.2)),
    ],
)
def test_a_ratio_at_a_bound_or_without_effect_is_not_counted_as_clipped(
    loss_type: str, ratio: float, advantage: float, low: float, high: float | None
) -> None:
    bounds = {"epsilon_low": low, "epsilon_high": float(loss_type == "cispo") if high is None else high}
    logprobs = number(math.log(ratio))
    found = clipped_surrogate(logprobs, number(0.0), number(advantage), ONE, **bounds, loss_type=loss_type)
    assert not found.clipped_low.any()
    assert not found.clipped_high.any()


def test_cispo_bounds_the_weight_and_keeps_the_gradient() -> None:
    logprobs = number(math.log(0.4)).requires_grad_()
    found = clipped_surrogate(logprobs, number(math.log(0.1)), number(0.5), ONE, epsilon_high=3.0, loss_type="cispo")
    found.losses.sum().backward()
    assert found.losses.item() == pytest.approx(-3.0 * 0.5 * math.log(0.4))
    assert logprobs.grad is not None
    assert logprobs.grad.item() == pytest.approx(-1.5)
    assert (found.clipped_low.item(), found.clipped_high.item()) == (False, True)


def test_the_ratio_of_a_sequence_is_the_geometric_mean_over_its_tokens() -> None:
    logprobs = torch.tensor([[2.0, 8.0, 1000.0]], dtype=torch.float64).log()
    found = clipped_surrogate(logprobs, 0 * logprobs, 0 * logprobs + 1, torch.tensor([[1, 1, 0]]), level="sequence")
    assert found.ratio.tolist() == [[pytest.approx(4.0)]]
    assert found.losses.tolist() == [[pytest.approx(-1.2)] * 3]
    alone = clipped_surrogate(number(0.5), number(0.0), number(1.0), ONE, level="sequence")
    assert alone.ratio.item() == pytest.approx(math.exp(0.5))


@pytest.mark.parametrize("change", [{"level": "turn"}, {"loss_type": "grpo"}])
def test_an_unknown_name_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(change))} must be .* got '{next(iter(change.values()))}'"):
        clipped_surrogate(number(0.0), number(0.0), number(1.0), ONE, **change)


@given(st.floats(-3, 3), st.floats(-3, 3))
def test_the_divergence_from_the_reference_is_never_negative(first: float, second: float) -> None:
    assert reference_divergence(number(first), number(second)).item() >= 0


def test_the_divergence_from_the_reference_by_hand() -> None:
    logprobs, reference = number(math.log(0.5)), number(math.log(0.25))
    assert reference_divergence(logprobs, reference).item() == pytest.approx(0.5 + math.log(2) - 1)
    weighed = reference_divergence(logprobs, reference, number(3.0))
    assert weighed.item() == pytest.approx(3 * (0.5 + math.log(2) - 1))


def test_the_entropy_coefficient_moves_by_steps_between_its_ends() -> None:
    settings = {"target": 1.0, "step": 0.2, "low": 0.1, "high": 0.5}
    assert next_entropy_coefficient(0.2, 1.0, **settings) == pytest.approx(0.4)
    assert next_entropy_coefficient(0.4, 0.9, **settings) == 0.5
    assert next_entropy_coefficient(0.4, 1.1, **settings) == pytest.approx(0.2)
    assert next_entropy_coefficient(0.2, 1.1, **settings) == 0.1


SETTINGS: list[dict[str, Any]] = [
    {},
    {"epsilon": 0.05, "epsilon_high": 0.4},
    {"delta": 1.3},
    {"importance_sampling_level": "sequence", "epsilon": 0.01},
    {"loss_type": "cispo", "epsilon_high": 1.1},
    {"loss_type": "cispo", "epsilon_high": 1.1, "importance_sampling_level": "sequence"},
    {"beta": 0.3},
    {"beta": 0.3, "use_bias_correction_kl": True},
    {"beta": 0.3, "use_bias_correction_kl": True, "importance_sampling_level": "sequence"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_loss_of_rows_and_its_gradient_are_trls(
    micro_policy: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    args = GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none", **settings)
    tokenizer = AutoTokenizer.from_pretrained(micro_policy)
    model = AutoModelForCausalLM.from_pretrained(micro_policy)
    tasks = Dataset.from_dict({"prompt": ["a"] * 8})
    trainer: Any = GRPOTrainer(model, lambda completions, **_: [0.0] * len(completions), args, tasks,
                               processing_class=tokenizer)  # fmt: skip
    trainer.current_gradient_accumulation_steps = args.steps_per_generation
    random = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 20, (3, 6), generator=random)
    mask = torch.tensor([[1, 1, 1, 1], [1, 0, 1, 0], [1, 1, 0, 0]])
    rows = {
        "prompt_ids": ids[:, :2], "prompt_mask": torch.ones_like(ids[:, :2]),
        "completion_ids": ids[:, 2:], "completion_mask": torch.ones_like(mask), "tool_mask": mask,
        "advantages": torch.randn(3, 4, generator=random), "num_items_in_batch": mask.sum(),
    }  # fmt: skip
    logprobs, _, _ = trainer._get_per_token_logps_and_entropies(model, ids, torch.ones_like(ids), 4)
    noise = torch.randn(2, 3, 4, generator=random) * 0.3
    rows["old_per_token_logps"], rows["ref_per_token_logps"] = (logprobs.detach() + one for one in noise)
    expected = trainer._compute_loss(model, rows)

    terms = clipped_surrogate(
        logprobs, rows["old_per_token_logps"], rows["advantages"], mask, epsilon_low=trainer.epsilon_low,
        epsilon_high=trainer.epsilon_high, delta=args.delta, level=args.importance_sampling_level,
        loss_type=args.loss_type,
    )  # fmt: skip
    losses = terms.losses
    if args.beta:
        ratio = terms.ratio if args.use_bias_correction_kl else None
        losses = losses + args.beta * reference_divergence(logprobs, rows["ref_per_token_logps"], ratio)
    found = (losses * mask).sum() / mask.sum()

    torch.testing.assert_close(found, expected)
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    for own, other in zip(torch.autograd.grad(found, list(model.parameters())), wanted, strict=True):
        torch.testing.assert_close(own, other)
    logged = {
        name: values for name, (values,) in trainer._metrics["train"].items() if "mean" in name or "cispo" in name
    }
    flags = {"clip_ratio/low_mean": terms.clipped_low, "clip_ratio/high_mean": terms.clipped_high,
             "clip_ratio/region_mean": terms.clipped_low | terms.clipped_high,
             "cispo_clip_ratio": terms.clipped_high}  # fmt: skip
    assert logged == {name: pytest.approx(((flags[name] * mask).sum() / mask.sum()).item()) for name in logged}
