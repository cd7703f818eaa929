"""A replay has the recorded state and context, and the same future for the same replies."""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_credit import make
from hf_credit.rollouts import (
    Chat,
    Ending,
    Engine,
    EnvironmentInteraction,
    Generation,
    Interaction,
    Request,
    RolloutRequest,
    context_key,
    continued,
    replay_from,
)


def test_a_key_is_the_digest_as_a_big_endian_integer_of_63_bits():
    digest = hashlib.blake2b(b"Problem: 1 + 1 = ?", digest_size=8).hexdigest()
    assert context_key("Problem: 1 + 1 = ?") == int(digest, 16) % 2**63


@given(st.text())
def test_keys_are_in_range_and_repeat(text):
    assert 0 <= context_key(text) < 2**63
    assert context_key(text) == context_key(text)


def test_half_a_surrogate_pair_has_a_key():
    assert context_key("\ud800") != context_key("\ud801")


@dataclass(frozen=True)
class Talk:
    topic: str
    said: tuple[str, ...] = ()
    seed: int = 0


class Panel(Interaction[Talk]):
    """A host, then two guests simultaneously, then the host again; each role has its conversation."""

    turns = (("host",), ("ann", "bob"), ("host",))

    def start(self, task, seed):
        return Talk(topic=task["topic"], seed=seed)

    def turn(self, state):
        done = 0
        for names in self.turns:
            if done == len(state.said):
                return names
            done += len(names)
        return ()

    def pending(self, state):
        order = [name for names in self.turns for name in names]
        requests = []
        for name in self.turn(state):
            messages = [{"role": "user", "content": f"{name}: {state.topic}"}]
            for place, said in enumerate(state.said):
                kind = "assistant" if order[place] == name else "user"
                messages.append({"role": kind, "content": said})
            requests.append(Request(role="guest" if name != "host" else "host", event=name, messages=messages))
        return tuple(requests)

    def advance(self, state, replies):
        return replace(state, said=(*state.said, *replies))

    def outcome(self, state):
        return len("".join(state.said)) % 7 / 7


def babble(contexts):
    """Tokens that depend on every token of the context, with spellings that no tokenizer would choose."""
    replies = []
    for context in contexts:
        draws = random.Random(str(tuple(context)))
        replies.append(Generation(ids=[*(draws.randrange(5, 100) for _ in range(draws.randrange(1, 6))), 1]))
    return replies


INTERACTIONS = {
    "panel": (Panel(), [{"topic": "rain"}, {"topic": "sun"}]),
    "tic_tac_toe": (EnvironmentInteraction(make("tic_tac_toe")), [{"seed": 1}, {"seed": 2}]),
    "sudoku": (EnvironmentInteraction(make("sudoku", size=4, blanks=5)), [{"seed": 1}, {"seed": 2}]),
    "minesweeper": (EnvironmentInteraction(make("minesweeper"), history="current"), [{"seed": 1}, {"seed": 2}]),
}


def players(interaction, chat):
    """A sampler of legal moves if it can read the board, so that games last, and of random text otherwise."""
    if not isinstance(interaction, EnvironmentInteraction):
        return babble

    from hf_credit.environments.actions import tag

    def play(contexts):
        replies = []
        for context in contexts:
            draws = random.Random(str(tuple(context)))
            texts = {
                "tic_tac_toe": f"{draws.choice('ABC')}{draws.randrange(1, 4)}",
                "sudoku": f"R{draws.randrange(1, 5)} C{draws.randrange(1, 5)} {draws.randrange(1, 5)}",
            }
            text = tag(
                texts.get(interaction.environment.name, f"reveal {draws.randrange(1, 6)} {draws.randrange(1, 6)}")
            )
            replies.append(Generation(ids=[*chat.tokenizer(text, add_special_tokens=False)["input_ids"], 1]))
        return replies

    return play


@pytest.mark.parametrize("name", INTERACTIONS)
def test_replaying_the_recorded_reply_gives_the_rest_of_the_episode_again(name, chat):
    interaction, tasks = INTERACTIONS[name]
    engine = Engine(interaction, chat, players(interaction, chat))
    for episode in engine.run([RolloutRequest(task=task) for task in tasks]):
        for index, decision in enumerate(episode.decisions):
            start = replay_from(interaction, chat, episode, index, reply=decision)
            (again,) = engine.run([start])
            step = [other.state for other in episode.decisions].index(decision.state)
            assert again.decisions == episode.decisions[step:]
            assert (again.outcome, again.ending) == (episode.outcome, episode.ending)


@pytest.mark.parametrize("name", INTERACTIONS)
def test_an_episode_that_is_stopped_after_each_step_and_continued_is_the_whole_one(name, chat):
    interaction, tasks = INTERACTIONS[name]
    engine = Engine(interaction, chat, players(interaction, chat))
    for whole in engine.run([RolloutRequest(task=task) for task in tasks]):
        (part,) = engine.run([RolloutRequest(task=tasks[whole.start], most_steps=1)])
        decisions = part.decisions
        while math.isnan(part.outcome):
            assert (part.ending, part.scored) == (Ending.TRUNCATED, 0)
            (part,) = engine.run([continued(interaction, replace(part, decisions=decisions), most_steps=1)])
            decisions += part.decisions
        assert decisions == whole.decisions
        assert [one.step for one in decisions] == [one.step for one in whole.decisions]
        assert (part.outcome, part.ending) == (whole.outcome, whole.ending)


