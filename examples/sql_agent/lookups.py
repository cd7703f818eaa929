"""A program that answers by six to eight lookups, one after the other, and keeps what it found as notes.

Each call shows the question and the notes, and nothing else. Only the answer is scored.

python lookups.py    # writes lookups_train.jsonl and lookups_held_out.jsonl anew
"""

import random
from collections.abc import Iterator
from itertools import product

from databases import filled, run, write
from sql_agent import CLIENT

from hf_credit.agents import agent

TABLES = {
    "staff": ("person", "team", "room"),
    "teams": ("team", "boss"),
    "rooms": ("room", "printer"),
    "printers": ("printer", "keeper"),
}
INSTRUCTIONS = "Reply with a statement of SQLite or, in the end, with: answer NUMBER. " + ", ".join(
    f"{table}({', '.join(columns)})" for table, columns in TABLES.items()
)
PEOPLE = {"boss": ("team", "boss"), "keeper": ("room", "printer", "keeper")}
THINGS = {"team": ("team",), "room": ("room",), "printer": ("room", "printer")}
"""What of a person is asked for, and what is looked up for it, one after the other."""
STATEMENTS = {
    column: f"select {column} from {table} where {key} = {{}}"
    for table, (key, *columns) in TABLES.items()
    for column in columns
}
LOOKUPS = range(6, 9)
SPLITS = {"train": range(20), "held_out": range(1000, 1006)}
"""The numbers of their databases."""
PER_DATABASE = 60


@agent(columns=("database", "question", "answer"), max_calls=12, score="lookups:same")
def lookups(task, model):
    client = CLIENT.with_options(base_url=model.base_url, api_key=model.api_key)
    notes = []
    with filled(TABLES, content(task["database"])) as database:
        while True:
            shown = "\n".join([task["question"], *notes])
            messages = [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": shown}]
            response = client.chat.completions.create(model=model.name, messages=messages)
            reply = response.choices[0].message.content
            if reply.startswith("answer "):
                return reply.removeprefix("answer ")
            notes.append(f"{reply[:200]}: {found(database, reply)}")


def found(database, statement):
    """What a statement gives, in short, or what is wrong with it."""
    try:
        rows = run(database, statement, most=3)
    except ValueError as error:
        return f"error: {error}"[:100]
    return "; ".join(", ".join(map(str, row)) for row in rows)[:100] or "nothing"


def same(task, answer):
    """Whether the answer is the right number."""
    return float(answer.strip() == task["answer"])


def content(name: str) -> dict[str, list[tuple[int, ...]]]:
    """The rows of each table of a database. Each number stands for one thing only."""
    draws = random.Random(name)
    numbers = draws.sample(range(100, 1000), 160)
    people, teams, rooms, printers = numbers[:40], numbers[40:80], numbers[80:120], numbers[120:]
    return {
        "staff": [(person, draws.choice(teams), draws.choice(rooms)) for person in people],
        "teams": list(zip(teams, draws.sample(people, 40), strict=True)),
        "rooms": list(zip(rooms, draws.sample(printers, 40), strict=True)),
        "printers": list(zip(printers, draws.sample(people, 40), strict=True)),
    }


def path(question: str) -> tuple[int, list[str]]:
    """The person that a question names, and the columns to look up, one after the other."""
    asked, person = question.removesuffix("?").split(" of ")[:-1], question.removesuffix("?").rpartition(" ")[2]
    names = [words.split()[-1] for words in asked]
    return int(person), [column for name in reversed(names) for column in (PEOPLE | THINGS)[name]]


def questions(split: str) -> Iterator[dict[str, str]]:
    """Task rows: of each database some questions, of any kind, about someone."""
    asked = [names for many in range(1, 5) for names in product(PEOPLE | THINGS, *[PEOPLE] * many)]
    asked = [names for names in asked if sum(len((PEOPLE | THINGS)[name]) for name in names) in LOOKUPS]
    for number in SPLITS[split]:
        name = f"office {number}"
        draws = random.Random(f"questions of {name}")
        with filled(TABLES, content(name)) as database:
            for _ in range(PER_DATABASE):
                person = draws.choice(content(name)["staff"])[0]
                question = f"What is {' of '.join(f'the {one}' for one in draws.choice(asked))} of {person}?"
                value = person
                for column in path(question)[1]:
                    value = run(database, STATEMENTS[column].format(value), most=1)[0][0]
                yield {"database": name, "question": question, "answer": str(value)}


if __name__ == "__main__":
    for split in SPLITS:
        write(f"lookups_{split}", questions(split))
