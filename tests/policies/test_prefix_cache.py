"""With the keys and values of earlier turns kept, replies are those of a model that reads every context anew."""

from __future__ import annotations

import random

import pytest
import torch

from hf_credit import make
from hf_credit.policies.generation import sampler
from hf_credit.policies.micro import MicroConfig, build_model, build_tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer(make("sudoku", size=4, blanks=4), episodes=2)


@pytest.fixture
def model(tokenizer):
    """Random weights, in double precision so that no two tokens are equally probable for lack of digits."""
    return build_model(tokenizer, MicroConfig(hidden_size=32, layers=2, heads=2)).double().eval()


@pytest.fixture
def read(model):
    """The number of columns of each pass of the model so far."""
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
    """The same conversations, each with one to five tokens behind the reply."""
    return [
        [*context, *reply, *tokens(draws, draws.randint(1, 5))]
        for context, reply in zip(contexts, replies, strict=True)
    ]


@pytest.mark.parametrize("seed", range(6))
def test_conversations_that_go_on_end_and_begin_get_the_replies_of_a_first_reading(model, tokenizer, seed):
    draws = random.Random(seed)
    generate = sampler(model, tokenizer, max_new_tokens=7, temperature=0)
    contexts = [tokens(draws, draws.randint(1, 30)) for _ in range(6)]
    for _ in range(5):
        replies = replies_to(model, tokenizer, contexts, generate)
        assert replies == replies_to(model, tokenizer, contexts)
        going = draws.sample(go_on(draws, contexts, replies), draws.randint(1, len(contexts)))
        new = [tokens(draws, draws.randint(1, 30)) for _ in range(draws.randint(0, 3))]
        # one conversation goes on twice, as in rollouts from one state
        contexts = [*going, *new, going[0]]
        draws.shuffle(contexts)


def test_replies_of_unequal_lengths_leave_no_trace_of_their_padding(model, tokenizer):
    free = replies_to(model, tokenizer, [[7, 8, 9], [10, 11]])
    model.generation_config.eos_token_id = free[0][1]  # now the first reply ends at its second token
    generate = sampler(model, tokenizer, max_new_tokens=7, temperature=0)
    contexts = [[7, 8, 9], [10, 11]]
    replies = replies_to(model, tokenizer, contexts, generate)
    assert [len(reply) for reply in replies] == [2, 7]
    contexts = [[*context, *reply, 12, 13] for context, reply in zip(contexts, replies, strict=True)]
    assert replies_to(model, tokenizer, contexts, generate) == replies_to(model, tokenizer, contexts)


def test_what_was_read_is_not_read_again(model, tokenizer, read):
    generate = sampler(model, tokenizer, max_new_tokens=4, temperature=0)
    context = [*range(6, 20), *range(6, 20)]
    (reply,) = replies_to(model, tokenizer, [context], generate)
    assert read == [28, 1, 1, 1]
    read.clear()
    replies_to(model, tokenizer, [[*context, *reply, 6, 7]], generate)
    assert read == [3, 1, 1, 1]  # the reply's last token was drawn, but never read


def test_a_new_conversation_is_read_once_and_does_not_make_the_others_read(model, tokenizer, read):
    generate = sampler(model, tokenizer, max_new_tokens=2, temperature=0)
    (reply,) = replies_to(model, tokenizer, [[6] * 40], generate)
    read.clear()
    replies_to(model, tokenizer, [[*[6] * 40, *reply, 7], [8] * 30], generate)
    assert read == [29, 2, 1]


def test_a_changed_weight_makes_the_model_read_anew(model, tokenizer, read):
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


def test_attention_over_a_window_is_left_to_the_model(tokenizer):
    plain = build_model(tokenizer, MicroConfig(hidden_size=32, layers=2, heads=2))
    plain.config.use_sliding_window, plain.config.sliding_window = True, 8
    plain.config.layer_types = ["sliding_attention"] * 2
    model = type(plain)(plain.config).double().eval()
    generate = sampler(model, tokenizer, max_new_tokens=7, temperature=0)
    contexts = [list(range(6, 20)), [6, 7]]
    replies = replies_to(model, tokenizer, contexts, generate)
    contexts = [[*context, *reply, 9] for context, reply in zip(contexts, replies, strict=True)]
    assert replies_to(model, tokenizer, contexts, generate) == replies_to(model, tokenizer, contexts)
