"""Failures of a task's own code are logged once, and raised if every episode failed."""

from __future__ import annotations

import gc
import logging
import math
import weakref
from dataclasses import dataclass, replace

import pytest

from hf_credit.environments.replayed import DivergedError
from hf_credit.rollouts import (
    Ending,
    Engine,
    Episode,
    EveryEpisodeFailedError,
    Generation,
    Interaction,
    Request,
    RolloutRequest,
    refuse_total_failure,
)
from hf_credit.rollouts.failures import UnknownValuesError, check_replays, record_replays, unknown_where_diverged


@dataclass(frozen=True)
class Asked:
    task: str
    replies: tuple[str, ...] = ()


class OneQuestion(Interaction[Asked]):
    """One request; the scorer reads a column of the task that may be misspelled."""

    def start(self, task, seed):
        if task["name"] == "closed":
            raise RuntimeError("closed")
        return Asked(task["name"])

    def pending(self, state):
        return () if state.replies else (Request(role="agent", messages=[{"role": "user", "content": state.task}]),)

    def advance(self, state, replies):
        return replace(state, replies=tuple(replies))

    def outcome(self, state):
        return {"answer": 1.0}["answer" if state.task == "fine" else "anwser"]


def say_nothing(contexts):
    return [Generation(ids=[1]) for _ in contexts]


def play(chat, *names, engine=None):
    engine = engine or Engine(OneQuestion(), chat, say_nothing)
    return engine.run([RolloutRequest(task={"name": name}) for name in names])


def test_the_first_failure_of_each_kind_is_logged_with_its_traceback(chat, caplog):
    endings = [episode.ending for episode in play(chat, "typo", "closed", "fine", "typo", "closed")]
    assert endings == ["error", "error", "finished", "error", "error"]
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    shown = caplog.text
    assert shown.count("KeyError: 'anwser'") == 1
    assert shown.count("RuntimeError: closed") == 1
    assert 'return {"answer": 1.0}["answer" if' in shown  # the line of the user's own code


def test_an_engine_does_not_log_a_kind_of_failure_again_in_later_runs(chat, caplog):
    engine = Engine(OneQuestion(), chat, say_nothing)
    play(chat, "typo", engine=engine)
    caplog.clear()
    play(chat, "typo", engine=engine)
    assert caplog.records == []
    play(chat, "typo")  # another engine may be of another run
    assert len(caplog.records) == 1


def test_a_failed_episode_has_its_exception(chat):
    broken, fine = play(chat, "typo", "fine")
    assert isinstance(broken.exception, KeyError)
    assert (broken.error, fine.exception, fine.error) == ("KeyError: 'anwser'", None, None)
    assert "exception" not in repr(broken)
    sound = replace(broken, outcome=0.0)  # NaN is equal to nothing
    assert replace(sound, exception=None) == sound


def test_a_recorded_failure_does_not_keep_local_variables_alive(chat):
    class Large:
        pass

    held = []

    class Hoarder(OneQuestion):
        def outcome(self, state):
            large = Large()
            held.append(weakref.ref(large))
            raise MemoryError("no room")

    (episode,) = Engine(Hoarder(), chat, say_nothing).run([RolloutRequest(task={"name": "fine"})])
    gc.collect()
    assert isinstance(episode.exception, MemoryError)
    assert held[0]() is None


def test_a_batch_in_which_every_episode_failed_raises_the_first_failure(chat):
    with pytest.raises(EveryEpisodeFailedError, match=r"2 of 2 with errors, the first with KeyError") as raised:
        refuse_total_failure(play(chat, "typo", "closed"))
    assert isinstance(raised.value.__cause__, KeyError)
    assert raised.value.__cause__.__traceback__ is not None


@pytest.mark.parametrize("names", [("typo", "fine"), ("fine",), ()])
def test_a_batch_with_an_episode_that_did_not_fail_is_accepted(chat, names):
    refuse_total_failure(play(chat, *names))


FAILED = Episode(decisions=(), outcome=0.0, ending=Ending.ERROR, error="ValueError: elsewhere")
SOUND = Episode(decisions=(), outcome=0.0, ending=Ending.FINISHED)


@pytest.mark.parametrize(
    ("here", "there", "fails"),
    [
        ([FAILED], [FAILED], True),
        ([FAILED], [SOUND], False),
        ([SOUND], [FAILED], False),
        ([], [FAILED], True),
        ([], [], False),
    ],
)
def test_processes_fail_together(here, there, fails):
    counts = {True: (1, 1, FAILED.error, False), False: (1, 0, None, False)}
    other = [(0, 0, None, False)] if not there else [counts[there[0] is FAILED]]
    if not fails:
        refuse_total_failure(here, lambda items: [*items, *other])
        return
    with pytest.raises(EveryEpisodeFailedError, match="the first with ValueError: elsewhere"):
        refuse_total_failure(here, lambda items: [*items, *other])


