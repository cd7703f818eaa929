"""C3's credit of messages, computed by hand."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hf_credit import methods
from hf_credit.collectors import Rollout, RolloutBatch, Tree, VisitedContexts
from hf_credit.methods.replay_loo import LeaveOneOut
from hf_credit.rollouts import Decision, Ending, Episode, LocalContext, by_episode

PLAN, OTHER = (
    Decision(role="reasoner", state=None, context_ids=(7,), action_ids=(1,), logprobs=None, action_text=text)
    for text in ("plan", "other")
)


def leaf(plan: Decision, outcome: float, ending: Ending = Ending.FINISHED, prefix_length: int = 0) -> Episode:
    context = (8,) if plan is PLAN else (9,)
    actor = Decision(role="actor", state=None, context_ids=context, action_ids=(1,), logprobs=None, action_text="")
    return Episode(decisions=(plan, actor), outcome=outcome, ending=ending, prefix_length=prefix_length)


def collected(episodes: Sequence[Episode]) -> RolloutBatch:
    return RolloutBatch(rollouts=tuple(Rollout(episode=one, instance=0) for one in episodes), rows=1)


# Two plans, worth 3/4 and 1/4, with four answers under each.
TREE = collected(
    [
        *(leaf(PLAN, outcome, prefix_length=int(place > 0)) for place, outcome in enumerate((1, 1, 1, 0))),
        *(leaf(OTHER, outcome, prefix_length=int(place > 0)) for place, outcome in enumerate((0, 0, 0, 1))),
    ]
)


def credits(method: Any, what: RolloutBatch = TREE, **critics: Any) -> Any:
    return by_episode(what.episodes, method(what, LocalContext(critics=critics), None).decisions)


def test_a_message_is_credited_against_the_others_at_its_context() -> None:
    given = credits(LeaveOneOut())
    # Plans: 3/4 against 1/4. Answers under the first plan: 1 against (1 + 1 + 0) / 3, 0 against 1.
    assert [values[0] for values in given] == [0.5, None, None, None, -0.5, None, None, None]
    third = 1 / 3
    assert [values[1] for values in given] == pytest.approx([third, third, third, -1, -third, -third, -third, 1])


def test_a_critic_of_messages_is_a_share_of_the_baseline_and_learns_mean_returns() -> None:
    # What is expected of the plan is 0.5, of the other 0.25, of any answer 0.
    def critic(inputs: Any) -> list[tuple[float, ...]]:
        return [({(7, 1): 0.5}.get(one.ids, 0.0),) for one in inputs]

    credit = LeaveOneOut(value_assistance=0.5)(TREE, LocalContext(critics={"critic": critic}), None)
    # Both plans read the same, (7, 1), so 0.5 is expected of each: half of what the other returned, half of that.
    given = by_episode(TREE.episodes, credit.decisions)
    assert [given[0][0], given[4][0]] == pytest.approx([0.75 - (0.25 + 0.5) / 2, 0.25 - (0.75 + 0.5) / 2])
    (lesson,) = credit.critic_targets
    assert [one.ids for one in lesson.inputs][:2] == [(7, 1), (7, 1, 8, 1)]
    assert [target for (target,) in lesson.targets] == [0.75, 1, 1, 1, 0, 0.25, 0, 0, 0, 1]


def test_the_full_mean_is_what_the_ablation_subtracts() -> None:
    given = credits(LeaveOneOut(baseline="full_mean"))
    assert [given[0][0], given[4][0]] == [0.25, -0.25]
    assert [values[1] for values in given] == [0.25, 0.25, 0.25, -0.75, -0.25, -0.25, -0.25, 0.75]


def test_without_matched_contexts_answers_to_different_plans_are_compared() -> None:
    # Each answer against the seven others: 1 against 3/7, 0 against 4/7.
    answers = [values[1] for values in credits(LeaveOneOut(match_contexts=False))]
    assert answers == pytest.approx([4 / 7, 4 / 7, 4 / 7, -4 / 7, -4 / 7, -4 / 7, -4 / 7, 4 / 7])


def test_normalised_credit_is_the_same_for_both_baselines() -> None:
    first, second = (
        credits(LeaveOneOut(normalise_credit=True, baseline=name)) for name in ("leave_one_out", "full_mean")
    )
    # 3/4 and 1/4: one standard deviation each way. 1, 1, 1, 0: mean 3/4, deviation sqrt(3)/4.
    assert first[0] == pytest.approx([1.0, 3**-0.5])
    assert first[3][1] == pytest.approx(-(3**0.5))
    for one, other in zip(first, second, strict=True):
        assert one == pytest.approx(other)


def test_a_failed_episode_is_left_out() -> None:
    tree = collected(
        [
            leaf(PLAN, 1.0, Ending.ERROR),
            leaf(PLAN, 1.0, prefix_length=1),
            leaf(OTHER, 0.0),
            leaf(OTHER, 1.0, prefix_length=1),
        ]
    )
    assert credits(LeaveOneOut(), tree) == [[0.5, None], [None, None], [-0.5, -1.0], [None, 1.0]]


def test_each_return_is_clipped_before_it_is_averaged() -> None:
    # Clipped to 2: the plan's mean of 6 and -2 is that of 2 and -2, not 2.
    tree = collected([leaf(PLAN, 6.0), leaf(PLAN, -2.0, prefix_length=1), leaf(OTHER, 0.0)])
    given = credits(LeaveOneOut(return_clip=2.0), tree)
    assert [given[0][0], given[2][0]] == [0.0, 0.0]
    # Below as well: of -6 and 0 it is -1.
    tree = collected([leaf(PLAN, -6.0), leaf(PLAN, 0.0, prefix_length=1), leaf(OTHER, 0.0)])
    given = credits(LeaveOneOut(return_clip=2.0), tree)
    assert [given[0][0], given[2][0]] == [-1.0, 1.0]


def test_a_verified_copy_is_the_same_decision() -> None:
    """An oracle's verdict makes a copy of a decision, which keeps its continuations."""
    verdicts = [
        replace(
            sample, episode=replace(sample.episode, decisions=tuple(replace(one) for one in sample.episode.decisions))
        )
        for sample in TREE.rollouts
    ]
    assert credits(LeaveOneOut(), RolloutBatch(rollouts=tuple(verdicts), rows=1)) == credits(LeaveOneOut())


