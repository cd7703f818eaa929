"""Tables of credit, by role and event type as logged by a run and by decision of an episode, and of costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hf_credit.evaluation.credited import CreditedEpisode, CreditedReply
from hf_credit.evaluation.episode_page import rounded
from hf_credit.evaluation.runs import Run
from hf_credit.redaction import written_out
from hf_credit.rollouts import Ledger
from hf_credit.words import cut

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
    return ["replies of", *_COLUMNS], [
        [_label(prefix), *(_short(run.last(prefix + name)) for name in _COLUMNS.values())] for prefix in prefixes
    ]


def decision_table(episode: CreditedEpisode) -> tuple[list[str], list[list[str]]]:
    """Returns the header and the rows, one per decision."""
    verdict = ["oracle's verdict"] if any(one.verdict is not None for one in episode.decisions) else []
    header = ["", "role", "event", "reply", "task's reward", *verdict, "advantage", "outcomes", "alternatives"]
    return header, [
        [
            str(place),
            in_one_line(one.role),
            in_one_line(one.event),
            short_reply(one),
            _short(one.reward),
            *(_short(one.verdict) for _ in verdict),
            "not trained on" if one.credit is None else rounded(one.credit, "+.3g"),
            _outcomes(one.outcomes),
            "; ".join(map(_alternative, one.alternatives)),
        ]
        for place, one in enumerate(episode.decisions, 1)
    ]


def _alternative(other: CreditedReply) -> str:
    credit = "" if other.credit is None else f", {rounded(other.credit, '+.3g')}"
    return f"{short_reply(other)} ({_outcomes(other.outcomes)}{credit})"


def short_reply(one: CreditedReply) -> str:
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


def _short(value: float | None) -> str:
    return "-" if value is None else rounded(value, ".3g")


def read_ledger(run: Run) -> Ledger | None:
    """Returns the last logged cost of a run; `None` if it logged none."""
    entry = next((entry for entry in reversed(run.log) if "budget/scoring_events" in entry), None)
    if entry is None:
        return None

    def by_role(prefix: str) -> dict[str, int]:
        return {name.removeprefix(prefix): round(n) for name, n in entry.items() if name.startswith(prefix)}

    produced = round(entry["budget/completion_tokens"])
    return Ledger(
        scoring_events=round(entry["budget/scoring_events"]),
        prompt_tokens=round(entry["budget/tokens"]) - produced,
        completion_tokens=produced,
        decisions=by_role("budget/decisions/"),
        role_tokens=by_role("budget/tokens/"),
        counterfactual_tokens=round(entry.get("budget/counterfactual_tokens", 0)),
        others=by_role("budget/others/"),
    )


def ledger_table(ledgers: Mapping[str, Ledger], against: str) -> tuple[list[str], list[list[str]]]:
    """Returns the header and a row per run: terminal scores (TSE of paper C3, Appendix M, Table 16), all tokens (TT),
    generated tokens, and replies (ADS, agent decision samples), in total and by role, and those of other models.
    Numbers of other runs have their ratio to `against`.

    Args:
        ledgers: the costs, by name of the run.
        against: the name of the reference run.

    Raises:
        ValueError: `against` is not one of the runs.
    """
    if against not in ledgers:
        raise ValueError(
            f"runs must be compared with one of {', '.join(ledgers)}, got {against!r}; name one of these."
        )
    roles = list(dict.fromkeys(role for ledger in ledgers.values() for role in ledger.decisions))
    header = ["run", "terminal scores", "tokens", "generated", "replies", *(f"replies of {role}" for role in roles)]
    others = list(dict.fromkeys(name for ledger in ledgers.values() for name in ledger.others))
    header += [f"tokens of the {name}" for name in others]
    spent = {
        name: [one.scoring_events, one.tokens, one.completion_tokens, sum(one.decisions.values())]
        + [one.decisions.get(role, 0) for role in roles]
        + [one.others.get(name, 0) for name in others]
        for name, one in ledgers.items()
    }
    return header, [
        [name, *(_cell(n, 0 if name == against else base) for n, base in zip(own, spent[against], strict=True))]
        for name, own in spent.items()
    ]


def _cell(number: int, reference: int) -> str:
    return f"{number:,} ({number / reference:.2f}x)" if reference else f"{number:,}"
