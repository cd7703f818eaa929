from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from small_buckets import action

from hf_credit.collaborations.exact_values import exact_values
from hf_credit.collaborations.relay import relay, relay_task
from hf_credit.collectors import Single
from hf_credit.credit import full_mean, leave_one_out, trajectory_advantages, turn_group_advantages
from hf_credit.critics.inputs import joint_histories
from hf_credit.diagnostics import FidelityStatus
from hf_credit.diagnostics.bucket_credit import (
    RememberedValues,
    assigned_credit,
    bucket_fidelity,
    bucket_targets,
    collected_from,
    standard_methods,
    with_exact_values,
)
from hf_credit.diagnostics.buckets import Action, Bucket
from hf_credit.methods import Credit, Method, make
from hf_credit.methods.base import mean_over_shared
from hf_credit.policies.micro import MicroConfig, build_model, tokenizer_of
from hf_credit.rollouts import Chat, Decision, Ending, Episode, Verdict
from hf_credit.rollouts.method_context import CriticInput, LocalContext

BY_RETURNS = ("replay_loo", "magrpo", "outcome_reward")


def bucket(*returns, value_only=(), verdicts=None, turn=0, **others) -> Bucket:
    """A bucket with returns, and replays that consist of the candidate alone."""
    verdicts = verdicts or [None] * len(returns)
    return Bucket(
        event="agent",
        role="agent",
        key=turn,
        context="",
        task=0,
        turn=turn,
        candidates=tuple(
            action(str(place), own, turn=turn, verdict=verdict)
            for place, (own, verdict) in enumerate(zip(returns, verdicts, strict=True))
        ),
        value_only=tuple(Action(text="v", returns=tuple(own)) for own in value_only),
        before=tuple(decision((place,), ()) for place in range(turn)),
        **others,
    )


def decision(context, action, event="agent", verdict=None, reward=0.0) -> Decision:
    return Decision(
        role=event,
        event=event,
        state=None,
        context_ids=tuple(context),
        action_ids=tuple(action),
        logprobs=None,
        action_text=str(action),
        verdict=None if verdict is None else Verdict(score=verdict),
        reward=reward,
    )


def whole(*replays, before=(), verdicts=None, later=()) -> Bucket:
    """A bucket with replays: outcomes of each candidate, decisions before it, and later verdicts."""
    history = [*before[-1].context_ids, *before[-1].action_ids, 8] if before else [8]
    candidates = []
    for place, outcomes in enumerate(replays):
        verdict = None if verdicts is None else verdicts[place]
        episodes = []
        for outcome in outcomes:
            made = [decision(history, (20 + place,), verdict=verdict)]
            for score in later:
                made.append(decision([*made[-1].context_ids, *made[-1].action_ids, 9], (7,), verdict=score))
            episodes.append(Episode(decisions=tuple(made), outcome=outcome, ending=Ending.FINISHED))
        candidates.append(
            Action(
                text=str(place),
                returns=tuple(outcomes),
                responses=(None,) * len(outcomes),
                verdict=verdict,
                replays=tuple(episodes),
            )
        )
    blank = bucket(*replays, turn=len(before))
    return replace(blank, candidates=tuple(candidates), before=tuple(before))


def critic(readings):
    """A critic that predicts a tenth of the number of tokens it read."""
    return [tuple(at / 10 for at in reading.at) for reading in readings]


ONE = bucket([1, 1], [0, 0], [1, 0], value_only=([0, 1], [0, 0]))
TWO = bucket([0.5], [0.5, 0.5], value_only=([1],), turn=1)


def test_the_credit_of_c3_weights_other_candidates_by_their_replays() -> None:
    # 1 - 1/4; 0 - 3/4; 1/2 - 1/2. Equal returns have credit 0.
    assert assigned_credit([ONE, TWO], "replay_loo") == [pytest.approx([0.75, -0.75, 0]), [0, 0]]
    # One replay of 1.0 and three of 0: the baseline of the third candidate is (1 + 0 * 3) / 4.
    uneven = bucket([1], [0, 0, 0], [1, 1])
    assert assigned_credit([uneven], "replay_loo")[0][2] == pytest.approx(1 - 1 / 4)


