"""Many parallel episodes: none is lost, none changes another, and each can be replayed."""

from __future__ import annotations

import itertools
import math
import pickle
import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from hf_credit import make
from hf_credit.policies.generation import sampler
from hf_credit.rollouts import (
    Chat,
    Ending,
    Engine,
    EnvironmentInteraction,
    Generation,
    Interaction,
    Request,
    RolloutRequest,
    decision_rows,
    replay_from,
)
from hf_credit.rollouts.capabilities import or_error


@dataclass(frozen=True, kw_only=True)
class Tale:
    name: str
    turns: int
    fails: str = ""
    fails_after: int = 0
    replies: tuple[str, ...] = ()
    luck: int = 0


class TaleInteraction(Interaction[Tale]):
    """`turns` requests, with all messages in their contexts; may fail by the task."""

    def start(self, task, seed):
        state = Tale(luck=seed, **task)
        self.fail("start", state)
        return state

    def pending(self, state):
        self.fail("pending", state)
        if len(state.replies) == state.turns:
            return ()
        messages = [{"role": "user", "content": state.name}]
        for number, reply in enumerate(state.replies):
            messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": f"{number}."}]
        if state.fails == "template" and len(state.replies) == state.fails_after:
            messages[-1]["role"] = "nobody"
        if state.fails == "content" and len(state.replies) == state.fails_after:
            messages[-1]["content"] = 5
        return (Request(role="teller", messages=messages),)

    def advance(self, state, replies):
        self.fail("advance", state)
        return replace(state, replies=(*state.replies, *replies))

    def outcome(self, state):
        self.fail("outcome", state)
        return self.paid("outcome", state, float(len(state.replies)))

    def reward(self, state):
        self.fail("reward", state)
        return self.paid("reward", state, 10.0 * len(state.replies))

    def ending(self, state):
        self.fail("ending", state)
        return Ending.FINISHED

    def metrics(self, state):
        self.fail("metrics", state)
        return {"luck": state.luck}

    def reseed(self, state, seed):
        return replace(state, luck=seed)

    @staticmethod
    def paid(method, state, number):
        """NaN or infinity, if the task has it."""
        pays, _, what = state.fails.partition(" ")
        return float(what) if pays == method and len(state.replies) >= state.fails_after else number

    @staticmethod
    def fail(method, state):
        if state.fails == method and len(state.replies) >= state.fails_after:
            raise RuntimeError(f"{method} of\n{state.name}")


class Sampler:
    """A sampler by a function of the context, which records the contexts of every call."""

    def __init__(self, reply):
        self.reply = reply
        self.calls = []

    def __call__(self, contexts):
        self.calls.append(contexts)
        return [self.reply(tuple(context)) for context in contexts]


def babble(context):
    """Replies that depend on every token of the context, printable or not, ended or truncated."""
    draws = random.Random(str(context))
    return Generation(ids=[draws.randrange(105) for _ in range(draws.randrange(6))])


def short(chat, text="ok<|end|>"):
    ids = chat.tokenizer(text, add_special_tokens=False)["input_ids"]
    return lambda context: Generation(ids=ids)


def tale(name, turns, **task):
    return RolloutRequest(task={"name": name, "turns": turns, **task})


def names(chat, contexts):
    """The tales of a call."""
    return [chat.tokenizer.decode(list(context)[1:2]) for context in contexts]


# Order, refilling, batching


def test_episodes_are_in_the_order_of_their_requests(chat):
    starts = [tale(name, turns) for name, turns in (("a", 3), ("b", 1), ("c", 0), ("d", 2))]
    for most in (1, 2, 3, 10):
        episodes = Engine(TaleInteraction(), chat, Sampler(short(chat)), max_concurrent=most).run(starts)
        assert [len(episode.decisions) for episode in episodes] == [3, 1, 0, 2]
        assert [episode.outcome for episode in episodes] == [3.0, 1.0, 0.0, 2.0]
        assert [{d.state.name for d in episode.decisions} for episode in episodes] == [{"a"}, {"b"}, set(), {"d"}]


def test_an_episode_starts_as_soon_as_another_ends(chat):
    sample = Sampler(short(chat))
    starts = [tale(name, turns) for name, turns in (("a", 1), ("b", 3), ("c", 1), ("d", 2), ("e", 1))]
    Engine(TaleInteraction(), chat, sample, max_concurrent=2).run(starts)
    assert [names(chat, call) for call in sample.calls] == [["a", "b"], ["b", "c"], ["b", "d"], ["d", "e"]]


