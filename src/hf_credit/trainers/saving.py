"""What is saved next to the weights of a policy: its task, rendering and method, and the card that TRL writes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from hf_credit.files import write
from hf_credit.methods import Method
from hf_credit.model_cards import corrected, hub_id
from hf_credit.rollouts import Interaction
from hf_credit.tasks import TASK_FILE, TaskSpec
from hf_credit.tasks.commands import evaluation_command

logger = logging.getLogger(__name__)


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


def correct_card(trainer: Any) -> None:
    """Corrects the card that TRL has just written in the folder of a trainer's output."""
    if trainer.is_world_process_zero():
        path, base = Path(trainer.args.output_dir) / "README.md", hub_id(trainer.model.config._name_or_path)
        command = f"{evaluation_command(path.parent, shown=trainer.hub_model_id or 'FOLDER')} --episodes 64"
        text = path.read_text(encoding="utf-8")
        write(path, corrected(text, path.parent.name, base and base[0], command, "https://huggingface.co/"))


def name_base(model: Any, args: Any) -> None:
    """Records in adapters which model they are trained on, so that it is found from any folder, at its revision."""
    for one in getattr(model, "peft_config", {}).values():
        named = str(one.base_model_name_or_path or "")
        if named and Path(named).is_dir():
            one.base_model_name_or_path = str(Path(named).absolute())
        one.revision = one.revision or (args.model_init_kwargs or {}).get("revision")
