"""Every chat template that TRL has obeys the laws of conversations, or is refused in a sentence that names the law."""

from __future__ import annotations

import functools
import importlib.util
import itertools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken

from hf_credit import make
from hf_credit.agents.calls import canonical_messages, shown_message
from hf_credit.environments.actions import marked, write_call
from hf_credit.replies import MARKS, read_reply
from hf_credit.rollouts import Chat, Engine, EnvironmentInteraction, Generation, Request, RolloutRequest
from hf_credit.rollouts.conversations import Conversation
from hf_credit.rollouts.interaction import Reply
from hf_credit.rollouts.templates import ChatTemplateError

FOUND = importlib.util.find_spec("trl")
FOLDER = Path(str(FOUND.origin)).parent / "chat_templates" if FOUND else Path("nowhere")
FILES = {path.stem: path for path in sorted(FOLDER.glob("*.jinja"))}
SPECIAL = re.compile(
    r"<\|[^<>|\s]{1,40}\|?>|<[a-z_]{1,30}\|>|<｜[^<>\s]{1,40}｜>|<(?:start_of_turn|end_of_turn|end_of_utterance|image)>"
    r"|</?s>|\[/?INST\]"
)

# Of these the content of a message is a list of parts: they need their processor, as in test_media.py.
NO_TEXT = {"idefics3", "llava_next", "smolvlm"}
NO_TOOLS = NO_TEXT | {
    *("cohere", "cohere2", "deepseek_r1_distill", "deepseekv3", "gemma", "gemma3", "llama3", "phi3", "phi3_5"),
    "qwen2_5_vl",
}
# Of templates that show no calls, these stay in the content; some show one call in a turn.
NO_CALLS, ONE_CALL = {"lfm2"}, {"llama3_1", "llama3_2"}
TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Looks.",
            "parameters": {
                "type": "object",
                "properties": {"at": {"type": "string", "description": "Where."}},
                "required": ["at"],
            },
        },
    }
    for name in ("look", "peek")
]


def tokenizer_of(name: str) -> Any:
    """A tokenizer of letters with a template and the special tokens in it."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    template = FILES[name].read_text(encoding="utf-8")
    own = ["<pad>", "<eos>", "<bos>"]
    special = [*own, *(one for one in sorted(set(SPECIAL.findall(template))) if one not in own)]
    vocabulary = [*special, *map(chr, range(32, 127)), "\n"]
    model = Tokenizer(models.BPE({token: index for index, token in enumerate(vocabulary)}, []))
    model.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=model,
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        additional_special_tokens=special[3:],
        chat_template=template,
        clean_up_tokenization_spaces=False,
        name_or_path=name,
    )


def family(name: str) -> str:
    return name.removesuffix("_training")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def tool(text: str) -> dict[str, Any]:
    return {"role": "tool", "content": text}


def called(*names: str) -> dict[str, Any]:
    calls = [
        {"id": f"call{n:05d}", "type": "function", "function": {"name": name, "arguments": {"at": "box"}}}
        for n, name in enumerate(names)
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def text_of(chat: Chat, ids: Any) -> str:
    return str(chat.tokenizer.decode(list(ids), skip_special_tokens=False))


def reply_of(
    chat: Chat, messages: list[dict[str, Any]], said: str, tools: Any = ()
) -> tuple[Conversation, tuple[int, ...]]:
    """The conversation after a reply, and the reply's tokens."""
    context = chat.context(messages, tools=tools)
    ids = chat.reply_ids(said, tools=tools)
    request = Request(role="r", messages=messages, tools=tools)
    return Conversation.after(request, chat.texts([ids])[0], context + ids), ids


@pytest.mark.parametrize("name", sorted(set(FILES) - {one for one in FILES if family(one) in NO_TEXT}))
def test_every_message_is_in_the_context_once_and_the_template_ends_it(name: str) -> None:
    chat = Chat(tokenizer_of(name))
    conversation, ids = reply_of(chat, [user("Q1x")], "A1x")
    context = chat.context([*conversation.messages, user("Q2x")], conversation)
    text = text_of(chat, context)
    assert [text.count(one) for one in ("Q1x", "A1x", "Q2x")] == [1, 1, 1]
    assert context[: len(conversation.ids)] == conversation.ids
    own: Any = chat.tokenizer.apply_chat_template(
        [user("Q1x"), {"role": "assistant", "content": "A1x"}, user("Q2x")], tokenize=False, add_generation_prompt=True
    )
    behind = own.partition("A1x")[2]
    added = text_of(chat, context[len(conversation.ids) :])
    assert behind in (added, text_of(chat, ids[-1:]) + added)
    assert ids[-1] in chat.end_tokens


