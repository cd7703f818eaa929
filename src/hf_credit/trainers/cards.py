"""The model card that TRL writes, true of what was trained here."""

from __future__ import annotations

from pathlib import Path

_FINE_TUNED = "This model is a fine-tuned version of [None](https://huggingface.co/None)"


def mend_card(path: Path, hub_model_id: str | None) -> None:
    """Rewrites what TRL says of a model from a folder, which it takes for one that the Hub calls None.

    Args:
        path: the card.
        hub_model_id: where it is pushed to, if it is.
    """
    text = path.read_text(encoding="utf-8")
    text = text.replace(_FINE_TUNED, "This model was trained from a policy that is not on the Hub")
    if hub_model_id is None:
        text = text.replace('model="None"', 'model="the folder of this model"')
    path.write_text(text.replace("It has been trained using [TRL]", "It has been trained with hf-credit and [TRL]"))
