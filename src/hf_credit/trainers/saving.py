"""Saves the task of a policy, its rendering and the method beside the weights."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from hf_credit.methods import Method
from hf_credit.rollouts import Interaction
from hf_credit.tasks import TASK_FILE, TaskSpec

logger = logging.getLogger(__name__)


def task_spec(interaction: Interaction[Any], method: Method, args: Any) -> TaskSpec:
    """Describes the task, its rendering, the sampling and the method, which evaluation and diagnosis need.

    Args:
        interaction: of the evaluation.
        method: trains the policy.

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
