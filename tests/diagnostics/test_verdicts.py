"""Trust in verdicts from numbers that are worked out by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from hf_credit.diagnostics.diagnosis_report import numbers, verdict_tables, write_verdicts
from hf_credit.diagnostics.verdicts import LINE, VerdictDiagnosis, trust


def found(*states) -> VerdictDiagnosis:
    """The trust in states of tasks of their own, whose replays have no noise."""
    return trust(
        [([[one] * 3 for one in worth], scores, draws, task) for task, (worth, scores, draws) in enumerate(states)]
    )


def test_errors_weigh_by_what_is_at_stake_and_by_the_draws_of_the_policy() -> None:
    # The worst move is drawn 1 of 4 times where 1 is at stake, and 3 of 4 times where .5 is: (.25 + .375) / 1.5.
    one = found(([1.0, 0.0], [1.0, 0.0], [3, 1]), ([0.5, 0.0], [0.0, 0.0], [1, 3]))
    assert one.own_error.mean == pytest.approx(0.625 / 1.5)
    # The right move of the second is judged wrong, with .125 of the stakes.
    assert one.error.mean == pytest.approx(0.125 / 1.5)
    # One pair in order, and one of half its weight tied: (1 + .25) / 1.5.
    assert (one.accuracy.mean, one.tied) == (pytest.approx(1.25 / 1.5), 0.5)
    # By task .96 * .25 - 0, and .96 * .375 - .125.
    assert one.margin.mean == pytest.approx((0.24 + 0.235) / 2)
    # Of score 0: the worst move of the first with 0 of .25, and those of the second with .125 of .5.
    (low, right, moves), (high, sure, _) = one.reliability
    assert (low, right.mean, moves) == (0.0, pytest.approx(0.125 / 0.75), 3)
    assert (high, sure.mean) == (1.0, 1.0)


def test_a_move_between_the_best_and_the_worst_is_partly_wrong() -> None:
    one = found(([1.0, 0.75, 0.0], [1.0, 1.0, 1.0], [1, 1, 2]))
    assert one.own_error.mean != one.own_error.mean  # a single task has no interval
    two = found(*[([1.0, 0.75, 0.0], [1.0, 1.0, 1.0], [1, 1, 2])] * 2)
    assert two.own_error.mean == two.error.mean == pytest.approx((0.25 + 2) / 4)
    assert (two.accuracy.mean, two.tied) == (0.5, 1.0)
    assert two.pays is False


def test_what_chooses_the_better_move_also_measures_it_or_does_not() -> None:
    # The second state: the first move is .33 better, but each single replay is not, by what the two others choose.
    sure, noise = ([[1, 1, 0], [0, 0, 0]], [1.0, 0.0], [1, 1]), ([[1, 0, 0], [0, 0, 0]], [0.0, 1.0], [1, 1])
    one = trust([(*state, task) for task in range(2) for state in (sure, noise)])
    # In order by 2/3, and not by 1/3, of 1; or of 2/3, where the difference of the second state is 0.
    same, others = (1 + 1 / 3) / 2, (2 / 3 + 1 / 3) / 2 / (2 / 3)
    assert one.accuracy.mean == pytest.approx((same + others) / 2)
    # Half of the moves are the worst, by either.
    assert one.own_error.mean == pytest.approx(0.5)


def test_rare_errors_that_few_tasks_do_not_show_are_not_excluded() -> None:
    states = [([1.0, 0.0], [1.0, 0.0], [4, 1])] * 16
    one = found(*states)
    assert one.error.mean == 0.0
    assert one.error.high == pytest.approx(1.96**2 / (16 + 1.96**2), abs=1e-3)  # Wilson's of 0 of 16
    assert found(*states, *states).error.high < one.error.high


def test_equal_outcomes_tell_nothing() -> None:
    one = found(*[([0.0, 0.0], [1.0, 0.0], [1, 1])] * 8)
    assert math.isnan(one.error.mean)
    assert (one.error.low, one.error.high, one.pays) == (0.0, 1.0, None)
    assert "replays do not tell whether verdicts pay" in one.note


def test_scores_between_0_and_1_are_shown_by_fifths() -> None:
    scores = [0.05, 0.15, 0.45, 0.5, 0.95, 1.0]
    one = found(*[([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], scores, [1] * 6)] * 3)
    assert [(round(score, 3), moves) for score, _, moves in one.reliability] == [(0.1, 6), (0.475, 6), (0.975, 6)]
    assert [round(right.mean, 3) for _, right, _ in one.reliability] == [0.1, 0.5, 0.9]
    assert (one.accuracy.mean, one.agreement.mean) == (pytest.approx(1), pytest.approx(1))


def test_a_folder_has_the_answer_the_tables_the_curve_and_the_numbers(tmp_path) -> None:
    one = replace(found(*[([1.0, 0.0], [1.0, 0.0], [3, 1])] * 8), name="p")
    path = write_verdicts([one], tmp_path)
    text = path.read_text(encoding="utf-8")
    assert "verdicts pay: the oracle errs 0 times as often as the policy, and the line is at 0.96 [0.83, 1.2]." in text
    assert "![Share of right moves by score](verdicts.png)" in text
    assert f"Margin: {LINE.mean:g} times" in text
    assert (tmp_path / "verdicts.png").stat().st_size > 1000
    header, rows = verdict_tables([one])["Trust"]
    assert dict(zip(header, rows[0], strict=True))["verdicts"] == "pay"
    (values,) = json.loads((tmp_path / "verdicts.json").read_text(encoding="utf-8"))
    assert values == json.loads(json.dumps(numbers([one])[0], allow_nan=False))
    assert values["reliability"][1][0] == 1.0
