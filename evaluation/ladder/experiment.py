"""What is registered: worlds and their rungs, arms, stages of the run, and the claims of each world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hf_credit.policies.micro import MicroConfig

START, TAUGHT, BEFOREHAND = "start", "taught", "beforehand"
"""The cells of a rung before any training: the policy that all arms start from; the same one taught by perfect play,
which says what can be learned; and the signal and agreement of methods at the start."""
SEEDS = tuple(range(10))
LOOKS = (0.125, 0.25, 0.5, 1.0)
"""The shares of the budget at which success is measured on held-out tasks."""
GROUP = 8


@dataclass(frozen=True, kw_only=True)
class Arm:
    """A method, and how it trains.

    Attributes:
        method: its name.
        options: of it.
        training: settings of `CreditConfig` beside those of the world.
        rows: the share of an update's episodes that are task rows.
    """

    method: str
    options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    rows: float = 1.0


_OF_GROUPS: Mapping[str, Any] = {"options": {"group_size": GROUP}, "rows": 1 / GROUP}
_CRITIC: Mapping[str, Any] = {"critic_first_updates": 2, "critic_learning_rate": 2e-3}
_FIRST: Mapping[str, Any] = {"outcome_weight": "measured"}
ARMS: Mapping[str, Arm] = {
    "outcome_reward": Arm(method="outcome_reward"),
    "verifiable_process": Arm(method="verifiable_process"),
    "verdicts_first": Arm(method="verifiable_process", options=_FIRST),
    "half_and_half": Arm(method="verifiable_process", options={"outcome_weight": 0.5}),
    "grpo": Arm(method="grpo", **_OF_GROUPS),
    "ppo": Arm(method="ppo", training=_CRITIC, **_OF_GROUPS),
    "hgpo": Arm(method="hgpo", **_OF_GROUPS),
    "replay_loo": Arm(method="replay_loo", options={"budget": 8, "alternatives": (2, 2, 2)}, rows=1 / 4),
    "active_replay": Arm(method="active_replay", training=_CRITIC, **_OF_GROUPS),
    "starts_of_oracle": Arm(method="grpo", training={"starts": "oracle"}, **_OF_GROUPS),
    "starts_of_own": Arm(method="grpo", training={"starts": "own"}, **_OF_GROUPS),
    "verdicts_from_starts": Arm(method="verifiable_process", training={"starts": "oracle"}),
    "verdicts_first_from_starts": Arm(method="verifiable_process", options=_FIRST, training={"starts": "oracle"}),
}
WITH_ORACLE = tuple(name for name, one in ARMS.items() if one.method == "verifiable_process" or "oracle" in name)
"""Arms that an oracle judges, or whose starts it plays to."""


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A task of a world, its start, and what trainings may spend.

    Attributes:
        options: of the environment, beside those of the world.
        start: the warm-up of the start; of the taught policy with perfect play and four times the episodes.
        budget: tokens that a training may sample, replies of replays included; the update that passes it is the last.
    """

    options: Mapping[str, Any]
    start: MicroConfig
    budget: int


@dataclass(frozen=True, kw_only=True)
class World:
    """An environment with its rungs, from few decisions to many.

    Attributes:
        options: of the environment, on all rungs.
        training: settings of `CreditConfig`, those of its recipe but for the schedule, which is constant, since the
            number of updates is not known beforehand.
        episodes: of a step, in an arm without groups.
        rungs: by name.
    """

    environment: str
    options: Mapping[str, Any]
    training: Mapping[str, Any]
    episodes: int
    rungs: Mapping[str, Rung]


def _sudoku(blanks: int) -> Rung:
    start = MicroConfig(layers=1, quality=0.82, episodes=2000, epochs=2, learning_rate=8e-3)
    return Rung(options={"blanks": blanks}, start=start, budget=9_000 * blanks)


