"""Collections are played side by side, credited once each, and neither lost nor doubled, whenever a run is killed."""

from __future__ import annotations

import io
import json
import math
import random
import threading
import time
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from judge_server import JudgeServer, completion
from simulated_walks import Shuffled, Walks, tasks

from hf_credit import methods
from hf_credit.collaborations import Collaboration, Event
from hf_credit.collectors import Group, Single
from hf_credit.methods import Credit, Method
from hf_credit.oracles import Judge
from hf_credit.rollouts import EveryEpisodeFailedError, Generation
from hf_credit.rollouts.method_context import CriticInput
from hf_credit.trainers.asynchronous.collection import Collection, Question
from hf_credit.trainers.asynchronous.worker import Worker
from hf_credit.trainers.starts import Starts

PATIENCE = 30.0


def worker(chat: Any, sampler: Any = None, interaction: Any = None, method: Any = None, **options: Any) -> Worker:
    return Worker(
        interaction or Walks(),
        method or methods.make("rloo", group_size=2),
        chat,
        sampler or Shuffled(),
        tasks(6),
        **{"tasks_per_collection": 2, "concurrent_collections": 3, "max_concurrent": 4, **options},
    )


def drawn(of: Worker, count: int) -> list[Any]:
    """The next collections, in the order of their numbers."""
    found = []
    for _ in range(count):
        one = of.collections.get(timeout=PATIENCE)
        if isinstance(one, Exception):
            raise one
        found.append(one)
    return sorted(found, key=lambda one: one.number)


@pytest.fixture
def running() -> Any:
    """Starts workers, and stops them at the end."""
    started = []

    def start(one: Worker) -> Worker:
        started.append(one)
        one.start()
        return one

    yield start
    for one in started:
        one.stop()


def test_a_judge_model_gives_verdicts_to_collections_and_its_tokens_are_in_the_ledger(chat: Any, running: Any) -> None:
    with JudgeServer(lambda body: completion("yes" if len(body["messages"][1]["content"]) % 2 else "no")) as server:
        judge = {"name": "judge", "options": {"model": "m", "base_url": server.url, "concurrency": 2}}
        method = methods.make("arew", group_size=2, oracle=judge)
        found = drawn(running(worker(chat, method=method)), 3)
    scores = {
        decision.verdict.score
        for one in found
        for episode in one.credited.collected.episodes
        for decision in episode.decisions
        if decision.verdict is not None
    }
    assert scores == {0.0, 1.0}
    assert all(one.metrics["oracle/unknown"] == 0 for one in found)
    assert sum(one.ledger.others["judge"] for one in found) == sum(one.metrics["oracle/tokens"] for one in found) > 0
    assert len(server.asked) > 3


class Slow(Judge):
    """Judges once it may go on."""

    def __init__(self) -> None:
        self.asked, self.inside, self.go_on = 0, threading.Event(), threading.Event()

    def judge(self, moves: Any, costs: Any) -> list[float]:
        self.asked += 1
        self.inside.set()
        assert self.go_on.wait(PATIENCE)
        return [float(len(move.reply) % 2) for move in moves]


def test_while_a_judge_answers_other_collections_are_played_and_none_counts_as_hanging(
    chat: Any, running: Any
) -> None:
    judge, sampler = Slow(), Shuffled()
    one = running(worker(chat, sampler, method=methods.make("arew", group_size=2, oracle=judge)))
    assert judge.inside.wait(PATIENCE)
    wait_until(lambda: len(one.waiting) == 3)  # all three have played, and wait for the judge or for their turn
    assert judge.asked == 1
    one.check_health(0.0)
    assert one._running.acquire(timeout=PATIENCE)  # as the trainer does
    one._running.release()
    judge.go_on.set()
    found = drawn(one, 3)
    assert all(math.isfinite(part.metrics["oracle/seconds"]) for part in found)
    assert all(part.metrics["oracle/unknown"] == 0 for part in found)


