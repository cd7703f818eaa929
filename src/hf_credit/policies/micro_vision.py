"""Micro policies that see: LLaVA with a micro policy for text and one layer of SigLIP, and their processor."""

from __future__ import annotations

import math

import torch
from transformers import PreTrainedTokenizerFast
from transformers.models.llava.configuration_llava import LlavaConfig
from transformers.models.llava.modeling_llava import LlavaForConditionalGeneration
from transformers.models.llava.processing_llava import LlavaProcessor
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from hf_credit.environments.board_pictures import CELL
from hf_credit.policies.micro import MicroConfig, text_config
from hf_credit.rollouts.rendering import IMAGE_TOKEN

MOST_PIXELS = 16 * CELL
"""Of a side of an image, as the model sees it."""


def processor_of(tokenizer: PreTrainedTokenizerFast, side: int) -> LlavaProcessor:
    """A processor that makes a square of each image; a patch, the pixels of one token, is a cell of a drawn board.

    Args:
        tokenizer: of `hf_credit.policies.micro.tokenizer_of`, for images.
        side: the longer side of the images in pixels; larger ones are reduced to `MOST_PIXELS`.
    """
    side = min(CELL * math.ceil(side / CELL), MOST_PIXELS)
    return LlavaProcessor(
        # Black is 0: a constant in all patches would be louder than what differs.
        SiglipImageProcessorPil(size={"height": side, "width": side}, image_mean=[0.0] * 3, image_std=[0.5] * 3),
        tokenizer,
        patch_size=CELL,
        vision_feature_select_strategy="full",
        image_token=IMAGE_TOKEN,
        chat_template=tokenizer.chat_template,
    )


def build_vision_model(processor: LlavaProcessor, config: MicroConfig) -> LlavaForConditionalGeneration:
    """A model with random weights in float32, as `hf_credit.policies.micro.build_model`, for images of a processor."""
    side = processor.image_processor.size["height"]
    text = text_config(processor.tokenizer, config)
    shared = {name: getattr(text, name) for name in ("hidden_size", "intermediate_size", "num_attention_heads")}
    whole = LlavaConfig(
        vision_config=SiglipVisionConfig(
            **shared, num_hidden_layers=1, image_size=side, patch_size=CELL, vision_use_head=False
        ),
        text_config=text,
        image_token_index=processor.image_token_id,
        image_seq_length=(side // CELL) ** 2,
        vision_feature_select_strategy="full",
        vision_feature_layer=-1,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(config.seed)
        model = LlavaForConditionalGeneration(whole)
        with torch.no_grad():  # the default is small next to the pixels, and places would be learned late
            model.model.vision_tower.embeddings.position_embedding.weight.mul_(8)
    return model
