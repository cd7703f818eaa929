"""Diagnoses, of buckets and of training, as folders to read: tables, plots, numbers, buckets, and examples in full."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hf_credit.diagnostics.bucket_credit import assigned_credit
from hf_credit.diagnostics.buckets import Action, Bucket, save_buckets
from hf_credit.diagnostics.diagnosis import TRUTHS, CreditQuality, Diagnosis
from hf_credit.diagnostics.diagnosis_plots import draw
from hf_credit.diagnostics.fidelity import FidelityStatus
from hf_credit.diagnostics.replay_walks import ReplayDiagnosis
from hf_credit.diagnostics.taxonomy import Failure
from hf_credit.diagnostics.training_credit import TrainingDiagnosis
from hf_credit.evaluation.markdown import fenced, heading, plain, table
from hf_credit.evaluation.statistics import Interval

PLOT_FILE, EXAMPLES_FILE = "diagnosis.png", "examples.md"
_TRAINING_LEGEND = """\
- Fidelity: Spearman's correlation of the credit of an update with what the decisions were worth beyond the policy's
  mean at their contexts, over one pool; measured by replays that credit had no part in, or by enumeration.
- Squared error: the mean of (credit - worth)^2. Credit that was divided by a standard deviation has another unit, and
  a worth that was estimated adds the noise of its replays.
- Measured: of how many decisions with credit. Zeros: the share of credits that are 0. Variance: of the credits at one
  context, a mean over contexts.
- Intervals are 95% bootstrap intervals over task instances; they say nothing about other training runs."""
_REPLAY_LEGEND = """\
- rho: the cost of signal (variance of the gradient times tokens) under the best branching, divided by that without
  branches. 1: replays gain nothing. With at most so many branches alive: the same under that bound.
- Values: of the policy's critic, or the mean returns of other episodes at the same context or as late. Explained: the
  share of the variance of returns that they explain. Values that explain little see all noise arise late, so that rho
  comes out too low: it then says no more than that replays could not gain more.
- Noise: delta^2 times the sum of |grad log pi|^2 until then, for which a token drawn with probability p counts 1 - p.
- Intervals are 95% bootstrap intervals over episodes; few episodes make rho too low.
- Learning need not become faster by as much as signal becomes cheaper."""
_LEGEND = """\
- Credit fidelity: Spearman's correlation of credit with the target advantage, pooled over buckets (paper C3, Appendix
  I). Of the same returns, any baseline that a bucket's candidates share keeps their order, so this number tells how
  well the baselines of different contexts agree. The others hold credit made of the first replays against a target of
  the other replays, or credit against what enumeration says.
- Within-context variance: of the credit, a mean over buckets, in the unit of the credit. Methods that divide by a
  standard deviation, as VPR and outcome reward do, are not comparable with those that do not.
- Influence: mutual information in nats between a message and the answer to it (Appendix J); by chance: what the same
  answers give when they are dealt out to the messages at random.
- What went wrong: by the rules of `hf_credit.diagnostics.Failure`, of which three are the paper's (Appendix N).
  Successful credit shift: another reply returned over 0.2 more than the real one, so the real one was a mistake, and
  credit successfully points elsewhere. Misleading plan: nothing that was tried returned 0.5. Evaluator ambiguity: all
  returned the same. Over-coupling: the replays of one reply differ more than the replies do.
