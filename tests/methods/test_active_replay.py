"""Active replay: credit of trees written by hand, expectations by enumeration, and plans from memories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hf_credit import methods
from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.methods.active_replay import BranchAdvantages, PlannedBranches
from hf_credit.methods.replay_plan import START, Plan, Profile, ReplayMemory, ratio_of
from hf_credit.rollouts import Ending, LocalContext
from hf_credit_bench import enumerated, make_method
from hf_credit_bench.play import Player
from hf_credit_bench.problems import Chain, Late, Relay, Revisit, Trap
from hf_credit_bench.table import TablePolicy


def remembering(profiles, generated=0.0, unbranched=0.0):
    return ReplayMemory().plus(profiles, generated, unbranched, 1.0)


def seen(visits, noise, tokens, split=0.0, within=0.0, error=0.0):
    """A profile from a number of visits and means by depth."""
    sums = [tuple(visits * one for one in means) for means in (noise, tokens)]
    return Profile(visits, *sums, split, split * within, split * error)


def tree(hand, failed=False):
    """A first decision, then two branches with outcomes 1 and 0, and perhaps one that failed."""
    first, *ends = (replace(hand.decision(context=place), logprobs=(-0.5,)) for place in (1, 5, 5, 5))
    trunk = hand.episode(first, ends[0], outcome=1.0)
    endings = (Ending.FINISHED, *([Ending.ERROR] if failed else []))
    rest = [
        replace(hand.episode(first, end, ending=one), prefix_length=1)
        for end, one in zip(ends[1:], endings, strict=False)
    ]
    forks = [Rollout(episode=one, instance=0, source=ends[0].id, counted=False) for one in rest]
    rollouts = (Rollout(episode=trunk, instance=0), *forks)
    return RolloutBatch(rollouts=rollouts, rows=1), [first, *ends]


def critic(values):
    """A critic with a value for each last token of a text."""
    return LocalContext(
        critics={"critic": lambda inputs: [tuple(values[one.ids[at - 1]] for at in one.at) for one in inputs]}
    )


@pytest.mark.parametrize("failed", [False, True])
def test_credit_and_weights_of_a_tree_by_hand(hand, failed):
    # V = .4, then .7: delta .3, U = mean(.3, -.7) = -.2, so the first decision gets .1 and the branches .3 and -.7.
    collected, (first, one, other, broken) = tree(hand, failed)
    credit = BranchAdvantages()(collected, critic({1: 0.4, 5: 0.7}))
    assert credit.decisions == {
        first.id: pytest.approx(0.1),
        one.id: pytest.approx(0.3),
        other.id: pytest.approx(-0.7),
    }
    assert credit.weights == {first.id: 1.0, one.id: 0.5, other.id: 0.5}
    assert credit.per_start
    # The state that was branched at is learned once: V + U = .5, the mean return.
    (targets,) = credit.critic_targets
    assert [value for own in targets.targets for value in own] == pytest.approx([0.5, 0.5])
    assert broken.id not in credit.decisions


def test_a_smaller_lambda_discounts_later_terms(hand):
    collected, (first, *_) = tree(hand)
    credit = BranchAdvantages(lam=0.5)(collected, critic({1: 0.4, 5: 0.7}))
    assert credit.decisions[first.id] == pytest.approx(0.3 + 0.5 * -0.2)


def test_siblings_are_the_baseline_if_the_critic_was_worse(hand):
    collected, (first, one, other, _) = tree(hand)
    worse = remembering({"1": seen(4, (1,), (1,), split=4, within=0.2, error=0.21)})
    credit = BranchAdvantages()(collected, critic({1: 0.4, 5: 0.7}), worse)
    assert [credit.decisions[x.id] for x in (first, one, other)] == pytest.approx([0.1, 1.0, -1.0])
    better = remembering({"1": seen(4, (1,), (1,), split=4, within=0.2, error=0.19)})
    assert BranchAdvantages()(collected, critic({1: 0.4, 5: 0.7}), better).decisions[one.id] == pytest.approx(0.3)


def test_the_statistics_of_a_tree(hand):
    collected, _ = tree(hand)
    memory = BranchAdvantages()(collected, critic({1: 0.4, 5: 0.7}), ReplayMemory()).memory
    spread = 1 - 2.718281828459045**-0.5
    start, later = memory.profiles[START], memory.profiles["1"]
    # Squares of delta times spread so far: .09, then the mean of .09 and .49 with twice the spread.
    assert start.noise == pytest.approx((0.09 * spread, 0.29 * 2 * spread))
    assert (start.visits, start.tokens) == (1, (1.0, 1.0))
    assert later.noise == pytest.approx((0.29 * 2 * spread,))
    # Returns of branches differ by 1: variance .5; their mean is off V by .2, of which .25 is noise.
    assert (later.split, later.within, later.error) == (1, pytest.approx(0.5), pytest.approx(0.04 - 0.25))
    assert (memory.generated, memory.unbranched) == (3, 2)


def test_an_update_adds_to_what_is_not_forgotten_of_earlier_ones(hand):
    collected, _ = tree(hand)
    before = remembering({START: seen(10, (1, 1), (1, 1))}, 30, 20)
    memory = BranchAdvantages(forgetting=0.4)(collected, critic({1: 0.4, 5: 0.7}), before).memory
    # .4 of 10 visits, of noise 10 and 10 tokens at each depth, of 30 tokens and of 20, plus what is seen of the tree.
    spread = 1 - 2.718281828459045**-0.5
    start = memory.profiles[START]
    assert start.noise == pytest.approx((4 + 0.09 * spread, 4 + 0.29 * 2 * spread))
    assert (start.visits, *start.tokens) == pytest.approx((5, 5, 5))
    assert (memory.generated, memory.unbranched) == pytest.approx((15, 10))


def test_statistics_decay_and_rare_states_are_dropped():
    memory = remembering({START: seen(10, (1,), (1,)), "1": seen(1, (1,), (1,))}, 30, 20)
    after = memory.plus({START: seen(2, (4, 1), (1, 1))}, 3, 2, 0.4)
    assert after.profiles == {START: Profile(6.0, (12.0, 2.0), (6.0, 2.0))}
    assert (after.generated, after.unbranched) == (15, 10)


# Plans

RISING = {START: seen(4, (0, 0.1, 4), (1, 1, 1)), "1": seen(4, (0.1, 4), (1, 1)), "2": seen(4, (4,), (1,))}


LAST = {START: seen(4, (1, 1, 16), (1, 1, 1)), "1": seen(4, (1, 16), (1, 1)), "2": seen(4, (16,), (1,))}


def test_branches_are_the_root_of_the_ratio_of_lowest_means():
    profiles = {START: seen(4, (1, 1), (1, 1)), "1": seen(4, (3, 1), (1, 1)), "2": seen(4, (9,), (1,))}
    plan = Plan(most=4, profiles=profiles)
    assert plan.branches(START, 0, 1) == 1
    assert plan.branches("1", 1, 1) == pytest.approx(2**0.5)  # the mean up to the end is below that of the first
    assert plan.branches("2", 2, 1) == 3
    assert plan.branches("2", 2, 2) == 1.5  # two are alive already
    assert plan.branches("2", 2, 4) == 1
    assert Plan(most=2, profiles=profiles).branches("2", 2, 1) == 2
    assert plan.branches("never seen", 2, 1) == 1


def test_after_a_start_without_noise_other_states_have_the_maximum():
    profiles = {START: seen(4, (0, 4), (1, 1)), "1": seen(4, (4,), (1,)), "2": seen(4, (0,), (1,))}
    plan = Plan(most=2, profiles=profiles)
    assert [plan.branches(key, 1, 1) for key in ("1", "2")] == [2, 1]


def test_it_plans_after_enough_visits_and_with_a_predicted_gain():
    assert ratio_of(RISING[START]) < 0.8
    collector = PlannedBranches()
    assert collector.plan(remembering(RISING)).profiles == RISING
    assert collector.plan(remembering({**RISING, START: replace(RISING[START], visits=3)})).profiles == {}
    assert PlannedBranches(plan_below=0.3).plan(remembering(RISING)).profiles == {}
    assert collector.plan(ReplayMemory()).profiles == {}
    flat = {**RISING, START: seen(4, (3, 2, 1), (1, 1, 1))}
    assert collector.plan(remembering(flat)).profiles == {}
    few = {**RISING, "2": replace(RISING["2"], visits=3.9)}
    assert collector.plan(remembering(few)).branches("2", 2, 1) == 1


@pytest.mark.parametrize(
    ("options", "memory"),
    [
        # Two branches at the last of three decisions: four tokens for three, so 9 starts for 12.
        ({"branches": (1, 1, 2)}, remembering({START: seen(4, (1, 1, 1), (1, 1, 1))})),
        ({"most": 2}, remembering(LAST)),
        ({"state_key": "state"}, remembering({}, 400, 300)),
    ],
)
def test_more_branches_are_fewer_starts(options, memory):
    method = replace(make_method("active_replay", group_size=2, **options), memory=memory)
    update = Player(method, Chain(length=3), TablePolicy(Chain(length=3)), instances=6).update()
    assert update.tokens == (27 if "state_key" in options else 36)


def test_branches_of_the_first_decision_are_starts():
    with pytest.raises(ValueError, match="branches must be 1 at the first decision, got 2"):
        methods.make("active_replay", branches=(2, 1))


# Expectations

FIXED = [
    ((1, 2), Chain(length=3)),
    ((1, 1, 3), Chain(length=3, start_right=0.3)),
    ((1, 1.5), Chain(length=2)),
    ((1, 2.25), Late(horizon=2)),
    ((1, 2), Relay(depth=2)),
    ((1, 2), Trap(horizon=3, needed=2)),
    ((1, 2), Revisit(length=2, horizon=2)),
]


@pytest.mark.parametrize("wrong", ["exact", "noisy", "untaught"])
@pytest.mark.parametrize(("branches", "problem"), FIXED, ids=str)
def test_with_fixed_branches_the_gradient_is_unbiased_for_any_critic(branches, problem, wrong):
    measured = enumerated(make_method("active_replay", branches=branches), problem, critic=wrong)
    assert measured.scale == pytest.approx(1)
    assert measured.angle == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("wrong", ["exact", "untaught"])
@pytest.mark.parametrize("most", [2, 4])
def test_with_planned_branches_the_gradient_is_unbiased(most, wrong):
    # Fractional branches, fewer starts by chance, and siblings in place of the critic.
    profiles = {
        START: seen(4, (1, 1, 4), (1, 1, 1)),
        "1": seen(4, (2, 4), (1, 1)),
        "2": seen(4, (5,), (1,), 4, 0.1, 9),
    }
    method = replace(make_method("active_replay", most=most, plan_below=1), memory=remembering(profiles, 6, 5))
    measured = enumerated(method, Chain(length=3), critic=wrong, instances=1)
    assert measured.scale == pytest.approx(1)
    assert measured.angle == pytest.approx(0, abs=1e-5)
    assert measured.updates > 16  # it did branch


def test_with_groups_the_gradient_is_unbiased():
    measured = enumerated(make_method("active_replay", branches=(1, 2), group_size=2), Chain(length=2))
    assert (measured.scale, measured.angle) == (pytest.approx(1), pytest.approx(0, abs=1e-5))


def test_a_smaller_lambda_is_biased_if_the_critic_is_wrong():
    method = make_method("active_replay", branches=(1, 2), lam=0.0)
    assert enumerated(method, Chain(length=3), critic="untaught").scale < 0.7


@pytest.mark.parametrize("lam", [1.0, 0.5])
def test_without_branches_it_is_ppo_by_decisions(lam):
    for problem in (Chain(length=3), Relay(depth=2)):
        methods = [make_method(name, lam=lam) for name in ("active_replay", "ppo")]
        own, ppo = (enumerated(method, problem, critic="noisy") for method in methods)
        assert (own.along, own.trace, own.tokens) == pytest.approx((ppo.along, ppo.trace, ppo.tokens))


@pytest.mark.parametrize("branches", [2, 3])
def test_the_cost_with_all_noise_at_the_last_of_three_steps(branches):
    problem = Late(horizon=3, good=1.0, bad=0.0)
    alone = enumerated(make_method("active_replay"), problem).trace
    branched = enumerated(make_method("active_replay", branches=(1, 1, branches)), problem).trace
    assert branched / alone == pytest.approx((2 + branches) / (branches * 3))


def test_the_branches_of_a_state_do_not_depend_on_anything_after_it():
    profiles = {START: seen(4, (1, 1, 4), (1, 1, 1)), "1": seen(4, (2, 4), (1, 1)), "2": seen(4, (5,), (1,))}
    method = replace(make_method("active_replay", most=4, plan_below=1), memory=remembering(profiles))
    counts = []
    for right in (0.001, 0.999):
        problem = Chain(length=3, start_right=right)
        player = Player(method, problem, TablePolicy(problem), instances=16, seed=3)
        counts.append(sum(1 for _ in player.update().decisions))
    assert counts[0] == counts[1] > 48
