"""What is saved beside a policy: its task, how it was shown, and the method that trained it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from hf_credit.methods import Method
from hf_credit.rollouts import Interaction
from hf_credit.tasks import TASK_FILE, TaskSpec

logger = logging.getLogger(__name__)


def task_spec(interaction: Interaction[Any], method: Method, args: Any) -> TaskSpec:
    """What is played, how, and by which method the policy is trained: all that evaluation and diagnosis need.

    Args:
        interaction: what evaluation plays.
        method: that trains.
        args: the trainer's settings.

    Raises:
        ValueError: the Interaction cannot say how it is made again.
    """
    try:
        described = method.spec()
    except ValueError as error:
        logger.warning("saved the policy without its method, so name it to diagnose the credit: %s", error)
        described = None
    return TaskSpec.of(
        interaction,
        chat_template_kwargs=args.chat_template_kwargs or {},
        sampling=args.sampling(),
        method=described,
        critic_model=args.critic_model if method.critics else None,
    )


def save_task(folder: Path, interaction: Interaction[Any], method: Method, args: Any) -> None:
    """Saves `task_spec` in a folder, where the Interaction can be made again."""
    try:
        spec = task_spec(interaction, method, args)
    except ValueError as error:
        logger.warning("saved the policy without %s, so name its task to evaluate it: %s", TASK_FILE, error)
        return
    folder.mkdir(parents=True, exist_ok=True)
    spec.save(folder)