WORLDS: Mapping[str, World] = {
    "sudoku": World(
        environment="sudoku",
        options={"size": 4, "notation": "candidates"},
        training={"steps_per_generation": 8, "learning_rate": 2e-3, "warmup_steps": 8, "max_completion_length": 6},
        episodes=16,
        rungs={str(blanks): _sudoku(blanks) for blanks in (4, 6, 8, 10, 12)},
    ),
    "minesweeper": World(
        environment="minesweeper",
        options={},
        training={"learning_rate": 1e-3, "warmup_steps": 5, "max_completion_length": 12},
        episodes=128,
        rungs={
            name: Rung(
                options=dict(zip(("rows", "columns", "mines"), size, strict=True)),
                start=MicroConfig(quality=0.8),
                budget=300_000,
            )
            for name, size in {"3x3, 2 mines": (3, 3, 2), "4x4, 2 mines": (4, 4, 2), "4x4, 3 mines": (4, 4, 3)}.items()
        },
    ),
    "sokoban": World(
        environment="sokoban",
        options={},
        training={"learning_rate": 1e-3, "warmup_steps": 5, "max_completion_length": 6},
        episodes=128,
        rungs={
            f"{size}x{size}, {boxes} box{'es' * (boxes > 1)}, {moves} moves": Rung(
                options={"rows": size, "columns": size, "boxes": boxes, "longest": moves, "turns": 2 * moves},
                start=MicroConfig(quality=0.7),
                budget=75_000,
            )
            for size, boxes, moves in ((6, 1, 12), (6, 2, 16), (7, 3, 25))
        },
    ),
}
LEARNABLE = 0.05
"""A rung is run if the taught policy succeeds in at least so many episodes more than the start."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A claim about held-out success, one number a seed, tested by sign flips over seeds.

    Attributes:
        world: whose family it is of.
        says: in words.
        arms: of which the second is subtracted from the first.
        rungs: one; or several, where the number is the slope of the difference over them, a rung apart each.
        look: at which share of the budget; with 0 the number is not success, but by how much of the budget the second
            arm reaches `RISE` above the start later than the first.
        margin: added to the difference: "not behind" is a difference above minus this.
    """

    world: str
    says: str
    arms: tuple[str, str]
    rungs: tuple[str, ...]
    look: float = 1.0
    margin: float = 0.0


_CORE = ("outcome_reward", "verifiable_process", "verdicts_first")
_STARTS = ("starts_of_oracle", "starts_of_own")
_OTHERS = ("grpo", "ppo", "replay_loo", "active_replay")
_BOTH = ("verdicts_from_starts", "verdicts_first_from_starts")
STAGES: Sequence[tuple[str, tuple[str, ...], tuple[str, ...]]] = (
    ("sudoku", ("12", "8", "4"), (*_CORE, *_STARTS)),
    ("sudoku", ("12",), (*_OTHERS, *_BOTH)),
    ("minesweeper", ("4x4, 3 mines", "4x4, 2 mines", "3x3, 2 mines"), (*_CORE, "half_and_half")),
    ("minesweeper", ("4x4, 3 mines",), (*_STARTS, *_OTHERS, "hgpo")),
    ("sokoban", tuple(WORLDS["sokoban"].rungs), _CORE),
    ("sokoban", tuple(WORLDS["sokoban"].rungs)[-1:], (*_STARTS, *_OTHERS, "hgpo")),
    ("sudoku", ("6", "10"), (*_CORE, *_STARTS)),
)
"""World, rungs and arms of each stage of the run, by importance: every stage finishes before the next one begins."""
NOT_BEHIND = 0.05
RISE = 0.1
_OUTCOME = "outcome_reward"


def _claims(world: str, rungs: Sequence[str], core: Sequence[str]) -> list[Claim]:
    """The claims that every world has: about its core rungs, and its longest."""
    last, more = (rungs[-1],), {"world": world}
    return [
        Claim(
            says="verdicts gain more the more decisions", arms=("verifiable_process", _OUTCOME), rungs=(*core,), **more
        ),
        Claim(
            says="and reach .1 above the start in fewer tokens",
            arms=("verifiable_process", _OUTCOME),
            rungs=(*core,),
            look=0.0,
            **more,
        ),
        Claim(says="verdicts gain at the longest", arms=("verifiable_process", _OUTCOME), rungs=last, **more),
        *(
            Claim(says="without an oracle, ahead at the longest", arms=(name, _OUTCOME), rungs=last, **more)
            for name in ARMS
            if name not in WITH_ORACLE and name not in (_OUTCOME, "hgpo" if world == "sudoku" else "")
        ),
        Claim(
            says="starts of an oracle's play, ahead at the longest",
            arms=("starts_of_oracle", _OUTCOME),
            rungs=last,
            **more,
        ),
    ]


CLAIMS: Sequence[Claim] = (
    *_claims("sudoku", tuple(WORLDS["sudoku"].rungs), ("4", "8", "12")),
    Claim(
        world="sudoku",
        says="verdicts first lose nothing",
        arms=("verdicts_first", "verifiable_process"),
        rungs=("12",),
        margin=NOT_BEHIND,
    ),
    *_claims("minesweeper", tuple(WORLDS["minesweeper"].rungs), tuple(WORLDS["minesweeper"].rungs)),
    Claim(
        world="minesweeper",
        says="verdicts first do not end behind the outcome",
        arms=("verdicts_first", _OUTCOME),
        rungs=("4x4, 3 mines",),
        margin=NOT_BEHIND,
    ),
    Claim(
        world="minesweeper",
        says="and are ahead of it at half of the budget",
        arms=("verdicts_first", _OUTCOME),
        rungs=("4x4, 3 mines",),
        look=0.5,
    ),
    *_claims("sokoban", tuple(WORLDS["sokoban"].rungs), tuple(WORLDS["sokoban"].rungs)),
)
