"""Who is compared with whom."""

from __future__ import annotations

from hf_credit.rollouts import Decision, Ending, Episode, alternatives


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


def test_a_message_is_worth_the_mean_of_the_leaves_under_it():
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


def test_the_first_episode_that_holds_a_message_is_its_place():
    tree = [leaf(PLAN, 1, "a", 1.0), leaf(PLAN, 1, "b", 0.0)]
    assert [found.place for found in alternatives(tree)] == [(0, 0), (0, 1), (1, 1)]


def test_equal_messages_that_were_sampled_twice_are_two_alternatives():
    twin = decision("reasoner", 7, "plan")
    found = table([leaf(PLAN, 1, "a", 1.0), leaf(twin, 1, "b", 0.0)])
    assert found == [("plan", 0, (1.0,)), ("a", 1, (1.0,)), ("plan", 0, (0.0,)), ("b", 1, (0.0,))]


def test_contexts_reached_on_two_ways_are_one_bucket():
    buckets = [bucket for _, bucket, _ in table([leaf(PLAN, 1, "a", 1.0), leaf(OTHER, 1, "b", 0.0)])]
    assert buckets == [0, 1, 0, 1]


def test_instances_are_never_compared_with_each_other():
    buckets = [bucket for _, bucket, _ in table([leaf(PLAN, 1, "a", 1.0), leaf(OTHER, 1, "b", 0.0, start=1)])]
    assert buckets == [0, 1, 2, 3]


def test_event_types_are_never_compared_with_each_other():
    found = alternatives([episode(decision("solver", 3), decision("checker", 3), outcome=1.0)])
    assert [one.bucket for one in found] == [0, 1]


def test_without_matching_a_message_meets_all_of_its_event_and_occurrence():
    loop = [decision("writer", 1), decision("writer", 2)]
    again = [decision("writer", 3), decision("writer", 4)]
    found = alternatives([episode(*loop, outcome=1.0), episode(*again, outcome=0.0)], match_contexts=False)
    assert [one.bucket for one in found] == [0, 1, 0, 1]


def test_a_failed_episode_counts_for_nobody():
    tree = [leaf(PLAN, 1, "a", 0.0, ending=Ending.ERROR), leaf(PLAN, 1, "b", 1.0)]
    assert table(tree) == [("plan", 0, (1.0,)), ("b", 1, (1.0,))]
