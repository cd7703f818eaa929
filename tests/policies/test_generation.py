"""Samplers and the log-probabilities of replies, compared with the model's next-token probabilities."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, Qwen3Config, Qwen3ForCausalLM

from hf_credit.policies import generation
from hf_credit.policies.generation import can_continue, evaluating, max_context_tokens, reply_logprobs, sampler
from hf_credit.rollouts import Chat

GRID = "   C1 C2 C3 C4\nR1 1 2 3 4\nR2 3 4 1 2\nR3 2 1 . 3\nR4 . 3 2 1"
PROMPTS = [GRID, GRID[:30], "R1", GRID.replace("3", "."), GRID * 2]


@pytest.fixture(scope="module")
def policy(micro_policy):
    model = AutoModelForCausalLM.from_pretrained(micro_policy)
    return model, AutoTokenizer.from_pretrained(micro_policy)


@pytest.fixture(scope="module")
def contexts(policy):
    chat = Chat(policy[1])
    return [chat.context([{"role": "user", "content": prompt}]) for prompt in PROMPTS]


def greedy(model, context, limit, end):
    """Greedy decoding without padding, cache or `generate`."""
    reply = []
    while len(reply) < limit and (not reply or reply[-1] != end):
        with torch.no_grad():
            logits = model(torch.tensor([[*context, *reply]])).logits[0, -1]
        reply.append(int(logits.argmax()))
    return reply


def ids(generations):
    return [list(generation.ids) for generation in generations]


@pytest.mark.parametrize("limit", [1, 5, 20])
def test_temperature_zero_is_greedy_in_a_batch_of_unequal_lengths(policy, contexts, limit):
    model, tokenizer = policy
    expected = [greedy(model, context, limit, tokenizer.eos_token_id) for context in contexts]
    assert len({len(context) for context in contexts}) > 2
    generate = sampler(model, tokenizer, max_new_tokens=limit, temperature=0)
    assert ids(generate(contexts)) == expected
    assert [ids(generate([context])) for context in contexts] == [[reply] for reply in expected]


@pytest.mark.parametrize("seeds", [None, [0, 1, None, 1, 2]])
@pytest.mark.parametrize(("temperature", "divided_by"), [(1.0, 1.0), (2.0, 2.0), (0, 1.0)])
def test_log_probabilities_are_those_of_sampled_tokens(policy, contexts, seeds, temperature, divided_by):
    """Of rows that end at different places, sampled with seeds or without; greedy ones are those of the model."""
    model, tokenizer = policy
    generate = sampler(model, tokenizer, max_new_tokens=9, temperature=temperature, logprobs=True)
    replies = generate(contexts) if seeds is None else generate.seeded(contexts, seeds)
    pairs = [(context, reply.ids) for context, reply in zip(contexts, replies, strict=True)]
    for reply, expected in zip(replies, reply_logprobs(model, pairs, divided_by), strict=True):
        assert reply.logprobs == pytest.approx(expected, abs=1e-4)
    plain = sampler(model, tokenizer, max_new_tokens=9, temperature=temperature)
    assert generate(contexts[:1])[0].logprobs is not None
    assert plain(contexts[:1])[0].logprobs is None


def test_log_probabilities_are_of_the_tokens_that_may_be_sampled(policy, contexts):
    model, tokenizer = policy
    (reply,) = sampler(model, tokenizer, max_new_tokens=5, top_k=1, logprobs=True)(contexts[:1])
    assert reply.logprobs == [0.0] * len(reply.ids)


def test_a_reply_ends_with_its_first_end_token_or_at_the_limit(policy, contexts):
    model, tokenizer = policy
    torch.manual_seed(0)
    replies = ids(sampler(model, tokenizer, max_new_tokens=9, temperature=1.5)(contexts * 40))
    ended = [reply for reply in replies if reply[-1] == tokenizer.eos_token_id]
    cut = [reply for reply in replies if reply[-1] != tokenizer.eos_token_id]
    assert ended
    assert cut
    assert all(tokenizer.eos_token_id not in reply[:-1] for reply in replies)
    assert {len(reply) for reply in cut} == {9}


def test_the_models_end_tokens_end_replies_too(policy, contexts):
    model, tokenizer = copy.deepcopy(policy[0]), policy[1]
    close = tokenizer.convert_tokens_to_ids("</action>")
    whole = ids(sampler(model, tokenizer, max_new_tokens=20, temperature=0)(contexts[:1]))[0]
    assert whole[-2:] == [close, tokenizer.eos_token_id]
    model.generation_config.eos_token_id = [close]
    assert ids(sampler(model, tokenizer, max_new_tokens=20, temperature=0)(contexts[:1])) == [whole[:-1]]


def test_the_padding_token_may_be_the_end_token(policy, contexts):
    model, tokenizer = policy[0], copy.deepcopy(policy[1])
    expected = ids(sampler(*policy, max_new_tokens=20, temperature=0)(contexts))
    tokenizer.pad_token = tokenizer.eos_token
    assert ids(sampler(model, tokenizer, max_new_tokens=20, temperature=0)(contexts)) == expected


def test_tokens_are_sampled_with_their_probabilities(policy, contexts):
    model, tokenizer = policy
    with torch.no_grad():
        logits = model(torch.tensor([contexts[2]])).logits[0, -1]
    expected = (logits / 2).softmax(-1)
    torch.manual_seed(0)
    generate = sampler(model, tokenizer, max_new_tokens=1, temperature=2.0)
    drawn = torch.tensor(ids(generate([contexts[2]] * 4000))).flatten()
    counts = torch.bincount(drawn, minlength=len(expected)) / 4000
    # half the summed differences; for these counts about 0.04 in expectation
    assert (counts - expected).abs().sum() / 2 < 0.1


def test_top_p_and_top_k_restrict_sampling(policy, contexts):
    model, tokenizer = policy
    with torch.no_grad():
        logits = model(torch.tensor([contexts[2]])).logits[0, -1]
    best = logits.argsort(descending=True)
    nucleus = int((logits.softmax(-1).sort(descending=True).values.cumsum(0) < 0.5).sum()) + 1
    torch.manual_seed(0)
    for options, allowed in (
        ({"top_k": 3, "temperature": 3.0}, 3),
        ({"top_p": 0.5}, nucleus),
        ({"top_k": 1, "temperature": 5.0}, 1),
        ({"min_p": 0.3}, int((logits.softmax(-1) >= 0.3 * logits.softmax(-1).max()).sum())),
    ):
        generate = sampler(model, tokenizer, max_new_tokens=1, **options)
        drawn = {reply[0] for reply in ids(generate([contexts[2]] * 500))}
        assert drawn == set(best[:allowed].tolist())


def test_sampling_uses_torchs_random_generator(policy, contexts):
    generate = sampler(*policy, max_new_tokens=12)
    replies = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        replies.append(ids(generate(contexts * 4)))
    assert replies[0] == replies[1]
    assert replies[0] != replies[2]


# A value of each setting that a model may bring, under which it would draw otherwise, or not at all.
DEFAULTS = {
    "assistant_confidence_threshold": 0.1, "assistant_early_exit": 1, "assistant_ensemble_weight": 0.5,
    "assistant_lookbehind": 3, "bad_words_ids": [[5], [6]], "begin_suppress_tokens": [5, 6], "bos_token_id": 5,
    "cache_config": {"max_batch_size": 1}, "cache_implementation": "static", "constraints": [5],
    "decoder_start_token_id": 5, "disable_compile": False, "diversity_penalty": 2.0, "do_sample": False,
    "dola_layers": "high", "early_stopping": True, "encoder_no_repeat_ngram_size": 2,
    "encoder_repetition_penalty": 9.0, "epsilon_cutoff": 0.3, "eta_cutoff": 0.3,
    "exponential_decay_length_penalty": (1, 9.0), "force_words_ids": [[5]], "forced_bos_token_id": 5,
    "forced_eos_token_id": 5, "guidance_scale": 3.0, "is_assistant": True, "length_penalty": 9.0, "low_memory": True,
    "max_cache_len": 3, "max_length": 3, "max_matching_ngram_size": 2, "max_new_tokens": 1, "max_time": 1e-9,
    "min_length": 300, "min_new_tokens": 12, "min_p": 0.5, "no_repeat_ngram_size": 1, "num_assistant_tokens": 3,
    "num_assistant_tokens_schedule": "constant", "num_beam_groups": 2, "num_beams": 2, "num_return_sequences": 2,
    "output_attentions": True, "output_hidden_states": True, "output_logits": True, "output_scores": True,
    "penalty_alpha": 0.9, "prefill_chunk_size": 2, "prompt_lookup_num_tokens": 2, "remove_invalid_values": True,
    "renormalize_logits": True, "repetition_penalty": 50.0, "return_dict_in_generate": False,
    "sequence_bias": [[[5], 50.0]], "speculation_type": "dflash", "stop_strings": ["1", "2", "3", "4"],
    "suppress_tokens": [5, 6, 7, 8, 9, 10], "target_lookbehind": 3, "temperature": 9.0, "token_healing": True,
    "top_h": 0.1, "top_k": 1, "top_p": 0.1, "typical_p": 0.1, "use_cache": False, "use_mtp": True,
    "watermarking_config": {"greenlist_ratio": 0.1, "bias": 50.0},
}  # fmt: skip
# What ends and fills replies, which `end_tokens` and the tokenizer say; how to compile; and no settings.
NOT_DRAWN = {"eos_token_id", "pad_token_id", "compile_config", "continuous_batching_config", "transformers_version"}


def test_every_setting_that_a_model_may_bring_is_known():
    fields = {name for name in vars(GenerationConfig()) if not name.startswith("_")}
    assert fields - DEFAULTS.keys() - NOT_DRAWN == set(), "find out what they do to a draw, and list them"


def bringing(model, settings):
    """A copy of the model whose own generation settings have these values."""
    model = copy.deepcopy(model)
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    return model


@pytest.mark.parametrize("name", DEFAULTS)
def test_no_setting_of_a_models_own_changes_what_is_drawn(policy, contexts, name):
    drawn = []
    for own in (bringing(policy[0], {name: DEFAULTS[name]}), policy[0]):
        torch.manual_seed(3)
        drawn.append(sampler(own, policy[1], max_new_tokens=8, logprobs=True)(contexts))
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("seeds", [None, range(4000)])
def test_tokens_have_their_probabilities_whatever_the_models_own_settings_are(policy, contexts, seeds):
    model = bringing(policy[0], DEFAULTS)
    with torch.no_grad():
        expected = model(torch.tensor([contexts[2]])).logits[0, -1].softmax(-1)
    torch.manual_seed(0)
    generate = sampler(model, policy[1], max_new_tokens=1, logprobs=True)
    asked = [contexts[2]] * 4000
    drawn = generate(asked) if seeds is None else generate.seeded(asked, seeds)
    tokens = torch.tensor(ids(drawn)).flatten()
    counts = torch.bincount(tokens, minlength=len(expected)) / 4000
    assert (counts - expected).abs().sum() / 2 < 0.1
    assert torch.tensor([one.logprobs[0] for one in drawn]).exp().tolist() == pytest.approx(
        expected[tokens].tolist(), rel=1e-3
    )
    assert model.generation_config.min_p == 0.5  # what is saved with the model is its own


def test_the_model_is_used_in_evaluation_mode(policy, contexts):
    model, seen = copy.deepcopy(policy[0]).train(), []
    model.model.register_forward_pre_hook(lambda module, given: seen.append(module.training))
    sampler(model, policy[1], max_new_tokens=2)(contexts)
    assert set(seen) == {False}
    assert model.training


@pytest.mark.parametrize(
    "options",
    [{"max_new_tokens": 0}, {"temperature": -0.1}, {"top_p": 0.0}, {"top_p": 1.1}, {"top_k": -1}, {"min_p": -1}],
)
def test_sampling_parameters_out_of_range_are_refused(policy, options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=rf"{name} must be .*, got {value}"):
        sampler(*policy, **options)


@pytest.mark.parametrize(
    ("settings", "possible"),
    [
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9}, True),
        ({"do_sample": False}, True),
        ({"do_sample": True, "repetition_penalty": 1.2, "min_p": 0.1}, True),
        ({"num_beams": 2}, False),
        ({"do_sample": True, "num_return_sequences": 2}, False),
        ({"cache_implementation": "static"}, False),
        ({"prompt_lookup_num_tokens": 3}, False),
        ({"prefill_chunk_size": 8}, False),
        ({"use_cache": False}, False),
    ],
)
def test_settings_determine_whether_a_cache_can_be_reused(settings, possible):
    assert can_continue(GenerationConfig(**settings)) == possible


def test_every_module_has_its_mode_again_after_an_evaluation_even_on_errors(policy):
    model = copy.deepcopy(policy[0]).train()
    model.lm_head.eval()

    def fail():
        with evaluating(model):
            assert not any(module.training for module in model.modules())
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        fail()
    assert {name for name, module in model.named_modules() if not module.training} == {"lm_head"}


def test_the_maximum_context_is_what_a_reply_leaves_of_the_positions(policy):
    model = copy.deepcopy(policy[0])
    model.config.max_position_embeddings = 100
    assert max_context_tokens(model, 12) == 88
    with pytest.raises(ValueError, match="the model's 100 positions, got a maximum of 100 tokens"):
        max_context_tokens(model, 100)


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "head_dim": 8}
    config = Qwen3Config(vocab_size=11, num_attention_heads=2, num_key_value_heads=2, **sizes)
    return Qwen3ForCausalLM(config).train()


def one_by_one(model: Any, context: tuple[int, ...], reply: tuple[int, ...], temperature: float) -> list[float]:
    found = []
    for at, token in enumerate(reply):
        logits = model(torch.tensor([[*context, *reply[:at]]])).logits[0, -1].double() / temperature
        found.append(logits.log_softmax(-1)[token].item())
    return found


def test_log_probabilities_do_not_depend_on_the_batch(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [((1, 2, 3), (4, 5)), ((6,), (7,)), ((1, 2), ()), ((9, 8, 7, 6), (5, 4, 3))]
    for tokens_at_once in (2**16, 7):  # all in one pass, and each in one of its own
        monkeypatch.setattr(generation, "_TOKENS_AT_ONCE", tokens_at_once)
        for own, (context, reply) in zip(reply_logprobs(model, pairs, 0.7), pairs, strict=True):
            assert own == pytest.approx(one_by_one(model, context, reply, 0.7), abs=1e-5)
    assert model.training


def test_only_logits_of_replies_are_computed(model: Any) -> None:
    seen: list[int] = []
    model.lm_head.register_forward_pre_hook(lambda head, states: seen.append(states[0].shape[1]))
    reply_logprobs(model, [((1,) * 40, (4, 5)), ((2,) * 39, (6,))])
    assert seen == [3]  # from the last token of the shorter context on


def test_a_context_that_goes_on_from_the_pair_before_is_read_once(model: Any) -> None:
    turns = [((1, 2), (3, 4)), ((1, 2, 3, 4, 5), (6,)), ((1, 2, 3, 4, 5), (7,)), ((1, 2, 3, 4, 5, 7, 8), (9, 9))]
    seen: list[torch.Size] = []
    model.lm_head.register_forward_pre_hook(lambda head, states: seen.append(states[0].shape[:2]))
    found = reply_logprobs(model, turns)
    assert seen == [(2, 5)]  # rows of the first two and of the last two, and logits of their replies
    for own, (context, reply) in zip(found, turns, strict=True):
        assert own == pytest.approx(one_by_one(model, context, reply, 1.0), abs=1e-5)


def test_a_row_has_no_more_tokens_of_replies_than_fit_at_once(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "_TOKENS_AT_ONCE", 3)
    turns = [((1,), (2, 3)), ((1, 2, 3, 4), (5,)), ((1, 2, 3, 4, 5, 6), (7, 8))]
    seen: list[int] = []
    model.lm_head.register_forward_pre_hook(lambda head, states: seen.append(states[0].shape[1]))
    found = reply_logprobs(model, turns)
    assert seen == [2, 3]  # of the last reply, then of the first two together
    for own, (context, reply) in zip(found, turns, strict=True):
        assert own == pytest.approx(one_by_one(model, context, reply, 1.0), abs=1e-5)


def test_without_replies_the_result_is_empty(model: Any) -> None:
    assert reply_logprobs(model, []) == []
