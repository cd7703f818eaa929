from __future__ import annotations

import gc
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_credit import make
from hf_credit.environments.actions import tag
from hf_credit.environments.tasks import SEEDS_PER_SPLIT
from hf_credit.evaluation.play import evaluate_policy
from hf_credit.evaluation.results import EpisodeRecord, EvalResults, difference
from hf_credit.oracles import default_oracle
from hf_credit.policies.generation import sampler
from hf_credit.rollouts import (
    Chat,
    Decision,
    Ending,
    EnvironmentInteraction,
    Episode,
    EveryEpisodeFailedError,
    Generation,
    RolloutRequest,
    Verdict,
)
from hf_credit.rollouts.pulse import PULSE
from hf_credit.tasks.rows import starts_of


def record(seed: int, success: float, **changed: object) -> EpisodeRecord:
    values = {"ending": "finished", "outcome": success, "metrics": {"success": success}, "turns": 2, "tokens": 14}
    return EpisodeRecord(seed=seed, **{**values, **changed})


def results(*successes: float) -> EvalResults:
    return EvalResults(records=tuple(record(seed, success) for seed, success in enumerate(successes)))


@pytest.fixture(scope="module")
def chat(micro_policy: Path) -> Chat:
    return Chat(AutoTokenizer.from_pretrained(micro_policy))


@pytest.fixture(scope="module")
def sudoku() -> EnvironmentInteraction:
    return EnvironmentInteraction(make("sudoku", size=4, blanks=4), history="current", instructions=False)


# One episode


def decision(valid: bool | None, tokens: int) -> Decision:
    return Decision(
        role="agent",
        state=None,
        context_ids=(1,),
        action_ids=(1,) * tokens,
        logprobs=None,
        action_text="",
        verdict=None if valid is None else Verdict(score=float(valid)),
    )


def test_a_record_counts_turns_verdicts_and_tokens() -> None:
    episode = Episode(
        decisions=(decision(True, 3), decision(False, 4), decision(None, 5)),
        outcome=0.5,
        ending=Ending.ERROR,
        metrics={"completion": 0.25},
        error="oracle failed",
    )
    kept = EpisodeRecord.of(7, episode)
    assert (kept.seed, kept.turns, kept.judged, kept.valid, kept.tokens) == (7, 3, 2, 1, 12)
    assert (kept.ending, kept.outcome, kept.error) == ("error", 0.5, "oracle failed")
    values = kept.values()
    assert values["oracle/valid"] == 0.5
    assert values["completion"] == 0.25
    assert (values["endings/error"], values["endings/finished"]) == (1.0, 0.0)


def test_an_episode_that_failed_is_in_no_mean_of_outcomes() -> None:
    failed = EpisodeRecord.of(1, Episode(decisions=(), outcome=math.nan, ending=Ending.ERROR, error="it broke"))
    kept = EvalResults.from_json(EvalResults(records=(record(0, 1.0), failed)).to_json())
    assert kept.records[1].outcome is None
    assert (kept.summary()["reward"].mean, kept.summary()["reward"].n) == (1.0, 1)


def test_an_episode_without_verdicts_has_no_share_of_valid_actions() -> None:
    assert "oracle/valid" not in record(0, 1.0).values()


# Many episodes


def test_the_summary_is_the_mean_of_each_number() -> None:
    summary = results(1.0, 0.0, 0.0, 1.0, 1.0).summary()
    assert summary["success"].mean == pytest.approx(0.6)
    assert summary["success"].n == 5
    # Wilson, 3 of 5 with q = 1.95996: (0.6 + 0.38415 +- sqrt(0.76829 * 0.24 + 0.38415^2)) / 1.76829.
    for name in ("success", "reward"):
        assert (summary[name].low, summary[name].high) == pytest.approx((0.23072, 0.88238), abs=1e-4)
    assert (summary["turns"].mean, summary["turns"].low, summary["turns"].high) == (2.0, 2.0, 2.0)
    assert list(summary)[:2] == ["reward", "success"]


def test_a_number_that_some_episodes_lack_is_the_mean_of_the_others() -> None:
    sides = EvalResults(
        records=(
            record(0, 1.0, metrics={"return_first": 1.0}),
            record(1, 0.0, metrics={"return_second": -1.0}),
            record(2, 0.0, metrics={"return_second": 0.0}),
            record(3, 0.0, metrics={}, ending="error"),
        )
    )
    summary = sides.summary()
    assert summary["return_second"].mean == -0.5
    assert summary["return_second"].n == 2
    assert summary["endings/error"].mean == 0.25
    assert (summary["return_first"].mean, summary["return_first"].n) == (1.0, 1)
    assert math.isnan(summary["return_first"].low)


