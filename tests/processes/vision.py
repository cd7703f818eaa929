"""Tiny models of families that see, with processors made from their parts."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
import trl
from packaging.version import Version
from PIL import Image
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

_ABSENT = find_spec("torchvision") is None
_NEEDED = pytest.mark.skipif(_ABSENT, reason="its processor needs torchvision")
_NEEDED_ONCE = pytest.mark.skipif(
    _ABSENT and Version(transformers.__version__) < Version("5.23"),
    reason="its processor needs torchvision with this transformers",
)
FAMILIES: tuple[Any, ...] = (
    *("idefics3", "smolvlm", "llava_next", "qwen2_5_vl", "qwen3_vl", "gemma3"),
    pytest.param("gemma4_v5", marks=_NEEDED_ONCE),
    pytest.param("lfm2_2_5_vl", marks=_NEEDED),
)
IN_SINGLE = ("gemma3", "gemma4_v5", "lfm2_2_5_vl")
"""Families whose norms compute in single precision."""
_TEMPLATES = Path(trl.__file__).parent / "chat_templates"
_SPECIAL = re.compile(
    r"<\|[^<>|\s]{1,40}\|?>|<[a-z_]{1,30}\|>|<(?:start_of_turn|end_of_turn|end_of_utterance)>|</?s>|\[/?INST\]"
)
_OF_FAMILY: dict[str, dict[str, str]] = {
    "llava_next": {"image_token": "<image>"},
    "qwen2_5_vl": {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>"},
    "qwen3_vl": {
        "image_token": "<|image_pad|>",
        "video_token": "<|video_pad|>",
        "vision_start_token": "<|vision_start|>",
        "vision_end_token": "<|vision_end|>",
    },
    "gemma3": {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"},
    "gemma4_v5": {
        "image_token": "<|image|>",
        "boi_token": "<|image>",
        "eoi_token": "<image|>",
        "audio_token": "<|audio|>",
        "boa_token": "<|audio>",
        "eoa_token": "<audio|>",
    },
    "lfm2_2_5_vl": {
        "image_token": "<image>",
        "image_start_token": "<|image_start|>",
        "image_end_token": "<|image_end|>",
        "image_thumbnail_token": "<|img_thumbnail|>",
    },
}
_TILES = ["<fake_token_around_image>", "<image>", "<end_of_utterance>", "<global-img>"]
_TILES += [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]


def tokenizer_of(family: str) -> Any:
    """A tokenizer of letters with the family's chat template of TRL and its special tokens."""
    template = (_TEMPLATES / f"{family}.jinja").read_text(encoding="utf-8")
    named = _OF_FAMILY.get(family, {})
    tiles = _TILES if family in ("idefics3", "smolvlm") else []
    special = sorted({*_SPECIAL.findall(template), *named.values(), *tiles} - {"<pad>", "<eos>", "<bos>"})
    vocabulary = ["<pad>", "<eos>", "<bos>", *special, *map(chr, range(32, 127)), "\n", "\n\n", "\n\n\n"]
    merges = [("\n", "\n"), ("\n\n", "\n")]
    model = Tokenizer(models.BPE({token: index for index, token in enumerate(vocabulary)}, merges))
    model.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=model,
        pad_token="<pad>",
        eos_token=next(one for one in ("<|im_end|>", "<end_of_utterance>", "<eos>") if one in vocabulary),
        bos_token="<bos>",
        extra_special_tokens=named,
        chat_template=template,
        clean_up_tokenization_spaces=False,
        padding_side="left",
        name_or_path=family,
    )
    tokenizer.add_tokens(special, special_tokens=True)
    return tokenizer


def _without_others(kind: Any) -> Any:
    """The class of a processor, for images alone; a processor of videos would need torchvision."""
    return type(kind.__name__, (kind,), {"check_argument_for_proper_class": lambda self, name, given: type(given)})


