"""What is measured: two games, three algorithms, and episodes that are cut or not (paper T3, section 3)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hf_credit.policies.micro import MicroConfig

START = "start"
VANILLA, HARD, SOFT, MASK, RANDOM, SHORTER = "vanilla", "hard", "soft", "mask", "random", "shorter"
ARMS = (VANILLA, HARD, SOFT, MASK, RANDOM, SHORTER)
"""Without truncation; the paper's rule with each kind of cut; and the controls: hard cuts drawn at random, as many as
the rule makes, and no cuts under a lower turn limit."""


@dataclass(frozen=True, kw_only=True)
class Game:
    """What is played, and what was chosen for it beforehand, on training tasks of seeds that are not measured.

    Attributes:
        title: of its tables.
        environment, options: as `hf_credit.make` knows it.
        turns: the limit of replies in training, and the lower one of the arm `shorter`.
        rule: the paper's for this game, as settings of `TruncatedPPOConfig`.
        random: the probability of a random cut after a step.
        level: of success, which training is to reach with few tokens.
        policy: how a start is built; its seed is the run's.
    """

    title: str
    environment: str
    options: Mapping[str, Any]
    turns: tuple[int, int]
    rule: Mapping[str, Any]
    random: float
    level: float
    policy: MicroConfig

    def settings_of(self, arm: str) -> dict[str, Any]:
        """The settings of `TruncatedPPOConfig` that are an arm's own."""
        if arm in (VANILLA, SHORTER):
            return {}
        if arm == RANDOM:
            return {"truncation": "random", "truncation_options": {"probability": self.random}}
        return {**self.rule, "cut": arm}

    def turns_of(self, arm: str) -> int:
        """The limit of replies that an arm trains under."""
        return self.turns[1] if arm == SHORTER else self.turns[0]


GUESS_NUMBERS, CIRCUIT_DECODING = "guess_numbers", "circuit_decoding"
PPO, GRPO, GSPO = "ppo", "grpo", "gspo"
ALGORITHMS: Mapping[str, Mapping[str, Any]] = {
    PPO: {
        "group_size": 1,
        "instances_per_update": 32,
        "per_device_train_batch_size": 32,
        "whiten": True,
        "critic_learning_rate": 3e-3,
        "critic_passes": 4,
    },
    GRPO: {"group_size": 8, "instances_per_update": 4, "per_device_train_batch_size": 4},
    # Steps of a micro policy are larger than the paper's, whose clipping would leave hardly any token in the loss.
    GSPO: {
        "group_size": 8,
        "instances_per_update": 4,
        "per_device_train_batch_size": 4,
        "epsilon": 0.2,
        "epsilon_high": 0.2,
    },
}
"""Settings of each: 32 episodes a step, of which four are made of what was played at once."""

GAMES: Mapping[str, Game] = {
    GUESS_NUMBERS: Game(
        title="GuessNumbers: two different digits of 1 to 4, no first guess",
        environment="guess_numbers",
        options={"source": "ar_bench", "digits": 2, "symbols": 4, "wording": "brief"},
        turns=(6, 3),
        rule={"truncation": "outside"},
        random=0.07,
        level=0.7,
        policy=MicroConfig(hidden_size=32, quality=0.75, episodes=1500, epochs=8, batch_rows=16, learning_rate=6e-3),
    ),
    CIRCUIT_DECODING: Game(
        title="CircuitDecoding: two circuits of four candidates with two inputs",
        environment="circuit_decoding",
        options={"inputs": 2, "candidates": 4, "fixed": True, "wording": "brief"},
        turns=(7, 5),
        rule={"truncation": "shrink", "window": 1},  # the paper's 3 is for twice as many replies
        random=0.02,
        level=0.7,
        policy=MicroConfig(hidden_size=32, quality=0.85, episodes=1200, epochs=8, batch_rows=16, learning_rate=6e-3),
    ),
}
DECIDING = (GUESS_NUMBERS, PPO)
"""Where the deciding test is: `hard` beside `vanilla`, `random` and `shorter`."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """All that is run.

    Attributes:
        training: settings of `TruncatedPPOConfig` beside those of the algorithm, the arm and `run.py`.
        look_every: policies are looked at before the first of what is played at once, and before every so many.
        looks, episodes: held-out episodes played to look at a policy on the way, and at the end.
        most_turns: of an episode that is measured. A policy is not told its limit, so that success under every lower
            limit is known from how many replies it took.
        seeds: of a start and of the trainings from it.
    """

    training: Mapping[str, Any] = field(default_factory=dict)
    look_every: int = 5
    looks: int = 192
    episodes: int = 768
    most_turns: int = 10
    seeds: tuple[int, ...] = tuple(range(10))

    def settings(self) -> dict[str, Any]:
        """What a finished cell depends on beside its game, algorithm, arm and seed, as plain values."""
        values = dataclasses.asdict(self)
        del values["seeds"]
        games = {name: dataclasses.asdict(game) for name, game in GAMES.items()}
        return {**values, "games": games, "algorithms": dict(ALGORITHMS)}

    def stages(self) -> list[list[tuple[str, str, str, int]]]:
        """Game, algorithm, arm and seed of all that is run, in the order of what decides, each after its start.

        The cells of a stage need only those of the stages before it. A start has no algorithm.
        """
        first = DECIDING[0]
        starts = {game: [(game, "", START, seed) for seed in self.seeds] for game in GAMES}
        deciding = [(*DECIDING, arm, seed) for seed in self.seeds for arm in (VANILLA, HARD, RANDOM, SHORTER)]
        others = [
            (game, algorithm, arm, seed)
            for game in GAMES
            for algorithm in ALGORITHMS
            for seed in self.seeds
            for arm in ARMS
        ]
        return [
            starts[first],
            deciding,
            [start for game in GAMES if game != first for start in starts[game]],
            [cell for cell in others if cell not in deciding],
        ]


EXPERIMENT = Experiment(
    training={
        "steps_per_generation": 4,
        "max_steps": 80,
        "learning_rate": 2e-3,
        "beta": 0.0,
        "rows_per_forward": 32,
        "max_completion_length": 8,
    }
)
