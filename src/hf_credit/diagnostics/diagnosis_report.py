"""Writes diagnoses to folders: tables, plots, numbers, buckets, and example decisions."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_credit.diagnostics.bucket_credit import assigned_credit
from hf_credit.diagnostics.buckets import Action, Bucket
from hf_credit.diagnostics.diagnosis import TRUTHS, Diagnosis
from hf_credit.diagnostics.diagnosis_plots import draw, draw_reliability
from hf_credit.diagnostics.fidelity import FidelityStatus
from hf_credit.diagnostics.signal import SignalDiagnosis
from hf_credit.diagnostics.taxonomy import Failure
from hf_credit.diagnostics.training_credit import TrainingDiagnosis
from hf_credit.diagnostics.verdicts import LINE, VerdictDiagnosis
from hf_credit.evaluation.markdown import escaped, fenced, table
from hf_credit.evaluation.statistics import Interval
from hf_credit.files import write, write_json
from hf_credit.words import plain

_Found = Diagnosis | TrainingDiagnosis | SignalDiagnosis | VerdictDiagnosis
Table = tuple[list[str], list[list[str]]]
"""A header and rows."""

PLOT_FILE, EXAMPLES_FILE, RELIABILITY_FILE = "diagnosis.png", "examples.md", "verdicts.png"
_TRAINING_LEGEND = """\
- Fidelity: Spearman's correlation of the credit of an update with the advantages of its decisions, pooled over
  decisions. The advantages are estimated by separate replays, or exact by enumeration.
- Squared error: the mean of (credit - advantage)^2. Credit that is divided by a standard deviation has another unit.
  An estimated advantage adds the noise of its replays.
- Measured: decisions with a known advantage, of all with credit. Zeros: the share of credits that are 0. Variance: of
  the credits at one context, mean over contexts.
- Intervals are 95% bootstrap intervals over task instances; they do not cover other training runs."""
_SIGNAL_LEGEND = """\
- Tokens to SNR 1: generated tokens, with those of replays, until the signal-to-noise ratio of the gradient is 1.
- S: squared norm of the expected gradient of a collection, without bias, so it may be negative.
- Silent: collections whose gradient is 0. One outcome: groups (the episodes of a task, or of the collection where each
  task has one) whose members all have one outcome.
- Agreement: Spearman's correlation of credit of replies and their returns in replays that the credit does not use.
- Cosine: of the expected gradients, from products of different collections, so that noise does not count.
- Intervals are 95% intervals: over collections by the jackknife, of success over tasks, and of the agreement over
  decisions.
- A signal says how soon a method learns what it rewards, not whether that is the goal: for this look at the agreement
  and at the cosine with outcome_reward."""
_VERDICT_LEGEND = f"""\
- Better called better: of pairs of moves of a state, weighted by how much better one is; ties count half.
- Errors: the shares of the policy's moves that are wrong, or wrongly judged, weighted by what is at stake in a state.
  Margin: {LINE.mean:g} times the cost of the policy's errors minus that of the oracle's, in outcome a task.
- Agreement: Spearman's correlation of verdict and advantage, which the noise of replays lowers.
- Intervals are 95% intervals over tasks, and contain the noise of replays, except for the agreement.

![Share of right moves by score]({RELIABILITY_FILE})"""
_LEGEND = """\
- Credit fidelity: Spearman's correlation of credit with the target advantage, pooled over buckets (paper C3, Appendix
  I). Same returns: credit and targets use the same replays. A baseline that the candidates of a bucket share does not
  change their order, so this measures how well the baselines of different contexts agree. Other replays: credit uses
  the first replays and targets the others. Exact: the targets are exact values, up to the error by replies that were
  not enumerated, of which the largest bound is shown.
- Mean V(h): at the drawn decisions, of which long episodes have more, so it is not the policy's return.
- Within-context variance: of the credit, mean over buckets, in squared units of the credit. Methods that divide by a
  standard deviation, such as VPR and outcome reward, are not comparable with the others.
- Influence: mutual information in nats between a message and the response to it (Appendix J). By chance: the same
  after the responses are shuffled.
