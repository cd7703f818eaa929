"""The tables of the evidence from finished cells.

python evaluation/t3/table.py        # again from the committed results/cells.json, without training anything
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from experiment import ALGORITHMS, ARMS, DECIDING, GAMES, HARD, RANDOM, SHORTER, START, VANILLA, Game
from finished_cells import EQUAL, Cell, common_seeds, interval, mean, read, verdict, write, write_again

from hf_credit.evaluation.report import table
from hf_credit.evaluation.statistics import Interval, holm, paired_difference, permutation_test

Cells = Mapping[tuple[str, str, str], Mapping[int, Cell]]
"""Finished cells by game, algorithm and arm, and by seed."""


def read_cells(paths: Iterable[Path]) -> Cells:
    """The cells in some files, each with one cell or a list of them."""
    return read(paths, lambda cell: (cell["game"], cell["algorithm"], cell["arm"]))


def write_tables(paths: Iterable[Path], folder: Path) -> None:
    """Writes the cells in some files, and the tables, into a folder."""
    cells = read_cells(paths)
    write(cells, folder, markdown(cells))


def markdown(cells: Cells) -> str:
    """All tables."""
    parts = [
        "# Results",
        "",
        "Written by `evaluation/t3/table.py`; do not edit. How to read it: `../README.md`.",
        "",
        *_deciding(cells),
        *_overview(cells),
    ]
    for name, game in GAMES.items():
        if not any(key[0] == name for key in cells):
            continue
        parts += [f"## {game.title}", "", *_starts(cells, name)]
        for algorithm in ALGORITHMS:
            if any((name, algorithm, arm) in cells for arm in ARMS):
                parts += [f"### {algorithm.upper()}", "", *_algorithm(cells, name, algorithm)]
    return "\n".join(parts)


# What is read off a cell -------------------------------------------------------------------------------------------


def success(game: Game, cell: Cell, turns: int | None = None) -> float:
    """The share of held-out tasks solved at the end, within the game's limit of replies or another."""
    return float(cell["solved"][(turns or game.turns[0]) - 1])


def curve(game: Game, cell: Cell) -> list[tuple[float, float]]:
    """Tokens generated for training so far, and success with them, from the start to the end."""
    spent = [0.0, *cell["curves"]["budget/completion_tokens"]]
    points = [(spent[look["update"]], float(look["solved"][game.turns[0] - 1])) for look in cell["on_the_way"]]
    return [*points, (float(cell["tokens"]), success(game, cell))]


def tokens_to(level: float, points: Sequence[tuple[float, float]]) -> float | None:
    """The tokens at which a curve first reaches a level, along the straight line to there; `None` if it never does."""
    if points[0][1] >= level:
        return points[0][0]
    for (before, low), (after, high) in itertools.pairwise(points):
        if high >= level:
            return before + (after - before) * (level - low) / (high - low)
    return None


def at_tokens(tokens: float, points: Sequence[tuple[float, float]]) -> float:
    """The height of a curve at a number of tokens, along straight lines; its last beyond its end."""
    for (before, low), (after, high) in itertools.pairwise(points):
        if before <= tokens <= after:
            return low + (high - low) * (tokens - before) / (after - before)
    return points[-1][1]


COLUMNS: Mapping[str, Callable[[Game, Cell], float]] = {
    "success": success,
    "best less last": lambda game, cell: max(height for _, height in curve(game, cell)) - success(game, cell),
    "cut in training": lambda game, cell: fmean(cell["curves"]["cut/ratio"] or [0.0]),
    "replies in training": lambda game, cell: fmean(cell["curves"]["turns/mean"]),
    "answered in training": lambda game, cell: fmean(cell["curves"]["answered"]),
}


# The tables --------------------------------------------------------------------------------------------------------


def _compared(cells: Cells, name: str, algorithm: str, arm: str, other: str) -> tuple[Interval, float, int] | None:
    """Success of an arm less that of another: the difference, p of the exact sign-flip test, and seeds ahead."""
    keys = [(name, algorithm, one) for one in (arm, other)]
    seeds = common_seeds(cells, *keys)
    if len(seeds) < 2:
        return None
    ours, theirs = ([success(GAMES[name], cells[key][seed]) for seed in seeds] for key in keys)
    ahead = sum(a > b for a, b in zip(ours, theirs, strict=True))
    return paired_difference(ours, theirs), permutation_test(ours, theirs).p_value, ahead


def _deciding(cells: Cells) -> list[str]:
    pairs = {other: _compared(cells, *DECIDING, HARD, other) for other in (VANILLA, RANDOM, SHORTER)}
    known = {other: found for other, found in pairs.items() if found is not None}
    if not known:
        return []
    adjusted = holm([p for _, p, _ in known.values()])
    rows = [
        [
            f"hard less {other}",
            str(difference.n),
            interval(difference, signed=True),
            f"{ahead} of {difference.n}",
            f"{p:.4f}",
            f"{held:.4f}",
            verdict(difference, held),
        ]
        for (other, (difference, p, ahead)), held in zip(known.items(), adjusted, strict=True)
    ]
    return [
        "## The deciding test",
        "",
        "GuessNumbers, PPO: success on held-out tasks, played uncut, after equal updates. Exact sign-flip test over "
        f"seeds, Holm over the lines. Supported: p < 0.05 and at least {EQUAL}. No difference: the interval lies "
        f"within {EQUAL} of 0.",
        "",
        table(["", "seeds", "difference", "ahead", "p", "p, Holm", "verdict"], rows),
        "",
    ]