def test_collections_are_those_of_a_synchronous_update(chat: Any, running: Any) -> None:
    one, *_ = drawn(running(worker(chat)), 1)
    assert one.number in range(3)
    assert one.version == 0
    assert all(row.logprobs is not None for row in one.rows)
    assert {"reward", "turns/mean", "budget/tokens"} & set(one.metrics) == {"reward", "turns/mean"}
    assert one.ledger.scoring_events == 4


def test_numbers_count_up_and_each_pass_plays_every_task(chat: Any, running: Any) -> None:
    found = drawn(running(worker(chat, max_finished=6, concurrent_collections=1)), 6)
    assert [one.number for one in found] == list(range(6))
    assert sum(one.ledger.scoring_events for one in found) == 2 * 6 * 2


def test_the_sampler_is_asked_for_so_many_at_a_time(chat: Any, running: Any) -> None:
    sampler = Shuffled()
    sampler.hold(True)
    running(worker(chat, sampler, max_concurrent=3))
    wait_until(lambda: len(sampler.waiting) == 3)
    time.sleep(0.05)
    assert sampler.widest == 3


def wait_until(true: Any) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_none_is_begun_while_enough_wait_to_be_drawn(chat: Any, running: Any) -> None:
    one = running(worker(chat, max_finished=2, concurrent_collections=2))
    wait_until(lambda: one.collections.qsize() >= 2 and not one.state()["under_way"])
    begun = one.state()["next_number"]
    time.sleep(0.1)
    assert one.state()["next_number"] == begun <= 3
    one.trained(one.collections.get().number)
    one.trained(one.collections.get().number)
    wait_until(lambda: one.state()["next_number"] > begun)


def test_a_collection_carries_the_oldest_version_of_its_replies(chat: Any, running: Any) -> None:
    sampler = Shuffled()
    sampler.hold(True)
    one = worker(chat, sampler, concurrent_collections=1)
    one.update_model_version(5)
    running(one)
    wait_until(lambda: len(sampler.waiting) == 4)
    one.update_model_version(6)  # later requests are answered by it
    sampler.hold(False)
    assert [collection.version for collection in drawn(one, 2)] == [5, 6]


def test_the_tasks_of_a_dropped_collection_are_played_again_under_a_number_of_their_own(
    chat: Any, running: Any
) -> None:
    one = running(worker(chat, concurrent_collections=1))
    first = drawn(one, 1)[0]
    played = next(entry["tasks"] for entry in one.state()["finished"])
    one.dropped(first.number)
    numbers = []
    for _ in range(4):
        again = drawn(one, 1)[0]
        numbers.append((again.number, next(e["tasks"] for e in one.state()["finished"])))
        one.trained(again.number)
    assert played in [own for _, own in numbers]
    assert len({number for number, _ in numbers} | {first.number}) == 5


# What fails


@dataclass(frozen=True, kw_only=True)
class Broken:
    """An estimator that raises."""

    def __call__(self, collected: Any, context: Any, memory: Any) -> Credit:
        raise KeyError("an estimator that breaks")


def test_what_a_method_raises_is_raised_in_the_trainer_with_its_traceback(chat: Any, running: Any) -> None:
    one = running(worker(chat, method=Method(name="broken", collector=Group(size=2), estimator=Broken())))
    with pytest.raises(KeyError, match="an estimator that breaks") as raised:
        drawn(one, 1)
    assert any("test_worker" in str(entry.path) for entry in raised.traceback)
    with pytest.raises(RuntimeError, match="fix the code that the traceback names"):
        one.check_health(60)


class Breaks(Walks):
    def advance(self, state: Any, replies: Any) -> Any:
        raise OSError("a world that breaks")


def test_a_collection_whose_every_episode_failed_is_raised(chat: Any, running: Any) -> None:
    with pytest.raises(EveryEpisodeFailedError, match="a world that breaks"):
        drawn(running(worker(chat, interaction=Breaks())), 1)


class Exits(Walks):
    def advance(self, state: Any, replies: Any) -> Any:
        raise SystemExit("a world that ends its thread")


