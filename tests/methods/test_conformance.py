"""Properties of every method in `METHODS`."""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from small_methods import (
    NEED_A_TEAM,
    OPTIONS,
    AtOnce,
    Player,
    Team,
    Uneven,
    beliefs,
    by_decision,
    guesses,
    local,
    made,
    method_of,
    play,
    sudoku_chat,
    task_of,
)
from small_runs import ON_A_PROCESSOR
from transformers import TrainerCallback

from hf_credit import CreditConfig, CreditTrainer, make
from hf_credit.collectors import (
    Answers,
    Collector,
    Continuations,
    Group,
    RandomForks,
    Ratings,
    RolloutBatch,
    Single,
    Tree,
    UncertainForks,
    Verified,
    VisitedContexts,
)
from hf_credit.collectors.base import gives_of
from hf_credit.collectors.ratings import RATING
from hf_credit.methods import METHODS, Credit, Method
from hf_credit.methods.cvt import Constraints
from hf_credit.methods.memory import from_plain, to_plain
from hf_credit.oracles.sudoku_constraints import SudokuConstraintsOracle
from hf_credit.policies.scripted import recorded, walk
from hf_credit.rollouts import (
    Chat,
    Decision,
    Ending,
    Engine,
    Episode,
    Interaction,
    Ledger,
    LocalContext,
    RolloutRequest,
)
from hf_credit.rollouts.replay import begun_later
from hf_credit.rollouts.scripts import OraclePlayer

# An oracle's verdict on a decision stands, whatever became of the episode afterwards.
CREDITS_BEFORE_AN_ERROR = {"verifiable_process", "verifiable_process in state groups"}
# Settings of the trainer that a method is nothing without.
SETTINGS: dict[str, dict[str, Any]] = {"gspo": {"aggregation": "sequence"}}
KEEP_FIRST_STEPS = {"mc_process_reward", "vineppo"}  # of continuations, whose contexts would take gigabytes

EVERY_METHOD = pytest.mark.parametrize("name", sorted({*METHODS, *OPTIONS}))


@pytest.fixture(scope="module")
def chat() -> Chat:
    return sudoku_chat()


def approx(credits: Mapping[str, Any]) -> dict[str, Any]:
    return {name: pytest.approx(value, abs=1e-9) for name, value in credits.items()}


# Without a trainer


@EVERY_METHOD
def test_credit_has_the_documented_form_and_is_not_empty(name: str, chat: Chat) -> None:
    context = local(name, chat)
    method, collected = play(name, context)
    credits = by_decision(collected, method.estimator(collected, context, method.memory))
    assert any(value != 0 for value in credits.values())


@EVERY_METHOD
def test_equal_arguments_give_equal_credit(name: str, chat: Chat) -> None:
    context = local(name, chat)
    method, collected = play(name, context)
    before = to_plain(method.memory)
    first, second = (method.estimator(collected, context, method.memory) for _ in range(2))
    assert first == second
    assert to_plain(method.memory) == before


@EVERY_METHOD
def test_memory_is_a_value_that_survives_a_checkpoint(name: str, chat: Chat) -> None:
    context = local(name, chat)
    method, collected = play(name, context)
    memory = method.estimator(collected, context, method.memory).memory
    hash(memory)  # frozen, all the way down
    assert from_plain(to_plain(memory), method.memory) == memory
    assert type(memory) is type(method.memory)


class Remembering(LocalContext):
    """A context that keeps all that it played."""

    def play(self, *args: Any, **kwargs: Any) -> list[Episode]:
        found = super().play(*args, **kwargs)
        self.played = [*getattr(self, "played", []), *found]
        return found


@EVERY_METHOD
def test_the_ledger_counts_every_decision_once(name: str, chat: Chat) -> None:
    context: Any = local(name, chat)
    context.__class__ = Remembering
    _, collected = play(name, context)
    episodes = [sample.episode for sample in collected.rollouts]
    episodes += [sample.extras[RATING] for sample in collected.rollouts if RATING in sample.extras]
    if name in KEEP_FIRST_STEPS:
        episodes = context.played
    assert replace(context.ledger, counterfactual_tokens=0) == Ledger.of(episodes)
    assert sum(context.ledger.decisions.values()) == len({one.id for episode in episodes for one in episode.decisions})


@EVERY_METHOD
def test_rollouts_for_comparison_get_no_credit(name: str, chat: Chat) -> None:
    context = local(name, chat)
    method, collected = play(name, context)
    credits = by_decision(collected, method.estimator(collected, context, method.memory))
    assert credits.keys() <= {one.id for episode in collected.episodes for one in episode.decisions}


