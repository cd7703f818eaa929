"""Every setting of TRL is used, is the same for every layout of rows, or is refused by name."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPTNeoConfig, Qwen3MoeConfig
from trl import GRPOConfig, SFTConfig
from trl.experimental.async_grpo import AsyncGRPOConfig

from hf_credit import AsyncCreditConfig
from hf_credit.trainers.config import CreditConfig
from hf_credit.trainers.trl_settings import UNUSED, refuse_unused


def credit_alike(trainer: Any) -> None:
    """Gives every decision a credit other than 0, in place of one that depends on how well the policy plays."""
    trainer.credit = lambda collected: {
        one.id: float(len(episode.decisions[0].context_ids) % 3 - 1.5)
        for episode in collected.episodes
        for one in episode.decisions
    }


# Each with settings under which it matters. Plain descent at a high rate, so that the policy of the second update is
# far from the old policy.
VARIED: dict[str, dict[str, Any]] = {
    "beta": {"beta": 0.2},
    "use_bias_correction_kl": {"beta": 0.2, "use_bias_correction_kl": True},
    "sync_ref_model": {
        "beta": 0.2, "sync_ref_model": True, "ref_model_sync_steps": 1, "ref_model_mixup_alpha": 0.5,
        "num_iterations": 1, "top_k": 1,  # played twice, and as many numbers are not drawn in between in every layout
        "on_built": credit_alike,  # replies of a group are equal
    },
    "epsilon": {"epsilon": 0.01},
    "epsilon_high": {"epsilon_high": 0.01},
    "delta": {"delta": 1.01},
    "loss_type": {"loss_type": "cispo", "epsilon_high": 1.01},
    "entropy_coef": {"entropy_coef": 0.5},
    "use_adaptive_entropy": {
        "use_adaptive_entropy": True, "entropy_coef": 0.3, "entropy_coef_min": 0.1, "entropy_coef_max": 2.0,
        "entropy_coef_delta": 0.2, "entropy_target": 9.0,
    },
    "mask_truncated_completions": {"mask_truncated_completions": True, "max_completion_length": 7, "temperature": 1.5},
    "temperature": {"temperature": 0.7},
    "steps_per_generation": {"instances_per_update": None, "steps_per_generation": 2, "num_iterations": 1,
                             "per_device_train_batch_size": 4},
    "gradient_checkpointing": {"gradient_checkpointing": True},
    "pad_to_multiple_of": {"pad_to_multiple_of": 64},
    "cast_lm_head_to_fp32": {"cast_lm_head_to_fp32": True},
}  # fmt: skip
# These are to change nothing.
WITHOUT_EFFECT = {"gradient_checkpointing", "pad_to_multiple_of", "cast_lm_head_to_fp32"}
# Parts of another setting above.
WITH_ANOTHER = {
    "entropy_coef_min", "entropy_coef_max", "entropy_coef_delta", "entropy_target", "num_iterations",
    "ref_model_mixup_alpha", "ref_model_sync_steps", "activation_checkpointing", "activation_checkpointing_kwargs",
    "gradient_checkpointing_kwargs", "max_completion_length",
}  # fmt: skip
# Of episodes that are one row each; tests/trainers/test_truncated_ppo.py varies it.
OF_WHOLE_EPISODES = {"importance_sampling_level"}
# They are the layout.
LAYOUT = {"per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"}
# Numbers are drawn, or are less exact, in each forward pass: no two passes are comparable to the last digit.
INEXACT = {"disable_dropout", "bf16", "fp16", "bf16_full_eval", "fp16_full_eval", "tf32", "torch_compile",
           "torch_compile_backend", "torch_compile_mode", "use_liger_kernel", "liger_kernel_config"}  # fmt: skip
# Of vLLM; the weights of tokens are computed for a whole batch, before it is cut.
VLLM = {"vllm_importance_sampling_correction", "vllm_importance_sampling_mode", "vllm_importance_sampling_clip_max",
        "vllm_importance_sampling_clip_min", "vllm_importance_sampling_cap"}  # fmt: skip
# What is played and with which model, what becomes of the gradient, what is logged, saved and computed where.
OF_TRANSFORMERS = {
    # the gradient's use
    "num_train_epochs", "max_steps", "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps",
    "optim", "optim_args", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "optim_target_modules",
    "max_grad_norm",
    # logging
    "logging_strategy", "logging_steps", "logging_first_step", "log_on_each_node", "logging_nan_inf_filter",
    "include_num_input_tokens_seen", "log_level", "log_level_replica", "disable_tqdm", "report_to", "run_name",
    "project", "trackio_space_id", "trackio_bucket_id", "trackio_static_space_id", "debug", "skip_memory_metrics",
    # evaluation; there are no predictions but the loss, and a training is what is done
    "eval_strategy", "eval_steps", "eval_delay", "eval_on_start", "prediction_loss_only", "do_train", "do_eval",
    # saving
    "output_dir", "save_only_model", "save_strategy", "save_steps", "save_total_limit",
    "push_to_hub", "hub_token", "hub_private_repo", "hub_model_id", "hub_strategy",
    "hub_always_push", "load_best_model_at_end", "metric_for_best_model", "greater_is_better",
    "restore_callback_states_from_checkpoint", "resume_from_checkpoint",
    # the machine
    "torch_empty_cache_steps", "full_determinism", "seed", "use_cpu", "accelerator_config", "parallelism_config",
    "ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_static_graph", "ddp_backend",
    "ddp_timeout", "fsdp", "fsdp_config", "deepspeed", "local_rank", "use_cache",
}  # fmt: skip
LOADED = {
    "ignore_data_skip", "dataloader_drop_last", "dataloader_num_workers", "dataloader_pin_memory",
    "dataloader_persistent_workers", "dataloader_prefetch_factor", "dataloader_multiprocessing_context",
    "dataloader_in_order",
}  # fmt: skip
NOT_THE_LOSS = OF_TRANSFORMERS | LOADED | {
    "model_init_kwargs", "trust_remote_code", "num_generations_eval", "ds3_gather_for_generation", "shuffle_dataset",
    "generation_batch_size", "top_p", "top_k", "min_p", "chat_template_kwargs",
    "repetition_penalty", "cache_implementation", "use_vllm", "vllm_mode", "vllm_model_impl",
    "vllm_enable_sleep_mode", "vllm_structured_outputs_regex", "vllm_server_base_url", "vllm_server_host",
    "vllm_server_port", "vllm_server_timeout", "vllm_group_port", "vllm_gpu_memory_utilization",
    "vllm_max_model_length", "vllm_tensor_parallel_size", "use_transformers_continuous_batching",
    "transformers_continuous_batching_config", "use_transformers_paged", "log_completions", "log_unique_prompts",
    "num_completions_to_print", "log_completions_hub_repo",
    "log_multimodal",  # there is nothing but texts
}  # fmt: skip
SYNCHRONOUS = [set(VARIED), WITH_ANOTHER, OF_WHOLE_EPISODES, LAYOUT, INEXACT, VLLM, NOT_THE_LOSS]
ASYNCHRONOUS = OF_TRANSFORMERS | WITH_ANOTHER | INEXACT | {
    "per_device_train_batch_size", "gradient_accumulation_steps", "gradient_checkpointing", "epsilon", "epsilon_high",
    "model_init_kwargs", "trust_remote_code", "dtype", "chat_template_kwargs", "top_p", "top_k",
    "min_p", "repetition_penalty", "log_completions", "num_completions_to_print", "vllm_server_base_url",
    "vllm_server_timeout", "request_timeout", "weight_sync_timeout", "weight_sync_steps", "token_budget",
    "max_staleness", "heartbeat_stale_after_s",
    "remove_unused_columns",  # none is removed
    "dataloader_pin_memory",  # which transformers sets on a CPU
}  # fmt: skip
WARM_UP = OF_TRANSFORMERS | LOADED | WITH_ANOTHER | INEXACT | LAYOUT | {
    "auto_find_batch_size", "average_tokens_across_devices", "data_seed", "gradient_checkpointing",
    "activation_offloading", "label_names", "label_smoothing_factor", "length_column_name", "loss_type", "max_length",
    "model_init_kwargs", "neftune_noise_alpha", "pad_to_multiple_of", "pad_token", "router_aux_loss_coef",
    "train_sampling_strategy", "trust_remote_code",
    "remove_unused_columns",  # none is removed
    "enable_jit_checkpoint",
}  # fmt: skip
# A value other than the default, where it is no number, switch or text.
OTHERS: dict[str, Any] = {
    "scale_rewards": "none", "label_names": ["labels"], "include_for_metrics": ["loss"], "dataset_kwargs": {"a": 1},
    "train_sampling_strategy": "sequential", "multi_objective_aggregation": "normalize_then_sum",
    "remove_unused_columns": True, "reward_weights": [1.0], "packing_strategy": "wrapped",
    "truncation_mode": "keep_end", "loss_type": "dft",
}  # fmt: skip


# Four rows of a prompt; what is drawn is the same in every layout.
PLAY = {"plays": 4, "optim": "sgd", "warmup_steps": 0, "learning_rate": 1.0, "top_k": 0, "seed": 3,
        "num_iterations": 2, "max_steps": 2, "lr_scheduler_type": "constant"}  # fmt: skip
LAYOUTS: dict[str, dict[str, Any]] = {
    "a row a pass": {"rows_per_forward": 1},
    "three rows a pass": {"rows_per_forward": 3, "share_prompts": True},
    "accumulated": {"per_device_train_batch_size": 2, "rows_per_forward": 3, "share_prompts": False},
}
WHOLE = {"rows_per_forward": 1000, "share_prompts": False}
# Means over tokens and other numbers of the loss that are logged.
LOGGED = ("loss", "entropy", "kl", "policy_loss", "entropy_coef", "cispo_clip_ratio", "clip_ratio/low_mean",
          "clip_ratio/low_min", "clip_ratio/high_mean", "clip_ratio/high_max", "clip_ratio/region_mean")  # fmt: skip


def unused(where: str) -> set[str]:
    return {name for places, names, _ in UNUSED if where in places for name in names.split()}


@pytest.mark.parametrize(
    ("where", "config", "used"),
    [
        ("synchronous", GRPOConfig, set.union(*SYNCHRONOUS)),
        ("asynchronous", AsyncGRPOConfig, ASYNCHRONOUS),
        ("warm-up", SFTConfig, WARM_UP),
    ],
)
def test_every_setting_of_trl_is_used_or_refused_by_name(where: str, config: Any, used: set[str]) -> None:
    fields = {field.name for field in dataclasses.fields(config)}
    assert fields - used - unused(where) == set(), "new settings of TRL: find out what they do here, and list them"
    assert used & unused(where) == set()
    if where == "synchronous":
        newer = {"activation_checkpointing", "activation_checkpointing_kwargs", "dataloader_multiprocessing_context",
                 "dataloader_in_order"}  # fmt: skip
        assert used - fields - newer == set(), "settings that TRL has no more"
        assert sum(map(len, SYNCHRONOUS)) == len(used)


def test_every_row_of_the_table_is_of_a_setting() -> None:
    fields = {
        field.name for config in (GRPOConfig, AsyncGRPOConfig, SFTConfig) for field in dataclasses.fields(config)
    }
    assert {name for _, names, _ in UNUSED for name in names.split()} - fields <= {
        "dataloader_multiprocessing_context"
    }


ON_A_CPU: dict[str, Any] = {"bf16": False, "use_cpu": True, "report_to": "none"}


def other_than_default(config: Any, name: str) -> Any:
    field = next(field for field in dataclasses.fields(config) if field.name == name)
    return OTHERS.get(name, not field.default if isinstance(field.default, bool) else 5)


@pytest.mark.parametrize(
    ("where", "config", "name"),
    [
        (where, config, name)
        for where, config in (("synchronous", CreditConfig), ("asynchronous", AsyncCreditConfig))
        for name in sorted(unused(where) & {field.name for field in dataclasses.fields(config)})
    ],
)
def test_what_has_no_effect_is_refused_in_one_sentence_with_a_remedy(
    tmp_path: Path, where: str, config: Any, name: str
) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got .*: .*; .*\.$") as refusal:
        config(output_dir=str(tmp_path), **ON_A_CPU, **{name: other_than_default(config, name)})
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("where", "name"), [(where, name) for where in ("warm-up", "shares") for name in sorted(unused(where))]
)
def test_what_has_no_effect_on_a_warm_up_is_refused(tmp_path: Path, where: str, name: str) -> None:
    args = SFTConfig(output_dir=str(tmp_path), **ON_A_CPU)
    refuse_unused(args, where)
    setattr(args, name, other_than_default(SFTConfig, name))
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got .*: .*; .*\.$"):
        refuse_unused(args, where)


def test_an_evaluation_that_has_no_schedule_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="do_eval needs eval_strategy, got 'no'; set it to 'steps' or 'epoch'"):
        CreditConfig(output_dir=str(tmp_path), **ON_A_CPU, do_eval=True)
    evaluated = CreditConfig(
        output_dir=str(tmp_path), **ON_A_CPU, eval_strategy="steps", eval_steps=5, per_device_eval_batch_size=1
    )  # fmt: skip
    assert evaluated.do_eval
    assert evaluated.num_generations_eval is None


def test_what_is_trls_default_in_other_words_is_taken(tmp_path: Path) -> None:
    settings = {"scale_rewards": True, "router_aux_loss_coef": None}
    assert CreditConfig(output_dir=str(tmp_path), **ON_A_CPU, **settings).router_aux_loss_coef == 0.0
    assert AsyncCreditConfig(output_dir=str(tmp_path), **ON_A_CPU).router_aux_loss_coef == 0.0  # not the model's own


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "bnpo", "sapo"])
def test_a_loss_that_depends_on_the_layout_is_refused(tmp_path: Path, loss_type: str) -> None:
    with pytest.raises(ValueError, match="loss_type must be one of dapo, cispo"):
        CreditConfig(output_dir=str(tmp_path), **ON_A_CPU, loss_type=loss_type)


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor], where: str) -> None:
    assert any(value.abs().max() > 1e-3 for value in expected.values())
    for key, value in expected.items():
        message = functools.partial("{}, {}: {}".format, where, key)
        torch.testing.assert_close(found[key], value, rtol=1e-3, atol=1e-5, msg=message)


@pytest.fixture(scope="module")
def gradients() -> dict[str, dict[str, torch.Tensor]]:
    """The gradient of the second update with each setting."""
    return {}


@pytest.mark.parametrize("name", ["defaults", *VARIED])
def test_no_layout_of_rows_changes_the_gradient_or_what_is_logged(
    one_update: Callable[..., Any], micro_policy: Path, gradients: dict[str, dict[str, torch.Tensor]], name: str
) -> None:
    changed = {**PLAY, **VARIED.get(name, {})}
    whole = one_update(micro_policy, **{**changed, **WHOLE})
    assert len(whole.kept) == 2
    gradients[name] = whole.kept[1]
    layouts = LAYOUTS
    if name == "steps_per_generation":  # it is one way of accumulating
        layouts = {"three rows a pass": LAYOUTS["three rows a pass"]}
    elif name != "defaults":  # what a setting adds to the loss is cut and summed in one layout as in each
        layouts = {"accumulated, three rows a pass": LAYOUTS["accumulated"] | LAYOUTS["three rows a pass"]}
    for layout, settings in layouts.items():
        cut = one_update(micro_policy, **{**changed, **settings})
        for update, (expected, found) in enumerate(zip(whole.kept, cut.kept, strict=True)):
            assert_same(found, expected, f"{layout}, update {update}")
        for expected, found in zip(whole.state.log_history[:2], cut.state.log_history[:2], strict=True):
            for key in LOGGED:
                assert (key in found) == (key in expected)
                if key in expected:
                    assert found[key] == pytest.approx(expected[key], rel=1e-3, abs=1e-5), f"{layout} {key}"


@pytest.mark.parametrize("name", VARIED)
def test_the_settings_are_varied_so_that_they_matter(
    one_update: Callable[..., Any], micro_policy: Path, gradients: dict[str, dict[str, torch.Tensor]], name: str
) -> None:
    for each in ("defaults", name):
        if each not in gradients:
            gradients[each] = one_update(micro_policy, **{**PLAY, **VARIED.get(each, {}), **WHOLE}).kept[1]
    plain, varied = gradients["defaults"], gradients[name]
    differs = any((varied[key] - value).abs().max() > 1e-3 for key, value in plain.items())
    assert differs == (name not in WITHOUT_EFFECT)


MODELS = {
    "qwen3 with experts": lambda vocabulary: Qwen3MoeConfig(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, head_dim=16, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
    ),
    "gpt2": lambda vocabulary: GPT2Config(
        vocab_size=vocabulary, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    ),
    "gpt neo, which attends by column": lambda vocabulary: GPTNeoConfig(
        vocab_size=vocabulary, hidden_size=32, num_layers=2, num_heads=2, attention_types=[[["global", "local"], 1]],
        window_size=16, max_position_embeddings=256, attention_dropout=0.0, resid_dropout=0.0, embed_dropout=0.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_no_layout_of_rows_changes_the_gradient_of_other_families(
    one_update: Callable[..., Any], micro_policy: Path, tmp_path: Path, name: str
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(micro_policy)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(MODELS[name](len(tokenizer)))
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.2)  # so that positions matter
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path / "policy")

    play = {**PLAY, "on_built": credit_alike, "num_iterations": 1, "max_steps": 1, "plays": 4}
    whole = one_update(tmp_path / "policy", **{**play, **WHOLE}).kept[0]
    for layout, settings in {**LAYOUTS, "padded": {"pad_to_multiple_of": 64}}.items():
        assert_same(one_update(tmp_path / "policy", **{**play, **settings}).kept[0], whole, layout)
