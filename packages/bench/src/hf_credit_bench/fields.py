"""The fields of the bench, by length and success at the start, and where in them something can be gained.

The dials follow a rule that was written down before the methods were run: `FIELDS` are three lengths at equal success,
and three rates of success at one length. At each rung the initial probability of a right decision is the one with
which the exact value of the initial policy is the field's success. Methods are measured on a rung only if one of the
references gains `LEAST` over the outcome there.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from hf_credit import methods
from hf_credit.evaluation.statistics import Interval, paired_difference
from hf_credit_bench.cells import Cells, Job, conditions, error_of, uses_critic
from hf_credit_bench.measures import make_problem
from hf_credit_bench.network import policy_at_start
from hf_credit_bench.play import ARMS, REFERENCES
from hf_credit_bench.truth import Truth

FIELDS = ((4, 0.1), (16, 0.1), (64, 0.1), (16, 0.01), (16, 0.001))
"""Decisions of an episode, and success at the start."""

LADDER, TABLE = "rules", "chain"
"""The problem of the fields, whose policy shares parameters and is judged by held-out tasks; and one for a table."""

MIDDLE, LONG = FIELDS[1], 64

LEAST = 0.1
"""A rung where no reference gains as much in area over the outcome has nothing to gain."""

BASE, EXACT, STARTS, JUDGED = "outcome_reward", "exact_advantage", "perfect_starts", "verifiable_process"
"""The method that others must beat, and the references that tell what can be gained."""

SURVIVORS = 2
"""Besides the fields of `MIDDLE`'s length so many of each kind of methods are measured, those that gain most there; at
the longest, where an update costs most, the best alone."""

JUDGE_ERROR, RATIOS = 0.1, (0.5, 1.0, 2.0)
"""The probability of a judge's wrong verdict, and others as multiples of the policy's own errors."""

KINDS: Mapping[str, str] = {
    "outcome": "only an outcome or rewards",
    "critic": "a learned critic",
    "replays": "replays",
    "both": "replays and a critic",
    "starts": "a demonstration of each task, and states that can be restored",
    "oracle": "a program that judges every move",
    "judge": "a judge that is wrong in every tenth verdict",
    "team": "a team that can play without a member",
    "answers": "a task that knows its right answers",
    "auditor": "an auditor that verifies steps, and replays",
    "own": "your own method",
}
"""The requirements of methods in a user's words."""

_NEEDS = {"audits": "auditor", "verdicts": "oracle", "removals": "team", "answers": "answers"}


@dataclass(frozen=True)
class Rung:
    """A problem with its dials, and the field that they belong to, if it is one of `FIELDS`."""

    problem: str
    dials: Mapping[str, Any] = field(default_factory=dict, hash=False)
    field: tuple[int, float] | None = None

    @property
    def said(self) -> str:
        """The field in words."""
        return f"{self.field[0]} decisions, {100 * self.field[1]:g} %" if self.field else ""


def _at(problem: str, dial: str, rights: Mapping[tuple[int, float], float], **dials: Any) -> list[Rung]:
    return [Rung(problem, {dial: one[0], "start_right": right, **dials}, one) for one, right in rights.items()]


RUNGS: Sequence[Rung] = (
    *_at(LADDER, "length", {(4, 0.1): 0.5698, (16, 0.1): 0.8026, (16, 0.01): 0.6646, (16, 0.001): 0.5547}),
    *_at(LADDER, "length", {(64, 0.1): 0.8647}),
    *_at(TABLE, "length", {(4, 0.1): 0.5623, (16, 0.1): 0.866, (16, 0.01): 0.7499}),
    *_at("key", "horizon", {MIDDLE: 0.1}),
    *_at("late", "horizon", {MIDDLE: 0.1111}, bad=0.0),
    *_at("trap", "horizon", {MIDDLE: 0.7499}, needed=8),
    *_at("drift", "length", {MIDDLE: 0.866}),
    *map(Rung, ("branches", "paid", "stop", "revisit", "relay", "vote", "hack", "number_relay", "sum_vote")),
)
"""The rungs of a full run; `tests/bench/test_fields.py` finds the probabilities again."""

_OF = {(one.problem, json.dumps(one.dials, sort_keys=True)): one for one in RUNGS}


def rung_of(cell: Mapping[str, Any]) -> Rung:
    """Returns the rung of a cell, also of one that no full run has."""
    known = _OF.get((cell["problem"], json.dumps(cell["dials"], sort_keys=True)))
    return known or Rung(cell["problem"], cell["dials"])


@functools.lru_cache(maxsize=64)
def own_error(rung: Rung) -> float:
    """Returns the share of the initial policy's decisions that an oracle without errors judges wrong."""
    world = make_problem(rung.problem, **rung.dials)
    truth = Truth(policy_at_start(world))
    wrong = total = 0.0
    for (node, before), share in truth.reached.items():
        if (node, before) in truth.action_values:
            row = truth.policy.of(world.view(node, world.speakers(node)[len(before)]))
            wrong += share * sum(float(p) * (1 - world.right(node, action)) for action, p in enumerate(row))
            total += share
    return wrong / total


def kind_of(cell: Mapping[str, Any]) -> str:
    """Returns the requirement of a cell's method, a key of `KINDS`; `"own"` for methods outside the library."""
    kind = _kind(cell["method"])
    errs = kind == "oracle" and (error_of(cell) or make_problem(cell["problem"], **cell["dials"]).own_errors)
    return "judge" if errs else kind


