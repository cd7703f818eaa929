"""A generation call reuses the cache of the last one until it is dropped, and casts each weight once."""

from __future__ import annotations

import dataclasses
from collections import Counter
from contextlib import contextmanager

import pytest
import torch
from peft import LoraConfig
from small_teams import sudoku_policy
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import GenerationConfig
from trl import GRPOConfig

from hf_credit import CreditConfig, CreditTrainer, make
from hf_credit.policies.generation import ContinuingReplies, sampler
from hf_credit.rollouts import EnvironmentInteraction
from hf_credit.trainers.saving import task_spec


class Casts(TorchDispatchMode):
    """How often each weight of two dimensions was cast, by its address."""

    def __init__(self, model):
        super().__init__()
        self.weights = {one.data_ptr() for one in model.parameters() if one.ndim == 2}
        self.counted = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._to_copy.default and args[0].data_ptr() in self.weights:
            self.counted[args[0].data_ptr()] += 1
        return func(*args, **(kwargs or {}))


@pytest.fixture
def policy():
    """A model that trains, and its tokenizer."""
    model, tokenizer = sudoku_policy()
    return model.train(), tokenizer


@pytest.fixture
def opened():
    return []


@pytest.fixture
def replies(policy, opened):
    model, tokenizer = policy

    @contextmanager
    def open_policy():
        opened.append("open")
        yield model
        opened.append("closed")

    config = GenerationConfig(
        max_new_tokens=4, do_sample=False, eos_token_id=[tokenizer.eos_token_id], pad_token_id=tokenizer.pad_token_id
    )
    return ContinuingReplies(open_policy, config)


@pytest.fixture
def read(policy):
    widths = []
    policy[0].model.register_forward_pre_hook(
        lambda module, args, kwargs: widths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    return widths


def test_cached_tokens_are_read_again_only_after_the_cache_is_dropped(replies, read):
    context = list(range(6, 26))
    with replies.forgotten():
        reply = replies([context])[0].ids
        longer = [*context, *reply, 7]
        read.clear()
        going_on = replies([longer])[0].ids
        assert read[0] == 2
    assert replies.sampler is None
    read.clear()
    assert replies([longer])[0].ids == going_on
    assert read[0] == len(longer)


def test_an_error_drops_the_cache_too(replies):
    def fail():
        with replies.forgotten():
            replies([[6, 7]])
            raise RuntimeError("the game broke")

    with pytest.raises(RuntimeError, match="the game broke"):
        fail()
    assert replies.sampler is None


def test_the_policy_is_opened_for_one_call_and_no_graph_is_kept(replies, policy, opened, read):
    replies([[6, 7]])
    replies([[6, 7, 8]])
    assert opened == ["open", "closed"] * 2
    assert policy[0].training
    assert not any(layer.keys.requires_grad for layer in replies.sampler._cache._last.cache.layers)
    assert not torch.is_inference(replies.sampler._cache._last.cache.layers[0].keys)


def test_a_sampler_under_autocast_casts_each_weight_once_in_a_call():
    model, tokenizer = sudoku_policy()
    model.float()
    with torch.autocast("cpu", torch.bfloat16), Casts(model) as casts:
        sampler(model, tokenizer, max_new_tokens=4, temperature=0)([list(range(6, 26))])
    assert set(casts.counted.values()) == {1}


def test_a_trainer_in_bfloat16_casts_each_weight_once_in_a_call(tmp_path):
    model, tokenizer = sudoku_policy()
    sudoku = EnvironmentInteraction(make("sudoku", size=4, blanks=4), "current")
    args = CreditConfig(output_dir=str(tmp_path), use_cpu=True, bf16=True, report_to="none", max_completion_length=4)
    trainer = CreditTrainer(
        model.float(), sudoku, args, sudoku.tasks("train", 8), method="outcome_reward", processing_class=tokenizer
    )
    with Casts(trainer.model) as casts:
        trainer.generate_replies([list(range(6, 26))])
    assert set(casts.counted.values()) == {1}


@pytest.mark.parametrize(
    "settings",
    [{}, {"reuse_prefixes": False}, {"reuse_prefixes": False, "top_k": 1}, {"use_lora": True}],
    ids=str,
)
def test_a_trainer_draws_what_the_recipe_says_whatever_the_models_own_settings_are(tmp_path, settings):
    drawn = []
    own = {"min_p": 0.9, "repetition_penalty": 50.0, "suppress_tokens": [5, 6, 7, 8], "num_beams": 2, "top_k": 2}
    for brought in ({}, own):
        model, tokenizer = sudoku_policy()
        for name, value in brought.items():
            setattr(model.generation_config, name, value)
        named = dict(settings)
        peft = LoraConfig(r=2, target_modules="all-linear") if named.pop("use_lora", False) else None
        args = CreditConfig(
            output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none", max_completion_length=6, **named
        )  # fmt: skip
        sudoku = EnvironmentInteraction(make("sudoku", size=4, blanks=4), "current")
        trainer = CreditTrainer(
            model, sudoku, args, sudoku.tasks("train", 8), method="outcome_reward", processing_class=tokenizer,
            peft_config=peft,
        )  # fmt: skip
        torch.manual_seed(5)
        drawn.append([list(one.ids) for one in trainer.generate_replies([list(range(6, 26))] * 8)])
        assert trainer.model.generation_config.min_p == brought.get("min_p")
    assert drawn[0] == drawn[1]


# Every setting of TRL that decides which tokens are drawn, with another value than its default.
DRAWN = {
    "temperature": 0.7, "top_p": 0.8, "top_k": 5, "min_p": 0.03, "repetition_penalty": 1.4, "max_completion_length": 6,
}  # fmt: skip
OF_ANOTHER_KIND = {"use_cache", "cache_implementation", "push_to_hub"}


def test_what_training_draws_with_is_what_evaluation_draws_with_for_every_setting_of_trl(tmp_path):
    settings = {one.name for one in dataclasses.fields(GRPOConfig) if hasattr(GenerationConfig(), one.name)}
    assert settings - OF_ANOTHER_KIND | {"max_completion_length"} == set(DRAWN)
    for changed in ({}, *({name: value} for name, value in DRAWN.items()), DRAWN):
        model, tokenizer = sudoku_policy()
        args = CreditConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, report_to="none", **changed)
        sudoku = EnvironmentInteraction(make("sudoku", size=4, blanks=4), "current")
        trainer = CreditTrainer(
            model, sudoku, args, sudoku.tasks("train", 8), method="outcome_reward", processing_class=tokenizer
        )
        saved = task_spec(sudoku, trainer.method, args).sampling
        configs = trainer.generation_config, sampler(model, tokenizer, **vars(saved)).config
        training, evaluation = ({**one.to_dict(), "return_dict_in_generate": None} for one in configs)
        assert training == evaluation, changed


def test_parameters_of_a_generation_that_no_evaluation_has_are_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"generation_kwargs must be None, got .*: an evaluation would draw otherwise"
    ):
        CreditConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, generation_kwargs={"typical_p": 0.5})
