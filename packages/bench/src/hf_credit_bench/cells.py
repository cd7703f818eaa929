"""The cells of the bench: each is a method in a problem, scored and trained, and written as soon as it is done."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NotRequired, TypedDict, get_args

from code_sandbox.fork_server import processors
from hf_credit import methods
from hf_credit.boundary import Worth, check, types_of
from hf_credit.boundary import read as read_shape
from hf_credit.collectors import Verified
from hf_credit.files import append
from hf_credit.options import options_of
from hf_credit.parquet import read_rows
from hf_credit.processes import end_with
from hf_credit.safe_io import parse_json
from hf_credit.trust import is_code, search_here
from hf_credit.validators import first_line, one_of
from hf_credit_bench.measures import STEPS, Score, area, learning, make_method, make_problem, score
from hf_credit_bench.network import policy_at_start
from hf_credit_bench.play import ARMS, REFERENCES, Critic, bound
from hf_credit_bench.problem import Problem
from hf_credit_bench.problems import PROBLEMS
from hf_credit_bench.truth import Truth, best

logger = logging.getLogger(__name__)

Cells = Sequence[Mapping[str, Any]]

LINES = "cells.jsonl"
"""The file of the cells of a folder."""

_MAPPINGS = ("dials", "options")

EPISODES = 16
"""The tokens of an update, in episodes, whatever the method plays."""
UPDATES = 16
"""The budget of learning, in such updates."""
LEAST_GAIN = 0.01
"""A larger step size must gain as much in area to be taken, since areas level off where a table is soon certain."""

SETTINGS: Mapping[str, Any] = {"group_size": 4, "rollouts": 1, "whiten": False}
"""Options of all methods that have them: small groups, so that an update has several."""

OWN_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "constrained_counterfactual": {"steps": 2, "branches": 1},
    **{name: {"group_size": 1} for name in ("active_replay", "ppo", "reinforce_plus_plus")},
}
"""Options of single methods: replays that fit into an update, and no groups for who needs none, as they cost tasks."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A cell to compute.

    Attributes:
        method: a name, that of a reference, or `"module:factory"`.
        problem: a name, or `"module:factory"`.
        options: of the method, besides `SETTINGS`.
        critic: the predictions of critics, for a method that has any.
        oracle_error: the probability of a wrong verdict, for a method that is credited by verdicts.
        repeats: whether a wrong verdict is the same whenever its view and action come again, or each is drawn anew.
        seeds: the number of seeds of learning; 0 for no learning.
        updates: the number of updates for the score.
        steps: the step sizes to choose from, in ascending order.
    """

    method: str
    problem: str
    dials: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    critic: Critic = "exact"
    oracle_error: float = 0.0
    repeats: bool = False
    seeds: int = 10
    updates: int = 24
    steps: Sequence[float] = STEPS

    @property
    def key(self) -> str:
        """The cell's identity in a file: all fields, and the budget of learning."""
        fields = {**self.named, "learning": [EPISODES, UPDATES, LEAST_GAIN, *self.steps]}
        return json.dumps({**fields, "played": repr(make_problem(self.problem, **self.dials))}, sort_keys=True)

    @property
    def named(self) -> dict[str, Any]:
        """The fields of its cell."""
        fields = {name: value for name, value in dataclasses.asdict(self).items() if name != "steps"}
        return {**fields, "policy": "start"}


def jobs(
    names: Sequence[str] | None = None,
    problems: Sequence[str] | None = None,
    dials: Mapping[str, Any] | None = None,
    critic: Critic = "exact",
    oracle_error: float = 0.0,
    **settings: Any,
) -> list[Job]:
    """Returns the cells of methods in problems: a score at the start, and learning.

    Args:
        names: of methods; all and the references if `None`.
        problems: all if `None`.
        critic, oracle_error: as in `Job`; `"exact"` and 0 where a method would not notice.
        settings: further fields of `Job`.

    Raises:
        ValueError: a name is none, or a problem has no such dial or value of one.
    """
    one_of("critic", critic, get_args(Critic))
    for problem in problems or PROBLEMS:
        make_problem(problem, **dials or {})
    every = [*REFERENCES, *ARMS, *methods.METHODS] if names is None else names
    return [
        Job(method=name, problem=problem, dials=dials or {}, **conditions(name, critic, oracle_error), **settings)
        for problem in problems or PROBLEMS
        for name in every
    ]


@lru_cache(maxsize=256)
def conditions(method: str, critic: str, oracle_error: float) -> Mapping[str, Any]:
    """Returns the critic and the error of oracles in a method's cells: exact ones where the method asks for none."""
    if is_code(method):  # imported in its cell, which shows errors
        return {"critic": critic, "oracle_error": oracle_error}
    judged = "verdicts" in getattr(make_method(method).estimator, "needs", ())
    return {"critic": critic if uses_critic(method) else "exact", "oracle_error": oracle_error * judged}


def uses_critic(method: str) -> bool:
    """Returns whether a method of the library, or a reference, asks a critic."""
    made = make_method(method)
    return bool(made.critics or made.critic_specs)


