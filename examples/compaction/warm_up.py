"""Writes the tasks, and builds a policy for a CPU that often forgets a note in a summary.

python warm_up.py    # in this folder; writes train.jsonl and runs/base
"""

import itertools
import json
from pathlib import Path

from compaction import SUMMARISE

from hf_credit.agents import AgentInteraction
from hf_credit.policies.micro import MicroConfig
from hf_credit.rollouts import RolloutRequest
from hf_credit.trainers.micro import init_scripted_policy

NAMES = "abc"
ROWS = [
    {"notes": json.dumps(list(map("".join, zip(NAMES, values, strict=True)))), "asked": asked, "gold": gold}
    for values in itertools.product("12", repeat=len(NAMES))
    for asked, gold in zip(NAMES, values, strict=True)
]
POLICY = MicroConfig(hidden_size=64, layers=2, heads=4, episodes=240, epochs=12, batch_rows=8, learning_rate=5e-3)


def player(state, request, draws):
    """Says ok to a note, forgets each note of a summary with a probability of 0.4, and answers by what is left."""
    said = [word for one in request.messages if one["role"] == "user" for word in one["content"].split()]
    known = {word[0]: word for word in said if word[0] in NAMES and word[1:].isdigit()}
    if said[-1] == SUMMARISE:
        return " ".join(word for word in known.values() if draws.random() < 0.6) or "?"
    if said[-1].endswith("?"):
        return known.get(said[-1][0], draws.choice("12").rjust(2))[1:]
    return "ok"


def build(folder, config=POLICY):
    """Warms a policy up on scripted play."""
    starts = [RolloutRequest(task=ROWS[seed % len(ROWS)], seed=seed) for seed in range(config.episodes)]
    interaction = AgentInteraction("compaction:reader")
    try:
        return init_scripted_policy(interaction, player, starts, folder, config)
    finally:
        interaction.close()


if __name__ == "__main__":
    Path("train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    build("runs/base")
