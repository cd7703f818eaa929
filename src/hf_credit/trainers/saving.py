"""What is saved beside the weights of a policy: its task, rendering and method, and the card that TRL writes."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

from hf_credit.files import write
from hf_credit.methods import Method
from hf_credit.rollouts import Interaction
from hf_credit.tasks import TASK_FILE, TaskSpec

logger = logging.getLogger(__name__)

_FINE_TUNED = "This model is a fine-tuned version of [None](https://huggingface.co/None)"
_QUICK_START = re.compile(r"^## Quick start\n.*?(?=^## )", re.MULTILINE | re.DOTALL)


def task_spec(interaction: Interaction[Any], method: Method, args: Any) -> TaskSpec:
    """Describes the evaluation's task, its rendering, the sampling and the method, for evaluation and diagnosis.

    Raises:
        ValueError: the Interaction has no spec from which it can be rebuilt.
    """
    try:
        described = method.spec()
    except ValueError as error:
        logger.warning("saved the policy without its method, so diagnosis needs its name: %s", error)
        described = None
    return TaskSpec.of(
        interaction,
        chat_template_kwargs=args.chat_template_kwargs or {},
        sampling=args.sampling(),
        method=described,
        critic_model=args.critic_model if method.critics else None,
    )


def save_task(folder: Path, interaction: Interaction[Any], method: Method, args: Any) -> None:
    """Saves `task_spec` in a folder, or logs a warning if the Interaction has no spec."""
    try:
        spec = task_spec(interaction, method, args)
    except ValueError as error:
        logger.warning("saved the policy without %s, so evaluation needs the task's name: %s", TASK_FILE, error)
        return
    spec.save(folder)


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
hf-credit evaluate {model} --episodes 64
```

"""
