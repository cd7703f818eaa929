"""Imported by the process that `launched` copies: what each copy would work out for itself."""

from __future__ import annotations

from transformers.conversion_mapping import get_checkpoint_conversion_mapping

get_checkpoint_conversion_mapping("qwen3")  # transformers compiles hundreds of patterns for the first model it loads
