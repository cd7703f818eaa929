"""What the page shows, as plain values: tables, plots and the page of an episode. Nothing of an entry becomes code.

Names and texts of entries go into `str` cells, escaped HTML and escaped labels of plots only.
"""

from __future__ import annotations

import base64
import csv
import html
import io
import json
import math
from collections.abc import Sequence
from typing import Any

from hf_credit.evaluation.credited import CreditedDecision, CreditedEpisode
from hf_credit.evaluation.episode_page import episode_page, written_out
from hf_credit.evaluation.statistics import Interval
from hf_credit.hub.leaderboard.records import BADGES, VERIFIED, Record
from hf_credit.hub.leaderboard.replies import PlayedEpisode
from hf_credit.hub.leaderboard.results import Comparison, Results, Row, scores_interval
from hf_credit.hub.leaderboard.seasons import starts_of
from hf_credit.oracles import Oracle
from hf_credit.rollouts import Interaction

Columns = Sequence[tuple[str, str]]

ANY = "any"
BOARD_COLUMNS = (
    ("rank", ""),
    ("name", ""),
    ("mean", ".3f"),
    ("95 % interval", ""),
    ("seeds", ""),
    ("badge", ""),
    ("account", ""),
    ("method", ""),
    ("tokens an episode", ",.1f"),
    ("tokens of training", ""),
    ("parameters", ""),
    ("entry", ""),
)
"""Their names, and how numbers are written. The first four are what a phone shows."""
CREDIT_COLUMNS = (
    ("rank", ""),
    ("method", ""),
    ("fidelity", ".3f"),
    ("95 % interval", ""),
    ("bias", ".4f"),
    ("variance", ".4f"),
    ("tokens an update", ",.0f"),
    ("tokens of warm-up", ",.0f"),
    ("decisions", ",.1f"),
    ("badge", ""),
    ("entry", ""),
)
FACTS = (("", ""), ("", ""))
"""The columns of a table of names and values."""
_SHORT = 8
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_SIZES = {"up to 10M": 10**7, "up to 1B": 10**9, "up to 10B": 10**10}
SIZES = (ANY, *_SIZES)


def board_table(
    results: Results, board: str, badge: str = ANY, size: str = ANY, search: str = "", method: str = ANY
) -> list[list[Any]]:
    """The rows of a board of policies, ranked ones first.

    Args:
        results: of the season.
        board: by its name.
        badge: this one or better; all if `ANY`.
        size: of the largest checkpoint, one of `SIZES`.
        search: a part of the name, the method or the id.
        method: by its name, one of `methods`.
    """
    ranked = {one.entry: one for one in results.ranks(board)}
    found: list[tuple[tuple[float, str], list[Any]]] = []
    for row in results.board(board):
        record, own = row.record, ranked.get(row.id)
        if not _shown(row, badge, size, search) or method not in (ANY, row.entry.method["name"]):
            continue
        found.append(
            (
                (-own.score.mean if own else math.inf, row.id),
                [
                    own.rank if own else _without_rank(row),
                    row.entry.name,
                    None if own is None else round(own.score.mean, 4),
                    "" if own is None else interval_text(own.score),
                    "1 (one seed)" if row.seeds == 1 else str(row.seeds),
                    row.badge,
                    ", ".join(sorted({one.repo.partition("/")[0] for one in row.entry.checkpoints})),
                    str(row.entry.method["name"]),
                    None if record is None or record.tokens is None else round(record.tokens, 1),
                    _training_tokens(row),
                    "" if record is None or not record.parameters else f"{record.parameters:,}",
                    row.id[:_SHORT],
                ],
            )
        )
    return [cells for _, cells in sorted(found, key=lambda one: one[0])]


def methods(results: Results) -> list[str]:
    """The names of the methods of all entries of policies, in order."""
    boards = [one.name for one in results.season.tasks]
    return sorted({str(row.entry.method["name"]) for board in boards for row in results.board(board)})


def credit_table(results: Results, board: str, search: str = "") -> list[list[Any]]:
    """The rows of a board of credit, ranked ones first."""
    ranked = {one.entry: one for one in results.ranks(board)}
    found: list[tuple[tuple[float, str], list[Any]]] = []
    for row in results.board(board):
        own, interval = ranked.get(row.id), scores_interval(row)
        if not _shown(row, ANY, ANY, search):
            continue
        scores = row.record.scores if row.record else {}
        found.append(
            (
                (-own.score.mean if own else math.inf, row.id),
                [
                    own.rank if own else _without_rank(row),
                    _method_text(row),
                    None if interval is None else round(interval.mean, 4),
                    "" if interval is None else interval_text(interval),
                    _rounded(scores.get("bias")),
                    _rounded(scores.get("variance")),
                    _rounded(scores.get("tokens"), 0),
                    _rounded(scores.get("warm_up"), 0),
                    _rounded(scores.get("decisions"), 1),
                    row.badge,
                    row.id[:_SHORT],
                ],
            )
        )
    return [cells for _, cells in sorted(found, key=lambda one: one[0])]


def cells(columns: Columns, row: Sequence[Any]) -> list[str]:
    """A row as text, each number as its column has it."""
    return [
        "" if value is None else format(value, form if isinstance(value, int | float) else "")
        for (_, form), value in zip(columns, row, strict=True)
    ]