- Failures: by the rules of `hf_credit.diagnostics.Failure`, three of which are the paper's (Appendix N). Successful
  credit shift: another reply returned over 0.2 more than the real one, so the real one was a mistake and credit points
  to a better one. Misleading plan: no candidate returned 0.5. Evaluator ambiguity: all candidates returned the same.
  Over-coupling: the replays of one candidate differ more than the candidates do.
- Intervals are 95% intervals over buckets; they do not cover other training runs."""


def write_diagnosis(diagnoses: Sequence[Diagnosis], folder: str | Path, examples: int = 12) -> Path:
    """Writes `diagnosis.md`, whose path it returns, its numbers, plots and examples, and the buckets of each policy.

    Args:
        diagnoses: at least one, with different names.
        folder: created if it does not exist; files of these names are overwritten.
        examples: the number of example buckets per policy.

    Raises:
        ImportError: matplotlib is missing.
    """
    path = _write(folder, "diagnosis", _page(diagnoses), diagnoses)
    draw(diagnoses, path.with_name(PLOT_FILE))
    write(path.with_name(EXAMPLES_FILE), examples_markdown(diagnoses, examples))
    for place, one in enumerate(diagnoses):
        lines = "".join(f"{bucket.to_json()}\n" for bucket in one.buckets)
        write(path.with_name(bucket_file(place, one.name)), lines)
    return path


def write_training_credit(found: Sequence[TrainingDiagnosis], folder: str | Path) -> Path:
    """Writes `training_credit.md`, whose path it returns, and `training_credit.json`.

    Args:
        found: at least one.
        folder: created if it does not exist; files of these names are overwritten.
    """
    tables = [table(*one) for one in training_tables(found).values()]
    return _write(
        folder, "training_credit", ["# Credit of training", *tables, _TRAINING_LEGEND, *_settings(found)], found
    )


def write_signals(found: Sequence[SignalDiagnosis], folder: str | Path) -> Path:
    """Writes `signal.md` and `signal.json`, with arguments and result as in `write_training_credit`."""
    parts = ["# Signal and agreement", *_shown(signal_tables(found)), _SIGNAL_LEGEND, *_settings(found)]
    return _write(folder, "signal", parts, found)


def write_verdicts(found: Sequence[VerdictDiagnosis], folder: str | Path) -> Path:
    """Writes `verdicts.md`, its plot and `verdicts.json`, with arguments and result as in `write_training_credit`."""
    parts = ["# Can verdicts be trusted?", *(escaped(one.note) for one in found), *_shown(verdict_tables(found))]
    draw_reliability(found, Path(folder) / RELIABILITY_FILE)
    return _write(folder, "verdicts", [*parts, _VERDICT_LEGEND, *_settings(found)], found)


def _write(folder: str | Path, name: str, parts: Sequence[str], found: Sequence[Any]) -> Path:
    """Writes a page, and its numbers as JSON."""
    path = Path(folder) / f"{name}.md"
    write_json(path.with_suffix(".json"), numbers(found), indent=1)
    return write(path, "\n\n".join(parts) + "\n")


def _settings(found: Sequence[_Found]) -> list[str]:
    settings = json.dumps([{"name": one.name, **one.about} for one in found], indent=1)
    return ["## Settings", fenced(settings, "json", most=100_000)]


def _shown(tables: Mapping[str, Table]) -> list[str]:
    return [part for title, (header, rows) in tables.items() for part in (f"## {title}", table(header, rows))]


def bucket_file(place: int, name: str) -> str:
    """Returns the file name for the buckets of the policy with index `place`."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[-60:]
    return f"buckets_{place}_{plain}.jsonl"


def numbers(found: Sequence[_Found]) -> list[dict[str, Any]]:
    """Returns the results as values of strict JSON, without buckets; undefined numbers are `None`."""
    return [
        plain({name: value for name, value in {**vars(one), "cost": one.cost.to_dict()}.items() if name != "buckets"})
        for one in found
    ]


def tables(diagnoses: Sequence[Diagnosis]) -> dict[str, Table]:
    """Returns the header and the rows of each table, by title."""
    found = {
        "Policies": _policies(diagnoses),
        "Decisions": _decisions(diagnoses),
        "Credit": _credits(diagnoses),
        "Failures": _failures(diagnoses),
    }
    return {title: (header, rows) for title, (header, rows) in found.items() if rows}


