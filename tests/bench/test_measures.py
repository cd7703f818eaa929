"""Measures of methods: exact, by enumeration of all draws, and by sampling."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hf_credit import methods
from hf_credit.collectors import Single
from hf_credit.methods import Credit, Method
from hf_credit.options import options_of
from hf_credit_bench import PROBLEMS, area, enumerated, learning, make_method, make_problem, score
from hf_credit_bench.cells import SETTINGS
from hf_credit_bench.measures import _measured
from hf_credit_bench.play import Player, Update, bound
from hf_credit_bench.problems import Chain, Late, Paid, Relay, Stop, Trap, Vote
from hf_credit_bench.table import TablePolicy
from hf_credit_bench.truth import Truth


def made(name: str, **options: Any) -> Method:
    """Returns a method with those settings of the bench that it has."""
    known = options_of(methods.find(name))
    return make_method(name, **{**{key: value for key, value in SETTINGS.items() if key in known}, **options})


def test_the_exact_advantage_costs_what_was_computed_by_hand() -> None:
    # The sum over depths of a(1 - pi) is 1/16 of 1/2, 3/2, 7/2 and 15/2, with probabilities 1/2, 1/4, 1/8 and 1/8.
    measured = enumerated("exact_advantage", Chain(length=4))
    assert measured.along == pytest.approx(5.25)
    assert measured.trace == pytest.approx(11)


def test_returns_less_exact_values_cost_what_was_computed_by_hand() -> None:
    measured = enumerated("ppo", Chain(length=4))
    assert (measured.along, measured.trace) == (pytest.approx(33.75), pytest.approx(45))


UNBIASED = [
    ("exact_advantage", {}, Chain(length=3)),
    ("exact_advantage", {}, Vote(agents=2, lazy=1)),
    ("ppo", {"group_size": 1}, Chain(length=3)),
    ("ppo", {"group_size": 1}, Trap(horizon=4, needed=2, absorbs=0.5)),
    ("ppo", {"group_size": 1, "lam": 0.5}, Paid(horizon=3)),
    ("mappo", {"group_size": 2}, Relay(depth=2)),
    ("rloo", {"group_size": 2}, Chain(length=3)),
    ("rloo", {"group_size": 3}, Late(horizon=2)),
    ("magrpo", {"group_size": 2}, Vote(agents=2, lazy=1)),
    ("all_turns_baseline", {"group_size": 2}, Chain(length=2)),
    ("vineppo", {"group_size": 1}, Chain(length=2)),
    ("vineppo", {"group_size": 1}, Late(horizon=2)),
    ("replay_loo", {"alternatives": (2, 2), "budget": 4}, Chain(length=2)),
    ("replay_loo", {"alternatives": (2, 2), "budget": 4}, Late(horizon=2)),  # whose subtrees meet one world
]


@pytest.mark.parametrize(("name", "options", "problem"), UNBIASED, ids=lambda one: getattr(one, "name", str(one)))
def test_methods_that_claim_it_point_along_the_true_gradient(name: str, options: Any, problem: Any) -> None:
    method = make_method(name) if name == "exact_advantage" else made(name, **options)
    measured = enumerated(method, problem)
    assert measured.angle == pytest.approx(0, abs=1e-5)
    if name != "magrpo":  # it compares with a mean that the episode itself is part of
        assert measured.scale == pytest.approx(1)


@pytest.mark.parametrize(("depth", "exact", "returns"), [(2, 29.14, 26.90), (3, 75.63, 71.98)])
def test_where_the_policy_does_not_see_the_state_returns_can_cost_less_than_the_exact_advantage(
    depth: int, exact: float, returns: float
) -> None:
    relay = Relay(depth=depth)
    found = [enumerated(make_method("exact_advantage"), relay), enumerated(made("ppo", group_size=1), relay)]
    assert [(one.angle, one.scale) for one in found] == [(pytest.approx(0, abs=1e-5), pytest.approx(1))] * 2
    assert [one.trace for one in found] == pytest.approx([exact, returns], abs=0.01)


def test_whitening_by_standard_deviations_turns_the_gradient() -> None:
    assert enumerated(made("grpo"), Chain(length=2, start_right=0.5)).scale > 1.2
    assert enumerated(made("gigpo"), Chain(length=2)).angle > 1


def test_an_untaught_critic_keeps_the_gradient_and_costs_more() -> None:
    untaught = enumerated("ppo", Chain(length=3), critic="untaught")
    taught = enumerated("ppo", Chain(length=3))
    assert untaught.angle == pytest.approx(0, abs=1e-5)
    assert untaught.trace > taught.trace


def test_a_taught_critic_learns_the_mean_return() -> None:
    problem = Chain(length=3, start_right=0.6)
    player = Player(made("ppo"), problem, TablePolicy(problem), critic="taught", instances=16)
    for _ in range(60):
        player.update()
    taught = {ids: mean for (_, ids), (mean, seen) in player._taught.items() if seen > 200}
    assert len(taught) >= 2
    assert taught == {ids: pytest.approx(player.truth.value_read(ids), abs=0.15) for ids in taught}


def test_no_unbranched_method_is_below_the_exact_advantage_by_trace() -> None:
    limit = enumerated("exact_advantage", Chain(length=2)).trace
    for name, options in (("ppo", {}), ("rloo", {"group_size": 2}), ("vineppo", {"group_size": 1})):
        # Leave-one-out of two pays nobody where both came to the same.
        assert (
            enumerated(made(name, **options), Chain(length=2)).trace
            >= enumerated("exact_advantage", Chain(length=2)).trace
        )
    assert limit > 0


def constant() -> Method:
    """Credit that is the same for all decisions."""

    def estimator(collected: Any, context: Any, memory: None) -> Credit:
        return Credit(decisions={one.id: 1.0 for episode in collected.episodes for one in episode.decisions})

    return Method(name="constant", collector=Single(), estimator=estimator)


def test_constant_credit_has_no_signal() -> None:
    measured = enumerated(constant(), Chain(length=3))
    assert measured.scale == pytest.approx(0, abs=1e-12)
    assert measured.along == math.inf


def test_sampling_agrees_with_enumeration() -> None:
    exact = enumerated(made("rloo"), Chain(length=2))
    played = score(made("rloo"), Chain(length=2), updates=400, instances=1)
    assert abs(played.along - exact.along) < 4 * played.along_error
    assert abs(played.trace - exact.trace) < 4 * played.trace_error
    assert played.credit_error < 0.1


def test_expected_credit_is_the_advantage_for_unbiased_methods_and_not_for_those_that_divide_by_a_spread() -> None:
    assert enumerated("exact_advantage", Chain(length=3)).credit_error == pytest.approx(0, abs=1e-7)
    assert enumerated(made("rloo"), Chain(length=2)).credit_error == pytest.approx(0, abs=1e-7)
    assert enumerated(constant(), Chain(length=2)).credit_error == math.inf
    assert enumerated(made("gigpo"), Chain(length=2)).credit_error > 0.05


def test_replays_count_in_the_cost_of_signal() -> None:
    # Two decisions, and a continuation from the state before each: 2 + 2 + 1 tokens.
    measured = enumerated(made("vineppo", group_size=1), Chain(length=2))
    assert measured.tokens == 5
    assert measured.along == pytest.approx(10)


def test_an_angle_that_noise_explains_is_none() -> None:
    measured = score("ppo", Chain(length=3), updates=50, instances=2)
    assert measured.angle < 8
    assert measured.angle_error > 0


@pytest.mark.parametrize(
    ("along", "cost"),
    [
        ([3.0, -1.0], 2 * (32 / 7) / (3 / 7)),  # of 8 updates: mean 1, variance 32 / 7, so S = 1 - 4 / 7
        ([3.0, -2.0], math.inf),  # mean .5, variance 50 / 7: S = 1 / 4 - 25 / 28
        ([-1.0, -1.5], math.inf),  # away from the truth
    ],
)
def test_the_square_of_the_signal_in_a_cost_is_less_its_part_of_noise(along: list[float], cost: float) -> None:
    truth = Truth(TablePolicy(Chain(length=1)))
    unit = truth.policy.pulled(truth.gradient) / np.linalg.norm(truth.policy.pulled(truth.gradient))
    measured = _measured(truth, [Update(one * unit, (), tokens=2) for one in along * 4], None, 0.0)
    assert (measured.along, measured.trace) == (pytest.approx(cost), pytest.approx(cost))
    assert math.isfinite(measured.along_error) == math.isfinite(cost)


def test_too_many_ways_are_refused() -> None:
    with pytest.raises(ValueError, match="at most 10 combinations"):
        enumerated("ppo", Chain(length=5), most=10)


SMALL = {
    "vote": {"agents": 3, "lazy": 1},
    "key": {"horizon": 4},
    "late": {"horizon": 4},
}


@pytest.mark.parametrize("problem", PROBLEMS)
@pytest.mark.parametrize("name", methods.METHODS)
def test_every_method_plays_every_problem_or_is_refused_in_a_sentence(name: str, problem: str) -> None:
    method, world = made(name), make_problem(problem, **SMALL.get(problem, {}))
    refusal = ""
    try:
        bound(method, world)
    except ValueError as error:
        refusal = str(error)
    if refusal:
        assert refusal.endswith(".")
        assert "\n" not in refusal
    elif problem in ("chain", "vote"):  # each method fits one
        assert score(method, world, updates=8, instances=1).tokens > 0
    else:
        update = Player(method, world, TablePolicy(world), instances=1).update()
        assert update.tokens > 0
        assert np.isfinite(update.gradient).all()


def test_learning_is_the_same_for_the_same_seed_and_goes_up() -> None:
    curve = learning("exact_advantage", "chain", seed=1, step=0.15, tokens=400)
    assert curve == learning("exact_advantage", "chain", seed=1, step=0.15, tokens=400)
    assert curve[0] == (0, 0.0625)
    assert curve[-1][0] >= 400
    assert curve[-1][1] > 0.3


def test_area_of_a_curve_by_hand() -> None:
    # .2 for 10 tokens, .6 for 30 of the 40: a mean of .5, of a range from .2 to 1.
    assert area([(0, 0.2), (10, 0.6), (50, 1.0)], 40, 0.2, 1.0) == pytest.approx((0.5 - 0.2) / 0.8)


def test_going_on_has_its_price() -> None:
    state = Stop(price=0.1, found=0.0).start({}, 0)
    after = Stop(price=0.1, found=0.0).advance(state, ["0"])
    assert after.reward == pytest.approx(-0.1)


def test_outcomes_are_between_the_worst_and_the_best_return() -> None:
    assert Stop(price=0.1, found=0.5, horizon=2).outcome_range == pytest.approx((-0.2, 0.8))
    assert Chain(length=3).outcome_range == (0.0, 1.0)


def test_unknown_dials_are_refused() -> None:
    with pytest.raises(ValueError, match="takes the options horizon, noise, start_right, got 'length'"):
        make_problem("key", length=3)


def test_a_rule_that_cuts_saves_the_tail_and_keeps_the_gradient() -> None:
    trap = Trap(horizon=4, needed=2, blind=True)
    cut = {"name": "metric", "options": {"metric": "known"}}
    plain = enumerated(made("rloo", group_size=2), trap)
    short = enumerated(made("rloo", group_size=2, truncation=cut), trap)
    assert (plain.angle, short.angle) == (pytest.approx(0, abs=1e-5), pytest.approx(0, abs=1e-5))
    # An episode has 1, 2 or 2 questions with equal cuts: 1/2 x 1 + 1/2 x 2; without them 1/4 x 2 + 3/4 x 4.
    assert (short.tokens, plain.tokens) == (pytest.approx(2 * 1.5), pytest.approx(2 * 3.5))
    assert short.along < plain.along


def test_the_blind_share_a_row_of_logits_whether_trapped_or_not() -> None:
    assert make_problem("trap", horizon=4, needed=2, blind=True).views == (0, 1)


def test_an_update_that_does_not_stand_for_all_is_not_enumerated() -> None:
    with pytest.raises(ValueError, match=r"must be stale always or never, got 0\.5; use score"):
        enumerated("exact_advantage", "drift")
