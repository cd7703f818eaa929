"""What the page and the command line show, as plain values: tables, a plot and the page of an episode.

Nothing of an entry becomes code. Names and texts of entries go into text cells and escaped HTML and labels only.
"""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from hf_credit.evaluation.credited import CreditedDecision, CreditedEpisode
from hf_credit.evaluation.episode_page import episode_page, written_out
from hf_credit.evaluation.statistics import Interval
from hf_credit.hub.leaderboard.entries import PlayedEpisode
from hf_credit.hub.leaderboard.ranking import Ranked
from hf_credit.hub.leaderboard.records import BADGES, VERIFIED
from hf_credit.hub.leaderboard.results import Comparison, Results, Row
from hf_credit.hub.leaderboard.seasons import starts_of
from hf_credit.hub.leaderboard.verification import replayed_steps
from hf_credit.oracles import Oracle
from hf_credit.rollouts import Interaction
from hf_credit.rollouts.capabilities import Acting, Oracled

Columns = Sequence[tuple[str, str, Callable[[Row, Ranked | None], Any]]]
"""Name, how its numbers are written, and the value of a row, with its rank where it has one."""

SHORT = 8
"""Digits of an entry's id that tell it on a page."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_WIDTH = 5.0  # inches of a plot: its text can still be read where a phone shows it at half its size


def board_table(results: Results, board: str) -> tuple[Columns, list[list[Any]]]:
    """The columns and the rows of a board of policies or of credit, ranked rows first."""
    columns = BOARD_COLUMNS if board in {one.name for one in results.season.tasks} else CREDIT_COLUMNS
    ranked = {one.entry: one for one in results.ranks(board)}

    def order(row: Row) -> tuple[float, str]:
        return (-ranked[row.id].score.mean if row.id in ranked else math.inf, row.id)

    rows = sorted(results.board(board), key=order)
    if columns is CREDIT_COLUMNS and results.cells:
        of_limit, learned = (lambda row, _, at=at: results.benched(row)[at] for at in (0, 1))
        columns = (*columns[:4], ("of the limit", ".1%", of_limit), ("learned", ".2f", learned), *columns[4:])
    return columns, [[value(row, ranked.get(row.id)) for _, _, value in columns] for row in rows]


def cells(columns: Columns, row: Sequence[Any]) -> list[str]:
    """A row as text that shows all of its characters, each number as its column has it."""
    return [
        "" if value is None else written_out(format(value, form if isinstance(value, int | float) else ""))
        for (_, form, _), value in zip(columns, row, strict=True)
    ]


def csv_link(columns: Columns, rows: Sequence[Sequence[Any]]) -> str:
    """A link that holds a table as CSV, so that nothing of it is left on a disk. A text that a spreadsheet would take
    for a formula begins with a quotation mark instead."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    for line in ([name for name, _, _ in columns], *rows):
        texts = ["" if one is None else str(one) for one in line]
        safe = zip(line, texts, strict=True)
        writer.writerow(
            f"'{text}" if isinstance(one, str) and text.startswith(_FORMULA) else text for one, text in safe
        )
    content = base64.b64encode(out.getvalue().encode("utf-8")).decode()
    return f'<a download="board.csv" href="data:text/csv;charset=utf-8;base64,{content}">Download as CSV</a>'


def choices(results: Results, board: str, badge: str = BADGES[0]) -> list[tuple[str, str]]:
    """The entries of a board to choose from, of this badge or a better one, each with its id."""
    least = BADGES.index(badge)
    return [
        (f"{written_out(row.entry.name)} ({row.id[:SHORT]}, {row.badge})", row.id)
        for row in results.board(board)
        if BADGES.index(row.badge) >= least
    ]


