"""Compares the costs of runs, in the units of paper C3 (Appendix M, Table 16)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hf_credit.evaluation.runs import Run
from hf_credit.rollouts import Ledger

_ROLE, _ROLE_TOKENS = "budget/decisions/", "budget/tokens/"


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
        decisions=by_role(_ROLE),
        role_tokens=by_role(_ROLE_TOKENS),
        counterfactual_tokens=round(entry.get("budget/counterfactual_tokens", 0)),
    )


def ledger_table(ledgers: Mapping[str, Ledger], against: str) -> tuple[list[str], list[list[str]]]:
    """Returns the header and a row per run: terminal scores (the paper's TSE), all tokens (TT), generated tokens, and
    replies (ADS, agent decision samples), in total and by role. Numbers of other runs have their ratio to `against`.

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
    reference = _numbers(ledgers[against], roles)
    rows = [
        [name, *(_cell(n, None if name == against else base) for n, base in zip(own, reference, strict=True))]
        for name, own in ((name, _numbers(ledger, roles)) for name, ledger in ledgers.items())
    ]
    return header, rows


def _numbers(ledger: Ledger, roles: Sequence[str]) -> list[int]:
    decisions = [ledger.decisions.get(role, 0) for role in roles]
    return [ledger.scoring_events, ledger.tokens, ledger.completion_tokens, sum(ledger.decisions.values()), *decisions]


def _cell(number: int, reference: int | None) -> str:
    return f"{number:,} ({number / reference:.2f}x)" if reference else f"{number:,}"