@given(st.lists(st.integers(0, 4), max_size=8), st.integers(1, 4))
def test_every_generation_call_has_as_many_contexts_as_possible(chat, turns, most):
    sample = Sampler(short(chat))
    starts = [tale(chr(65 + number), count) for number, count in enumerate(turns)]
    episodes = Engine(TaleInteraction(), chat, sample, max_concurrent=most).run(starts)
    assert [len(episode.decisions) for episode in episodes] == turns
    begun = set()
    playing = {chr(65 + number) for number, count in enumerate(turns) if count}
    for call in sample.calls:
        asked = names(chat, call)
        begun.update(asked)
        assert len(set(asked)) == len(asked) <= most
        assert len(asked) == most or begun == playing
    assert sum(map(len, sample.calls)) == sum(turns)


def test_without_requests_nothing_is_sampled(chat):
    sample = Sampler(babble)
    assert Engine(TaleInteraction(), chat, sample).run([]) == []
    assert sample.calls == []


def test_requests_may_be_an_iterator(chat):
    starts = (tale("a", 1) for _ in range(3))
    assert len(Engine(TaleInteraction(), chat, Sampler(short(chat)), max_concurrent=1).run(starts)) == 3


@pytest.mark.parametrize("limit", ["max_concurrent", "max_context_tokens"])
def test_a_limit_below_one_is_refused(chat, limit):
    with pytest.raises(ValueError, match=rf"{limit} must be at least 1, got 0; raise it\."):
        Engine(TaleInteraction(), chat, babble, **{limit: 0})


# What a decision records


def test_a_decision_has_its_state_context_reply_and_reward(chat):
    ids = chat.tokenizer("ok", add_special_tokens=False)["input_ids"]
    sample = Sampler(lambda context: Generation(ids=[*ids, chat.tokenizer.eos_token_id], logprobs=[-0.5, -0.25, -1.0]))
    (episode,) = Engine(TaleInteraction(), chat, sample).run([RolloutRequest(task={"name": "a", "turns": 2}, seed=7)])
    first, second = episode.decisions
    assert (first.role, first.state, first.reward) == ("teller", Tale(name="a", turns=2, luck=7), 10.0)
    assert (second.state, second.reward) == (Tale(name="a", turns=2, luck=7, replies=("ok",)), 20.0)
    assert (first.action_text, first.action_ids) == ("ok", (*ids, chat.tokenizer.eos_token_id))
    assert first.logprobs == (-0.5, -0.25, -1.0)
    assert first.verdict is None
    assert [first.context_ids, second.context_ids] == [tuple(call[0]) for call in sample.calls]
    assert (episode.outcome, episode.ending, episode.metrics) == (2.0, Ending.FINISHED, {"luck": 7})
    assert type(episode.metrics["luck"]) is float  # or a checkpoint that holds it could not be loaded
    assert episode.error is None


def test_without_log_probabilities_of_the_sampler_decisions_have_none(chat):
    (episode,) = Engine(TaleInteraction(), chat, Sampler(short(chat))).run([tale("a", 1)])
    assert episode.decisions[0].logprobs is None


# Token in, token out


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_every_context_begins_with_the_last_context_and_reply(chat, seed, turns):
    (episode,) = Engine(TaleInteraction(), chat, Sampler(babble)).run([tale(f"tale {seed}", turns)])
    assert len(episode.decisions) == turns
    for before, after in itertools.pairwise(episode.decisions):
        seen = before.context_ids + before.action_ids
        assert after.context_ids[: len(seen)] == seen
    last = episode.decisions[-1]
    for row in decision_rows(episode.decisions, [1.0] * turns):  # one, unless every reply is empty
        assert row.prompt_ids + row.completion_ids == last.context_ids + last.action_ids


def test_replies_are_not_encoded_again(chat):
    spelled = chat.tokenizer.convert_tokens_to_ids(["a", "b", "c", "<|end|>"])
    sample = Sampler(lambda context: Generation(ids=spelled))
    (episode,) = Engine(TaleInteraction(), chat, sample).run([tale("x", 3)])
    assert {decision.action_text for decision in episode.decisions} == {"abc"}
    assert chat.tokenizer("abc", add_special_tokens=False)["input_ids"] != spelled[:-1]
    text = chat.tokenizer.decode(list(episode.decisions[-1].context_ids))
    assert text == (
        "<|user|>x<|end|><|assistant|>abc<|end|><|user|>0.<|end|><|assistant|>abc<|end|><|user|>1.<|end|><|assistant|>"
    )
    assert episode.decisions[-1].context_ids.count(spelled[1]) == 2


