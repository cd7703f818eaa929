"""Rows have every credited token once, with the advantage of its decision."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit.rollouts import Decision, Ending, Episode, Row, by_episode, decision_rows


def decision(context, action, role="agent", logprobs=None):
    return Decision(
        role=role,
        state=None,
        context_ids=tuple(context),
        action_ids=tuple(action),
        logprobs=None if logprobs is None else tuple(logprobs),
        action_text="",
    )


def row(prompt, completion, mask, advantages, logprobs=None, role="agent"):
    return Row(
        prompt_ids=tuple(prompt),
        completion_ids=tuple(completion),
        loss_mask=tuple(mask),
        advantages=tuple(advantages),
        logprobs=None if logprobs is None else tuple(logprobs),
        role=role,
    )


# By hand


def test_turns_whose_context_grows_by_appending_share_a_row():
    turns = [decision([1, 2], [3, 4]), decision([1, 2, 3, 4, 5], [6]), decision([1, 2, 3, 4, 5, 6, 7, 8], [9])]
    assert decision_rows(turns, [0.5, -1.0, 2.0]) == [
        row([1, 2], [3, 4, 5, 6, 7, 8, 9], [1, 1, 0, 1, 0, 0, 1], [0.5, 0.5, 0, -1.0, 0, 0, 2.0])
    ]


def test_turns_with_only_the_current_observation_have_separate_rows():
    turns = [decision([1, 2], [3]), decision([1, 5], [3, 4])]
    assert decision_rows(turns, [1.0, -1.0]) == [row([1, 2], [3], [1], [1.0]), row([1, 5], [3, 4], [1, 1], [-1, -1])]


def test_a_context_without_the_last_reply_starts_a_row():
    turns = [decision([1, 2], [3]), decision([1, 2], [4])]
    assert decision_rows(turns, [1.0, 1.0]) == [row([1, 2], [3], [1], [1.0]), row([1, 2], [4], [1], [1.0])]


def test_a_reply_that_was_encoded_again_starts_a_row():
    turns = [decision([1], [2, 3]), decision([1, 23, 4], [5])]
    assert len(decision_rows(turns, [1.0, 1.0])) == 2


def test_an_event_type_continues_its_last_row_after_other_events():
    turns = [decision([1], [2]), decision([9], [8]), decision([9, 8, 7], [6])]
    assert decision_rows(turns, [1.0, 2.0, 3.0]) == [
        row([1], [2], [1], [1.0]),
        row([9], [8, 7, 6], [1, 0, 1], [2.0, 0, 3.0]),
    ]


def test_a_decision_without_credit_is_in_the_context_but_not_in_the_loss():
    turns = [decision([1], [2]), decision([1, 2, 3], [4]), decision([1, 2, 3, 4, 5], [6])]
    assert decision_rows(turns, [1.0, None, 3.0]) == [row([1], [2, 3, 4, 5, 6], [1, 0, 0, 0, 1], [1.0, 0, 0, 0, 3.0])]
    assert decision_rows(turns, [None, 2.0, None]) == [row([1], [2, 3, 4, 5, 6], [0, 0, 1, 0, 0], [0, 0, 2.0, 0, 0])]


def test_rows_without_loss_are_dropped():
    turns = [decision([1], [2]), decision([9], [8]), decision([7], [])]
    assert decision_rows(turns, [None, 1.0, 1.0]) == [row([9], [8], [1], [1.0])]
    assert decision_rows(turns, [None, None, None]) == []
    assert decision_rows([], []) == []


def test_an_advantage_of_zero_is_credit():
    assert decision_rows([decision([1], [2])], [0.0]) == [row([1], [2], [1], [0.0])]


def test_roles_have_separate_rows():
    turns = [
        decision([1], [2], role="reasoner"),
        decision([1], [3], role="actor"),
        decision([1, 2, 4], [5], role="reasoner"),
        decision([1, 3, 6], [7], role="actor"),
    ]
    assert decision_rows(turns, [1.0, 2.0, 3.0, 4.0]) == [
        row([1], [2, 4, 5], [1, 0, 1], [1.0, 0, 3.0], role="reasoner"),
        row([1], [3, 6, 7], [1, 0, 1], [2.0, 0, 4.0], role="actor"),
    ]


def test_an_event_type_with_another_role_starts_a_row():
    turns = [replace(decision([1], [2], role="a"), event="e"), replace(decision([1, 2], [3], role="b"), event="e")]
    assert [(row.role, row.prompt_ids) for row in decision_rows(turns, [1.0, 1.0])] == [("a", (1,)), ("b", (1, 2))]


def test_the_samplers_log_probabilities_are_at_their_tokens():
    turns = [decision([1], [2, 3], logprobs=[-0.1, -0.2]), decision([1, 2, 3, 4], [5], logprobs=[-0.3])]
    (merged,) = decision_rows(turns, [1.0, None])
    assert merged.logprobs == (-0.1, -0.2, 0.0, -0.3)
    assert merged.loss_mask == (1, 1, 0, 0)


def test_a_turn_without_log_probabilities_does_not_share_a_row_with_one_that_has_them():
    turns = [decision([1], [2], logprobs=[-0.1]), decision([1, 2, 3], [4])]
    assert [row.logprobs for row in decision_rows(turns, [1.0, 1.0])] == [(-0.1,), None]


@pytest.mark.parametrize("advantages", [[], [1.0, 2.0]])
def test_every_decision_needs_an_advantage(advantages):
    with pytest.raises(ValueError, match="zip"):
        decision_rows([decision([1], [2])], advantages)


# Against a brute force


@st.composite
def episodes(draw):
    """Decisions of two roles whose contexts extend the role's last or begin anew, and their credit.

    Tokens are drawn from so few that a context can extend another by accident.
    """
    tokens = st.lists(st.integers(0, 1), max_size=3)
    seen, decisions = {}, []
    for _ in range(draw(st.integers(0, 7))):
        role = draw(st.sampled_from("ab"))
        extend = draw(st.booleans())
        context = [*(seen.get(role, ()) if extend else ()), *draw(tokens)]
        action = draw(tokens)
        logprobs = [-0.5 - position for position in range(len(action))] if draw(st.booleans()) else None
        decisions.append(decision(context, action, role, logprobs))
        seen[role] = (*context, *action)
    credit = draw(st.lists(st.none() | st.floats(-3, 3), min_size=len(decisions), max_size=len(decisions)))
    return decisions, credit


def brute_force(decisions, credit):
    """Chains of decisions first; then the tokens of a chain are its last context and reply, and all the rest is a
    matter of positions in them."""
    chains = []
    for turn, own in enumerate(decisions):
        before = [chain for chain in chains if decisions[chain[0]].role == own.role]
        if before:
            last = decisions[before[-1][-1]]
            whole = last.context_ids + last.action_ids
            if own.context_ids[: len(whole)] == whole and (last.logprobs is None) == (own.logprobs is None):
                before[-1].append(turn)
                continue
        chains.append([turn])
    rows = []
    for chain in chains:
        first, last = decisions[chain[0]], decisions[chain[-1]]
        whole, start = last.context_ids + last.action_ids, len(first.context_ids)
        mask, advantages, logprobs = [0] * len(whole), [0.0] * len(whole), [0.0] * len(whole)
        for turn in chain:
            own = decisions[turn]
            for offset in range(len(own.action_ids)):
                position = len(own.context_ids) + offset
                logprobs[position] = 0.0 if own.logprobs is None else own.logprobs[offset]
                if credit[turn] is not None:
                    mask[position], advantages[position] = 1, credit[turn]
        if sum(mask):
            rows.append(
                row(
                    whole[:start],
                    whole[start:],
                    mask[start:],
                    advantages[start:],
                    None if first.logprobs is None else logprobs[start:],
                    first.role,
                )
            )
    return rows


@given(episodes())
def test_rows_are_those_of_the_brute_force(episode):
    assert decision_rows(*episode) == brute_force(*episode)


@given(episodes())
def test_every_credited_token_is_in_the_loss_once(episode):
    decisions, credit = episode
    expected = sorted(
        (token, advantage)
        for own, advantage in zip(decisions, credit, strict=True)
        if advantage is not None
        for token in own.action_ids
    )
    found = sorted(
        (token, advantage)
        for row in decision_rows(decisions, credit)
        for token, on, advantage in zip(row.completion_ids, row.loss_mask, row.advantages, strict=True)
        if on
    )
    assert found == expected


def test_shared_decisions_have_credit_only_in_the_first_episode():
    trunk, left, right, alone = (decision([1], [2]) for _ in range(4))
    walks = (trunk, left), (trunk, right), (alone,)
    episodes = [Episode(decisions=own, outcome=0.0, ending=Ending.FINISHED) for own in walks]
    credit = {trunk.id: 0.5, right.id: 0.0, left.id: (1.0,), "of another process": 9.0}
    assert by_episode(episodes, credit) == [[0.5, (1.0,)], [None, 0.0], [None]]
