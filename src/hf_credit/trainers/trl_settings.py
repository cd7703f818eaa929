"""The settings of TRL and transformers that have no meaning here, which nobody is to set in vain."""

from __future__ import annotations

import dataclasses
from typing import Any

_PLAYING = ("synchronous", "asynchronous")
_ALL = (*_PLAYING, "warm-up")

UNUSED: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (_PLAYING, "num_generations", "a method plays a task several times itself; set the size of its groups"),
    (_PLAYING, "scale_rewards", "a method scales its own advantages; set scale of grpo, or whiten of ppo or vineppo"),
    (_PLAYING, "reward_weights multi_objective_aggregation",
     "the outcome of an episode is one number; weigh its parts in the task, or take the method gdpo"),
    (_PLAYING, "max_tool_calling_iterations", "the task limits its turns; set max_turns, or turns of the environment"),
    (_PLAYING, "off_policy_mask_threshold top_entropy_quantile router_aux_loss_coef neftune_noise_alpha "
     "sapo_temperature_neg sapo_temperature_pos vespo_k_pos vespo_lambda_pos vespo_k_neg vespo_lambda_neg",
     "it depends on how decisions are laid out in rows and forward passes; leave it out"),
    (_PLAYING, "label_smoothing_factor average_tokens_across_devices",
     "the loss is a policy gradient, the mean over the tokens of all processes; leave it out"),
    (_PLAYING, "auto_find_batch_size", "an update has a fixed number of tasks; leave it out"),
    (_PLAYING, "data_seed train_sampling_strategy length_column_name label_names",
     "the order of tasks is drawn from seed alone; leave it out"),
    (("synchronous",), "generation_kwargs",
     "an evaluation would draw otherwise; set temperature, top_p, top_k, min_p, repetition_penalty or "
     "max_completion_length"),
    (("synchronous",), "remove_unused_columns", "every column of a task row is the task's; leave it out"),
    (("asynchronous",), "temperature",
     "a server tells the log-probabilities of given replies only at 1; leave it out, or train with CreditTrainer"),
    (("asynchronous",), "fork_threshold_tokens max_inflight_tasks queue_maxsize ignore_data_skip dataloader_drop_last "
     "dataloader_num_workers dataloader_in_order dataloader_persistent_workers dataloader_prefetch_factor "
     "dataloader_multiprocessing_context", "the worker here, not TRL's, hands out the tasks; leave it out"),
    (("asynchronous",), "per_device_eval_batch_size", "a server plays an evaluation; set max_concurrent_episodes"),
    (("warm-up",), "packing padding_free assistant_only_loss chat_template_path eos_token dataset_text_field "
     "dataset_kwargs dataset_num_proc truncation_mode packing_strategy eval_packing completion_only_loss "
     "shuffle_dataset", "demonstrations are rows of tokens already, those of a training; leave it out"),
    (("shares",), "loss_type label_smoothing_factor router_aux_loss_coef",
     "the player tells the probabilities of its replies, which are learned; leave it out, or learn from --traces"),
    (("adapters",), "use_transformers_continuous_batching ddp_find_unused_parameters",
     "role_adapters are several policies, and it supports only one; leave it out"),
    (("roles",), "vllm_enable_sleep_mode vllm_tensor_parallel_size",
     "vLLM in this process would lose the adapters of roles; leave it out, or use vllm_mode='server'"),
    (_ALL, "eval_accumulation_steps eval_do_concat_batches eval_use_gather_object include_for_metrics "
     "batch_eval_metrics", "an evaluation gathers no predictions; leave it out"),
    (_ALL, "do_predict", "transformers leaves it to scripts; leave it out, and use `hf-credit evaluate`"),
    (_PLAYING, "enable_jit_checkpoint",
     "it saves in the middle of an update; leave it out, as a run goes on from its last checkpoint however it ends"),
    (_ALL, "save_on_each_node",
     "transformers writes the model on the first node alone; leave it out, and save to a disk that all nodes have"),
    (_ALL, "hub_revision", "a publication is a commit to the main branch; leave it out"),
)  # fmt: skip
"""Where they are unused, their names, and why, with a remedy."""

_SAME: dict[str, tuple[Any, ...]] = {
    "scale_rewards": (True,),
    "router_aux_loss_coef": (None, 0.0),
    "ddp_find_unused_parameters": (False,),
}


def refuse_unused(args: Any, where: str) -> None:
    """Refuses settings of a config of TRL that have no effect, or a wrong one, with another value than their default.

    Args:
        where: as in `UNUSED`; `"shares"` is a warm-up on distributions of tokens, `"adapters"` are those of roles, and
            `"roles"` the same with vLLM in this process.

    Raises:
        ValueError: one has another value.
    """
    reasons = {name: why for places, names, why in UNUSED if where in places for name in names.split()}
    for one in dataclasses.fields(args):
        name, value = one.name, getattr(args, one.name)
        default = one.default if one.default_factory is dataclasses.MISSING else one.default_factory()
        if name in reasons and value != default and value not in _SAME.get(name, ()):
            raise ValueError(f"{name} must be {default!r}, got {value!r}: {reasons[name]}.")
    if where in _ALL and args.do_eval and args.eval_strategy == "no":
        raise ValueError("do_eval needs eval_strategy, got 'no'; set it to 'steps' or 'epoch'.")
