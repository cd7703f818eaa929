"""CVT-RL on episodes written by hand, each part of the credit separately."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hf_credit import methods
from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.methods import Credit
from hf_credit.methods.cvt import (
    LIMITS,
    REPLACEMENT,
    ConstrainedCounterfactual,
    Constraints,
    Replacement,
    counterfactual,
)
from hf_credit.oracles.auditing import AUDIT, VERIFIED, Audit
from hf_credit.rollouts import Decision, Ending, Episode, LocalContext
from hf_credit.rollouts.chat import Chat

# Only the contribution counts, at gamma and lambda 1.
BARE: dict[str, Any] = {
    "answer": 1.0, "evidence": 0.0, "meta": 0.0, "belief": 0.0, "contribution": 0.0, "hack": 0.0,
    "contribution_advantage": 1.0, "hack_advantage": 0.0, "gamma": 1.0, "lam": 1.0, "constrained": False,
    "families": {"deletion": 0.25, "substitution": 0.3},
}  # fmt: skip


class GivenContext(LocalContext):
    """A context with given log-probabilities and critics."""

    def __init__(self, chat: Chat, frozen: Mapping[str, Any] = {}, current: Mapping[str, Any] = {}) -> None:
        super().__init__(critics={"critic": lambda inputs: [(0.0,) * len(one.at) for one in inputs]})
        self.chat, self.given = chat, {"frozen": frozen, "current": current}
        self.asked: list[list[str]] = []

    def logprobs(self, decisions: Sequence[Decision], policy: Any = "current") -> list[tuple[float, ...]]:
        self.asked.append([one.id for one in decisions])
        return [self.given[policy][one.id] for one in decisions]


def values(credit: Credit) -> list[Any]:
    """In the order of the decisions."""
    return list(credit.decisions.values())


def decision(name: str = "d", audit: Audit | None = None, reply: Sequence[int] = (5,)) -> Decision:
    return Decision(
        role="agent",
        state=None,
        context_ids=(1, 2),
        action_ids=tuple(reply),
        logprobs=None,
        action_text="",
        id=name,
        extras={AUDIT: audit or Audit()},
    )


def episode(*decisions: Decision, check: float = 0.0, verified: float | None = 0.0, **changed: Any) -> Episode:
    extras = {} if verified is None else {VERIFIED: verified}
    return Episode(decisions=decisions, outcome=check, extras=extras, **{"ending": Ending.FINISHED, **changed})


def branch(
    source: str, family: str, verified: float | None, probability: float = 1.0, *decisions: Decision, **changed: Any
) -> Rollout:
    return Rollout(
        episode=episode(*decisions, verified=verified, **changed),
        instance=0,
        trained=False,
        kind=counterfactual(family),
        source=source,
        extras={REPLACEMENT: Replacement(probability=probability, features=(0.0,), reply=(6,))},
    )


def collected(*episodes: Episode, branches: Sequence[Rollout] = ()) -> RolloutBatch:
    return RolloutBatch(rollouts=(*(Rollout(episode=one, instance=0) for one in episodes), *branches), rows=1)


def estimator(**changed: Any) -> ConstrainedCounterfactual:
    found = methods.make("constrained_counterfactual", **{"refresh_every": 1, **BARE, **changed}).estimator
    assert isinstance(found, ConstrainedCounterfactual)
    return found


def outcome_says(step: float, replaced: float = 0.0) -> Callable[[Any], Any]:
    return lambda inputs: [(0.0, step) if len(one.at) == 2 else (replaced,) for one in inputs]


@pytest.fixture
def context(chat: Chat) -> GivenContext:
    found = GivenContext(chat)
    found.critics["outcome"] = outcome_says(0.4, 0.3)
    return found


def test_a_contribution_is_the_step_minus_its_replacements_divided_by_its_probability(context: GivenContext) -> None:
    branches = [
        *(branch("d", "deletion", y, 0.5) for y in (0.0, 1.0)),  # (1 - .5) / .5 = 1
        *(branch("d", "substitution", y, 0.5) for y in (0.0, 0.0)),  # (1 - 0) / .5 = 2
    ]
    credit = estimator()(collected(episode(decision(), verified=1.0), branches=branches), context, Constraints())
    assert values(credit)[0] == pytest.approx((0.25 * 1 + 0.3 * 2) / 0.55)


def test_advantages_are_generalised_and_the_critic_learns_their_returns(context: GivenContext) -> None:
    context.critics["critic"] = lambda inputs: [(0.4,) * len(one.at) for one in inputs]
    walk = collected(episode(decision("a"), decision("b"), check=1.0))
    credit = estimator(gamma=0.5, lam=0.8)(walk, context, Constraints())
    # 0 + .5 x .4 - .4 = -.2 and 1 - .4 = .6; the first is -.2 + .5 x .8 x .6.
    assert values(credit) == pytest.approx([0.04, 0.6])
    targets = next(one for one in credit.critic_targets if one.critic == "critic")
    assert [value for own in targets.targets for value in own] == pytest.approx([0.44, 1.0])


def test_a_family_without_an_estimate_is_missing_and_not_0(context: GivenContext) -> None:
    failed = branch("d", "substitution", 0.0, ending=Ending.ERROR)
    branches = [branch("d", "deletion", 0.0), failed]
    credit = estimator()(collected(episode(decision(), verified=1.0), branches=branches), context, Constraints())
    assert values(credit)[0] == pytest.approx(1.0)
    alone = estimator()(collected(episode(decision(), verified=1.0), branches=[failed]), context, Constraints())
    assert values(alone)[0] == 0.0  # all families missing


def test_the_reward_is_one_tanh_of_the_mean_over_families(context: GivenContext) -> None:
    branches = [branch("d", "deletion", 0.0), branch("d", "substitution", 1.0)]
    own = estimator(contribution=0.6, contribution_advantage=0.0)
    credit = own(collected(episode(decision(), verified=1.0), branches=branches), context, Constraints())
    assert values(credit)[0] == pytest.approx(0.6 * math.tanh(2 * 0.25 / 0.55))


def test_a_hack_that_passes_the_check_has_no_verified_success(context: GivenContext) -> None:
    branches = [branch("d", "deletion", 0.0, check=0.0)]
    hacked = collected(episode(decision(), check=1.0, verified=0.0), branches=branches)
    bare = {"answer": 0.0, "contribution": 1e-9}
    assert values(estimator(**bare)(hacked, context, Constraints()))[0] == pytest.approx(0.0, abs=1e-6)
    paid = estimator(**bare, contribution_to="check")(hacked, context, Constraints())
    assert values(paid)[0] == pytest.approx(1.0)  # which is why it is not the default


def test_the_ratio_is_of_later_decisions_action_tokens_clipped_after_the_product(chat: Chat) -> None:
    frozen = {"b": (-1.0, -1.0), "c": (-0.2,)}
    current = {"b": (-1.5, -1.2), "c": (-0.4,)}
    context = GivenContext(chat, frozen, current)
    context.critics["outcome"] = outcome_says(0.4)
    walk = episode(decision("a"), decision("b", reply=(5, 6)), decision("c"), verified=1.0)
    found = collected(walk, branches=[branch("a", "deletion", 0.0)])
    own = estimator(refresh_every=5)
    ratio = math.exp(0.5 + 0.2 + 0.2)
    credit = own(found, context, Constraints())
    assert values(credit)[0] == pytest.approx(0.4 + ratio * 0.6)
    assert set(context.asked[0]) == {"b", "c"}  # not the step's own
    capped = estimator(refresh_every=5, ratio_high=2.0)(found, context, Constraints())
    assert values(capped)[0] == pytest.approx(0.4 + 2.0 * 0.6)


@pytest.mark.parametrize(("low", "ratio"), [(0.5, 0.5), (0.2, math.exp(-1.5))])
def test_a_ratio_below_the_lower_bound_is_raised_to_it(chat: Chat, low: float, ratio: float) -> None:
    # By eq. 5 the copy plays the later decision with e^-1.5 = .223 of the policy's probability; by eq. 6 the step is
    # worth .4 + ratio (1 - .4), and its replacement 0.
    context = GivenContext(chat, {"b": (-2.0,)}, {"b": (-0.5,)})
    context.critics["outcome"] = outcome_says(0.4)
    found = collected(episode(decision("a"), decision("b"), verified=1.0), branches=[branch("a", "deletion", 0.0)])
    credit = estimator(refresh_every=5, ratio_low=low)(found, context, Constraints())
    assert values(credit)[0] == pytest.approx(0.4 + ratio * 0.6)


@pytest.mark.parametrize(("by", "answer"), [("check", 1.0), ("verified", 0.25)])
def test_the_answer_is_rewarded_by_the_check_or_the_verified_success(
    context: GivenContext, by: str, answer: float
) -> None:
    # By eq. 3 only the last step has it, times lambda_y = .5; at gamma and lambda 1 and V = 0 both steps get it.
    hacked = collected(episode(decision("a"), decision("b"), check=1.0, verified=0.25))
    credit = estimator(answer=0.5, answer_by=by)(hacked, context, Constraints())
    assert values(credit) == pytest.approx([0.5 * answer] * 2)


def test_nothing_follows_the_last_step_so_its_ratio_is_one(chat: Chat) -> None:
    context = GivenContext(chat)
    context.critics["outcome"] = outcome_says(0.9)
    found = collected(episode(decision("a"), verified=1.0), branches=[branch("a", "deletion", 0.25)])
    assert values(estimator(refresh_every=5)(found, context, Constraints()))[0] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"estimator": "dr"}, 1 - 0.0),  # with a ratio of 1 the model cancels
        ({"estimator": "ips"}, 1 - 0.0),
        ({"estimator": "model"}, 0.4 - 0.3),
        ({"estimator": "sequential"}, 1 - 0.0),
        ({"estimator": "process"}, 0.4 - 0.4),  # less the mean over all steps, of which it is the only one
    ],
)
def test_the_estimate_of_each_estimator(context: GivenContext, changed: dict[str, Any], expected: float) -> None:
    found = collected(episode(decision(), verified=1.0), branches=[branch("d", "deletion", 0.0)])
    assert values(estimator(**changed)(found, context, Constraints()))[0] == pytest.approx(expected)


@pytest.mark.parametrize(("selection", "expected"), [("inverse", 4.0), ("none", 1.0), ("augmented", 0.4 + 0.6 / 0.25)])
def test_the_estimate_with_each_correction_of_the_selection(
    context: GivenContext, selection: str, expected: float
) -> None:
    found = collected(episode(decision(), verified=1.0), branches=[branch("d", "deletion", 0.0, 0.25)])
    credit = estimator(selection=selection)(found, context, Constraints())
    assert values(credit)[0] == pytest.approx(expected)


def test_steps_that_were_not_drawn_are_trained_on_without_a_contribution(context: GivenContext) -> None:
    walk = episode(decision("a"), decision("b"), check=1.0, verified=1.0)
    credit = estimator()(collected(walk, branches=[branch("a", "deletion", 0.0)]), context, Constraints())
    assert values(credit) == pytest.approx([1.0 + 1.0, 1.0])


def test_costs_have_separate_advantages_and_multipliers_change_after_use(context: GivenContext) -> None:
    own = estimator(constrained=True, limits={"tampering": 0.2}, contribution_advantage=0.0)
    dear = episode(decision("a", Audit(costs={"tampering": 1.0})))
    free = episode(decision("b", Audit()))
    credit = own(collected(dear, free), context, Constraints(multipliers=(("tampering", 0.5),)))
    weight = 0.5 + 2 * (0.5 - 0.2)  # lambda + rho [J - d]_+
    assert values(credit) == pytest.approx([-weight, weight])
    assert dict(credit.memory.multipliers) == pytest.approx({"tampering": 0.5 + 0.05 * 0.3})
    same = own(
        collected(dear, replace(dear, decisions=(decision("b", Audit(costs={"tampering": 1.0})),))),
        context,
        Constraints(),
    )
    assert values(same) == pytest.approx([0.0, 0.0])  # J - d is a constant, and moves nothing


def test_multipliers_belong_to_costs_by_name_and_new_ones_start_at_0(context: GivenContext) -> None:
    found = collected(episode(decision("a", Audit(costs={"tampering": 1.0}))))
    memory = Constraints(multipliers=(("unsafe", 0.25), ("tampering", 0.5)))
    limits = {"tampering": 1.0, "skipped": 0.0, "unsafe": 0.0}
    own = estimator(constrained=True, limits=limits, contribution_advantage=0.0)
    assert own(found, context, memory).memory.multipliers == (("tampering", 0.5), ("skipped", 0.0), ("unsafe", 0.25))
    fewer = estimator(constrained=True, limits={"tampering": 1.0}, contribution_advantage=0.0)
    assert fewer(found, context, memory).memory.multipliers == (("tampering", 0.5),)


def test_limits_are_the_papers_by_name_in_the_order_of_section_3_3() -> None:
    assert list(LIMITS.items()) == [
        ("tampering", 0.02), ("unsupported", 0.04), ("skipped", 0.03), ("unsafe", 0.06), ("budget", 0.15)
    ]  # fmt: skip


def test_episodes_without_decisions_or_an_answer_get_no_credit(context: GivenContext) -> None:
    own = estimator(constrained=True, limits={"tampering": 0.1}, evidence=0.45)
    credit = own(collected(episode(), episode(decision("a", Audit(kind="think")))), context, Constraints())
    assert values(credit) == [0.0]
    assert own(collected(episode()), context, Constraints()).decisions == {}


def test_episodes_without_a_verified_success_get_no_credit(context: GivenContext) -> None:
    failed = episode(decision("a"), verified=None, ending=Ending.ERROR)
    credit = estimator()(collected(failed, episode(decision("b"), check=1.0, verified=1.0)), context, Constraints())
    assert values(credit) == [1.0]


def test_hacks_reduce_reward_and_advantage_by_the_maximum_detector_score(context: GivenContext) -> None:
    own = estimator(hack=0.8, hack_advantage=0.9, contribution_advantage=0.0)
    credit = own(collected(episode(decision("a", Audit(hacks={"x": 0.2, "y": 0.5})))), context, Constraints())
    assert values(credit)[0] == pytest.approx(-0.5 * (0.8 + 0.9))


def test_the_other_terms_of_the_reward_are_those_of_the_audit(context: GivenContext) -> None:
    own = estimator(evidence=0.45, meta=0.18, contribution_advantage=0.0)
    read = decision("a", Audit(kind="read", uncertainty=(0.9, 0.4)))
    lost = decision("b", Audit(kind="verify", uncertainty=(0.4, 0.6)))  # less is not paid back
    final = decision("c", Audit(kind="final", final=True, evidence=0.5, entailment=1.0, uncertainty=(0.6, 0.0)))
    credit = own(collected(episode(read, lost, final, check=1.0)), context, Constraints())
    end = 1.0 + 0.45 * 2 / 3
    assert values(credit) == pytest.approx([0.18 * 0.5 + end, end, end])


def test_the_critic_learns_the_shaped_return_without_contributions_or_costs(context: GivenContext) -> None:
    own = estimator(constrained=True, limits={"tampering": 0.0}, hack_advantage=0.9)
    walk = episode(decision("a", Audit(costs={"tampering": 1.0}, hacks={"x": 1.0})), check=1.0, verified=1.0)
    found = collected(walk, branches=[branch("a", "deletion", 0.0)])
    lesson = own(found, context, Constraints()).critic_targets[0]
    assert (lesson.critic, lesson.targets, lesson.values) == ("critic", [(1.0,)], [(0.0,)])


def test_the_outcome_model_learns_after_its_predictions(context: GivenContext) -> None:
    branches = [branch("d", "deletion", 0.0), branch("d", "substitution", 1.0, ending=Ending.ERROR)]
    found = collected(episode(decision(), verified=1.0), branches=branches)
    lesson = estimator()(found, context, Constraints()).critic_targets[1]
    assert lesson.critic == "outcome"
    assert lesson.targets == [(1.0, 1.0), (0.0,)]  # what failed teaches nothing
    assert lesson.values == [(0.0, 0.4), (0.3,)]
    assert lesson.inputs[0].ids == (1, 2, 5)
    assert lesson.inputs[1].ids[:3] == (1, 2, 6)  # what stands in its place, and the mark of the family
    assert len(lesson.inputs[1].ids) > 3


def test_the_outcome_model_learns_outcomes_of_the_copy_and_not_of_another_policy(chat: Chat) -> None:
    context = GivenContext(chat, frozen={"b": (-1.0,), "c": (-2.0,)}, current={"b": (-1.0,), "c": (-0.1,)})
    context.critics["outcome"] = outcome_says(0.4, 0.3)
    walk = episode(decision("a"), decision("b"), decision("c"), verified=1.0)
    branches = [
        *(branch("a", "paraphrase", y) for y in (0.0, 1.0, 0.0, 0.0)),  # the copy, after the step itself
        branch("a", "paraphrase", 1.0, ending=Ending.ERROR),
        branch("b", "deletion", 0.0),  # only the policy played on from the second step, unlike the copy
        branch("c", "deletion", 0.0),  # nothing follows the last one
    ]
    own = estimator(refresh_every=5, families={"deletion": 0.5, "paraphrase": 0.5})
    lesson = own(collected(walk, branches=branches), context, Constraints()).critic_targets[1]
    assert [target for target in lesson.targets if len(target) == 2] == [(0.25, 0.25), (1.0, 1.0)]  # of a and c
    assert len(lesson.inputs) == 2 + 4 + 2


def test_the_outcome_model_learns_later_decisions_if_the_copy_plays_them_equally(chat: Chat) -> None:
    same = {"b": (-1.0,), "c": (-0.5,)}
    for frozen, taught in (({"b": (-1.0,), "c": (-0.5,)}, 3), ({"b": (-2.0,), "c": (-0.5,)}, 1)):
        context = GivenContext(chat, frozen, same)
        context.critics["outcome"] = outcome_says(0.4, 0.3)
        found = collected(
            episode(decision("a"), decision("b"), decision("c"), verified=1.0),
            branches=[branch("a", "deletion", 0.0)],
        )
        lesson = estimator(refresh_every=5, estimator="sequential")(found, context, Constraints()).critic_targets[1]
        assert [len(target) for target in lesson.targets].count(2) == taught


def test_outcomes_of_paraphrases_count_for_the_step(context: GivenContext) -> None:
    branches = [branch("d", "deletion", 0.0), *(branch("d", "paraphrase", y) for y in (0.0, 1.0, 0.0))]
    own = {"families": {"deletion": 0.5, "paraphrase": 0.5}}
    found = collected(episode(decision(), verified=1.0), branches=branches)
    worth = (1.0 + 0.0 + 1.0 + 0.0) / 4
    for name in ("dr", "ips", "sequential"):
        credit = estimator(estimator=name, **own)(found, context, Constraints())
        assert values(credit)[0] == pytest.approx((worth - 0.0 + worth - 1 / 3) / 2)
    credit = estimator(estimator="model", **own)(found, context, Constraints())
    assert values(credit)[0] == pytest.approx(0.4 - 0.3)


def test_the_information_matched_baseline_scores_every_step(context: GivenContext) -> None:
    says = iter((0.2, 0.8, 0.5))
    context.critics["outcome"] = lambda inputs: [(0.0, next(says)) if len(one.at) == 2 else (0.3,) for one in inputs]
    walks = [episode(decision("a"), decision("b"), verified=1.0), episode(decision("c"))]
    found = collected(*walks, branches=[branch("a", "deletion", 0.0, 0.25)])
    credit = estimator(estimator="process", answer=1e-9)(found, context, Constraints())
    assert values(credit) == pytest.approx([-0.3, 0.3, 0.0])


def test_sequential_corrections_clip_the_ratio_of_each_decision(chat: Chat) -> None:
    frozen, current = {"b": (0.0,), "c": (-5.0,)}, {"b": (-3.0,), "c": (0.0,)}
    context = GivenContext(chat, frozen, current)
    context.critics["outcome"] = lambda inputs: [(0.5, 0.25) if len(one.at) == 2 else (0.0,) for one in inputs]
    walk = episode(decision("a"), decision("b"), decision("c"), verified=1.0)
    found = collected(walk, branches=[branch("a", "deletion", 0.0)])
    credit = estimator(refresh_every=5, estimator="sequential")(found, context, Constraints())
    later = 0.5 + 0.2 * (1.0 - 0.25)
    assert values(credit)[0] == pytest.approx(0.5 + 5.0 * (later - 0.25))


def test_costs_are_discounted_in_means_and_advantages(context: GivenContext) -> None:
    own = estimator(gamma=0.5, constrained=True, limits={"tampering": 0.0}, penalty=0.0, contribution_advantage=0.0)
    dear = episode(decision("a"), decision("b", Audit(costs={"tampering": 1.0})))
    found = collected(dear, episode(decision("c"), decision("d")))
    credit = own(found, context, Constraints(multipliers=(("tampering", 1.0),)))
    assert context.metrics["costs/tampering"] == [0.25]
    assert values(credit) == pytest.approx([-0.5, -1.0, 0.5, 1.0])


def test_the_belief_reward_uses_predictions_before_the_update(chat: Chat) -> None:
    context = GivenContext(chat)
    context.critics["belief"] = lambda inputs: [(0.9, 0.1) for _ in inputs]
    own = replace(estimator(belief=0.25, contribution_advantage=0.0), slots=(("phase", 2),))
    walk = episode(decision("a", Audit(beliefs={"phase": (0.5, 0.5)})))
    credit = own(collected(walk), context, Constraints())
    assert values(credit)[0] == pytest.approx(-0.25 * (0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(5)))
    taught = credit.critic_targets[-1]
    assert (taught.critic, taught.targets, taught.values) == ("belief", [(0.5, 0.5)], [(0.9, 0.1)])
    nothing = own(collected(episode(decision("b", Audit()))), context, Constraints()).critic_targets[-1]
    assert all(math.isnan(share) for share in nothing.targets[0])


@pytest.mark.parametrize("method", ["dr", "ips", "model", "process"])
def test_the_outcome_of_contributions_is_in_0_to_1(method: str, context: GivenContext) -> None:
    own = estimator(estimator=method, contribution_to="check")
    for played, replaced in ((2.0, 0.0), (1.0, -3.0)):
        found = collected(
            episode(decision("a"), check=played), branches=[branch("a", "deletion", 0.0, check=replaced)]
        )
        if method != "process" or played > 1:
            with pytest.raises(ValueError, match=r"the outcome Y of contributions must be in \[0, 1\], got"):
                own(found, context, Constraints())


def test_the_selector_learns_whether_deleting_a_step_changed_a_verifier(context: GivenContext) -> None:
    found = collected(
        episode(decision("a"), verified=1.0),
        episode(decision("b"), verified=1.0),
        branches=[branch("a", "deletion", 0.0), branch("b", "deletion", 1.0), branch("b", "substitution", 0.0)],
    )
    memory = estimator()(found, context, Constraints()).memory
    assert [label for _, label in memory.selector.examples] == [1.0, 0.0]
    assert memory.updates == 1


def test_a_hack_before_the_deleted_step_is_in_both_results(context: GivenContext) -> None:
    hack, fine = Audit(kind="meta", hacks={"leak": 1.0}), Audit(kind="read")
    walk = episode(decision("a", hack), decision("b", fine), decision("c", fine), verified=1.0)
    same, other = decision("d", fine), decision("e", hack)
    found = collected(
        walk,
        branches=[
            branch("a", "deletion", 1.0, 1.0, same),  # without the hack itself
            branch("b", "deletion", 1.0, 1.0, same),
            branch("c", "deletion", 1.0, 1.0, other),  # the same category once more
        ],
    )
    examples = estimator()(found, context, Constraints()).memory.selector.examples
    assert [label for _, label in examples] == [1.0, 0.0, 0.0]


def test_costs_of_episodes_that_share_a_step_are_no_baseline_of_it(context: GivenContext) -> None:
    own = estimator(
        counterfactuals="extra", contribution_advantage=0.0, constrained=True, limits={"tampering": 9.0}, hack=0.0
    )
    dear = Audit(costs={"tampering": 1.0})
    found = []
    for forks in (0, 3):
        whole = [episode(decision("a", dear), decision("after a")), episode(decision("b"), decision("after b"))]
        extra = [replace(whole[0], decisions=(whole[0].decisions[0], decision(f"f{k}"))) for k in range(forks)]
        rollouts = [*(Rollout(episode=one, instance=0) for one in whole)]
        rollouts += [Rollout(episode=one, instance=0, counted=False) for one in extra]
        batch = RolloutBatch(rollouts=tuple(rollouts), rows=1)
        credit = own(batch, context, Constraints(multipliers=(("tampering", 0.5),)))
        found.append([credit.decisions["a"], credit.decisions["b"]])
    assert found == [pytest.approx([-0.5, 0.5])] * 2


def test_costs_of_continuations_are_not_in_the_means(context: GivenContext) -> None:
    own = estimator(
        counterfactuals="extra", contribution_advantage=0.0, constrained=True, limits={"tampering": 0.2}, hack=0.0
    )
    dear = Audit(costs={"tampering": 1.0}, true_hacks=frozenset({"stamp"}))
    whole = [Rollout(episode=episode(decision(name, Audit())), instance=0) for name in "ab"]
    forks = [Rollout(episode=episode(decision(name, dear)), instance=0, counted=False) for name in "cdef"]
    credit = own(
        RolloutBatch(rollouts=(*whole, *forks), rows=1), context, Constraints(multipliers=(("tampering", 0.5),))
    )
    assert (context.metrics["costs/tampering"], context.metrics["hacks/true"]) == ([0.0], [0.0])
    assert dict(credit.memory.multipliers) == pytest.approx({"tampering": 0.5 - 0.05 * 0.2})
    assert values(credit) == pytest.approx([0.5 * 4 / 5] * 2 + [-0.5 * 2 / 5] * 4)
    assert own(
        RolloutBatch(rollouts=tuple(forks), rows=1), context, Constraints(multipliers=(("tampering", 0.5),))
    ).memory.multipliers