@functools.lru_cache(maxsize=256)
def _kind(method: str) -> str:
    if method not in methods.METHODS:
        return "starts" if method in ARMS else "own"
    made = methods.make(method)
    needs = [kind for name, kind in _NEEDS.items() if name in getattr(made.estimator, "needs", ())]
    replays = bool(getattr(made.collector, "replaying", False))
    others = {(0, 0): "outcome", (0, 1): "critic", (1, 0): "replays", (1, 1): "both"}
    return [*needs, others[replays, uses_critic(method)]][0]


def of_settings(cells: Cells, critic: str, updates: int) -> list[Mapping[str, Any]]:
    """Returns the cells of a run's critic and updates, with the bench's own options of methods."""
    return [
        cell
        for cell in cells
        if (cell["critic"], cell["updates"], cell["options"])
        == (conditions(cell["method"], critic, 0.0)["critic"], updates, {})
    ]


def on_rung(cells: Cells, rung: Rung) -> list[Mapping[str, Any]]:
    """Returns the cells of a rung that were trained on most seeds, which all of them share."""
    trained = [cell for cell in cells if len(cell.get("areas") or ()) > 1 and rung_of(cell) == rung]
    most = max((len(cell["areas"]) for cell in trained), default=0)
    return [cell for cell in trained if len(cell["areas"]) == most]


def areas_of(cells: Cells, method: str, error: float = 0.0, repeats: bool = False) -> list[float] | None:
    """Returns the areas of a method among the cells of a rung, with an oracle of these errors, if it has one."""
    kinds = ((cell, (cell["method"], error_of(cell), bool(cell.get("repeats")))) for cell in cells)
    return next((cell["areas"] for cell, kind in kinds if kind == (method, error, repeats)), None)


def own_of(cells: Cells) -> list[Mapping[str, Any]]:
    """Returns the cells of a rung without references, `BASE`, and methods that are `BASE` by another name there."""
    base = [round(one, 4) for one in areas_of(cells, BASE) or ()]
    learned = [cell for cell in cells if cell["method"] not in {*REFERENCES, BASE}]
    return [cell for cell in learned if [round(one, 4) for one in cell["areas"]] != base]


def gains(cells: Cells) -> dict[str, Interval]:
    """Returns what each reference gains over the outcome, given the cells of a rung."""
    base = areas_of(cells, BASE)
    found = {name: areas_of(cells, name) for name in (EXACT, STARTS, JUDGED)}
    return {name: paired_difference(own, base) for name, own in found.items() if own and base}


def worth_it(cells: Cells) -> bool:
    """Returns whether something can be gained on a rung, given its cells."""
    return any(one.mean >= LEAST for one in gains(cells).values())


def plan(known: Cells, **settings: Any) -> list[Job]:
    """Returns the cells of a full run, as far as the known ones tell: the others depend on them.

    First come the references and the outcome on every rung. Rungs with something to gain get the other methods, those
    of `LADDER` and `TABLE` also judges whose errors are multiples of the policy's own.

    Args:
        known: the cells so far; those of other settings tell nothing.
        settings: further fields of `Job`, with `critic` and `updates`.
    """
    known = of_settings(known, settings["critic"], settings["updates"])
    measured: dict[Rung, set[str]] = {}
    for cell in known:
        measured.setdefault(rung_of(cell), set()).add(cell["method"])

    def jobs(rung: Rung, names: Iterable[str], errors: Iterable[float], **more: Any) -> list[Job]:
        made = {"problem": rung.problem, "dials": rung.dials, **settings, **more}
        pairs = itertools.product(names, errors)
        return [Job(**{**made, "method": name, **conditions(name, settings["critic"], one)}) for name, one in pairs]

    first, every = (BASE, EXACT, STARTS, JUDGED), (*ARMS, *methods.METHODS)
    middle = next(rung for rung in RUNGS if (rung.problem, rung.field) == (LADDER, MIDDLE))
    survivors = _survivors(on_rung(known, middle)) if measured.get(middle, set()) >= {*every} else {}
    # What does not fit the ladder, such as methods for teams, plays where it fits.
    refused = [cell["method"] for cell in known if cell["refused"] and survivors and rung_of(cell) == middle]
    found = [job for rung in RUNGS for job in jobs(rung, first, (0.0,))]
    for rung in RUNGS:
        if not (measured.get(rung, set()) >= {*first} and worth_it(on_rung(known, rung))):
            continue
        names: Sequence[str] = every
        if rung.problem != LADDER or rung.field is None or rung.field[0] != MIDDLE[0]:
            most = 1 if rung.field and rung.field[0] == LONG else SURVIVORS
            names = [name for best in survivors.values() for name in best[:most]] + refused
        own_errors = make_problem(rung.problem, **rung.dials).own_errors
        found += jobs(rung, names, (0.0,) if own_errors else (0.0, JUDGE_ERROR))
        if rung.problem in (LADDER, TABLE):
            wrong = [round(ratio * own_error(rung), 4) for ratio in RATIOS if ratio * own_error(rung) <= 0.5]
            found += [job for again in (False, True) for job in jobs(rung, (JUDGED,), wrong, repeats=again)]
    return [*{job.key: job for job in found}.values()]


def _survivors(cells: Cells) -> dict[str, list[str]]:
    """Returns the methods of each kind, those that learned most first."""
    ranked: dict[str, list[str]] = {}
    for cell in sorted(own_of(cells), key=lambda one: (-round(fmean(one["areas"]), 6), one["method"])):
        names = ranked.setdefault(kind_of(cell), [])
        names += [] if cell["method"] in names else [cell["method"]]
    return ranked
