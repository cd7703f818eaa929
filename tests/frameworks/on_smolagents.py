"""Agents of smolagents, which call tools, or write code that does."""

import openai  # noqa: F401  # or each run would import it
from boxes import BOXES
from smolagents import CodeAgent, OpenAIModel, ToolCallingAgent, tool


@tool
def open_box(box: str) -> str:
    """Open a box and see what is in it.

    Args:
        box: Its name.
    """
    return BOXES[box]


def tools(task, model):
    llm = OpenAIModel(model_id="gpt-5", api_base=model.base_url, api_key=model.api_key)
    return ToolCallingAgent(tools=[open_box], model=llm, max_steps=3).run(f"Which box holds {task['wanted']}?")


def code(task, model):
    llm = OpenAIModel(model_id="gpt-5", api_base=model.base_url, api_key=model.api_key)
    return CodeAgent(tools=[open_box], model=llm, max_steps=3).run(f"Which box holds {task['wanted']}?")