def test_a_thread_that_is_ended_from_within_is_an_error(chat: Any, running: Any) -> None:
    with pytest.raises(RuntimeError, match="a world that ends its thread"):
        drawn(running(worker(chat, interaction=Exits())), 1)


def test_what_the_sampler_raises_is_raised(chat: Any, running: Any) -> None:
    class Refuses:
        def submit(self, role: str, context: Any, seed: int) -> Any:
            raise ConnectionError("the server is gone")

    with pytest.raises(ConnectionError, match="the server is gone"):
        drawn(running(worker(chat, Refuses())), 1)


class Hangs(Walks):
    def __init__(self) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()

    def advance(self, state: Any, replies: Any) -> Any:
        self.inside.set()
        self.go_on.wait()
        return super().advance(state, replies)


def test_a_world_that_hangs_is_named_with_the_place_where_it_hangs(chat: Any, running: Any) -> None:
    world = Hangs()
    one = running(worker(chat, interaction=world, concurrent_collections=1))
    one.check_health(PATIENCE)
    assert world.inside.wait(PATIENCE)
    with pytest.raises(
        RuntimeError, match=r"(?s)must make progress within 0 s, got none .* in collection 0; .*go_on\.wait"
    ):
        wait_until(lambda: one.check_health(0.0))
    world.go_on.set()
    assert drawn(one, 1)


def test_a_worker_that_has_stopped_is_named_and_no_environment_is_blamed(chat: Any, running: Any) -> None:
    one = running(worker(chat))
    drawn(one, 1)
    one.stop()
    with pytest.raises(RuntimeError, match="must not have stopped before its trainer, got one that has; make another"):
        one.check_health(PATIENCE)


def test_an_evaluation_asks_for_no_more_at_a_time_than_training(chat: Any) -> None:
    sampler = Shuffled()
    one = worker(chat, sampler)
    with one._running:
        played = one.evaluated(one.interaction, tasks(6) * 4)
    assert (played.rows, sampler.widest) == (24, 4)


def test_stopping_takes_no_reply_that_hangs(chat: Any) -> None:
    sampler = Shuffled()
    sampler.hold(True)
    one = worker(chat, sampler)
    one.start()
    wait_until(lambda: len(sampler.waiting) == 4)
    one.stop()
    assert not any(thread.is_alive() for thread in one._threads)
    assert len(one.state()["under_way"]) == 3


# Critics


def half(inputs: Any) -> list[tuple[float, ...]]:
    return [(0.5,) * len(one.at) for one in inputs]


def credited(of: Worker, one: Any, learning: bool = True) -> Any:
    """What a trainer does with a collection of a method with critics that it draws."""
    with of.engine.lock:  # type: ignore[union-attr]
        return of.credited(one.number, {"critic": half}, learning)


def test_a_collection_gets_the_credit_of_critics_once_it_is_drawn(chat: Any, running: Any) -> None:
    one = running(worker(chat, method=methods.make("ppo")))
    (played,) = drawn(one, 1)
    assert (played.rows, played.credited) == ((), None)
    assert played.ledger.scoring_events == 2
    found = credited(one, played)
    outcomes = {episode.outcome - 0.5 for episode in found.credited.collected.episodes}
    assert {advantage for row in found.rows for advantage in row.advantages} == outcomes
    (targets,) = found.credited.credit.critic_targets
    assert {value for own in targets.values for value in own} == {0.5}
    one.trained(found.number)
    assert found.number not in [each["number"] for each in one.state()["under_way"]]


def test_while_critics_learn_alone_all_credit_is_0(chat: Any, running: Any) -> None:
    one = running(worker(chat, method=methods.make("ppo")))
    found = credited(one, drawn(one, 1)[0], learning=False)
    assert {advantage for row in found.rows for advantage in row.advantages} == {0.0}
    assert found.credited.credit.critic_targets[0].inputs