def test_no_interval_leaves_the_range_of_its_metric_or_has_no_width_at_its_ends() -> None:
    never = results(*[0.0] * 8).summary()["success"]
    assert (never.mean, never.low, never.high, never.n) == (0.0, 0.0, pytest.approx(0.3244, abs=1e-4), 8)
    always = results(*[1.0] * 4).summary()
    assert (always["success"].high, always["reward"].low) == (1.0, pytest.approx(0.5101, abs=1e-4))
    once = results(1.0, 0.0).summary()["reward"]
    assert 0 < once.low < 0.1
    assert 0.9 < once.high < 1
    long = EvalResults(records=(record(0, 1.0, tokens=21), record(1, 0.0, tokens=35))).summary()["tokens"]
    assert (long.mean, long.low) == (28.0, 0.0)
    games = [record(seed, 1.0, metrics={"return": 1.0}) for seed in range(4)]
    assert EvalResults(records=tuple(games)).summary()["return"].low == pytest.approx(2 * 0.5101 - 1, abs=1e-3)
    same = difference(results(1.0, 0.0, 1.0), results(1.0, 0.0, 1.0), "success")
    assert -1 < same.low < 0 < same.high < 1
    beyond = EvalResults(records=(record(0, 3.0), record(1, -2.5))).summary()["reward"]
    assert beyond.low < -2.5
    assert beyond.high > 3


@given(
    st.lists(
        st.builds(
            EpisodeRecord,
            seed=st.integers(0, 2**32),
            ending=st.sampled_from([str(ending) for ending in Ending]),
            outcome=st.floats(-1, 1),
            metrics=st.dictionaries(st.text(max_size=4), st.floats(0, 1), max_size=3),
            turns=st.integers(0, 50),
            judged=st.integers(0, 50),
            valid=st.integers(0, 50),
            tokens=st.integers(0, 10**6),
            error=st.none() | st.text(max_size=9),
        ),
        max_size=4,
        unique_by=lambda one: one.seed,
    )
)
def test_results_survive_json(records: list[EpisodeRecord]) -> None:
    kept = EvalResults(records=tuple(records), about={"model": "a"})
    assert EvalResults.from_json(kept.to_json()) == kept


ONE = '{"seed": 1, "ending": "finished", "outcome": 1, "turns": 2, "judged": 0, "valid": 0, "tokens": 3}'


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"records": [{"seed": 1}], "about": {}}',
        '{"records": []}',
        '{"records": [], "about": 5}',
        '{"records": [ONE, ONE], "about": {}}'.replace("ONE", ONE),
        '{"records": [ONE], "about": {}}'.replace("ONE", ONE.replace("2", "[]")),
        '{"records": [ONE], "about": {}}'.replace("ONE", ONE.replace('"outcome": 1', '"outcome": "1"')),
    ],
)
def test_a_text_that_holds_no_results_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be written by EvalResults\.to_json"):
        EvalResults.from_json(text)


# Two policies


def test_the_difference_is_taken_task_by_task() -> None:
    a, b = results(1.0, 1.0, 0.0, 1.0), results(0.0, 1.0, 0.0, 0.0)
    backwards = EvalResults(records=tuple(reversed(b.records)))
    assert difference(a, b, "success").mean == 0.5
    assert difference(a, backwards, "success") == difference(a, b, "success")
    assert difference(b, a, "success").mean == -0.5
    assert difference(a, a, "success").mean == 0.0


def test_policies_on_different_tasks_are_not_compared() -> None:
    with pytest.raises(ValueError, match="compared on the same tasks"):
        difference(results(1.0, 0.0), results(1.0, 0.0, 1.0), "success")


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        ({"setup": {"task": "tic_tac_toe"}}, "a different task;"),
        ({"setup": {"task": "sudoku", "task_options": {"blanks": 9}}}, "a different options;"),
        ({"setup": {"task": "sudoku"}, "dataset": "a", "split": "test"}, "a different dataset and split;"),
    ],
)
def test_policies_are_not_compared_on_equal_seeds_of_different_tasks(other: Any, differs: str) -> None:
    def played(about: Any) -> EvalResults:
        return EvalResults(records=results(1.0, 0.0).records, about=about)

    first = played({"setup": {"task": "sudoku", "task_options": None}, "model": "a"})
    assert difference(first, played({"setup": {"task": "sudoku", "task_options": {}}}), "success").mean == 0.0
    with pytest.raises(ValueError, match=f"got 2 and 2 episodes with {differs}"):
        difference(first, played(other), "success")


# Playing


class Alive:
    """A player that always gives the same reply and counts the decisions that are held each time."""

    def __init__(self, chat: Chat) -> None:
        self.ids, self.counts = chat.tokenizer(tag("fill 1 1 1"))["input_ids"], list[int]()

    def __call__(self, contexts: Sequence[Sequence[int]]) -> list[Generation]:
        gc.collect()
        self.counts.append(sum(type(one) is Decision for one in gc.get_objects()))
        return [Generation(ids=self.ids) for _ in contexts]


