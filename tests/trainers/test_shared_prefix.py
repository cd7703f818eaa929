"""Rows that share prompts, compared with the same rows separately: the same values at lower cost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from launched import launch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from small_runs import SHARDED
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    MixtralConfig,
    OPTConfig,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)
from trl.trainer.utils import add_fused_lm_head

from hf_credit.rollouts import Row
from hf_credit.rollouts.batches import pad_rows
from hf_credit.trainers.shared_prefix import (
    pack,
    separate_log_probs,
    shared_log_probs,
    shares_exactly,
    takes_positions,
)

PROMPT = {"A": (5, 6, 7, 8, 9, 10), "B": (11,), "C": (5, 6, 12, 13)}
# Single precision; sums of the same numbers in another order.
TOLERANCE = {"rtol": 1e-5, "atol": 1e-6}

SIZES = {
    "vocab_size": 40,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
}


def rows_of(*rows: tuple[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """Rows as the batch that the trainer lays out."""
    return pad_rows(
        [
            Row(
                prompt_ids=PROMPT[prompt],
                completion_ids=completion,
                loss_mask=(1,) * len(completion),
                advantages=(1.0,) * len(completion),
                logprobs=None,
            )
            for prompt, completion in rows
        ],
        pad_token_id=0,
    )


@pytest.fixture
def mixed() -> dict[str, torch.Tensor]:
    """Three rows of one prompt, two of another and one alone, in no order and of unequal lengths."""
    return rows_of(
        ("A", (20, 21, 22)), ("C", (23,)), ("A", (24, 25)), ("B", (26, 27, 28, 29)), ("C", (30, 31, 32)), ("A", (33,))
    )


def columns(batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, int]:
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    return ids, mask, batch["completion_ids"].shape[1]


def qwen(**changed: Any) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**{**SIZES, **changed}))


def test_a_prompt_is_followed_by_a_branch_for_each_of_its_rows() -> None:
    batch = rows_of(("A", (20, 21, 22)), ("C", (23, 24)), ("A", (25,)))
    packed = pack(*columns(batch), hidden_size=32)
    assert packed is not None
    # prompts A and C without their last token, which opens each branch; the last token of a row predicts nothing
    assert {tuple(sequence) for sequence in packed.inputs["input_ids"].tolist()} == {
        (5, 6, 7, 8, 9, 10, 20, 21, 10),
        (5, 6, 12, 13, 23, 0, 0, 0, 0),
    }
    a, c = packed.sequence[0, 0].item(), packed.sequence[1, 0].item()
    assert packed.sequence.tolist() == [[a], [c], [a]]
    assert packed.inputs["shift_labels"][a].tolist() == [-100] * 5 + [20, 21, 22, 25]
    assert packed.inputs["shift_labels"][c].tolist() == [-100] * 3 + [23, 24] + [-100] * 4
    # positions in the row, whatever padding stands before it
    assert packed.inputs["position_ids"][a].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 5]
    assert packed.inputs["position_ids"][c].tolist() == [0, 1, 2, 3, 4, 0, 0, 0, 0]
    visible = packed.inputs["attention_mask"]
    assert visible.shape == (2, 1, 9, 9)
    assert visible[a, 0, 7].tolist() == [True] * 8 + [False]
    assert visible[a, 0, 8].tolist() == [True] * 5 + [False] * 3 + [True]
    assert visible[c, 0, 6].tolist() == [False] * 6 + [True] + [False] * 2  # padding sees itself
    values = torch.arange(18.0).view(2, 9)
    assert packed.unpack(values).tolist() == [
        [values[a, 5], values[a, 6], values[a, 7]],
        [values[c, 3], values[c, 4], 0],
        [values[a, 8], 0, 0],
    ]


@pytest.mark.parametrize(
    "rows",
    [
        [("A", (20, 21)), ("B", (22,)), ("C", (23, 24))],  # nothing to share
        [("A", (20, 21))],
        [("B", (20,) * 100), ("B", (21,) * 100), ("B", (22,) * 100)],  # long branches meet each other in attention
    ],
)
def test_rows_that_would_cost_more_together_stay_by_themselves(rows: Any) -> None:
    assert pack(*columns(rows_of(*rows)), hidden_size=8) is None


def test_a_row_without_a_prompt_stays_by_itself() -> None:
    batch = rows_of(("A", (20,)), ("A", (21,)), ("A", (22,)))
    batch["prompt_mask"][1] = 0
    assert pack(*columns(batch), hidden_size=32) is None


@pytest.mark.parametrize(
    "changed",
    [{"_attn_implementation": "flash_attention_2"}, {"layer_types": ["full_attention", "sliding_attention"]}],
)
def test_only_attention_to_everything_by_torch_itself_shares_prompts(changed: dict[str, Any]) -> None:
    model = qwen(sliding_window=4, use_sliding_window=True, layer_types=["full_attention"] * 2)
    assert shares_exactly(model)
    for name, value in changed.items():
        setattr(model.config, name, value)
    assert not shares_exactly(model)


def test_dropout_and_the_balance_of_experts_are_not_shared() -> None:
    for model in (qwen(attention_dropout=0.1), nn_with_dropout()):
        assert not shares_exactly(model.train())
        assert shares_exactly(model.eval())
    experts = Qwen3MoeConfig(**SIZES, moe_intermediate_size=8, num_experts=4, num_experts_per_tok=2)
    assert shares_exactly(Qwen3MoeForCausalLM(experts))
    experts.output_router_logits = True
    assert not shares_exactly(Qwen3MoeForCausalLM(experts))


def nn_with_dropout() -> Any:
    lora = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM", lora_dropout=0.1)
    model = get_peft_model(qwen(), lora)
    assert any(isinstance(part, nn.Dropout) for part in model.modules())
    return model


def by_themselves(model: Any, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row in a separate pass, without padding."""
    found = torch.zeros(2, *batch["completion_ids"].shape)
    for row in range(len(found[0])):
        prompt = batch["prompt_ids"][row][batch["prompt_mask"][row].bool()]
        completion = batch["completion_ids"][row][batch["completion_mask"][row].bool()]
        ids = torch.cat([prompt, completion])[None]
        labels = ids.clone()
        labels[:, : len(prompt)] = -100
        output = model(input_ids=ids, labels=labels, fused_lm_head=True)
        alone = torch.stack([output.log_probs[0, -len(completion) :], output.entropy[0, -len(completion) :]])
        found[:, row, : len(completion)] = alone
    return found[0], found[1]