def test_a_collection_that_is_dropped_before_its_credit_is_played_again(chat: Any, running: Any) -> None:
    one = running(worker(chat, method=methods.make("ppo"), concurrent_collections=1))
    first = drawn(one, 1)[0]
    tasks_of = {each["number"]: each["tasks"] for each in one.state()["under_way"]}
    one.dropped(first.number)
    numbers = {credited(one, drawn(one, 1)[0]).number for _ in range(4)}
    assert first.number not in numbers
    assert tasks_of[first.number] in [each["tasks"] for each in one.state()["finished"]]


@dataclass(frozen=True, kw_only=True)
class AsksFirst:
    """Collects as `Single` does, once a critic has told its value of a text."""

    gives = frozenset({"groups"})
    told: list[Any] = field(default_factory=list)

    def __call__(self, rows: Any, context: Any, memory: Any = None) -> Any:
        self.told.extend(context.values([CriticInput(ids=(1, 2), at=(1, 2))]))
        return Single()(rows, context, memory)


def test_a_collector_that_asks_a_critic_waits_for_the_trainer_and_ends_with_the_worker(chat: Any) -> None:
    asks = AsksFirst()
    one = worker(chat, method=replace(methods.make("ppo"), collector=asks), concurrent_collections=1)
    one.start()
    question = one.collections.get(timeout=PATIENCE)
    assert isinstance(question, Question)
    assert question.predictions is not None
    question.predictions.set_result(half(question.inputs))
    assert isinstance(one.collections.get(timeout=PATIENCE), Collection)
    assert asks.told == [(0.5, 0.5)]
    assert isinstance(one.collections.get(timeout=PATIENCE), Question)  # of the next one, which nobody answers
    one.stop()
    assert not any(thread.is_alive() for thread in one._threads)
    assert [each["number"] for each in one.state()["under_way"]] == [0, 1]


# Memory


@dataclass(frozen=True, kw_only=True)
class Seen:
    """How many were credited before, and the order."""

    before: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Counts:
    """Credits with how many updates were credited before."""

    def __call__(self, collected: Any, context: Any, memory: Seen) -> Credit:
        decisions = [one for episode in collected.episodes for one in episode.decisions]
        seen = replace(memory, before=(*memory.before, context.update))
        return Credit(decisions={one.id: float(len(memory.before)) for one in decisions}, memory=seen)


counting = Method(name="counts", collector=Group(size=2), estimator=Counts(), memory=Seen())


def test_methods_with_memory_credit_in_the_order_of_the_tasks(chat: Any, running: Any) -> None:
    one = running(worker(chat, method=counting, max_finished=8))
    found = [one.collections.get(timeout=PATIENCE) for _ in range(8)]
    assert [each.number for each in found] == list(range(8))
    assert [row.advantages[0] for each in found for row in each.rows[:1] if row.loss_mask[0]] == list(
        map(float, range(8))
    )
    assert one.state()["memory"]["before"][:8] == tuple(range(1, 9))


@dataclass(frozen=True, kw_only=True)
class CountsLater(Counts):
    """The same, after others have played on."""

    def __call__(self, collected: Any, context: Any, memory: Seen) -> Credit:
        with context.waiting():
            time.sleep(0.05)
        return super().__call__(collected, context, memory)


def test_a_collection_is_credited_once_while_its_estimator_waits(chat: Any, running: Any) -> None:
    one = running(worker(chat, method=replace(counting, estimator=CountsLater()), max_finished=8))
    found = [one.collections.get(timeout=PATIENCE) for _ in range(8)]
    assert [each.number for each in found] == list(range(8))
    assert one.state()["memory"]["before"][:8] == tuple(range(1, 9))


def test_a_collection_that_hangs_is_named_while_another_plays_walks(chat: Any) -> None:
    one = worker(chat)
    plays, hangs = one._next(), one._next()
    assert plays is not None
    assert hangs is not None
    plays.seen = hangs.seen = time.monotonic() - 100
    one._context(plays).progressed()
    with pytest.raises(RuntimeError, match="in collection 1;"):
        one.check_health(50)


def test_collections_that_wait_for_their_turn_are_not_taken_for_hanging(chat: Any, running: Any) -> None:
    one = worker(chat)
    with one._running:
        running(one)
        wait_until(lambda: len(one.waiting) == one.concurrent_collections)
        one.check_health(0.0)
    assert drawn(one, 1)