# What goes wrong in one episode stays there


@pytest.mark.parametrize(
    ("method", "after", "kept"),
    [
        ("start", 0, 0),
        ("pending", 0, 0),
        ("pending", 2, 2),
        ("template", 0, 0),
        ("template", 1, 1),
        ("content", 0, 0),
        ("content", 1, 1),
        ("advance", 0, 1),
        ("advance", 1, 2),
        ("reward", 2, 2),
        ("ending", 3, 3),
        ("outcome", 3, 3),
        ("metrics", 3, 3),
    ],
)
@pytest.mark.parametrize("most", [1, 2, 5])
def test_an_episode_that_fails_ends_in_an_error_and_changes_no_other(chat, method, after, kept, most):
    sound = [tale("a", 2), tale("c", 3), tale("d", 1)]
    broken = tale("b", 3, fails=method, fails_after=after)
    engine = Engine(TaleInteraction(), chat, Sampler(babble), max_concurrent=most)
    alone = engine.run(sound)
    a, b, c, d = engine.run([sound[0], broken, *sound[1:]])
    assert [a, c, d] == alone
    assert {episode.ending for episode in alone} == {Ending.FINISHED}
    assert b.ending == Ending.ERROR
    assert (math.isnan(b.outcome), b.metrics) == (True, {})
    assert len(b.decisions) == kept
    assert b.error
    assert "\n" not in b.error
    if method not in ("template", "content"):
        assert b.error == f"RuntimeError: {method} of b"


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(("paid", "after", "kept"), [("reward", 2, 2), ("outcome", 3, 3)])
def test_an_episode_with_a_reward_that_is_not_finite_ends_in_an_error(chat, number, paid, after, kept):
    engine = Engine(TaleInteraction(), chat, Sampler(babble))
    sound = [tale("a", 2), tale("c", 3)]
    broken = tale("b", 3, fails=f"{paid} {number}", fails_after=after)
    alone = engine.run(sound)
    a, b, c = engine.run([sound[0], broken, sound[1]])
    assert [a, c] == alone
    assert (b.ending, math.isnan(b.outcome), len(b.decisions)) == (Ending.ERROR, True, kept)
    assert b.error == f"ValueError: the {paid} of an episode must be finite, got {number}; fix the code of the task."


def test_an_outcome_that_was_not_requested_is_nan(chat):
    start = replace(tale("a", 2, fails="outcome nan"), scored=False)
    (episode,) = Engine(TaleInteraction(), chat, Sampler(babble)).run([start])
    assert episode.ending == Ending.FINISHED
    assert math.isnan(episode.outcome)


@pytest.mark.parametrize("limit", [math.nan, math.inf, 1.5, "8", True])
def test_a_limit_that_is_not_a_whole_number_is_refused(chat, limit):
    for name in ("max_concurrent", "max_context_tokens"):
        with pytest.raises(ValueError, match=f"^{name} must be a whole number, got .*; correct it"):
            Engine(TaleInteraction(), chat, Sampler(babble), **{name: limit})


def test_the_decision_of_a_failed_step_has_no_reward(chat):
    (episode,) = Engine(TaleInteraction(), chat, Sampler(babble)).run([tale("b", 3, fails="advance", fails_after=1)])
    assert [decision.reward for decision in episode.decisions] == [10.0, 0.0]


def test_the_report_of_a_failure_is_short(chat):
    (episode,) = Engine(TaleInteraction(), chat, babble).run([tale("long " * 10_000, 1, fails="pending")])
    assert len(episode.error) == 500


def test_an_error_while_truncating_an_episode_ends_it_in_an_error(chat):
    engine = Engine(TaleInteraction(), chat, Sampler(short(chat)), max_context_tokens=3)
    (episode,) = engine.run([tale("a", 1, fails="outcome")])
    assert episode.ending == Ending.ERROR


def test_an_exception_of_the_sampler_is_raised(chat):
    def broken(contexts):
        raise ConnectionError("the server is gone")

    with pytest.raises(ConnectionError, match="the server is gone"):
        Engine(TaleInteraction(), chat, broken).run([tale("a", 1)])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_sampler_without_a_reply_to_every_context_is_an_error(chat, count):
    with pytest.raises(ValueError, match="zip"):
        Engine(TaleInteraction(), chat, lambda contexts: [Generation(ids=[5])] * count).run([tale("a", 1)] * 2)


