"""Writes the report of a run, or of several compared runs: Markdown, learning curves and numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from hf_credit.evaluation.credit_tables import credit_table, decision_table, ledger_table, read_ledger
from hf_credit.evaluation.credited import EPISODES_FILE, CreditedEpisode, read_episodes, spread
from hf_credit.evaluation.episode_page import PAGE_FILE, rounded, write_episode_page
from hf_credit.evaluation.markdown import escaped, fenced, table
from hf_credit.evaluation.plots import LINES, learning_curves
from hf_credit.evaluation.results import EvalResults, difference, evaluation_files
from hf_credit.evaluation.runs import LOG_FILE, Run, has_log, read_run
from hf_credit.evaluation.statistics import Interval
from hf_credit.files import write, write_json
from hf_credit.rollouts import Ledger
from hf_credit.rollouts.metric_names import is_share, label
from hf_credit.words import plain

REPORT_FILE, RESULTS_FILE, CURVES_FILE = "report.md", "results.json", "learning_curves.png"

HEADLINES = ("success", "completion", "return_first", "return_second")
"""The metrics of comparisons, if the task has them (paper VPR, Table 1)."""

_MEANS = "Means over n episodes with 95% intervals."
_BUDGET = ("run", "updates", "episodes", "generated tokens")
_LEDGER_LEGEND = (
    "Over the whole training: scored outcomes (paper C3's TSE), tokens in contexts and replies (TT), generated "
    "tokens, and replies (ADS). A reply that several episodes share is counted once."
)

_CREDIT_LEGEND = (
    "Last logged values. Advantage: the mean credit of the replies that are trained on; zeros: the share of these "
    "with advantage 0, from which nothing is learned; trained: the share of replies that are trained on; length: in "
    "tokens; distinct: the number of different replies divided by the number of replies."
)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A difference between two policies on the same tasks.

    Attributes:
        of, minus: the names of the policies; the difference is `of` minus `minus`.
        metric: the name of the metric.
        interval: the interval of the mean difference.
        left_out: the number of tasks that do not count, as an episode of either policy has no value, such as after an
            error.
    """

    of: str
    minus: str
    metric: str
    interval: Interval
    left_out: int = 0

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval excludes 0."""
        return self.interval.low > 0 or self.interval.high < 0

    @property
    def conclusion(self) -> str:
        """The result in one sentence."""
        share, values = is_share(self.metric), (self.interval.mean, self.interval.low, self.interval.high)
        mean, low, high = (f"{100 * one:+.1f}" if share else f"{one:+.3f}" for one in values)
        unit = " points" if share else ""
        what = f"{self.of} minus {self.minus}, {label(self.metric)}: {mean}{unit}"
        if self.left_out:
            what += f", without {self.left_out} of {self.left_out + self.interval.n} tasks, in which one has no value"
        level = f"the {100 * self.interval.confidence:g}% interval [{low}, {high}]"
        if self.left_out > (self.left_out + self.interval.n) / 10:
            return f"{what}; {level} decides nothing, since more than a tenth of the tasks is left out."
        if not self.excludes_zero:
            return f"{what}; {level} includes 0, so the difference is not significant over these tasks."
        return f"{what}; {level} excludes 0, so {self.of} is {'better' if self.interval.low > 0 else 'worse'}."


@dataclass(frozen=True, kw_only=True)
class Report:
    """The contents of a report.

    Attributes:
        title: the heading.
        introduction: a description of the experiment; may be empty.
        runs: the training runs, in the order of tables.
        results: the evaluations, by name of the policy.
        comparisons: the differences to report.
        notes: notes for the interpretation of the numbers.
        episode: a training episode of the first run, to show the credit of its decisions.
        episodes: the recorded episodes of its update, in order.
    """

    title: str
    introduction: str = ""
    runs: Sequence[Run] = ()
    results: Mapping[str, EvalResults] = field(default_factory=dict)
    comparisons: Sequence[Comparison] = ()
    notes: Sequence[str] = ()
    episode: CreditedEpisode | None = None
    episodes: Sequence[CreditedEpisode] = ()


def report_of(folders: Sequence[Path], update: int | None = None, episode: int | None = None) -> Report:
    """Reads the report of a run, or of several next to each other, from their folders.

    Evaluations on the same tasks are compared. A first folder with episodes may be without a log.

    Args:
        folders: of the runs; an episode is shown of the first.
        update, episode: as in `choose_episode`.

    Raises:
        ValueError: a folder is none of a run, or named twice, or the episode is not recorded.
        ImportError: scipy is missing.
    """
    names = [folder.resolve().name for folder in folders]
    if len(set(names)) < len(names):
        names = [str(folder) for folder in folders]
    if len(set(names)) < len(names):
        raise ValueError(f"runs must be different folders, got {', '.join(names)}; name each once.")
    results = {
        path.stem if len(folders) == 1 else f"{name}, {path.stem}": EvalResults.load(path)
        for name, folder in zip(names, folders, strict=True)
        for path in evaluation_files(folder)
    }
    same = [(a, b) for a, b in combinations(results, 2) if results[a].tasks == results[b].tasks]
    pairs = {(a, b): compare(results, a, b) for a, b in same}
    recorded = read_episodes(folders[0])
    if not recorded and not (update is episode is None):
        raise ValueError(
            f"--update and --episode need a run with {EPISODES_FILE}, got {str(folders[0])!r} without; set "
            "log_episodes."
        )
    chosen = choose_episode(recorded, update, episode) if recorded else None
    logged = [place for place, folder in enumerate(folders) if place or not recorded or has_log(folder)]
    return Report(
        title=f"Run {names[0]}" if len(folders) == 1 else f"Runs {', '.join(names)}",
        runs=[read_run(folders[place], names[place]) for place in logged],
        results=results,
        comparisons=[one for compared in pairs.values() for one in compared],
        notes=[
            escaped(f"{a} and {b} are not compared, since fewer than 2 tasks have a value in both.")
            for (a, b), compared in pairs.items()
            if not compared
        ],
        episode=chosen,
        episodes=[one for one in recorded if chosen is not None and one.update == chosen.update],
    )


def choose_episode(
    episodes: Sequence[CreditedEpisode], update: int | None = None, episode: int | None = None
) -> CreditedEpisode:
    """Returns one of the recorded episodes.

    Args:
        episodes: from `read_episodes`, at least one.
        update: the update; by default the last recorded one with a credit other than 0, or without any the last.
        episode: the number in the update, from 1; by default the episode with the largest credit differences.

    Raises:
        ValueError: the update or the episode is not recorded.
    """
    updates = sorted({one.update for one in episodes})
    telling = [one.update for one in episodes if any(made.credit or made.token_credit for made in one.decisions)]
    wanted = update if update is not None else max(telling, default=updates[-1])
    found = [one for one in episodes if one.update == wanted]
    if not found:
        raise ValueError(
            f"an update must be one of the recorded {', '.join(map(str, updates))}, got {update}; choose one of them."
        )
    if episode is None:
        return max(found, key=_spread_of)
    if not 1 <= episode <= len(found):
        raise ValueError(
            f"an episode of update {wanted} must be from 1 to {len(found)}, got {episode}; choose one of them."
        )
    return found[episode - 1]


def _spread_of(episode: CreditedEpisode) -> float:
    return spread(other.credit for one in episode.decisions for other in (one, *one.alternatives))


def compare(results: Mapping[str, EvalResults], of: str, minus: str) -> list[Comparison]:
    """Returns the differences between two policies in every metric of `HEADLINES` that both have, or in their outcomes
    if there is none; none if fewer than two tasks have a value in both. A task in which an episode of either has no
    value, such as after an error, does not count, which the comparison says.

    Raises:
        ValueError: the policies were evaluated on different tasks.
        ImportError: scipy is missing.
    """
    a, b = results[of], results[minus]
    shared = [name for name in (*HEADLINES, "reward") if len(a.values(name).keys() & b.values(name).keys()) > 1]
    found = {name: difference(a, b, name) for name in shared if name in HEADLINES or name == shared[0]}
    return [
        Comparison(of=of, minus=minus, metric=name, interval=one, left_out=len(a.records) - one.n)
        for name, one in found.items()
    ]


def write_report(report: Report, folder: str | Path, renewed: int = 0) -> Path:
    """Writes `report.md` and `results.json`; with a run also `learning_curves.png`, and with an episode also
    `episode.html` and a page `episode_N.html` for each other episode of its update.

    Args:
        folder: created if it does not exist; files of these names are overwritten.
        renewed: seconds after which a browser reads `episode.html` again, which then begins with the learning curves;
            0 for neither.

    Returns:
        The path of `report.md`.

    Raises:
        ImportError: matplotlib or scipy is missing.
    """
    folder = Path(folder)
    if report.runs:
        learning_curves(report.runs, folder / CURVES_FILE)
    if report.episode is not None:
        _write_pages(report, folder, renewed)
    write_json(folder / RESULTS_FILE, numbers(report))
    return write(folder / REPORT_FILE, markdown(report))


def watch(folders: Sequence[Path], folder: Path, seconds: int = 10) -> Iterator[Path]:
    """Writes the report of runs again whenever one of them has logged or recorded more, without an end.

    Its page `episode.html` shows the learning curves and, of the last update with credit, the episode with the largest
    credit differences, with links to the others; an open browser reads it again by itself.

    Args:
        folders: as for `report_of`.
        folder: as for `write_report`.
        seconds: between two looks.

    Yields:
        The path of the page, each time it has been written.

    Raises:
        ValueError: as `report_of`.
        ImportError: matplotlib or scipy is missing.
    """
    known: list[tuple[int, int]] = []
    while True:
        found, report = _written(folders), None
        try:
            if found != known and all(map(has_log, folders)):
                report, known = report_of(folders), found
        except (OSError, ValueError):  # of files that the run replaced while they were read
            if _written(folders) == found:
                raise
        if report is not None and report.episode is not None:
            write_report(report, folder, seconds)
            yield folder / PAGE_FILE
        time.sleep(seconds)


def _written(folders: Sequence[Path]) -> list[tuple[int, int]]:
    """When and how much the runs have written."""
    files = (run / name for run in folders for name in (LOG_FILE, EPISODES_FILE))
    found = [path.stat() for path in files if path.is_file()]
    return [(one.st_mtime_ns, one.st_size) for one in found]


def _write_pages(report: Report, folder: Path, renewed: int = 0) -> None:
    """Writes the page of the episode and of the others of its update, with links between them."""
    method = str(report.runs[0].config.get("method", "")) if report.runs else ""
    episodes = report.episodes or [one for one in [report.episode] if one]
    shown = next((place for place, one in enumerate(episodes) if one is report.episode), 0)
    names = [PAGE_FILE if place == shown else f"episode_{place + 1}.html" for place in range(len(episodes))]
    for place, one in enumerate(episodes):
        title = f"{report.title}, update {one.update}, episode {place + 1} of {len(episodes)}"
        links = [(str(at + 1), None if at == place else name) for at, name in enumerate(names)]
        more: dict[str, Any] = {"others": links if len(links) > 1 else ()}
        if renewed and place == shown:
            more |= {"curves": (folder / CURVES_FILE).read_bytes(), "renewed": renewed}
        write_episode_page(one, folder / names[place], title, method=method, **more)


def numbers(report: Report) -> dict[str, Any]:
    """Returns the report's numbers as values of strict JSON; unknown ends of intervals are `None`."""
    return {
        "title": report.title,
        "evaluations": {
            name: {"about": dict(results.about), "episodes": len(results.records), "metrics": plain(results.summary())}
            for name, results in report.results.items()
        },
        "differences": [
            {
                "of": comparison.of,
                "minus": comparison.minus,
                "metric": comparison.metric,
                **plain(comparison.interval),
                "left_out": comparison.left_out,
                "excludes_zero": comparison.excludes_zero,
                "verdict": comparison.conclusion,
            }
            for comparison in report.comparisons
        ],
        "budgets": {run.name: budget(run) for run in report.runs},
        "ledgers": {name: ledger.to_dict() for name, ledger in _ledgers(report.runs).items()},
        "runs": {run.name: {"config": dict(run.config), **run.facts} for run in report.runs},
    }