def test_a_candidate_is_not_compared_with_what_its_replay_does_back_at_its_context() -> None:
    back = whole([1.0], [0.0])
    first, second = back.candidates
    (replay,) = first.replays
    again = replace(replay, decisions=(*replay.decisions, replace(replay.decisions[0], id="again")))
    returned = replace(back, candidates=(replace(first, replays=(again,)), second))
    assert assigned_credit([returned], "replay_loo") == [[1.0, -1.0]]


def test_the_baseline_of_magrpo_includes_the_candidate() -> None:
    assert assigned_credit([ONE], "magrpo") == [pytest.approx([0.5, -0.5, 0])]


def test_the_baseline_of_mappo_is_the_critics_value_of_all_messages() -> None:
    context = LocalContext(critics={"critic": critic})
    first, second = whole([1, 1], [0, 1]), whole([0.5], [0], before=[decision([8], [5, 5])])
    # 1 token is read before the first, 4 before the second.
    found = assigned_credit([first, second], "mappo", context)
    assert found == [pytest.approx([0.9, 0.4]), pytest.approx([0.1, -0.4])]


def test_later_decisions_count_if_the_method_uses_them() -> None:
    context = LocalContext(critics={"critic": critic})
    long = whole([1.0], [0.0], later=(1.0, 0.0))
    # Paid two decisions later: 0.25 of it, and the critic's values on the way cancel with lam = 1.
    assert assigned_credit([long], make("mappo", gamma=0.5), context) == [pytest.approx([0.25 - 0.1, -0.1])]
    # The verdicts 1 and 0 that follow: 1 + 0.5 and 0 + 0.5 at the turn, with mean 1 and deviation 0.5.
    judged = whole([0], [0], verdicts=[1, 0], later=(1.0, 0.0))
    found = assigned_credit([judged], make("verifiable_process", gamma=0.5, min_active=2))
    assert found == [pytest.approx([1, -1])]


def test_outcome_credit_is_normalised_over_all_replays() -> None:
    # Returns 1 1 0 0 1 0 and three times .5: mean 1/2, population variance 6 / 4 / 9.
    deviation = 0.5 / (1 / 6) ** 0.5
    assert assigned_credit([ONE, TWO], "outcome_reward") == [pytest.approx([deviation, -deviation, 0]), [0, 0]]


def test_normalisation_and_clipping_are_those_of_training() -> None:
    # Clipped to 10, leave-one-out gives 10 and -10, with population deviation 10.
    wide = bucket([30], [0])
    assert assigned_credit([wide], "replay_loo") == [[10, -10]]
    assert assigned_credit([wide], make("replay_loo", normalise_credit=True)) == [pytest.approx([1, -1])]
    assert assigned_credit([wide], make("magrpo", return_clip=4)) == [[2, -2]]


def test_a_single_candidate_has_no_credit_of_c3() -> None:
    assert math.isnan(assigned_credit([bucket([1])], "replay_loo")[0][0])


def test_the_credit_of_vpr_is_normalised_over_all_candidates_of_a_turn() -> None:
    # Turn 0 has verdicts 1 0 1 and 1: mean 3/4, variance 3/16. Turn 1 has two, fewer than four, so it takes the mean
    # of all six, 5/6, and their variance 5/36.
    first = bucket([0], [0], [0], verdicts=[1, 0, 1])
    second = bucket([0], verdicts=[1])
    third = bucket([0], [0], verdicts=[1, 1], turn=1)
    spread, all_spread = (3 / 16) ** 0.5, (5 / 36) ** 0.5
    found = assigned_credit([first, second, third], "verifiable_process")
    assert found[0] == pytest.approx([0.25 / spread, -0.75 / spread, 0.25 / spread])
    assert found[1] == pytest.approx([0.25 / spread])
    assert found[2] == pytest.approx([1 / 6 / all_spread] * 2)