@pytest.mark.parametrize("name", sorted(one for one in FILES if family(one) not in NO_TOOLS))
@pytest.mark.parametrize("said", ["I look.\n{}", "<think>\nhm\n</think>\n\n{}", "{0}\n{0}"])
def test_a_reply_with_known_parts_has_the_tokens_and_the_context_of_its_text(name: str, said: str) -> None:
    chat, text = Chat(tokenizer_of(name)), said.format(marked(write_call("look", {"at": "</tool_call> b"})))
    known = Reply(text, said=read_reply(text, TOOLS))
    context = chat.context([user("Q1x")], tools=TOOLS)
    assert chat.reply_ids(known, context, TOOLS) == chat.reply_ids(text, context, TOOLS)
    asked, told = ([user("Q1x"), {"role": "assistant", "content": one}, tool("R1x")] for one in (known, text))
    assert chat.context(asked, tools=TOOLS) == chat.context(told, tools=TOOLS)


@pytest.mark.parametrize("name", sorted(one for one in FILES if family(one) not in NO_TOOLS))
@pytest.mark.parametrize("count", [1, 2])
def test_every_answer_of_a_tool_is_in_the_context_once_behind_its_call(name: str, count: int) -> None:
    chat = Chat(tokenizer_of(name))
    said = "".join(
        f'<tool_call>{{"name": "{one}", "arguments": {{"at": "box"}}}}</tool_call>' for one in ("look", "peek")[:count]
    )
    conversation, ids = reply_of(chat, [user("Q1x")], said, TOOLS)
    answers = [tool(f"R{number}x") for number in range(count)]
    context = chat.context([*conversation.messages, *answers], conversation, TOOLS)
    added = text_of(chat, context[len(conversation.ids) :])
    assert context[: len(conversation.ids)] == conversation.ids
    assert [added.count(f"R{number}x") for number in range(count)] == [1] * count
    assert added.index("R0x") < added.index(f"R{count - 1}x") or count == 1
    own: Any = None
    for names in (("look", "peek")[:count], ("look",)):
        numbered = [
            {**one, "tool_call_id": f"call{n:05d}", "name": ("look", "peek")[n]} for n, one in enumerate(answers)
        ]
        try:
            own = chat.tokenizer.apply_chat_template(
                [user("Q1x"), called(*names), *numbered], tokenize=False, add_generation_prompt=True, tools=TOOLS
            )
            break
        except Exception:
            continue
    assert own is not None
    assert own.endswith(added)
    assert own.removesuffix(added).endswith(text_of(chat, ids[-1:]))
    assert ids[-1] in chat.end_tokens
    # A reply that ended with another token is followed by the template's own.
    cut = Conversation(
        messages=conversation.messages,
        ids=(*conversation.ids[:-1], chat.tokenizer.eos_token_id),
        tools=conversation.tools,
    )
    whole = chat.context([*conversation.messages, *answers], cut, TOOLS)
    assert text_of(chat, whole[len(cut.ids) :]) == text_of(chat, ids[-1:]) + added


@pytest.mark.parametrize("name", sorted(one for one in FILES if family(one) not in NO_TOOLS))
def test_a_conversation_that_is_rendered_anew_has_the_same_answers(name: str) -> None:
    chat = Chat(tokenizer_of(name))
    said = '<tool_call>{"name": "peek", "arguments": {"at": "b0x"}}</tool_call>'
    messages = [
        user("Q1x"),
        {"role": "assistant", "content": said},
        tool("R1x"),
        {"role": "assistant", "content": "A1x"},
    ]
    text = text_of(chat, chat.context([*messages, user("Q2x")], tools=TOOLS))
    assert [text.count(one) for one in ("Q1x", "b0x", "R1x", "A1x", "Q2x")] == [1] * 5


@pytest.mark.parametrize("name", sorted(one for one in FILES if family(one) not in NO_TOOLS | NO_CALLS))
def test_a_call_that_was_not_sampled_is_written_and_read_as_the_template_writes_it(name: str) -> None:
    chat = Chat(tokenizer_of(name))
    ids = chat.reply_ids(marked(write_call("look", {"at": "box <eos>"})), tools=TOOLS)
    assert ids[:-1].count(chat.tokenizer.eos_token_id) == 0
    turn: dict[str, Any] = called("look")
    turn["tool_calls"][0]["function"]["arguments"] = {"at": "box <eos>"}
    own: Any = chat.tokenizer.apply_chat_template([user("?"), turn], tokenize=False, tools=TOOLS)
    assert text_of(chat, ids[:-1]).strip() in own
    (read,) = chat.reply(ids, (), TOOLS).calls
    assert (read[0], json.loads(read[1])) == ("look", {"at": "box <eos>"})