def shown(interval: Interval | None) -> str:
    """Writes a mean with its interval for a table; "-" for NaN."""
    if interval is None or math.isnan(interval.mean):
        return "-"
    if math.isnan(interval.low):
        return _short(interval.mean)
    return f"{_short(interval.mean)} [{_short(interval.low)}, {_short(interval.high)}]"


def _page(diagnoses: Sequence[Diagnosis]) -> list[str]:
    measured = [
        f"{escaped(one.name)}, credit of {escaped(label)}: {escaped(sentence)}"
        for one in diagnoses
        for label, sentence in one.not_measured.items()
    ]
    plots, examples = f"![Plots]({PLOT_FILE})", f"Decisions in full: [{EXAMPLES_FILE}]({EXAMPLES_FILE})."
    return ["# Diagnosis", *_shown(tables(diagnoses)), *measured, _LEGEND, plots, examples, *_settings(diagnoses)]


def examples_markdown(diagnoses: Sequence[Diagnosis], examples: int = 12) -> str:
    """Writes example buckets as Markdown, alternating between failure categories, with all candidates and returns.

    Control characters are escaped, and long texts are cut in the middle.
    """
    parts = ["# Example buckets"]
    for one in diagnoses:
        parts.append(f"## {escaped(one.name)}")
        for bucket in _in_turn(one.buckets, examples):
            parts += _example(bucket)
    return "\n\n".join(parts) + "\n"


def _policies(diagnoses: Sequence[Diagnosis]) -> Table:
    measures = list(dict.fromkeys(name for one in diagnoses for name in one.success))
    header = ["policy", *measures, "terminal scores", "tokens", "generated", "replies"]
    return header, [
        [
            one.name,
            *(shown(one.success.get(name)) for name in measures),
            f"{one.cost.scoring_events:,}",
            f"{one.cost.tokens:,}",
            f"{one.cost.completion_tokens:,}",
            f"{sum(one.cost.decisions.values()):,}",
        ]
        for one in diagnoses
    ]


def _decisions(diagnoses: Sequence[Diagnosis]) -> Table:
    header = ["policy", "event", "buckets", "with one candidate", "candidates", "failed replays", "mean V(h)"]
    header += ["influence (nats)", "by chance"]
    return header, [
        [
            one.name,
            event.event,
            str(event.buckets),
            str(event.alone),
            _short(event.candidates / event.buckets),
            str(event.failed_replays),
            shown(event.mean_return),
            shown(event.influence_interval) if event.influence else "no response",
            _short(event.chance),
        ]
        for one in diagnoses
        for event in one.events
    ]


def _credits(diagnoses: Sequence[Diagnosis]) -> Table:
    known = {kind for one in diagnoses for event in one.events for credit in event.credits for kind in credit.fidelity}
    kinds = [kind for kind in TRUTHS if kind in known]
    header = ["policy", "event", "credit", *(f"fidelity, {TRUTHS[kind]}" for kind in kinds)]
    header += ["error of exact values"] * ("exact" in kinds) + ["within-context variance"]
    return header, [
        [
            one.name,
            event.event,
            credit.method,
            *(_with_status(credit.fidelity.get(kind), credit.status.get(kind, "ok")) for kind in kinds),
            *[_short(event.exact_error)] * ("exact" in kinds),
            _short(credit.variance.within),
        ]
        for one in diagnoses
        for event in one.events
        for credit in event.credits
    ]


def _with_status(fidelity: Interval | None, status: str) -> str:
    return shown(fidelity) if status == FidelityStatus.OK else f"{shown(fidelity)} ({status})"


def _failures(diagnoses: Sequence[Diagnosis]) -> Table:
    return ["policy", "event", *map(str, Failure)], [
        [one.name, event.event, *(str(event.failures.get(failure, 0)) for failure in Failure)]
        for one in diagnoses
        for event in one.events
    ]


