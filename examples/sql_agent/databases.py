"""Small databases that follow from their names, questions about them, and statements run under limits.

python databases.py    # writes train.jsonl and held_out.jsonl anew
"""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

TABLES = {
    "staff": ("name", "team", "room"),
    "teams": ("team", "boss"),
    "rooms": ("room", "floor"),
    "floors": ("floor", "printer"),
}
NAMES = ("ann", "bob", "cleo", "dan", "eve", "finn", "gus", "ida")
VALUES = {
    "team": ("red", "blue", "green"),
    "room": ("oak", "elm", "fig", "ash", "yew"),
    "floor": ("low", "mid", "top"),
    "printer": ("ink", "jet", "dot"),
}
QUESTIONS = {
    "Who leads the team of {}?": "select boss from staff join teams using (team) where name = '{}'",
    "On which floor is {}?": "select floor from staff join rooms using (room) where name = '{}'",
    "Which printer is near {}?": (
        "select printer from staff join rooms using (room) join floors using (floor) where name = '{}'"
    ),
    "In which room is the boss of {}?": (
        "select led.room from staff join teams using (team) join staff as led on led.name = boss "
        "where staff.name = '{}'"
    ),
}
"""Each with the statement that answers it."""
SPLITS = {"train": range(12), "held_out": range(1000, 1006)}
"""The numbers of their databases."""

_STEPS = 200  # of 1,000 instructions of SQLite's machine, which unlike seconds are the same each time
_FUNCTIONS = {"abs", "avg", "coalesce", "count", "length", "like", "lower", "max", "min", "round", "sum", "upper"}
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE}


def content(name: str) -> dict[str, list[tuple[str, ...]]]:
    """The rows of each table of a database."""
    draws = random.Random(name)
    people = draws.sample(NAMES, 6)
    teams, rooms, floors, printers = (draws.sample(values, len(values)) for values in VALUES.values())
    bosses = draws.sample(people, len(teams))
    return {
        "staff": [(person, draws.choice(teams), draws.choice(rooms)) for person in people],
        "teams": list(zip(teams, bosses, strict=True)),
        "rooms": [(room, draws.choice(floors)) for room in rooms],
        "floors": list(zip(floors, printers, strict=True)),
    }


def questions(split: str) -> Iterator[dict[str, str]]:
    """Task rows: every question about all who do not lead their own team."""
    for number in SPLITS[split]:
        database = content(f"firm {number}")
        bosses = dict(database["teams"])
        for person, team, _ in database["staff"]:
            if bosses[team] != person:
                for question, gold in QUESTIONS.items():
                    row = {"question": question.format(person), "gold": gold.format(person)}
                    yield {"database": f"firm {number}", **row}


def opened(name: str) -> AbstractContextManager[sqlite3.Connection]:
    """Opens the database with a name in memory, of which statements can only read, and closes it."""
    return filled(TABLES, content(name))


@contextmanager
def filled(
    tables: Mapping[str, Sequence[str]], content: Mapping[str, Sequence[tuple[str | int, ...]]]
) -> Iterator[sqlite3.Connection]:
    """Opens a database in memory with these rows, of which statements can only read, and closes it."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for table, columns in tables.items():
            connection.execute(f"create table {table} ({', '.join(columns)})")
            connection.executemany(f"insert into {table} values ({', '.join('?' * len(columns))})", content[table])
        connection.setlimit(sqlite3.SQLITE_LIMIT_SQL_LENGTH, 2_000)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 10_000)  # of what a statement can build
        connection.set_authorizer(_allowed)
        yield connection


def write(name: str, rows: Iterable[Mapping[str, str]]) -> None:
    """Writes task rows to a file of this folder."""
    lines = (json.dumps(row) + "\n" for row in rows)
    Path(__file__).with_name(f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


def run(connection: sqlite3.Connection, statement: str, most: int) -> list[tuple[object, ...]]:
    """The first rows, at most so many, that a statement gives.

    Raises:
        ValueError: it is no statement that reads, or does not end in time.
    """
    left = iter(range(_STEPS))
    connection.set_progress_handler(lambda: next(left, None) is None, 1_000)
    try:
        return connection.execute(statement).fetchmany(most)
    except (sqlite3.Error, sqlite3.Warning, TypeError, ValueError) as error:
        raise ValueError(str(error)) from None


def _allowed(action: int, _: str | None, function: str | None, *__: str | None) -> int:
    """No writes, files, clocks and random numbers: what a statement gives is the same each time."""
    reads = action in _READS or (action == sqlite3.SQLITE_FUNCTION and function in _FUNCTIONS)
    return sqlite3.SQLITE_OK if reads else sqlite3.SQLITE_DENY


if __name__ == "__main__":
    for split in SPLITS:
        write(split, questions(split))