def budget(run: Run) -> dict[str, float | None]:
    """Returns the updates of a run and, by its ledger, the scored episodes and all generated tokens."""
    return {
        "updates": run.updates,
        "episodes": run.last("budget/scoring_events"),
        "generated_tokens": run.last("budget/completion_tokens"),
    }


def markdown(report: Report) -> str:
    """Returns the report as Markdown."""
    parts = [f"# {escaped(report.title)}"]
    if report.introduction:
        parts.append(report.introduction)
    if report.results:
        parts += ["## Held-out tasks", table(["", *report.results], results_rows(report.results)), _MEANS]
    if report.comparisons:
        parts += [
            "## Differences on the same tasks",
            "\n".join(f"- {escaped(one.conclusion)}" for one in report.comparisons),
        ]
    if report.notes:
        parts.append("\n\n".join(report.notes))
    if report.runs:
        from hf_credit.methods.base import absent_inputs  # imports torch

        counts = {run.name: budget(run).values() for run in report.runs}
        spent = [[name, *("not recorded" if n is None else f"{n:,.0f}" for n in of)] for name, of in counts.items()]
        parts += ["## Training", table(_BUDGET, spent), f"![Learning curves]({CURVES_FILE})", LINES]
        parts += [f"{escaped(run.name)}: {escaped(one)}" for run in report.runs for one in absent_inputs(run.log)]
        if ledgers := _ledgers(report.runs):
            parts += ["## Budget", table(*ledger_table(ledgers, against=next(iter(ledgers)))), _LEDGER_LEGEND]
    parts += _credit(report)
    if report.runs:
        parts += ["## Last logged values", _last_table(report.runs)]
    parts += _settings(report.runs)
    if versions := next(filter(None, (run.facts.get("versions") for run in report.runs)), None):
        parts += ["## Versions", table(("package", "version"), list(versions.items()))]
    return "\n\n".join(parts) + "\n"


