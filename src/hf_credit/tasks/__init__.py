"""Tasks: their serialisable descriptions, and their rows."""

from hf_credit.playing import Prompts as Prompts
from hf_credit.playing import Sampling as Sampling
from hf_credit.tasks.spec import TASK_FILE as TASK_FILE
from hf_credit.tasks.spec import TaskSpec as TaskSpec