# Restarts


def as_checkpoint(state: Any) -> Any:
    """What a checkpoint gives back."""
    written = io.BytesIO()
    torch.save(state, written)
    written.seek(0)
    return torch.load(written, weights_only=True)


@dataclass
class Trainer:
    """What a trainer does, and what its checkpoints hold.

    Attributes:
        log: the numbers and rows it has trained on.
    """

    worker: Worker
    log: list[Any] = field(default_factory=list)

    def train(self) -> None:
        one: Any = self.worker.collections.get(timeout=PATIENCE)
        assert not isinstance(one, Exception), one
        self.log.append(credited(self.worker, one) if self.worker.method.critics else one)
        self.worker.trained(one.number)


def content(collections: Any) -> dict[int, Any]:
    return {one.number: (one.rows, one.ledger) for one in collections}


@given(st.integers(0, 10**6), st.sampled_from(["rloo", "memory", "carl", "ppo"]))
@settings(max_examples=16)
def test_whenever_it_is_killed_no_episode_is_lost_or_doubled(chat: Any, seed: int, method: str) -> None:
    draws = random.Random(seed)
    made = {
        "rloo": lambda: methods.make("rloo", group_size=2),
        "memory": lambda: counting,
        "carl": lambda: methods.make("carl", initial=2, forks=2),
        "ppo": lambda: methods.make("ppo", group_size=2),
    }[method]
    whole = worker(chat, method=made(), max_finished=9, seed=seed)
    whole.start()
    unbroken = Trainer(whole)
    while set(range(9)) - {one.number for one in unbroken.log}:
        unbroken.train()
    whole.stop()
    expected = content(unbroken.log)

    trainer = Trainer(worker(chat, Shuffled(seed), method=made(), seed=seed))
    checkpoint: tuple[list[Any], Any] = ([], as_checkpoint(trainer.worker.state()))
    trainer.worker.start()
    for _ in range(4):
        for _ in range(draws.randrange(3)):
            trainer.train()
        if draws.random() < 0.7:
            checkpoint = ([*trainer.log], as_checkpoint(trainer.worker.state()))
        time.sleep(draws.random() / 200)
        trainer.worker.stop()  # what it has done since the checkpoint is gone
        sampler = Shuffled(draws.randrange(100))
        trainer = Trainer(worker(chat, sampler, method=made(), seed=seed), [*checkpoint[0]])
        trainer.worker.load_state(checkpoint[1])
        trainer.worker.start()
    while set(range(9)) - {one.number for one in trainer.log}:
        trainer.train()
    trainer.worker.stop()
    numbers = Counter(one.number for one in trainer.log)
    assert max(numbers.values()) == 1
    found = content(trainer.log)
    assert {number: found[number] for number in range(9)} == {number: expected[number] for number in range(9)}


def test_replies_that_have_arrived_are_not_sampled_twice(chat: Any, running: Any) -> None:
    whole = drawn(running(worker(chat, concurrent_collections=1)), 1)
    one = worker(chat, Shuffled(most=3), concurrent_collections=1)
    one.start()
    wait_until(lambda: [len(each["known"]) for each in one.state()["under_way"]] == [3])
    one.stop()
    known = {(place[1], place[3]) for place in one.state()["under_way"][0]["known"]}
    sampler = Shuffled()
    other = worker(chat, sampler, concurrent_collections=1, max_finished=1)
    other.load_state(as_checkpoint(one.state()))
    asked: list[Any] = []
    ask = other.desk.ask
    other.desk.ask = lambda *args: (asked.append(args), ask(*args))[1]  # type: ignore[method-assign]
    assert content(drawn(running(other), 1)) == content(whole)
    of_first = [place for number, *_, place in asked if number == 0]
    assert known.isdisjoint({(place.args[0].context, place.args[0].number) for place in of_first})
    decisions = whole[0].ledger.decisions["walker"]
    assert len(of_first) == decisions - 3