@EVERY_METHOD
def test_failed_episodes_get_no_credit_and_do_not_change_that_of_others(name: str, chat: Chat) -> None:
    context = local(name, chat, boom=0.2)
    method, collected = play(name, context, tasks=8)
    credits = by_decision(collected, method.estimator(collected, context, method.memory))
    sound = [sample for sample in collected.trained if sample.episode.ending != Ending.ERROR]
    assert 0 < len(sound) < len(collected.trained)
    if name not in CREDITS_BEFORE_AN_ERROR:
        assert credits.keys() <= {one.id for sample in sound for one in sample.episode.decisions}
        others = [sample for sample in collected.rollouts if not sample.trained]
        without = replace(collected, rollouts=(*sound, *others))
        assert by_decision(without, method.estimator(without, context, method.memory)) == approx(credits)


@EVERY_METHOD
def test_without_episodes_or_with_only_failed_ones_there_is_no_credit(name: str, chat: Chat) -> None:
    context = local(name, chat)
    for tasks in 0, 3:
        method, collected = play(name, context, tasks)
        failed = (replace(one, episode=replace(one.episode, ending=Ending.ERROR)) for one in collected.rollouts)
        collected = replace(collected, rollouts=tuple(failed))
        credits = by_decision(collected, method.estimator(collected, context, method.memory))
        assert not credits or name in CREDITS_BEFORE_AN_ERROR


@EVERY_METHOD
def test_equal_episodes_have_no_credit(name: str, chat: Chat) -> None:
    context = local(name, chat, lambda some: [one.logprobs or (-1.0,) for one in some], right=1.0)
    method, collected = play(name, context, tasks=1)
    outcome = collected.episodes[0].outcome
    context.critics = dict.fromkeys(
        ("critic", "outcome"), lambda inputs: [tuple(outcome for _ in one.at) for one in inputs]
    )
    credits = by_decision(collected, method.estimator(collected, context, method.memory))
    for value in credits.values():
        assert value == pytest.approx(0.0 if isinstance(value, float) else [0.0] * len(value), abs=1e-9)


def with_a_judge(collected: RolloutBatch, reply: tuple[int, ...]) -> RolloutBatch:
    """The rollouts with the reply of a role that is not trained after every step."""
    judged: dict[str, Decision] = {}

    def turn(step: Sequence[Decision]) -> list[Decision]:
        at = 2 * (step[0].step or 0)
        said: Any = {"id": f"{step[0].id} judged", "role": "judge", "event": "judge", "step": at + 1, "reward": 0.0}
        said |= {"action_ids": reply, "context_ids": reply, "logprobs": None, "verdict": None, "extras": {}}
        judge = judged.setdefault(step[0].id, replace(step[0], **said, trained=False, observed=True))
        return [*(replace(one, step=at) for one in step), judge]

    def longer(rollout: Any) -> Any:
        episode = rollout.episode
        shared = sum(len(step) + 1 for step in episode.steps if step[0] in episode.decisions[: episode.prefix_length])
        decisions = tuple(one for step in episode.steps for one in turn(step))
        return replace(rollout, episode=replace(episode, decisions=decisions, prefix_length=shared))

    return replace(collected, rollouts=tuple(longer(one) for one in collected.rollouts))


# That of `constrained_counterfactual` is of one role, all of whose decisions are audited.
@pytest.mark.parametrize("name", sorted({*METHODS, *OPTIONS} - {"constrained_counterfactual"}))
def test_a_role_that_is_not_trained_changes_no_credit_of_others(name: str, chat: Chat) -> None:
    context = local(name, chat)
    method, collected = play(name, context)
    credits = by_decision(collected, method.estimator(collected, context, method.memory))
    longer = with_a_judge(collected, () if name == "mappo" else (5, 6))  # whose critic reads all messages
    judged = by_decision(longer, method.estimator(longer, context, method.memory))
    assert {one: judged[one] for one in judged if not one.endswith(" judged")} == approx(credits)


class Begun(LocalContext):
    """A context that knows which requests it made, and plays no others."""

    def begin(self, row: Mapping[str, Any], instance: int, **settings: Any) -> RolloutRequest[Any]:
        return super().begin({**row, "begun": instance}, instance, **settings)

    def play(self, starts: Sequence[RolloutRequest[Any]], *args: Any, **kwargs: Any) -> list[Episode]:
        assert all(start.state is not None or "begun" in start.task for start in starts)
        return super().play(starts, *args, **kwargs)


@EVERY_METHOD
def test_its_context_says_where_the_episodes_of_a_task_begin(name: str, chat: Chat) -> None:
    context = local(name, chat)
    context.__class__ = Begun
    assert play(name, context, tasks=2)[1].rollouts


