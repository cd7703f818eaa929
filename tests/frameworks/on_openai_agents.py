"""An agent of the OpenAI Agents SDK, on the Responses API or on chat completions."""

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from boxes import BOXES
from openai import AsyncOpenAI

set_tracing_disabled(True)


@function_tool
def open_box(box: str) -> str:
    """Open a box and see what is in it."""
    return BOXES[box]


def responses(task, model):
    agent = Agent(name="Opener", instructions="Open boxes.", model="gpt-5", tools=[open_box])
    return Runner.run_sync(agent, f"Which box holds {task['wanted']}?").final_output


def chat(task, model):
    on_chat = OpenAIChatCompletionsModel(model="gpt-5", openai_client=AsyncOpenAI())
    agent = Agent(name="Opener", instructions="Open boxes.", model=on_chat, tools=[open_box])
    return Runner.run_sync(agent, f"Which box holds {task['wanted']}?").final_output
