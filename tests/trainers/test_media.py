"""Rows with images: batched as alone, and as TRL reads them; the policy learns from them."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from small_runs import ON_A_PROCESSOR, SAMPLED
from transformers.utils import get_json_schema
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import add_fused_lm_head
from vision import FAMILIES, IN_SINGLE, model_of, picture, processor_of, tokenizer_of

from hf_credit import CreditConfig, CreditTrainer, methods
from hf_credit.content import Content, Image, content_of
from hf_credit.environments import Transition
from hf_credit.environments.sudoku import Sudoku, SudokuState
from hf_credit.loading import load_policy, load_processing_class
from hf_credit.policies.generation import reply_logprobs, sampler
from hf_credit.rollouts import Chat, EnvironmentInteraction, Request, Row
from hf_credit.rollouts.batches import map_micro_batches, pad_rows
from hf_credit.rollouts.conversations import Conversation
from hf_credit.rollouts.dry_run import DryRunError
from hf_credit.rollouts.media import images_of
from hf_credit.trainers.arguments import prepare
from hf_credit.trainers.recording import completion_columns
from hf_credit.trainers.scores import log_probs, pack, separate, why_apart

A, B, C = picture(24, 16), picture(64, 64, 1), picture(16, 40, 2)
EXACT = {"rtol": 1e-9, "atol": 1e-9}


def user(*parts: Any) -> dict[str, Any]:
    return {"role": "user", "content": content_of(list(parts))}


def rows_of(chat: Chat) -> list[Row]:
    """One row without an image, one with one, two that share it, one with two after a reply."""
    rows = []
    for first, second, said in (
        (["text"], None, "no"),
        ([A, "what?"], None, "yes"),
        (["look", B, "what is it?"], None, "a"),
        (["look", B, "what is it?"], None, "bcd"),
        (["x", A], [C, "and", B], "ok"),
    ):
        context = chat.context([user(*first)])
        ids, mask = context + chat.reply_ids(said), [1] * len(chat.reply_ids(said))
        if second is not None:
            conversation = Conversation.after(Request(role="r", messages=[user(*first)]), said, ids)
            longer = chat.context([*conversation.messages, user(*second)], conversation)
            mask += [0] * (len(longer) - len(ids)) + [1] * len(chat.reply_ids("z"))
            ids = longer + chat.reply_ids("z")
        rows.append(
            Row(
                prompt_ids=context,
                completion_ids=ids[len(context) :],
                loss_mask=tuple(mask),
                advantages=tuple(0.3 * place - 0.7 for place in range(len(mask))),
                logprobs=None,
            )
        )
    return rows


def loss_and_gradient(
    chat: Chat, model: Any, batches: list[list[Row]], packed: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum over tokens of A log pi, and its gradient, of rows read in these batches, each packed or not."""
    model.zero_grad()
    loss = torch.zeros((), dtype=torch.float64)
    for rows in batches:
        batch = pad_rows(rows, chat.tokenizer.pad_token_id)
        ids, mask = (torch.cat([batch[f"prompt_{name}"], batch[f"completion_{name}"]], 1) for name in ("ids", "mask"))
        media = chat.media.of_rows((row.prompt_ids, row.completion_ids) for row in rows).get("media")
        scored = batch["tool_mask"].bool()
        asked = ids, mask, scored, model, chat.media, media
        sequences = pack(*asked, runs=[(0, len(rows))]) if packed else separate(*asked)
        assert sequences is not None
        logprobs = model(**sequences.inputs).logits.log_softmax(-1)  # TRL's head would round to single precision
        found = logprobs.gather(-1, sequences.labels.clamp(min=0)[..., None])[..., 0][sequences.places]
        term = (found * scored * batch["advantages"]).sum()
        term.backward()
        loss += term.detach()
    return loss, torch.cat([one.grad.flatten() for one in model.parameters() if one.grad is not None])


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_with_images_have_the_loss_and_gradient_of_one_row_at_a_time(family: str) -> None:
    chat = Chat(processor_of(family))
    model = model_of(family, chat.tokenizer)
    rows = rows_of(chat)
    assert [[len(images_of(part)) for part in (row.prompt_ids, row.completion_ids)] for row in rows] == [
        [0, 0],
        [1, 0],
        [1, 0],
        [1, 0],
        [1, 2],
    ]
    loss, gradient = loss_and_gradient(chat, model, [[row] for row in rows])
    for batches in ([rows], [rows[3:], rows[:3]]):
        together, of_all = loss_and_gradient(chat, model, batches)
        torch.testing.assert_close(together, loss, **EXACT)
        close = {"rtol": 1e-4, "atol": 1e-6} if family in IN_SINGLE else EXACT
        torch.testing.assert_close(of_all, gradient, **close)
    assert gradient.abs().max() > 1e-3
    seen = [one.grad for name, one in model.named_parameters() if "vision" in name or "visual" in name]
    assert any(one is not None and one.abs().max() > 0 for one in seen)


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_that_begin_alike_share_their_images_where_that_is_exact(family: str) -> None:
    chat, accelerator = Chat(processor_of(family)), Accelerator(cpu=True)
    model, trained = (model_of(family, chat.tokenizer).eval() for _ in range(2))
    add_fused_lm_head(trained, outputs=("log_probs", "entropy"))
    apart = why_apart(trained, trained, accelerator, chat.media)
    assert ("it needs full attention by" in apart) == (family in IN_SINGLE)
    if apart:
        return
    rows = rows_of(chat)
    # As another row but for its second token of text after the image, its first one, its image, and a second image.
    for parts in ([A, "wham?"], [A, "?"], [C, "what?"], [A, C, "what?"], [A, A], [A, A, "?"]):
        rows.append(Row.without_credit(chat.context([user(*parts)]), chat.reply_ids("yes")))
        rows[-1] = replace(rows[-1], advantages=(0.5,) * len(rows[-1].completion_ids))
    rows = [rows[0], *rows[5:], *rows[1:5]]
    loss, gradient = loss_and_gradient(chat, model, [[row] for row in rows])
    for batches in ([rows], [rows[3:], rows[:3]]):
        together, of_all = loss_and_gradient(chat, model, batches, packed=True)
        torch.testing.assert_close(together, loss, **EXACT)
        # Norms compute in single precision, in which the gradients of rows are then added up.
        torch.testing.assert_close(of_all, gradient, rtol=1e-4, atol=1e-6)