# Contexts that grow too long


def test_a_context_that_is_too_long_ends_its_episode_as_truncated(chat):
    # `<|user|> a <|end|> <|assistant|>` is 4 tokens; a turn adds `o k <|end|> <|user|> n . <|end|> <|assistant|>`.
    sample = Sampler(short(chat))
    engine = Engine(TaleInteraction(), chat, sample, max_context_tokens=12)
    long, brief = engine.run([tale("a", 5), tale("b", 1)])
    assert [len(decision.context_ids) for decision in long.decisions] == [4, 12]
    assert (long.ending, long.outcome, long.metrics) == (Ending.TRUNCATED, 2.0, {"luck": 0})
    assert (brief.ending, len(brief.decisions)) == (Ending.FINISHED, 1)
    assert max(len(context) for call in sample.calls for context in call) == 12


def test_a_first_context_that_is_too_long_leaves_no_decision(chat):
    sample = Sampler(short(chat))
    (episode,) = Engine(TaleInteraction(), chat, sample, max_context_tokens=3).run([tale("a", 2)])
    assert (episode.ending, episode.decisions, sample.calls) == (Ending.TRUNCATED, (), [])


# Several roles


@dataclass(frozen=True, kw_only=True)
class Talk:
    """The role and text of each reply, in order."""

    said: tuple[tuple[str, str], ...] = ()


class ReasonerActor(Interaction[Talk]):
    """A reasoner plans, an actor acts; each has its conversation with the other's last message."""

    def start(self, task, seed):
        return Talk()

    def pending(self, state):
        if len(state.said) == 6:
            return ()
        role = ("reasoner", "actor")[len(state.said) % 2]
        heard, messages = "begin", []
        for speaker, text in state.said:
            if speaker == role:
                messages += [{"role": "user", "content": heard}, {"role": "assistant", "content": text}]
            else:
                heard = text
        return (Request(role=role, messages=[*messages, {"role": "user", "content": heard}]),)

    def advance(self, state, replies):
        (request,) = self.pending(state)
        return Talk(said=(*state.said, (request.role, replies[0])))

    def outcome(self, state):
        return float(len(state.said))


def test_a_reasoner_and_an_actor_have_separate_conversations(chat):
    count = iter("ABCDEF")

    def reply(context):
        return short(chat, f"{next(count)}<|end|>")(context)

    (episode,) = Engine(ReasonerActor(), chat, Sampler(reply)).run([RolloutRequest()])
    assert [(decision.role, decision.action_text) for decision in episode.decisions] == [
        ("reasoner", "A"),
        ("actor", "B"),
        ("reasoner", "C"),
        ("actor", "D"),
        ("reasoner", "E"),
        ("actor", "F"),
    ]
    views = {decision.role: chat.tokenizer.decode(list(decision.context_ids)) for decision in episode.decisions}
    assert views == {
        "reasoner": (
            "<|user|>begin<|end|><|assistant|>A<|end|><|user|>B<|end|><|assistant|>C<|end|><|user|>D<|end|><|assistant|>"
        ),
        "actor": (
            "<|user|>A<|end|><|assistant|>B<|end|><|user|>C<|end|><|assistant|>D<|end|><|user|>E<|end|><|assistant|>"
        ),
    }


def test_each_role_has_its_row_of_tokens(chat):
    (episode,) = Engine(ReasonerActor(), chat, Sampler(babble)).run([RolloutRequest()])
    for role in ("reasoner", "actor"):
        own = [decision for decision in episode.decisions if decision.role == role]
        for before, after in itertools.pairwise(own):
            seen = before.context_ids + before.action_ids
            assert after.context_ids[: len(seen)] == seen
    assert len(decision_rows(episode.decisions, [1.0] * 6)) == 2


@dataclass(frozen=True, kw_only=True)
class Poll:
    rounds: tuple[tuple[str, ...], ...] = ()