@pytest.mark.parametrize("history", ["current", "append"])
@EVERY_METHOD
def test_episodes_that_begin_later_are_credited_from_there(name: str, history: str, chat: Chat) -> None:
    context = local(name, chat)
    context.engine = context.engine.of(Team(history) if name in NEED_A_TEAM else Uneven(4, history))
    context.interaction = context.engine.interaction
    context.frozen = context.engine
    task, rows = context.interaction, [{"seed": seed} for seed in range(2)]
    fill = OraclePlayer(make("sudoku", size=4, blanks=4), SudokuConstraintsOracle(), 1.0)
    walked = [walk(task, lambda state, *rest: fill(game_of(state), *rest), RolloutRequest(task=row)) for row in rows]
    context.starts = {place: begun_later(task, recorded(task, chat, one), 1) for place, one in enumerate(walked)}
    method = made(name).bind(task)
    collected = method.collector(rows, context, method.memory)
    assert {min(one.step for one in episode.decisions) for episode in collected.episodes} == {1}
    credits = by_decision(collected, method.estimator(collected, context, method.memory))
    assert any(value != 0 for value in credits.values())


def game_of(state: Any) -> Any:
    return getattr(state, "now", state)


class Together(LocalContext):
    """The context of one of several processes, each in a thread, which gather from each other."""

    def __init__(self, process: int, barrier: threading.Barrier, of_processes: list[list[Any]]) -> None:
        super().__init__()
        self.interaction, self.chat = Uneven(), sudoku_chat()
        self.critics = dict.fromkeys(("critic", "outcome"), guesses)
        self.process, self.barrier, self.of_processes = process, barrier, of_processes

    def gather(self, items: Sequence[Any]) -> list[Any]:
        self.of_processes[self.process] = list(items)
        self.barrier.wait()
        everyone = [item for own in self.of_processes for item in own]
        self.barrier.wait()
        return everyone


def credited_together(method: Method, parts: Sequence[RolloutBatch]) -> dict[str, Any]:
    """The credit of several processes, each with a part of the rollouts."""
    barrier, of_processes = threading.Barrier(len(parts), timeout=60), [[] for _ in parts]

    def credited(process: int) -> dict[str, Any]:
        try:
            context = Together(process, barrier, of_processes)
            return by_decision(parts[process], method.estimator(parts[process], context, method.memory))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(len(parts)) as pool:
        found = list(pool.map(credited, range(len(parts))))
    return {name: value for own in found for name, value in own.items()}


def part(collected: RolloutBatch, first: int, rows: int) -> RolloutBatch:
    """The rollouts of some of the task rows."""
    own = [sample for sample in collected.rollouts if first <= sample.instance < first + rows]
    return RolloutBatch(rollouts=tuple(replace(one, instance=one.instance - first) for one in own), rows=rows)


@EVERY_METHOD
@pytest.mark.parametrize("rows", [2, 4, 0])
def test_two_processes_give_the_credit_of_one_with_all_rows(name: str, rows: int, chat: Chat) -> None:
    context = local(name, chat, boom=0.1)
    method, collected = play(name, context)
    whole = by_decision(collected, method.estimator(collected, context, method.memory))
    halves = [part(collected, 0, rows), part(collected, rows, 4 - rows)]
    assert credited_together(method, halves) == approx(whole)


# Every collector under every estimator

CVT = "constrained_counterfactual"
COLLECTORS: dict[str, Callable[[], Collector]] = {
    "single": Single,
    "group": lambda: Group(size=3),
    "tree": lambda: Tree(fanout=(2, 2)),
    "visited contexts": lambda: VisitedContexts(references=2, contexts=1, alternatives=3, replays=1),
    "random forks": lambda: RandomForks(trees=2, expansions=1),
    "uncertain forks": lambda: UncertainForks(initial=2, forks=2),
    "verified group": lambda: Verified(inner=Group(size=3), required=False),
    "verified tree": lambda: Verified(inner=Tree(fanout=(2, 2)), required=False),
    "continuations": lambda: Continuations(rollouts=2),
    "continuations of a tree": lambda: Continuations(rollouts=2, inner=Tree(fanout=(2, 2))),
    "planned branches": lambda: method_of("active_replay").collector,
    "answers": lambda: Answers(inner=Group(size=3)),
    "ratings": lambda: Ratings(inner=Group(size=3)),
    "removals": lambda: method_of("counterfactual_grpo").collector,
    "audited steps": lambda: made("constrained_counterfactual").collector,
}
WORLDS: dict[str, Callable[[], Interaction[Any]]] = {"alone": Uneven, "in turn": Team, "at once": AtOnce}


@functools.cache
def collected_by(world: str, collector: str) -> tuple[Any, RolloutBatch, LocalContext] | None:
    """A collector bound to an Interaction, its rollouts and the context; `None` if it refuses the Interaction."""
    context = LocalContext(Engine(WORLDS[world](), sudoku_chat(), Player(sudoku_chat(), seed=1)), logprobs=beliefs)
    context.critics = dict.fromkeys(("critic", "outcome"), guesses)
    plain = Method(name="any", collector=COLLECTORS[collector](), estimator=lambda *_: Credit(decisions={}))
    try:
        fitting = plain.bind(context.interaction).collector
    except ValueError:
        return None
    memory = method_of("active_replay").memory if collector == "planned branches" else Constraints()
    return fitting, fitting([{"seed": seed} for seed in range(4)], context, memory), context


