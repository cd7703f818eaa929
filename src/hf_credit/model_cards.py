"""What a model's card says of names, which whoever reads it must find: its own, its base model's, a dataset's."""

from __future__ import annotations

import re
from pathlib import Path

_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_CACHED = re.compile(r"/(?:model|dataset)s--([\w.-]+)/snapshots/(\w+)/?$")  # where a download of the Hub's client lies
_NOT_THERE = "was trained from a policy that is not on the Hub"
_ORIGIN = re.compile(rf"^This model (?:is a fine-tuned version of \[[^\]\n]*\]\([^)\s]*\)|{_NOT_THERE})", re.MULTILINE)
_QUICK_START = re.compile(r"^## Quick start\n.*?(?=^## )", re.MULTILINE | re.DOTALL)
_EMPTY = "# Model Card for Model ID"  # PEFT's, of questions


def hub_id(name: object) -> tuple[str, str | None] | None:
    """Returns the id that a name or a folder of the Hub's cache has on the Hub, and its commit, if it is known; `None`
    for any other folder or file of this machine, and for what can be no id."""
    text = str(name or "")
    if cached := _CACHED.search(Path(text).as_posix()):
        return cached[1].replace("--", "/"), cached[2]
    return (text, None) if _ID.fullmatch(text) and not Path(text).exists() else None


def corrected(card: str, name: str, base: str | None, command: str | None, url: str) -> str:
    """Returns a card of TRL or PEFT with names that exist, and with what a policy of this library is for.

    Args:
        card: the text without metadata.
        name: the title of a card that has none.
        base: the id of the model that it was trained from; `None` if no reader has it.
        command: plays held-out tasks with the policy; `None` if its task is not saved with it.
        url: what the Hub has before an id.
    """
    if _EMPTY in card:
        return f"# {name}\n"
    origin = f"is a fine-tuned version of [{base}]({url}{base})" if base else _NOT_THERE
    card = _ORIGIN.sub(lambda _: f"This model {origin}", card)
    card = _QUICK_START.sub(lambda _: "" if command is None else _PLAYED.format(command), card)
    return card.replace("It has been trained using [TRL]", "It has been trained with hf-credit and [TRL]")


_PLAYED = """## Quick start

Play held-out tasks of the task that the model was trained on. `hf_credit_task.json` next to the weights has the task,
its rendering and the sampling.

```bash
{}
```

"""