def test_candidates_without_a_verdict_have_no_credit_of_vpr() -> None:
    mixed = bucket([1], [0], [0], [0], [0], verdicts=[1, None, 0, 0, 0])
    found = assigned_credit([mixed], "verifiable_process")[0]
    assert [math.isnan(credit) for credit in found] == [False, True, False, False, False]
    assert list(standard_methods([bucket([1], [0])])) == ["replay_loo", "magrpo", "outcome_reward"]
    assert list(standard_methods([ONE, mixed])) == ["replay_loo", "magrpo", "verifiable_process", "outcome_reward"]
    trained = make("magrpo", normalise_credit=True)
    assert standard_methods([ONE], trained)["magrpo"] is trained
    assert list(standard_methods([ONE], make("mappo"))) == ["mappo", "replay_loo", "magrpo", "outcome_reward"]


@pytest.mark.parametrize("name", [*BY_RETURNS, "verifiable_process", "mappo"])
def test_no_buckets_and_buckets_without_returns_have_no_credit(name) -> None:
    assert assigned_credit([], name) == []
    assert assigned_credit([bucket([], [])], name) == [[]]
    assert bucket_fidelity([bucket([], [])], name).status == FidelityStatus.TOO_FEW


@pytest.mark.parametrize("name", BY_RETURNS)
def test_failed_candidates_are_skipped(name) -> None:
    assert assigned_credit([bucket([1], [], [0])], name) == assigned_credit([bucket([1], [0])], name)


def test_buckets_of_one_episode_are_not_replays_of_each_other() -> None:
    """The real candidate of the first bucket is an earlier decision of the second bucket."""
    earlier = decision([8], [20])
    first, second = whole([1], [0]), whole([0], [0], before=[earlier])
    apart = [assigned_credit([one], "replay_loo")[0] for one in (first, second)]
    assert assigned_credit([first, second], "replay_loo") == apart == [[1, -1], [0, 0]]


def test_buckets_become_an_update_as_in_training() -> None:
    before = [decision([8], [5]), decision([8, 5, 9], [6])]
    found = collected_from([whole([1, 0], [0], before=before, later=(None,)), ONE])
    assert (found.rows, found.instances) == (2, [0] * 3 + [1] * 6)
    assert [one.branch for one in found.episodes[:3]] == [(0, 0), (0, 1), (1, 0)]
    assert [len(one.decisions) for one in found.episodes[:3]] == [4, 4, 4]
    assert [one.prefix_length for one in found.episodes[:3]] == [0, 3, 2]
    first, again, other = ([decision.id for decision in one.decisions] for one in found.episodes[:3])
    assert first[:3] == again[:3]
    assert first[3] != again[3]
    assert other[:2] == first[:2]
    assert other[2] != first[2]
    assert joint_histories(found.episodes[0])[2] == (8, 5, 9, 6, 8)


outcomes = st.lists(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=3), min_size=2, max_size=4)


@given(st.lists(st.tuples(outcomes, st.integers(0, 2), st.data()), min_size=1, max_size=4))
def test_credit_follows_the_formulas_of_appendix_i(drawn) -> None:
    """The credit that diagnosis wrote down by itself before it asked the methods."""
    buckets = [
        whole(
            *returns,
            before=[decision([8], [5])] * turn,
            verdicts=[data.draw(st.sampled_from([0.0, 1.0])) for _ in returns],
        )
        for returns, turn, data in drawn
    ]
    every = [(place, action) for place, one in enumerate(buckets) for action in one.replayed]
    means = torch.tensor([action.mean_return for _, action in every], dtype=torch.float64)
    groups = torch.tensor([place for place, _ in every])
    counts = torch.tensor([len(action.returns) for _, action in every])

    def flat(method):
        credits = assigned_credit(buckets, method, LocalContext(critics={"critic": critic}))
        return torch.tensor([value for own in credits for value in own], dtype=torch.float64)

    torch.testing.assert_close(flat("replay_loo"), leave_one_out(means, groups, counts))
    torch.testing.assert_close(flat("magrpo"), full_mean(means, groups, counts))
    collected = collected_from(buckets)
    lengths = {}
    for episode in collected.episodes:
        for one, history in zip(episode.decisions, joint_histories(episode), strict=True):
            lengths[one.id] = len(history) / 10
    expected = torch.tensor([lengths[name] for own in collected.candidates for name in own], dtype=torch.float64)
    torch.testing.assert_close(flat("mappo"), means - expected)

    # Outcome reward and VPR normalise over all replays instead of the candidates' means: the same order.
    old = trajectory_advantages(means, torch.ones_like(means, dtype=torch.bool))
    assert same_order(flat("outcome_reward"), old)
    verdicts = torch.tensor([[action.verdict] for _, action in every], dtype=torch.float64)
    for turn in {one.turn for one in buckets}:
        at = torch.tensor([buckets[place].turn == turn for place, _ in every])
        old = turn_group_advantages(verdicts[at], torch.ones_like(verdicts[at], dtype=torch.bool), min_active=1)[:, 0]
        assert same_order(flat(make("verifiable_process", min_active=1))[at], old)