def test_an_evaluation_holds_the_episodes_of_one_part_and_has_the_same_results(
    chat: Chat, sudoku: EnvironmentInteraction
) -> None:
    starts, oracle, saved = starts_of([{}] * 24, "held_out"), default_oracle(sudoku.environment), list[Any]()
    alone, at_once = Alive(chat), Alive(chat)
    in_parts = evaluate_policy(alone, chat, sudoku, starts, oracle, max_concurrent=1)
    whole = evaluate_policy(at_once, chat, sudoku, starts, oracle, on_episodes=lambda *both: saved.extend(both))
    assert in_parts == whole
    assert max(alone.counts) - min(alone.counts) < 12  # one of each of 24 tasks, and 4 tasks in a part
    assert [one.start for one in saved[1]] == list(range(24))
    evaluate_policy(alone, chat, sudoku, starts, max_concurrent=1, on_episodes=lambda *both: saved.extend(both))
    assert saved[2] == starts
    assert [one.start for one in saved[3]] == list(range(24))


def test_held_out_tasks_are_not_training_tasks() -> None:
    assert [start.seed for start in starts_of([{}] * 3, "held_out", 5)] == [
        SEEDS_PER_SPLIT + index for index in (5, 6, 7)
    ]


def test_a_policy_that_follows_the_oracle_solves_every_task(chat: Chat, sudoku: EnvironmentInteraction) -> None:
    oracle = default_oracle(sudoku.environment)
    assert oracle is not None
    worlds = {
        chat.context(sudoku.pending(state)[0].messages): state.world
        for start in starts_of([{}] * 6, "held_out")
        for state in _positions(sudoku, oracle, start)
    }

    def best(contexts: Sequence[Sequence[int]]) -> list[Generation]:
        actions = [min(oracle.valid_actions(worlds[tuple(context)])) for context in contexts]
        return [Generation(ids=chat.tokenizer(tag(action))["input_ids"]) for action in actions]

    replies = PULSE.replies
    played = evaluate_policy(
        best, chat, sudoku, starts_of([{}] * 6, "held_out"), oracle, max_concurrent=4, about={"who": "best"}
    )
    summary = played.summary()
    for name in ("success", "completion", "reward", "oracle/valid", "endings/finished"):
        assert summary[name].mean == 1.0
    assert summary["turns"].mean == 4.0
    assert PULSE.replies - replies == 6 * 4
    assert played.about == {"who": "best"}


def _positions(game, oracle, start):
    """Returns every state of a player that takes the first valid action."""
    state = game.start(start.task, start.seed)
    while game.pending(state):
        yield state
        state = game.advance(state, [tag(min(oracle.valid_actions(state.world)))])


def test_all_policies_are_evaluated_on_the_same_tasks(
    chat: Chat, sudoku: EnvironmentInteraction, micro_policy: Path
) -> None:
    generate = sampler(AutoModelForCausalLM.from_pretrained(micro_policy), chat.tokenizer, max_new_tokens=12)
    starts, oracle = starts_of([{}] * 16, "held_out"), default_oracle(sudoku.environment)
    first, second = (evaluate_policy(generate, chat, sudoku, starts, oracle) for _ in range(2))
    assert [one.seed for one in first.records] == [one.seed for one in second.records]
    assert first.records != second.records  # other replies to the same tasks
    assert all(one.judged == one.turns > 0 for one in first.records)
    assert json.loads(first.to_json())["about"] == {}


class Unkind:
    """An oracle that fails on some tasks."""

    def __init__(self, *unknown: int) -> None:
        self.unknown = unknown

    def score(self, state, action) -> float:
        raise LookupError("no such grid") if state.seed in self.unknown else ValueError("not a number")


def test_an_evaluation_in_which_all_episodes_fail_is_an_error(
    chat: Chat, sudoku: EnvironmentInteraction, caplog: pytest.LogCaptureFixture
) -> None:
    def guess(contexts: Sequence[Sequence[int]]) -> list[Generation]:
        return [Generation(ids=chat.tokenizer(tag("fill 1 1 1"))["input_ids"]) for _ in contexts]

    starts = starts_of([{}] * 3, "held_out")
    with pytest.raises(EveryEpisodeFailedError, match=r"some episode of an evaluation must .* got 3 of 3") as stopped:
        evaluate_policy(guess, chat, sudoku, starts, Unkind(starts[0].seed))
    assert isinstance(stopped.value.__cause__, LookupError)
    assert caplog.text.count("LookupError: no such grid") == 1
    assert caplog.text.count("ValueError: not a number") == 1


def test_an_evaluation_with_contexts_too_long_for_a_reply_is_an_error(
    chat: Chat, sudoku: EnvironmentInteraction
) -> None:
    with pytest.raises(ValueError, match="got 2 tasks, all above 5 tokens"):
        evaluate_policy(lambda contexts: [], chat, sudoku, starts_of([{}] * 2, "held_out"), max_context_tokens=5)


def test_no_task_is_counted_twice(chat: Chat, sudoku: EnvironmentInteraction) -> None:
    with pytest.raises(ValueError, match="got 3 more than once"):
        evaluate_policy(
            lambda contexts: [], chat, sudoku, [RolloutRequest(seed=3), RolloutRequest(seed=4), RolloutRequest(seed=3)]
        )
    with pytest.raises(ValueError, match="got one without"):
        evaluate_policy(lambda contexts: [], chat, sudoku, [RolloutRequest(seed=None)])