def error_of(cell: Mapping[str, Any]) -> float:
    """Returns the probability of a wrong verdict; a cell without it has oracles that err only where dials say so."""
    return cell.get("oracle_error") or 0.0


def run(todo: Sequence[Job], path: Path, processes: int | None = None) -> Iterator[Mapping[str, Any]]:
    """Computes the cells that a file lacks, in several processes, and yields each once it is written.

    Args:
        path: of JSON lines; cells of incomplete lines and cells that failed are computed again.
        processes: their number; one per core that this process may use if `None`.
    """
    done = read(path)
    waiting = [job for job in todo if job.key not in done]
    for cell in _filled(waiting, min(processes or processors(), len(waiting))):
        append(path, json.dumps(cell) + "\n")
        yield cell


def _filled(waiting: Sequence[Job], processes: int) -> Iterator[Mapping[str, Any]]:
    if processes < 2:
        yield from map(fill, waiting)
        return
    start = (_begin, ([name for job in waiting for name in (job.method, job.problem)], os.getpid()))
    with ProcessPoolExecutor(processes, get_context("spawn"), *start) as pool:
        for future in as_completed([pool.submit(fill, job) for job in waiting]):
            yield future.result()


def _begin(codes: Sequence[str], parent: int) -> None:
    import torch

    end_with(parent)  # else workers would wait for ever, since each keeps the queue open
    torch.set_num_threads(1)
    search_here(codes)


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Returns the cells of a file, if there is one, by their keys, without those that failed. A line that this version
    cannot read is named in the log and left out."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    cells = {cell["key"]: cell for cell in _checked(lines, parse_json, f"line {{}} of {path}")}
    return {key: cell for key, cell in cells.items() if not cell.get("failed")}


def _checked(values: Sequence[Any], made: Callable[[Any], Any], place: str) -> Iterator[dict[str, Any]]:
    """Yields the cells among lines or rows, each judged alone."""
    for number, value in enumerate(values, 1):
        try:
            yield check_cell(made(value))
        except Exception as error:  # whatever a cell of another version raises
            _tell(f"{place.format(number)} is no cell that this version can read, and left out: {first_line(error)}")


_tell = lru_cache(maxsize=4096)(logger.warning)  # once, since files are read several times in a run


class _Cell(TypedDict):  # and the fields of `Score`
    key: str
    method: str
    problem: str
    policy: str
    critic: str
    dials: dict[str, float | str | None]
    options: dict[str, Any]
    oracle_error: NotRequired[float | None]
    repeats: NotRequired[bool | None]
    refused: NotRequired[str | None]
    areas: NotRequired[list[Worth] | None]
    tokens_to_90: NotRequired[list[int | None] | None]
    step: NotRequired[float | None]
    seeds: NotRequired[int | None]
    instances: NotRequired[int | None]
    budget: NotRequired[int | None]


def check_cell(cell: Any) -> dict[str, Any]:
    """Returns a cell of a file, with `None` for what it does not say of its score; raises a `ValueError` if a field is
    missing or of another type, or this version has no such method, problem or policy, or another budget."""
    read_shape(_Cell, cell, "a cell")
    if not is_code(cell["method"]):
        one_of("the method of a cell", cell["method"], (*REFERENCES, *ARMS, *methods.METHODS))
    if not is_code(cell["problem"]):
        played = json.dumps(repr(make_problem(cell["problem"], **cell["dials"])))
        if played not in cell["key"] or f"[{EPISODES}, {UPDATES}, {LEAST_GAIN}, " not in cell["key"]:
            raise ValueError("a cell must be of this version's problem and budget, got others; measure it again.")
    one_of("the policy of a cell", cell["policy"], ("start",))
    one_of("the critic of a cell", cell["critic"], get_args(Critic))
    for name in types_of(Score):
        check(name, cell.get(name), float | None, sender="a cell")
    return {"refused": None, **dict.fromkeys(types_of(Score)), **cell}


def to_rows(cells: Cells) -> list[dict[str, Any]]:
    """Returns cells as rows of one table: dials and options as JSON, all columns in each row."""
    rows = [{**cell, **{name: json.dumps(cell[name]) for name in _MAPPINGS}} for cell in cells]
    names = dict.fromkeys(name for row in rows for name in row if name != "failed")  # `read` leaves these out
    return [{name: row.get(name) for name in names} for row in rows]


