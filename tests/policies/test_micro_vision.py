"""Micro policies that see, and their processors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image as PIL
from transformers import AutoModelForImageTextToText, AutoProcessor

from hf_credit import make
from hf_credit.content import Image
from hf_credit.policies.micro import MicroConfig, tokenizer_of
from hf_credit.policies.micro_vision import MOST_PIXELS, build_vision_model, processor_of
from hf_credit.rollouts import Chat, EnvironmentInteraction
from hf_credit.rollouts.media import images_of
from hf_credit.rollouts.rendering import IMAGE_TOKEN
from hf_credit.rollouts.scripts import random_texts

SUDOKU = make("sudoku", size=4, blanks=3, notation="picture")
INTERACTION = EnvironmentInteraction(SUDOKU, history="current", instructions=False)
SMALL = MicroConfig(hidden_size=16, layers=1, heads=2)


@pytest.fixture(scope="module")
def processor() -> Any:
    return processor_of(tokenizer_of(random_texts(SUDOKU, 4), images=True), 32)


def test_a_board_is_as_many_tokens_as_it_has_cells(processor: Any) -> None:
    chat = Chat(processor)
    (request,) = INTERACTION.pending(INTERACTION.start({}, 3))
    context = chat.context(request.messages)
    assert chat.tokenizer.decode(list(context)) == f"<|user|>{IMAGE_TOKEN * 16}<|end|><|assistant|>"
    assert images_of(context) == list(request.messages[0]["content"])


def test_its_tokenizer_alone_reads_text_and_refuses_images(processor: Any) -> None:
    chat = Chat(processor.tokenizer)
    messages = [{"role": "user", "content": "b3=2"}]
    assert chat.context(messages) == Chat(processor).context(messages)
    with pytest.raises(ValueError, match="a message must be text"):
        chat.context(INTERACTION.pending(INTERACTION.start({}, 3))[0].messages)


def test_a_patch_has_the_pixels_of_a_cell_unchanged(processor: Any) -> None:
    (image,) = SUDOKU.observe(SUDOKU.initial_state(SUDOKU.sample_task(3), 3))
    seen = processor(images=[image.pil()], text=[IMAGE_TOKEN], return_tensors="pt")["pixel_values"]
    assert seen.shape == (1, 3, 32, 32)
    assert torch.equal(seen[0, 0] * 127.5, torch.tensor(list(image.pil().convert("L").tobytes())).view(32, 32).float())


def test_the_vocabulary_has_no_names_of_images() -> None:
    (image,) = SUDOKU.observe(SUDOKU.initial_state(SUDOKU.sample_task(0), 0))
    assert isinstance(image, Image)
    assert str(image).startswith("[image 32x32 ")
    assert not any("32x32" in text or "[image" in text for text in random_texts(SUDOKU, 4))


def test_a_saved_policy_is_loaded_with_its_processor_and_reads_the_same(processor: Any, tmp_path: Path) -> None:
    model = build_vision_model(processor, SMALL).eval()
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    loaded = AutoProcessor.from_pretrained(tmp_path), AutoModelForImageTextToText.from_pretrained(tmp_path).eval()
    (request,) = INTERACTION.pending(INTERACTION.start({}, 3))
    logits = []
    for own, network in ((processor, model), loaded):
        chat = Chat(own)
        ids = torch.tensor([context := chat.context(request.messages)])
        others = chat.media.inputs(network, ids, chat.media.of_rows([(context, ())])["media"])
        with torch.no_grad():
            logits.append(network(input_ids=ids, **others).logits)
    assert torch.equal(*logits)


def test_its_seed_decides_its_weights_and_leaves_the_random_generator_alone(processor: Any) -> None:
    drawn = torch.get_rng_state()
    models = [build_vision_model(processor, MicroConfig(**{**vars(SMALL), "seed": seed})) for seed in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), drawn)
    first, same, other = (model.model.vision_tower.embeddings.position_embedding.weight for model in models)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("side", "shown"), [(1, 8), (30, 32), (33, 40), (4000, MOST_PIXELS)])
def test_images_of_any_size_become_squares_of_whole_patches(side: int, shown: int) -> None:
    processor = processor_of(tokenizer_of(["a"], images=True), side)
    made = processor(images=[PIL.new("RGB", (side, 3))], text=[IMAGE_TOKEN], return_tensors="pt")
    assert made["pixel_values"].shape == (1, 3, shown, shown)
    assert made["input_ids"].shape == (1, (shown // 8) ** 2)