def _credit(report: Report) -> list[str]:
    """Returns the section on credit: by role and event type at the end of training, and of one episode."""
    parts = []
    for run in report.runs:
        header, rows = credit_table(run)
        if rows:
            parts += [f"## Credit of replies, {escaped(run.name)}", table(header, rows), _CREDIT_LEGEND]
    if report.episode is not None:
        chosen = f" Chosen: {escaped(report.episode.chosen)}." if report.episode.chosen else ""
        parts += [
            f"## An episode of update {report.episode.update}",
            f"In full, with contexts: [{PAGE_FILE}]({PAGE_FILE}).{chosen}",
            table(*decision_table(report.episode)),
        ]
    return parts


def shown(name: str, interval: Interval) -> str:
    """Writes the mean of a metric with its interval and n for a table; shares are in percent."""
    values = (interval.mean, interval.low, interval.high)
    mean, low, high = (f"{100 * value:.1f}" if is_share(name) else f"{value:.2f}" for value in values)
    mean = f"{mean}%" if is_share(name) else mean
    ends = "no interval" if math.isnan(interval.low) else f"[{low}, {high}]"
    return f"{mean} {ends}, n = {interval.n}"


def results_rows(results: Mapping[str, EvalResults]) -> list[list[str]]:
    """Returns a row per metric: its label and each policy's mean with its interval. Endings that never occurred are
    omitted."""
    summaries = [one.summary() for one in results.values()]
    rows = []
    for name in dict.fromkeys(name for summary in summaries for name in summary):
        intervals = [summary.get(name) for summary in summaries]
        ever = any(interval is not None and interval.mean != 0 for interval in intervals)
        if ever or name == "endings/invalid_action" or not name.startswith("endings/"):
            cells = ["-" if interval is None else shown(name, interval) for interval in intervals]
            rows.append([label(name), *cells])
    return rows


