"""Where training episodes begin: in known walks, at a horizon that moves, the same after a restart and everywhere."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from launched import launch
from small_agents import ROWS
from small_runs import SAMPLED, SUDOKU

from hf_credit import CreditConfig, CreditTrainer, make, methods
from hf_credit.collaborations import make as collaboration
from hf_credit.collectors import Group, Rollout, RolloutBatch
from hf_credit.environments.actions import marked, write_call
from hf_credit.evaluation.credited import credited_episode
from hf_credit.loading import load_tokenizer
from hf_credit.methods.base import weighted
from hf_credit.policies.scripted import player_of, recorded, success_of, walk, walk_again
from hf_credit.rollouts import (
    Chat,
    Engine,
    EnvironmentInteraction,
    Generation,
    Interaction,
    LocalContext,
    Request,
    RolloutRequest,
    Verdict,
    replay_from,
)
from hf_credit.trainers.starts import Begun, Start, Starts


@dataclass(frozen=True)
class Place:
    """A place in a chain: its length, the right steps so far, and whether a step was wrong."""

    length: int
    made: int = 0
    lost: bool = False


class Chain(Interaction[Place]):
    """Asks for `length` right steps; the first wrong one ends it."""

    def __init__(self, player: str = "1") -> None:
        self.player = player

    def start(self, task: Any, seed: int) -> Place:
        return Place(task["length"])

    def pending(self, state: Place) -> tuple[Request, ...]:
        if state.lost or state.made == state.length:
            return ()
        return (Request(role="agent", messages=[{"role": "user", "content": f"step {state.made}"}]),)

    def advance(self, state: Place, replies: Sequence[str]) -> Place:
        return replace(state, lost=True) if replies[0] != "1" else replace(state, made=state.made + 1)

    def outcome(self, state: Place) -> float:
        return float(state.made == state.length)

    def scripted_player(self, quality: float) -> Any:
        return lambda state, request, draws: self.player


class Says:
    """Replies with what it is told, in the order of the steps of its episodes.

    Args:
        until: for each episode of a task, the step at which it errs.
    """

    def __init__(self, chat: Any, until: Sequence[float] = (math.inf,)) -> None:
        self.chat, self.until = chat, until

    def __call__(self, contexts: Sequence[Sequence[int]]) -> list[Generation]:
        steps = [int(self.chat.tokenizer.decode(list(one)).rpartition("step ")[2].split("<")[0]) for one in contexts]
        own = self.until if len(contexts) == len(self.until) else [max(self.until)] * len(contexts)
        texts = ["0" if step >= until else "1" for step, until in zip(steps, own, strict=True)]
        return [Generation(ids=self.chat.reply_ids(text), logprobs=None) for text in texts]


def context_of(interaction: Any, chat: Any, sampler: Any = None) -> LocalContext:
    return LocalContext(Engine(interaction, chat, sampler or Says(chat)))


def rows(number: int, length: int = 8) -> list[dict[str, int]]:
    return [{"length": length, "seed": seed} for seed in range(number)]


def begun(starts: Starts, tasks: Any, context: LocalContext) -> list[Start]:
    """Where the next update begins, for each row."""
    return places(starts, tasks, starts.drawn(tasks, context), context)


def updated(starts: Starts, context: LocalContext, tasks: Any, method: Any) -> tuple[list[Start], RolloutBatch]:
    """An update: what began where, and its rollouts."""
    drawn = starts.drawn(tasks, context)
    collected, news = starts.played(drawn, tasks, context, method.collector, method.memory)
    starts.learn([news])
    context.update += 1
    return places(starts, tasks, drawn, context), collected


def places(starts: Starts, tasks: Any, drawn: Mapping[int, Start], context: LocalContext) -> list[Start]:
    """The start of each row, with its place in the walk."""
    placed = starts._placed(tasks, drawn, context)
    return [placed.get(place, Start(task="")) for place in range(len(tasks))]


def played(one: Start, success: float) -> Begun:
    return one.key, one.left, one.length, one.horizon, success


# The draws


def test_a_quarter_begins_first_half_at_the_horizon_and_the_others_uniformly_before_the_end(chat: Any) -> None:
    starts, context = Starts("oracle", 0.35, Chain(), chat), context_of(Chain(), chat)
    starts.horizon = 4.0
    left = Counter[int]()
    for update in range(1, 21):
        context.update = update
        left.update(one.left for one in begun(starts, rows(50, 5), context))
    shares = {number: count / 1000 for number, count in left.items()}
    expected = {0: 1 / 4, 1: 1 / 16, 2: 1 / 16, 3: 1 / 16, 4: 1 / 2 + 1 / 16}
    assert shares == pytest.approx(expected, abs=4 * math.sqrt(0.25 / 1000))


def test_a_horizon_between_two_steps_is_rounded_up_or_down_to_it_on_average(chat: Any) -> None:
    starts, context = Starts("oracle", 0.35, Chain(), chat), context_of(Chain(), chat)
    starts.horizon = 2.25
    left = Counter[int]()
    for update in range(1, 21):
        context.update = update
        left.update(one.left for one in begun(starts, rows(50, 5), context))
    shares = {number: count / 1000 for number, count in left.items()}
    expected = {0: 1 / 4, 1: 1 / 12, 2: 3 / 8 + 1 / 12, 3: 1 / 8 + 1 / 12}
    assert shares == pytest.approx(expected, abs=4 * math.sqrt(0.25 / 1000))


def test_all_episodes_of_a_row_begin_at_one_state_of_its_walk(chat: Any) -> None:
    starts, context = Starts("oracle", 0.35, Chain(), chat), context_of(Chain(), chat)
    starts.horizon = 5.0
    drawn, collected = updated(starts, context, rows(16), methods.make("rloo", group_size=3))
    for rollout in collected.rollouts:
        start = drawn[rollout.instance]
        first = start.length - start.left if start.left else 0
        assert [one.step for one in rollout.episode.decisions] == list(range(first, 8))
        assert rollout.episode.decisions[0].state.made == first
        assert rollout.later == (first > 0)
    assert {rollout.later for rollout in collected.rollouts} == {False, True}


def test_draws_depend_on_update_process_and_row_alone(chat: Any) -> None:
    starts = Starts("oracle", 0.35, Chain(), chat)
    starts.horizon = 6.0
    first, second = context_of(Chain(), chat), context_of(Chain(), chat)
    assert starts.drawn(rows(16), first) == starts.drawn(rows(16), second)
    second.process = 1
    assert starts.drawn(rows(16), first) != starts.drawn(rows(16), second)


def test_every_step_of_a_walk_is_progress(chat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    starts, context, seen = Starts("oracle", 0.35, Chain(), chat), context_of(Chain(), chat), list[int]()
    monkeypatch.setattr(context, "progressed", lambda: seen.append(1))
    later = starts.drawn(rows(4), context)
    starts._placed(rows(4), later, context)
    assert len(seen) >= 8 * len(later) > 0


# The gradient


@pytest.mark.parametrize("length", [4, 5])
def test_the_expected_gradient_is_that_of_the_value_of_the_start_distribution(length: int, chat: Any) -> None:
    logits = torch.linspace(-1, 1, length, dtype=torch.float64, requires_grad=True)
    method, tasks = methods.make("rloo", group_size=2), rows(5, length)
    starts = Starts("oracle", 0.35, Chain(), chat)
    starts.horizon = 3.0
    drawn = begun(starts, tasks, context_of(Chain(), chat))
    assert len({one.left for one in drawn}) > 1
    expected = torch.zeros(length, dtype=torch.float64)
    for place, start in enumerate(drawn):
        first = start.length - start.left if start.left else 0
        for until in itertools.product(range(first, length + 1), repeat=2):  # where each of the two episodes errs
            context = context_of(Chain(), chat, Says(chat, until))
            begun(starts, tasks, context)
            context.starts = {0: context.starts[place]} if place in context.starts else {}
            collected = method.collector(tasks[place : place + 1], context, method.memory)
            assert [one.final_state.made for one in collected.episodes] == list(until)
            credit = weighted(method.estimator(collected, context, method.memory))
            logprob = torch.tensor(0.0, dtype=torch.float64)
            loss = torch.tensor(0.0, dtype=torch.float64)
            for episode in collected.episodes:
                for one in episode.decisions:
                    right = torch.nn.functional.logsigmoid(logits[one.state.made])
                    own = right if one.action_text == "1" else right - logits[one.state.made]
                    logprob = logprob + own
                    loss = loss + own * credit[one.id] / 2
            (gradient,) = torch.autograd.grad(loss, logits, allow_unused=True)
            expected += logprob.exp().detach() * gradient / len(drawn)
    values = [torch.sigmoid(logits[one.length - one.left if one.left else 0 :]).prod() for one in drawn]
    (exact,) = torch.autograd.grad(torch.stack(values).mean(), logits)
    torch.testing.assert_close(expected, exact)


def test_turns_are_compared_with_those_after_as_many_steps(chat: Any) -> None:
    method = methods.make("verifiable_process", min_active=1)
    context = context_of(Chain(), chat)
    starts = Starts("oracle", 0.35, Chain(), chat)
    starts.horizon = 2.0
    _, collected = updated(starts, context, rows(8, 4), replace(method, collector=methods.make("rloo").collector))
    judged = RolloutBatch(rollouts=tuple(map(in_order, collected.rollouts)), rows=collected.rows)
    credit = method.estimator(judged, context, None).decisions
    for step in range(4):
        of_step = [credit[one.id] for e in judged.episodes for one in e.decisions if one.step == step]
        assert sum(of_step) == pytest.approx(0.0, abs=1e-9)


def in_order(rollout: Rollout) -> Rollout:
    """The rollout with verdicts that differ by task and by step."""
    decisions = tuple(
        replace(one, verdict=Verdict(score=(one.step or 0) / 10 + rollout.instance / 100))
        for one in rollout.episode.decisions
    )
    return replace(rollout, episode=replace(rollout.episode, decisions=decisions))


# The horizon


@pytest.mark.parametrize(("enough", "step"), [(0.35, 1.3), (0.6, 0.8)])
def test_it_moves_by_the_success_there_and_ends_at_the_first_state(enough: float, step: float, chat: Any) -> None:
    starts, context = Starts("oracle", enough, Chain(), chat), context_of(Chain(), chat)
    method, seen = methods.make("rloo", group_size=2), []
    for update in range(20):
        tasks = [{"length": 8, "seed": 1000 * update + place} for place in range(8)]
        drawn, collected = updated(starts, context, tasks, method)
        seen.append(starts.horizon)
    assert seen[:3] == pytest.approx([1 + step, 1 + 2 * step, 1 + 3 * step])
    assert seen[-1] == math.inf
    assert not any(one.later for one in collected.rollouts)
    assert not any(one.left for one in drawn)


def test_it_moves_back_where_success_is_too_low_and_stays_at_least_one(chat: Any) -> None:
    starts, context = Starts("oracle", 0.35, Chain(), chat), context_of(Chain(), chat, Says(chat, [0]))
    starts.horizon = 4.0
    for update in range(8):
        tasks = [{"length": 8, "seed": 1000 * update + place} for place in range(8)]
        updated(starts, context, tasks, methods.make("outcome_reward"))
    assert starts.horizon == 1.0


def test_a_short_walk_moves_by_a_quarter_of_its_own_length_at_most(chat: Any) -> None:
    starts = Starts("oracle", 0.35, Chain(), chat)
    assert starts._moved(100.0, 0.2, 16) == pytest.approx(16 - 4 * 0.15)
    assert starts._moved(100.0, 0.2, 5) == pytest.approx(5 - 2 * 0.15)


def test_a_task_that_returns_has_a_horizon_of_its_own(chat: Any) -> None:
    starts, context = Starts("oracle", 0.35, Chain(), chat), context_of(Chain(), chat)
    easy, hard = {"length": 8, "seed": 0}, {"length": 8, "seed": 1}
    for _ in range(30):
        drawn = starts.drawn([easy, hard], context)
        placed = starts._placed([easy, hard], drawn, context)
        starts.learn([([played(placed[place], 1.0 - place) for place in drawn], [])])
        context.update += 1
    of_easy, of_hard = (starts.horizons[key] for key in sorted(starts.horizons, key=starts.horizons.get, reverse=True))
    assert (of_easy, of_hard) == (math.inf, 1.0)


def test_short_walks_do_not_end_the_curriculum_of_long_ones(chat: Any) -> None:
    starts = Starts("oracle", 0.35, Chain(), chat)
    starts.horizon, starts.longest = 6.0, 16
    short = Start(task="short", horizon=6.0, left=2, length=2)
    starts.learn([([played(short, 1.0)], [])])
    assert starts.horizon == 6.0
    failing = Start(task="failing", horizon=6.0, left=4, length=4)
    starts.learn([([played(failing, 0.0)], [])])
    assert starts.horizons == {short.key: math.inf, failing.key: pytest.approx(4 - 2 * 0.35)}


def test_a_horizon_moves_by_what_was_measured_where_it_is_and_not_by_older_collections(chat: Any) -> None:
    starts = Starts("oracle", 0.35, Chain(), chat)
    first, second, third = (Start(task=json.dumps(row), horizon=1.0, left=1, length=8) for row in rows(3))
    starts.learn([([played(first, 1.0), played(second, 1.0)], [])])
    assert starts.horizon == pytest.approx(2.3)
    starts.learn([([played(first, 1.0), played(third, 0.0)], [])])  # drawn before the first were learned from
    assert starts.horizon == pytest.approx(2.3)
    assert starts.horizons == {
        first.key: pytest.approx(2.3), second.key: pytest.approx(2.3), third.key: 1.0  # of its own measurement
    }  # fmt: skip
    starts.horizon = starts.horizons[first.key] = math.inf
    starts.learn([([played(first, 0.0), played(replace(second, task="new"), 0.0)], [])])
    assert starts.horizon == starts.horizons[first.key] == math.inf


def test_rows_of_one_task_move_its_horizon_once_by_their_mean_and_use_its_walk_once(chat: Any) -> None:
    starts = Starts("own", 0.35, Chain(), chat)
    known = Start(task=json.dumps(rows(1)[0]), replies=("1",) * 8, horizon=1.0, left=1, length=8)
    starts.walks = {known.key: known}
    of_processes = [([played(known, success)] * 2, []) for success in (1.0, 0.5)]
    starts.learn(of_processes)
    assert starts.horizons == {known.key: pytest.approx(1 + 2 * (0.75 - 0.35))}
    assert starts.walks[known.key].uses == 1


class OfTwo(LocalContext):
    """One of two processes with as many rows."""

    def gather(self, items: Any) -> Any:
        return [*items, *items]


def test_two_processes_begin_in_different_own_walks(chat: Any) -> None:
    starts, drawn = Starts("own", 0.35, Chain(), chat), list[str]()
    archive = [Start(task=json.dumps(row), replies=("1",) * 8) for row in rows(5)]
    starts.walks = {one.key: one for one in archive}
    for process in range(2):
        context = context_of(Chain(), chat)
        context.__class__, context.process = OfTwo, process
        drawn += [one.key for one in starts.drawn(rows(8), context).values()]
    assert sorted(drawn) == sorted(starts.walks)


def test_a_walk_that_does_not_fit_the_context_is_not_begun_in_and_counted(chat: Any) -> None:
    starts, context = Starts("oracle", 0.35, Chain(), chat), context_of(Chain(), chat)
    starts.horizon = 5.0
    context.engine.max_context_tokens = 3  # type: ignore[union-attr]
    assert not any(one.left for one in begun(starts, rows(16), context))
    assert not context.starts
    assert "must fit the context of 3 tokens" in str(context.failures.latest)


# Sources


def test_own_walks_whose_curriculum_is_over_leave_their_places_to_others(chat: Any) -> None:
    starts, context = Starts("own", 0.35, Chain(), chat), context_of(Chain(), chat)
    over, left = (Start(task=json.dumps(row, sort_keys=True), replies=("1",) * 8) for row in rows(2))
    starts.walks = {one.key: one for one in (over, left)}
    starts.horizons[over.key] = math.inf
    for update in range(1, 9):
        context.update = update
        assert {one.key for one in starts.drawn(rows(8), context).values()} == {left.key}
    starts.learn([([], [over])])
    assert [*starts.walks] == [over.key, left.key]
    del starts.walks[over.key]
    starts.learn([([], [over])])
    assert [*starts.walks] == [left.key]


def test_replays_from_visited_states_are_no_walks_and_move_no_horizon(chat: Any) -> None:
    starts, context = Starts("own", 0.35, Chain(), chat), context_of(Chain(), chat)
    method = methods.make("replay_loo", reference_rollouts=1, contexts=4, alternatives=[2], budget=8)
    for _ in range(4):
        _, collected = updated(starts, context, rows(4), method)
    assert any(one.trained and one.episode.steps_before for one in collected.rollouts)
    for known in starts.walks.values():
        assert success_of(recorded(Chain(), chat, walk_again(Chain(), known.replies, request_of(known)))) == 1.0


def test_own_successes_are_begun_in_and_few_do_not_come_again_and_again(chat: Any) -> None:
    starts, context = Starts("own", 0.35, Chain(), chat), context_of(Chain(), chat)
    tasks = rows(4)
    drawn, collected = updated(starts, context, tasks, methods.make("outcome_reward"))
    assert not any(one.left for one in drawn)
    assert not any(one.later for one in collected.rollouts)
    assert [one.replies for one in starts.walks.values()] == [("1",) * 8] * 4
    context.engine.generate.until = [0]  # type: ignore[union-attr]
    came = Counter[str]()
    for _ in range(60):
        drawn, collected = updated(starts, context, rows(8), methods.make("outcome_reward"))
        came.update(one.key for one in drawn if one.left)
        assert all(one.episode.decisions[0].state.made > 0 for one in collected.rollouts if one.later)
    assert sorted(came.values()) == [8] * 4
    assert not starts.walks


def test_the_archive_keeps_the_newest_within_its_size(chat: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task = len('{"length": 8, "seed": 0}')  # tasks count, too: they may have images
    monkeypatch.setattr("hf_credit.trainers.starts._MOST_CHARACTERS", 3 * (8 + task))
    starts, context = Starts("own", 0.35, Chain(), chat), context_of(Chain(), chat)
    updated(starts, context, rows(5), methods.make("outcome_reward"))
    assert [one.task for one in starts.walks.values()] == [f'{{"length": 8, "seed": {seed}}}' for seed in (2, 3, 4)]


def sudoku() -> EnvironmentInteraction:
    return EnvironmentInteraction(make("sudoku", size=4, blanks=4), "current", instructions=False)


def recorded_in(path: Path, task: Any, chat: Any, right: bool, seed: int = 5) -> Any:
    """Writes an episode of Sudoku that succeeds or fails, as a run records it."""
    start = RolloutRequest[Any](task={"seed": seed})
    (_, _, (reply,)), *_ = walk(task, player_of(task, 1.0), start)[0]
    walked = walk(task, player_of(task, 1.0), start) if right else walk_again(task, [reply, reply], start)
    episode = recorded(task, chat, walked)
    line = credited_episode(episode, [None] * len(episode.decisions), chat.tokenizer, interaction=task).to_json()
    path.write_text(f"{line}\n")
    return episode


def test_a_script_is_named_as_code_and_plays_the_walks(chat: Any) -> None:
    starts, context = Starts(f"{__name__}:says_one", 0.35, Chain(player="0"), chat), context_of(Chain(), chat)
    _, collected = updated(starts, context, rows(8), methods.make("outcome_reward"))
    assert sum(one.later for one in collected.rollouts) == 6
    with pytest.raises(ValueError, match="script must be importable"):
        Starts(f"{__name__}:nobody", 0.35, Chain(), chat)


def says_one(state: Any, request: Request, draws: Any) -> str:
    """A script that goes right."""
    return "1"


def test_a_file_of_recorded_episodes_is_begun_in(tmp_path: Path, chat: Any) -> None:
    task = sudoku()
    path = tmp_path / "episodes.jsonl"
    episode = recorded_in(path, task, chat, right=True)
    starts, context = Starts(str(path), 0.35, task, chat), context_of(task, chat)
    drawn = begun(starts, [{"seed": seed} for seed in range(8)], context)
    assert [one.left for one in drawn if one.left] == [1]
    (request,) = context.starts.values()
    assert request.state.world == episode.decisions[3].state.world
    begins_later = json.loads(path.read_text()) | {"begun": 2}  # the end of an episode, as runs with starts record
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps(begins_later) + "\n")
    with pytest.raises(ValueError, match="starts must name a file with a successful episode of a run"):
        Starts(str(other), 0.35, task, chat)
    recorded_in(other, task, chat, right=True, seed=6)
    resumed = Starts(str(other), 0.35, task, chat)
    resumed.load_state({**starts.state(), "horizon": 3.0})  # of a run with another file
    assert (resumed.horizon, [*resumed.walks]) == (3.0, [*Starts(str(other), 0.35, task, chat).walks])
    recorded_in(path, task, chat, right=False)
    with pytest.raises(ValueError, match="starts must name a file with a successful episode of a run"):
        Starts(str(path), 0.35, task, chat)


def test_recorded_actions_of_a_program_are_refused(tmp_path: Path, chat: Any) -> None:
    recorded_in(path := tmp_path / "episodes.jsonl", sudoku(), chat, right=True)
    with pytest.raises(ValueError, match="recorded actions must not act outside of this process"):
        Starts(str(path), 0.35, collaboration("agent", agent="agent_shop:shop"), chat)


def test_where_a_walk_fails_or_diverges_it_is_counted_and_the_task_begins_at_its_first_state(chat: Any) -> None:
    starts, context = Starts("oracle", 0.35, Chain(player="0"), chat), context_of(Chain(), chat)
    _, collected = updated(starts, context, rows(8), methods.make("outcome_reward"))
    assert not any(one.later for one in collected.rollouts)
    assert context.metrics["starts/failed"] == [1.0]
    assert not starts.horizons

    own, context = Starts("own", 0.35, Chain(), chat), context_of(Chain(), chat)
    updated(own, context, rows(4), methods.make("outcome_reward"))
    own.walks = {key: replace(one, replies=("1", "0")) for key, one in own.walks.items()}
    begun(own, rows(8), context)
    tried = len(own.drawn(rows(8), context))
    context.engine.generate.until = [0]  # type: ignore[union-attr]
    _, collected = updated(own, context, rows(8), methods.make("outcome_reward"))
    assert not any(one.later for one in collected.rollouts)
    assert context.metrics["starts/failed"][-1] == 1.0
    assert len(own.walks) == 4 - tried


def test_a_program_begins_later(shop_policy: Path) -> None:
    shop: Any = collaboration("agent", agent="agent_shop:shop")
    chat = Chat(load_tokenizer(str(shop_policy)))
    starts, context = Starts("own", 0.35, shop, chat), context_of(shop, chat)
    opened = marked(write_call("open", {"box": "a"}))
    try:
        known = [Start(replies=(opened, box), task=json.dumps(row)) for row in ROWS for box in "ab"]
        worth = [success_of(recorded(shop, chat, walk_again(shop, one.replies, request_of(one)))) for one in known]
        right = known[worth.index(1.0)]
        starts.learn([([], [right])])
        drawn = begun(starts, ROWS * 4, context)
        (place,) = context.starts
        assert (drawn[place].replies, drawn[place].left, context.starts[place].step) == (right.replies, 1, 1)
        context.engine.generate = lambda contexts: [Generation(ids=chat.reply_ids(right.replies[1]))] * len(contexts)  # type: ignore[union-attr]
        collected = methods.make("rloo", group_size=2).collector(ROWS * 4, context, None)
        assert [len(one.decisions) for one in collected.episodes if one.start == place] == [1, 1]
        assert [one.outcome for one in collected.episodes if one.start == place] == [1.0, 1.0]
    finally:
        shop.close()


def request_of(known: Start) -> RolloutRequest[Any]:
    return RolloutRequest(task=json.loads(known.task))


def test_a_collaboration_begins_later_and_is_replayed_exactly(chat: Any) -> None:
    def says_one(contexts: Sequence[Sequence[int]]) -> list[Generation]:
        return [Generation(ids=chat.reply_ids("1"), logprobs=None) for _ in contexts]

    relay = collaboration("relay")
    starts, context = Starts("oracle", 0.35, relay, chat), context_of(relay, chat, says_one)
    tasks = [dict(row) for row in relay.tasks("train", 8)]
    assert any(0 < one.left < one.length for one in begun(starts, tasks, context))
    method = methods.make("rloo", group_size=2)
    collected = method.collector(tasks, context, None)
    for rollout in collected.rollouts:
        for index in range(len(rollout.episode.decisions)):
            replay_from(relay, chat, rollout.episode, index)


# Several processes, and restarts


def test_two_processes_agree_on_every_horizon_and_walk(chat: Any) -> None:
    of_process = [Starts("own", 0.35, Chain(), chat) for _ in range(2)]
    contexts = [context_of(Chain(), chat) for _ in range(2)]
    contexts[1].process = 1
    method = methods.make("outcome_reward")
    for update in range(4):
        news = []
        for process, (starts, context) in enumerate(zip(of_process, contexts, strict=True)):
            tasks = [{"length": 8, "seed": 100 * update + 10 * process + place} for place in range(4)]
            drawn = starts.drawn(tasks, context)
            news.append(starts.played(drawn, tasks, context, method.collector, None)[1])
            context.update += 1
        for starts in of_process:
            starts.learn(news)
        assert of_process[0].state() == of_process[1].state()
    assert of_process[0].horizons


def test_what_processes_tell_each_other_of_starts_grows_with_no_task(chat: Any) -> None:
    starts, context = Starts("oracle", 0.35, Chain(), chat), context_of(Chain(), chat)
    sizes = set()
    for text in ("", "a long task" * 1000):
        tasks = [{**row, "text": text} for row in rows(8)]
        news = starts.played(starts.drawn(tasks, context), tasks, context, Group(size=2), None)[1]
        sizes.add(len(pickle.dumps(news)))
    assert news[0]
    assert len(sizes) == 1


@pytest.mark.parametrize("source", ["oracle", "own"])
def test_a_restart_draws_what_would_have_been_drawn(source: str, chat: Any) -> None:
    starts, context = Starts(source, 0.35, Chain(), chat), context_of(Chain(), chat)
    for _ in range(3):
        updated(starts, context, rows(6), methods.make("rloo", group_size=2))
    again = Starts(source, 0.35, Chain(), chat)
    again.load_state(starts.state())
    assert again.state() == starts.state()
    drawn = begun(starts, rows(6), context)
    requests = dict(context.starts)
    assert requests
    assert begun(again, rows(6), context) == drawn
    assert context.starts == requests


def trained(policy: Path, output: Path, source: str | None, resume: bool = False, **changed: Any) -> Any:
    task = sudoku()
    names = ("history", "instructions")
    own = {name: value for name, value in {**SUDOKU, **SAMPLED}.items() if name not in names}
    settings = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4, "starts": source, **changed}
    args = CreditConfig(output_dir=str(output), **{**own, **settings})
    tasks = Dataset.from_list([{"seed": seed} for seed in range(32)])
    trainer = CreditTrainer(str(policy), task, args, tasks, method=methods.make("rloo", group_size=2))
    trainer.train(resume_from_checkpoint=str(output / "checkpoint-2") if resume else None)
    return trainer


@pytest.mark.parametrize("source", ["oracle", "own"])
def test_a_resumed_training_is_that_without_a_break(source: str, micro_policy: Path, tmp_path: Path) -> None:
    whole = trained(micro_policy, tmp_path, source)
    resumed = trained(micro_policy, tmp_path, source, resume=True)
    assert resumed.starts.state() == whole.starts.state()
    ends = zip(whole.model.named_parameters(), resumed.model.named_parameters(), strict=True)
    assert [name for (name, one), (_, other) in ends if not torch.equal(one, other)] == []
    logged = [entry for entry in whole.state.log_history if "starts/later" in entry]
    assert any({"starts/success", "starts/horizon"} <= entry.keys() for entry in logged)
    if source == "own":
        assert whole.starts.walks


SHARED = {"starts": "oracle", "max_steps": 2, "per_device_train_batch_size": 4}


def test_two_processes_that_train_keep_one_horizon(micro_policy: Path, tmp_path: Path) -> None:
    run = {"policy": str(micro_policy), "output": str(tmp_path), "settings": SHARED}
    script = Path(__file__).with_name("resumed_run.py")
    launch(script, json.dumps(run), processes=2, folder=tmp_path, environment={"ACCELERATE_USE_CPU": "true"})
    states = [
        torch.load(tmp_path / "checkpoint-2" / f"hf_credit_state_{rank}.pt", weights_only=True)["starts"]
        for rank in range(2)
    ]
    assert states[0] == states[1]
    assert states[0]["horizon"] != 1.0
    assert len(states[0]["horizons"]) > 2
