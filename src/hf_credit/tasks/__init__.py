"""Tasks: their serialisable descriptions, and their rows."""

from hf_credit.tasks.spec import TASK_FILE, Sampling, TaskSpec

__all__ = ["TASK_FILE", "Sampling", "TaskSpec"]