def comparison_table(comparison: Comparison) -> list[list[str]]:
    """What there is to say of two entries, a line each."""
    seeds = (
        "One training seed: of these checkpoints only." if comparison.seeds == 1 else f"{comparison.seeds} or more."
    )
    return [
        ["mean difference (A - B)", f"{comparison.difference.mean:+.4f}"],
        ["95 % interval", interval_text(comparison.difference)],
        ["p (paired permutation test)", f"{comparison.p_value:.4g}"],
        ["tasks on which A is better", str(comparison.wins)],
        ["ties", str(comparison.ties)],
        ["tasks on which B is better", str(comparison.losses)],
        ["training seeds", seeds],
    ]


def provenance_table(row: Row) -> list[list[str]]:
    """Where an entry comes from and what was found of it, a line each."""
    entry, record = row.entry, row.record
    facts: dict[str, Any] = {
        "entry": row.id,
        "board": f"{entry.board}, season {entry.season}",
        "benchmark": entry.benchmark,
        "method": entry.method,
    }
    for one in entry.checkpoints:
        facts[f"checkpoint, seed {one.seed}"] = f"{one.repo}@{one.commit}" + (f" on {one.base}" if one.base else "")
    facts |= {
        "shown": entry.shown,
        "sampling": entry.sampling,
        "cost of training": entry.ledger or "not kept",
        "command": entry.command or "not given",
        "hardware": entry.hardware or "not given",
        "versions": ", ".join(f"{name} {version}" for name, version in entry.versions.items()),
        "badge": f"{row.badge} (of {', '.join(BADGES)})",
    }
    if record is not None:
        facts |= {
            "what the verifier notes": " ".join(record.notes),
            "public tasks, claimed and found": ", ".join(f"{name} {own:.4g}" for name, own in record.public.items()),
            "secret tasks": f"{len(record.secret[0])} outcomes of each of {len(record.secret)}"
            if record.secret
            else "",
            "digests of the weights": ", ".join(record.tensors),
            "digests of the chat templates": ", ".join(dict.fromkeys(record.templates)),
            **{f"chat template {name[:12]}": text for name, text in record.unknown_templates.items()},
            "the verifier's process": ", ".join(record.isolation) or "not given",
        }
    plain = {name: own if isinstance(own, str) else json.dumps(own, ensure_ascii=True) for name, own in facts.items()}
    return [[name, written_out(text)] for name, text in plain.items() if text]


def rank_plot(results: Results, board: str, what: str = "mean on the secret tasks", most: int = 20) -> Any:
    """The means of the best entries of a board with their intervals; `None` where none is ranked."""
    from matplotlib.figure import Figure

    ranked = results.ranks(board)[:most]
    if not ranked:
        return None
    figure = Figure(figsize=(_WIDTH, 0.9 + 0.3 * len(ranked)), dpi=160, layout="constrained")
    axis = figure.subplots()
    means = [one.score.mean for one in ranked]
    errors = [[one.score.mean - one.score.low for one in ranked], [one.score.high - one.score.mean for one in ranked]]
    axis.errorbar(means, range(len(ranked)), xerr=errors, fmt="o", color="#0072b2", linewidth=2)
    texts = [f"{plot_text(results.row(one.entry).entry.name, 20)}  [{one.rank}]" for one in ranked]
    axis.set_yticks(range(len(ranked)), texts, fontsize=8)
    axis.set_ylim(len(ranked) - 0.5, -0.5)  # the best on top, with room beside the first and the last
    axis.tick_params(axis="x", labelsize=8)
    axis.set_xlabel(f"{what}, 95 % interval; [rank]", fontsize=8)
    return figure


def plot_text(text: str, most: int = 40) -> str:
    """A name as a label of a plot, in which no $ begins mathematics."""
    shown = text if len(text) <= most else f"{text[: most - 1]}…"
    return written_out(shown).replace("\\", "\\\\").replace("$", r"\$")


