"""What is measured: three games, their settings, and the policies trained on each (paper VPR, 3.1 and 3.4)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hf_credit.policies.micro import MicroConfig
from hf_credit.tasks.spec import Sampling, TaskSpec

# The method of each arm, under the paper's names. All arms of a game and seed start from the same weights and play
# the same number of training episodes on the same tasks.
METHODS: Mapping[str, str] = {
    "OR": "outcome_reward",
    "MC-PR": "mc_process_reward",
    "VPR": "verifiable_process",
}
BASE = "Base"

SAMPLING = Sampling(max_new_tokens=10, temperature=1.0, top_p=1.0, top_k=0)


@dataclass(frozen=True, kw_only=True)
class Game:
    """A game, its micro policy and how it is trained; the same for all methods.

    Attributes:
        name: the environment's name.
        options: the environment's options in training.
        held_out_options: its options in evaluation, where they differ.
        policy: how the starting policy is built; its seed is replaced by the run's.
        training: settings of `VerifiableProcessConfig` besides those of `run.py`.
        value_rollouts: of MC-PR, from each state.
        columns: the columns of Table 1, by the names of the environment's metrics.
        simulations: strengths of MCTS for the ablation of the oracle; none for no ablation.
    """

    name: str
    options: Mapping[str, Any]
    held_out_options: Mapping[str, Any] | None = None
    policy: MicroConfig
    training: Mapping[str, Any]
    value_rollouts: int = 4
    columns: tuple[str, ...]
    simulations: tuple[int, ...] = ()

    def setup(self, held_out: bool = False) -> TaskSpec:
        """The game as the policy meets it."""
        options = self.options if self.held_out_options is None or not held_out else self.held_out_options
        return TaskSpec(
            task=self.name,
            task_options=options,
            history="current",
            instructions=False,
            sampling=SAMPLING,
        )

    @property
    def arms(self) -> tuple[str, ...]:
        """The methods, and VPR with weaker oracles."""
        return (*METHODS, *map(ablation_arm, self.simulations))


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """All that is run.

    Attributes:
        games: what is played.
        seeds: of the training runs: weights, scripted play, order of tasks and sampling.
        held_out_episodes: held-out tasks each policy is evaluated on, the same for all.
    """

    games: tuple[Game, ...]
    seeds: tuple[int, ...] = field(default=tuple(range(10)))
    held_out_episodes: int = 512

    def settings(self) -> dict[str, Any]:
        """What a finished policy depends on besides its arm and its seed, as plain values."""
        games = {}
        for game in self.games:
            games[game.name] = dataclasses.asdict(game)
            del games[game.name]["simulations"]
        return {"games": games, "held_out_episodes": self.held_out_episodes}


def ablation_arm(simulations: int) -> str:
    """The name of VPR with an oracle of plain MCTS of this many simulations."""
    return f"VPR-{simulations}"


def ablation_simulations(arm: str) -> int | None:
    """The simulations of an arm of the ablation, `None` for any other arm."""
    head, _, number = arm.partition("VPR-")
    return int(number) if not head and number else None


# Chosen on training tasks, by the base policy's play and a short VPR run of one seed; the same for all arms.
_TRAINING = {
    "instances_per_update": 64,
    "per_device_train_batch_size": 64,
    "max_steps": 40,
    "learning_rate": 1e-3,
}

EXPERIMENT = Experiment(
    games=(
        Game(
            name="tic_tac_toe",
            options={"opponent": "mixture"},
            held_out_options={"opponent": "mcts"},
            policy=MicroConfig(episodes=2500, epochs=3, quality=0.6),
            training={**_TRAINING, "learning_rate": 3e-3},
            columns=("return_first", "return_second"),
            simulations=(1, 16, 256),
        ),
        Game(
            name="sudoku",
            options={"size": 4, "blanks": 5},
            policy=MicroConfig(episodes=3000, quality=0.9),
            training=_TRAINING,
            columns=("success", "completion"),
        ),
        Game(
            name="minesweeper",
            options={"rows": 4, "columns": 4, "mines": 3},
            policy=MicroConfig(episodes=2500, epochs=3, quality=0.8),
            training=_TRAINING,
            columns=("success", "completion"),
        ),
    )
)
