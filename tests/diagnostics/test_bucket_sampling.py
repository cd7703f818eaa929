"""Buckets of small policies: a warmed-up one that honours seeds, and functions of the context with known results."""

from __future__ import annotations

import itertools
import string
from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from small_teams import plan_and_act, relay_engine
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_credit import make
from hf_credit.collaborations import Collaboration, Event
from hf_credit.collaborations.relay import relay
from hf_credit.diagnostics.bucket_sampling import BucketPlan, decision_buckets, diagnostic_buckets
from hf_credit.oracles import default_oracle
from hf_credit.policies.generation import sampler
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import (
    Chat,
    Engine,
    EnvironmentInteraction,
    EveryEpisodeFailedError,
    Generation,
    RolloutRequest,
    context_key,
)
from hf_credit.tasks.rows import starts_of

SIZE = 4
PLAN = BucketPlan(buckets=6, candidates=3, replays=2, value_actions=2)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A half-trained policy of the relay of four numbers."""
    return relay_engine(tmp_path_factory.mktemp("relay"), SIZE, 0.4, 200)[1]


@pytest.fixture(scope="module")
def sampled(policy):
    return diagnostic_buckets(policy, starts(12), PLAN)


def starts(rows: int) -> list[RolloutRequest]:
    return [RolloutRequest(task=row, seed=place) for place, row in enumerate(relay(SIZE).tasks("held_out", rows))]


class Speaker:
    """Replies with the texts of a list for the system prompt, in turn, and counts the contexts."""

    def __init__(self, says: dict[str, Sequence[str]]) -> None:
        self.chat = Chat(tokenizer_of([string.printable]))
        self.says = {role: itertools.cycle(texts) for role, texts in says.items()}
        self.asked: Counter[str] = Counter()

    def __call__(self, contexts: Sequence[Sequence[int]]) -> list[Generation]:
        return [self._reply(context) for context in contexts]

    def _reply(self, context: Sequence[int]) -> Generation:
        _, _, text = self.chat.tokenizer.decode(list(context)).partition("<|system|>")
        system = text.partition("<|end|>")[0]
        self.asked[system] += 1
        ids = self.chat.tokenizer(next(self.says[system]), add_special_tokens=False)["input_ids"]
        return Generation(ids=[*ids, self.chat.tokenizer.eos_token_id])


def test_a_bucket_follows_the_plan(policy, sampled) -> None:
    buckets, _ = sampled
    assert len(buckets) == PLAN.buckets
    assert len({(bucket.event, bucket.key) for bucket in buckets}) == PLAN.buckets
    for bucket in buckets:
        assert bucket.key == context_key(bucket.context)
        assert bucket.turn == {"reasoner": 0, "actor": 1}[bucket.event]
        assert f"secret {bucket.state.row['problem'][-1]}" in bucket.context or bucket.event == "actor"
        assert 1 < len(bucket.candidates) <= PLAN.candidates
        texts = [action.text for action in bucket.candidates]
        assert len(set(texts)) == len(texts)
        assert len(bucket.value_only) == PLAN.value_actions
        for action in (*bucket.candidates, *bucket.value_only):
            assert len(action.returns) == len(action.responses) == PLAN.replays
            assert set(action.returns) <= {0.0, 1.0}
            assert action.failed == 0


def test_returns_and_responses_are_those_of_the_candidate(sampled) -> None:
    for bucket in sampled[0]:
        row = bucket.state.row
        for action in (*bucket.candidates, *bucket.value_only):
            if bucket.event == "actor":
                assert set(action.responses) == {None}
                assert set(action.returns) == {float(action.text.strip() == row["answer"])}
            else:
                right = tuple(float(said.strip() == row["answer"]) for said in action.responses)
                assert action.returns == right


def test_the_same_plan_gives_the_same_buckets_whatever_was_drawn_before(policy, sampled) -> None:
    torch.manual_seed(99)
    assert diagnostic_buckets(policy, starts(12), PLAN) == sampled


def test_a_batch_of_another_size_gives_the_same_buckets(policy, sampled) -> None:
    small = Engine(policy.interaction, policy.chat, policy.generate, max_concurrent=5)
    assert diagnostic_buckets(small, starts(12), PLAN)[0] == sampled[0]


def test_another_seed_gives_other_buckets(policy, sampled) -> None:
    other, _ = diagnostic_buckets(policy, starts(12), BucketPlan(**{**vars(PLAN), "seed": 1}))
    assert other != sampled[0]


def test_with_common_random_numbers_the_same_message_gets_the_same_response(policy) -> None:
    """The response in replay t depends only on the message, as two value-only actions with the same text show."""
    plan = BucketPlan(buckets=4, candidates=1, replays=4, value_actions=12, events=("reasoner",))
    common, _ = diagnostic_buckets(policy, starts(12), plan)
    apart, _ = diagnostic_buckets(policy, starts(12), BucketPlan(**{**vars(plan), "common_random_numbers": False}))

    def answers(buckets):
        by_text: dict[tuple[int, str], set[tuple[str | None, ...]]] = {}
        for bucket in buckets:
            for action in (*bucket.candidates, *bucket.value_only):
                by_text.setdefault((bucket.key, action.text), set()).add(action.responses)
        return [len(found) for found in by_text.values()]

    assert max(answers(common)) == 1
    assert max(answers(apart)) > 1


def test_the_baseline_and_the_candidates_agree_with_enumeration(policy) -> None:
    from hf_credit.diagnostics.bucket_credit import with_exact_values

    plan = BucketPlan(buckets=2, candidates=2, replays=80, value_actions=40, events=("reasoner",))
    buckets, _ = diagnostic_buckets(policy, starts(6), plan)
    model = policy.generate.policy
    for bucket in with_exact_values(buckets, relay(SIZE), policy.chat, model, max_new_tokens=2, floor=1e-4):
        assert bucket.exact is not None
        assert bucket.value == pytest.approx(bucket.exact, abs=0.15)
        for action in bucket.candidates:
            assert action.exact is not None
            assert action.mean_return == pytest.approx(action.exact, abs=4 * 0.5 / 80**0.5)


def test_candidates_are_drawn_until_there_are_enough_different_ones() -> None:
    speaker = Speaker({"plan": ["a", "a", "b", "b", "a", "c", "d"], "act": ["x"]})
    engine = Engine(plan_and_act(lambda task, text: 1.0), speaker.chat, speaker)
    plan = BucketPlan(buckets=1, candidates=3, replays=1, value_actions=0, events=("plan",))
    (bucket,), _ = diagnostic_buckets(engine, [RolloutRequest(task={"problem": "p"})], plan)
    assert [(one.text, one.draws) for one in bucket.candidates] == [("a", 2), ("b", 2), ("c", 0)]
    assert bucket.value is None


def test_a_deterministic_policy_has_buckets_with_one_candidate() -> None:
    speaker = Speaker({"plan": ["a"], "act": ["x"]})
    engine = Engine(plan_and_act(lambda task, text: 1.0), speaker.chat, speaker)
    plan = BucketPlan(buckets=1, candidates=4, replays=2, value_actions=3, events=("plan",), draws=10)
    (bucket,), cost = diagnostic_buckets(engine, [RolloutRequest(task={"problem": "p"})], plan)
    assert [(one.text, one.draws) for one in bucket.candidates] == [("a", 5)]  # the real one and the first four
    assert [one.text for one in bucket.value_only] == ["a", "a", "a"]
    assert cost.decisions["plan"] == 1 + 10 + 3


def test_the_cost_counts_tokens_and_scores() -> None:
    scored = []
    speaker = Speaker({"plan": list("abcdefg"), "act": list("xyz")})
    engine = Engine(plan_and_act(lambda task, text: scored.append(text) or 0.0), speaker.chat, speaker)
    plan = BucketPlan(buckets=4, candidates=3, replays=2, value_actions=2)
    tasks = [RolloutRequest(task={"problem": name}) for name in "pq"]
    buckets, cost = diagnostic_buckets(engine, tasks, plan)
    assert len(buckets) == 4
    assert dict(speaker.asked) == dict(cost.decisions)
    assert cost.scoring_events == len(scored) == sum(2 * (len(one.candidates) + 2) for one in buckets)
    assert cost.completion_tokens == 2 * sum(cost.decisions.values())  # a letter and the end


def test_decisions_before_the_bucket_are_not_sampled_again() -> None:
    speaker = Speaker({"plan": ["a"], "act": list("xyz")})
    engine = Engine(plan_and_act(lambda task, text: 0.0), speaker.chat, speaker)
    plan = BucketPlan(buckets=1, candidates=3, replays=5, value_actions=2, events=("act",))
    diagnostic_buckets(engine, [RolloutRequest(task={"problem": "p"})], plan)
    assert speaker.asked["plan"] == 1


def test_decisions_are_drawn_uniformly_from_all_contexts() -> None:
    speaker = Speaker({"plan": list("abcdefgh"), "act": ["x"]})
    engine = Engine(plan_and_act(lambda task, text: 0.0), speaker.chat, speaker)
    tasks = [RolloutRequest(task={"problem": name}) for name in "pqrs"]
    drawn: Counter[tuple[str, int]] = Counter()
    for seed in range(200):
        plan = BucketPlan(buckets=1, candidates=1, replays=1, value_actions=0, seed=seed)
        (bucket,), _ = diagnostic_buckets(engine, tasks, plan)
        drawn[bucket.event, bucket.task] += 1
    assert len(drawn) == 8
    assert all(abs(count - 25) < 4 * 25**0.5 for count in drawn.values())


def test_equal_contexts_are_one_bucket() -> None:
    speaker = Speaker({"plan": ["a"], "act": ["x"]})
    engine = Engine(plan_and_act(lambda task, text: 0.0), speaker.chat, speaker)
    buckets, _ = diagnostic_buckets(
        engine, [RolloutRequest(task={"problem": "p"})] * 5, BucketPlan(candidates=1, replays=1)
    )
    assert sorted(bucket.event for bucket in buckets) == ["act", "plan"]


def test_a_failed_scorer_loses_only_its_replay() -> None:
    def scorer(task, text):
        if text == "bad":
            raise RuntimeError("no tests")
        return float(text == "good")

    speaker = Speaker({"plan": ["a"], "act": ["good", "bad", "poor"]})
    engine = Engine(plan_and_act(scorer), speaker.chat, speaker)
    plan = BucketPlan(buckets=1, candidates=3, replays=2, value_actions=3, events=("act",))
    (bucket,), _ = diagnostic_buckets(engine, [RolloutRequest(task={"problem": "p"})], plan)
    found = {one.text: (one.returns, one.failed) for one in (*bucket.candidates, *bucket.value_only)}
    assert found == {"good": ((1.0, 1.0), 0), "bad": ((), 2), "poor": ((0.0, 0.0), 0)}
    assert len(bucket.replayed) == 2
    assert [one.numbers for one in bucket.candidates] == [(0, 1), (), (0, 1)]
    assert bucket.value == pytest.approx(0.5)


def test_a_simultaneous_role_is_not_downstream() -> None:
    events = [Event("left", "l"), Event("right", "r"), Event("join", "j", after=("left", "right"))]
    team = Collaboration({name: name for name in "lrj"}, events, "join", lambda task, text: 1.0)
    speaker = Speaker({"l": ["a", "b"], "r": ["c"], "j": ["d"]})
    engine = Engine(team, speaker.chat, speaker)
    for event, own in (("left", "l"), ("right", "r")):
        plan = BucketPlan(buckets=1, candidates=2, replays=1, value_actions=0, events=(event,), draws=4)
        before = Counter(speaker.asked)
        (bucket,), cost = diagnostic_buckets(engine, [RolloutRequest(task={"problem": "p"})], plan)
        assert (bucket.event, bucket.role) == (event, own)
        assert [one.responses for one in bucket.candidates] == [("d",)] * len(bucket.candidates)
        assert dict(speaker.asked - before) == dict(cost.decisions)


def test_buckets_of_an_environment_have_verdicts(micro_policy) -> None:
    environment = make("sudoku", size=4, blanks=4)
    oracle = default_oracle(environment)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(micro_policy), AutoTokenizer.from_pretrained(micro_policy)
    interaction = EnvironmentInteraction(environment, history="current", instructions=False)
    engine = Engine(interaction, Chat(tokenizer), sampler(model, tokenizer, max_new_tokens=12))
    plan = BucketPlan(buckets=6, candidates=4, replays=2, value_actions=2)
    buckets, _ = diagnostic_buckets(engine, starts_of([{}] * 6, "held_out"), plan, oracle=oracle)
    verdicts = set()
    for bucket in buckets:
        for action in bucket.candidates:
            assert action.verdict == oracle.score(bucket.state.world, action.text)
            assert set(action.responses) == {None}  # there is no other role
            verdicts.add(action.verdict)
            for decision in (decision for replay in action.replays for decision in replay.decisions):
                assert decision.verdict.score == oracle.score(decision.state.world, decision.action_text)
        assert all(action.verdict is None for action in bucket.value_only)
    assert verdicts == {0.0, 1.0}
    again, _ = diagnostic_buckets(engine, starts_of([{}] * 6, "held_out"), plan, oracle=oracle)
    assert again == buckets


def test_replays_have_different_opponents_which_all_actions_share() -> None:
    environment = make("tic_tac_toe", opponent="random")
    chat = Chat(tokenizer_of([string.printable]))

    def first_empty_cell(context):
        board = chat.tokenizer.decode(list(context), skip_special_tokens=True).rpartition("1 2 3")[2].splitlines()[1:4]
        row = next(place for place, line in enumerate(board) if "." in line)
        text = f"<action>place {row + 1} {board[row].split().index('.')}</action>"
        return Generation(ids=chat.tokenizer(text, add_special_tokens=False)["input_ids"])

    engine = Engine(
        EnvironmentInteraction(environment, history="current", instructions=False),
        chat,
        lambda contexts: [first_empty_cell(context) for context in contexts],
    )
    plan = BucketPlan(buckets=4, candidates=1, replays=8, value_actions=1)
    buckets, _ = diagnostic_buckets(engine, starts_of([{}] * 4, "held_out"), plan)
    for bucket in buckets:
        assert bucket.value_only[0].text == bucket.real.text
        assert bucket.value_only[0].returns == bucket.real.returns
    assert max(len(set(bucket.real.returns)) for bucket in buckets) > 1


def test_a_bucket_keeps_whole_replays_and_earlier_decisions(policy, sampled) -> None:
    for bucket in sampled[0]:
        assert len(bucket.before) == bucket.turn
        assert bucket.before == () or bucket.before[0].event == "reasoner"
        for action in bucket.candidates:
            assert tuple(one.outcome for one in action.replays) == action.returns
            for replay in action.replays:
                assert replay.decisions[0].action_text == action.text
                assert replay.decisions[0].state == bucket.state
                assert len(replay.decisions) == 2 - bucket.turn
        assert all(action.replays == () for action in bucket.value_only)


def test_the_values_of_given_decisions_are_the_returns_of_their_replays(policy) -> None:
    """Two replies of the actor at the same context and state share a bucket; the reasoner's message has another."""
    episodes = policy.run([RolloutRequest(task=row, fanout=(1, 6)) for row in relay(SIZE).tasks("held_out", 3)])
    decisions = [(episode, turn) for episode in episodes for turn in (0, 1) if turn or not episode.prefix_length]
    buckets, places, cost = decision_buckets(policy, decisions, PLAN)
    assert len(places) == len(decisions) == 3 + 3 * 6
    assert max(len(bucket.candidates) for bucket in buckets) > 1
    for (episode, turn), place in zip(decisions, places, strict=True):
        bucket, decision = buckets[place], episode.decisions[turn]
        assert (bucket.event, bucket.state) == (decision.event, decision.state)
        assert len(bucket.value_only) == PLAN.value_actions
        (action,) = [one for one in bucket.candidates if one.text == decision.action_text]
        assert len(action.returns) == PLAN.replays
        if turn:
            assert set(action.returns) == {episode.outcome}
    assert sum(action.draws for bucket in buckets for action in bucket.candidates) == len(decisions)
    assert cost.scoring_events == sum(PLAN.replays * (len(one.candidates) + 2) for one in buckets)
    assert decision_buckets(policy, [], PLAN)[:2] == ([], [])


