"""Episodes with images through TRL's own loop and through ours: the same tokens, pixels and log-probabilities."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from small_runs import ON_A_PROCESSOR
from trl import GRPOConfig, GRPOTrainer
from vision import model_of, picture, processor_of

from hf_credit import CreditConfig, CreditTrainer, make, methods
from hf_credit.content import content_of
from hf_credit.rollouts import Chat, Context, EnvironmentInteraction
from hf_credit.rollouts.conversations import Conversation

SHOWN, FOUND = (picture(24, 16), picture(32, 40, 1)), picture(64, 64, 2)
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "b"}}\n</tool_call>'


class Box:
    """Shows an image at the start, and another one when it is looked into."""

    def reset(self, number: int, **row: Any) -> list[dict[str, Any]]:
        return [{"type": "image", "image": SHOWN[number]}, {"type": "text", "text": "It is shut."}]

    def look(self, at: str) -> list[dict[str, Any]]:
        """Looks.

        Args:
            at: where.
        """
        return [{"type": "image", "image": FOUND}, {"type": "text", "text": f"in {at}"}]


ROWS = [{"prompt": [{"role": "user", "content": "What is in it?"}], "number": at, "seed": at} for at in range(2)]
numbers = itertools.count()


def counted(completions: list[Any], **columns: Any) -> list[float]:
    """No two episodes have the same reward, so that all of them have credit."""
    return [float(next(numbers)) for _ in completions]


def scripted(chat: Chat, interaction: EnvironmentInteraction[Any, Any], row: dict[str, Any]) -> list[Context]:
    """The contexts and replies of an episode that looks once, one after another."""
    (request,) = interaction.pending(interaction.start(row, 0))
    first = chat.context(request.messages, tools=request.tools)
    called = chat.reply_ids(CALL, first, request.tools)
    conversation = Conversation.after(request, CALL, first + called)
    answer = {"role": "tool", "content": content_of(Box().look("b"))}
    second = chat.context([*conversation.messages, answer], conversation, request.tools)
    return [first, called, second[len(first + called) :], chat.reply_ids("ink", second, request.tools)]


def teach(model: Any, chat: Chat, episodes: list[list[Context]]) -> None:
    """Has the model learn the replies of episodes by heart."""
    batches = []
    for parts in episodes:
        ids = torch.tensor([list(itertools.chain(*parts))])
        said = torch.tensor([index % 2 for index, part in enumerate(parts) for _ in part], dtype=torch.bool)
        media = chat.media.of_rows([(parts[0], parts[2])])["media"]
        batches.append(({"input_ids": ids, **chat.media.inputs(model, ids, media)}, ids[0].masked_fill(~said, -100)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for inputs, labels in batches * 75:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(**inputs).logits[0, :-1], labels[1:]).backward()
        optimizer.step()


def test_an_environment_with_images_has_the_rows_that_trl_has(tmp_path: Path) -> None:
    processor = processor_of("qwen3_vl")
    chat, model = Chat(processor), model_of("qwen3_vl", processor.tokenizer)
    world = make("tools", factory=Box, columns=["prompt", "number"], reward_funcs=[counted], turns=3)
    interaction = EnvironmentInteraction(world, instructions=False)
    episodes = [scripted(chat, interaction, row) for row in ROWS]
    teach(model, chat, episodes)
    # The likeliest tokens, so that both play the same; two passes over them, so that both keep old log-probabilities.
    alike = {**ON_A_PROCESSOR, "max_steps": 1, "num_iterations": 2, "top_k": 1}
    of_trl = GRPOConfig(
        str(tmp_path / "trl"), **alike, per_device_train_batch_size=4, num_generations=2, max_completion_length=400
    )
    rows = Dataset.from_list(ROWS)
    trl: Any = GRPOTrainer(model, [counted], of_trl, rows, processing_class=processor, environment_factory=Box)
    theirs = trl._generate_and_score_completions([row for row in ROWS for _ in range(2)])
    own = CreditConfig(
        str(tmp_path / "own"), **alike, per_device_train_batch_size=2, instances_per_update=2, max_completion_length=99
    )
    method = methods.make("rloo", group_size=2)
    trainer: Any = CreditTrainer(model, interaction, own, rows, method=method, processing_class=processor)
    ours = trainer._generate_and_score_completions(ROWS)

    assert ours["prompt_ids"][0, -len(episodes[0][0]) :].tolist() == list(episodes[0][0])
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask"):
        assert torch.equal(ours[name], theirs[name])
    assert torch.equal(ours["tool_mask"], theirs["tool_mask"] * theirs["completion_mask"])
    ids = torch.cat([ours["prompt_ids"], ours["completion_ids"]], dim=1)
    pixels = trainer.chat.media.inputs(model, ids, ours["media"])
    assert [len(one) for one in ours["media"]] == theirs["num_images"] == [2] * 4
    for name in ("pixel_values", "image_grid_thw", "mm_token_type_ids"):
        assert torch.equal(pixels[name].to(theirs[name].dtype), theirs[name])
    theirs_of_replies = theirs["old_per_token_logps"] * ours["tool_mask"]
    torch.testing.assert_close(ours["old_per_token_logps"], theirs_of_replies, rtol=1e-5, atol=1e-5)
    assert (theirs_of_replies != 0).sum() > 4 * 40