class Vote(Interaction[Poll]):
    """Two simultaneous votes of five voters, each with its conversation; the outcome is the share of yes."""

    voters = 5

    def start(self, task, seed):
        return Poll()

    def pending(self, state):
        if len(state.rounds) == 2:
            return ()
        return tuple(
            Request(
                role=f"voter {number}",
                messages=[
                    {"role": "user", "content": f"{number}?"},
                    *(
                        message
                        for replies in state.rounds
                        for message in (
                            {"role": "assistant", "content": replies[number]},
                            {"role": "user", "content": "sure?"},
                        )
                    ),
                ],
            )
            for number in range(self.voters)
        )

    def advance(self, state, replies):
        return Poll(rounds=(*state.rounds, tuple(replies)))

    def outcome(self, state):
        return state.rounds[-1].count("yes") / self.voters


def test_a_vote_samples_all_voters_of_all_episodes_in_one_call(chat):
    yes, no = (short(chat, f"{word}<|end|>")(()) for word in ("yes", "no"))
    odd = {chat.tokenizer.convert_tokens_to_ids(str(number)) for number in (1, 3)}
    sample = Sampler(lambda context: no if context[1] in odd else yes)
    first, second = Engine(Vote(), chat, sample).run([RolloutRequest(), RolloutRequest()])
    assert [len(call) for call in sample.calls] == [10, 10]
    assert first == second
    assert first.outcome == 3 / 5
    assert [decision.role for decision in first.decisions] == [f"voter {number}" for number in range(5)] * 2
    assert [decision.action_text for decision in first.decisions] == ["yes", "no", "yes", "no", "yes"] * 2
    assert chat.tokenizer.decode(list(first.decisions[6].context_ids)) == (
        "<|user|>1?<|end|><|assistant|>no<|end|><|user|>sure?<|end|><|assistant|>"
    )


class Session(Interaction[list[str]]):
    """A writer and then a reader, in an environment with one mutable state object."""

    def start(self, task, seed):
        return []

    def pending(self, state):
        role = ("writer", "reader")[len(state) % 2]
        return () if len(state) == 4 else (Request(role=role, messages=[{"role": "user", "content": role}]),)

    def advance(self, state, replies):
        state.extend(replies)
        return state

    def outcome(self, state):
        return 0.0


def test_steps_are_counted_also_if_the_state_is_always_the_same_object(chat):
    (episode,) = Engine(Session(), chat, Sampler(lambda context: short(chat)(()))).run([RolloutRequest()])
    assert len({id(decision.state) for decision in episode.decisions}) == 1
    assert [decision.step for decision in episode.decisions] == [0, 1, 2, 3]
    assert [[one.role for one in step] for step in episode.steps] == [["writer"], ["reader"]] * 2


def test_simultaneous_decisions_are_known_after_their_states_were_serialised(chat):
    (episode,) = Engine(Vote(), chat, Sampler(lambda context: short(chat)(()))).run([RolloutRequest()])
    read = [replace(one, state=pickle.loads(pickle.dumps(one.state))) for one in episode.decisions]
    assert len({id(decision.state) for decision in read}) == len(read) == 10
    again = replace(episode, decisions=tuple(read))
    assert again == episode
    assert [[one.role for one in step] for step in again.steps] == [[f"voter {number}" for number in range(5)]] * 2
    assert replay_from(Vote(), chat, again, 7) == replay_from(Vote(), chat, episode, 7)
    assert set(replay_from(Vote(), chat, again, 4).conversations) == set()


def test_a_replay_continues_the_count_of_steps(chat):
    engine = Engine(Vote(), chat, Sampler(lambda context: short(chat)(())))
    (episode,) = engine.run([RolloutRequest()])
    (replayed,) = engine.run([replay_from(Vote(), chat, episode, 5)])
    assert [decision.step for decision in replayed.decisions] == [1] * 5
    whole = replace(episode, decisions=(*episode.decisions[:5], *replayed.decisions))
    assert [len(step) for step in whole.steps] == [5, 5]


def test_one_voter_whose_context_is_too_long_ends_the_whole_episode(chat):
    class Wordy(Vote):
        def pending(self, state):
            first, *others = super().pending(state)
            long = [{"role": "user", "content": "x" * 50}]
            return (*others, Request(role=first.role, messages=long)) if state.rounds else (first, *others)

    engine = Engine(Wordy(), chat, Sampler(short(chat, "yes<|end|>")), max_context_tokens=40)
    (episode,) = engine.run([RolloutRequest()])
    assert (episode.ending, len(episode.decisions), episode.outcome) == (Ending.TRUNCATED, 5, 1.0)


# Starting from a recorded state


