"""Corrects the model card that TRL writes."""

from __future__ import annotations

import re
from pathlib import Path

from hf_credit.files import write

_FINE_TUNED = "This model is a fine-tuned version of [None](https://huggingface.co/None)"
_QUICK_START = re.compile(r"^## Quick start\n.*?(?=^## )", re.MULTILINE | re.DOTALL)


def correct_card(path: Path, hub_model_id: str | None) -> None:
    """Corrects the quick start of a card, and the origin of a model from a folder, which TRL links to "None"."""
    text = path.read_text(encoding="utf-8")
    text = text.replace(_FINE_TUNED, "This model was trained from a policy that is not on the Hub")
    text = _QUICK_START.sub(_quick_start(hub_model_id or "FOLDER"), text)
    write(path, text.replace("It has been trained using [TRL]", "It has been trained with hf-credit and [TRL]"))


def _quick_start(model: str) -> str:
    return f"""## Quick start

Play held-out tasks of the task that the model was trained on. `hf_credit_task.json` beside the weights has the task,
its rendering and the sampling.

```bash
pip install hf-credit
hf-credit evaluate {model} --episodes 64
```

"""
