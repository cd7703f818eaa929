"""Contents of the page and the command line, in which no text of an entry becomes code: names and texts go into text
cells, escaped HTML and plot labels only."""

from __future__ import annotations

import base64
import csv
import html
import json
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from hf_credit.evaluation.credited import CreditedDecision, CreditedEpisode
from hf_credit.evaluation.episode_page import episode_page, written_out
from hf_credit.evaluation.statistics import Interval
from hf_credit.oracles import Oracle
from hf_credit.rollouts import Interaction, Ledger, Verdict
from hf_credit.rollouts.capabilities import Acting, Oracled
from hf_credit_leaderboard.entries import PlayedEpisode
from hf_credit_leaderboard.ranking import Ranked
from hf_credit_leaderboard.records import BADGES
from hf_credit_leaderboard.results import SHORT, Comparison, Results, Row
from hf_credit_leaderboard.seasons import starts_of
from hf_credit_leaderboard.verification import replayed_steps

Columns = Sequence[tuple[str, str, Callable[[Row, Ranked | None], Any]]]
"""The name, the number format, and the function of a row and its rank, if any, that returns the value."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_MOST_LABEL = 20  # characters
_MOST_PLOTTED = 20  # entries
_WIDTH = 5.0  # inches of a plot, whose text stays readable at half size on a phone
_TEXT, _LINE = "#767676", "#3182bd"  # of a plot, readable on a light and a dark page


def board_table(results: Results, board: str) -> tuple[Columns, list[list[Any]]]:
    """Returns the columns and the rows of a board, ranked rows first."""
    columns = BOARD_COLUMNS if board in {one.name for one in results.season.tasks} else CREDIT_COLUMNS
    ranked = {one.entry: one for one in results.ranks(board)}

    def order(row: Row) -> tuple[float, str]:
        return (-ranked[row.id].score.mean if row.id in ranked else math.inf, row.id)

    rows = sorted(results.board(board), key=order)
    rank: Columns = [("rank", "", lambda row, place: place.rank if place else results.standing(row))]
    if columns is CREDIT_COLUMNS and results.cells:
        of_exact, learned = (lambda row, _, index=index: results.benched(row)[index] for index in (0, 1))
        columns = (*columns[:3], ("of the exact", ".1%", of_exact), ("learned", ".2f", learned), *columns[3:])
    columns = (*rank, *columns)
    return columns, [[value(row, ranked.get(row.id)) for _, _, value in columns] for row in rows]


def cells(columns: Columns, row: Sequence[Any]) -> list[str]:
    """Formats a row as text in which every character is visible."""
    return [
        "" if value is None else written_out(format(value, form if isinstance(value, int | float) else ""))
        for (_, form, _), value in zip(columns, row, strict=True)
    ]


def csv_link(columns: Columns, rows: Sequence[Sequence[Any]]) -> str:
    """Returns a link that contains a table as CSV, so that no file stays on the disk.

    A text that a spreadsheet would evaluate as a formula gets an apostrophe in front.
    """
    import pandas as pd

    safe = [
        [f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value for value in row]
        for row in rows
    ]
    table = pd.DataFrame(safe, columns=[name for name, _, _ in columns], dtype=object)
    text = table.to_csv(index=False, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    content = base64.b64encode(text.encode("utf-8")).decode()
    return f'<a download="board.csv" href="data:text/csv;charset=utf-8;base64,{content}">Download as CSV</a>'


def choices(results: Results, board: str, badge: str = BADGES[0]) -> list[tuple[str, str]]:
    """Returns the labels and ids of a board's entries with this badge or a higher one."""
    least = BADGES.index(badge)
    return [
        (f"{written_out(row.entry.name)} ({row.id[:SHORT]}, {row.badge})", row.id)
        for row in results.board(board)
        if BADGES.index(row.badge) >= least
    ]


def comparison_table(comparison: Comparison) -> list[list[str]]:
    """Returns the names and values of a comparison."""
    one_seed = "1, so the comparison is of these checkpoints only"
    return [
        ["mean difference (A - B)", f"{comparison.difference.mean:+.4f}"],
        ["95 % interval", interval_text(comparison.difference)],
        ["p (paired permutation test)", f"{comparison.p_value:.4g}"],
        ["tasks on which A is better", str(comparison.wins)],
        ["ties", str(comparison.ties)],
        ["tasks on which B is better", str(comparison.losses)],
        ["training seeds", one_seed if comparison.seeds == 1 else f"{comparison.seeds} or more"],
    ]


