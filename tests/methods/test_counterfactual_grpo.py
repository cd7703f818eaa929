"""CCPO on scripted teams, with credit computed by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import tanh
from typing import Any

import pytest

from hf_credit import methods
from hf_credit.collaborations.base import Collaboration
from hf_credit.collaborations.graph import Event
from hf_credit.collaborations.think_solve import think_solve
from hf_credit.collaborations.voting import voting
from hf_credit.collectors import Group, Removals, Rollout, RolloutBatch
from hf_credit.credit import Moments
from hf_credit.methods.counterfactual_grpo import V1, V2, CounterfactualAdvantages, _zero_where_cut
from hf_credit.rollouts import Decision, Ending, Engine, Episode, Generation, LocalContext, by_episode

SMALL = 2.0**-0.5  # of two, each is this many deviations of the sample from their mean


def exact(task: Any, text: str) -> float:
    if text == "boom":
        raise RuntimeError("the scorer broke")
    return float(text == task["answer"])


class Says:
    """A sampler for each role with a list of replies, in order, which records its contexts."""

    def __init__(self, chat: Any, replies: dict[str, list[str]]) -> None:
        self.chat, self.replies, self.shown, self.rounds = chat, replies, dict.fromkeys(replies, ()), []

    def of(self, role: str) -> Any:
        def generate(contexts: Sequence[Sequence[int]]) -> list[Generation]:
            self.rounds.append((role, len(contexts)))
            self.shown[role] += tuple(self.chat.tokenizer.decode(list(context)) for context in contexts)
            own = [self.replies[role].pop(0) for _ in contexts]
            return [Generation(ids=self.chat.tokenizer(f"{one}<|end|>")["input_ids"]) for one in own]

        return generate


def played(chat: Any, team: Any, replies: dict[str, list[str]], rows: int = 1, **options: Any) -> Any:
    """The method for a team, its rollouts, its credit and the context."""
    says = Says(chat, {role: list(own) for role, own in replies.items()})
    context = LocalContext(Engine(team, chat, {role: says.of(role) for role in team.roles}))
    context.says = says
    method = methods.make("counterfactual_grpo", **{"group_size": 2, **options}).bind(team)
    collected = method.collector([{"problem": "1+1", "answer": "2"}] * rows, context, method.memory)
    return method, collected, method.estimator(collected, context, method.memory), context


def without_a_role(collected: RolloutBatch) -> int:
    """The tokens of rollouts for comparison."""
    own = [decision for one in collected.rollouts if one.kind != "policy" for decision in one.episode.decisions]
    return sum(len(decision.context_ids) + len(decision.action_ids) for decision in own)


RELAY = {"thinker": ["add", "no"], "solver": ["5", "2", "2", "3"]}
"""Of two rollouts: the solvers alone say 5 and 2 (they speak in the first round), in company 2 and 3."""


def test_solos_are_played_in_the_thinkers_round_and_never_trained_on(chat: Any) -> None:
    _, collected, credit, context = played(chat, think_solve(exact), RELAY)
    assert context.says.rounds == [("thinker", 2), ("solver", 2), ("solver", 2)]
    assert [sample.episode.outcome for sample in collected.rollouts] == [1.0, 0.0, 0.0, 1.0]
    assert [(sample.trained, sample.kind) for sample in collected.rollouts] == [
        (True, "policy"), (True, "policy"), (False, "without thinker"), (False, "without thinker"),
    ]  # fmt: skip
    alone, alone_too, *company = context.says.shown["solver"]
    assert alone == alone_too
    assert "add" not in alone
    assert "Notes" not in alone
    assert "Notes of the thinker:\nadd" in company[0]
    assert context.ledger.scoring_events == 4
    assert context.ledger.counterfactual_tokens == without_a_role(collected) > 0
    assert [len(own) for own in by_episode(collected.episodes, credit.decisions)] == [2, 2]


def test_without_history_the_thinker_has_its_contribution_and_the_solver_the_outcome(chat: Any) -> None:
    _, collected, credit, context = played(chat, think_solve(exact), RELAY)  # four rollouts are no history
    # Delta = (1 - 0, 0 - 1)
    assert [value for own in by_episode(collected.episodes, credit.decisions) for value in own] == pytest.approx(
        [SMALL, SMALL, -SMALL, -SMALL], 1e-4
    )
    assert credit.memory.of("thinker/contribution") == (0.0, 1.0, 2)
    assert credit.memory.of("solver/joint") == credit.memory.of("solver/solo") == (0.5, 0.25, 2)
    assert context.metrics["contribution/thinker/helped"] == context.metrics["contribution/thinker/hurt"] == [0.5]
    assert context.metrics["contribution/solver/trust"] == [0.5]


HELPED = Moments(
    names=("thinker/contribution", "solver/contribution", "solver/joint", "solver/solo"),
    means=(0.4, 0.4, 0.6, 0.2), variances=(0.25, 0.25, 0.24, 0.16), seen=(60,) * 4,
)  # fmt: skip


def test_with_history_each_has_the_papers_reward(chat: Any) -> None:
    method, collected, _, context = played(chat, think_solve(exact), RELAY, eps=1e-9, order="previous")
    shaped = method.estimator(collected, context, HELPED)
    # r1 = tanh((Delta - 0.4) / 0.5) of two different values: their order is all that eq. 5 leaves of two rollouts.
    assert [own[0] for own in by_episode(collected.episodes, shaped.decisions)] == pytest.approx([SMALL, -SMALL])
    one = method.estimator._rewards("thinker", _pairs(collected), HELPED)
    assert one == pytest.approx([tanh((1.0 - 0.4) / 0.5), tanh((-1.0 - 0.4) / 0.5)])
    gate = 1 / (1 + 2.718281828459045 ** (-0.4 / 0.5))
    last = method.estimator._rewards("solver", _pairs(collected), HELPED)
    joint, solo = ((1 - 0.6) / 0.24**0.5, (0 - 0.6) / 0.24**0.5), ((0 - 0.2) / 0.4, (1 - 0.2) / 0.4)
    assert last == pytest.approx([gate * joint[0] + (1 - gate) * solo[0], gate * joint[1] + (1 - gate) * solo[1]])


def _pairs(collected: RolloutBatch) -> Any:
    from hf_credit.methods.counterfactual_grpo import _matched

    return _matched(collected, "without thinker")


@pytest.mark.parametrize(("decay", "mean", "variance"), [(0.75, 0.3, 0.4375), (0.0, 0.0, 1.0)])
def test_the_moments_keep_a_part_of_what_they_were(chat: Any, decay: float, mean: float, variance: float) -> None:
    method, collected, _, context = played(chat, think_solve(exact), RELAY, decay=decay)
    # Delta = (1, -1), with mean 0 and variance 1: .75 x .4 + .25 x 0 by eq. 2, and .75 x .25 + .25 x 1 by eq. 3.
    after = method.estimator(collected, context, HELPED).memory.of("thinker/contribution")
    assert after == pytest.approx((mean, variance, 62))


@pytest.mark.parametrize(
    ("options", "trust"),
    [
        ({}, 0.689974),  # sigmoid(eta mu / sigma) = sigmoid(.4 / .5), by Appendix B.2
        ({"eta": 2.5}, 0.880797),  # sigmoid(2.5 x .8)
        ({"eta": 0.0}, 0.5),
        ({"variance_floor": 0.25}, 0.598688),  # which is the variance, so that sigma is 1
        ({"variance_floor": 0.24}, 0.689974),
    ],
)
def test_the_trust_is_a_sigmoid_of_the_contribution_in_deviations(
    chat: Any, options: dict[str, Any], trust: float
) -> None:
    settings = {"train_solo": True, "order": "previous", "eps": 1e-9, **options}
    method, collected, _, context = played(chat, think_solve(exact), RELAY, **settings)
    alone = by_episode(collected.episodes, method.estimator(collected, context, HELPED).decisions)[2:]
    # The solvers alone say 5 and 2, and have 1 - trust of their advantages.
    assert [own[0] for own in alone] == pytest.approx([-SMALL * (1 - trust), SMALL * (1 - trust)], abs=1e-6)


def test_the_order_determines_whether_a_batch_shapes_itself(chat: Any) -> None:
    for order, seen in (("current", True), ("previous", False)):
        method, collected, _, context = played(chat, think_solve(exact), RELAY, order=order, min_samples=2, eps=1e-9)
        credit = method.estimator(collected, context, method.memory)
        memory = credit.memory if order == "current" else method.memory
        rewards = method.estimator._rewards("thinker", _pairs(collected), memory)
        # mu = 0 and sigma = 1 after this batch
        assert rewards == pytest.approx([tanh(1.0), tanh(-1.0)] if seen else [1.0, -1.0])


@pytest.mark.parametrize(
    ("options", "thinker"),
    [
        # Delta = (1, 1, 0, -1), less their mean of 1/4, in deviations of the sample, sqrt(2.75 / 3)
        ({"order": "previous"}, [0.7833, 0.7833, -0.2611, -1.3056]),
        # tanh of (.75, .75, -.25, -1.25) / sqrt(2.75 / 4), likewise
        ({"order": "current"}, [0.8226, 0.8226, -0.4395, -1.2056]),
        # 1, 1, 0 and -1 less 1/4, in deviations of the sample: nothing is squashed
        ({"order": "current", "use_history": False}, [0.7833, 0.7833, -0.2611, -1.3056]),
        ({"order": "current", "alpha": 2.0}, [0.8511, 0.8511, -0.6248, -1.0774]),  # tanh of twice as much
        # The variance, 2.75 / 4, is at most this, so that sigma is 1: tanh of (.75, .75, -.25, -1.25), likewise
        ({"order": "current", "variance_floor": 0.6875}, [0.8146, 0.8146, -0.3987, -1.2305]),
    ],
)
def test_only_the_current_order_shapes_a_first_batch_by_its_own_moments(
    chat: Any, options: dict[str, Any], thinker: list[float]
) -> None:
    replies = {"thinker": ["a", "b", "c", "d"], "solver": ["5", "5", "2", "2", "2", "2", "2", "3"]}
    _, collected, credit, _ = played(chat, think_solve(exact), replies, group_size=4, min_samples=1, **options)
    assert credit.memory.of("thinker/contribution") == (0.25, 0.6875, 4)
    found = [own[0] for own in by_episode(collected.episodes, credit.decisions)[:4]]
    assert found == pytest.approx(thinker, abs=1e-4)


RARE = {"thinker": ["a", "b", "c", "d"], "solver": ["5", "5", "5", "2", "2", "2", "2", "3"]}
"""In company the solver is right, right, right and wrong; alone it is right with the last of these."""
NEVER_RIGHT_ALONE = Moments(
    names=("thinker/contribution", "solver/contribution", "solver/joint", "solver/solo"),
    means=(0.5, 0.5, 0.5, 0.0), variances=(0.25, 0.25, 0.25, 0.0), seen=(60,) * 4,
)  # fmt: skip


@pytest.mark.parametrize(
    ("options", "solver"),
    [
        ({"order": "previous"}, [0.5, 0.5, 0.5, -1.5]),
        # Eq. 3 lets the variance grow by a hundredth of the batch's: sigma is 0.04, and z of the success alone 23.
        ({"order": "current"}, [-0.5, -0.5, -0.5, 1.5]),
        ({"order": "current", "solver_signal": "joint"}, [0.5, 0.5, 0.5, -1.5]),
    ],
)
def test_a_first_success_alone_is_not_divided_by_a_deviation_of_zero(
    chat: Any, options: dict[str, Any], solver: list[float]
) -> None:
    method, collected, _, context = played(chat, think_solve(exact), RARE, group_size=4, **options)
    credit = method.estimator(collected, context, NEVER_RIGHT_ALONE)
    found = [own[1] for own in by_episode(collected.episodes, credit.decisions)[:4]]
    assert found == pytest.approx(solver, abs=1e-4)


def test_pairing_by_mean_with_scores_of_0_and_1_is_the_shared_reward(chat: Any) -> None:
    _, collected, by_mean, context = played(chat, think_solve(exact), RELAY, solo_pairing="mean")
    shared = methods.make("counterfactual_grpo", reward="shared").bind(think_solve(exact)).estimator
    assert by_mean.decisions == pytest.approx(shared(collected, context, Moments()).decisions)
    replies = {"thinker": ["a", "b", "c"], "solver": ["5", "5", "2", "2", "3", "2"]}
    _, collected, credit, _ = played(chat, think_solve(exact), replies, group_size=3, solo_pairing="mean")
    assert {sample.source for sample in collected.rollouts if not sample.trained} == {""}
    assert credit.memory.of("thinker/contribution").mean == pytest.approx(2 / 3 - 1 / 3)
    assert credit.memory.of("solver/solo").variance == pytest.approx(0.0)


def test_common_pairing_gives_a_rollout_and_its_solo_the_same_random_draws(chat: Any) -> None:
    seeds: dict[str, list[Any]] = {"thinker": [], "solver": []}

    class Seeded:
        def __init__(self, role: str) -> None:
            self.role = role

        def __call__(self, contexts: Sequence[Sequence[int]]) -> list[Generation]:
            raise AssertionError("it is asked with seeds")

        def seeded(self, contexts: Sequence[Sequence[int]], given: Sequence[Any]) -> list[Generation]:
            seeds[self.role] += given
            return [Generation(ids=chat.tokenizer("2<|end|>")["input_ids"])] * len(contexts)

    team = think_solve(exact)
    context = LocalContext(Engine(team, chat, {role: Seeded(role) for role in team.roles}))
    method = methods.make("counterfactual_grpo", group_size=2, solo_pairing="common").bind(team)
    method.collector([{"problem": "1+1", "answer": "2"}], context, method.memory)
    assert seeds["solver"][:2] == seeds["solver"][2:]
    assert len({*seeds["thinker"], *seeds["solver"]}) == 4
    assert context.metrics["common_random_numbers"] == [1.0]


def test_pairs_with_a_failed_rollout_are_left_out(chat: Any) -> None:
    replies = {"thinker": ["a", "b", "c", "d"], "solver": ["boom", "5", "5", "2", "2", "boom", "2", "3"]}
    _, collected, credit, _ = played(chat, think_solve(exact), replies, group_size=4)
    assert credit.memory.of("thinker/contribution").seen == 2
    # Sound are the last two: Delta = (1 - 0, 0 - 1). The first has an outcome and nothing to compare it with.
    assert [own[0] is None for own in by_episode(collected.episodes, credit.decisions)] == [True, True, False, False]
    assert [own[0] for own in by_episode(collected.episodes, credit.decisions)[2:]] == pytest.approx(
        [SMALL, -SMALL], 1e-4
    )
    lone = replace(collected, rollouts=collected.rollouts[:3] + collected.rollouts[4:7])
    estimator = methods.make("counterfactual_grpo").bind(think_solve(exact)).estimator
    assert not any(estimator(lone, LocalContext(), Moments()).decisions.values())


def test_of_three_roles_in_turn_each_is_removed_and_the_last_also_plays_alone(chat: Any) -> None:
    team = think_solve(exact, thinkers=("planner", "checker"))
    replies = {
        "planner": ["p1", "p2"],
        "checker": ["c1", "c2", "c3", "c4"],  # alone at the start, then after a plan
        "solver": ["3", "3", "2", "2", "2", "3", "2", "2"],
    }
    _, collected, credit, context = played(chat, team, replies)
    kinds = [sample.kind for sample in collected.rollouts]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "policy": 2, "without planner": 2, "without checker": 2, "without planner, checker": 2,
    }  # fmt: skip
    assert context.ledger.decisions == {"planner": 2, "checker": 4, "solver": 8}
    assert context.ledger.counterfactual_tokens == without_a_role(collected) > 0
    without_checker = [one for one in collected.rollouts if one.kind == "without checker"]
    shown = [chat.tokenizer.decode(list(one.episode.decisions[0].context_ids)) for one in without_checker]
    assert ["Notes of the planner:\np1" in shown[0], "Notes of the planner:\np2" in shown[1]] == [True, True]
    assert not any("checker" in text for text in shown)
    assert set(credit.memory.names) >= {"planner/contribution", "checker/contribution", "solver/solo"}


VOTES = {"voter_1": ["2", "3"], "voter_2": ["2", "2"], "voter_3": ["3", "3"]}


def ballot(ties: str = "expected") -> Any:
    return voting(exact, "hf_credit.collaborations.sum_vote:number_key", ties=ties)


def test_a_vote_is_counted_again_without_new_replies_or_scores(chat: Any) -> None:
    _, collected, credit, context = played(chat, ballot(), VOTES)
    assert context.says.rounds == [("voter_1", 2), ("voter_2", 2), ("voter_3", 2)]
    assert context.ledger.scoring_events == 4  # two distinct answers in each rollout
    assert all(not one.episode.decisions for one in collected.rollouts if not one.trained)
    # 2 2 3 is right: Delta = 1/2, 1/2, 0. 3 2 3 is wrong: 0 - 1/2, 0 - 0, 0 - 1/2.
    assert credit.memory.means == pytest.approx((0.0, 0.25, -0.25))
    assert [value for own in by_episode(collected.episodes, credit.decisions) for value in own] == pytest.approx(
        [SMALL, SMALL, SMALL, -SMALL, -SMALL, -SMALL], 1e-4
    )


def test_weighted_allocation_needs_ties_that_do_not_penalise_correct_voters(chat: Any) -> None:
    _, collected, credit, _ = played(chat, ballot("none"), VOTES, allocation="weighted")
    # Delta = 1, 1, 0 where the vote is right; nobody contributed where it is wrong.
    assert by_episode(collected.episodes, credit.decisions)[0] == pytest.approx([SMALL / 2, SMALL / 2, 0.0], abs=1e-4)
    assert by_episode(collected.episodes, credit.decisions)[1] == pytest.approx([0.0, 0.0, 0.0])


def test_weighted_allocation_without_episodes_without_a_role_gives_no_credit(chat: Any) -> None:
    method, collected, _, context = played(chat, ballot("none"), VOTES, allocation="weighted")
    failed = replace(
        collected,
        rollouts=tuple(
            one if one.trained else replace(one, episode=replace(one.episode, ending=Ending.ERROR))
            for one in collected.rollouts
        ),
    )
    assert not any(method.estimator(failed, context, method.memory).decisions.values())


def test_the_shared_reward_needs_nothing_but_the_group(chat: Any) -> None:
    method, collected, credit, _ = played(chat, ballot(), VOTES, reward="shared")
    assert method.collector == Group(size=2)
    assert list(by_episode(collected.episodes, credit.decisions)) == [
        pytest.approx([SMALL] * 3, 1e-4),
        pytest.approx([-SMALL] * 3, 1e-4),
    ]
    assert credit.memory == Moments()
    assert len(collected.rollouts) == 2


@pytest.mark.parametrize(("options", "thinker"), [({}, 1.1), ({"bonus_weight": 0.5}, 1.25)])
def test_the_bonus_of_the_later_public_code_is_centred_only(
    chat: Any, options: dict[str, Any], thinker: float
) -> None:
    replies = {"thinker": ["a", "b"], "solver": ["5", "5", "2", "3"]}
    _, collected, credit, _ = played(chat, think_solve(exact), replies, **{**V2, "group_size": 2, **options})
    # r1 = (1 + 0.2, -1), or with another weight (1 + 0.5, -1), r2 = (1, -1)
    assert [value for own in by_episode(collected.episodes, credit.decisions) for value in own] == pytest.approx(
        [thinker, 1.0, -thinker, -1.0]
    )


def test_with_a_bonus_the_last_of_three_roles_has_the_outcome_alone_without_playing_alone(chat: Any) -> None:
    team = think_solve(exact, thinkers=("planner", "checker"))
    replies = {"planner": ["p1", "p2"], "checker": ["c1", "c2", "c3", "c4"], "solver": ["2", "3", "3", "2", "2", "2"]}
    _, collected, credit, context = played(chat, team, replies, **{**V2, "group_size": 2})
    own = by_episode(collected.episodes, credit.decisions)
    outcomes = [one.outcome for one in collected.episodes]
    assert sorted(outcomes) == [0.0, 1.0]
    assert [one[-1] for one in own] == pytest.approx([2 * one - 1 for one in outcomes])
    assert "contribution/solver/mean" not in context.metrics
    assert len(context.metrics["contribution/planner/mean"]) == 1


def test_solo_replies_can_be_trained_on_with_weight_1_minus_trust_and_are_not_counted(chat: Any) -> None:
    _, collected, credit, _ = played(chat, think_solve(exact), RELAY, train_solo=True, min_samples=1)
    assert [(one.trained, one.counted) for one in collected.rollouts] == [(True, True)] * 2 + [(True, False)] * 2
    # mu = 0, so the trust is 1/2; alone the solver says 5 and 2.
    assert [own[0] for own in by_episode(collected.episodes, credit.decisions)[2:]] == pytest.approx(
        [-SMALL / 2, SMALL / 2], 1e-4
    )
    _, collected, early, _ = played(chat, think_solve(exact), RELAY, train_solo=True)
    assert early.decisions.keys() == {one.id for own in collected.episodes[:2] for one in own.decisions}


def test_a_truncated_reply_can_have_a_reward_of_0(chat: Any) -> None:
    method, collected, _, context = played(chat, think_solve(exact), RELAY, **{**V1, "group_size": 2})
    first, *rest = collected.rollouts
    thought, answer = first.episode.decisions
    cut = replace(first, episode=replace(first.episode, decisions=(replace(thought, action_ids=(5,)), answer)))
    credit = method.estimator(replace(collected, rollouts=(cut, *rest)), context, method.memory)
    # Delta = (1, -1) becomes a reward of (0, -1), and is (1, -1) in the moments.
    assert [own[0] for own in by_episode(collected.episodes, credit.decisions)] == pytest.approx([SMALL, -SMALL], 1e-4)
    assert credit.memory.of("thinker/contribution").mean == 0.0
    both = [replace(one, episode=replace(one.episode, decisions=(replace(one.episode.decisions[0], action_ids=(5,)),
            *one.episode.decisions[1:]))) for one in collected.rollouts[:2]]  # fmt: skip
    credit = method.estimator(replace(collected, rollouts=(*both, *rest[1:])), context, method.memory)
    assert [own[0] for own in by_episode(collected.episodes, credit.decisions)] == [0.0, 0.0]


def test_a_reply_with_another_end_token_of_the_policy_is_not_truncated(chat: Any) -> None:
    _, collected, _, context = played(chat, think_solve(exact), RELAY)
    first, *rest = collected.rollouts
    thought, answer = first.episode.decisions
    other = replace(first, episode=replace(first.episode, decisions=(replace(thought, action_ids=(5,)), answer)))
    knows = LocalContext(context.engine, end_tokens=(5, chat.tokenizer.eos_token_id))
    assert _zero_where_cut(collected, "thinker", _pairs(collected), [0.25, 0.75], context) == [0.25, 0.75]
    collected = replace(collected, rollouts=(other, *rest))
    assert _zero_where_cut(collected, "thinker", _pairs(collected), [0.25, 0.75], context) == [0.0, 0.75]
    assert _zero_where_cut(collected, "thinker", _pairs(collected), [0.25, 0.75], knows) == [0.25, 0.75]


def test_a_redundant_agent_has_an_advantage(chat: Any) -> None:
    """Against section 5 of the paper: a contribution of 0 is centred like any other."""
    replies = {"thinker": ["a", "b"], "solver": ["2", "5", "2", "2"]}
    _, collected, credit, _ = played(chat, think_solve(exact), replies)  # Delta = (0, 1)
    assert [own[0] for own in by_episode(collected.episodes, credit.decisions)] == pytest.approx([-SMALL, SMALL], 1e-4)


def test_outcomes_beyond_0_and_1_are_refused(chat: Any) -> None:
    decision = Decision(role="a", state=None, context_ids=(1,), action_ids=(2,), logprobs=None, action_text="")
    episode = Episode(decisions=(decision,), outcome=-1.0, ending=Ending.FINISHED)
    with pytest.raises(ValueError, match=r"outcomes must be in \[0, 1\] .*, got -1.0; "):
        CounterfactualAdvantages(roles=("a", "b"))(
            RolloutBatch(rollouts=(Rollout(episode=episode, instance=0),), rows=1), LocalContext(), Moments()
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"cut_replies": "zero", "reward": "shared"},
            "cut_replies='zero' needs .*, got reward='shared' and allocation='direct'; ",
        ),
        ({"cut_replies": "zero", "allocation": "weighted"}, "cut_replies='zero' needs .* and allocation='weighted'; "),
        ({"allocation": "weighted", "reward": "shared"}, "allocation='weighted' needs .*, got 'shared'; "),
        ({"train_solo": True, "solver_signal": "joint"}, "train_solo needs reward='counterfactual'"),
        ({"train_solo": True, "use_history": False}, "use_history=True, got 'counterfactual', 'fused', False"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        methods.make("counterfactual_grpo", **options)


def test_unsupported_teams_are_refused() -> None:
    def bind(team: Any, **options: Any) -> None:
        methods.make("counterfactual_grpo", **options).bind(team)

    with pytest.raises(ValueError, match=r"contributions need two or more roles, got 'voting' with .*voter_1; "):
        bind(voting(exact, str.strip, voters=1))
    events = [Event("ask", role="a"), Event("say", role="b", after="ask"), Event("end", role="b", after="say")]
    bind(Collaboration({"a": "", "b": ""}, events, "end", exact))
    from hf_credit.collaborations import Loop

    looped = Collaboration({"a": "", "b": ""}, events, "end", exact, loops=[Loop("say", target="ask", times=1)])
    with pytest.raises(ValueError, match="all roles but one must be removable"):
        bind(looped)
    bind(looped, reward="shared")
    with pytest.raises(ValueError, match=r"allocation='weighted' needs a vote .* got 'voting', in which ties='exp"):
        bind(ballot(), allocation="weighted")
    with pytest.raises(ValueError, match="in which the role 'solver' cannot be removed; use 'direct'"):
        bind(think_solve(exact), allocation="weighted")
    with pytest.raises(ValueError, match="reward='bonus' needs a team with a role that cannot be removed"):
        bind(ballot(), reward="bonus")
    assert Removals().bind(think_solve(exact)).removals == (("thinker",),)