def _overview(cells: Cells) -> list[str]:
    """Every arm beside vanilla, as in the paper's Table 1, with Holm over all of it."""
    found = {
        (name, algorithm, arm): compared
        for name in GAMES
        for algorithm in ALGORITHMS
        for arm in ARMS
        if arm != VANILLA and (compared := _compared(cells, name, algorithm, arm, VANILLA)) is not None
    }
    if not found:
        return []
    held = dict(zip(found, holm([p for _, p, _ in found.values()]), strict=True))
    rows = []
    for name, algorithm in itertools.product(GAMES, ALGORITHMS):
        own = [arm for arm in ARMS if (name, algorithm, arm) in found]
        for arm in own:
            difference, p, ahead = found[name, algorithm, arm]
            rows.append(
                [
                    GAMES[name].title.partition(":")[0],
                    algorithm.upper(),
                    arm,
                    str(difference.n),
                    interval(difference, signed=True),
                    f"{ahead} of {difference.n}",
                    f"{p:.4f}",
                    f"{held[name, algorithm, arm]:.4f}",
                ]
            )
    return [
        "## Beside vanilla",
        "",
        "Success on held-out tasks, played uncut, less that of the same algorithm without truncation, after equal "
        f"updates; exact sign-flip test over seeds, Holm over the {len(found)} lines.",
        "",
        table(["", "", "arm", "seeds", "difference", "ahead", "p", "p, Holm"], rows),
        "",
    ]


def _starts(cells: Cells, name: str) -> list[str]:
    game, own = GAMES[name], cells.get((name, "", START), {})
    if not own:
        return []
    limits = _limits(game)
    rows = [
        ["start", str(len(own)), *(mean([success(game, cell, limit) for cell in own.values()]) for limit in limits)]
    ]
    for player in ("imitated", "oracle"):
        values = [[float(cell["players"][player][game.turns[0] - 1]) for cell in own.values()]]
        rows.append([f"the player that was {player}" if player == "imitated" else "the oracle", str(len(own))])
        rows[-1] += [mean(values[0]) if limit == game.turns[0] else "" for limit in limits]
    return [
        "Success of what training begins with, and of scripted players.",
        "",
        table(["", "seeds", *(f"within {limit} replies" for limit in limits)], rows),
        "",
    ]


def _limits(game: Game) -> list[int]:
    """The limits of replies that success is told under: of the arm `shorter`, of training, and the most."""
    return [game.turns[1], game.turns[0], 10]


def _algorithm(cells: Cells, name: str, algorithm: str) -> list[str]:
    game = GAMES[name]
    own = {arm: cells[name, algorithm, arm] for arm in ARMS if (name, algorithm, arm) in cells}
    columns = [
        [arm, str(len(seeds)), *(mean([look(game, cell) for cell in seeds.values()]) for look in COLUMNS.values())]
        for arm, seeds in own.items()
    ]
    limits = [limit for limit in _limits(game) if limit != game.turns[0]]
    other = [
        [arm, *(mean([success(game, cell, limit) for cell in seeds.values()]) for limit in limits)]
        for arm, seeds in own.items()
    ]
    cells_shown = [
        [arm, *(f"{success(game, seeds[seed]):.3f}" if seed in seeds else "" for seed in _seeds(own))]
        for arm, seeds in own.items()
    ]
    return [
        "Means over seeds with 95% intervals (Student's t).",
        "",
        table(["", "seeds", *COLUMNS], columns),
        "",
        f"Tokens generated for training: in all, and until success reached {game.level}, over the seeds that did; and "
        "success at equal tokens, those of the arm of the same seed that took fewest.",
        "",
        table(["", "tokens", "tokens to the level", "reached it", "success at equal tokens"], _tokens(game, own)),
        "",
        "Success under other limits of replies than that of training.",
        "",
        table(["", *(f"within {limit} replies" for limit in limits)], other),
        "",
        "Success of every seed.",
        "",
        table(["", *map(str, _seeds(own))], cells_shown),
        "",
    ]


def _seeds(own: Mapping[str, Mapping[int, Cell]]) -> list[int]:
    return sorted(set().union(*own.values()))


def _tokens(game: Game, own: Mapping[str, Mapping[int, Cell]]) -> list[list[str]]:
    shared = sorted(set.intersection(*(set(seeds) for seeds in own.values())))
    least = {seed: min(seeds[seed]["tokens"] for seeds in own.values()) for seed in shared}
    rows = []
    for arm, seeds in own.items():
        reached = [tokens_to(game.level, curve(game, cell)) for cell in seeds.values()]
        known = [one for one in reached if one is not None]
        equal = [at_tokens(least[seed], curve(game, seeds[seed])) for seed in shared]
        total = f"{fmean(cell['tokens'] for cell in seeds.values()):,.0f}"
        rows.append([arm, total, f"{fmean(known):,.0f}" if known else "", f"{len(known)} of {len(reached)}"])
        rows[-1].append(mean(equal))
    return rows


if __name__ == "__main__":
    write_again(__doc__, Path(__file__).resolve().parent / "results", write_tables)