def recorded(requests, *failed):
    """What is recorded of replays, one of each request, some of which failed."""
    values = {}
    endings = [Ending.ERROR if place in failed else Ending.FINISHED for place in range(len(requests))]
    episodes = [Episode(decisions=(), outcome=0.0, ending=one, start=place) for place, one in enumerate(endings)]
    record_replays(episodes, requests, lambda name, some: values.setdefault(name, []).extend(some))
    return values


def test_a_state_is_unknown_if_all_of_its_replays_failed():
    first, second = Asked("first"), Asked("second")
    requests = [RolloutRequest(state=state, seed=seed) for state in (first, second) for seed in range(2)]
    assert recorded(requests, 0) == {"replays/failed": [1.0, 0.0, 0.0, 0.0], "replays/unknown": [0.0, 0.0]}
    assert recorded(requests, 0, 2, 3)["replays/unknown"] == [0.0, 1.0]


def test_episodes_of_tasks_are_no_replays_but_those_for_comparison_are():
    tasks = [RolloutRequest(task={"name": "fine"}, state=Asked("fine"), comparison=role) for role in (False, True)]
    assert recorded([RolloutRequest(task={"name": "fine"}), *tasks], 0, 1) == {
        "replays/failed": [0.0],
        "replays/unknown": [0.0],
    }


@pytest.mark.parametrize("here", [True, False])
def test_where_every_episode_diverged_the_error_is_one_of_the_task(here):
    """On every process the same."""
    local = [ended(0, DivergedError("moved"))] if here else []
    other = [(2, 2, "DivergedError: moved", True)]
    with pytest.raises(UnknownValuesError, match=r"the first with .*moved; make the task repeat itself\."):
        refuse_total_failure(local, lambda items: [*items, *other])


def ended(start, error=None):
    """An episode with the outcome 1, unless it failed."""
    if error is None:
        return Episode(decisions=(), outcome=1.0, ending=Ending.FINISHED, metrics={"success": 1.0}, start=start)
    about = {"ending": Ending.ERROR, "error": str(error), "exception": error}
    return Episode(decisions=(), outcome=math.nan, start=start, **about)


@pytest.mark.parametrize("tree", [True, False])
def test_where_one_replay_of_a_state_diverged_none_has_an_outcome(tree):
    """What the others continued from is no more that state than what it continued from."""
    state, moved = Asked("fine"), DivergedError("the clock has moved")
    one = RolloutRequest(fanout=(3,)) if tree else RolloutRequest(state=state)
    other = RolloutRequest(fanout=(2,)) if tree else RolloutRequest(state=Asked("fine"))
    places, requests = ([0, 0, 0, 1], [one, other]) if tree else ([0, 1, 2, 3], [one, one, one, other])
    found = unknown_where_diverged(
        [ended(place, error) for place, error in zip(places, [None, moved, OSError("full"), None], strict=True)],
        requests,
    )
    assert [episode.error for episode in found] == ["the clock has moved", "the clock has moved", "full", None]
    assert [math.isnan(episode.outcome) for episode in found] == [True, True, True, False]
    assert [episode.metrics for episode in found] == [{}, {}, {}, {"success": 1.0}]
    assert found[0].exception is moved


def test_other_failures_and_episodes_alone_from_the_start_leave_the_others_as_they_are():
    replays = [RolloutRequest(state=Asked("fine"))] * 2
    failed = [ended(0), ended(1, OSError("full"))]
    assert unknown_where_diverged(failed, replays) == failed
    alone = [ended(0), ended(1, DivergedError("moved"))]
    assert unknown_where_diverged(alone, [RolloutRequest(task={"name": "fine"})] * 2) == alone


def test_episodes_that_branch_are_replays_once_one_diverged():
    def recorded(*errors):
        values = {}
        requests = [RolloutRequest(task={"name": "fine"}, fanout=(2,))] * 2
        episodes = [ended(place, error) for place, error in zip([0, 0, 1, 1], errors, strict=True)]
        record_replays(episodes, requests, lambda name, some: values.setdefault(name, []).extend(some))
        return values

    assert recorded(None, None, OSError(), None) == {"replays/failed": [], "replays/unknown": []}
    moved = DivergedError()
    assert recorded(moved, moved, OSError(), None) == {
        "replays/failed": [1.0, 1.0, 1.0, 0.0],
        "replays/unknown": [1.0, 0.0],
    }


def test_replays_that_failed_are_told_once_and_end_a_run_if_most_states_are_unknown(caplog):
    some = {"replays/failed": [1.0, 1.0, 0.0, 0.0], "replays/unknown": [1.0, 0.0]}
    assert check_replays({**some, "replays/failed": [0.0], "replays/unknown": [0.0]}, None, False) is False
    assert check_replays(some, "DivergedError: the clock", False) is True
    assert check_replays(some, "DivergedError: the clock", True) is True
    (told,) = caplog.records
    assert "50% of replays failed, such as DivergedError: the clock: 50% of the states have no value" in told.message
    assert "are biased if failing depends on the replies, or on the number of steps after them" in told.message
    with pytest.raises(UnknownValuesError, match="got none for 2 of 3, whose replays failed, such as E: why; make"):
        check_replays({"replays/unknown": [1.0, 1.0, 0.0]}, "E: why", True)