def same_order(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Returns whether both have the same order, up to rounding."""
    up, other = a[:, None] - a[None], b[:, None] - b[None]
    return not bool(((up > 1e-9) & (other < -1e-9)).any() | ((up < -1e-9) & (other > 1e-9)).any())


def test_a_method_that_needs_its_own_collector_is_refused() -> None:
    with pytest.raises(ValueError, match="of kind 'continuation', which only its own collector plays"):
        assigned_credit([ONE], "mc_process_reward")
    with pytest.raises(ValueError, match="must be run with it, got none named 'critic'"):
        assigned_credit([whole([1], [0])], "mappo")


def test_predictions_of_a_critic_are_cached() -> None:
    asked: list[CriticInput] = []

    def counting(readings):
        asked.extend(readings)
        return critic(readings)

    one = whole([1, 1, 0], [0, 1, 1], before=[decision([8], [5])], later=(None,))
    context = LocalContext(critics={"critic": RememberedValues(counting, batch=2)})
    assert assigned_credit([one], "mappo", context) == assigned_credit(
        [one], "mappo", LocalContext(critics={"critic": critic})
    )
    assert len(asked) == len(set(asked)) == 4  # before, the candidates' context, and after each of the two


def test_targets_need_value_only_actions() -> None:
    assert bucket_targets([ONE, TWO]) == [pytest.approx([0.75, -0.25, 0.25]), [-0.5, -0.5]]
    assert all(map(math.isnan, bucket_targets([bucket([1], [0])])[0]))


def test_credit_and_target_can_be_of_different_replays() -> None:
    assert assigned_credit([ONE], "replay_loo", replays=1) == [pytest.approx([0.5, -1, 0.5])]
    assert bucket_targets([ONE], skip=1) == [pytest.approx([0.5, -0.5, -0.5])]
    assert all(map(math.isnan, bucket_targets([ONE], skip=2)[0]))
    # Credits 0.5 -1 0.5 against targets 0.5 -0.5 -0.5: ranks 2.5 1 2.5 and 3 1.5 1.5, with correlation 1/2.
    assert bucket_fidelity([ONE], "replay_loo", replays=1).rho == pytest.approx(0.5)


def test_the_luck_of_the_replays_that_credit_uses_is_in_no_target() -> None:
    # Every reply is worth 0, and replay t adds the same luck to all.
    lucky, unlucky = ([luck, 0.0, 0.0] for luck in (1.0, -1.0))
    buckets = [bucket(own, own, value_only=(own, own)) for own in (lucky, unlucky)]
    assert assigned_credit(buckets, "outcome_reward", replays=1) == [pytest.approx([1, 1]), pytest.approx([-1, -1])]
    assert bucket_targets(buckets, skip=1) == [[0, 0], [0, 0]]


def test_a_failed_replay_does_not_move_the_luck_of_the_others() -> None:
    # Replay 0 of the first reply failed, so its credit is from replay 1; replay t returns t.
    one = bucket([1, 2, 3], [0, 1, 2, 3], value_only=([0, 1, 2, 3], [0, 2, 3]))
    candidates = (replace(one.candidates[0], numbers=(1, 2, 3)), one.candidates[1])
    value_only = (one.value_only[0], replace(one.value_only[1], numbers=(0, 2, 3)))
    one = replace(one, candidates=candidates, value_only=value_only)
    assert bucket_targets([one], skip=1) == [[0, 0]]


def test_with_shared_returns_every_common_baseline_ranks_a_bucket_rightly() -> None:
    for name in BY_RETURNS:
        assert bucket_fidelity([ONE], name).rho == pytest.approx(1)


def test_without_value_only_actions_there_is_no_estimated_fidelity() -> None:
    found = bucket_fidelity([bucket([1], [0])], "replay_loo")
    assert math.isnan(found.rho)
    assert found.status == FidelityStatus.TOO_FEW


def test_exact_targets_are_those_of_enumeration() -> None:
    known = bucket([1], [0], exact=0.5)
    values = [action("a", (1.0,), exact=0.75), action("b", (0.0,), exact=0.625)]
    known = Bucket(**{**vars(known), "candidates": (*values, action("c", (1.0,)))})
    assert bucket_targets([known], "exact")[0][:2] == pytest.approx([0.25, 0.125])
    assert math.isnan(bucket_targets([known], "exact")[0][2])
    found = bucket_fidelity([known], "replay_loo", "exact")
    assert (found.rho, found.candidates) == (pytest.approx(1), 2)  # the third is omitted
    assert math.isnan(bucket_fidelity([bucket([1], [0])], "replay_loo", "exact").rho)


def test_candidates_get_exact_values() -> None:
    chat = Chat(tokenizer_of(["0", "1", " ", "tell secret answer mod add Problem: Context: \n"]))
    model = build_model(chat.tokenizer, MicroConfig(hidden_size=8, layers=1, heads=2))
    state = relay(2).start(relay_task(0, 1, size=2), 0)
    sampled = Bucket(**{**vars(bucket([1], [0], value_only=([1],))), "state": state})
    (found,) = with_exact_values([sampled], relay(2), chat, model, max_new_tokens=1)
    (truth,) = exact_values(relay(2), chat, model, [state], max_new_tokens=1)
    assert found.exact == truth.value
    assert [action.exact for action in found.candidates] == [truth.values["0"], truth.values["1"]]
    assert found.value_only[0].exact is None  # an impossible reply
    assert found.exact_error == pytest.approx(0)
    # With such a floor nothing is known, as no reply to the reply is.
    text, likeliest = max(truth.probabilities.items(), key=lambda one: one[1])
    assert likeliest < 0.9
    one = replace(sampled, candidates=(replace(sampled.candidates[0], text=text),))
    (rough,) = with_exact_values([one], relay(2), chat, model, max_new_tokens=1, floor=0.99 * likeliest)
    assert (rough.candidates[0].exact, rough.exact_error) == (None, None)
    assert with_exact_values([], relay(2), chat, model, max_new_tokens=1) == []


def test_a_users_method_is_measured_like_the_others() -> None:
    def outcome_of_each_token(collected, context, memory):
        given = mean_over_shared(
            collected, [[(2 * one.outcome, 0.0)] * len(one.decisions) for one in collected.episodes]
        )
        return Credit(decisions=given)

    own = Method(name="own", collector=Single(), estimator=outcome_of_each_token)
    # The mean over the tokens and over the replays.
    assert assigned_credit([ONE, TWO], own) == [[1, 0, 0.5], [0.5, 0.5]]
    assert bucket_fidelity([TWO, ONE], own).candidates == 5


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ValueError, match=r"method must be one of .*, or 'module:object', got 'PPO'"):
        assigned_credit([ONE], "PPO")
    with pytest.raises(ValueError, match="at least 1 replay per action, got 0"):
        assigned_credit([ONE], "replay_loo", replays=0)
    with pytest.raises(ValueError, match="'estimated' or 'exact' and skip >= 0, got 'true' and 0"):
        bucket_targets([ONE], "true")
