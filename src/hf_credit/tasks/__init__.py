"""Tasks: what is played, written down so that it can be played again, and the rows that are played."""

from hf_credit.tasks.spec import TASK_FILE, Sampling, TaskSpec

__all__ = ["TASK_FILE", "Sampling", "TaskSpec"]
