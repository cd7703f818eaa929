from __future__ import annotations

import math

import pytest

from hf_credit.collaborations.exact_values import exact_values
from hf_credit.collaborations.relay import relay, relay_task
from hf_credit.diagnostics import FidelityStatus
from hf_credit.diagnostics.bucket_credit import (
    ESTIMATORS,
    assigned_credit,
    bucket_fidelity,
    bucket_fidelity_interval,
    bucket_targets,
    estimators_of,
    with_exact_values,
)
from hf_credit.diagnostics.buckets import Action, Bucket
from hf_credit.policies.micro import MicroConfig, build_model, tokenizer_of
from hf_credit.rollouts import Chat


def bucket(*returns, value_only=(), verdicts=None, critic=None, turn=0, **others) -> Bucket:
    verdicts = verdicts or [None] * len(returns)
    return Bucket(
        event="agent",
        role="agent",
        key=turn,
        context="",
        task=0,
        turn=turn,
        candidates=tuple(
            Action(text=str(place), returns=tuple(own), responses=(None,) * len(own), verdict=verdict)
            for place, (own, verdict) in enumerate(zip(returns, verdicts, strict=True))
        ),
        value_only=tuple(Action(text="v", returns=tuple(own)) for own in value_only),
        critic=critic,
        **others,
    )


ONE = bucket([1, 1], [0, 0], [1, 0], value_only=([0, 1], [0, 0]), critic=0.75)
TWO = bucket([0.5], [0.5, 0.5], value_only=([1],), critic=0.5, turn=1)


def test_c3_s_credit_weighs_the_others_by_their_replays() -> None:
    # 1 - 1/4; 0 - 3/4; 1/2 - 1/2. Equal returns have credit 0.
    assert assigned_credit([ONE, TWO], "C3") == [pytest.approx([0.75, -0.75, 0]), [0, 0]]
    # Of one replay for 1.0 and three for 0: the third's baseline is (1 + 0 * 3) / 4.
    uneven = bucket([1], [0, 0, 0], [1, 1])
    assert assigned_credit([uneven], "C3")[0][2] == pytest.approx(1 - 1 / 4)


def test_magrpo_s_credit_counts_a_candidate_in_its_own_baseline() -> None:
    assert assigned_credit([ONE], "MAGRPO") == [pytest.approx([0.5, -0.5, 0])]


def test_mappo_s_credit_is_against_the_critic() -> None:
    assert assigned_credit([ONE, TWO], "MAPPO") == [pytest.approx([0.25, -0.75, -0.25]), [0, 0]]


def test_outcome_credit_is_normalised_over_all_buckets() -> None:
    # Returns 1 0 .5 .5 .5: mean 1/2, population variance (1/4 + 1/4) / 5 = 1/10.
    deviation = 0.5 / 0.1**0.5
    assert assigned_credit([ONE, TWO], "outcome") == [pytest.approx([deviation, -deviation, 0]), [0, 0]]


def test_vpr_s_credit_is_normalised_over_all_candidates_of_a_turn() -> None:
    # Turn 0 has verdicts 1 0 1 and 1: mean 3/4, variance 3/16. Turn 1 has two, fewer than four, so it takes the mean
    # of all six, 5/6, and their variance 5/36.
    first = bucket([0], [0], [0], verdicts=[1, 0, 1])
    second = bucket([0], verdicts=[1])
    third = bucket([0], [0], verdicts=[1, 1], turn=1)
    spread, all_spread = (3 / 16) ** 0.5, (5 / 36) ** 0.5
    found = assigned_credit([first, second, third], "VPR")
    assert found[0] == pytest.approx([0.25 / spread, -0.75 / spread, 0.25 / spread])
    assert found[1] == pytest.approx([0.25 / spread])
    assert found[2] == pytest.approx([1 / 6 / all_spread] * 2)


def test_what_nobody_judged_has_no_credit() -> None:
    assert all(map(math.isnan, assigned_credit([bucket([1], [0])], "MAPPO")[0]))
    mixed = bucket([1], [0], [0], [0], [0], verdicts=[1, None, 0, 0, 0])
    found = assigned_credit([mixed], "VPR")[0]
    assert [math.isnan(credit) for credit in found] == [False, True, False, False, False]
    assert estimators_of([bucket([1], [0])]) == ["C3", "MAGRPO", "outcome"]
    assert estimators_of([ONE, mixed]) == list(ESTIMATORS)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_buckets_and_buckets_without_returns_have_no_credit(name) -> None:
    assert assigned_credit([], name) == []
    assert assigned_credit([bucket([], [])], name) == [[]]
    assert bucket_fidelity([bucket([], [])], name).status == FidelityStatus.TOO_FEW


