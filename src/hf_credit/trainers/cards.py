"""The model card that TRL writes, true of what was trained here."""

from __future__ import annotations

import re
from pathlib import Path

_FINE_TUNED = "This model is a fine-tuned version of [None](https://huggingface.co/None)"
_QUICK_START = re.compile(r"^## Quick start\n.*?(?=^## )", re.MULTILINE | re.DOTALL)


def mend_card(path: Path, hub_model_id: str | None) -> None:
    """Rewrites what TRL says of a model: how to play it, and where one is from that came from a folder, of which TRL
    says that the Hub calls it None.

    Args:
        path: the card.
        hub_model_id: where it is pushed to, if it is.
    """
    text = path.read_text(encoding="utf-8")
    text = text.replace(_FINE_TUNED, "This model was trained from a policy that is not on the Hub")
    text = _QUICK_START.sub(_quick_start(hub_model_id or "FOLDER"), text)
    path.write_text(text.replace("It has been trained using [TRL]", "It has been trained with hf-credit and [TRL]"))


def _quick_start(model: str) -> str:
    return f"""## Quick start

Play held-out tasks of what it was trained on. `hf_credit_task.json` beside the weights has the task, how it is shown
and the sampling.

```bash
pip install hf-credit
hf-credit evaluate {model} --episodes 64
```

"""
