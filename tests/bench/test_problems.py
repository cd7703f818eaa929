"""Problems with parts of their own: a check that can be hacked and its auditor, and a copy that lags."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from hf_credit import methods
from hf_credit.collectors import Single
from hf_credit.methods import Credit, Method
from hf_credit.methods.cvt import audit_of, audited, verified_success
from hf_credit.rollouts import RolloutRequest
from hf_credit_bench import Problem, TablePolicy, Truth, enumerated, make_method, score
from hf_credit_bench.play import Player, bound, exact_advantage
from hf_credit_bench.problems import Chain, Drift, Hack, Stop, Vote
from hf_credit_bench.rules import Rules


def test_the_true_value_of_a_job_is_the_work_done_and_the_reward_is_its_look() -> None:
    policy = TablePolicy(Hack(parts=2, skill=0.8, detection=0.5, price=0.2))
    assert Truth(policy).start == pytest.approx((0.8 / 3) ** 2)
    # Of three actions one fails, one looks done with .8, one always; each of two hacks is caught with .5 and costs .2.
    assert Truth(policy, paid=True).start == pytest.approx(0.6**2 - 2 / 3 * 0.5 * 0.2)


@pytest.mark.parametrize(
    ("price", "angle"), [(0.0, math.degrees(math.acos(0.16 / math.sqrt(0.42667 * 0.56)))), (1.0, 0)]
)
def test_the_price_of_hacks_turns_rewards_towards_the_true_value(price: float, angle: float) -> None:
    # One part: worth (0, .8, 0), paid (0, .8, 1 - price), each less its mean; critics know what is paid.
    measured = enumerated("ppo", Hack(parts=1, skill=0.8, detection=1.0, price=price))
    assert measured.angle == pytest.approx(angle, abs=0.01)


def test_critics_predict_rewards_so_that_bootstrapping_keeps_the_direction() -> None:
    whole, bootstrapped = (
        enumerated(make_method("ppo", group_size=1, lam=lam), Hack(parts=2)).angle for lam in (1.0, 0.0)
    )
    assert bootstrapped == pytest.approx(whole)


def test_an_auditor_knows_the_deed_and_suspects_the_hack() -> None:
    problem = Hack(skill=1.0, detection=0.7)
    auditor = problem.check_auditor(None)
    done, hacked = (problem.advance(problem.start({}, 0), [action]) for action in ("1", "2"))
    assert auditor.success(problem.advance(done, ["1"])) == 1
    assert auditor.success(problem.advance(hacked, ["1"])) == 0
    assert auditor.audit(done, "2").hacks == {"hack": 0.7}
    assert auditor.audit(done, "1").costs == {"tampering": 0.0}
    assert problem.check_oracle(None).valid_actions(done) == {"1"}
    assert Chain().check_auditor(None) is None


def test_audits_of_played_episodes_tell_what_was_achieved() -> None:
    problem = Hack(skill=1.0)
    player = Player(exact_advantage(), problem, TablePolicy(problem))
    played = player._now.engine.run([RolloutRequest(task={}, seed=seed) for seed in range(40)])
    for episode in audited(played, problem.check_auditor(None), problem):
        actions = [one.action_text for one in episode.decisions]
        assert verified_success(episode) == float(actions == ["1", "1"])
        assert episode.outcome <= float("0" not in actions)
        assert [audit_of(one).hacks["hack"] for one in episode.decisions] == [0.5 * (one == "2") for one in actions]


def test_every_method_fits_a_problem_of_the_bench() -> None:
    problems = [Hack(), Vote(agents=2, lazy=1)]

    def fits(name: str, problem: Problem) -> bool:
        try:
            return bool(bound(make_method(name), problem))
        except ValueError:
            return False

    # SEPO asks its agents for ratings in words, and the policy of a problem is a table of actions.
    assert [name for name in methods.METHODS if not any(fits(name, one) for one in problems)] == ["sepo"]


def test_contributions_follow_the_true_value_even_if_the_check_does_not() -> None:
    problem = Hack(parts=1, skill=0.8, detection=0.0)
    method = make_method("constrained_counterfactual", group_size=4, steps=1, branches=1)
    asked = {"updates": 60, "instances": 2}
    assert score(method, problem, **asked).angle < score("ppo", problem, **asked).angle - 10  # type: ignore[arg-type]


def test_a_copy_that_is_the_policy_changes_nothing() -> None:
    same = enumerated("ppo", Drift(length=2, lag=0, stale=1.0))
    assert same.trace == pytest.approx(enumerated("ppo", Chain(length=2)).trace)


def test_off_policy_data_have_no_gradient_beyond_the_clip_range() -> None:
    # The copy's logits are -+ pace: with .2 it takes the right action with .401, a ratio of 1.246, which is clipped;
    # the wrong action's .835 is not, and says half of the gradient. With .05 both count, and nothing is biased.
    assert enumerated("exact_advantage", Drift(length=1, lag=1, pace=0.2, stale=1.0)).scale == pytest.approx(0.5)
    assert enumerated("exact_advantage", Drift(length=1, lag=1, pace=0.05, stale=1.0)).scale == pytest.approx(1)


def test_the_copy_is_the_policy_of_some_updates_ago() -> None:
    seen: list[tuple[float, float]] = []

    def estimator(collected: Any, context: Any, memory: None) -> Credit:
        decision = collected.episodes[0].decisions[0]
        taken = [math.exp(context.logprobs([decision], policy)[0][0]) for policy in ("current", "frozen")]
        current, frozen = (one if decision.action_text == "1" else 1 - one for one in taken)
        seen.append((current, frozen))
        return exact_advantage().estimator(collected, context, memory)

    method = Method(name="watched", collector=Single(), estimator=estimator, refresh_frozen_every=1)
    problem = Drift(length=1, lag=2, pace=0.1, stale=0.0)
    player = Player(method, problem, TablePolicy(problem))
    for _ in range(5):
        player.move(0.3 * player.update().gradient)
    # Logits of one update before: -+ .1, advantages 1 - p and -p; of two: so much more, the longer by .1.
    p = 1 / (1 + math.exp(0.2))
    assert seen[0][1] == pytest.approx(1 / (1 + math.exp(0.2 + 0.1 * (1 + p / (1 - p)))))
    assert [frozen for _, frozen in seen[2:]] == pytest.approx([current for current, _ in seen[:3]])


def test_an_oracle_errs_by_chance_and_always_the_same_for_a_state() -> None:
    chain = Chain()
    oracle = chain.judge(0.3)
    states = [chain.start({}, seed) for seed in range(1000)]
    scores = [oracle.score(state, "1") for state in states]
    assert set(scores) == {0.0, 1.0}
    assert 0.66 < sum(scores) / 1000 < 0.74  # of 1,000 fixed seeds; 1 - error, four standard errors wide
    assert scores == [oracle.score(state, "1") for state in states]
    assert oracle.valid_actions(states[0]) == {"1"}


def test_an_oracle_errs_as_asked_unless_a_dial_says_how_often() -> None:
    states = [Chain().start({}, seed) for seed in range(1000)]
    for action, right in (("1", 1.0), ("0", 0.0)):
        wrong = [Chain().judge(0.1).score(state, action) != right for state in states]
        assert 0.06 < sum(wrong) / 1000 < 0.14  # of 1,000 fixed seeds; four standard errors wide
        assert all(Chain().judge().score(state, action) == right for state in states)
    assert Hack(detection=1.0).judge(0.5).score(Hack().start({}, 0), "1") == 1.0
    assert Stop().judge(0.1) is None


def test_an_oracle_may_repeat_its_errors_whenever_a_decision_comes_again() -> None:
    rules = Rules(length=12, tasks=2)
    nodes = {node: rules.view(node, "agent") for node in rules.nodes if rules.speakers(node)}
    wrong = {}
    for node, view in nodes.items():
        for seed in (1, 2):
            for episode in range(3):
                state = dataclasses.replace(rules.start({}, episode), node=node, step=episode)
                judged = rules.judge(0.3, repeats=seed).score(state, "1")
                wrong.setdefault((seed, view), set()).add(judged != rules.right(node, 1))
    assert all(len(one) == 1 for one in wrong.values())
    shares = [sum(True in one for (seed, _), one in wrong.items() if seed == own) for own in (1, 2)]
    assert all(0.1 < share / (len(wrong) / 2) < 0.5 for share in shares)
    assert {view for (seed, view), one in wrong.items() if seed == 1 and True in one} != {
        view for (seed, view), one in wrong.items() if seed == 2 and True in one
    }


def test_a_reply_that_is_no_action_is_the_first() -> None:
    chain = Chain(length=2)
    state = chain.start({}, 0)
    assert chain.advance(state, ["nonsense"]) == chain.advance(state, ["0"])
    assert chain.advance(state, [" 1 "]) == chain.advance(state, ["1"])