MARKED = st.sampled_from(sorted(filter(str.isascii, {*MARKS, "</tool_call>", "</parameter>", "<|eot_id|>", "[ARGS]"})))


@functools.cache
def chat_of(name: str) -> Chat:
    return Chat(tokenizer_of(name))


@given(
    name=st.sampled_from(sorted(one for one in FILES if family(one) not in NO_TOOLS | NO_CALLS)),
    at=st.lists(MARKED | st.text("ab \n\"\\'{}[]<>|,:", max_size=3), min_size=1, max_size=6).map("".join),
)
def test_a_call_whose_argument_has_marks_of_any_family_is_written_and_read_unchanged(name: str, at: str) -> None:
    chat = chat_of(name)
    special = set(map(chat.tokenizer.convert_tokens_to_ids, chat.tokenizer.all_special_tokens))

    def written(at: str) -> tuple[int, ...]:
        return chat.reply_ids(marked(write_call("look", {"at": at})), tools=TOOLS)

    ids = written(at)
    (read,) = chat.reply(ids, (), TOOLS).calls
    assert (read[0], json.loads(read[1])) == ("look", {"at": at})
    assert Counter(one for one in ids if one in special) <= Counter(one for one in written("box") if one in special)


# What a reply begins with in a template whose replies have several messages.
HEADERS = {"gptoss": "<|channel|>final<|message|>", "muse_glimmer": " to=user<|message|>"}
PIECES = [*"ab4 \n.", "\n\n", "<think>", "</think>", "{own mark}", "{own call}", "{own call}"]


@functools.cache
def own_marks(name: str) -> list[str]:
    chat = chat_of(name)
    ends = chat.tokenizer.convert_ids_to_tokens(list(chat.telling_of(tools_of(name)).end_tokens))
    return sorted(MARKS & set(chat.tokenizer.all_special_tokens) - set(ends)) or ["</think>"]


def tools_of(name: str) -> Any:
    return () if family(name) in NO_TOOLS | NO_CALLS else TOOLS


@functools.cache
def own_call(name: str) -> str:
    """A call as the model of a template writes it, with spaces of its own in JSON."""
    if not (tools := tools_of(name)):
        return "a"
    chat = chat_of(name)
    ids = chat.reply_ids(marked(write_call("look", {"at": "box"})), tools=tools)
    return text_of(chat, ids[:-1]).replace('"at": ', '"at":  ')


@given(
    name=st.sampled_from(sorted(one for one in FILES if family(one) not in NO_TEXT)),
    pieces=st.lists(st.sampled_from(PIECES) | st.integers(0, 99), max_size=8),
    offered=st.booleans(),
)
def test_a_reply_is_written_as_the_tokens_that_it_was_read_from(
    name: str, pieces: list[str | int], offered: bool
) -> None:
    chat, marks, tools = chat_of(name), own_marks(name), tools_of(name) if offered else ()
    shown = {"{own mark}": marks[0], "{own call}": own_call(name) if offered else "a"}
    if "<think>" not in chat.tokenizer.chat_template:  # thoughts in another form are written as the template does
        shown["<think>"] = "a"
    said = "".join(marks[one % len(marks)] if isinstance(one, int) else shown.get(one, one) for one in pieces)
    said = said if said.startswith(own_call(name)) and offered else HEADERS.get(family(name), "") + said
    context = chat.context([user("Q1x")], tools=tools)
    ids = tuple(chat.tokenizer(said, add_special_tokens=False)["input_ids"])
    (text,) = chat.texts([ids], [context])
    written = chat.reply_ids(text, context, tools)
    assert written[:-1] == ids
    assert chat.texts([written], [context]) == [text]
    assert written[-1] in chat.end_tokens


