from __future__ import annotations

import math
import string

import pytest

from hf_credit.collaborations import Collaboration, Event
from hf_credit.collaborations.relay import relay, relay_task
from hf_credit.evaluation.play import attempt
from hf_credit.policies.generation import sampler
from hf_credit.policies.micro import MicroConfig, build_model, tokenizer_of
from hf_credit.rollouts import Chat, Engine, EveryEpisodeFailedError, Generation, RolloutRequest


def engine_that_says(texts, scorer):
    chat = Chat(tokenizer_of([string.printable]))
    rest = iter(texts)

    def generate(contexts):
        return [Generation(ids=chat.tokenizer(next(rest), add_special_tokens=False)["input_ids"]) for _ in contexts]

    return Engine(Collaboration({"a": "a"}, [Event("only", "a")], "only", scorer), chat, generate)


def test_every_task_has_as_many_scores_as_samples() -> None:
    engine = engine_that_says("110001", lambda task, text: float(text))
    scores, cost = attempt(
        engine, [RolloutRequest(task={"problem": "p"}), RolloutRequest(task={"problem": "q"})], samples=3
    )
    assert scores == [[1, 1, 0], [0, 0, 1]]
    assert (cost.scoring_events, cost.decisions) == (6, {"a": 6})


def test_a_failed_or_nan_score_is_none() -> None:
    engine = engine_that_says("0x1", lambda task, text: float(text))
    assert attempt(engine, [RolloutRequest(task={"problem": "p"})], samples=3)[0] == [[0, None, 1]]
    engine = engine_that_says("01", lambda task, text: math.nan if text == "0" else 1.0)
    assert attempt(engine, [RolloutRequest(task={"problem": "p"})], samples=2)[0] == [[None, 1]]


class Paid(Collaboration):
    """Pays for two steps of a task that succeeds in the end or not."""

    def metrics(self, state):
        return {"success": float(self.outcome(state) < 0.5)}


def test_a_score_is_the_metric_success_of_a_task_that_has_it() -> None:
    engine = engine_that_says("01", lambda task, text: float(text)).of(
        Paid({"a": "a"}, [Event("only", "a")], "only", lambda task, text: float(text))
    )
    assert attempt(engine, [RolloutRequest(task={"problem": "p"})], samples=2)[0] == [[1, 0]]


def test_attempts_that_all_fail_are_raised() -> None:
    engine = engine_that_says("01", lambda task, text: math.nan)
    with pytest.raises(
        EveryEpisodeFailedError, match="some episode of an evaluation must end without an error, got 2 of 2"
    ):
        attempt(engine, [RolloutRequest(task={"problem": "p"})], samples=2)


def test_attempts_at_a_task_differ_and_the_same_seed_repeats_them() -> None:
    chat = Chat(tokenizer_of(["0123456789", "tell secret answer mod add Problem: Context: \n"]))
    model = build_model(chat.tokenizer, MicroConfig(hidden_size=8, layers=1, heads=2))
    messages: list[str] = []
    team = relay(10)
    team.scorer = lambda task, text: messages.append(text) or 0.0
    engine = Engine(team, chat, sampler(model, chat.tokenizer, max_new_tokens=3))
    starts = [RolloutRequest(task=relay_task(1, 2), seed=0), RolloutRequest(task=relay_task(3, 4), seed=1)]
    runs = []
    for seed in (0, 0, 1):
        messages.clear()
        attempt(engine, starts, samples=4, seed=seed)
        runs.append(sorted(messages))
    assert runs[0] == runs[1] != runs[2]
    assert len(set(runs[0])) > 2


def test_no_tasks_have_no_scores() -> None:
    assert attempt(engine_that_says("", lambda task, text: 0.0), [])[0] == []


def test_invalid_attempts_are_refused() -> None:
    engine = engine_that_says("", lambda task, text: 0.0)
    with pytest.raises(ValueError, match="samples of a task must be at least 1, got 0"):
        attempt(engine, [], samples=0)
    with pytest.raises(ValueError, match="must have no fanout, got one with alternatives"):
        attempt(engine, [RolloutRequest(task={}, fanout=(2,))])
