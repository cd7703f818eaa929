"""The loss of a policy that is projected into a trust region around the old policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peft import LoraConfig
from torch import Tensor, nn
from transformers import Qwen3Config

from hf_credit import CreditConfig
from hf_credit.rollouts import Decision
from hf_credit.trainers.trust_region import (
    TrustRegion,
    action_marks,
    divergence_from_old,
    new_tops,
    old_tops,
    project_tokens,
)

# Two updates of one generation, so that the second differs from the old policy.
PLAY = {"plays": 2, "optim": "sgd", "warmup_steps": 0, "learning_rate": 1.0, "top_k": 0, "seed": 1,
        "num_iterations": 2, "max_steps": 2, "lr_scheduler_type": "constant", "epsilon": 1.0, "epsilon_high": 1e9,
        "trust_region": 0.02, "trust_region_tool": 0.002, "trust_region_top": 4,
        "trust_region_wide": 8}  # fmt: skip


def region(**changed: Any) -> TrustRegion:
    return TrustRegion(**{"top": 4, "wide": 6, "coverage": 0.9, **changed})


def head(seed: int = 0, scale: float = 2.0) -> nn.Linear:
    generator = torch.Generator().manual_seed(seed)
    linear = nn.Linear(3, 10, bias=False)
    linear.weight.data = torch.randn(10, 3, generator=generator) * scale
    return linear


STATES = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, -1.0, 2.0], [0.0, 0.0, 0.01]])
SAMPLED = torch.tensor([0, 3, 7, 9])


def logprobs(policy: nn.Linear, temperature: float = 0.8) -> Tensor:
    return torch.log_softmax(policy(STATES) / temperature, dim=-1)


def projected(old: nn.Linear, new: nn.Linear, **changed: Any) -> Any:
    own = region(**changed)
    kept = old_tops(own, old, STATES, 0.8)
    tops, sums = new_tops(new, STATES, kept["region_ids"], 0.8)
    of_action = torch.zeros(4, dtype=torch.bool)
    current, before = (logprobs(policy).gather(1, SAMPLED[:, None]).squeeze(1) for policy in (new, old))
    return kept, project_tokens(own, kept, tops, sums, SAMPLED, current, before.detach(), of_action)


def test_the_top_is_as_wide_as_its_coverage_requires() -> None:
    old = head()
    kept = old_tops(region(), old, STATES, 0.8)
    sorted_ = logprobs(old).exp().sort(descending=True).values
    narrow, wide = sorted_[:, :4].sum(1), sorted_[:, :6].sum(1)
    expected = [4 if n >= 0.9 else 6 if w >= 0.9 else 0 for n, w in zip(narrow, wide, strict=True)]
    assert kept["region_size"].tolist() == expected
    assert set(expected) == {4, 6, 0}  # the last, nearly uniform, covers too little however wide
    torch.testing.assert_close(kept["region_mass"], torch.where(narrow >= 0.9, narrow, wide))


def test_at_the_old_policy_every_ratio_is_one() -> None:
    old = head()
    _, result = projected(old, old)
    before = logprobs(old).gather(1, SAMPLED[:, None]).squeeze(1)
    torch.testing.assert_close(result.logprobs, before)
    assert not result.projected.any()
    torch.testing.assert_close(result.divergence, torch.zeros(4, dtype=torch.float64), atol=1e-6, rtol=0)


def test_a_token_outside_the_top_has_a_ratio_of_one_and_no_gradient() -> None:
    old, new = head(), head(1)
    kept, result = projected(old, new)
    before = logprobs(old).gather(1, SAMPLED[:, None]).squeeze(1)
    outside = ~(kept["region_ids"] == SAMPLED[:, None]).any(1) & (kept["region_size"] > 0)
    assert result.outside.tolist() == outside.tolist()
    assert outside.any()
    assert result.logprobs[outside].tolist() == before[outside].tolist()
    result.logprobs[outside].sum().backward()
    assert new.weight.grad is None or not new.weight.grad.any()


def test_the_projected_policy_diverges_by_the_radius_over_the_whole_vocabulary() -> None:
    old, new = head(), head(1)
    own = region(coverage=0.5, radius=1.0, tool_radius=1e-4)
    kept = old_tops(own, old, STATES, 0.8)
    p = logprobs(old).exp().detach()
    for row in range(4):
        everyone = torch.arange(10)
        ids = kept["region_ids"][row : row + 1].expand(10, -1)
        one = {name: kept[name][row : row + 1].expand(10, *kept[name].shape[1:]) for name in kept}
        tops, sums = new_tops(new, STATES[row : row + 1].expand(10, -1), ids, 0.8)
        before = p[row].log().detach()
        result = project_tokens(own, one, tops, sums, everyone, before, before, torch.ones(10, dtype=torch.bool))
        q = result.logprobs.detach().exp()
        assert float(q.sum()) == pytest.approx(1.0, abs=1e-5)
        assert result.projected.all()
        assert float((p[row] * (p[row].log() - q.log())).sum()) == pytest.approx(1e-4, abs=1e-6)


def test_a_token_of_too_little_coverage_keeps_its_log_probability_and_its_divergence_is_penalised() -> None:
    old, new = head(), head(1)
    kept, result = projected(old, new)
    assert result.penalised.tolist() == (kept["region_size"] == 0).tolist()
    assert result.penalised[3]
    assert result.logprobs[3].item() == pytest.approx(logprobs(new)[3, 9].item())
    result.divergence[3].backward()
    assert new.weight.grad is not None
    assert new.weight.grad.any()


def test_the_logged_divergence_is_exact_if_the_top_is_the_vocabulary_and_else_a_lower_bound() -> None:
    old, new = head(), head(1)
    p, q = logprobs(old).detach(), logprobs(new).detach()
    whole = (p.exp() * (p - q)).sum(1).double()
    for most, close in ((10, True), (4, False)):
        kept = old_tops(region(top=most, wide=most, coverage=0.1), old, STATES, 0.8)
        found = divergence_from_old(kept, *new_tops(new, STATES, kept["region_ids"], 0.8)).detach()
        assert torch.allclose(found, whole, atol=1e-5) == close
        assert bool((found <= whole + 1e-5).all())
        assert bool((found > 0).all())


@pytest.mark.parametrize(
    ("thought", "action"),
    [
        ("I read. ", "<action>read 2</action>"),
        ("", '<tool_call>{"name": "read", "arguments": {}}</tool_call>'),
        ("<think><action>no</action></think>", "<action>cut off"),
        ("It may be ", "<function=read><parameter=page>2</parameter></function>"),
        ("", '{"name": "read", "arguments": {"page": 2}}'),
        ("", '[TOOL_CALLS]read[ARGS]{"page": 2}'),
        ("nothing", ""),
    ],
)
@pytest.mark.parametrize("opened", ["", "<think>so</think>"])
def test_tokens_of_an_action_are_marked(chat: Any, thought: str, action: str, opened: str) -> None:
    ids = chat.encode(thought + action)
    text = opened + thought + action
    decision = Decision(role="agent", state=None, context_ids=(1,), action_ids=ids, logprobs=None, action_text=text)
    marks = action_marks(decision, chat.tokenizer.decode)
    assert chat.tokenizer.decode([token for token, mark in zip(ids, marks, strict=True) if mark]) == action


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("trust_region", 0.0),
        ("trust_region_tool", -1.0),
        ("trust_region_top", 0),
        ("trust_region_wide", 8),
        ("trust_region_coverage", 0.0),
        ("trust_region_penalty", -1.0),
    ],
)
def test_a_region_out_of_range_is_refused_in_one_sentence(tmp_path: Path, name: str, value: Any) -> None:
    own = {"output_dir": str(tmp_path), "bf16": False, "use_cpu": True, "report_to": "none", "trust_region": 0.02}
    with pytest.raises(ValueError, match=rf"^{name} must be [^\n]*{value}[^\n]*$"):
        CreditConfig(**{**own, name: value})


def test_more_tokens_than_the_vocabulary_has_are_refused(one_update: Callable[..., Any], micro_policy: Path) -> None:
    with pytest.raises(ValueError, match="trust_region_top must be at most the vocabulary's"):
        one_update(micro_policy, trust_region=0.02)


@pytest.mark.parametrize(
    ("sharded", "own", "message"),
    [
        (True, {}, "trust_region needs the whole head of the policy on every process, got FSDP or DeepSpeed"),
        (False, {"final_logit_softcapping": 30.0}, "got one with final_logit_softcapping=30.0"),
        (False, {"vocab_size": 5}, "trust_region_wide must be at most the vocabulary's 5 tokens, got 6"),
    ],
)
def test_policies_that_cannot_be_projected_are_refused(sharded: bool, own: dict[str, Any], message: str) -> None:
    config = Qwen3Config(**{"vocab_size": 10, **own})
    with pytest.raises(ValueError, match=message) as refusal:
        region().require_fit(SimpleNamespace(config=config), sharded)
    assert "\n" not in str(refusal.value)


def test_the_logged_divergence_is_that_of_the_logged_step(one_update: Callable[..., Any], micro_policy: Path) -> None:
    every, rare = (one_update(micro_policy, **PLAY, logging_steps=steps).state.log_history for steps in (1, 2))
    # No mean over steps, since it costs a forward pass on each.
    assert rare[0]["step"] == every[1]["step"] == 2
    assert rare[0]["trust_region/kl"] == every[1]["trust_region/kl"] != every[0]["trust_region/kl"]
    epochs = one_update(micro_policy, **PLAY, logging_strategy="epoch").state.log_history
    assert epochs[0]["trust_region/kl"] == every[1]["trust_region/kl"]


@pytest.mark.filterwarnings("ignore:.*lora.*")
def test_dropout_is_no_divergence(one_update: Callable[..., Any], micro_policy: Path) -> None:
    adapter = LoraConfig(target_modules=["q_proj"], lora_dropout=0.5, init_lora_weights=False)
    still = PLAY | {"learning_rate": 0.0}
    logged = one_update(micro_policy, trainer_kwargs={"peft_config": adapter}, **still).state.log_history
    assert logged[0]["trust_region/kl"] == pytest.approx(0.0, abs=1e-6)


def test_no_layout_of_rows_changes_the_gradient_of_a_projected_policy(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    whole = one_update(micro_policy, **PLAY, rows_per_forward=1000, share_prompts=False)
    logged = whole.state.log_history
    assert 0 < logged[1]["trust_region/projected"] < 1
    assert logged[0]["trust_region/projected"] == 0  # at the policy that played
    assert logged[0]["trust_region/kl"] > 0.002  # after its first update
    assert {"trust_region/kl_tool", "trust_region/outside_top", "trust_region/penalised"} <= logged[1].keys()
    accumulated = {"per_device_train_batch_size": 4, "pad_to_multiple_of": 16}
    layouts: dict[str, dict[str, Any]] = {
        "prompts shared, accumulated and padded": {"rows_per_forward": 3, "share_prompts": True, **accumulated},
        "a row a pass": {"rows_per_forward": 1},
        "accumulated and padded": accumulated,
    }
    for layout, settings in layouts.items():
        cut = one_update(micro_policy, **{**PLAY, **settings})
        for found, expected in zip(cut.kept, whole.kept, strict=True):
            for key, value in expected.items():
                torch.testing.assert_close(found[key], value, rtol=1e-3, atol=1e-5, msg=f"{layout}: {key}")
        for mine, theirs in zip(cut.state.log_history[:2], logged[:2], strict=True):
            for key, value in theirs.items():
                if key.startswith(("trust_region/", "loss")):
                    assert mine[key] == pytest.approx(value, rel=1e-3, abs=1e-6), f"{layout}: {key}"


def test_the_projection_changes_the_second_update_and_not_the_first(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    whole = {**PLAY, "trust_region_top": 40, "trust_region_wide": 40}
    near = one_update(micro_policy, **whole).kept
    free = one_update(micro_policy, **{**whole, "trust_region": None, "trust_region_tool": None}).kept
    for key, value in free[0].items():
        torch.testing.assert_close(near[0][key], value, rtol=1e-3, atol=0.02 * float(value.abs().max()))
    assert any((near[1][key] - value).abs().max() > 1e-3 for key, value in free[1].items())