class Known(Walks):
    """Walks that a player knows."""

    def scripted_player(self, quality: float) -> Any:
        return lambda state, request, draws: "c"


def test_what_is_under_way_begins_after_a_restart_where_it_had_begun(chat: Any, running: Any) -> None:
    known: dict[str, Any] = {"interaction": Known(), "starts": partial(Starts, "oracle", 0.35)}
    known |= {"concurrent_collections": 1, "tasks_per_collection": 6}
    one = worker(chat, sampler := Shuffled(), **known)
    sampler.hold(True)
    running(one)
    wait_until(lambda: sampler.waiting)
    saved = as_checkpoint(one.state())
    assert saved["under_way"][0]["starts"]
    sampler.hold(False)
    whole = drawn(one, 1)
    other = worker(chat, **known)
    other.load_state(saved)
    other.curriculum.horizon = math.inf  # as if others had been learned from since
    assert content(drawn(running(other), 1)) == content(whole)
    assert whole[0].metrics["starts/horizon"] > 0
    assert one.curriculum.horizons


class Raters:
    """Replies at once, and rates where it is asked to."""

    seeded = True

    def __init__(self, chat: Any) -> None:
        self.chat = chat

    def submit(self, role: str, context: Any, seed: Any) -> Future[Generation]:
        rated = "JSON" in self.chat.tokenizer.decode(list(context))
        shares = {"outcome": "correct", "shares": {"thinker": 0.75, "solver": 0.25}}
        ids = self.chat.reply_ids(json.dumps(shares) if rated else "3")
        found: Future[Generation] = Future()
        found.set_result(Generation(ids=ids, logprobs=[-0.5] * len(ids)))
        return found


def test_members_of_a_team_rate_each_other_beside_the_learning(chat: Any, running: Any) -> None:
    events = [Event("thought", role="thinker"), Event("answer", role="solver", after="thought")]
    roles = {"thinker": "1", "solver": "2"}
    team = Collaboration(roles=roles, events=events, final="answer", scorer=lambda task, text: float("3" in text))
    method = methods.make("sepo", group_size=2)
    rows = [{"problem": "4", "seed": seed} for seed in range(6)]
    (one,) = drawn(running(Worker(team, method, chat, Raters(chat), rows, tasks_per_collection=2)), 1)
    assert one.metrics["ratings/valid"] == 1
    assert len(one.rows) == 8
    assert one.ledger.counterfactual_tokens > 0


@dataclass(frozen=True, kw_only=True)
class ByRole:
    """Credit 1 for every decision; those of the solver weigh a quarter."""

    def __call__(self, collected: Any, context: Any, memory: Any) -> Credit:
        made = [one for episode in collected.episodes for one in episode.decisions]
        weights = {one.id: 0.25 for one in made if one.role == "solver"}
        return Credit(decisions={one.id: 1.0 for one in made}, weights=weights, per_start=True)


@pytest.mark.parametrize("apart", [False, True])
def test_roles_that_learn_in_updates_of_their_own_share_no_scale_of_weights(
    chat: Any, running: Any, apart: bool
) -> None:
    events = [Event("thought", role="thinker"), Event("answer", role="solver", after="thought")]
    roles = {"thinker": "1", "solver": "2"}
    team = Collaboration(roles=roles, events=events, final="answer", scorer=lambda task, text: 1.0)
    method = Method(name="by_role", collector=Group(size=2), estimator=ByRole())
    rows = [{"problem": "4", "seed": seed} for seed in range(6)]
    made = Worker(team, method, chat, Shuffled(), rows, tasks_per_collection=2, roles_apart=apart)
    (one,) = drawn(running(made), 1)
    found = {(row.role, advantage) for row in one.rows for advantage in row.advantages}
    if apart:
        assert found == {("thinker", 1.0), ("solver", 1.0)}
    else:
        assert {role for role, _ in found} == {"thinker", "solver"}
        ratio = dict(found)
        assert ratio["solver"] == pytest.approx(ratio["thinker"] / 4)
