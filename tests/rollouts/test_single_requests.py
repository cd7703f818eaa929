"""A sampler of single requests: no episode waits for the replies of another."""

from __future__ import annotations

import random
import threading
from collections import Counter
from concurrent.futures import Future
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.rollouts import Ending, Engine, Generation, Interaction, Request, RolloutRequest
from hf_credit.rollouts.samplers import BadReplyError


@dataclass(frozen=True, kw_only=True)
class Tale:
    name: str
    turns: int
    fails_after: int = -1
    replies: tuple[str, ...] = ()
    luck: int = 0


class Tales(Interaction[Tale]):
    """Two simultaneous roles in every second step, with all messages in their contexts; may fail by the task."""

    def start(self, task, seed):
        return Tale(luck=seed, **task)

    def pending(self, state):
        if len(state.replies) >= state.turns:
            return ()
        asked = [{"role": "user", "content": f"{state.name} {' '.join(state.replies)}"}]
        roles = ("a", "b") if len(state.replies) % 2 else ("a",)
        return tuple(Request(role=role, messages=asked) for role in roles)

    def advance(self, state, replies):
        if state.fails_after == len(state.replies):
            raise RuntimeError("a tale that breaks")
        return replace(state, replies=(*state.replies, *replies))

    def outcome(self, state):
        return float(len(state.replies))

    def metrics(self, state):
        return {"luck": state.luck}

    def reseed(self, state, seed):
        return replace(state, luck=seed)


def babble(context, seed=None):
    draws = random.Random(f"{tuple(context)} {seed}")
    return Generation(ids=[draws.randrange(105) for _ in range(draws.randrange(1, 4))], logprobs=None)


class Batches:
    """The same replies, in rounds."""

    def __call__(self, contexts):
        return [babble(context) for context in contexts]

    def seeded(self, contexts, seeds):
        return [babble(context, seed) for context, seed in zip(contexts, seeds, strict=True)]


class Singles:
    """Replies to single requests in random order, in a thread that ends without requests."""

    seeded = True

    def __init__(self, seed=0, reply=babble):
        self.draws, self.reply = random.Random(seed), reply
        self.waiting = []
        self.widest = 0
        self.changed = threading.Condition()
        self.replying = False

    def submit(self, role, context, seed):
        future = Future()
        with self.changed:
            self.waiting.append((future, context, seed))
            self.widest = max(self.widest, len(self.waiting))
            if not self.replying:
                self.replying = True
                threading.Thread(target=self.run, daemon=True).start()
        return future

    def run(self):
        while True:
            with self.changed:
                if not self.waiting:
                    self.replying = False
                    return
                future, context, seed = self.waiting.pop(self.draws.randrange(len(self.waiting)))
            try:
                future.set_result(self.reply(context, seed))
            except ConnectionError as error:
                future.set_exception(error)


def plain(episodes):
    return [
        (
            replace(one, exception=None, outcome=0.0, decisions=tuple(replace(d, id="") for d in one.decisions)),
            str(one.outcome),  # NaN is equal to nothing
        )
        for one in episodes
    ]


starts = st.lists(
    st.builds(
        lambda name, turns, fails, fanout: RolloutRequest(
            task={"name": name, "turns": turns, "fails_after": fails}, fanout=fanout, stream=name
        ),
        st.sampled_from("xyz"),
        st.integers(0, 4),
        st.integers(-1, 3),
        st.sampled_from([(), (2,), (1, 3), (2, 2)]),
    ),
    max_size=5,
)


@given(starts, st.integers(1, 6), st.integers(0, 10**6))
def test_episodes_do_not_depend_on_the_order_in_which_replies_arrive(chat, starts, most, seed):
    rounds = Engine(Tales(), chat, Batches(), max_concurrent=most, max_context_tokens=40)
    singles = Singles(seed)
    single = Engine(Tales(), chat, singles, max_concurrent=most, max_context_tokens=40)
    assert single.honours_seeds
    assert plain(single.run(starts)) == plain(rounds.run(starts))
    assert singles.widest <= 2 * most


def test_no_episode_waits_for_the_reply_of_another(chat):
    held, asked = [], Counter()

    class HoldsBack:
        def submit(self, role, context, seed):
            name, future = chat.tokenizer.decode([context[1]]), Future()
            asked[name] += 1
            if name == "x":
                held.append(future)  # until the others have come to their ends
            else:
                future.set_result(babble(context))
            if min(asked["y"], asked["z"]) >= 3:
                for one in held:
                    one.set_result(babble(context))
                held.clear()
            return future

    tales = [RolloutRequest(task={"name": name, "turns": 1 + 3 * (name != "x")}) for name in "xyz"]
    episodes = Engine(Tales(), chat, HoldsBack(), max_concurrent=2).run(tales)
    assert [episode.ending for episode in episodes] == [Ending.FINISHED] * 3


