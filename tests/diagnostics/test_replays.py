"""The possible gain of replays, from numbers and from episodes where it is known in closed form."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from hf_credit.diagnostics import replay_gain
from hf_credit.diagnostics.diagnosis_report import numbers, replay_tables, write_replays
from hf_credit.diagnostics.policy import Subject
from hf_credit.diagnostics.replay_walks import ReplayDiagnosis, diagnose_replays, episodes_gain
from hf_credit.methods import make
from hf_credit.rollouts import Decision, Ending, Engine, Episode, RolloutRequest
from hf_credit_bench.play import TableChat, TableSampler
from hf_credit_bench.problems import Late
from hf_credit_bench.table import TablePolicy


def test_two_blocks_by_hand():
    # b = delta^2 times the spread so far: (1, 1), (0, 0) and (9 * 2, 0), in the mean (1, 0, 9); tokens 1, 1, 1.
    gain = replay_gain([[1, 0, 3], [-1, 0, 0]], [[1, 0.5, 0.5], [1, 0.5, 0.5]], [[1, 1, 1], [1, 1, 1]], most=2)
    # Blocks of 1 in two steps and 9 in one: (sqrt(1 * 2) + sqrt(9 * 1))^2 / (10 * 3).
    assert gain.ratio.mean == pytest.approx((math.sqrt(2) + 3) ** 2 / 30)
    assert [(one.first, one.last) for one in gain.blocks] == [(1, 2), (3, 3)]
    assert gain.blocks[1].branches == pytest.approx(math.sqrt(18))
    assert (gain.blocks[1].noise, gain.blocks[1].tokens) == (pytest.approx(0.9), pytest.approx(1 / 3))
    assert gain.branches == (1.0, 1.0, 2.0)
    assert gain.capped == pytest.approx((1 + 9 / 2) * (2 + 2) / 30)


@pytest.mark.parametrize("steps", [2, 5])
def test_all_noise_at_the_last_step(steps):
    deltas = [[0.0] * (steps - 1) + [sign] for sign in (1.0, -1.0)]
    gain = replay_gain(deltas, [[0.5] * steps] * 2, [[3.0] * steps] * 2, most=2)
    assert gain.ratio.mean == pytest.approx(1 / steps)
    assert gain.capped == pytest.approx((steps + 1) / (2 * steps))
    assert gain.branches == (*[1.0] * (steps - 1), 2.0)


def test_decreasing_noise_leaves_no_gain_in_any_resample():
    gain = replay_gain([[2, 0]] * 6, [[1, 1]] * 6, [[1, 1]] * 6)
    assert (gain.ratio.mean, gain.ratio.low, gain.ratio.high, gain.capped) == (1, 1, 1, 1)
    assert gain.branches == (1.0, 1.0)


def test_episodes_of_unequal_length_and_the_interval():
    gain = replay_gain(
        [[1.0], [0.0, 2.0], [0.0, -1.0]], [[1.0], [1.0, 1.0], [1.0, 1.0]], [[1.0], [1.0, 1.0], [1.0, 1.0]]
    )
    assert gain.ratio.low <= gain.ratio.mean <= gain.ratio.high <= 1
    assert gain.ratio.n == 3


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"deltas": [[1.0]]}, "at least 2 episodes"),
        ({"tokens": [[1.0], [1.0, 1.0]]}, "one number per step"),
        ({"most": 0.5}, "most must be"),
    ],
)
def test_invalid_arguments_are_refused(changed, sentence):
    given = {"deltas": [[1.0], [1.0]], "spreads": [[1.0], [1.0]], "tokens": [[1.0], [1.0]], **changed}
    most = given.pop("most", 2.0)
    with pytest.raises(ValueError, match=sentence):
        replay_gain(given["deltas"], given["spreads"], given["tokens"], most=most)


def decision(context, observed=False, p=0.5):
    return Decision(
        role="agent",
        state=None,
        context_ids=(context,),
        action_ids=(9,),
        logprobs=(math.log(p),),
        action_text="",
        observed=observed,
    )


def walk(outcome, *contexts):
    return Episode(decisions=tuple(map(decision, contexts)), outcome=outcome, ending=Ending.FINISHED)


def test_the_critic_predicts_values_at_contexts():
    # V = .5, .5: all noise at the second step, .25 each, with a spread of 1 there.
    episodes = [walk(1.0, 1, 2), walk(0.0, 1, 2)]
    gain, explained = episodes_gain(episodes, lambda inputs: [tuple(0.5 for _ in one.at) for one in inputs])
    assert gain.ratio.mean == pytest.approx(0.5)
    assert explained == pytest.approx(0)


def test_without_a_critic_values_are_means_at_the_same_context():
    # The first decision settles all, and context 2 or 3 tells: no noise is left after it.
    episodes = [walk(1.0, 1, 2) for _ in range(20)] + [walk(0.0, 1, 3) for _ in range(20)]
    gain, explained = episodes_gain(episodes)
    assert gain.ratio.mean == pytest.approx(1)
    assert explained == pytest.approx(0.5, abs=0.05)  # nothing at the start, all after it


def test_contexts_that_do_not_recur_make_noise_seem_late():
    episodes = [walk(float(place % 2), 1, 100 + place) for place in range(40)]
    gain, _ = episodes_gain(episodes)
    assert gain.ratio.mean == pytest.approx(0.5, abs=0.01)


def test_failed_episodes_are_omitted_and_observed_steps_count_to_the_previous_step():
    failed = replace(walk(9.0, 1), ending=Ending.ERROR)
    observed = replace(walk(1.0), decisions=(decision(1), decision(5, observed=True), decision(2)))
    plain = [walk(1.0, 1, 2), walk(0.0, 1, 2)]
    with_failed, _ = episodes_gain([*plain, failed])
    assert with_failed == episodes_gain(plain)[0]
    watched, _ = episodes_gain([observed, observed])
    assert len(watched.branches) == 2


def test_unknown_log_probabilities_are_refused():
    episodes = [replace(walk(1.0), decisions=(replace(decision(1), logprobs=None),))] * 2
    with pytest.raises(ValueError, match="needs the log-probabilities"):
        episodes_gain(episodes)


@pytest.fixture(scope="module")
def late():
    """The possible gain of replays in Late, where all noise arises at the last of four decisions."""
    problem = Late(horizon=4)
    engine = Engine(problem, TableChat(problem), TableSampler(TablePolicy(problem)))
    subject = Subject(name="late", engine=engine, trained=make("rloo"))
    return diagnose_replays(subject, [RolloutRequest(task={"seed": seed}) for seed in range(200)])


def test_each_task_is_played_once_without_replays(late: ReplayDiagnosis):
    assert late.cost.completion_tokens == 800
    assert late.critic == "means"
    assert late.gain.ratio.mean == pytest.approx(1 / 4, abs=0.02)
    assert late.gain.capped == pytest.approx(5 / 8, abs=0.02)


def test_values_that_explain_little_cause_a_warning(late: ReplayDiagnosis):
    assert replace(late, explained=0.2).warning == ""
    assert "rho is a lower bound" in replace(late, explained=0.19).warning
    assert "all returns are equal" in replace(late, explained=math.nan).warning


def test_replays_are_written_as_markdown_and_json(late: ReplayDiagnosis, tmp_path):
    path = write_replays([late], tmp_path)
    assert "## Where to branch" in path.read_text(encoding="utf-8")
    assert [len(row) for row in replay_tables([late])["Gain of replays"][1]] == [7]
    (values,) = numbers([late])
    assert values["gain"]["branches"][-1] == pytest.approx(2, abs=0.1)
    assert path.with_suffix(".json").exists()
