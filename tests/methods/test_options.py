"""Every option of every method changes its credit, or what it plays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest
from small_games import (
    Contrary,
    CutShort,
    Deletions,
    Even,
    Graded,
    Hurried,
    Lenient,
    Peers,
    Ring,
    Seeded,
    Walker,
    WithAnOlderCopy,
    longer,
    suspects,
)
from small_methods import (
    NEED_A_TEAM,
    Player,
    Team,
    Watched,
    beliefs,
    by_decision,
    guesses,
    small_options,
    sudoku_chat,
)

from hf_credit import methods
from hf_credit.methods import METHODS
from hf_credit.options import options_of
from hf_credit.rollouts import Chat, Engine, Interaction


@dataclass(frozen=True, kw_only=True)
class Change:
    """Another value of an option, and where it acts.

    Attributes:
        to: the other value.
        under: the options with which it acts.
        along: options that can only change with it.
        on: makes the task.
        by: makes the player.
        rows: number of task rows in an update.
        updates: number of updates in a row, of which the last is compared.
        seen_in: what changes at least: the `"credit"`, or only what is `"played"`.
    """

    to: Any
    under: Mapping[str, Any]
    along: Mapping[str, Any] = field(default_factory=dict)
    on: Callable[[], Interaction[Any]] | None = None
    by: Callable[[Chat], Player] = Player
    rows: int = 2
    updates: int = 1
    seen_in: Literal["credit", "played"] = "credit"


def to(value: Any, /, **others: Any) -> Change:
    """A change; what are no fields of `Change` are options under which it acts."""
    own = {name: others.pop(name) for name in Change.__dataclass_fields__ if name in others}
    return Change(to=value, under=others, **own)


WALK: Mapping[str, Any] = {"on": Ring, "by": Walker}
PLANNED: Mapping[str, Any] = {**WALK, "updates": 4, "rows": 4, "branches": None, "plan_below": 1.0}
LATER: Mapping[str, Any] = {"updates": 3, "rows": 4}
BONUS: Mapping[str, Any] = {"reward": "bonus"}
STATES: Mapping[str, Any] = {"state_group_size": 3}
CONTEXTS: Mapping[str, Any] = {"budget": 8, "alternatives": (4,), "reference_rollouts": 2}
COPY: Mapping[str, Any] = {"refresh_every": 5}
SCORED: Mapping[str, Any] = {"on": Even, "auditor": Watched(), "families": {"deletion": 1.0}, "updates": 3, "rows": 4}

ANYWHERE = {
    "eps": to(1.0),
    "equal_steps": to(True),
    "gamma": to(0.5),
    "group_size": to(2),
    "lam": to(0.5),
    "oracle": to(Contrary()),
    "outcome_weight": to(0.5),
    "scale": to("none"),
}
"""Changes of options that mean the same in several methods."""
CHANGES: dict[str, dict[str, Change]] = {
    "active_replay": {
        "state_key": to("state", **PLANNED),
        "most": to(1.0, **PLANNED),
        "plan_below": to(0.0, **PLANNED),
        "branches": to((1, 2)),
        "forgetting": to(0.2, **PLANNED),
    },
    "arew": {
        "turn_scores": to("reward"),
        "strength": to(0.5),
        "minority": to(True, on=longer, turn_scores="reward"),
    },
    "at2po": {"initial": to(2), "forks": to(5), "forks_per_round": to(1)},
    "carl": {"initial": to(2), "forks": to(5), "forks_per_round": to(2)},
    "constrained_counterfactual": {
        "steps": to(1.0),
        "branches": to(1),
        "floor": to(0.9, **SCORED),
        "counterfactuals": to("none"),
        "gate": to(False),
        "auditor": to(Lenient()),
        "interventions": to(Deletions(), families={"substitution": 1.0}),
        "families": to({"paraphrase": 1.0}),
        "refresh_every": to(1),
        "ema": to(0.9),
        "answer": to(0.5),
        "evidence": to(0.0),
        "meta": to(0.0),
        "belief": to(0.0),
        "contribution": to(0.0),
        "hack": to(0.0),
        "answer_by": to("verified"),
        "contribution_to": to("check"),
        "estimator": to("model"),
        "selection": to("none"),
        "ratio_low": to(0.9, **COPY),
        "ratio_high": to(1.1, **COPY),
        "contribution_advantage": to(0.0),
        "hack_advantage": to(0.0),
        "constrained": to(False),
        "penalty": to(0.0),
        "rate": to(1.0, updates=2),
        "rule": to("textbook", updates=2),
        "limits": to({"budget": 0.0}),
        "baseline": to("rlvmr"),
    },
    "counterfactual_grpo": {
        "solo_pairing": to("mean"),
        "reward": to("shared"),
        "use_history": to(False),
        "decay": to(0.2, **LATER),
        "order": to("previous", **LATER),
        "min_samples": to(1),
        "alpha": to(3.0),
        "eta": to(5.0),
        "variance_floor": to(10.0),
        "solver_signal": to("joint"),
        "allocation": to("weighted", on=Peers),
        "cut_replies": to("zero", by=CutShort),
        "train_solo": to(True),
        "bonus": to("difference", **BONUS),
        "bonus_weight": to(2.0, **BONUS),
    },
    "draco": {"criteria": to("task")},
    "gdpo": {"rewards": to({"outcome": 1.0, "success": 2.0}, on=longer)},
    "gigpo": {
        "repeats": to(True, **WALK),
        "anchor": to("context", **WALK),
        "gamma": to(0.5, **WALK),
        "weight": to(0.5, **WALK),
        "normalise": to(True, **WALK),
        "by_steps": to(True, **WALK),
        "eps": to(1.0, normalise=True, **WALK),
    },
    "hgpo": {
        "repeats": to(True, **WALK),
        "anchor": to("context", **WALK),
        "history": to(0, **WALK),
        "alpha": to(0.0, **WALK),
        "offset": to(2.0, **WALK),
        "normalise": to(False, **WALK),
    },
    "igpo": {"normalise": to("separate")},
    "magrpo": {"normalise_credit": to(True), "return_clip": to(0.5)},
    "mappo": {"return_clip": to(0.5)},
    "mc_process_reward": {
        "rollouts": to(3, rollouts=2),
        "template_kwargs": to({"hurry": True}, by=Hurried),
        "oracle": to(Contrary(), seen_in="played"),
        "min_active": to(1),
    },
    "mt_grpo": {
        "turn_scores": to("verdict", outcome_weight=0.0),
        "turn_weight": to(0.5),
        "gamma": to(0.5, all_turns=True),
        "all_turns": to(True),
    },
    "outcome_reward": {"oracle": to(Contrary(), seen_in="played")},
    "ppo": {
        "gae_level": to("decision"),
        "whiten": to(True),
        "cut_value": to("bootstrap", truncation={"name": "random", "options": {"probability": 0.5}}),
    },
    "reinforce_plus_plus": {
        "group_size": to(2, group_mean=False),
        "group_mean": to(True),
        "correction": to(0),
    },
    "replay_loo": {
        "budget": to(8, budget=4, match_contexts=False),
        "alternatives": to((4, 1), alternatives=(2, 2)),
        "reference_rollouts": to(2, alternatives=(4,), along={"contexts": 1}),
        "contexts": to(1, **CONTEXTS, along={"budget": 4}),
        "num_replays": to(2, **CONTEXTS, along={"budget": 16}),
        "common_random_numbers": to(True, by=Seeded),
        "match_contexts": to(False),
        "baseline": to("full_mean"),
        "normalise_credit": to(True),
        "value_assistance": to(0.5),
        "return_clip": to(0.5),
        "equal_steps": to(False),
    },
    "sepo": {
        "max_tokens": to(8),
        "self_weight": to(0.9),
        "credit_weight": to(1.0),
        "blame_weight": to(1.0),
    },
    "trace": {
        "turn_weight": to(0.5),
        "horizon": to(1),
        "terminal": to(0.5),
        "gap": to(1.0),
    },
    "tree_grpo": {"trees": to(1), "expansions": to(1), "rounds": to(2)},
    "turn_credit": {"turn_scores": to("verdict", outcome_weight=0.0), "beta": to(0.5)},
    "verifiable_process": {
        "outcome_weight": to(0.5, oracle=Contrary()),
        "min_active": to(1, rows=3),
        "state_group_size": to(3),
        "commit": to("random", **STATES),
        "whiten": to(False, **STATES),
        "bonus": to(0.5),
    },
    "vineppo": {
        "rollouts": to(3, rollouts=2),
        "template_kwargs": to({"hurry": True}, by=Hurried),
        "whiten": to(False),
    },
}
"""By method and option. A new option needs a line here, and perhaps a game in which it acts."""
FROZEN = "tests/trainers/test_frozen.py::"
IN_A_TRAINER = {
    # It says when the copy is refreshed, or how it follows, which a trainer does between updates.
    ("constrained_counterfactual", "refresh_every"): (
        "refresh_frozen_every", 7, f"{FROZEN}test_refreshing_copies_the_current_weights"
    ),
    ("constrained_counterfactual", "ema"): (
        "frozen_decay", 0.9, f"{FROZEN}test_it_follows_in_steps_too_small_for_the_policys_dtype"
    ),
    ("trace", "refresh_every"): ("refresh_frozen_every", 7, f"{FROZEN}test_refreshing_copies_the_current_weights"),
}  # fmt: skip
"""The attribute of the method in which a trainer reads an option, a value, and the test of what it does there. The
first two also have a value that changes what a collector plays, in `CHANGES`."""
PAIRS = [(name, option) for name in METHODS for option in options_of(methods.find(name))]


def change_of(name: str, option: str) -> Change | None:
    return CHANGES.get(name, {}).get(option) or ANYWHERE.get(option)


class Shown(NamedTuple):
    """What a method does in its last update."""

    credit: list[Any]  # credit and weight of each decision
    played: list[Any]  # kind, outcome, and replies with verdicts of each rollout


def shown(name: str, options: Mapping[str, Any], change: Change) -> Shown:
    method = methods.make(name, **options)
    task = (Team if name in NEED_A_TEAM else Graded)() if change.on is None else change.on()
    player = change.by(sudoku_chat())
    context = WithAnOlderCopy(Engine(method.wrapped(task), player.chat, player), logprobs=beliefs)
    context.frozen = context.engine
    context.critics = {**dict.fromkeys(("critic", "outcome"), guesses), "belief": suspects}
    method, rows = method.bind(context.interaction), [{"seed": seed} for seed in range(change.rows)]
    memory = method.memory
    for context.update in range(1, change.updates + 1):
        collected = method.collector(rows, context, memory)
        credit = method.estimator(collected, context, memory)
        memory = credit.memory
    values = by_decision(collected, credit)
    ids = dict.fromkeys(one.id for episode in collected.episodes for one in episode.decisions)
    return Shown(
        [(rounded(values.get(one)), rounded(credit.weights.get(one))) for one in ids],
        [
            (one.kind, one.episode.outcome, [(each.action_ids, each.verdict) for each in one.episode.decisions])
            for one in collected.rollouts
        ],
    )


def rounded(value: Any) -> Any:
    """Without what is only arithmetic."""
    if isinstance(value, Sequence):
        return [rounded(one) for one in value]
    return None if value is None else round(value, 6) + 0.0


@pytest.mark.parametrize(
    ("name", "option"), [pair for pair in PAIRS if pair not in IN_A_TRAINER or change_of(*pair) is not None]
)
def test_an_option_changes_credit_or_what_is_played(name: str, option: str) -> None:
    change = change_of(name, option)
    assert change is not None, "a new option needs a line in CHANGES"
    small = {one: value for one, value in small_options(name).items() if one != option}
    before = {**small, **change.under}
    assert change.to != before.get(option, options_of(methods.find(name))[option].default)
    first = shown(name, before, change)
    assert shown(name, before, change) == first
    other = shown(name, {**before, **change.along, option: change.to}, change)
    assert getattr(other, change.seen_in) != getattr(first, change.seen_in)


@pytest.mark.parametrize(("name", "option"), IN_A_TRAINER)
def test_an_option_that_acts_in_a_trainer_reaches_it_and_is_tested_there(name: str, option: str, root: Path) -> None:
    attribute, value, where = IN_A_TRAINER[name, option]
    assert getattr(methods.make(name, **{option: value}), attribute) == value
    path, _, test = where.partition("::")
    assert f"def {test}(" in (root / path).read_text("utf-8")


def test_every_change_is_of_an_option() -> None:
    named = {(name, option) for name, changes in CHANGES.items() for option in changes}
    assert named | {*IN_A_TRAINER} <= {*PAIRS}
    assert {*ANYWHERE} <= {option for _, option in PAIRS}


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("replay_loo", {"contexts": 4}, "contexts has no effect without reference_rollouts, got 4; leave it out"),
        ("replay_loo", {"num_replays": 4}, "num_replays has no effect without reference_rollouts"),
        ("replay_loo", {"match_contexts": False, "reference_rollouts": 1}, "no effect with match_contexts=False"),
        ("verifiable_process", {"commit": "random"}, "commit has no effect without state_group_size, got 'random'"),
        ("verifiable_process", {"state_group_size": 4, "min_active": 2}, "min_active has no effect in state groups"),
    ],
)
def test_an_option_that_another_makes_idle_is_refused(name: str, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        methods.make(name, **options)


def test_options_that_another_makes_idle_may_have_their_defaults() -> None:
    for name, options in (
        ("replay_loo", {"contexts": 2, "num_replays": 1}),
        ("verifiable_process", {"commit": "best"}),
        ("verifiable_process", {"state_group_size": 4, "min_active": 4}),
    ):
        assert methods.make(name, **options).name == name  # as a preset passes all of them
