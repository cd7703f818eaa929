"""AT2PO on trees written by hand."""

from __future__ import annotations

from hf_credit.methods.at2po import TurnValues
from hf_credit.methods.grpo import GroupScore
from hf_credit.rollouts import Ending


def tree(hand):
    """From the start, one turn with three leaves of outcome 1, 1 and 0, and two turns with a leaf of outcome 0."""
    first, second = hand.decision(), hand.decision()
    leaves = [hand.episode(first, hand.decision(), outcome=outcome) for outcome in (1.0, 1.0, 0.0)]
    return [*leaves, hand.episode(second, hand.decision(), outcome=0.0)]


def test_the_value_of_a_turn_is_the_mean_of_its_children(hand):
    # The leaves' mean is 1/2 and their deviation sqrt(1/3): in deviations .866, .866, -.866 and -.866.
    episodes = tree(hand)
    failed = hand.episode(episodes[0].decisions[0], hand.decision(), outcome=9.0, ending=Ending.ERROR)
    found = hand.credits(TurnValues(), *episodes, failed)
    assert found == [[0.289, 0.866], [None, 0.866], [None, -0.866], [-0.866, -0.866], [None, None]]


def test_children_have_equal_weight_for_any_number_of_leaves(hand):
    start, split = hand.decision(), hand.decision()
    below = [hand.episode(start, split, hand.decision(), outcome=outcome) for outcome in (1.0, 1.0, 1.0)]
    found = hand.credits(TurnValues(), *below, hand.episode(start, hand.decision(), outcome=-1.0))
    # In deviations the leaves are .5, .5, .5 and -1.5; their mean is 0, that of the two turns after the first is not.
    assert found == [[-0.5, 0.5, 0.5], [None, None, 0.5], [None, None, 0.5], [None, -1.5]]


def test_episodes_without_forks_are_credited_as_by_grpo(hand):
    outcomes, instances = (1.0, 0.0, 0.25, 3.0, 3.0), (0, 0, 0, 1, 1)
    episodes = [hand.episode(hand.decision(), hand.decision(), outcome=outcome) for outcome in outcomes]
    expected = hand.credits(GroupScore(eps=1e-6), *episodes, instances=instances)
    assert hand.credits(TurnValues(), *episodes, instances=instances) == expected
