"""Only the chat template writes special tokens, whatever the text of messages."""

from __future__ import annotations

import string
from collections import Counter
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import Chat
from hf_credit.rollouts.conversations import Conversation
from hf_credit.rollouts.special_tokens import SpecialTokens, plain_role

LETTERS = sorted(set(string.printable) - set("\t\r\x0b\x0c"))
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA2 = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}</s>"
    "{% else %}<s>[INST] {{ m.content | trim }} [/INST]{% endif %}{% endfor %}"
)
DEEPSEEK = (
    "<|begin|>{% for m in messages %}"
    "{% if m.role == 'assistant' %}<｜Assistant｜>{{ m.content.split('</think>')[-1] }}<|end|>"
    "{% else %}<｜User｜>{{ m.content }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<｜Assistant｜><think>\n{% endif %}"
)
LOWER = "{% for m in messages %}<user>{{ m.content }}<end>{% endfor %}<bot>"


def special(text: str, *, normalized: bool = False) -> AddedToken:
    return AddedToken(text, special=True, normalized=normalized)


def wrapped(model: Tokenizer, template: str, added: list[AddedToken], **named: str) -> PreTrainedTokenizerFast:
    """A tokenizer with tokens added to its model's, as in chat models."""
    model.add_tokens(added)
    return PreTrainedTokenizerFast(
        tokenizer_object=model, chat_template=template, clean_up_tokenization_spaces=False, **named
    )


def like_gpt2(ignore_merges: bool = False) -> PreTrainedTokenizerFast:
    """Bytes and a few merges, with ChatML's tokens added. Of Llama 3, words of the vocabulary are not taken apart."""
    merges = [("<", "|"), ("|", ">"), ("i", "m"), ("a", "b")]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: place for place, token in enumerate([*alphabet, *("".join(pair) for pair in merges)])}
    model = Tokenizer(models.BPE(vocabulary, merges, ignore_merges=ignore_merges))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    added = [special("<|endoftext|>"), special("<|im_start|>"), special("<|im_end|>"), AddedToken("<think>")]
    return wrapped(model, CHATML, added, pad_token="<|endoftext|>", eos_token="<|im_end|>")


def like_llama2() -> PreTrainedTokenizerFast:
    """SentencePiece's BPE, in whose merges `</s>` itself can come up."""
    merges = [("<", "s"), ("<s", ">"), ("<", "/"), ("</", "s"), ("</s", ">"), ("\u2581", "a")]
    names = ["<unk>", "<s>", "</s>", "\u2581", *LETTERS]
    vocabulary = dict.fromkeys([*names, *("".join(pair) for pair in merges)])
    model = Tokenizer(models.BPE({token: place for place, token in enumerate(vocabulary)}, merges, unk_token="<unk>"))
    model.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    model.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.Fuse()])
    added = [special("<unk>"), special("<s>"), special("</s>")]
    return wrapped(model, LLAMA2, added, pad_token="</s>", eos_token="</s>", bos_token="<s>", unk_token="<unk>")


def like_t5() -> PreTrainedTokenizerFast:
    """SentencePiece's unigrams, of which `</s>` is the likeliest."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("<|im_start|>", 0.0), ("<|im_end|>", 0.0)]
    model = Tokenizer(models.Unigram([*pieces, ("\u2581", -2.0), *((c, -3.0) for c in LETTERS)], unk_id=2))
    model.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    model.decoder = decoders.Metaspace(prepend_scheme="first")
    added = [special(name) for name, _ in pieces]
    return wrapped(model, CHATML, added, pad_token="<pad>", eos_token="</s>", unk_token="<unk>")


def like_deepseek() -> PreTrainedTokenizerFast:
    """The tokens that open turns are added, but not special; thoughts of earlier replies are not shown."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    model = Tokenizer(models.BPE({token: place for place, token in enumerate(alphabet)}, []))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    turns = [AddedToken(name, normalized=False) for name in ("<｜User｜>", "<｜Assistant｜>", "<think>", "</think>")]
    added = [special("<|begin|>"), special("<|end|>"), *turns]
    return wrapped(model, DEEPSEEK, added, pad_token="<|end|>", eos_token="<|end|>", bos_token="<|begin|>")


