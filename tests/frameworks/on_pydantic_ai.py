"""An agent of Pydantic AI, whose answer is text, or typed."""

from typing import Literal

import openai  # noqa: F401  # or each run would import it
from boxes import BOXES
from pydantic import BaseModel
from pydantic_ai import Agent

agent = Agent("openai-chat:gpt-5", instructions="Open boxes.", defer_model_check=True)


@agent.tool_plain
def open_box(box: str) -> str:
    """Open a box and see what is in it."""
    return BOXES[box]


class Found(BaseModel):
    """The box that was asked for."""

    box: Literal["a", "b"]


def run(task, model):
    return agent.run_sync(f"Which box holds {task['wanted']}?").output


def typed(task, model):
    return agent.run_sync(f"Which box holds {task['wanted']}?", output_type=Found).output.box
