"""Rows that begin alike, read together, compared with the same rows by themselves: the same values at lower cost."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from launched import launch
from peft import LoraConfig, PromptTuningConfig, get_peft_model
from small_runs import SHARDED
from small_trees import random_rows
from torch import nn
from transformers import (
    AutoModelForCausalLM,
    GPT2Config,
    GPTNeoConfig,
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
from hf_credit.trainers.scores import Scores, log_probs, obstacle, pack, separate, takes_positions, why_apart

PROMPT = {"A": (5, 6, 7, 8, 9, 10), "B": (11,), "C": (5, 6, 12, 13), "D": (14,), "E": (15,)}
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


def separate_log_probs(model: Any, ids: Any, mask: Any, scored: Any, states: bool = False) -> Scores:
    return log_probs(model, model, separate(ids, mask, scored, model), scored, states)


def packed_log_probs(model: Any, ids: Any, mask: Any, scored: Any, states: bool = False) -> Scores | None:
    packed = pack(ids, mask, scored, model)
    return None if packed is None else log_probs(model, model, packed, scored, states)


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


def columns(batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    return ids, mask, batch["tool_mask"].bool()


def qwen(**changed: Any) -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(Qwen3Config(**{**SIZES, **changed}))


def test_rows_with_one_prompt_are_a_trunk_and_a_branch_for_each() -> None:
    packed = pack(*columns(rows_of(("A", (20, 21, 22)), ("A", (25,)), ("A", (20, 23)))), qwen())
    assert packed is not None
    # The token before a parting opens each branch; the last token of a row predicts nothing.
    assert packed.inputs["input_ids"].tolist() == [[5, 6, 7, 8, 9, 10, 20, 21, 20, 10]]
    assert packed.inputs["position_ids"].tolist() == [[0, 1, 2, 3, 4, 5, 6, 7, 6, 5]]
    assert packed.labels.tolist() == [[-100] * 5 + [20, 21, 22, 23, 25]]
    visible = packed.inputs["attention_mask"]
    assert visible.shape == (1, 1, 10, 10)
    assert visible[0, 0, 7].tolist() == [True] * 8 + [False] * 2
    assert visible[0, 0, 8].tolist() == [True] * 6 + [False] * 2 + [True, False]
    assert visible[0, 0, 9].tolist() == [True] * 5 + [False] * 4 + [True]
    sequence, column = packed.places
    assert sequence.tolist() == [[0]] * 3
    assert column.tolist() == [[5, 6, 7], [9, 0, 0], [5, 8, 0]]  # 0 after the end of a row


def test_rows_that_begin_alike_share_that_whatever_their_prompts() -> None:
    packed = pack(*columns(rows_of(("A", (20, 21)), ("C", (23, 24)), ("A", (20, 22)))), qwen())
    assert packed is not None
    # Prompts 5 6 7 ... and 5 6 12 13: both read 5, and what comes after 6 tells them apart.
    assert packed.inputs["input_ids"].tolist() == [[5, 6, 7, 8, 9, 10, 20, 20, 6, 12, 13, 23]]
    assert packed.inputs["position_ids"].tolist() == [[0, 1, 2, 3, 4, 5, 6, 6, 1, 2, 3, 4]]
    assert packed.inputs["attention_mask"][0, 0, 9].nonzero().flatten().tolist() == [0, 8, 9]


def test_rows_with_little_in_common_are_sequences_of_their_own() -> None:
    rows = [(prompt, (token,) * 12) for prompt in ("A", "B") for token in (20, 21)]
    packed = pack(*columns(rows_of(*rows)), qwen(hidden_size=24))  # attention to all would cost more
    assert packed is not None
    assert packed.inputs["input_ids"].tolist() == [
        [5, 6, 7, 8, 9, *[10, *[20] * 11], *[10, *[21] * 11]],
        [*[11, *[20] * 11], *[11, *[21] * 11], *[0] * 5],
    ]
    assert packed.places[0].flatten().tolist() == [0, 0, 1, 1]
    visible = packed.inputs["attention_mask"][1, 0]
    assert visible[-1].tolist() == [False] * 28 + [True]  # padding sees itself
    assert not visible[:24, 24:].any()


@pytest.mark.parametrize(
    "rows",
    [
        [("A", (20, 21))],
        [("D", (20,) * 9), ("E", (21,) * 9)],  # nothing to share, and no padding
        [("B", (20,) * 100), ("B", (21,) * 100), ("B", (22,) * 100)],  # long branches meet each other in attention
    ],
)
def test_rows_that_would_cost_more_together_stay_by_themselves(rows: Any) -> None:
    assert pack(*columns(rows_of(*rows)), qwen(hidden_size=8)) is None


def test_a_row_without_a_prompt_stays_by_itself() -> None:
    batch = rows_of(("A", (20,)), ("A", (21,)), ("A", (22,)))
    batch["prompt_mask"][1] = 0
    assert pack(*columns(batch), qwen()) is None


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(2, 8))
def test_any_rows_have_the_log_probabilities_and_gradients_of_separate_rows(seed: int, count: int) -> None:
    draws = Random(seed)
    rows = random_rows(draws, count)
    rows += draws.choices(rows, k=draws.randint(0, 2))  # some are equal
    batch = pad_rows(rows, pad_token_id=0, multiple_of=draws.choice([None, 4]))
    model = family("gpt2", "sdpa").double()  # others norm in single precision
    add_fused_lm_head(model)
    packed = packed_log_probs(model, *columns(batch), states=True)
    assume(packed is not None)
    assert packed is not None
    assert packed.states is not None
    separate = [
        model(input_ids=torch.tensor([[*row.prompt_ids, *row.completion_ids]])).logits[0, len(row.prompt_ids) - 1 : -1]
        for row in rows
    ]
    mask = batch["completion_mask"].bool()
    found = []
    for logits in (model.lm_head(packed.states[mask]), torch.cat(separate)):  # the fused head has single precision
        model.zero_grad()
        logprobs = logits.log_softmax(-1).gather(1, batch["completion_ids"][mask][:, None])[:, 0]
        (logprobs * torch.linspace(-1, 2, len(logprobs))).sum().backward()
        found.append((logprobs.detach(), [parameter.grad.clone() for parameter in model.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-10, atol=1e-10)
    scored = batch["tool_mask"].bool()
    torch.testing.assert_close(packed.logprobs[scored], found[1][0][scored[mask]].float(), rtol=1e-5, atol=1e-5)
    assert not packed.logprobs[~scored].any()


def test_with_few_bits_a_packed_row_is_as_close_to_the_truth_as_one_by_itself(mixed: dict[str, torch.Tensor]) -> None:
    model = family("llama", "sdpa")
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    truth, _ = by_themselves(model, mixed)
    model.bfloat16()
    errors = [(read(model, mixed)[0] - truth).abs().mean() for read in (by_themselves, together)]
    assert 0 < errors[1] < 1.5 * errors[0]


@pytest.mark.parametrize(
    "changed",
    [{"_attn_implementation": "flash_attention_2"}, {"layer_types": ["full_attention", "sliding_attention"]}],
)
def test_only_attention_to_everything_by_torch_itself_packs_rows(changed: dict[str, Any]) -> None:
    model = qwen(sliding_window=4, use_sliding_window=True, layer_types=["full_attention"] * 2)
    assert not obstacle(model)
    for name, value in changed.items():
        setattr(model.config, name, value)
    assert "full attention" in obstacle(model)


LOCAL = GPTNeoConfig(
    vocab_size=40, hidden_size=32, num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]],
    window_size=8, max_position_embeddings=64, attention_dropout=0.0, resid_dropout=0.0, embed_dropout=0.0,
    bos_token_id=1, eos_token_id=2,
)  # fmt: skip


def tried(model: Any) -> str:
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    return why_apart(model, model, Accelerator(cpu=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [8, 256])
def test_a_family_that_attends_by_column_is_found_by_trying(window: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    config = copy.deepcopy(LOCAL)
    config.window_size, config.max_position_embeddings = window, 8 * window
    model = AutoModelForCausalLM.from_config(config).to(dtype)
    assert obstacle(model) == ""
    assert tried(model) == "packed rows, tried once, had other hidden states than separate ones"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_families_that_pack_are_found_by_trying_once(attention: str, dtype: torch.dtype) -> None:
    for name in FAMILIES:
        model = family(name, attention).to(dtype).train()
        modes = {part: module.training for part, module in model.named_modules()}
        assert tried(model) == "", name
        assert modes == {part: module.training for part, module in model.named_modules()}
        passes: list[Any] = []
        if name == "qwen3":
            lora = LoraConfig(r=2, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
            adapted = get_peft_model(copy.deepcopy(model), lora)
            assert why_apart(adapted, adapted, Accelerator(cpu=True)) == ""
        model.register_forward_pre_hook(lambda *given, seen=passes: seen.append(given))
        assert why_apart(model, model, Accelerator(cpu=True)) == ""
        assert passes == []


def test_no_tree_is_longer_than_the_models_positions() -> None:
    rows = [("A", (token, *range(16, 36))) for token in range(20, 28)]  # 6 tokens and 8 branches of 21
    for positions, sequences in ((512, 1), (64, 4)):
        packed = pack(
            *columns(rows_of(*rows)), qwen(max_position_embeddings=positions, hidden_size=4096, num_hidden_layers=0)
        )
        assert packed is not None
        assert len(packed.labels) >= sequences
        assert packed.labels.shape[1] <= positions


def test_dropout_and_the_balance_of_experts_are_not_packed() -> None:
    opt = AutoModelForCausalLM.from_config(OPTConfig(**{**FAMILIES["opt"].to_dict(), "dropout": 0.1}))
    for model in (qwen(attention_dropout=0.1), nn_with_dropout(), opt):
        assert "dropout" in obstacle(model.train())
        assert not obstacle(model.eval())
    experts = Qwen3MoeConfig(**SIZES, moe_intermediate_size=8, num_experts=4, num_experts_per_tok=2)
    assert not obstacle(Qwen3MoeForCausalLM(experts))
    experts.output_router_logits = True
    assert "experts" in obstacle(Qwen3MoeForCausalLM(experts))


def test_virtual_tokens_leave_no_room_for_positions() -> None:
    assert takes_positions(qwen())
    assert takes_positions(nn_with_dropout())
    prompted = get_peft_model(qwen(), PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2))
    assert not takes_positions(prompted)
    assert "virtual tokens" in obstacle(prompted)


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
    logprobs, entropies, _ = separate_log_probs(model, *columns(batch))
    assert entropies is not None
    return logprobs, entropies


def together(model: Any, batch: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    found = packed_log_probs(model, *columns(batch))
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


@pytest.mark.parametrize("read", [separate_log_probs, packed_log_probs])
def test_the_head_scores_the_tokens_in_the_loss_and_no_others(mixed: dict[str, torch.Tensor], read: Any) -> None:
    mixed["tool_mask"][:, 1::2] = 0  # observations between actions
    mask, weights = mixed["tool_mask"].bool(), torch.linspace(-1, 2, mixed["tool_mask"].numel())
    model = family("llama", "sdpa").train()
    exact = copy.deepcopy(model).double()
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    labels: list[torch.Tensor] = []
    model.register_forward_pre_hook(lambda module, args, given: labels.append(given["shift_labels"]), with_kwargs=True)
    scores = read(model, *columns(mixed))
    # The first tokens of equal replies to one prompt are one column of a tree; here none are equal.
    assert sorted(labels[0].flatten().tolist()) == sorted(mixed["completion_ids"][mask].tolist())
    for values in scores[:2]:
        assert not values[~mask].any()
        assert values[mask].all()
    (weights.view_as(mask) * scores.logprobs).sum().backward()
    ids, attended = (torch.cat([mixed[f"prompt_{n}"], mixed[f"completion_{n}"]], dim=1) for n in ("ids", "mask"))
    positions = (attended.cumsum(dim=1) - 1).clamp(min=0)
    logits = exact(input_ids=ids, attention_mask=attended, position_ids=positions).logits[:, -mask.shape[1] - 1 : -1]
    logprobs = logits.log_softmax(-1).gather(2, mixed["completion_ids"][:, :, None])[:, :, 0]
    (weights.view_as(mask) * logprobs)[mask].sum().backward()
    torch.testing.assert_close(scores.logprobs[mask], logprobs[mask].float(), **TOLERANCE)
    reference = [parameter.grad for parameter in exact.parameters()]
    largest = max(value.abs().max() for value in reference)
    for parameter, value in zip(model.parameters(), reference, strict=True):
        assert (parameter.grad - value).abs().max() <= 1e-5 * value.abs().max() + 1e-6 * largest


def test_rows_without_loss_reach_every_weight_with_a_gradient_of_0(mixed: dict[str, torch.Tensor]) -> None:
    mixed["tool_mask"][:] = 0
    for read in (separate_log_probs, packed_log_probs):
        model = family("llama", "sdpa").train()
        add_fused_lm_head(model, outputs=("log_probs", "entropy"))
        read(model, *columns(mixed)).logprobs.sum().backward()
        assert all(parameter.grad is not None and not parameter.grad.any() for parameter in model.parameters())


def test_padding_before_a_prompt_moves_no_position(mixed: dict[str, torch.Tensor]) -> None:
    model = family("gpt2", "sdpa")
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    ids, mask, scored = columns(mixed)
    wider = [torch.nn.functional.pad(tensor, (7, 0)) for tensor in (ids, mask)]
    for read in (separate_log_probs, packed_log_probs):
        near, far = read(model, ids, mask, scored), read(model, *wider, scored)
        torch.testing.assert_close(far, near, **TOLERANCE)


# Through the trainer

# Tasks played four times, in one micro-batch; plain gradient descent, in which small differences stay small.
SHARING = {"plays": 4, "optim": "sgd", "warmup_steps": 0, "learning_rate": 1.0, "top_k": 0, "seed": 1}


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


def test_instructions_are_read_once_a_pass_where_every_turn_is_a_row_with_a_prompt_of_its_own(
    one_update: Callable[..., Any], micro_policy: Path
) -> None:
    seen: dict[str, list[int]] = {"together": [], "apart": []}
    for name, columns_seen in seen.items():
        one_update(
            micro_policy,
            share_prompts=name == "together",
            on_built=count_columns(columns_seen),
            **{**SHARING, "plays": 1, "instructions": True, "beta": 0.1},  # a term without advantages
        )
    assert sum(seen["together"]) < 0.6 * sum(seen["apart"])


def test_why_rows_are_not_packed_is_said_once(
    one_update: Callable[..., Any], micro_policy: Path, caplog: pytest.LogCaptureFixture
) -> None:
    adapter = LoraConfig(r=4, target_modules=["q_proj"], lora_dropout=0.1)
    one_update(micro_policy, trainer_kwargs={"peft_config": adapter}, **{**SHARING, "max_steps": 2, "beta": 0.1})
    said = [record.getMessage() for record in caplog.records if "reads each row" in record.getMessage()]
    assert said == [
        "the policy reads each row from its start, as it has dropout (of adapters lora_dropout, by default 0.05; 0 "
        "turns it off); share_prompts changes nothing."
    ]


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