def training_tables(found: Sequence[TrainingDiagnosis]) -> dict[str, Table]:
    """Returns the header and the rows, one per event type, by title."""
    header = ["policy", "method", "event", "measured", "fidelity", "squared error", "zeros", "variance"]
    rows = [
        [
            one.name,
            one.method,
            event.event,
            f"{event.measured} of {event.credited}",
            _with_status(event.fidelity, event.status),
            shown(event.squared_error),
            f"{event.zeros:.3g}",
            f"{event.variance.within:.3g}",
        ]
        for one in found
        for event in one.events
    ]
    return {"Credit of training": (header, rows)}


def signal_tables(found: Sequence[SignalDiagnosis]) -> dict[str, Table]:
    """Returns the header and the rows of each table, by title: the signal of methods, and their cosines."""
    header = ["policy", "method", "tokens to SNR 1", "S", "silent", "one outcome", "success", "tokens", "agreement"]
    rows = [
        [
            one.name,
            label,
            str(own),
            shown(own.signal),
            f"{own.silent:.0%}",
            f"{own.equal:.0%}",
            shown(own.success),
            f"{own.tokens:,.0f}",
            shown(one.agreement.get(label)),
        ]
        for one in found
        for label, own in one.signals.items()
    ]
    cosines = [[one.name, pair, shown(value)] for one in found for pair, value in one.cosines.items()]
    return {"Signal": (header, rows), **({"Cosines": (["policy", "methods", "cosine"], cosines)} if cosines else {})}


def verdict_tables(found: Sequence[VerdictDiagnosis]) -> dict[str, Table]:
    """Returns the header and the rows of each table, by title: the trust in verdicts, and their reliability."""
    header = ["policy", "verdicts", "better called better", "tied", "oracle's errors", "policy's errors", "margin"]
    said = {True: "pay", False: "may not pay", None: "cannot be told"}
    rows = [
        [one.name, said[one.pays], shown(one.accuracy), f"{one.tied:.0%}"]
        + [shown(own) for own in (one.error, one.own_error, one.margin, one.agreement)]
        + [str(one.unknown), ", ".join(f"{value:.3g} {name}" for name, value in one.price.items())]
        for one in found
    ]
    bins = [
        [one.name, _short(score), shown(right), str(moves)] for one in found for score, right, moves in one.reliability
    ]
    header += ["agreement", "unknown", "cost of a verdict"]
    return {"Trust": (header, rows), "Reliability": (["policy", "score", "right moves", "moves"], bins)}


def _in_turn(buckets: Sequence[Bucket], most: int) -> list[Bucket]:
    """Returns at most `most` buckets, alternating between failure categories."""
    by_category = [[bucket for bucket in buckets if bucket.failure == failure] for failure in Failure]
    longest = max(map(len, by_category))
    return [own[place] for place in range(longest) for own in by_category if place < len(own)][:most]


def _example(bucket: Bucket) -> list[str]:
    credits = assigned_credit([bucket], "replay_loo")[0]
    by_text = dict(zip((action.text for action in bucket.replayed), credits, strict=True))
    value = "-" if bucket.value is None else _short(bucket.value)
    head = f"### {bucket.failure}: {escaped(bucket.event)}, task {bucket.task}, decision {bucket.turn + 1}"
    parts = [head, f"Key {bucket.key}. V(h) of the value-only actions: {value}.", "Context:", fenced(bucket.context)]
    best = bucket.best
    chosen = {id(bucket.real): "Real action"} | (
        {id(best): "Best alternative"} if best not in (None, bucket.real) else {}
    )
    for action in sorted(bucket.candidates, key=lambda one: id(one) not in chosen):
        parts.append(_action(action, chosen.get(id(action), "Alternative"), by_text.get(action.text, math.nan)))
    return parts


def _action(action: Action, name: str, credit: float) -> str:
    facts = [f"mean return {_short(action.mean_return)}" if action.returns else "no replay succeeded"]
    if not math.isnan(credit):
        facts.append(f"replay_loo credit {credit:+.3g}")
    if action.verdict is not None:
        facts.append(f"oracle {_short(action.verdict)}")
    if action.exact is not None:
        facts.append(f"exact value {_short(action.exact)}")
    answers = [response for response in action.responses if response is not None]
    answered = f"\n\nresponse in the first replay:\n\n{fenced(answers[0])}" if answers else ""
    return f"{name} ({', '.join(facts)}):\n\n{fenced(action.text)}{answered}"


def _short(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3g}"