def padded(model: Any, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    logprobs, entropies, _ = separate_log_probs(model, model, *columns(batch))
    assert entropies is not None
    return logprobs, entropies


def together(model: Any, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    found = shared_log_probs(model, model, *columns(batch))
    assert found is not None
    assert found[1] is not None
    return found[0], found[1]


EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
# GPT-2 and OPT look positions up, so they must be the very same, not only as far apart.
FAMILIES: dict[str, Any] = {
    "llama": LlamaConfig(**SIZES),
    "qwen3": Qwen3Config(**SIZES),
    "opt": OPTConfig(
        vocab_size=40, hidden_size=32, ffn_dim=64, num_hidden_layers=2, num_attention_heads=2, word_embed_proj_dim=32,
        dropout=0.0,
    ),
    "gpt2": GPT2Config(
        vocab_size=40, n_embd=32, n_layer=2, n_head=2, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0,
        bos_token_id=1, eos_token_id=2,
    ),
    "gpt neox": GPTNeoXConfig(
        vocab_size=40, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2
    ),
    "qwen3 with experts": Qwen3MoeConfig(**SIZES, **EXPERTS, num_experts=4),
    "mixtral": MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2, sliding_window=None),
}  # fmt: skip


def family(name: str, attention: str) -> Any:
    """A model with weights large enough that its positions matter."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(FAMILIES[name], attn_implementation=attention)
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return model


@pytest.mark.parametrize("way", ["padded", "together"])
@pytest.mark.parametrize(
    ("name", "attention", "adapter"),
    [*((name, "sdpa", False) for name in FAMILIES), ("qwen3", "eager", False), ("gpt2", "eager", False),
     ("qwen3", "sdpa", True)],
)  # fmt: skip
def test_log_probabilities_entropies_and_gradients_are_those_of_the_rows_by_themselves(
    mixed: dict[str, torch.Tensor], name: str, attention: str, adapter: bool, way: str
) -> None:
    model = family(name, attention).train()
    add_fused_lm_head(model, temperature=0.7, outputs=("log_probs", "entropy"))
    if adapter:
        lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
        model = get_peft_model(model, lora)
    found = []
    for read in (by_themselves, {"padded": padded, "together": together}[way]):
        model.zero_grad()
        logprobs, entropies = read(model, mixed)
        (torch.linspace(-1, 2, logprobs.numel()).view_as(logprobs) * logprobs).sum().backward()
        gradient = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        found.append((logprobs.detach(), entropies.detach(), gradient))
    (logprobs, entropies, gradient), (own_logprobs, own_entropies, own_gradient) = found
    torch.testing.assert_close(own_logprobs, logprobs, **TOLERANCE)
    torch.testing.assert_close(own_entropies, entropies, **TOLERANCE)
    assert own_gradient.keys() == gradient.keys()
    largest = max(value.abs().max() for value in gradient.values())
    for name, value in gradient.items():
        assert (own_gradient[name] - value).abs().max() <= 1e-5 * value.abs().max() + 1e-6 * largest, name


def test_padding_before_a_prompt_moves_no_position(mixed: dict[str, torch.Tensor]) -> None:
    model = family("gpt2", "sdpa")
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    ids, mask, completion_tokens = columns(mixed)
    wider = [torch.nn.functional.pad(tensor, (7, 0)) for tensor in (ids, mask)]
    for read in (separate_log_probs, shared_log_probs):
        near, far = read(model, model, ids, mask, completion_tokens), read(model, model, *wider, completion_tokens)
        torch.testing.assert_close(far, near, **TOLERANCE)


def test_virtual_tokens_leave_no_room_for_positions() -> None:
    assert takes_positions(qwen())
    assert takes_positions(nn_with_dropout())
    prompted = get_peft_model(qwen(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
    assert not takes_positions(prompted)


# Through the trainer

# Tasks played four times, in one micro-batch; plain gradient descent, in which small differences stay small.
SHARING = {"num_generations": 4, "optim": "sgd", "warmup_steps": 0, "learning_rate": 1.0, "top_k": 0, "seed": 1}


def count_columns(seen: list[int]) -> Callable[[Any], None]:
    """Records the columns of each training pass."""

    def watch(trainer: Any) -> None:
        def count(module: Any, args: Any, kwargs: Any) -> None:
            if torch.is_grad_enabled():
                seen.append(kwargs["input_ids"].numel())

        inner = trainer.model.get_base_model() if hasattr(trainer.model, "get_base_model") else trainer.model
        inner.base_model.register_forward_pre_hook(count, with_kwargs=True)

    return watch


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"gradient_checkpointing": True, "beta": 0.1},
        {"rows_per_forward": 4, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4},
        {"trainer_kwargs": {"peft_config": LoraConfig(r=4, target_modules=["q_proj", "v_proj"])}, "beta": 0.1},
    ],
    ids=["plain", "with checkpointing and a reference", "more rows a pass than tasks", "with an adapter"],
)
def test_an_update_is_the_same_with_prompts_shared_and_not(
    one_update: Callable[..., Any], micro_policy: Path, changed: dict[str, Any]
) -> None:
    trained, seen = {}, {}
    for share in (False, True):
        seen[share] = []
        trained[share] = one_update(
            micro_policy, share_prompts=share, on_built=count_columns(seen[share]), **SHARING, **changed
        )
    assert sum(seen[True]) < 0.9 * sum(seen[False])
    before = AutoModelForCausalLM.from_pretrained(micro_policy).state_dict()
    shared = trained[True].model.state_dict()
    for name, value in trained[False].model.state_dict().items():
        torch.testing.assert_close(shared[name], value, rtol=1e-5, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}")
    moved = [name for name, value in trained[False].kept[0].items() if value.abs().max() > 1e-3]
    assert moved
    assert changed or any(not torch.allclose(shared[name], before[name], atol=1e-3) for name in moved)
    for name in ("loss", "entropy", "grad_norm"):
        values = [trained[share].state.log_history[0][name] for share in (False, True)]
        assert values[1] == pytest.approx(values[0], rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("environment", [{}, SHARDED], ids=["replicated", "sharded by FSDP2"])
def test_two_processes_that_share_prompts_give_the_gradient_of_one_that_does_not(
    one_update: Callable[..., Any],
    one_update_script: Path,
    micro_policy: Path,
    tmp_path: Path,
    environment: dict[str, str],
) -> None:
    output = tmp_path / "two"
    output.mkdir()
    greedy = {**SHARING, "top_k": 1}
    settings = json.dumps(greedy | {"per_device_train_batch_size": 4})
    variables = {"ACCELERATE_USE_CPU": "true", **environment}
    launch(one_update_script, micro_policy, output, settings, processes=2, folder=output, environment=variables)
    two = torch.load(output / "update.pt")
    assert two["processes"] == 2
    for name, value in one_update(micro_policy, share_prompts=False, **greedy).kept[0].items():
        torch.testing.assert_close(two["gradient"][name], value, rtol=1e-3, atol=1e-6)