@pytest.mark.parametrize("name", sorted(one for one in FILES if family(one) not in NO_TEXT))
@pytest.mark.parametrize(
    "said",
    ["4", "4\n", "<think>hm</think>4", "<think>\nhm\n</think>\n\n4", "hm</think>4", "<think>hm", "", " <think> 4"],
)
def test_a_text_from_elsewhere_keeps_its_parts_and_is_written_once(name: str, said: str) -> None:
    chat = chat_of(name)
    context = chat.context([user("Q1x")])
    ids = chat.reply_ids(said, context)
    (text,) = chat.texts([ids], [context])
    read, known = read_reply(text), read_reply(said)
    assert (read.thoughts, read.spoken.strip()) == (known.thoughts, known.spoken.strip())
    assert chat.reply_ids(text, context) == ids
    assert text.count("<think>") <= 1


# How a template that opens a thought goes on where nothing was thought.
CLOSED = {
    **dict.fromkeys(("qwen3_5_think", "qwen3_6", "qwen3_8", "deepseek_r1_distill", "deepseekv3"), "\n</think>\n\n"),
    **dict.fromkeys(("nemotron_3_nano", "nemotron_3_super"), "\n</think>\n"),
    **dict.fromkeys(("nemotron_3_ultra", "nemotron_3_5_lightning"), "</think>"),
}


@pytest.mark.parametrize("name", sorted(one for one in FILES if family(one) not in NO_TEXT))
def test_a_demonstration_begins_as_the_template_writes_a_turn(name: str) -> None:
    chat = chat_of(name)
    context = chat.context([user("Q1x")])
    begun = CLOSED[family(name)] if chat.opened(context) else HEADERS.get(family(name), "")
    assert text_of(chat, chat.reply_ids("4", context)[:-1]) == f"{begun}4"
    before, answer = chat.answer_ids("4", "2", context)
    assert text_of(chat, (*before, *answer)) == f"{begun}42"
    thought = chat.reply_ids("<think>H1x</think>4", context)
    own: Any = chat.tokenizer.apply_chat_template(
        [user("Q1x"), {"role": "assistant", "content": "4", "reasoning_content": "H1x"}], tokenize=False
    )
    if "H1x" in own and "<think>" not in own:  # the template has marks of its own
        assert text_of(chat, context + thought).strip() in own


@pytest.mark.parametrize("name", sorted(one for one in FILES if family(one) in NO_TEXT))
def test_a_template_without_text_is_refused(name: str) -> None:
    with pytest.raises(
        ChatTemplateError, match=f"must (keep earlier replies unchanged|render messages of text), got one of '{name}'"
    ):
        Chat(tokenizer_of(name))


@pytest.mark.parametrize("name", sorted(one for one in FILES if family(one) in NO_TOOLS - NO_TEXT))
def test_a_template_without_tools_is_refused_before_anything_is_sampled(name: str) -> None:
    chat = Chat(tokenizer_of(name))
    with pytest.raises(ChatTemplateError, match=f"must render tools, got one of '{name}' that does not; set another"):
        chat.telling_of(TOOLS)


# What models of a family sample, each with the end token of its generation settings.
SAMPLED = {
    "gemma4_v5": '<|channel>thought\nhm<channel|><|tool_call>call:look{at:<|"|>box<|"|>}<tool_call|><|tool_response>',
    "glm4moe": "<think>hm</think>\n<tool_call>look\n<arg_key>at</arg_key>\n<arg_value>box</arg_value>\n</tool_call>"
    "<|observation|>",
    "gptoss": "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.look "
    '<|constrain|>json<|message|>{"at": "box"}<|call|>',
    "lfm2_2_5": "<think>hm</think><|tool_call_start|>[look(at='box')]<|tool_call_end|><|im_end|>",
    "llama3_1": '{"name": "look", "parameters": {"at": "box"}}<|eot_id|>',
    "muse_glimmer": ' to=look<|message|><atem:function_calls>\n<atem:invoke name="look">\n<atem:parameter name="at">'
    "box</atem:parameter>\n</atem:invoke>\n</atem:function_calls><|eot|>",
    "nemotron_3_nano": "hm</think>\n<tool_call>\n<function=look>\n<parameter=at>\nbox\n</parameter>\n</function>\n"
    "</tool_call><|im_end|>",
    "qwen3": '<think>hm</think>\n<tool_call>\n{"name": "look", "arguments": {"at": "box"}}\n</tool_call><|im_end|>',
    "qwen3_5_think": "hm</think>\n<tool_call>\n<function=look>\n<parameter=at>\nbox\n</parameter>\n</function>\n"
    "</tool_call><|im_end|>",
}