def test_a_message_is_not_compared_with_those_before_and_after_it_in_its_episode() -> None:
    """The first episode returns to the context X and has 1, the second sees it once and has 0."""

    def at(context: int) -> Decision:
        return replace(PLAN, context_ids=(context,), id=secrets.token_hex(8))

    first = Episode(decisions=(at(1), at(2), at(1)), outcome=1.0, ending=Ending.FINISHED)
    second = Episode(decisions=(at(1),), outcome=0.0, ending=Ending.FINISHED)
    assert credits(LeaveOneOut(), collected([first, second])) == [[1, None, 1], [-1]]
    assert credits(LeaveOneOut(), collected([first])) == [[None, None, None]]
    # The mean of the ablation has the message itself, and the other episode's.
    assert credits(LeaveOneOut(baseline="full_mean"), collected([first, second]))[0] == [0.5, None, 0.5]


def test_instances_are_not_compared_with_each_other() -> None:
    samples = [Rollout(episode=leaf(PLAN, 1.0), instance=0), Rollout(episode=leaf(OTHER, 0.0), instance=1)]
    assert credits(LeaveOneOut(), RolloutBatch(rollouts=tuple(samples), rows=2)) == [[None, None], [None, None]]


def test_the_options_determine_the_episodes() -> None:
    assert methods.make("replay_loo").collector == Tree(fanout=(2, 4), budget=8)
    assert methods.make("replay_loo", match_contexts=False).collector == Tree(fanout=(8,), budget=8)
    visited = methods.make("replay_loo", reference_rollouts=3, contexts=2, alternatives=[2], num_replays=2)
    assert not visited.estimator.equal_steps  # drawn contexts are no tree
    assert visited.collector == VisitedContexts(references=3, contexts=2, alternatives=2, replays=2, budget=8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alternatives": [1, 1], "budget": 2}, r"at least 1 at each step and at least 2 at some step, got \[1, 1\]"),
        ({"alternatives": []}, r"got \[\]"),
        ({"alternatives": [2, 3]}, r"budget must equal the product of alternatives=\[2, 3\] = 6, got 8"),
        ({"reference_rollouts": 1}, r"one number with reference_rollouts, got \[2, 4\]"),
        ({"reference_rollouts": 1, "alternatives": [3]}, r"2 \* 3 \* 1 = 6, got 8"),
        ({"value_assistance": 0.5, "baseline": "full_mean"}, "needs baseline='leave_one_out', got 'full_mean'"),
        ({"value_assistance": 0.5, "match_contexts": False}, "needs match_contexts=True, got False"),
    ],
)
def test_a_setting_out_of_range_is_refused_in_one_sentence(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        methods.make("replay_loo", **settings)
