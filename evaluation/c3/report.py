"""The results of the evidence as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiment import ARMS, BASE, C3, EVENTS

from hf_credit.evaluation.credit_tables import ledger_table
from hf_credit.evaluation.report import table
from hf_credit.rollouts import Ledger


def markdown(results: Mapping[str, Any], tasks: Mapping[str, str], curves: Mapping[str, str]) -> str:
    """The tables of `results.md`.

    Args:
        results: what `table.py` writes as `results.json`.
        tasks, curves: how people call the columns of scores and of learning curves.
    """
    seeds, columns = results["seeds"], {**tasks, **curves}
    credit_columns = {
        f"{measure}/{event}": f"{measure.replace('_', ' ')}, {label}"
        for measure in ("fidelity", "squared_error")
        for event, label in EVENTS.items()
    }
    parts = [
        "# Results",
        "",
        "Written by `evaluation/c3/table.py`; do not edit. How to read it: `../README.md`.",
        "",
        f"Seeds {', '.join(map(str, seeds))}; means over seeds with 95% intervals (Student's t) over seeds.",
        "",
        "## Scores",
        "",
        table(
            ["", *columns.values()],
            [
                [arm, *(_shown(results["scores"][arm][name]) for name in tasks)]
                + ([_shown(results["speed"][arm][name]) for name in curves] if arm != BASE else ["", ""])
                for arm in ARMS
            ],
        ),
        "",
        "## C3 against the others",
        "",
        _comparisons(results["comparisons"], columns),
        "",
        "## Ledger",
        "",
        f"Of seed {seeds[0]}: terminal scores (the TSE of the paper), tokens (TT), generated tokens, replies (ADS).",
        "",
        table(*_ledger(results["ledger"])),
        "",
        "## The credit of training against the exact advantages",
        "",
        "Spearman's correlation with, and mean squared distance from, the exact advantage of each message under the",
        "weights of the update; the variance of credit among messages of one context; messages credited in an update.",
        "",
        _training_table(results["training_credit"]),
        "",
        "### Update 0, where all methods have the same weights and tasks: C3 against the others",
        "",
        _comparisons(results["credit_comparisons"], credit_columns),
        "",
        "## Diagnostics of the trained policies (Appendices I, J and N)",
        "",
        _diagnostic_table(results["diagnostics"]),
        "",
        "Categories of Appendix N, as shares of the buckets of all seeds:",
        "",
        _failures(results["diagnostics"]),
        "",
    ]
    return "\n".join(parts)


def _comparisons(family: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    head = ["column", "difference", "mean [over seeds]", "C3 higher", "p", "Holm", "[over tasks]"]
    rows = [
        [
            columns[c["column"]],
            f"{C3} - {c['other']}",
            _shown(c["seeds"]),
            f"{c['ahead']} of {c['seeds']['n']}",
            f"{c['p']:.3g}",
            f"{c['adjusted']:.3g}",
            "" if c["tasks"] is None else f"[{c['tasks']['low']:.3f}, {c['tasks']['high']:.3f}]",
        ]
        for c in family
    ]
    return table(head, rows)


def _ledger(ledgers: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    return ledger_table({arm: Ledger(**values) for arm, values in ledgers.items()}, C3)


def _training_table(credit: Mapping[str, Any]) -> str:
    head = ["update", "method"]
    head += [f"{measure}, {event}" for measure in ("fidelity", "squared error") for event in EVENTS.values()]
    head += ["variance within contexts", "messages"]
    rows = [
        [
            update,
            arm,
            *(_shown(by[update][event]["fidelity"]) for event in EVENTS),
            *(_shown(by[update][event]["squared_error"]) for event in EVENTS),
            _shown(by[update]["all"]["within_context_variance"]),
            f"{by[update]['all']['messages']['mean']:.0f}",
        ]
        for update in next(iter(credit.values()))
        for arm, by in credit.items()
    ]
    return table(head, rows)


def _diagnostic_table(diagnostics: Mapping[str, Any]) -> str:
    names = {
        "fidelity/estimated": "fidelity",
        "fidelity/estimated, fresh replays": "with fresh replays",
        "fidelity/exact": "to exact values",
        "fidelity/exact, one replay": "one replay, to exact values",
        "variance/within": "variance within contexts",
        "variance/between": "between",
    }
    head = ["policy", "credit by", *names.values(), "influence (nats)", "by chance", "buckets (alone)"]
    rows = [
        [
            arm,
            estimator,
            *(_shown(values[name]) for name in names),
            _shown(own["influence"]) if estimator == own["own"] else "",
            _shown(own["influence_by_chance"]) if estimator == own["own"] else "",
            f"{own['buckets']} ({own['alone']})" if estimator == own["own"] else "",
        ]
        for arm, own in diagnostics.items()
        for estimator, values in own["credit"].items()
    ]
    return table(head, rows)


def _failures(diagnostics: Mapping[str, Any]) -> str:
    names = list(dict.fromkeys(name for own in diagnostics.values() for name in own["failures"]))
    rows = [[arm, *(f"{own['failures'].get(name, 0):.2f}" for name in names)] for arm, own in diagnostics.items()]
    return table(["policy", *names], rows)


def _shown(interval: Mapping[str, Any]) -> str:
    if interval["mean"] is None:
        return "none"
    if interval["low"] is None:
        return f"{interval['mean']:.3f} (one seed)"
    return f"{interval['mean']:.3f} [{interval['low']:.3f}, {interval['high']:.3f}]"