def test_a_state_is_reseeded_only_with_a_seed(chat):
    state = Tale(name="a", turns=2, replies=("x",), luck=3)
    engine = Engine(TaleInteraction(), chat, Sampler(short(chat)))
    same, other = engine.run([RolloutRequest(state=state, seed=None), RolloutRequest(state=state, seed=9)])
    assert [same.metrics["luck"], other.metrics["luck"]] == [3, 9]
    assert [len(same.decisions), len(other.decisions)] == [1, 1]
    assert same.decisions[0].state == state


def test_only_the_first_context_of_a_role_is_the_recorded_one(chat):
    sample = Sampler(short(chat))
    recorded = tuple(chat.tokenizer("<|user|>other words<|end|><|assistant|>")["input_ids"])
    start = RolloutRequest(task={"name": "a", "turns": 2}, contexts={"teller": recorded})
    (episode,) = Engine(TaleInteraction(), chat, sample).run([start])
    first, second = episode.decisions
    assert first.context_ids == recorded
    assert second.context_ids[: len(recorded)] == recorded
    assert start.contexts == {"teller": recorded}


def replays(engine, episode):
    """The rest of an episode, replayed from each of its states."""
    starts = [RolloutRequest(state=d.state, seed=None, contexts={d.role: d.context_ids}) for d in episode.decisions]
    return engine.run(starts)


@given(st.integers(0, 10**6), st.integers(1, 5))
def test_a_replay_from_any_state_repeats_the_rest_token_for_token(chat, seed, turns):
    engine = Engine(TaleInteraction(), chat, Sampler(babble))
    (episode,) = engine.run([tale(f"tale {seed}", turns)])
    for turn, replay in enumerate(replays(engine, episode)):
        assert replay == replace(episode, decisions=episode.decisions[turn:])


@given(st.integers(0, 10**6))
def test_a_replay_against_an_opponent_repeats_its_moves(chat, seed):
    def play(context):
        # A free or a taken cell, one character a token: encoding the text again would give other tokens.
        row, column = random.Random(str(context)).choices("123", k=2)
        spelled = [*f"<action>place {row} {column}</action>", "<|end|>"]
        return Generation(ids=chat.tokenizer.convert_tokens_to_ids(spelled))

    interaction = EnvironmentInteraction(make("tic_tac_toe", opponent="random"))
    engine = Engine(interaction, chat, Sampler(play))
    (episode,) = engine.run([RolloutRequest(task={"seed": seed}, seed=seed)])
    for turn, replay in enumerate(replays(engine, episode)):
        assert replay == replace(episode, decisions=episode.decisions[turn:])


def test_a_replay_of_a_policy_repeats_its_play(micro_policy_append):
    tokenizer = AutoTokenizer.from_pretrained(micro_policy_append)
    model = AutoModelForCausalLM.from_pretrained(micro_policy_append)
    interaction = EnvironmentInteraction(make("sudoku", size=4, blanks=4), instructions=False)
    engine = Engine(interaction, Chat(tokenizer), sampler(model, tokenizer, max_new_tokens=12, temperature=0))
    episodes = engine.run([RolloutRequest(task={"seed": seed}, seed=seed) for seed in range(16)])
    assert max(len(episode.decisions) for episode in episodes) > 1
    for episode in episodes:
        for turn, replay in enumerate(replays(engine, episode)):
            assert replay == replace(episode, decisions=episode.decisions[turn:])


class Letters:
    """Replies a, b, c, ... in the order of requests."""

    def __init__(self, chat):
        self.chat = chat
        self.asked = 0
        self.widest = 0

    def __call__(self, contexts):
        self.widest = max(self.widest, len(contexts))
        return [self.next_letter() for _ in contexts]

    def next_letter(self):
        self.asked += 1
        text = f"{'abcdefghijklmnopqrstuvwxyz'[(self.asked - 1) % 26]}<|end|>"
        return Generation(ids=self.chat.tokenizer(text, add_special_tokens=False)["input_ids"])


def text_of(episode):
    return "".join(decision.action_text for decision in episode.decisions)