- Intervals are 95% intervals over buckets; they say nothing about other training runs."""


def write_diagnosis(diagnoses: Sequence[Diagnosis], folder: str | Path, examples: int = 12) -> Path:
    """Writes `diagnosis.md`, `diagnosis.json`, `diagnosis.png`, `examples.md` and the buckets of each policy.

    Args:
        diagnoses: at least one, names all different.
        folder: made if it is missing; files of these names are overwritten.
        examples: how many buckets of each policy to write out.

    Returns:
        The path of `diagnosis.md`.

    Raises:
        ImportError: matplotlib is missing.
    """
    path = _write(folder, "diagnosis", markdown(diagnoses), numbers(diagnoses))
    draw(diagnoses, path.with_name(PLOT_FILE))
    path.with_name(EXAMPLES_FILE).write_text(examples_markdown(diagnoses, examples), encoding="utf-8")
    for place, one in enumerate(diagnoses):
        save_buckets(one.buckets, path.with_name(bucket_file(place, one.name)))
    return path


def write_training_credit(found: Sequence[TrainingDiagnosis], folder: str | Path) -> Path:
    """Writes `training_credit.md` and `training_credit.json`.

    Args:
        found: at least one.
        folder: made if it is missing; files of these names are overwritten.

    Returns:
        The path of the first.
    """
    settings = json.dumps([{"name": one.name, **one.about} for one in found], indent=1)
    parts = ["# Credit of training", table(*training_table(found)), _TRAINING_LEGEND]
    parts += ["## Settings", fenced(settings, "json", most=100_000)]
    return _write(folder, "training_credit", "\n\n".join(parts) + "\n", training_numbers(found))


def write_replays(found: Sequence[ReplayDiagnosis], folder: str | Path) -> Path:
    """Writes `replays.md` and `replays.json`; arguments and result as of `write_training_credit`."""
    settings = json.dumps([{"name": one.name, **one.about} for one in found], indent=1)
    parts = ["# What replays could gain"]
    for title, (header, rows) in replay_tables(found).items():
        parts += [f"## {title}", table(header, rows)]
    parts += [one.warning for one in found if one.warning]
    parts += [_REPLAY_LEGEND, "## Settings", fenced(settings, "json", most=100_000)]
    return _write(folder, "replays", "\n\n".join(parts) + "\n", replay_numbers(found))


def _write(folder: str | Path, name: str, text: str, numbers: list[dict[str, Any]]) -> Path:
    """A page and the numbers beside it."""
    path = Path(folder) / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    return path


def bucket_file(place: int, name: str) -> str:
    """The name of the file that holds the buckets of the policy at `place`."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[-60:]
    return f"buckets_{place}_{plain}.jsonl"


def numbers(diagnoses: Sequence[Diagnosis]) -> list[dict[str, Any]]:
    """Plain values that strict JSON can hold; what is not defined is `None`."""
    return [_numbers(one) for one in diagnoses]


def training_numbers(found: Sequence[TrainingDiagnosis]) -> list[dict[str, Any]]:
    """Likewise."""
    return [_numbers(one) for one in found]


def replay_numbers(found: Sequence[ReplayDiagnosis]) -> list[dict[str, Any]]:
    """Likewise."""
    return [_numbers(one) for one in found]


def _numbers(one: Diagnosis | TrainingDiagnosis | ReplayDiagnosis) -> dict[str, Any]:
    """All but the buckets, which have files of their own."""
    values = {name: value for name, value in vars(one).items() if name != "buckets"}
    return dict(plain({**values, "cost": one.cost.to_dict()}))