def test_images_stay_with_their_rows_in_micro_batches() -> None:
    chat = Chat(processor_of("gemma3"))
    rows = rows_of(chat)
    batch: dict[str, Any] = pad_rows(rows, chat.tokenizer.pad_token_id)
    batch |= chat.media.of_rows((row.prompt_ids, row.completion_ids) for row in rows)
    counts = {row.completion_ids[0]: len(images_of(row.prompt_ids + row.completion_ids)) for row in rows}

    def compute(part: dict[str, Any]) -> torch.Tensor:
        assert [len(one) for one in part["media"]] == [
            counts[first] for first in part["completion_ids"][:, 0].tolist()
        ]
        return part["completion_ids"].float()

    found = map_micro_batches(batch, 2, compute)
    assert torch.equal(found, (batch["completion_ids"] * batch["completion_mask"]).float())


class Pictured(Sudoku):
    """Each observation is an image that its text determines, and any reply is a legal move."""

    def observe(self, state: SudokuState) -> Content:
        number = zlib.crc32(str(super().observe(state)).encode())
        return content_of(["look", picture(16 + 8 * (number % 2), 16, number), "move"])

    def step(self, state: SudokuState, action: str) -> Transition[SudokuState]:
        return super().step(state, self.legal_actions(state)[0])


def trained(folder: Path, family: str, **settings: Any) -> tuple[CreditTrainer, list[Any]]:
    """One update of episodes of two turns."""
    processor = processor_of(family)
    interaction = EnvironmentInteraction(Pictured(), instructions=False, max_turns=2)
    interaction.outcome = lambda state: zlib.crc32(repr(state.transcript).encode()) % 7 / 7  # type: ignore[method-assign]
    own = {**ON_A_PROCESSOR, **SAMPLED, "max_steps": 1, "instances_per_update": 2, "per_device_train_batch_size": 2}
    args = CreditConfig(str(folder), **{**own, "max_completion_length": 3, "learning_rate": 1e-2, **settings})
    adapter = LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False, lora_dropout=0.0)
    model = model_of(family, processor.tokenizer)
    trainer = CreditTrainer(model, interaction, args, method="rloo", processing_class=processor, peft_config=adapter)
    collected = []
    collect = trainer.collect

    def keeping(rows: Any) -> Any:
        collected.append(collect(rows))
        return collected[-1]

    trainer.collect = keeping  # type: ignore[method-assign]
    trainer.train()
    return trainer, collected[0].episodes