def processor_of(family: str) -> Any:
    """The family's processor, for images of a few patches."""
    tokenizer = tokenizer_of(family)
    template = {"chat_template": tokenizer.chat_template}
    if family in ("idefics3", "smolvlm"):
        from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil
        from transformers.models.idefics3.processing_idefics3 import Idefics3Processor
        from transformers.models.smolvlm import processing_smolvlm
        from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

        processing_smolvlm.num2words = processing_smolvlm.num2words or str  # which reads numbers of videos
        sizes = {"size": {"longest_edge": 32}, "max_image_size": {"longest_edge": 16}}
        if family == "idefics3":
            return Idefics3Processor(Idefics3ImageProcessorPil(**sizes), tokenizer, image_seq_len=4, **template)
        kind = _without_others(processing_smolvlm.SmolVLMProcessor)
        processor = kind(SmolVLMImageProcessorPil(**sizes), tokenizer, None, image_seq_len=4, **template)
        processor.video_processor = SimpleNamespace(num_frames=1, fps=1)
        return processor
    if family == "llava_next":
        from transformers.models.llava_next.image_processing_pil_llava_next import LlavaNextImageProcessorPil
        from transformers.models.llava_next.processing_llava_next import LlavaNextProcessor

        own = LlavaNextImageProcessorPil(
            size={"shortest_edge": 16},
            crop_size={"height": 16, "width": 16},
            image_grid_pinpoints=[[16, 32], [32, 16], [32, 32]],
        )
        known = {"patch_size": 8, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
        return LlavaNextProcessor(own, tokenizer, **known, **template)
    if family in ("qwen2_5_vl", "qwen3_vl"):
        from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
        from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
        from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor

        pixels = {"shortest_edge": 8 * 8, "longest_edge": 32 * 32}
        own = Qwen2VLImageProcessorPil(patch_size=4, merge_size=2, temporal_patch_size=2, size=pixels)
        kind = _without_others(Qwen2_5_VLProcessor if family == "qwen2_5_vl" else Qwen3VLProcessor)
        return kind(own, tokenizer, None, **template)
    if family == "gemma4_v5":
        from transformers.models.gemma4.image_processing_pil_gemma4 import Gemma4ImageProcessorPil
        from transformers.models.gemma4.processing_gemma4 import Gemma4Processor

        kind, own = _without_others(Gemma4Processor), Gemma4ImageProcessorPil(patch_size=2, max_soft_tokens=70)
        return kind(None, own, tokenizer, None, **template)
    if family == "lfm2_2_5_vl":
        from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor
        from transformers.models.lfm2_vl.processing_lfm2_vl import Lfm2VlProcessor

        tiles = {"tile_size": 16, "encoder_patch_size": 4, "min_image_tokens": 1, "max_image_tokens": 4}
        own = Lfm2VlImageProcessor(**tiles, max_tiles=4, max_num_patches=16)
        return Lfm2VlProcessor(own, tokenizer, **template)
    assert family == "gemma3"
    from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
    from transformers.models.gemma3.processing_gemma3 import Gemma3Processor

    own = Gemma3ImageProcessorPil(size={"height": 16, "width": 16})
    return Gemma3Processor(own, tokenizer, image_seq_length=4, **template)


def model_of(family: str, tokenizer: Any, seed: int = 0) -> Any:
    """A model of two narrow layers for text and one for images, in float64, with random weights."""
    import transformers

    names = {
        "idefics3": ("Idefics3Config", "Idefics3ForConditionalGeneration"),
        "smolvlm": ("SmolVLMConfig", "SmolVLMForConditionalGeneration"),
        "llava_next": ("LlavaNextConfig", "LlavaNextForConditionalGeneration"),
        "qwen2_5_vl": ("Qwen2_5_VLConfig", "Qwen2_5_VLForConditionalGeneration"),
        "qwen3_vl": ("Qwen3VLConfig", "Qwen3VLForConditionalGeneration"),
        "gemma3": ("Gemma3Config", "Gemma3ForConditionalGeneration"),
        "gemma4_v5": ("Gemma4Config", "Gemma4ForConditionalGeneration"),
        "lfm2_2_5_vl": ("Lfm2VlConfig", "Lfm2VlForConditionalGeneration"),
    }
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 1024,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    seen = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    tiled = {"image_size": 16, "patch_size": 4, **seen}
    image = tokenizer.convert_tokens_to_ids(_OF_FAMILY.get(family, {}).get("image_token", "<image>"))
    options: dict[str, Any] = {"image_token_id": image}
    if family in ("idefics3", "smolvlm"):
        options |= {"text_config": {"model_type": "llama", **text}, "vision_config": tiled, "scale_factor": 2}
        options["pad_token_id"] = tokenizer.pad_token_id
    elif family == "llava_next":
        vision = {"model_type": "clip_vision_model", **tiled, "patch_size": 8, "projection_dim": 16}
        options |= {"text_config": {"model_type": "llama", **text}, "vision_config": vision}
        options["image_grid_pinpoints"] = [[16, 32], [32, 16], [32, 32]]
        options["vision_feature_layer"] = -1
    elif family == "gemma3":
        text |= {"sliding_window": 512, "query_pre_attn_scalar": 8}
        options |= {"text_config": text, "vision_config": tiled, "mm_tokens_per_image": 4}
        options["boi_token_index"], options["eoi_token_index"] = tokenizer.boi_token_id, tokenizer.eoi_token_id
    elif family == "gemma4_v5":
        text |= {"sliding_window": 512, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": len(tokenizer)}
        text |= {
            "global_head_dim": 8,
            "use_bidirectional_attention": "vision",
            "layer_types": ["sliding_attention", "full_attention"],
        }
        vision = {**seen, "num_key_value_heads": 2, "head_dim": 8, "patch_size": 2, "position_embedding_size": 256}
        options |= {
            "text_config": text,
            "vision_config": vision,
            "video_token_id": tokenizer.convert_tokens_to_ids("<|video|>"),
        }
        options |= {"boi_token_id": tokenizer.boi_token_id, "eoi_token_id": tokenizer.eoi_token_id}
    elif family == "lfm2_2_5_vl":
        text |= {"model_type": "lfm2", "layer_types": ["conv", "full_attention"], "block_ff_dim": 32}
        vision = {"model_type": "siglip2_vision_model", **seen, "patch_size": 4, "num_patches": 16}
        options |= {"text_config": text, "vision_config": vision, "projector_hidden_size": 32}
    else:
        vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
        vision |= {"patch_size": 4, "spatial_merge_size": 2, "temporal_patch_size": 2}
        if family == "qwen3_vl":
            vision |= {"deepstack_visual_indexes": [0], "num_position_embeddings": 64}
            rope = {
                "rope_type": "default",
                "mrope_section": [2, 1, 1],
                "rope_theta": 10000.0,
                "mrope_interleaved": True,
            }
        else:
            vision |= {"fullatt_block_indexes": [0], "window_size": 16}
            rope = {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 10000.0}
        options |= {"text_config": {**text, "rope_parameters": rope}, "vision_config": vision}
        options["vision_start_token_id"] = tokenizer.convert_tokens_to_ids("<|vision_start|>")
        options["video_token_id"] = tokenizer.convert_tokens_to_ids("<|video_pad|>")
    config, model = (getattr(transformers, name) for name in names[family])
    torch.manual_seed(seed)
    made = model._from_config(config(**options), attn_implementation="sdpa").double()
    if family == "gemma3":  # which begins without any way from images to text
        torch.nn.init.normal_(made.model.multi_modal_projector.mm_input_projection_weight, std=0.1)
    return made


def picture(width: int, height: int, seed: int = 0) -> Any:
    """An image of random pixels."""
    made = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (height, width, 3), generator=made, dtype=torch.uint8)
    return Image.fromarray(pixels.numpy())
