"""How often MCTS of a given strength misjudges a move of Tic-Tac-Toe (the epsilon of paper VPR, Proposition 2).

    python evaluation/vpr/oracle_error.py

The exact oracle proves the value of every board and accepts every optimal move. Plain search estimates the values,
so that it accepts wrong moves, and mostly one of several moves that are equally good.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from experiment import EXPERIMENT

from hf_credit import make, oracles
from hf_credit.environments.randomness import stream
from hf_credit.environments.tasks import task_seed
from hf_credit.oracles import default_oracle


@dataclass(frozen=True, kw_only=True)
class OracleError:
    """Plain MCTS against the exact oracle, over the boards that random play comes to.

    Attributes:
        simulations: of the search.
        disagreement: the share of legal moves that only one of the two accepts.
        wrong: the share of the accepted moves that are not optimal.
        missed: the share of the optimal moves that are not accepted.
    """

    simulations: int
    disagreement: float
    wrong: float
    missed: float


def oracle_error(simulations: int, episodes: int = 300) -> OracleError:
    """Compares the two on the boards of some training tasks, played at random.

    Args:
        simulations: as for `MCTSOracle`, without solving.
        episodes: how many tasks are played.
    """
    environment = make("tic_tac_toe")
    exact, weak = default_oracle(environment), oracles.make("mcts", simulations=simulations, solve=False)
    assert exact is not None
    legal = accepted = optimal = both = 0
    for index in range(episodes):
        seed = task_seed("train", index)
        draws = stream(seed, "oracle error")
        state = environment.initial_state(environment.sample_task(seed), seed)
        while actions := environment.legal_actions(state):
            right, said = exact.valid_actions(state), weak.valid_actions(state)
            legal += len(actions)
            accepted += len(said)
            optimal += len(right)
            both += len(right & said)
            state = environment.step(state, draws.choice(actions)).state
    return OracleError(
        simulations=simulations,
        disagreement=(accepted + optimal - 2 * both) / legal,
        wrong=1 - both / accepted,
        missed=1 - both / optimal,
    )


def write(folder: Path, simulations: Sequence[int], episodes: int = 300) -> None:
    """Writes `oracle_error.json` and `oracle_error.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [oracle_error(number, episodes) for number in simulations]
    text = json.dumps([asdict(row) for row in rows], indent=1)
    (folder / "oracle_error.json").write_text(text + "\n", encoding="utf-8")
    lines = [
        "# Errors of the weaker oracles",
        "",
        "Written by `evaluation/vpr/oracle_error.py`, against the exact oracle; in percent.",
        "",
        "| simulations | moves judged differently | accepted but not optimal | optimal but not accepted |",
        "| --- | --- | --- | --- |",
        *(
            f"| {r.simulations} | {_percent(r.disagreement)} | {_percent(r.wrong)} | {_percent(r.missed)} |"
            for r in rows
        ),
    ]
    (folder / "oracle_error.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def main(arguments: Sequence[str] | None = None) -> None:
    results = Path(__file__).resolve().parent / "results"
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--results", type=Path, default=results, help="the table goes there")
    folder = parser.parse_args(arguments).results
    write(folder, [number for game in EXPERIMENT.games for number in game.simulations])


if __name__ == "__main__":
    main()
