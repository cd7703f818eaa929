"""A dry run finds errors of a task's own code without side effects."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from datasets import Dataset, IterableDataset

from hf_credit import make
from hf_credit.collaborations import Collaboration, Event
from hf_credit.rollouts import EnvironmentInteraction, Interaction, Request, RolloutRequest
from hf_credit.rollouts.dry_run import DryRunError, dry_run, first_rows, require_room
from hf_credit.rollouts.templates import ChatTemplateError

EVENTS = [Event("plan", role="reasoner"), Event("answer", role="actor", after="plan")]
ROLES = {"reasoner": "Plan.", "actor": "Answer."}


def pair(scorer):
    return Collaboration(ROLES, EVENTS, final="answer", scorer=scorer)


def task(**row):
    return RolloutRequest(task={"problem": "1 + 1", "answer": "2", **row}, seed=0)


def test_the_scorer_is_called_once_with_the_constant_reply(chat):
    asked = []
    dry_run(pair(lambda row, text: asked.append((row["answer"], text)) or 0.0), chat, task())
    assert asked == [("2", "?")]


def test_a_game_is_played_to_an_end(chat):
    dry_run(EnvironmentInteraction(make("sudoku", size=4, blanks=4)), chat, RolloutRequest(task={"seed": 3}))


def test_an_exception_of_the_task_is_raised_with_its_traceback(chat):
    def score(row, text):
        return float(row["anwser"] == text)

    with pytest.raises(
        DryRunError, match=r"the first task row must not raise .* got KeyError: 'anwser'; fix"
    ) as refused:
        dry_run(pair(score), chat, task())
    assert isinstance(refused.value.__cause__, KeyError)
    with pytest.raises(DryRunError, match="got ValueError: a score must be"):
        dry_run(pair(lambda row, text: 7.0), chat, task())


def test_a_missing_column_is_raised(chat):
    with pytest.raises(DryRunError, match="must have text in the column 'problem'"):
        dry_run(pair(lambda row, text: 0.0), chat, RolloutRequest(task={"question": "1 + 1"}))


def test_an_exception_of_the_template_is_raised(chat):
    class Narrated(Interaction[str]):
        def start(self, task, seed):
            return ""

        def pending(self, state):
            return () if state else (Request(role="agent", messages=[{"role": "narrator", "content": "!"}]),)

        def advance(self, state, replies):
            return replies[0]

        def outcome(self, state):
            return 0.0

    with pytest.raises(DryRunError, match="no such role"):
        dry_run(Narrated(), chat, RolloutRequest())


def test_a_chat_template_that_does_not_fit_is_no_fault_of_the_code_and_is_raised_once(chat):
    class Offering(Endless):
        def pending(self, state):
            tool = {"type": "function", "function": {"name": "a", "parameters": {}}}
            return (Request(role="agent", messages=[{"role": "user", "content": "go on"}], tools=(tool,)),)

    with pytest.raises(
        ChatTemplateError, match=r"must render tools, .*ChatML.* an environment with action tags\.$"
    ) as told:
        dry_run(Offering(), chat, RolloutRequest())
    assert (told.value.__cause__, told.value.__suppress_context__) == (None, True)


def test_a_sentence_within_the_error_loses_its_full_stop(chat):
    def score(row, text):
        raise ValueError("a row must be right, got this; correct it.")

    with pytest.raises(DryRunError, match=r"correct it; fix the code in the traceback\.$"):
        dry_run(pair(score), chat, task())


@dataclass(frozen=True)
class Steps:
    made: int = 0


class Endless(Interaction[Steps]):
    def start(self, task, seed):
        return Steps()

    def pending(self, state):
        return (Request(role="agent", messages=[{"role": "user", "content": "go on"}]),)

    def advance(self, state, replies):
        return Steps(state.made + 1)

    def outcome(self, state):
        assert state.made == 16
        return 0.0


def test_a_task_that_does_not_end_is_stopped(chat):
    dry_run(Endless(), chat, RolloutRequest(fanout=(4, 4), stream="s"))


def test_random_states_do_not_change(chat):
    def score(row, text):
        random.random(), np.random.random(), torch.rand(1)
        return 0.0

    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    expected = random.random(), np.random.random(), torch.rand(1)
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    dry_run(pair(score), chat, task())
    assert (random.random(), np.random.random(), torch.rand(1)) == expected


def test_a_raised_failure_is_not_logged(chat, caplog):
    with pytest.raises(DryRunError):
        dry_run(pair(lambda row, text: 7.0), chat, task())
    assert caplog.records == []


def test_a_limit_is_accepted_if_one_of_the_first_tasks_fits(chat):
    long, short = task(problem="x" * 200), task(problem="x")
    require_room(pair(lambda row, text: 0.0), chat, [long, long, short], 60)
    require_room(pair(lambda row, text: 0.0), chat, [], 60)
    with pytest.raises(ValueError, match=r"at most 60 tokens, .* got more in each of the first 2 tasks; lower"):
        require_room(pair(lambda row, text: 0.0), chat, [long, long], 60)
    with pytest.raises(ValueError, match="each of the first 8 tasks"):
        require_room(pair(lambda row, text: 0.0), chat, [*[long] * 8, short], 60)


def test_tasks_that_ask_for_no_reply_are_refused(chat):
    class Silent(Interaction):
        roles = ("agent",)

        def start(self, task, seed):
            return task["turns"]

        def pending(self, state):
            return (Request(role="agent", messages=[{"role": "user", "content": "?"}]),) if state else ()

        def advance(self, state, replies):
            return state - 1

        def outcome(self, state):
            return 1.0

    silent, asks = (RolloutRequest(task={"turns": turns}, seed=0) for turns in (0, 1))
    require_room(Silent(), chat, [silent, asks], 60)
    with pytest.raises(ValueError, match=r"a task must ask for a reply, got none in the first 2 tasks"):
        require_room(Silent(), chat, [silent, silent], 60)


def test_checking_the_context_limit_calls_no_scorer(chat):
    def never(row, text):
        raise AssertionError("not asked")

    require_room(pair(never), chat, [task()], 1000)


def test_first_rows_of_any_dataset():
    rows = [{"seed": 0}, {"seed": 1}, {"seed": 2}]
    stream = IterableDataset.from_generator(lambda: iter(rows))
    assert list(first_rows(Dataset.from_list(rows), 2)) == rows[:2]
    assert [list(first_rows(stream, 2)) for _ in range(2)] == [rows[:2]] * 2
    assert next(iter(stream)) == rows[0]
    assert list(first_rows({"a": Dataset.from_list(rows), "b": stream})) == rows[:1] * 2
    assert list(first_rows(None)) == []
    assert list(first_rows(Dataset.from_list([]))) == []
