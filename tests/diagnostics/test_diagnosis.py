from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from small_buckets import action

from hf_credit.diagnostics import Failure, FidelityStatus, influence
from hf_credit.diagnostics.buckets import Action, Bucket
from hf_credit.diagnostics.diagnosis import ALL, diagnose
from hf_credit.evaluation.statistics import mean_with_interval
from hf_credit.methods import make
from hf_credit.rollouts import Ledger

BY_RETURNS = ("replay_loo", "magrpo", "outcome_reward")


def bucket(event="plan", key=0, responses=None, exact=None, verdicts=(None, None), returns=((1, 1), (0, 0))) -> Bucket:
    responses = responses or ((None, None), (None, None))
    return Bucket(
        event=event,
        role=event,
        key=key,
        context="context",
        task=0,
        turn=0,
        candidates=tuple(
            action(str(place), own, event, verdict=verdict, responses=texts, exact=None if exact is None else own[0])
            for place, (own, texts, verdict) in enumerate(zip(returns, responses, verdicts, strict=True))
        ),
        value_only=(Action(text="v", returns=(0.0, 0.5)),),
        exact=exact,
    )


def test_results_are_by_event_type_after_all_together() -> None:
    found = diagnose("p", [bucket("plan"), bucket("act", 1), bucket("plan", 2)], cost=Ledger(scoring_events=3))
    assert [(one.event, one.buckets) for one in found.events] == [(ALL, 3), ("plan", 2), ("act", 1)]
    assert [one.event for one in diagnose("p", [bucket("act")]).events] == ["act"]
    assert found.cost.scoring_events == 3
    assert found.events[0].failures == {Failure.NONE: 3}
    assert found.events[0].mean_return.mean == pytest.approx(0.25)
    assert found.events[0].candidates == 6


def test_credit_is_compared_with_every_known_target() -> None:
    (plain,) = diagnose("p", [bucket()]).events
    assert {one.method: set(one.fidelity) for one in plain.credits} == {
        name: {"shared", "apart"} for name in BY_RETURNS
    }
    (known,) = diagnose("p", [bucket(exact=0.25, verdicts=(1.0, 0.0))], credit_replays=2).events
    assert {one.method: set(one.fidelity) for one in known.credits} == {
        name: {"shared", "exact", "exact_first"} for name in (*BY_RETURNS, "verifiable_process")
    }
    for one in known.credits:
        assert [interval.mean for interval in one.fidelity.values()] == pytest.approx([1, 1, 1])
        assert set(one.status.values()) == {FidelityStatus.OK}


def test_the_largest_error_of_exact_values_is_kept() -> None:
    buckets = [replace(bucket(key=key, exact=0.25), exact_error=error) for key, error in enumerate((0.01, 0.04, None))]
    assert diagnose("p", buckets).events[0].exact_error == 0.04
    assert math.isnan(diagnose("p", [bucket()]).events[0].exact_error)


def test_an_undefined_fidelity_is_nan_with_its_reason() -> None:
    (found,) = diagnose("p", [bucket(returns=((1, 1), (1, 1)))]).events
    c3 = next(one for one in found.credits if one.method == "replay_loo")
    assert math.isnan(c3.fidelity["shared"].mean)
    assert c3.status["shared"] == FidelityStatus.CONSTANT_CREDITS
    assert c3.variance.within == 0


def test_influence_is_over_buckets_with_a_response() -> None:
    answered = bucket("plan", responses=(("a", "a"), ("b", "b")))
    found = diagnose("p", [answered, bucket("act", 1)])
    by_event = {one.event: one for one in found.events}
    truth = influence([[("a", "a"), ("b", "b")]]).mean
    assert by_event["plan"].influence_interval.mean == by_event[ALL].influence_interval.mean == truth
    assert by_event["plan"].chance < truth
    assert by_event["act"].influence is None
    assert math.isnan(by_event["act"].influence_interval.mean)


def test_buckets_of_one_candidate_and_failed_replays_are_counted() -> None:
    alone = Bucket(**{**vars(bucket()), "candidates": (action("0", (1.0,), "plan", failed=3),), "key": 5})
    (found,) = diagnose("p", [bucket(), alone]).events
    assert (found.alone, found.failed_replays) == (1, 3)
    assert found.failures == {Failure.NONE: 1, Failure.UNKNOWN: 1}
    assert {one.variance.alone for one in found.credits} == {1}


def test_buckets_in_which_everything_failed_can_be_diagnosed() -> None:
    failed = Bucket(**{**vars(bucket()), "candidates": (Action(text="0", failed=1),), "value_only": ()})
    (found,) = diagnose("p", [failed]).events
    assert found.credits == ()
    assert math.isnan(found.mean_return.mean)


def test_no_bucket_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 bucket, got none"):
        diagnose("p", [])


def test_a_mean_of_one_value_has_no_interval() -> None:
    assert math.isnan(mean_with_interval([]).mean)
    one = mean_with_interval([2.0])
    assert one.mean == 2
    assert math.isnan(one.low)
    two = mean_with_interval([1.0, 3.0])
    # A standard error of 1, and t(0.975; 1) = 12.7062.
    assert (two.low, two.mean, two.high) == pytest.approx((2 - 12.7062, 2, 2 + 12.7062), rel=1e-4)


def test_a_method_that_cannot_credit_buckets_is_reported_and_the_others_are_measured() -> None:
    found = diagnose("p", [bucket(), bucket("act", 1)], {name: make(name) for name in ("mc_process_reward", "magrpo")})
    assert list(found.not_measured) == ["mc_process_reward"]
    assert (
        "only its own collector plays; diagnose it with --protocol training" in found.not_measured["mc_process_reward"]
    )
    assert {credit.method for event in found.events for credit in event.credits} == {"magrpo"}


def test_an_estimator_of_a_user_that_raises_is_shown_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    def broken(*given: Any) -> Any:
        return int("x")

    own = replace(make("magrpo"), name="own", estimator=broken)
    found = diagnose("p", [bucket()], {"own": own, "magrpo": make("magrpo"), "alone": make("mc_process_reward")})
    assert list(found.not_measured) == ["own", "alone"]
    assert 'return int("x")' in caplog.text
    assert "alone" not in caplog.text  # a refusal, which the report has