def test_a_forced_reply_replaces_the_sample(chat):
    engine = Engine(Panel(), chat, babble)
    (episode,) = engine.run([RolloutRequest(task={"topic": "rain"})])
    ids = chat.tokenizer("no.<|end|>", add_special_tokens=False)["input_ids"]
    (other,) = engine.run([replay_from(Panel(), chat, episode, 1, reply=Generation(ids=ids))])
    ann, bob, host = other.decisions
    assert (ann.event, ann.action_text, ann.context_ids) == ("ann", "no.", episode.decisions[1].context_ids)
    assert bob == episode.decisions[2]  # asked at the same time, so from the same context
    # The host's conversation goes on from its tokens, which no tokenizer would have chosen.
    opening = episode.decisions[0]
    assert (
        host.context_ids[: len(opening.context_ids + opening.action_ids)] == opening.context_ids + opening.action_ids
    )


def test_alternatives_at_a_recorded_decision_share_its_context(chat):
    interaction, tasks = INTERACTIONS["panel"]
    engine = Engine(interaction, chat, babble)
    (episode,) = engine.run([RolloutRequest(task=tasks[0])])
    branches = engine.run([replay_from(interaction, chat, episode, 3, fanout=(4,))])
    assert {branch.decisions[0].context_ids for branch in branches} == {episode.decisions[3].context_ids}
    assert [one.branch for one in branches] == [(0,), (1,), (2,), (3,)]


def test_simultaneous_decisions_are_not_in_the_past_of_a_replay(chat):
    (episode,) = Engine(Panel(), chat, babble).run([RolloutRequest(task={"topic": "rain"})])
    assert [decision.event for decision in episode.decisions] == ["host", "ann", "bob", "host"]
    threads = [set(replay_from(Panel(), chat, episode, index).conversations) for index in range(4)]
    assert threads == [set(), {"host"}, {"host"}, {"host", "ann", "bob"}]


def test_a_state_of_another_task_is_refused(chat):
    engine = Engine(Panel(), chat, babble)
    rain, sun = engine.run([RolloutRequest(task={"topic": "rain"}), RolloutRequest(task={"topic": "sun"})])
    swapped = replace(rain.decisions[0], state=sun.decisions[0].state)
    mixed = replace(rain, decisions=(swapped, *rain.decisions[1:]))
    with pytest.raises(ValueError, match="must produce the recorded context, got another one for event 'host'"):
        replay_from(Panel(), chat, mixed, 0)


def test_a_state_without_a_request_for_the_event_is_refused(chat):
    (episode,) = Engine(Panel(), chat, babble).run([RolloutRequest(task={"topic": "rain"})])
    swapped = replace(episode.decisions[1], state=episode.decisions[0].state)
    mixed = replace(episode, decisions=(episode.decisions[0], swapped, *episode.decisions[2:]))
    with pytest.raises(ValueError, match="got none for 'ann'"):
        replay_from(Panel(), chat, mixed, 1)


def test_another_chat_template_is_refused(chat, tokenizer):
    (episode,) = Engine(Panel(), chat, babble).run([RolloutRequest(task={"topic": "rain"})])
    other = Chat(tokenizer, {})
    other._render = lambda messages: "<|user|>else<|end|><|assistant|>"
    with pytest.raises(ValueError, match="must produce the recorded context"):
        replay_from(Panel(), other, episode, 0)


def test_an_index_outside_the_episode_is_refused(chat):
    (episode,) = Engine(Panel(), chat, babble).run([RolloutRequest(task={"topic": "rain"})])
    with pytest.raises(IndexError, match="one of the 4 decisions of its episode, got index 4"):
        replay_from(Panel(), chat, episode, 4)


@given(st.text(max_size=20))
def test_equal_states_have_equal_bytes_and_equal_keys(chat, topic):
    panel = Panel()
    state = panel.start({"topic": topic.replace("\ud800", "")}, 0)
    first, second = (chat._render(panel.pending(state)[0].messages) for _ in range(2))
    assert first == second
    assert context_key(first) == context_key(second)


def test_what_was_earned_before_a_replay_counts_as_in_the_whole_episode(chat):
    class Paid(Interaction[int]):
        def start(self, task, seed):
            return 0

        def pending(self, state):
            return (Request(role="agent", messages=({"role": "user", "content": "1"},)),) if state < 3 else ()

        def advance(self, state, replies):
            return state + 1

        def reward(self, state):
            return 1.0

        def outcome(self, state):
            return float(state)

    engine = Engine(Paid(), chat, lambda contexts: [Generation(ids=[1]) for _ in contexts])
    (whole,) = engine.run([RolloutRequest(task={})])
    (later,) = engine.run([replay_from(Paid(), chat, whole, 1)])
    (latest,) = engine.run([replay_from(Paid(), chat, later, 1)])
    assert [one.earned for one in (whole, later, latest)] == [0, 1, 2]