def provenance_table(row: Row) -> list[list[str]]:
    """Returns the names and values of an entry's provenance and verification."""
    entry, record = row.entry, row.record
    facts: dict[str, Any] = {
        "entry": row.id,
        "board": f"{entry.board}, season {entry.season}",
        "benchmark": entry.benchmark,
        "method": entry.method,
    }
    for checkpoint in entry.checkpoints:
        base = f" on {checkpoint.base}" if checkpoint.base else ""
        facts[f"checkpoint, seed {checkpoint.seed}"] = f"{checkpoint.repo}@{checkpoint.commit}{base}"
    facts |= {
        "presentation": entry.shown,
        "sampling": entry.sampling,
        "cost of training": entry.ledger or "unknown",
        "command": entry.command or "unknown",
        "hardware": entry.hardware or "unknown",
        "versions": ", ".join(f"{name} {version}" for name, version in entry.versions.items()),
        "badge": f"{row.badge} (of {', '.join(BADGES)})",
    }
    if record is not None:
        counts = f"{len(record.secret)} x {len(record.secret[0])} outcomes" if record.secret else ""
        facts |= {
            "verifier's notes": " ".join(record.notes),
            "public tasks, claimed and found": ", ".join(
                f"{name} {value:.4g}" for name, value in record.public.items()
            ),
            "secret tasks": counts,
            "digests of the weights": ", ".join(record.tensors),
            "digests of the chat templates": ", ".join(dict.fromkeys(record.templates)),
            **{f"chat template {name[:12]}": text for name, text in record.unknown_templates.items()},
            "isolation of the verifier": ", ".join(record.isolation) or "unknown",
        }
    texts = {name: fact if isinstance(fact, str) else json.dumps(fact) for name, fact in facts.items()}
    return [[name, written_out(text)] for name, text in texts.items() if text]


def rank_plot(results: Results, board: str, label: str = "mean on the secret tasks") -> Any:
    """Plots the means of a board's best entries with their intervals; returns `None` if no entry is ranked."""
    from matplotlib.figure import Figure

    ranked = results.ranks(board)[:_MOST_PLOTTED]
    if not ranked:
        return None
    size = (_WIDTH, 0.9 + 0.3 * len(ranked))
    figure = Figure(figsize=size, dpi=160, layout="constrained", facecolor="none")
    axis = figure.subplots(subplot_kw={"facecolor": "none"})
    means = [one.score.mean for one in ranked]
    errors = [[one.score.mean - one.score.low for one in ranked], [one.score.high - one.score.mean for one in ranked]]
    axis.errorbar(means, range(len(ranked)), xerr=errors, fmt="o", color=_LINE, linewidth=2)
    texts = [f"{_plot_text(results.row(one.entry).entry.name)}  [{one.rank}]" for one in ranked]
    axis.set_yticks(range(len(ranked)), texts, fontsize=8)
    axis.set_ylim(len(ranked) - 0.5, -0.5)  # the best on top
    axis.tick_params(color=_TEXT, labelcolor=_TEXT, labelsize=8)
    axis.spines[:].set_color(_TEXT)
    axis.set_xlabel(f"{label}, 95 % interval; [rank]", fontsize=8, color=_TEXT)
    return figure


def _plot_text(text: str) -> str:
    """Shortens a name to a plot label, in which no $ starts a formula."""
    shown = text if len(text) <= _MOST_LABEL else f"{text[: _MOST_LABEL - 1]}…"
    return written_out(shown).replace("\\", "\\\\").replace("$", r"\$")


def sample_episodes(
    interaction: Interaction[Any], episodes: Sequence[PlayedEpisode]
) -> list[tuple[str, CreditedEpisode]]:
    """Returns titles and replays of an entry's two best and two worst episodes on public tasks.

    The credit of a decision is the verdict of the task's oracle (VPR, eq. 2); without an oracle there is none.

    Args:
        episodes: the entry's episodes, which `replay_entry` accepts.
    """
    ordered = sorted(episodes, key=lambda one: (one.outcome, one.seed))
    chosen = {one.seed: one for one in [*ordered[-2:][::-1], *ordered[:2]]}
    oracle = Oracled(interaction).default_oracle()
    return [
        (f"seed {one.seed}: {one.outcome:g}, {one.ending.replace('_', ' ')}", _credited(interaction, one, oracle))
        for one in chosen.values()
    ]


