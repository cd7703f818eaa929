"""Builds a policy small enough for a CPU, which knows what statements look like and seldom which one leads on.

python warm_up.py    # in this folder; writes runs/base
"""

import json
from pathlib import Path

from databases import NAMES, QUESTIONS, TABLES, VALUES

from hf_credit.agents import AgentInteraction
from hf_credit.environments.actions import marked, write_call
from hf_credit.policies.micro import MicroConfig
from hf_credit.rollouts import RolloutRequest
from hf_credit.trainers.micro import init_scripted_policy

STEPS = {
    (key, column): f"select {column} from {table} where {key} = '{{}}'"
    for table, (key, *columns) in TABLES.items()
    for column in columns
}
PATHS = (("team", "boss"), ("room", "floor"), ("room", "floor", "printer"), ("team", "boss", "room"))
"""What each question takes to be looked up, one after the other."""
COLUMNS = {value: column for column, values in VALUES.items() for value in values}
POLICY = MicroConfig(hidden_size=64, layers=2, heads=4, episodes=400, epochs=12, batch_rows=8, learning_rate=5e-3)


class Player:
    """Looks up what leads on with a probability of `quality`, and otherwise anything by what it found last."""

    def __init__(self, quality):
        self.quality = quality

    def probabilities(self, state, request):
        question, *found = (one["content"] for one in request.messages if one["role"] in ("user", "tool"))
        person = next(name for name in NAMES if f" {name}?" in question)
        path = dict(zip(QUESTIONS, PATHS, strict=True))[question.replace(person, "{}")]
        value = [person, *(one for one in found if one in COLUMNS or one in NAMES)][-1]
        shares = {
            reply: (1 - self.quality) / 2 / len(STEPS)
            for statement in STEPS.values()
            for reply in (statement.format(value), called(statement.format(value)))
        }
        column = COLUMNS.get(value, "boss")
        place = 0 if value == person else path.index(column) + 1 if column in path else len(path)
        if place < len(path):
            statement = STEPS["name" if value in NAMES else column, path[place]].format(value)
            shares[statement if place == len(path) - 1 else called(statement)] += self.quality
        return {reply: share / sum(shares.values()) for reply, share in shares.items()}

    def __call__(self, state, request, draws):
        shares = self.probabilities(state, request)
        return draws.choices(list(shares), list(shares.values()))[0]


def called(sql):
    return marked(write_call("query", {"sql": sql}))


def build(folder, config=POLICY, quality=0.42):
    """Warms a policy up on scripted play of training tasks."""
    rows = [json.loads(line) for line in Path(__file__).with_name("train.jsonl").read_text().splitlines()]
    starts = [RolloutRequest(task=rows[seed % len(rows)], seed=seed) for seed in range(config.episodes)]
    interaction = AgentInteraction("sql_agent:sql_agent")
    try:
        return init_scripted_policy(interaction, Player(quality), starts, folder, config)
    finally:
        interaction.close()


if __name__ == "__main__":
    build("runs/base")