def _ledgers(runs: Sequence[Run]) -> dict[str, Ledger]:
    """Returns the cost of each run that logged it."""
    read = {run.name: read_ledger(run) for run in runs}
    return {name: ledger for name, ledger in read.items() if ledger is not None}


def _last_table(runs: Sequence[Run]) -> str:
    names = sorted({name for run in runs for entry in run.log for name in entry} - {"step", "epoch"})
    last = {name: [run.last(name) for run in runs] for name in names}
    rows = [
        [name, *("-" if one is None else rounded(one, ".4g") for one in values)]
        for name, values in last.items()
        if any(one is not None for one in values)
    ]
    return table(["logged", *(run.name for run in runs)], rows)


def _settings(runs: Sequence[Run]) -> list[str]:
    """Returns the settings of the first run, and the different settings of the others."""
    parts: list[str] = []
    known = [run for run in runs if run.config]
    for run in known:
        config, heading, first = dict(run.config), f"## Settings of {escaped(run.name)}", known[0]
        if run is not first:
            heading += f" that differ from {escaped(first.name)}"
            both = {name: (run.config.get(name), first.config.get(name)) for name in {**first.config, **config}}
            config = {name: own for name, (own, other) in both.items() if own != other}
        written = yaml.safe_dump(config, sort_keys=False, allow_unicode=True)
        parts += [heading, fenced(written, "yaml", most=1_000_000)]
    return parts