def test_a_policy_with_adapters_learns_the_same_from_images_with_gradient_checkpointing(tmp_path: Path) -> None:
    logs = []
    for checkpointing in (False, True):
        folder = tmp_path / str(checkpointing)
        trainer, episodes = trained(folder, "qwen3_vl", beta=0.1, gradient_checkpointing=checkpointing)
        assert [[len(images_of(one.context_ids)) for one in episode.decisions] for episode in episodes] == [
            [1, 2]
        ] * len(episodes)
        assert {episode.error for episode in episodes} == {None}
        logs.append({name: trainer.state.log_history[0][name] for name in ("loss", "grad_norm", "kl", "entropy")})
    assert logs[0]["grad_norm"] > 0
    assert logs[1] == pytest.approx(logs[0], rel=1e-3)


@pytest.mark.parametrize("wanted", [True, False])
def test_the_table_of_completions_has_the_images_that_each_decision_saw_first(tmp_path: Path, wanted: bool) -> None:
    trainer, episodes = trained(tmp_path, "gemma3", log_completions=True, log_multimodal=wanted)
    assert completion_columns([])["images"] == []
    shown = [[Image.of(one) for one in row] for row in trainer._logs["images"]]
    last = [images_of(one.context_ids)[-1:] for episode in episodes for one in episode.decisions]
    assert shown == (last if wanted else [])
    assert len(trainer._logs["prompt"]) == len(last)


def look(at: str) -> list[dict[str, Any]]:
    """Looks.

    Args:
        at: Where.
    """
    return [{"type": "image", "image": B}, {"type": "text", "text": f"the {at}"}]