def sample_episodes(
    interaction: Interaction[Any], episodes: Sequence[PlayedEpisode], most: int = 4
) -> list[tuple[str, CreditedEpisode]]:
    """Some episodes of an entry: the best and the worst of its public tasks, decision by decision.

    Where the task has an oracle, the credit of a decision is what the oracle says of it (paper VPR, eq. 2); elsewhere
    a single episode gives its decisions none.

    Args:
        interaction: the entry's task.
        episodes: that were replayed.
        most: how many.
    """
    ordered = sorted(episodes, key=lambda one: (one.outcome, one.seed))
    half = max(1, most // 2)
    chosen = {one.seed: one for one in [*ordered[-half:][::-1], *ordered[:half]]}
    oracle = Oracled(interaction).default_oracle()
    return [
        (f"seed {one.seed}: {one.outcome:g}, {one.ending.replace('_', ' ')}", _credited(interaction, one, oracle))
        for one in chosen.values()
    ]


def episode_frame(episode: CreditedEpisode, title: str) -> str:
    """The page of an episode in a frame that runs no script and reaches nothing."""
    page = html.escape(episode_page(episode.shortened(), title), quote=True)
    label = html.escape(title, quote=True)
    return f'<iframe class="episode" sandbox="" title="{label}" srcdoc="{page}"></iframe>'


def interval_text(interval: Interval) -> str:
    """Such as `[0.512, 0.731]`."""
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
                    valid=None if score is None else score > 0,
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
    except Exception:  # what an oracle says of a stranger's reply is not the page's to fail on
        return None


def _rank(row: Row, place: Ranked | None) -> str:
    if place is not None:
        return place.rank
    if row.record is not None and row.record.copy_of is not None:
        return f"copy of {row.record.copy_of[:SHORT]}"
    return "unknown template" if row.badge == VERIFIED else "not verified"


def _training_tokens(row: Row, place: Ranked | None) -> int | None:
    ledger = row.entry.ledger
    return None if ledger is None else ledger["prompt_tokens"] + ledger["completion_tokens"]


def _method_text(row: Row, place: Ranked | None) -> str:
    options = json.dumps(dict(row.entry.method["options"]), sort_keys=True)
    return str(row.entry.method["name"]) + ("" if options == "{}" else f" {options[:200]}")


def _score_of(name: str) -> Callable[[Row, Ranked | None], float | None]:
    def value(row: Row, place: Ranked | None) -> float | None:
        found = row.record.scores.get(name) if row.record else None
        return found if isinstance(found, int | float) else None

    return value


BOARD_COLUMNS: Columns = (
    ("rank", "", _rank),
    ("name", "", lambda row, _: row.entry.name),
    ("mean", ".3f", lambda _, place: place and round(place.score.mean, 4)),
    ("95 % interval", "", lambda _, place: interval_text(place.score) if place else ""),
    ("seeds", "", lambda row, _: "1 (one seed)" if row.seeds == 1 else str(row.seeds)),
    ("badge", "", lambda row, _: row.badge),
    ("account", "", lambda row, _: ", ".join(sorted({one.repo.partition("/")[0] for one in row.entry.checkpoints}))),
    ("method", "", lambda row, _: str(row.entry.method["name"])),
    ("tokens an episode", ",.1f", lambda row, _: row.record and row.record.tokens),
    ("tokens of training", ",.0f", _training_tokens),
    ("parameters", ",.0f", lambda row, _: (row.record and row.record.parameters) or None),
    ("entry", "", lambda row, _: row.id[:SHORT]),
)
"""Of a board of policies. The first four are what a phone shows."""

CREDIT_COLUMNS: Columns = (
    ("rank", "", _rank),
    ("method", "", _method_text),
    ("fidelity", ".3f", lambda _, place: place and round(place.score.mean, 4)),
    ("95 % interval", "", lambda _, place: interval_text(place.score) if place else ""),
    ("bias", ".4f", _score_of("bias")),
    ("variance", ".4f", _score_of("variance")),
    ("tokens an update", ",.0f", _score_of("tokens")),
    ("tokens of warm-up", ",.0f", _score_of("warm_up")),
    ("decisions", ",.1f", _score_of("decisions")),
    ("badge", "", lambda row, _: row.badge),
    ("entry", "", lambda row, _: row.id[:SHORT]),
)
