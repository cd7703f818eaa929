"""Tables of credit: by role and event type as logged by a run, and by decision of an episode."""

from __future__ import annotations

from collections.abc import Sequence

from hf_credit.evaluation.credited import CreditedDecision, CreditedEpisode, CreditedReply, cut
from hf_credit.evaluation.episode_page import rounded, written_out
from hf_credit.evaluation.runs import Run

_COLUMNS = {
    "advantage": "advantages/mean",
    "standard deviation": "advantages/std",
    "zeros": "advantages/zero",
    "trained": "advantages/trained",
    "length": "replies/length",
    "distinct": "replies/distinct",
}
_MAX_CHARACTERS = 60  # of a reply


def credit_table(run: Run) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows: one for all replies, and one per role and event type with logged values."""
    names = {name for entry in run.log for name in entry}
    prefixes = sorted({name.removesuffix(_COLUMNS["trained"]) for name in names if name.endswith(_COLUMNS["trained"])})
    rows = [
        [_label(prefix), *(_last(run.curve(prefix + name)[1]) for name in _COLUMNS.values())] for prefix in prefixes
    ]
    return ["replies of", *_COLUMNS], rows


def decision_table(episode: CreditedEpisode) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows, one per decision."""
    judged = any(one.verdict is not None for one in episode.decisions)
    verdict = ["oracle's verdict"] if judged else []
    header = ["", "role", "event", "reply", "task's reward", *verdict, "advantage", "outcomes", "alternatives"]
    return header, [
        [
            str(place),
            in_one_line(one.role),
            in_one_line(one.event),
            short_reply(one),
            _short(one.reward),
            *([_short(one.verdict)] if judged else []),
            "not trained on" if one.credit is None else rounded(one.credit, "+.3g"),
            _outcomes(one.outcomes),
            "; ".join(map(_alternative, one.alternatives)),
        ]
        for place, one in enumerate(episode.decisions, 1)
    ]


def _alternative(other: CreditedReply) -> str:
    credit = "" if other.credit is None else f", {rounded(other.credit, '+.3g')}"
    return f"{short_reply(other)} ({_outcomes(other.outcomes)}{credit})"


def short_reply(one: CreditedDecision | CreditedReply) -> str:
    """Returns a reply in one line, with readable tool calls and the middle of a long text cut out."""
    return in_one_line(" ".join(filter(None, (one.content, *one.calls))) if one.calls else one.reply)


def in_one_line(text: str) -> str:
    """Returns a text in one line, with the middle of a long text cut out."""
    return " ".join(written_out(cut(text, _MAX_CHARACTERS)).split())


def _outcomes(values: Sequence[float]) -> str:
    return ", ".join(map(_short, values)) or "-"


def _label(prefix: str) -> str:
    kind, _, name = prefix.removesuffix("/").partition("/")
    return f"{kind.removesuffix('s')} {in_one_line(name)}" if name else "all"


def _last(values: Sequence[float]) -> str:
    return _short(values[-1] if values else None)


def _short(value: float | None) -> str:
    return "-" if value is None else rounded(value, ".3g")