def test_an_event_type_that_does_not_occur_is_refused(policy) -> None:
    with pytest.raises(ValueError, match="got critic; the episodes have reasoner, actor"):
        diagnostic_buckets(policy, starts(2), BucketPlan(events=("critic",)))


def test_a_start_with_alternatives_is_refused(policy) -> None:
    with pytest.raises(ValueError, match="must have no fanout"):
        diagnostic_buckets(policy, [RolloutRequest(task={}, fanout=(2,))], PLAN)


def test_no_tasks_give_no_buckets(policy) -> None:
    assert diagnostic_buckets(policy, [], PLAN)[0] == []


def test_a_diagnosis_in_which_all_episodes_fail_is_an_error(policy):
    with pytest.raises(
        EveryEpisodeFailedError, match="some episode of a diagnosis must end without an error, got 2 of 2"
    ):
        diagnostic_buckets(policy, [RolloutRequest(task={"question": "?"}, seed=seed) for seed in range(2)], PLAN)


def test_a_diagnosis_with_contexts_too_long_for_a_reply_is_an_error(policy):
    narrow = Engine(policy.interaction, policy.chat, policy.generate, max_context_tokens=3)
    with pytest.raises(ValueError, match="got 2 tasks, all above 3 tokens"):
        diagnostic_buckets(narrow, starts(2), PLAN)