def episode_frame(episode: CreditedEpisode, title: str) -> str:
    """Returns the page of an episode in a frame without scripts and network."""
    page = html.escape(episode_page(episode.shortened(), title), quote=True)
    label = html.escape(title, quote=True)
    return f'<iframe class="episode" sandbox="" title="{label}" srcdoc="{page}"></iframe>'


def interval_text(interval: Interval) -> str:
    """Formats an interval, such as `[0.512, 0.731]`."""
    return f"[{interval.low:.3f}, {interval.high:.3f}]"


def _credited(interaction: Interaction[Any], episode: PlayedEpisode, oracle: Oracle[Any] | None) -> CreditedEpisode:
    (start,) = starts_of(interaction, [episode.seed])
    decisions: list[CreditedDecision] = []
    for (state, requests, step), (after, _, _) in pairwise(replayed_steps(interaction, start, episode)):
        for request, (_, text, tokens) in zip(requests, step, strict=True):
            score = _score(interaction, oracle, state, text)
            decisions.append(
                CreditedDecision(
                    role=request.role,
                    event=request.event,
                    context=str(request.messages[-1]["content"]),
                    reply=text,
                    tokens=tokens,
                    reward=float(interaction.reward(after)),
                    verdict=score,
                    valid=None if score is None else Verdict(score=score).valid,
                    credit=score,
                    outcomes=(episode.outcome,),
                )
            )
    return CreditedEpisode(
        decisions=tuple(decisions), outcome=episode.outcome, ending=episode.ending, error=episode.error
    )


def _score(interaction: Interaction[Any], oracle: Oracle[Any] | None, state: Any, text: str) -> float | None:
    if oracle is None:
        return None
    try:
        world, action = Acting(interaction).action_of(state, text)
        return float(oracle.score(world, action)) if action else 0.0
    except Exception:  # an oracle may fail on any untrusted reply, and the page must not
        return None


def _method_text(row: Row, place: Ranked | None) -> str:
    options = json.dumps(dict(row.entry.method["options"]), sort_keys=True)
    return str(row.entry.method["name"]) + ("" if options == "{}" else f" {options[:200]}")


def _score_of(name: str) -> Callable[[Row, Ranked | None], float | None]:
    def value(row: Row, place: Ranked | None) -> float | None:
        score = row.record.scores.get(name) if row.record else None
        return score if isinstance(score, int | float) else None

    return value


BOARD_COLUMNS: Columns = (
    ("name", "", lambda row, _: row.entry.name),
    ("mean", ".3f", lambda _, place: place and round(place.score.mean, 4)),
    ("95 % interval", "", lambda _, place: interval_text(place.score) if place else ""),
    ("seeds", "", lambda row, _: "1 (one seed)" if row.seeds == 1 else str(row.seeds)),
    ("badge", "", lambda row, _: row.badge),
    ("account", "", lambda row, _: ", ".join(sorted({one.repo.partition("/")[0] for one in row.entry.checkpoints}))),
    ("method", "", lambda row, _: str(row.entry.method["name"])),
    ("temperature", ".2g", lambda row, _: row.entry.sampled().temperature),
    ("tokens / episode", ",.1f", lambda row, _: row.record and row.record.tokens),
    ("training tokens", ",.0f", lambda row, _: row.entry.ledger and Ledger(**row.entry.ledger).tokens),
    ("parameters", ",.0f", lambda row, _: (row.record and row.record.parameters) or None),
    ("entry", "", lambda row, _: row.id[:SHORT]),
)
"""The columns of a policy board, behind the rank. A phone shows the first four."""

CREDIT_COLUMNS: Columns = (
    ("method", "", _method_text),
    ("fidelity", ".3f", lambda _, place: place and round(place.score.mean, 4)),
    ("95 % interval", "", lambda _, place: interval_text(place.score) if place else ""),
    ("bias", ".4f", _score_of("bias")),
    ("variance", ".4f", _score_of("variance")),
    ("tokens / update", ",.0f", _score_of("tokens")),
    ("warm-up tokens", ",.0f", _score_of("warm_up")),
    ("decisions", ",.1f", _score_of("decisions")),
    ("badge", "", lambda row, _: row.badge),
    ("entry", "", lambda row, _: row.id[:SHORT]),
)
