"""A graph of LangGraph, with a model of langchain-openai."""

from boxes import BOXES
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
def open_box(box: str) -> str:
    """Open a box and see what is in it."""
    return BOXES[box]


def run(task, model):
    llm = ChatOpenAI(model="gpt-5").bind_tools([open_box])

    def agent(state: MessagesState):
        return {"messages": [llm.invoke(state["messages"])]}

    graph = StateGraph(MessagesState)
    graph.add_node("agent", agent)
    graph.add_node("tools", ToolNode([open_box], handle_tool_errors=True))
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", tools_condition)
    graph.add_edge("tools", "agent")
    question = f"Which box holds {task['wanted']}?"
    return graph.compile().invoke({"messages": [("user", question)]})["messages"][-1].content
