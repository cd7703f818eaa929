"""With cached keys and values, replies are those of a model that reads every context in full."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from peft import LoraConfig, PeftModel, PromptTuningConfig, get_peft_model
from small_teams import sudoku_policy
from transformers import GenerationConfig

from hf_credit.policies.generation import PrefixSampler, sampler
from hf_credit.policies.micro import MicroConfig, build_model
from hf_credit.policies.prefix_cache import _TRIED, CACHE, PrefixCache, reads_in_parts
from hf_credit.policies.role_policies import using


@pytest.fixture
def policy():
    return sudoku_policy()


@pytest.fixture
def tokenizer(policy):
    return policy[1]


@pytest.fixture
def model(policy):
    return policy[0].eval()


@pytest.fixture
def read(model):
    """The number of columns of each pass of the model so far, which was tried before."""
    PrefixCache(model, 0).inputs([[6, 7]])
    widths = []
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: widths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    return widths


def tokens(draws, count):
    return [draws.randrange(6, 20) for _ in range(count)]


def replies_to(model, tokenizer, contexts, generate=None):
    generate = generate or sampler(model, tokenizer, max_new_tokens=7, temperature=0)
    return [list(generation.ids) for generation in generate(contexts)]


def go_on(draws, contexts, replies):
    """The same conversations, each with one to five tokens after the reply."""
    return [
        [*context, *reply, *tokens(draws, draws.randint(1, 5))]
        for context, reply in zip(contexts, replies, strict=True)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_conversations_that_continue_end_and_start_get_the_replies_of_an_empty_cache(model, tokenizer, seed):
    draws = random.Random(seed)
    generate = sampler(model, tokenizer, max_new_tokens=7, temperature=0)
    contexts = [tokens(draws, draws.randint(1, 30)) for _ in range(6)]
    for _ in range(5):
        replies = replies_to(model, tokenizer, contexts, generate)
        assert replies == replies_to(model, tokenizer, contexts)
        going = draws.sample(go_on(draws, contexts, replies), draws.randint(1, len(contexts)))
        # some share only a part with what was read
        going = [one[: draws.randint(1, len(one))] + tokens(draws, draws.randint(0, 5)) for one in going]
        new = [tokens(draws, draws.randint(1, 30)) for _ in range(draws.randint(0, 3))]
        # one conversation continues twice, as in rollouts from one state
        contexts = [*going, *new, going[0]]
        draws.shuffle(contexts)


def test_the_padding_of_shorter_replies_has_no_effect(model, tokenizer):
    free = replies_to(model, tokenizer, [[7, 8, 9], [10, 11]])
    model.generation_config.eos_token_id = free[0][1]  # now the first reply ends at its second token
    generate = sampler(model, tokenizer, max_new_tokens=7, temperature=0)
    contexts = [[7, 8, 9], [10, 11]]
    replies = replies_to(model, tokenizer, contexts, generate)
    assert [len(reply) for reply in replies] == [2, 7]
    contexts = [[*context, *reply, 12, 13] for context, reply in zip(contexts, replies, strict=True)]
    assert replies_to(model, tokenizer, contexts, generate) == replies_to(model, tokenizer, contexts)


def test_cached_tokens_are_not_read_again(model, tokenizer, read):
    generate = sampler(model, tokenizer, max_new_tokens=4, temperature=0)
    context = [*range(6, 20), *range(6, 20)]
    (reply,) = replies_to(model, tokenizer, [context], generate)
    assert read == [28, 1, 1, 1]
    read.clear()
    replies_to(model, tokenizer, [[*context, *reply, 6, 7]], generate)
    assert read == [3, 1, 1, 1]  # the reply's last token was sampled, but not read


def test_a_new_conversation_is_read_once_and_others_keep_their_cache(model, tokenizer, read):
    generate = sampler(model, tokenizer, max_new_tokens=2, temperature=0)
    (reply,) = replies_to(model, tokenizer, [[6] * 40], generate)
    read.clear()
    replies_to(model, tokenizer, [[*[6] * 40, *reply, 7], [8] * 40], generate)
    assert read == [38, 2, 1]


def test_a_context_continues_from_the_tokens_that_it_shares_with_the_last_call(model, tokenizer, read):
    generate = sampler(model, tokenizer, max_new_tokens=2, temperature=0)
    question, end = [6] * 30, [7, 8]
    replies_to(model, tokenizer, [[*question, *end], [*question, 9, *end]], generate)
    read.clear()
    contexts = [[*question, 10, 11, *end], [*question, 9, 12, 13, 14, *end]]  # as in a program that adds to notes
    replies = replies_to(model, tokenizer, contexts, generate)
    assert read == [5, 1]  # of the second the three notes and the end; in the first, one token that is known
    assert replies == [reply[:2] for context in contexts for reply in replies_to(model, tokenizer, [context])]


def test_a_context_that_ends_within_the_last_call_is_read_from_its_last_token_on(model, tokenizer, read):
    generate = sampler(model, tokenizer, max_new_tokens=2, temperature=0)
    replies_to(model, tokenizer, [[*range(6, 36)]], generate)
    read.clear()
    assert replies_to(model, tokenizer, [[*range(6, 26)]], generate) == [
        reply[:2] for reply in replies_to(model, tokenizer, [[*range(6, 26)]])
    ]
    assert read[:2] == [1, 1]


def test_equal_contexts_are_read_once(model, tokenizer, read):
    rows = []
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: rows.append(kwargs["input_ids"].shape[0]), with_kwargs=True
    )
    generate = sampler(model, tokenizer, max_new_tokens=2, temperature=0)
    contexts = [[6] * 40, [7] * 20, [6] * 40, [6] * 40, [8]]
    replies = replies_to(model, tokenizer, contexts, generate)
    assert (read, rows) == ([39, 1, 1], [2, 5, 5])
    assert replies == [reply[:2] for context in contexts for reply in replies_to(model, tokenizer, [context])]


def test_what_all_new_contexts_begin_with_is_read_once(model, tokenizer, read):
    generate = sampler(model, tokenizer, max_new_tokens=2, temperature=0)
    contexts = [[*[6] * 40, 7, 8, 9], [*[6] * 40, 8, 7], [*[6] * 40, 8, 7], [*[6] * 40, 9, 9, 9, 9]]
    replies = replies_to(model, tokenizer, contexts, generate)
    # The beginning of one; of each but the last token what is not in it, two more in the shorter; the last tokens.
    assert read == [40, 3, 1, 1]
    assert replies == [reply[:2] for context in contexts for reply in replies_to(model, tokenizer, [context])]


@pytest.mark.parametrize("lengths", [(31, 3, 2), (40, 0, 9), (60, 600, 600)])
def test_a_beginning_that_saves_little_is_not_read_first(model, tokenizer, read, lengths):
    shared, first, second = lengths
    contexts = [[*[6] * shared, *[7] * first], [*[6] * shared, *[8] * second]]
    replies_to(model, tokenizer, contexts, sampler(model, tokenizer, max_new_tokens=1, temperature=0))
    assert read == [shared + max(first, second)]


@pytest.mark.parametrize("contexts", [[[6]], [[6], [6]], [[6], [6], [7]], [[6, 7], [6, 7]]])
def test_the_shortest_contexts_can_be_repeated(model, tokenizer, contexts):
    generate = sampler(model, tokenizer, max_new_tokens=2, temperature=0)
    expected = [reply[:2] for context in contexts for reply in replies_to(model, tokenizer, [context])]
    for _ in range(3):
        assert replies_to(model, tokenizer, contexts, generate) == expected


def test_the_inputs_are_those_of_a_call_without_a_cache(model):
    draws = random.Random(0)
    cache = PrefixCache(model, 0)
    contexts = [tokens(draws, length) for length in (9, 3, 3, 14)]
    for _ in range(4):
        inputs = cache.inputs(contexts)
        width = max(map(len, contexts))
        assert inputs["input_ids"].tolist() == [[0] * (width - len(context)) + context for context in contexts]
        assert inputs["attention_mask"].sum(1).tolist() == [len(context) for context in contexts]
        with torch.no_grad():
            output = model.generate(**inputs, max_new_tokens=3, do_sample=False, return_dict_in_generate=True)
        replies = output.sequences[:, width:].tolist()
        cache.keep(contexts, inputs["attention_mask"], replies, getattr(output, CACHE))
        contexts = [*go_on(draws, contexts, replies), tokens(draws, 5)]


def test_penalties_and_banned_phrases_include_cached_tokens(model, tokenizer):
    config = GenerationConfig(
        max_new_tokens=6,
        do_sample=False,
        repetition_penalty=3.0,
        no_repeat_ngram_size=2,
        eos_token_id=[tokenizer.eos_token_id],
        pad_token_id=tokenizer.pad_token_id,
    )
    draws = random.Random(1)
    generate = PrefixSampler(model, config)
    contexts = [tokens(draws, length) for length in (12, 4, 7)]
    with torch.no_grad():
        for _ in range(4):
            replies = replies_to(model, tokenizer, contexts, generate)
            assert replies == replies_to(model, tokenizer, contexts, PrefixSampler(model, config))
            contexts = go_on(draws, contexts, replies)


def test_a_changed_weight_empties_the_cache(model, tokenizer, read):
    generate = sampler(model, tokenizer, max_new_tokens=7, temperature=0)
    context = list(range(6, 20))
    (reply,) = replies_to(model, tokenizer, [context], generate)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model(torch.tensor([context])).logits.logsumexp(-1).sum().backward()
    optimizer.step()
    read.clear()
    longer = [*context, *reply, 6]
    assert replies_to(model, tokenizer, [longer], generate) == replies_to(model, tokenizer, [longer])
    assert read[0] == len(longer)


def test_another_active_adapter_empties_the_cache(model, tokenizer, read):
    lora = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM", init_lora_weights=False)
    policy = get_peft_model(model, lora, adapter_name="first")
    policy.add_adapter("second", lora)
    generate = sampler(policy, tokenizer, max_new_tokens=3, temperature=0)
    context = list(range(6, 20))
    for adapter, columns in (("first", 14), ("first", 2), ("second", 22), ("second", 2)):
        policy.set_adapter(adapter)
        read.clear()
        (reply,) = replies_to(policy, tokenizer, [context], generate)
        assert read[0] == columns
        context = [*context, *reply, 6]
    with policy.disable_adapter():
        read.clear()
        assert replies_to(policy, tokenizer, [context], generate) == [
            reply[:3] for reply in replies_to(policy, tokenizer, [context])
        ]
        assert read[0] == len(context)


def test_models_with_sliding_window_attention_are_not_cached(tokenizer):
    plain = build_model(tokenizer, MicroConfig(hidden_size=32, layers=2, heads=2))
    plain.config.use_sliding_window, plain.config.sliding_window = True, 8
    plain.config.layer_types = ["sliding_attention"] * 2
    model = type(plain)(plain.config).double().eval()
    generate = sampler(model, tokenizer, max_new_tokens=7, temperature=0)
    contexts = [list(range(6, 20)), [6, 7]]
    replies = replies_to(model, tokenizer, contexts, generate)
    contexts = [[*context, *reply, 9] for context, reply in zip(contexts, replies, strict=True)]
    assert replies_to(model, tokenizer, contexts, generate) == replies_to(model, tokenizer, contexts)


def test_a_model_reads_in_parts_if_every_layer_attends_to_the_whole_context(model, tokenizer):
    assert reads_in_parts(model)
    window = copy.deepcopy(model)
    window.config.use_sliding_window, window.config.sliding_window = True, 8
    window.config.layer_types = ["full_attention", "sliding_attention"]
    assert not reads_in_parts(window)
    lora = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    assert reads_in_parts(get_peft_model(copy.deepcopy(model), lora))
    virtual = PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM")
    assert not reads_in_parts(get_peft_model(copy.deepcopy(model), virtual))
    other = copy.deepcopy(model)
    other.config._attn_implementation = "flash_attention_2"
    assert not reads_in_parts(other)


def test_what_reads_otherwise_in_parts_is_found_by_trying_once(model, tokenizer, caplog, monkeypatch):
    assert PrefixCache(model, 0).inputs([[6, 7]]).keys() == {"input_ids", "attention_mask"}
    assert _TRIED[model]
    forgetful = copy.deepcopy(model)
    attend = forgetful.model.forward

    def without_cached(*args, attention_mask=None, **kwargs):
        """Sees nothing of what was cached before this call, as a layer with a state of its own might."""
        held = kwargs.get(CACHE)
        before = 0 if held is None else held.get_seq_length()
        if before:
            attention_mask = attention_mask.clone()
            attention_mask[:, :before] = 0
        return attend(*args, attention_mask=attention_mask, **kwargs)

    monkeypatch.setattr(forgetful.model, "forward", without_cached)
    generate = sampler(forgetful, tokenizer, max_new_tokens=1, temperature=0)
    contexts = [list(range(6, 20)), [6, 7]]
    for _ in range(2):
        replies = replies_to(forgetful, tokenizer, contexts, generate)
        assert replies == replies_to(
            model, tokenizer, contexts, sampler(model, tokenizer, max_new_tokens=1, temperature=0)
        )
        contexts = [[*context, *reply, 9] for context, reply in zip(contexts, replies, strict=True)]
    assert [one.getMessage() for one in caplog.records if "in parts" in one.getMessage()] == [
        "the policy reads every context from its start: tried in parts, it gave other logits."
    ]


ROLES = ("reader", "writer", "critic")


@pytest.fixture
def team(model):
    """The model with a different adapter for each role."""
    config = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
    torch.manual_seed(len(ROLES))
    team = PeftModel(model, config, adapter_name=ROLES[0])
    for number, role in enumerate(ROLES[1:]):
        torch.manual_seed(number)
        team.add_adapter(role, config)
    return team.double().eval()


def alone(team, tokenizer, roles, contexts, seeds):
    """The reply to each context separately, without a cache, with the adapter of its role active."""
    replies = []
    for role, context, seed in zip(roles, contexts, seeds, strict=True):
        with using(team, role):
            (reply,) = sampler(team, tokenizer, max_new_tokens=7).seeded([context], [seed])
        replies.append(list(reply.ids))
    return replies


@pytest.mark.parametrize("seed", range(2))
def test_roles_in_one_batch_sample_what_each_samples_alone(team, tokenizer, read, seed):
    draws = random.Random(seed)
    generate = sampler(team, tokenizer, max_new_tokens=7)
    shared = [tokens(draws, draws.randint(2, 9)) for _ in range(2)]
    contexts = [list(draws.choice(shared)) for _ in range(8)]  # the same ones for different roles, and twice for one
    for turn in range(4):
        roles = [ROLES[0]] * 8 if turn == 2 else draws.choices(ROLES, k=8)
        seeds = [draws.randrange(2**32) for _ in roles]
        with using(team, roles[0]):
            replies = [list(one.ids) for one in generate.mixed(contexts, roles, seeds)]
        assert replies == alone(team, tokenizer, roles, contexts, seeds)
        if turn == 1:  # the roles stay the same, so that each continues from its cache
            contexts = go_on(draws, contexts, replies)
            read.clear()
            generate.mixed(contexts, roles, seeds)
            assert max(read) <= 5 + 1
        contexts = go_on(draws, contexts, replies)


def test_mixed_rows_have_the_log_probabilities_of_their_own_adapter(team):
    ids = torch.randint(6, 20, (6, 5), generator=torch.Generator().manual_seed(0))
    ids[1] = ids[0]  # one text, read by two roles
    names = [ROLES[number % 3] for number in range(6)]
    with torch.no_grad():
        mixed = team(input_ids=ids, adapter_names=names).logits.log_softmax(-1)
        for row, name in enumerate(names):
            with using(team, name):
                torch.testing.assert_close(mixed[row], team(input_ids=ids[row : row + 1]).logits.log_softmax(-1)[0])
    assert (mixed[0] - mixed[1]).abs().max() > 0.1