def test_an_exception_of_the_sampler_is_raised_and_other_requests_are_cancelled(chat):
    asked = []

    class Breaks:
        def submit(self, role, context, seed):
            asked.append(Future())
            if len(asked) == 3:
                asked[1].set_exception(ConnectionError("the server is gone"))
            return asked[-1]

    with pytest.raises(ConnectionError, match="the server is gone"):
        Engine(Tales(), chat, Breaks()).run([RolloutRequest(task={"name": "x", "turns": 1})] * 3)
    assert [one.cancelled() for one in asked] == [True, False, True]


def test_a_reply_that_cannot_be_ends_its_own_episode_in_an_error(chat):
    def reply(context, seed):
        if chat.tokenizer.decode([context[1]]) == "y":
            raise BadReplyError("the answer of http://a.b has -7 in its tokens")
        return babble(context, seed)

    tales = [RolloutRequest(task={"name": name, "turns": 2}) for name in "xyz"]
    x, y, z = Engine(Tales(), chat, Singles(reply=reply)).run(tales)
    assert (x.ending, y.ending, z.ending) == (Ending.FINISHED, Ending.ERROR, Ending.FINISHED)
    assert y.decisions == ()
    assert "http://a.b" in y.error


class Slow(Tales):
    """An environment with parallel steps that wait for each other."""

    side_by_side = 4

    def __init__(self):
        self.together = threading.Barrier(4)

    def advance(self, state, replies):
        self.together.wait(timeout=20)
        return super().advance(state, replies)


def test_slow_steps_run_in_parallel_over_all_runs_with_one_lock(chat):
    world, lock = Slow(), threading.Lock()
    tales = [RolloutRequest(task={"name": name, "turns": 1}) for name in "xy"]
    found = []

    def run():
        with lock:
            found.extend(Engine(world, chat, Singles(), lock=lock).run(tales))

    runs = [threading.Thread(target=run) for _ in range(2)]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    assert [episode.ending for episode in found] == [Ending.FINISHED] * 4


class SlowStart(Tales):
    """An environment with parallel starts that wait for each other."""

    side_by_side = 2

    def __init__(self):
        self.together = threading.Barrier(2)

    def start(self, task, seed):
        self.together.wait(timeout=20)
        return super().start(task, seed)


def test_slow_starts_run_in_parallel_over_all_runs_with_one_lock(chat):
    world, lock, found = SlowStart(), threading.Lock(), []

    def run():
        with lock:
            found.extend(
                Engine(world, chat, Singles(), lock=lock).run([RolloutRequest(task={"name": "x", "turns": 1})])
            )

    runs = [threading.Thread(target=run) for _ in range(2)]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    assert [episode.ending for episode in found] == [Ending.FINISHED] * 2


class Alone(Tales):
    """Detects parallel calls."""

    def __init__(self):
        self.inside, self.most = 0, 0

    def advance(self, state, replies):
        self.inside += 1
        self.most = max(self.most, self.inside)
        threading.Event().wait(0.001)
        self.inside -= 1
        return super().advance(state, replies)


def test_an_environment_without_parallel_steps_is_called_by_one_thread_at_a_time(chat):
    world, lock = Alone(), threading.Lock()
    tales = [RolloutRequest(task={"name": name, "turns": 3}) for name in "xyz"]

    def run():
        with lock:
            Engine(world, chat, Singles(), lock=lock).run(tales)

    runs = [threading.Thread(target=run) for _ in range(4)]
    for one in runs:
        one.start()
    for one in runs:
        one.join()
    assert world.most == 1


def test_an_error_in_a_parallel_step_ends_only_its_episode(chat):
    world = Tales()
    world.side_by_side = 2
    tales = [
        RolloutRequest(task={"name": name, "turns": 3, "fails_after": fails}) for name, fails in (("x", 1), ("y", -1))
    ]
    broken, sound = Engine(world, chat, Singles()).run(tales)
    assert (broken.ending, broken.error) == (Ending.ERROR, "RuntimeError: a tale that breaks")
    assert sound.ending == Ending.FINISHED
