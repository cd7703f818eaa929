"""A program that answers questions from a database: it queries with a tool until it replies with a statement."""

import json
from collections import Counter

import openai
from databases import TABLES, opened, run

from hf_credit.agents import agent

INSTRUCTIONS = "Reply with the statement that answers. " + ", ".join(
    f"{table}({', '.join(columns)})" for table, columns in TABLES.items()
)
QUERY = {
    "type": "function",
    "function": {
        "name": "query",
        "description": "Shows the first rows that a statement of SQLite gives.",
        "parameters": {"type": "object", "properties": {"sql": {"type": "string"}}, "required": ["sql"]},
    },
}
# Made once: runs are forked from the process that has imported this module, and a client takes longer than a call.
CLIENT = openai.OpenAI(base_url="http://localhost", api_key="of each run")
CLIENT.chat.completions  # noqa: B018  # imports that part of the SDK


@agent(columns=("database", "question", "gold"), max_calls=5, score="sql_agent:same_rows")
def sql_agent(task, model):
    client = CLIENT.with_options(base_url=model.base_url, api_key=model.api_key)
    messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": task["question"]}]
    with opened(task["database"]) as database:
        while True:
            response = client.chat.completions.create(model=model.name, messages=messages, tools=[QUERY])
            reply = response.choices[0].message
            messages.append(reply)
            if not reply.tool_calls:
                return reply.content
            for call in reply.tool_calls:
                messages.append({"role": "tool", "tool_call_id": call.id, "content": shown(database, call.function)})


def shown(database, function):
    """What a tool call gives, or what is wrong with it."""
    try:
        rows = run(database, json.loads(function.arguments)["sql"], most=5)
    except (ValueError, KeyError, TypeError) as error:
        return f"error: {error}"
    return "\n".join(", ".join(map(str, row)) for row in rows)[:1000] or "no rows"


def same_rows(task, answer):
    """Whether a statement gives the rows that the right one gives, in any order."""
    with opened(task["database"]) as database:
        right = Counter(run(database, task["gold"], most=1000))
        try:
            return float(Counter(run(database, answer, most=right.total() + 1)) == right)
        except ValueError:
            return 0.0