def tables(diagnoses: Sequence[Diagnosis]) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Header and rows of each table, by its title."""
    found = {
        "Policies": _policies(diagnoses),
        "Decisions": _decisions(diagnoses),
        "Credit": _credits(diagnoses),
        "Failures": _failures(diagnoses),
    }
    return {title: (header, rows) for title, (header, rows) in found.items() if rows}


def shown(interval: Interval | None) -> str:
    """A mean with its interval, for a table."""
    if interval is None or math.isnan(interval.mean):
        return "-"
    if math.isnan(interval.low):
        return _short(interval.mean)
    return f"{_short(interval.mean)} [{_short(interval.low)}, {_short(interval.high)}]"


def markdown(diagnoses: Sequence[Diagnosis]) -> str:
    """The report as Markdown."""
    parts = ["# Diagnosis"]
    for title, (header, rows) in tables(diagnoses).items():
        parts += [f"## {title}", table(header, rows)]
    parts += [
        f"{heading(one.name)}, credit of {heading(label)}: {sentence}"
        for one in diagnoses
        for label, sentence in one.not_measured.items()
    ]
    parts += [
        _LEGEND,
        f"![Plots]({PLOT_FILE})",
        f"Decisions in full: [{EXAMPLES_FILE}]({EXAMPLES_FILE}).",
        "## Settings",
    ]
    parts += [fenced(json.dumps({one.name: one.about}, indent=1), most=100_000) for one in diagnoses]
    return "\n\n".join(parts) + "\n"


def examples_markdown(diagnoses: Sequence[Diagnosis], examples: int = 12) -> str:
    """Buckets of every failure category in turn, as text: context, the reply, what else was tried, and the returns.

    Control characters are written out, and long texts are cut in the middle.
    """
    parts = ["# Example buckets"]
    for one in diagnoses:
        parts.append(f"## {heading(one.name)}")
        for bucket in _in_turn(one.buckets, examples):
            parts += _example(bucket)
    return "\n\n".join(parts) + "\n"


def _policies(diagnoses: Sequence[Diagnosis]) -> tuple[list[str], list[list[str]]]:
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


def _decisions(diagnoses: Sequence[Diagnosis]) -> tuple[list[str], list[list[str]]]:
    header = ["policy", "event", "buckets", "of one candidate", "candidates", "failed replays", "mean return"]
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
            shown(event.influence_interval) if event.influence else "nobody answers",
            _short(event.chance),
        ]
        for one in diagnoses
        for event in one.events
    ]


def _credits(diagnoses: Sequence[Diagnosis]) -> tuple[list[str], list[list[str]]]:
    known = {way for one in diagnoses for event in one.events for credit in event.credits for way in credit.fidelity}
    ways = [way for way in TRUTHS if way in known]
    header = ["policy", "event", "credit", *(f"fidelity, {TRUTHS[way]}" for way in ways), "within-context variance"]
    return header, [
        [one.name, event.event, credit.method, *(_fidelity(credit, way) for way in ways), _short(within)]
        for one in diagnoses
        for event in one.events
        for credit in event.credits
        for within in (credit.variance.within,)
    ]


def _fidelity(credit: CreditQuality, way: str) -> str:
    return _with_status(credit.fidelity[way], credit.status[way]) if way in credit.fidelity else "-"


def _with_status(fidelity: Interval, status: str) -> str:
    return shown(fidelity) if status == FidelityStatus.OK else f"{shown(fidelity)} ({status})"


def _failures(diagnoses: Sequence[Diagnosis]) -> tuple[list[str], list[list[str]]]:
    return ["policy", "event", *map(str, Failure)], [
        [one.name, event.event, *(str(event.failures.get(failure, 0)) for failure in Failure)]
        for one in diagnoses
        for event in one.events
    ]


def training_table(found: Sequence[TrainingDiagnosis]) -> tuple[list[str], list[list[str]]]:
    """Header and rows, a row for each event type."""
    header = ["policy", "method", "event", "measured", "fidelity", "squared error", "zeros", "variance"]
    return header, [
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


def replay_tables(found: Sequence[ReplayDiagnosis]) -> dict[str, tuple[list[str], list[list[str]]]]:
    """Header and rows of each table, by its title: what could be gained at best, and where."""
    header = ["policy", "episodes", "tokens", "values", "explained", "rho", "with so many branches at most"]
    gains = [
        [
            one.name,
            str(one.gain.ratio.n),
            f"{one.cost.completion_tokens:,}",
            one.critic,
            _short(one.explained),
            shown(one.gain.ratio),
            f"{_short(one.gain.capped)} ({one.gain.most:g})",
        ]
        for one in found
    ]
    where = [
        [
            one.name,
            str(block.first) if block.first == block.last else f"{block.first} to {block.last}",
            "as many as can be" if math.isinf(block.branches) else _short(block.branches),
            *("-" if math.isnan(share) else f"{share:.0%}" for share in (block.noise, block.tokens)),
        ]
        for one in found
        for block in one.gain.blocks
    ]
    return {
        "Gain of replays": (header, gains),
        "Where to branch": (["policy", "decisions", "branches alive", "noise", "tokens"], where),
    }


def _in_turn(buckets: Sequence[Bucket], most: int) -> list[Bucket]:
    """One bucket of each category, then a second one of each, until there are enough."""
    by_category = [[bucket for bucket in buckets if bucket.failure == failure] for failure in Failure]
    longest = max(map(len, by_category))
    return [own[place] for place in range(longest) for own in by_category if place < len(own)][:most]


def _example(bucket: Bucket) -> list[str]:
    credits = assigned_credit([bucket], "replay_loo")[0]
    by_text = dict(zip((action.text for action in bucket.replayed), credits, strict=True))
    value = "-" if bucket.value is None else _short(bucket.value)
    head = f"### {bucket.failure}: {heading(bucket.event)}, task {bucket.task}, decision {bucket.turn + 1}"
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
    answered = f"\n\nanswered in its first replay with\n\n{fenced(answers[0])}" if answers else ""
    return f"{name} ({', '.join(facts)}):\n\n{fenced(action.text)}{answered}"


def _short(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.3g}"