def test_a_conversation_is_read_as_by_trl_with_a_tool_that_returns_an_image(tmp_path: Path) -> None:
    processor = processor_of("qwen3_vl")
    model = model_of("qwen3_vl", processor.tokenizer)
    first = [{"role": "user", "content": [{"type": "image", "image": A}, {"type": "text", "text": "Q"}]}]
    own = {**ON_A_PROCESSOR, "max_steps": 1, "per_device_train_batch_size": 2, "num_generations": 2}
    trl: Any = GRPOTrainer(
        model,
        lambda completions, **columns: [0.0] * len(completions),
        GRPOConfig(str(tmp_path), **own),
        Dataset.from_dict({"prompt": [[{"role": "user", "content": "?"}]] * 2}),
        processing_class=processor,
        tools=[look],
    )
    chat = Chat(processor)
    tools = chat.telling_of([get_json_schema(look)]).tools
    (prompt,), images, _ = trl._tokenize_prompts([first])
    assert images == [[A]]
    ours = [{"role": "user", "content": content_of(first[0]["content"])}]
    context = chat.context(ours, tools=tools)
    assert list(context) == prompt
    said = '<tool_call>\n{"name": "look", "arguments": {"at": "box"}}\n</tool_call>'
    reply = chat.reply_ids(said, context, tools)
    message = {"role": "tool", "name": "look", "content": look("box")}
    suffix = trl._get_tool_suffix_ids([message])
    conversation = Conversation.after(Request(role="r", messages=ours, tools=tools), said, context + reply)
    answer = {"role": "tool", "content": content_of(look("box"))}
    longer = chat.context([*conversation.messages, answer], conversation, tools)
    assert list(longer) == [*prompt, *reply, *suffix]
    assert images_of(longer) == list(map(Image.of, (A, B)))

    ids = torch.tensor([[*longer, *chat.reply_ids("ok")]])
    mask, kept = torch.ones_like(ids), ids.shape[1] - len(context)
    pixels = dict(processor.image_processor(images=[A, B], return_tensors="pt"))
    types = (ids == processor.image_token_id).long()
    with torch.no_grad():
        theirs, entropy, _ = trl._get_per_token_logps_and_entropies(
            model, ids, mask, kept, compute_entropy=True, num_images=[2], mm_token_type_ids=types, **pixels
        )
        scored = torch.ones(1, kept, dtype=torch.bool)
        shown = [[image.png for image in images_of(longer)]]
        others = chat.media.inputs(model, ids, shown)
        assert all(torch.equal(others[name], value) for name, value in pixels.items())
        scores = log_probs(model, model, separate(ids, mask, scored, model, chat.media, shown), scored)
    torch.testing.assert_close(scores.logprobs, theirs, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(scores.entropy, entropy, rtol=1e-6, atol=1e-6)


def test_a_sampler_and_the_scores_of_its_replies_read_images() -> None:
    processor = processor_of("gemma3")
    model = model_of("gemma3", processor.tokenizer)
    media = Chat(processor).media
    contexts = [row.prompt_ids for row in rows_of(Chat(processor))[:3]]
    settings = {"max_new_tokens": 4, "temperature": 1.0, "logprobs": True}
    own = sampler(model, processor, **settings)
    torch.manual_seed(0)
    for _ in range(2):  # also with a cache of the row of text
        replies = own(contexts)
        assert all(len(one.ids) > 0 and not set(one.ids) & set(media.unsampled) for one in replies)
        pairs = [(context, one.ids) for context, one in zip(contexts, replies, strict=True)]
        alone = [reply_logprobs(model, [one], media=media)[0] for one in pairs]
        for scored in (reply_logprobs(model, pairs, media=media), alone):
            for values, reply in zip(scored, replies, strict=True):
                assert values == pytest.approx(reply.logprobs, abs=0.02)  # the sampler leaves tokens of images out


def test_a_method_with_a_critic_refuses_images_before_it_trains(tmp_path: Path, caplog: Any) -> None:
    processor = processor_of("gemma3")
    model, args = model_of("gemma3", processor.tokenizer), CreditConfig(str(tmp_path), **ON_A_PROCESSOR, max_steps=1)
    interaction = EnvironmentInteraction(Pictured(), instructions=False, max_turns=2)
    with pytest.raises(DryRunError, match=r"a message must be text or parts of text, got '\[image "):
        CreditTrainer(model, interaction, args, method="ppo", processing_class=processor)
    assert "a critic reads text alone here, so that a message with an image ends its episode" in caplog.text


@pytest.mark.parametrize("seam", [{"use_vllm": True}, {}])
def test_what_samples_by_vllm_refuses_images_before_it_trains(seam: dict[str, Any], caplog: Any) -> None:
    interaction = EnvironmentInteraction(Pictured(), instructions=False, max_turns=2)
    trainer = SimpleNamespace(method=methods.make("rloo"))
    given: dict[str, Any] = {"chat_template_kwargs": None, "generation_batch_size": 2, "starts": None, **seam}
    rows, args = interaction.tasks("train", 2), SimpleNamespace(**given)  # asynchronous ones have no use_vllm
    with pytest.raises(DryRunError, match=r"a message must be text or parts of text, got '\[image "):
        prepare(trainer, None, interaction, args, rows, rows, processor_of("gemma3"), None)
    assert "vLLM reads text alone here, so that a message with an image ends its episode" in caplog.text


@pytest.mark.skipif(find_spec("torchvision") is not None, reason="its processor loads")
def test_a_processor_that_lacks_a_package_is_refused_in_a_sentence(tmp_path: Path) -> None:
    tokenizer_of("qwen3_vl").save_pretrained(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "lfm2_vl", "vision_config": {}}))
    kinds = {"image_processor_type": "Lfm2VlImageProcessor", "processor_class": "Lfm2VlProcessor"}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(kinds))
    with pytest.raises(
        ValueError, match=r"^the processor of .* must load, got .* torchvision.*; give it what it lacks"
    ):
        load_processing_class(tmp_path)


def test_an_adapter_of_a_model_that_sees_is_loaded_with_its_processor(tmp_path: Path) -> None:
    processor = processor_of("gemma3")
    model = model_of("gemma3", processor.tokenizer)
    model.save_pretrained(tmp_path / "base")
    processor.save_pretrained(tmp_path / "base")
    model.name_or_path = str(tmp_path / "base")
    get_peft_model(model, LoraConfig(target_modules=["q_proj"])).save_pretrained(tmp_path / "adapter")
    processor.save_pretrained(tmp_path / "adapter")
    network, loaded = load_policy(str(tmp_path / "adapter"))
    assert type(loaded) is type(processor)
    assert type(network).__name__ == "Gemma3ForConditionalGeneration"
    seen = Chat(loaded).context([{"role": "user", "content": content_of([Image.of(picture(8, 8))])}])
    assert len(images_of(seen)) == 1
