"""Credit in tables: of the replies of each role and event as a run logged it, and of the decisions of one episode."""

from __future__ import annotations

from collections.abc import Sequence

from hf_credit.evaluation.credited import CreditedDecision, CreditedEpisode, CreditedReply, cut
from hf_credit.evaluation.episode_page import rounded, written_out
from hf_credit.evaluation.runs import Run

_COLUMNS = {
    "advantage": "advantages/mean",
    "its deviation": "advantages/std",
    "zeros": "advantages/zero",
    "trained": "advantages/trained",
    "length": "replies/length",
    "distinct": "replies/distinct",
}
_MOST_CHARACTERS = 60  # of a reply


def credit_table(run: Run) -> tuple[list[str], list[list[str]]]:
    """Header and rows, a row for all replies, each role and each event that logged something."""
    names = {name for entry in run.log for name in entry}
    prefixes = sorted({name.removesuffix(_COLUMNS["trained"]) for name in names if name.endswith(_COLUMNS["trained"])})
    rows = [
        [_called(prefix), *(_last(run.curve(prefix + name)[1]) for name in _COLUMNS.values())] for prefix in prefixes
    ]
    return ["replies of", *_COLUMNS], rows


def decision_table(episode: CreditedEpisode) -> tuple[list[str], list[list[str]]]:
    """Header and rows, a row a decision."""
    judged = any(one.verdict is not None for one in episode.decisions)
    verdict = ["oracle's verdict"] if judged else []
    header = ["", "role", "event", "reply", "task's reward", *verdict, "advantage", "outcomes", "also tried"]
    return header, [
        [
            str(place),
            _unmarked(in_a_line(one.role)),
            _unmarked(in_a_line(one.event)),
            _unmarked(said(one)),
            _short(one.reward),
            *([_short(one.verdict)] if judged else []),
            "not trained on" if one.credit is None else rounded(one.credit, "+.3g"),
            _outcomes(one.outcomes),
            "; ".join(map(_tried, one.alternatives)),
        ]
        for place, one in enumerate(episode.decisions, 1)
    ]


def _tried(other: CreditedReply) -> str:
    credit = "" if other.credit is None else f", {rounded(other.credit, '+.3g')}"
    return f"{_unmarked(said(other))} ({_outcomes(other.outcomes)}{credit})"


def said(one: CreditedDecision | CreditedReply) -> str:
    """A reply in a line, its tool calls in words."""
    return in_a_line(" ".join(filter(None, (one.content, *one.calls))) if one.calls else one.reply)


def in_a_line(text: str) -> str:
    """A text in a line, its middle left out where it is long."""
    return " ".join(written_out(cut(text, _MOST_CHARACTERS)).split())


def _outcomes(values: Sequence[float]) -> str:
    return ", ".join(map(_short, values)) or "-"


def _unmarked(text: str) -> str:
    """A text as one cell of Markdown, in which nothing of it is a mark."""
    return "".join(f"\\{one}" if one in "\\`*_[]<>#!&" else one for one in text)


def _called(prefix: str) -> str:
    kind, _, name = prefix.removesuffix("/").partition("/")
    return f"{kind.removesuffix('s')} {_unmarked(in_a_line(name))}" if name else "all"


def _last(values: Sequence[float]) -> str:
    return _short(values[-1] if values else None)


def _short(value: float | None) -> str:
    return "-" if value is None else rounded(value, ".3g")