def like_bert() -> PreTrainedTokenizerFast:
    """Reads everything in lower case, special tokens too."""
    words = ["<unk>", "<pad>", "<user>", "<end>", "<bot>", *LETTERS]
    model = Tokenizer(models.BPE({token: place for place, token in enumerate(words)}, [], unk_token="<unk>"))
    model.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])
    model.decoder = decoders.Fuse()
    turns = [special(name, normalized=True) for name in ("<user>", "<end>", "<bot>")]
    added = [special("<unk>"), special("<pad>"), *turns]
    return wrapped(model, LOWER, added, pad_token="<pad>", eos_token="<end>", unk_token="<unk>")


MAKERS = {
    "gpt2": like_gpt2,
    "llama3": lambda: like_gpt2(ignore_merges=True),
    "llama2": like_llama2,
    "t5": like_t5,
    "deepseek": like_deepseek,
    "bert": like_bert,
    "micro": lambda: tokenizer_of(["a b <action>place 1 2</action> im start end \n <|x|> thinkuser"]),
}
FAMILIES = pytest.mark.parametrize("family", MAKERS)


@cache
def chat_of(family: str) -> Chat:
    return Chat(MAKERS[family]())


@cache
def spellings(family: str) -> tuple[str, ...]:
    tokenizer = chat_of(family).tokenizer
    names = {*tokenizer.all_special_tokens, *(token.content for token in tokenizer.added_tokens_decoder.values())}
    return tuple(sorted(names | {name.upper() for name in names} | {name.replace("<", "＜") for name in names}))


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, str]:
    return {"role": "assistant", "content": content}


def specials(chat: Chat, ids: tuple[int, ...]) -> Counter[int]:
    """The count of each special or structural token, without that of unknown characters."""
    tokenizer = chat.tokenizer
    opens = {name for name in ("<｜User｜>", "<｜Assistant｜>", "<think>") if name in tokenizer.chat_template}
    control = {*tokenizer.convert_tokens_to_ids(sorted(opens)), *tokenizer.all_special_ids}
    return Counter(token for token in ids if token in control and token != tokenizer.unk_token_id)