@pytest.mark.parametrize("most", [1, 3, 100])
def test_alternatives_share_earlier_decisions(chat, most):
    sampler = Letters(chat)
    engine = Engine(TaleInteraction(), chat, sampler, max_concurrent=most)
    episodes = engine.run([replace(tale("x", 3), fanout=(2, 1, 3))])
    assert [episode.branch for episode in episodes] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    firsts = [text_of(episode)[:2] for episode in episodes]
    assert firsts[0] == firsts[1] == firsts[2] != firsts[3] == firsts[4] == firsts[5]
    assert len({text_of(episode) for episode in episodes}) == 6
    # Two first messages, one second message under each, three third messages under each: every one sampled once.
    assert sampler.asked == 2 + 2 + 6
    assert [episode.prefix_length for episode in episodes] == [0, 2, 2, 0, 2, 2]
    assert episodes[0].decisions[0] is episodes[2].decisions[0]
    assert sum(len(episode.own_decisions) for episode in episodes) == 10
    assert sum(episode.generated_tokens for episode in episodes) == 2 * 10
    assert sampler.widest <= most


def test_the_first_episode_of_a_fork_owns_the_shared_decisions(chat):
    episodes = Engine(TaleInteraction(), chat, Letters(chat)).run([replace(tale("x", 2), fanout=(2, 2))])
    assert [episode.prefix_length for episode in episodes] == [0, 1, 0, 1]


def test_episodes_keep_the_order_of_requests_with_forks(chat):
    starts = [tale("a", 1), replace(tale("b", 2), fanout=(1, 2)), tale("c", 1)]
    episodes = Engine(TaleInteraction(), chat, Letters(chat), max_concurrent=2).run(starts)
    assert [episode.start for episode in episodes] == [0, 1, 1, 2]


def test_an_episode_that_ends_before_a_fork_is_one_episode(chat):
    episodes = Engine(TaleInteraction(), chat, Letters(chat)).run([replace(tale("a", 1), fanout=(2, 4))])
    assert [episode.branch for episode in episodes] == [(0,), (1,)]


def test_alternatives_have_different_seeds_without_common_random_numbers(chat):
    engine = Engine(TaleInteraction(), chat, Letters(chat))
    lucks = [episode.metrics["luck"] for episode in engine.run([replace(tale("a", 1), fanout=(3,))])]
    assert lucks == [0, 1, 2]
    common = engine.run([replace(tale("a", 2), fanout=(3, 2), stream="s")])
    assert [episode.metrics["luck"] for episode in common] == [0, 1, 0, 1, 0, 1]


def test_the_outcome_of_an_unscored_episode_is_not_computed(chat):
    start = replace(tale("a", 1, fails="outcome", fails_after=1), scored=False)
    (episode,) = Engine(TaleInteraction(), chat, Letters(chat)).run([start])
    assert (episode.ending, episode.scored) == (Ending.FINISHED, False)
    assert episode.outcome != episode.outcome


def test_an_outcome_that_fails_counts_as_scored(chat):
    (episode,) = Engine(TaleInteraction(), chat, Letters(chat)).run([tale("a", 1, fails="outcome", fails_after=1)])
    assert (episode.ending, episode.scored) == (Ending.ERROR, True)