def table_html(columns: Columns, rows: Sequence[Sequence[Any]]) -> str:
    """A table as HTML, everything in it escaped; nothing where there are no rows."""
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name, _ in columns)
    lines = [[html.escape(written_out(cell)) for cell in cells(columns, row)] for row in rows]
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in line)}</tr>" for line in lines)
    head = f"<thead><tr>{head}</tr></thead>" if any(name for name, _ in columns) else ""
    return f'<div class="table"><table>{head}<tbody>{body}</tbody></table></div>'


def to_csv(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table as CSV. A text that a spreadsheet would take for a formula begins with a quotation mark instead."""
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow([_cell(one) for one in header])
    writer.writerows([_cell(one) for one in row] for row in rows)
    return out.getvalue()


def choices(results: Results, board: str) -> list[tuple[str, str]]:
    """The verified entries of a board to choose from, each with its id."""
    found = [row for row in results.board(board) if row.badge == VERIFIED]
    return [(f"{written_out(row.entry.name)} ({row.id[:_SHORT]})", row.id) for row in found]


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
    """Where an entry comes from, a line each."""
    entry, record = row.entry, row.record
    lines = [
        ["entry", row.id],
        ["board", f"{entry.board}, season {entry.season}"],
        ["benchmark", entry.benchmark],
        ["method", json.dumps(dict(entry.method), ensure_ascii=True)[:500]],
        *[
            [f"checkpoint, seed {one.seed}", f"{one.repo}@{one.commit}" + (f" on {one.base}" if one.base else "")]
            for one in entry.checkpoints
        ],
        ["shown", json.dumps(dict(entry.shown), ensure_ascii=True)[:500]],
        ["sampling", json.dumps(dict(entry.sampling), ensure_ascii=True)[:500]],
        ["cost of training", "not kept" if entry.ledger is None else json.dumps(dict(entry.ledger))[:500]],
        ["command", written_out(entry.command)[:500] or "not given"],
        ["hardware", written_out(entry.hardware)[:200] or "not given"],
        ["versions", ", ".join(f"{name} {version}" for name, version in entry.versions.items())[:800]],
        ["badge", f"{row.badge} (of {', '.join(BADGES)})"],
    ]
    if record is not None:
        lines += _record_lines(record)
    return lines


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
    oracle = interaction.default_oracle()
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
    state = interaction.start(start.task, episode.seed)
    replies = list(zip(episode.events, episode.replies, episode.tokens, strict=True))
    decisions: list[CreditedDecision] = []
    while replies and (requests := interaction.pending(state)):
        step, replies = replies[: len(requests)], replies[len(requests) :]
        if len(step) < len(requests):
            break
        after = interaction.advance(state, [text for _, text, _ in step])
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
        state = after
    return CreditedEpisode(
        decisions=tuple(decisions), outcome=episode.outcome, ending=episode.ending, error=episode.error
    )


def _score(interaction: Interaction[Any], oracle: Oracle[Any] | None, state: Any, text: str) -> float | None:
    if oracle is None:
        return None
    try:
        world, action = interaction.action_of(state, text)
        return float(oracle.score(world, action)) if action else 0.0
    except Exception:  # what an oracle says of a stranger's reply is not the page's to fail on
        return None


def _shown(row: Row, badge: str, size: str, search: str) -> bool:
    if badge != ANY and BADGES.index(row.badge) < BADGES.index(badge):
        return False
    if size != ANY and (row.record is None or not 0 < row.record.parameters <= _SIZES[size]):
        return False
    text = f"{row.entry.name} {row.entry.method['name']} {row.id}".casefold()
    return search.strip().casefold() in text


def _without_rank(row: Row) -> str:
    if row.record is not None and row.record.copy_of is not None:
        return f"copy of {row.record.copy_of[:_SHORT]}"
    return "unknown template" if row.badge == VERIFIED else "not verified"


def _training_tokens(row: Row) -> str:
    ledger = row.entry.ledger
    return "" if ledger is None else f"{ledger['prompt_tokens'] + ledger['completion_tokens']:,}"


def _method_text(row: Row) -> str:
    options = json.dumps(dict(row.entry.method["options"]), sort_keys=True)
    return str(row.entry.method["name"]) + ("" if options == "{}" else f" {options[:200]}")


def _record_lines(record: Record) -> list[list[str]]:
    lines = [["what the verifier notes", note] for note in record.notes]
    if record.public:
        told = ", ".join(f"{name} {value:.4g}" for name, value in record.public.items())
        lines.append(["public tasks, claimed and found", told])
    if record.secret:
        lines.append(["secret tasks", f"{len(record.secret[0])} outcomes of each of {len(record.secret)}"])
    lines += [["digest of the weights", one] for one in record.tensors]
    lines += [["digest of the chat template", one] for one in dict.fromkeys(record.templates)]
    lines += [[f"chat template {name[:12]}", written_out(text)] for name, text in record.unknown_templates.items()]
    lines.append(["the verifier's process", ", ".join(record.isolation) or "not given"])
    return lines


def _rounded(value: Any, digits: int = 4) -> float | None:
    return round(float(value), digits) if isinstance(value, int | float) else None


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(_FORMULA):
        return f"'{value}"
    return str(value)


def csv_link(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A link that holds `to_csv`, so that nothing of it is left on a disk."""
    content = base64.b64encode(to_csv(header, rows).encode("utf-8")).decode()
    return f'<a download="board.csv" href="data:text/csv;charset=utf-8;base64,{content}">Download as CSV</a>'