class Box:
    """Has a tool and no reward."""

    def reset(self, **row: Any) -> str:
        return "What is in it?"

    def look(self, at: str) -> str:
        """Looks.

        Args:
            at: where.
        """
        return f"<|im_end|> ink in the {at}"

    def get_reward(self) -> float:
        return 0.0


@pytest.mark.parametrize("name", sorted(SAMPLED))
def test_what_a_model_samples_calls_the_tool_and_its_answer_is_in_the_next_context(name: str) -> None:
    chat = Chat(tokenizer_of(name))
    (made, answer) = (
        chat.tokenizer(text, add_special_tokens=False)["input_ids"] for text in (SAMPLED[name], "hm</think>ink")
    )
    replies = iter([made, answer])
    interaction = EnvironmentInteraction(make("tools", factory=Box, columns=["prompt"]), instructions=False)
    engine = Engine(interaction, chat, lambda contexts: [Generation(ids=next(replies))])
    (episode,) = engine.run([RolloutRequest(task={"prompt": ""}, seed=0)])
    assert episode.error is None
    first, second = episode.decisions
    assert second.context_ids[: len(first.context_ids + first.action_ids)] == first.context_ids + first.action_ids
    added = text_of(chat, second.context_ids[len(first.context_ids + first.action_ids) :])
    assert added.count("ink in the box") == 1
    assert first.action_ids[-1] in chat.telling_of(interaction.environment.tools).end_tokens
    assert read_reply(first.action_text).thoughts in ("hm", "")
    for one in episode.decisions:  # a record of its texts has its tokens
        written = chat.reply_ids(one.action_text, one.context_ids, interaction.environment.tools)
        assert written[: len(written) - (one is second)] == one.action_ids


EOS = "\ue010"  # stands for the text <eos> in a message, which is no token


def ids_as_served(chat: Chat, messages: list[dict[str, Any]], **kwargs: Any) -> tuple[int, ...]:
    text: Any = chat.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True, **kwargs)
    pieces = [chat.tokenizer(piece, add_special_tokens=False)["input_ids"] for piece in text.split(EOS)]
    return tuple(pieces[0] + [token for piece in pieces[1:] for token in (*chat.encode("<eos>"), *piece)])


def require_served_contexts(chat: Chat, calls: tuple[str, ...] = (), **kwargs: Any) -> None:
    """Plays three turns with thoughts, and compares each context with what the template writes of the messages."""
    name, tools = family(chat.tokenizer.name_or_path), TOOLS if calls else ()
    offered = {"tools": TOOLS} if calls else {}
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Q <eos>"}]
    served: list[dict[str, Any]] = [{"role": "user", "content": f"Q {EOS}"}]
    conversation, number = None, 0
    for turn in range(4):
        request = Request(role="r", messages=messages, tools=tools, rendered=True)
        (context,) = chat.contexts([(request, conversation)])
        assert context == ids_as_served(chat, served, **offered, **kwargs)
        made = [{"name": one, "arguments": {"at": f"b{turn}"}} for one in calls]
        written = "".join(f"<tool_call>{json.dumps(call)}</tool_call>" for call in made) or f"A{turn} <eos>"
        opened = "" if chat.opened(context) else "<think>"
        ids = chat.reply_ids(f"{opened}T{turn} <eos></think>{written}", context, tools)
        conversation = Conversation.after(request, chat.texts([ids], [context])[0], context + ids)
        said: dict[str, Any] = {"role": "assistant", "content": written.replace("<eos>", EOS)}
        said["reasoning_content"] = f"T{turn} {EOS}"
        if calls and name not in NO_CALLS:
            shown = made[:1] if name in ONE_CALL else made
            said["tool_calls"] = [
                {"id": f"call{number + at:05d}", "type": "function", "function": one} for at, one in enumerate(shown)
            ]
            said["content"] = ""
        answers = [tool(f"R{turn} {one} <eos>") for one in calls] or [user(f"Q{turn} <eos>")]
        numbered = [
            answer | ({"tool_call_id": call["id"], "name": call["function"]["name"]} if call else {})
            for answer, call in itertools.zip_longest(answers, said.get("tool_calls", []))
        ]
        number += len(said.get("tool_calls", []))
        messages = [*conversation.messages, *answers]
        served = [*served, said, *({**one, "content": one["content"].replace("<eos>", EOS)} for one in numbered)]


@pytest.mark.parametrize("name", sorted(one for one in FILES if family(one) not in NO_TEXT))
def test_a_rendered_history_is_what_the_template_writes_when_the_model_is_served(name: str) -> None:
    require_served_contexts(Chat(tokenizer_of(name)))