def hostile(family: str) -> st.SearchStrategy[str]:
    """Texts that contain special tokens, complete and in parts."""
    names = spellings(family)
    parts = st.sampled_from([*names, *(name[: len(name) // 2] for name in names), *(name[1:] for name in names)])
    return st.lists(parts | st.text("ab <|>\n\ue002\ue0031", max_size=4), max_size=6).map("".join)


@FAMILIES
@given(st.data())
def test_a_conversation_has_only_the_special_tokens_of_its_template(family: str, data: st.DataObject) -> None:
    chat, texts = chat_of(family), hostile(family)
    expected = specials(chat, chat.context([user("a"), assistant("b"), user("a")]))
    messages = [user(data.draw(texts)), assistant(data.draw(texts)), user(data.draw(texts))]
    got = specials(chat, chat.context(messages))
    if family == "deepseek":  # its own marks of thoughts, which the template reads, may stay in an earlier reply
        thought = chat.tokenizer.convert_tokens_to_ids("<think>")
        del got[thought], expected[thought]
    assert got == expected


@pytest.mark.parametrize("family", ["gpt2", "llama3", "deepseek"])  # of these every text has tokens, and they a text
@given(st.data())
def test_a_reply_of_any_text_is_written_as_it_was_read(family: str, data: st.DataObject) -> None:
    chat = chat_of(family)
    context = chat.context([user("a")])
    said = data.draw(
        st.lists(hostile(family) | st.sampled_from(["</think>", "<think>\n", " 4"]), max_size=4).map("".join)
    )
    ids = chat.reply_ids(chat.opened(context) + said, context)
    assert chat.texts([ids], [context]) == [chat.opened(context) + said]
    assert chat.reply_ids(chat.opened(context) + said, context) == ids
    allowed = chat.tokenizer.convert_tokens_to_ids(["<think>", "</think>"])
    assert not {one for one in specials(chat, ids[:-1]) if one not in allowed}


def test_a_text_of_any_length_with_marks_and_special_tokens_is_hidden_in_linear_space() -> None:
    chat = chat_of("gpt2")
    text = "\ue002" * 50_000 + "<|im_end|>" * 5_000
    (shown,), hidden = SpecialTokens(chat.tokenizer, "").hide([user(text)])
    assert hidden is not None
    assert len(shown["content"]) <= 3 * len(text)
    assert chat.tokenizer.decode(hidden.encode(shown["content"])) == text
    assert specials(chat, tuple(hidden.encode(shown["content"]))) == {}


@FAMILIES
@given(st.data())
def test_messages_added_to_a_conversation_have_no_special_tokens(family: str, data: st.DataObject) -> None:
    chat, texts = chat_of(family), hostile(family)
    start = chat.context([user("a")])
    reply = chat.encode("b")
    conversation = Conversation(messages=(user("a"), assistant("b")), ids=start + reply)
    plain = chat.context([*conversation.messages, user("a")], conversation)
    got = chat.context([*conversation.messages, user(data.draw(texts))], conversation)
    assert got[: len(conversation.ids)] == conversation.ids
    assert specials(chat, got) == specials(chat, plain)


@FAMILIES
@given(st.data())
def test_a_single_text_has_no_special_tokens(family: str, data: st.DataObject) -> None:
    chat = chat_of(family)
    assert not specials(chat, chat.encode(data.draw(hostile(family))))


@FAMILIES
def test_the_text_of_a_special_token_is_kept_as_text(family: str) -> None:
    chat = chat_of(family)
    tokenizer = chat.tokenizer
    for name in (tokenizer.eos_token, tokenizer.pad_token):
        ids = chat.encode(f"a{name}b")
        unknown = tokenizer.unk_token_id in ids
        shown = tokenizer.decode(list(ids), skip_special_tokens=True).replace(" ", "")
        assert shown == f"a{name}b" or unknown


@FAMILIES
@given(st.text("ab <|>im_end\n", max_size=20))
def test_a_text_without_special_tokens_is_encoded_as_before(family: str, text: str) -> None:
    chat = chat_of(family)
    if any(name in text for name in spellings(family)):
        return
    rendered = chat.tokenizer.apply_chat_template([user(text)], tokenize=False, add_generation_prompt=True)
    assert chat.context([user(text)]) == tuple(chat.tokenizer(rendered, add_special_tokens=False)["input_ids"])
    assert chat.encode(text) == tuple(chat.tokenizer(text, add_special_tokens=False)["input_ids"])


def test_only_the_text_of_special_tokens_is_encoded_differently() -> None:
    chat = chat_of("gpt2")
    tokenizer = chat.tokenizer
    inner = tokenizer("<|im_end|>", add_special_tokens=False, split_special_tokens=True)["input_ids"]
    end, start = tokenizer.convert_tokens_to_ids(["<|im_end|>", "<|im_start|>"])
    # As the tokenizer itself reads the conversation, which splits it at special tokens, but for the one.
    read = tokenizer("<|im_start|>user\nab<|im_end|>ab<|im_end|>\n<|im_start|>assistant\n", add_special_tokens=False)
    first = read["input_ids"].index(end)
    expected = [*read["input_ids"][:first], *inner, *read["input_ids"][first + 1 :]]
    assert chat.context([user("ab<|im_end|>ab")]) == tuple(expected)
    assert expected.count(start) == 2


def test_a_template_still_removes_thoughts_from_earlier_replies() -> None:
    chat = chat_of("deepseek")
    ids = chat.context([user("a"), assistant("<think>xyz</think>b<|end|>"), user("<think>c")])
    assert "xyz" not in chat.tokenizer.decode(list(ids))
    assert ids.count(chat.tokenizer.convert_tokens_to_ids("<think>")) == 1  # of the prompt for the next reply
    assert ids.count(chat.tokenizer.convert_tokens_to_ids("<|end|>")) == 1


def test_a_tokenizer_that_cannot_spell_its_special_tokens_is_refused() -> None:
    model = Tokenizer(models.WordLevel({"a": 0, "#": 1}, unk_token="a"))
    template = "{% for m in messages %}#{{ m.content }}#{% endfor %}"
    tokenizer = wrapped(model, template, [special("#")], pad_token="#", eos_token="#")
    with pytest.raises(ValueError, match="must have tokens for the letters of its special tokens, got none for '#'"):
        Chat(tokenizer).context([user("a#a")])


@pytest.mark.parametrize(
    "role", ["<|im_start|>", "user<|im_end|>", "user\n", "", "[INST]", 5, None, "a b", "x" * 65], ids=str
)
def test_a_role_that_templates_could_not_write_as_a_word_is_refused(role: object) -> None:
    with pytest.raises(ValueError, match="a message's role must be a word, such as user, got"):
        plain_role(role)


@pytest.mark.parametrize("role", ["user", "assistant", "tool", "ipython", "critic-2", "schüler"])
def test_a_word_is_a_role(role: str) -> None:
    assert plain_role(role) == role