@pytest.mark.parametrize("world", WORLDS)
@EVERY_METHOD
def test_a_collector_under_any_estimator_is_credited_or_refused(name: str, world: str) -> None:
    for collector in COLLECTORS:
        found = collected_by(world, collector)
        if found is not None:
            check_credit(made(name), *found)


def check_credit(whole: Method, fitting: Any, collected: RolloutBatch, context: LocalContext) -> None:
    """Whether a method's estimator credits what a collector played, or refuses it for what is missing."""
    try:
        method = replace(whole, collector=fitting).bind(context.interaction)
    except ValueError as error:
        refusal = str(error)
    else:
        refusal = ""
    assert re.fullmatch(r"([^\n]+, got [^\n]+; [^\n]+\.)?", refusal), fitting
    if refusal:  # only for what is missing, or by the estimator itself: refusing every pair would pass otherwise
        missing = frozenset(getattr(whole.estimator, "needs", ())) - gives_of(fitting)
        assert missing or hasattr(whole.estimator, "bind"), fitting
        return
    credits = by_decision(collected, method.estimator(collected, context, method.memory))
    assert credits.keys() <= {one.id for episode in collected.episodes for one in episode.decisions}, fitting
    assert any(value and (not isinstance(value, Sequence) or any(value)) for value in credits.values()), fitting


# With one


class KeepGradients(TrainerCallback):
    """Copies each gradient before the optimizer's step, and saves the checkpoint of one update."""

    def __init__(self, saved: int | None) -> None:
        self.kept: list[dict[str, torch.Tensor]] = []
        self.saved = saved

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.kept.append({name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None})

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_save = state.global_step == self.saved


@pytest.fixture
def trained(micro_policy: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """A trainer after training with a method, with its gradients in `kept`."""

    def train(name: str, resume_from: Path | None = None, saved: int | None = None, **changed: Any) -> Any:
        values: dict[str, Any] = {
            **ON_A_PROCESSOR,
            "output_dir": str(tmp_path),
            "instances_per_update": 4,
            "per_device_train_batch_size": 4,
            "max_steps": 2,
            "max_completion_length": 12,
            "learning_rate": 1e-3,
            "critic_learning_rate": 1e-3,
            "lr_scheduler_type": "constant",
            "max_grad_norm": 1e9,
            **SETTINGS.get(name, {}),
        }
        grows = made(name).sequence_ratio
        policy: Path = request.getfixturevalue("micro_policy_append") if grows else micro_policy
        keep = KeepGradients(saved)
        trainer: Any = CreditTrainer(
            str(policy),
            task_of(name, changed.pop("max_turns", 2), "append" if grows else "current"),
            CreditConfig(**{**values, **changed}),
            Dataset.from_list([{"seed": seed} for seed in range(8)]),
            method=made(name),
            callbacks=[keep],
        )
        trainer.train(resume_from_checkpoint=None if resume_from is None else str(resume_from))
        trainer.kept = keep.kept
        return trainer

    return train


@EVERY_METHOD
def test_training_does_not_depend_on_the_layout_and_resumes_exactly(
    name: str, trained: Callable[..., Any], tmp_path: Path
) -> None:
    whole = trained(name, saved=1)
    first = whole.kept[0]
    assert len(whole.kept) == 2
    assert any(gradient.any() for gradient in first.values())

    resumed = trained(name, resume_from=tmp_path / "checkpoint-1")
    ends = zip(whole.model.named_parameters(), resumed.model.named_parameters(), strict=True)
    assert [name for (name, one), (_, other) in ends if not torch.equal(one, other)] == []
    assert resumed.ledger == whole.ledger
    assert to_plain(resumed.memory) == to_plain(whole.memory)

    apart = trained(name, max_steps=1, rows_per_forward=1, pad_to_multiple_of=16).kept[0]
    scale = max(float(gradient.abs().max()) for gradient in first.values())
    for parameter, gradient in first.items():
        torch.testing.assert_close(apart[parameter], gradient, rtol=1e-3, atol=1e-5 * scale, msg=parameter)


@EVERY_METHOD
def test_it_trains_on_episodes_that_begin_later(name: str, trained: Callable[..., Any]) -> None:
    trainer = trained(name, max_steps=1, starts="oracle", max_turns=4)
    logged = trainer.state.log_history[0]
    assert 0 < logged["starts/later"] < 1
    assert logged["starts/horizon"] == 1.0
    assert trainer.starts.horizons
    assert all(gradient.isfinite().all() for gradient in trainer.kept[0].values())