@pytest.mark.parametrize("name", [name for name in ESTIMATORS if name != "VPR"])
def test_candidates_that_failed_are_passed_over(name) -> None:
    plain, gap = bucket([1], [0], critic=0.5), bucket([1], [], [0], critic=0.5)
    assert assigned_credit([gap], name) == assigned_credit([plain], name)


def test_targets_are_of_value_only_actions() -> None:
    assert bucket_targets([ONE, TWO]) == [pytest.approx([0.75, -0.25, 0.25]), [-0.5, -0.5]]
    assert all(map(math.isnan, bucket_targets([bucket([1], [0])])[0]))


def test_credit_and_target_can_be_of_different_replays() -> None:
    assert assigned_credit([ONE], "C3", replays=1) == [pytest.approx([0.5, -1, 0.5])]
    assert bucket_targets([ONE], skip=1) == [pytest.approx([0.75, -0.25, -0.25])]
    assert all(map(math.isnan, bucket_targets([ONE], skip=2)[0]))
    # Credits 0.5 -1 0.5 against targets 0.75 -0.25 -0.25: ranks 2.5 1 2.5 and 3 1.5 1.5, whose correlation is 1/2.
    assert bucket_fidelity([ONE], "C3", replays=1).rho == pytest.approx(0.5)


def test_with_shared_returns_every_common_baseline_ranks_a_bucket_rightly() -> None:
    for name in ("C3", "MAGRPO", "MAPPO", "outcome"):
        assert bucket_fidelity([ONE], name).rho == pytest.approx(1)


def test_without_value_only_actions_there_is_no_estimated_fidelity() -> None:
    found = bucket_fidelity([bucket([1], [0])], "C3")
    assert math.isnan(found.rho)
    assert found.status == FidelityStatus.TOO_FEW


def test_exact_targets_are_those_of_enumeration() -> None:
    known = bucket([1], [0], exact=0.5)
    values = [Action(text="a", returns=(1.0,), exact=0.75), Action(text="b", returns=(0.0,), exact=0.625)]
    known = Bucket(**{**vars(known), "candidates": (*values, Action(text="c", returns=(1.0,)))})
    assert bucket_targets([known], "exact")[0][:2] == pytest.approx([0.25, 0.125])
    assert math.isnan(bucket_targets([known], "exact")[0][2])
    found = bucket_fidelity([known], "C3", "exact")
    assert (found.rho, found.candidates) == (pytest.approx(1), 2)  # the third is left out
    assert math.isnan(bucket_fidelity([bucket([1], [0])], "C3", "exact").rho)


def test_exact_values_are_put_beside_the_candidates() -> None:
    chat = Chat(tokenizer_of(["0", "1", " ", "tell secret answer mod add Problem: Context: \n"]))
    model = build_model(chat.tokenizer, MicroConfig(hidden_size=8, layers=1, heads=2))
    state = relay(2).start(relay_task(0, 1, 2), 0)
    sampled = Bucket(**{**vars(bucket([1], [0], value_only=([1],))), "state": state})
    (found,) = with_exact_values([sampled], relay(2), chat, model, max_new_tokens=1)
    (truth,) = exact_values(relay(2), chat, model, [state], max_new_tokens=1)
    assert found.exact == truth.value
    assert [action.exact for action in found.candidates] == [truth.values["0"], truth.values["1"]]
    assert found.value_only[0].exact is None  # a reply that nobody can give
    assert with_exact_values([], relay(2), chat, model, max_new_tokens=1) == []


def test_exact_values_of_buckets_from_a_file_are_refused() -> None:
    with pytest.raises(ValueError, match="need the replay state of a bucket, got one without"):
        with_exact_values([ONE], relay(2), None, None, max_new_tokens=1)


def test_an_estimator_of_one_s_own_is_measured_like_the_others() -> None:
    def length(buckets):
        return [[float(len(action.returns)) for action in one.replayed] for one in buckets]

    assert assigned_credit([ONE, TWO], length) == [[2, 2, 2], [1, 2]]
    assert bucket_fidelity([TWO, ONE], length).candidates == 5


def test_the_interval_is_over_buckets() -> None:
    found = bucket_fidelity_interval([ONE, TWO, ONE], "C3")
    assert found.n == 3
    assert found.mean == bucket_fidelity([ONE, TWO, ONE], "C3").rho


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="an estimator must be one of C3, MAGRPO, MAPPO, VPR, outcome, got 'PPO'"):
        assigned_credit([ONE], "PPO")
    with pytest.raises(ValueError, match="at least 1 replay of each action, got 0"):
        assigned_credit([ONE], "C3", replays=0)
    with pytest.raises(ValueError, match="'estimated' or 'exact' and skip >= 0, got 'true' and 0"):
        bucket_targets([ONE], "true")
