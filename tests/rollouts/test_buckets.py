"""Buckets of decisions that are compared with each other."""

from __future__ import annotations

from dataclasses import replace

from hf_credit.rollouts import Decision, Ending, Episode, Verdict, alternatives


def decision(event: str, context: int, text: str = "") -> Decision:
    return Decision(role=event, state=None, context_ids=(context,), action_ids=(1,), logprobs=None, action_text=text)


def episode(*decisions: Decision, outcome: float, start: int = 0, ending: Ending = Ending.FINISHED) -> Episode:
    return Episode(decisions=decisions, outcome=outcome, ending=ending, start=start)


def table(episodes, **options):
    """Text, bucket and outcomes of every alternative."""
    return [(found.decision.action_text, found.bucket, found.outcomes) for found in alternatives(episodes, **options)]


PLAN, OTHER = decision("reasoner", 7, "plan"), decision("reasoner", 7, "other")


def leaf(plan: Decision, context: int, text: str, outcome: float, **more) -> Episode:
    return episode(plan, decision("actor", context, text), outcome=outcome, **more)


def test_the_value_of_a_message_is_the_mean_of_its_leaves():
    tree = [leaf(PLAN, 1, "a", 1.0), leaf(PLAN, 1, "b", 0.0), leaf(OTHER, 2, "c", 0.5), leaf(OTHER, 2, "d", 0.25)]
    assert table(tree) == [
        ("plan", 0, (1.0, 0.0)),
        ("a", 1, (1.0,)),
        ("b", 1, (0.0,)),
        ("other", 0, (0.5, 0.25)),
        ("c", 2, (0.5,)),
        ("d", 2, (0.25,)),
    ]
    assert [found.mean_outcome for found in alternatives(tree)][::3] == [0.5, 0.375]


def test_the_place_of_a_message_is_its_first_episode():
    tree = [leaf(PLAN, 1, "a", 1.0), leaf(PLAN, 1, "b", 0.0)]
    assert [found.place for found in alternatives(tree)] == [(0, 0), (0, 1), (1, 1)]


def test_equal_messages_that_were_sampled_twice_are_two_alternatives():
    twin = decision("reasoner", 7, "plan")
    found = table([leaf(PLAN, 1, "a", 1.0), leaf(twin, 1, "b", 0.0)])
    assert found == [("plan", 0, (1.0,)), ("a", 1, (1.0,)), ("plan", 0, (0.0,)), ("b", 1, (0.0,))]


def test_equal_contexts_after_different_decisions_are_one_bucket():
    buckets = [bucket for _, bucket, _ in table([leaf(PLAN, 1, "a", 1.0), leaf(OTHER, 1, "b", 0.0)])]
    assert buckets == [0, 1, 0, 1]


def test_instances_are_never_compared_with_each_other():
    buckets = [bucket for _, bucket, _ in table([leaf(PLAN, 1, "a", 1.0), leaf(OTHER, 1, "b", 0.0, start=1)])]
    assert buckets == [0, 1, 2, 3]


def test_event_types_are_never_compared_with_each_other():
    found = alternatives([episode(decision("solver", 3), decision("checker", 3), outcome=1.0)])
    assert [one.bucket for one in found] == [0, 1]


def test_without_matching_a_bucket_has_all_messages_of_an_event_and_occurrence():
    loop = [decision("writer", 1), decision("writer", 2)]
    again = [decision("writer", 3), decision("writer", 4)]
    found = alternatives([episode(*loop, outcome=1.0), episode(*again, outcome=0.0)], match_contexts=False)
    assert [one.bucket for one in found] == [0, 1, 0, 1]


def test_a_failed_episode_counts_in_no_mean():
    tree = [leaf(PLAN, 1, "a", 0.0, ending=Ending.ERROR), leaf(PLAN, 1, "b", 1.0)]
    assert table(tree) == [("plan", 0, (1.0,)), ("b", 1, (1.0,))]


def test_a_branch_with_more_forks_has_no_more_weight():
    """Three forks, 2 x 2 x 2; the first alternative of the second step ends, the other continues to four leaves."""
    root = decision("a", 1, "root")
    ends, goes = decision("b", 2, "ends"), decision("b", 2, "goes")
    tree = [episode(root, ends, outcome=0.0)]
    tree[0] = replace(tree[0], branch=(0, 0), num_leaves=2)
    for number, outcome in enumerate((1.0, 0.0)):
        last = decision("c", 3, str(number))
        tree.append(replace(episode(root, goes, last, outcome=outcome), branch=(0, 1, number)))
    found = {one.decision.action_text: one for one in alternatives(tree)}
    # Of the two ways of the second step one is worth 0 and one 1/2: by leaves it would be 1/3.
    assert found["root"].mean_outcome == 0.25
    assert found["goes"].mean_outcome == 0.5
    # The one that ended stands for the two replays that it would have had.
    assert [found[name].count for name in ("root", "ends", "goes")] == [4, 2, 2]
    assert found["root"].outcomes == (0.0, 1.0, 0.0)


def test_outcomes_are_clipped_before_they_are_averaged():
    tree = [leaf(PLAN, 1, "a", 6.0), leaf(PLAN, 1, "b", -2.0)]
    assert alternatives(tree, return_clip=2.0)[0].mean_outcome == 0.0
    assert alternatives(tree)[0].mean_outcome == 2.0


def test_a_copy_of_a_decision_is_the_same_decision():
    """An oracle's verdict makes a copy of a decision, which keeps its leaves."""
    judged = [
        replace(one, decisions=tuple(replace(each, verdict=Verdict(score=1.0)) for each in one.decisions))
        for one in (leaf(PLAN, 1, "a", 1.0), leaf(PLAN, 1, "b", 0.0))
    ]
    assert table(judged)[0] == ("plan", 0, (1.0, 0.0))


def test_instances_can_be_passed():
    tree = [leaf(PLAN, 1, "a", 1.0), leaf(OTHER, 2, "b", 0.0)]
    assert [bucket for _, bucket, _ in table(tree, instances=[0, 1])] == [0, 1, 2, 3]
    assert [bucket for _, bucket, _ in table(tree, instances=[4, 4])] == [0, 1, 0, 2]


def test_forks_that_were_added_later_are_branches_like_planned_ones():
    # Its first continuation was forked into four that end at 1, its second ends at 0.
    middle, end = decision("actor", 3, "middle"), decision("actor", 4, "end")
    forked = [episode(PLAN, middle, decision("actor", 5, str(one)), outcome=1.0) for one in range(4)]
    (found, *_) = alternatives([*forked, episode(PLAN, end, outcome=0.0)])
    assert (found.decision.action_text, found.mean_outcome) == ("plan", 0.5)
