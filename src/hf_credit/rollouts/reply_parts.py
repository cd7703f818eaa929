"""The parts of a reply, read from its text or, in a form that only the tokenizer knows, from its tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hf_credit.replies import MOST_CHARACTERS, Call, ParsedReply, listed_calls
from hf_credit.rollouts import rendering
from hf_credit.rollouts.interaction import said_in

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_ANCHOR_TOKENS = 256  # at the end of a context, enough to show how the template opens the reply


def read_tokens(
    tokenizer: PreTrainedTokenizerBase | None,
    text: str,
    ids: Sequence[int] = (),
    context: Sequence[int] = (),
    tools: Sequence[Mapping[str, Any]] = (),
) -> ParsedReply:
    """Returns the parts of a reply: those of its text, or, in a form that only the tokenizer knows, of its tokens.

    Args:
        tokenizer: its `response_template` is asked where the text has neither calls nor thoughts.
        text: the text of the reply, as from `Chat.texts`.
        ids, context, tools: as for `Chat.reply`.
    """
    said = said_in(text, tools)
    if said.made or said.thoughts or getattr(tokenizer, "response_template", None) is None:
        return said
    assert tokenizer is not None
    try:
        reply, prefix = (str(tokenizer.decode(list(some))) for some in (ids, context[-_ANCHOR_TOKENS:]))
        parsed = rendering.parse(tokenizer, reply, prefix, tools)
    except (ValueError, TypeError, LookupError):
        return said
    except (TimeoutError, MemoryError) as error:
        return dataclasses.replace(said, made=(Call("", {}, f"reading it took {error}", text[:MOST_CHARACTERS]),))
    made, thoughts = listed_calls(parsed.get("tool_calls")), parsed.get("reasoning_content") or parsed.get("thinking")
    content = str(parsed.get("content") or "").removesuffix(str(tokenizer.eos_token)).strip()
    if not (made or thoughts):
        return said
    return ParsedReply(thoughts=str(thoughts or ""), spoken=content, content=content, made=made)