class Seeded(Letters):
    """Replies with its seed, so that equal seeds are equal texts."""

    def seeded(self, contexts, seeds):
        texts = [f"{seed % 10**6}<|end|>" for seed in seeds]
        return [Generation(ids=self.chat.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]


def test_only_alternatives_share_common_random_numbers(chat):
    engine = Engine(TaleInteraction(), chat, Seeded(chat))
    assert engine.honours_seeds
    episodes = engine.run([replace(tale("a", 3), fanout=(2, 3), stream="bucket 7")])
    words = [[decision.action_text for decision in episode.decisions] for episode in episodes]
    first, second = words[:3], words[3:]
    assert first[0][0] != second[0][0]  # the alternatives themselves
    assert [word[1:] for word in first] == [word[1:] for word in second]  # continuation t of each
    assert len({tuple(word[1:]) for word in first}) == 3  # but the continuations of one differ
    again = engine.run([replace(tale("a", 3), fanout=(2, 3), stream="bucket 8")])
    assert [decision.action_text for decision in again[0].decisions] != words[0]


class Undecided(Seeded):
    """The same reply in the first turn for any seed."""

    def seeded(self, contexts, seeds):
        first = self.chat.context([{"role": "user", "content": "a"}])
        same = Generation(ids=self.chat.tokenizer("same<|end|>", add_special_tokens=False)["input_ids"])
        replies = super().seeded(contexts, seeds)
        return [same if context == first else own for context, own in zip(contexts, replies, strict=True)]


def test_alternatives_with_equal_replies_have_different_random_numbers(chat):
    engine = Engine(TaleInteraction(), chat, Undecided(chat))
    episodes = engine.run([replace(tale("a", 3), fanout=(2, 3), stream="bucket 7")])
    words = [tuple(decision.action_text for decision in episode.decisions) for episode in episodes]
    assert {word[0] for word in words} == {"same"}
    assert len({word[1] for word in words}) == 6  # six replays of one alternative, none the copy of another
    assert len({episode.metrics["luck"] for episode in episodes}) == 6  # each in a world of its own


def test_an_episode_that_ends_before_a_fork_counts_for_its_leaves(chat):
    (first, second) = Engine(TaleInteraction(), chat, Letters(chat)).run([replace(tale("a", 1), fanout=(2, 4, 3))])
    assert (first.num_leaves, second.num_leaves) == (12, 12)
    whole = Engine(TaleInteraction(), chat, Letters(chat)).run([replace(tale("a", 2), fanout=(2, 2))])
    assert [episode.num_leaves for episode in whole] == [1] * 4


def test_decisions_before_a_fork_are_shared_and_all_others_are_not(chat):
    episodes = Engine(TaleInteraction(), chat, Letters(chat)).run([replace(tale("x", 2), fanout=(2, 2))])
    ids = [[decision.id for decision in episode.decisions] for episode in episodes]
    assert ids[0][0] == ids[1][0] != ids[2][0] == ids[3][0]
    assert len({one for own in ids for one in own}) == 2 + 4


def test_simultaneous_roles_have_different_random_numbers(chat):
    (episode,) = Engine(Vote(), chat, Seeded(chat)).run([RolloutRequest(stream="bucket 7")])
    said = [decision.action_text for decision in episode.decisions]
    assert len(said) == len(set(said)) == 10


def test_a_sampler_that_ignores_seeds_gets_none(chat):
    engine = Engine(TaleInteraction(), chat, Letters(chat))
    assert not engine.honours_seeds
    assert len(engine.run([replace(tale("a", 1), fanout=(2,), stream="s")])) == 2


def test_a_fanout_below_one_is_refused(chat):
    with pytest.raises(ValueError, match=r"a fanout must be at least 1 at every step, got \(2, 0\); raise it"):
        Engine(TaleInteraction(), chat, Letters(chat)).run([replace(tale("a", 1), fanout=(2, 0))])


# What a request asks for, and what of a reply is handed on


class ShortTale(TaleInteraction):
    """Requests replies of two tokens, and reads their tokens."""

    reads_tokens = True

    def __init__(self):
        self.handed = []

    def pending(self, state):
        return tuple(replace(request, max_tokens=2) for request in super().pending(state))

    def advance(self, state, replies):
        self.handed += replies
        return super().advance(state, replies)


def test_a_reply_longer_than_max_tokens_is_cut_to_its_first_tokens(chat):
    long = Generation(ids=chat.tokenizer.convert_tokens_to_ids(["a", "b", "c", "<|end|>"]), logprobs=[-1, -2, -3, -4])
    interaction = ShortTale()
    (episode,) = Engine(interaction, chat, Sampler(lambda context: long)).run([tale("x", 1)])
    (decision,) = episode.decisions
    assert (decision.action_text, decision.action_ids, decision.logprobs) == ("ab", tuple(long.ids[:2]), (-1, -2))
    (reply,) = interaction.handed
    assert (reply, reply.ids, reply.ended, reply.calls) == ("ab", decision.action_ids, False, ())


class StartedTogether(TaleInteraction):
    """Starts several episodes in one call, and records their number."""

    def __init__(self):
        self.together = []

    def start_many(self, tasks, seeds):
        self.together.append(len(tasks))
        return [or_error(self.start, task, seed) for task, seed in zip(tasks, seeds, strict=True)]


def test_episodes_start_in_parallel_up_to_the_limit(chat):
    starts = [tale("a", 2), tale("b", 1, fails="start"), tale("c", 1), tale("d", 1), tale("e", 1)]
    interaction = StartedTogether()
    found = Engine(interaction, chat, Sampler(babble), max_concurrent=2).run(starts)
    alone = Engine(TaleInteraction(), chat, Sampler(babble)).run(starts)
    assert [(one.ending, one.decisions and one.decisions[0].action_ids) for one in found] == [
        (one.ending, one.decisions and one.decisions[0].action_ids) for one in alone
    ]
    assert (interaction.together[0], sum(interaction.together)) == (2, 5)