def from_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the cells of rows from `to_rows`, without those that this version cannot read, which the log names."""

    def made(row: Mapping[str, Any]) -> dict[str, Any]:
        texts = {name: check(name, row.get(name), str, sender="a row of cells") for name in _MAPPINGS}
        return {**row, **{name: parse_json(text) for name, text in texts.items()}}

    return list(_checked(rows, made, "row {} of a table of cells"))


def take_up(folder: Path) -> dict[str, dict[str, Any]]:
    """Adds the cells that only the table of a folder has to its lines, so that a run continues and keeps them.

    Returns:
        All of its cells by their keys.
    """
    lines, table = folder / LINES, folder / "cells.parquet"
    known = read(lines)
    if table.exists():
        missing = [cell for cell in from_rows(list(read_rows({table.name: table}))) if cell["key"] not in known]
        append(lines, "".join(json.dumps(cell) + "\n" for cell in missing))
        known |= {cell["key"]: cell for cell in missing}
    return known


def fill(job: Job) -> dict[str, Any]:
    """Returns a job's cell: its results, or `refused`, why the method does not fit, or `failed`, a traceback."""
    cell: dict[str, Any] = {"key": job.key, **job.named, "refused": None, "failed": None}
    try:
        method, problem = _method(job), _problem(job)
        try:
            bound(method, problem)
        except ValueError as error:
            return {**cell, "refused": str(error)}
        instances = instances_of(job)
        cell |= {"instances": instances, **vars(_score(job, instances, job.updates))}
        if job.seeds:
            result = learned(job, range(job.seeds), instances)
            if result.end <= result.start:
                return {**cell, "refused": "the problem's policy must be able to improve; choose other dials."}
            good = result.start + 0.9 * (result.end - result.start)
            cell |= {
                "budget": result.budget,
                "step": result.step,
                "areas": result.areas(),
                "tokens_to_90": [next((spent for spent, j in one if j >= good), None) for one in result.curves],
            }
    except Exception:
        cell["failed"] = traceback.format_exc()
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in cell.items()
    }


def _score(job: Job, instances: int, updates: int) -> Score:
    policy, sizes = _policy(_problem(job)), {"updates": updates, "instances": instances}
    return score(_method(job), policy.problem, policy=policy, critic=job.critic, **sizes)


def _method(job: Job, seed: int = 0) -> Any:
    """Returns the method of a run, whose `seed` draws the verdicts that repeat."""
    if job.method in REFERENCES | ARMS:
        return make_method(job.method)
    known = options_of(methods.find(job.method))
    settings = {name: value for name, value in SETTINGS.items() if name in known}
    made = make_method(job.method, **{**settings, **OWN_SETTINGS.get(job.method, {}), **job.options})
    if job.oracle_error and isinstance(made.collector, Verified):
        oracle = _problem(job).judge(job.oracle_error, seed if job.repeats else None)
        return dataclasses.replace(made, collector=dataclasses.replace(made.collector, oracle=oracle))
    return made


def _problem(job: Job) -> Problem:
    return _made(job.problem, json.dumps(job.dials))


@lru_cache(maxsize=8)
def _made(problem: str, dials: str) -> Problem:
    return make_problem(problem, **json.loads(dials))


_policy = lru_cache(maxsize=8)(policy_at_start)


@lru_cache(maxsize=64)
def ends_of(problem: Problem) -> tuple[float, float, float]:
    """Returns J at the start and its maximum, and the tokens of an episode at the start."""
    policy = _policy(problem)
    truth = Truth(policy)
    tokens = sum(share for (node, before), share in truth.reached.items() if len(before) < len(problem.speakers(node)))
    return truth.judged, best(policy), tokens


def instances_of(job: Job) -> int:
    """Returns the number of task rows of an update with the tokens of about `EPISODES` episodes."""
    _, _, length = ends_of(_problem(job))
    return max(1, round(2 * EPISODES * length / _score(job, 2, 8).tokens))


@dataclass(frozen=True, kw_only=True)
class LearningCurves:
    """The learning curves of a method on several seeds.

    Attributes:
        budget: the tokens of each seed.
        start, end: J at the start and its maximum.
        step: from the job's `steps`, chosen on other seeds.
        curves: from `learning`, one per seed.
    """

    budget: int
    start: float
    end: float
    step: float
    curves: Sequence[Sequence[tuple[int, float]]]

    def areas(self) -> list[float]:
        """Returns the area under each curve, over tokens."""
        return [area(curve, self.budget, self.start, self.end) for curve in self.curves]


def learned(job: Job, seeds: Iterable[int], instances: int | None = None) -> LearningCurves:
    """Trains a job's method in its problem.

    Args:
        job: of a cell.
        instances: task rows of an update; those of `instances_of` if `None`.

    The step size is found from the middle of the job's `steps`: upwards as long as the area on two other seeds grows
    by more than `LEAST_GAIN`, or downwards as long as it grows.
    """
    world = _problem(job)
    start, end, length = ends_of(world)
    budget = round(UPDATES * EPISODES * length)
    rows = instances or instances_of(job)

    def with_step(step: float, seeds: Iterable[int]) -> LearningCurves:
        settings: dict[str, Any] = {"step": step, "tokens": budget, "critic": job.critic, "instances": rows}
        curves = [learning(_method(job, seed), world, seed=seed, **settings) for seed in seeds]
        return LearningCurves(budget=budget, start=start, end=end, step=step, curves=curves)

    @lru_cache
    def worth(place: int) -> float:
        return sum(with_step(job.steps[place], (1000, 1001)).areas()) / 2

    place = len(job.steps) // 2
    while place + 1 < len(job.steps) and worth(place + 1) > worth(place) + LEAST_GAIN:
        place += 1
    while place and worth(place - 1) > worth(place):
        place -= 1
    return with_step(job.steps[place], seeds)
