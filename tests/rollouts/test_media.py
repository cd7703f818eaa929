"""Families that see read every image of a conversation once and in its place, as their processor writes it."""

from __future__ import annotations

import functools
import pickle
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from vision import FAMILIES, model_of, picture, processor_of, tokenizer_of

from hf_credit.content import Image, content_of
from hf_credit.rollouts import Chat, Request
from hf_credit.rollouts.conversations import Conversation
from hf_credit.rollouts.media import VisualContext, images_of
from hf_credit.rollouts.templates import ChatTemplateError

A, B = picture(24, 16), picture(64, 64, 1)
RED, BLUE = Image.of(A), Image.of(B)
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
]


@functools.cache
def chat_of(family: str) -> Chat:
    return Chat(processor_of(family))


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": content_of(list(parts))}


def as_templates_have_it(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same messages as transformers and TRL have them."""

    def part(one: Any) -> dict[str, Any]:
        return {"type": "image", "image": one.pil()} if isinstance(one, Image) else {"type": "text", "text": str(one)}

    parts = [[one["content"]] if isinstance(one["content"], str) else one["content"] for one in messages]
    return [{**one, "content": list(map(part, own))} for one, own in zip(messages, parts, strict=True)]


_PARTS = st.lists(st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=3), st.sampled_from([None, RED, BLUE])))


@given(_PARTS, _PARTS, st.integers(0, 20), st.integers(0, 20))
def test_slices_and_sums_of_contexts_keep_their_images(left: Any, right: Any, start: int, stop: int) -> None:
    def made(parts: Any) -> tuple[Any, ...]:
        found: Any = ()
        for ids, image in parts:
            found = found + VisualContext(ids, [] if image is None else [(0, image)])
        return found

    both, one, other = made(left + right), made(left), made(right)
    assert one + other == both
    assert hash(one + other) == hash(both)
    assert both[: len(one)] == one
    assert both[len(one) :] == other
    assert [*map(images_of, (one, other))] == [[image for _, image in part if image] for part in (left, right)]
    assert list(both[start:stop]) == list(both)[start:stop]
    assert pickle.loads(pickle.dumps(both)) == both
    assert (tuple(both) == both) == (not images_of(both))
    assert (tuple(both) != both) == bool(images_of(both))


def test_contexts_of_the_same_tokens_are_equal_only_with_the_same_images() -> None:
    one, other = (VisualContext((1, 2), [(0, image)]) for image in (RED, BLUE))
    assert one != other
    assert len({one, other, VisualContext((1, 2), [(0, RED)]), (1, 2)}) == 3
    assert repr(one) != repr(other)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_conversation_has_the_tokens_and_pixel_inputs_of_the_processor(family: str) -> None:
    chat = chat_of(family)
    messages = [user("look ", RED, "and", BLUE, BLUE, "?")]
    context = chat.context(messages)
    own: Any = chat.media.processing_class.apply_chat_template(
        as_templates_have_it(messages),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
    )
    assert list(context) == own["input_ids"][0].tolist()
    assert images_of(context) == [RED, BLUE, BLUE]
    model = model_of(family, chat.tokenizer)
    of_rows = chat.media.of_rows([(context[:9], context[9:])])["media"]
    inputs = chat.media.inputs(model, torch.tensor([context]), of_rows)
    generated = chat.media.generation_inputs(model, [context])
    assert generated.keys() == set(own) - {"input_ids", "attention_mask"}
    for name, value in generated.items():
        assert torch.equal(torch.as_tensor(value), own[name])
        assert torch.equal(inputs[name].to(own[name].dtype), own[name])


@pytest.mark.parametrize("family", FAMILIES)
def test_each_image_of_later_turns_is_appended_once_and_the_rest_stays(family: str) -> None:
    chat = chat_of(family)
    first = [user("Q1x", RED)]
    context, reply = chat.context(first), chat.reply_ids("A1x")
    conversation = Conversation.after(Request(role="r", messages=first), "A1x", context + reply)
    second = [*conversation.messages, user(BLUE, "Q2x")]
    longer = chat.context(second, conversation)
    assert longer[: len(conversation.ids)] == conversation.ids
    assert images_of(longer) == [RED, BLUE]
    assert images_of(longer[len(conversation.ids) :]) == [BLUE]
    text = str(chat.tokenizer.decode(list(longer)))
    assert [text.count(one) for one in ("Q1x", "A1x", "Q2x")] == [1, 1, 1]
    whole = chat.context(second)
    assert images_of(whole) == [RED, BLUE]
    assert list(chat.contexts([(Request(role="r", messages=second), one) for one in (conversation, None)])) == [
        longer,
        whole,
    ]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_text_of_a_token_of_images_is_no_image(family: str) -> None:
    chat = chat_of(family)
    processor: Any = chat.media.processing_class
    token = processor.image_token
    context = chat.context([user(f"a{token}b", RED)])
    assert images_of(context) == [RED]
    assert token in str(chat.tokenizer.decode(list(context)))
    chat.media.generation_inputs(model_of(family, chat.tokenizer), [context])  # has as many tokens as its image
    alone = chat.context([user(f"a{token}b")])
    assert not images_of(alone)
    assert chat.media.generation_inputs(None, [alone]) == {}


def test_equal_messages_with_other_images_are_other_contexts() -> None:
    chat, other = chat_of("gemma3"), Image.of(picture(24, 16, 2))
    found = chat.contexts([(Request(role="r", messages=[user(one)]), None) for one in (RED, other)])
    assert [tuple(one) == tuple(found[0]) for one in found if isinstance(one, tuple)] == [True, True]
    assert found[0] != found[1]


def test_the_answer_of_a_tool_has_its_image_once() -> None:
    chat = chat_of("qwen3_vl")
    asked = [user("Q1x")]
    said = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
    ids = chat.context(asked, tools=TOOLS) + chat.reply_ids(said, tools=TOOLS)
    conversation = Conversation.after(Request(role="r", messages=asked, tools=TOOLS), said, ids)
    answer = {"role": "tool", "content": content_of([RED, "R1x"])}
    longer = chat.context([*conversation.messages, answer], conversation, TOOLS)
    assert longer[: len(ids)] == ids
    assert images_of(longer) == [RED]
    assert str(chat.tokenizer.decode(list(longer))).count("R1x") == 1


def test_what_a_model_of_text_reads_has_no_image() -> None:
    with pytest.raises(ValueError, match=r"a message must be text or parts of text, got '\[image 24x16 "):
        Chat(tokenizer_of("qwen3_vl")).context([user(RED)])


def test_an_image_that_the_template_does_not_write_is_refused() -> None:
    chat = chat_of("gemma3")
    kept = chat.tokenizer.chat_template
    with pytest.raises(ChatTemplateError, match="must write every image of a message once, got 0 in place of 1"):
        Chat(_with_template(processor_of("gemma3"), str(kept).replace("{{ '<start_of_image>' }}", "")))
    with pytest.raises(ValueError, match="remove other parts"):
        chat.context([user("?"), {"role": "assistant", "content": content_of([RED])}, user("?")])


def _with_template(processor: Any, template: str) -> Any:
    processor.chat_template = template
    return processor


def test_rows_without_the_images_of_their_tokens_are_refused() -> None:
    chat = chat_of("qwen2_5_vl")
    context = tuple(chat.context([user(RED)]))
    with pytest.raises(ValueError, match="rows must have the 0 tokens of their 0 images, got 6; keep the contexts"):
        chat.media.inputs(None, torch.tensor([context]), None)


def test_a_model_of_text_with_the_same_tokens_gets_no_images_in_silence() -> None:
    chat = chat_of("qwen2_5_vl")
    context = chat.context([user(RED)])
    with pytest.raises(ValueError, match="a model must read images here, got Linear; use one that sees"):
        chat.media.generation_inputs(torch.nn.Linear(1, 1), [context])