@pytest.mark.parametrize("name", sorted(one for one in FILES if family(one) not in NO_TOOLS))
def test_a_rendered_history_with_tools_is_as_served(name: str) -> None:
    require_served_contexts(Chat(tokenizer_of(name)), ("look", "peek"))


@pytest.mark.parametrize("name", ["qwen3", "qwen2_5", "deepseek_r1_distill"])
def test_messages_that_an_agent_has_trimmed_are_rendered_as_served(name: str) -> None:
    chat = Chat(tokenizer_of(name))
    conversation, _ = reply_of(chat, [user("long"), user("Q0")], "<think>T0</think>A0")
    context = chat.context([user("short"), conversation.messages[-1], user("Q1")], conversation)
    said = {"role": "assistant", "content": "A0", "reasoning_content": "T0"}
    assert context == ids_as_served(chat, [user("short"), said, user("Q1")])


DATED = {"gptoss", "llama3_2", "muse_glimmer"}


@pytest.mark.parametrize("name", sorted(one for one in FILES if family(one) not in NO_TEXT))
def test_the_date_of_a_context_is_that_of_the_chat(name: str) -> None:
    tokenizer = tokenizer_of(name)
    chats = [Chat(tokenizer, {"today": day}) for day in ("2024-02-29", "2023-01-31", "2024-02-29")]
    first, other, again = (chat.context([user("Q1x")], tools=tools_of(name)) for chat in chats)
    assert first == again
    assert (first != other) == (family(name) in DATED)
    assert ("today" in Chat(tokenizer).template_kwargs) == (family(name) in DATED)
    if family(name) in DATED:
        chats[1].pin("2024-02-29")
        assert chats[1].context([user("Q1x")], tools=tools_of(name)) == first
        assert "2024" in text_of(chats[1], chats[1].with_kwargs({"a": 1}).context([user("Q1x")]))


@pytest.mark.parametrize("thinking", [True, False])
def test_a_rendered_history_has_the_arguments_of_the_template(thinking: bool) -> None:
    chat = Chat(tokenizer_of("qwen3"), {"enable_thinking": thinking})
    require_served_contexts(chat, enable_thinking=thinking)


def test_the_answer_of_a_tool_cannot_write_the_tokens_around_it() -> None:
    marks = ["<tool_response>", "</tool_response>", "<think>", "</think>"]
    tokenizer = tokenizer_of("qwen3")
    tokenizer.add_tokens([AddedToken(one, special=False, normalized=False) for one in marks])
    chat = Chat(tokenizer)
    conversation, _ = reply_of(
        chat, [user("Q")], '<tool_call>{"name": "look", "arguments": {"at": "box"}}</tool_call>', TOOLS
    )
    hostile, plain = (
        chat.context([*conversation.messages, tool(text)], conversation, TOOLS) for text in ("".join(marks), "page")
    )
    ids = tokenizer.convert_tokens_to_ids(marks)
    assert [hostile.count(one) for one in ids] == [plain.count(one) for one in ids]


def test_the_table_knows_no_template_that_is_gone() -> None:
    assert {family(name) for name in FILES} >= NO_TOOLS


@pytest.mark.parametrize("name", sorted(one for one in FILES if family(one) not in NO_TOOLS | NO_CALLS | ONE_CALL))
def test_results_in_another_order_than_their_calls_are_those_of_their_calls(name: str) -> None:
    chat = Chat(tokenizer_of(name))
    results = [
        {**tool(f"R{at}x"), "tool_call_id": f"call{at:05d}", "name": TOOLS[at]["function"]["name"]} for at in (1, 0)
    ]
    turn = called("look", "peek")
    served = chat.tokenizer.apply_chat_template(
        [user("Q1x"), turn, *results], tools=TOOLS, tokenize=False, add_generation_prompt=True
    )
    shown = [shown_message(one) for one in canonical_messages([user("Q1x"), turn, *results])]
    assert text_of(chat, chat.context(shown, tools=TOOLS)) == served
    said = "\n".join(marked(write_call(one["function"]["name"], {"at": "box"})) for one in TOOLS)
    conversation, _ = reply_of(chat, [user("Q1x")], said, TOOLS)
    continued = text_of(chat, chat.context([*conversation.messages, *shown[2:]], conversation, TOOLS))
    assert continued.partition("R1x")[0].endswith(str(served).partition("R1x")[0][-12:])
    assert continued.partition("R1x")[2] == str(served).partition("R1x")[2]
