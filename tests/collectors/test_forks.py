"""Forks share the decisions before them, cost only the tokens after, and start at the right states."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest

from hf_credit.collectors import RandomForks, UncertainForks, tree_numbers
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import Chat, Ending, Engine, Generation, Interaction, Ledger, LocalContext, Request


@dataclass(frozen=True, kw_only=True)
class Word:
    text: str = ""
    luck: int = 0


class Spelling(Interaction[Word]):
    """Three letters, one a turn; the outcome is how many of them are `a`. `x` breaks the world."""

    letters = 3

    def start(self, task, seed):
        return Word(text=task.get("begun", ""))

    def pending(self, state):
        if len(state.text) == self.letters:
            return ()
        return (Request(role="agent", messages=[{"role": "user", "content": f"{state.text} ?"}]),)

    def advance(self, state, replies):
        if replies[0] == "x":
            raise RuntimeError("no such letter")
        return replace(state, text=state.text + replies[0])

    def outcome(self, state):
        return float(state.text.count("a"))

    def metrics(self, state):
        return {"luck": state.luck}

    def reseed(self, state, seed):
        return replace(state, luck=seed)


class Scripted:
    """Replies with letters in turn; how surprising each is depends on how many letters there are already."""

    def __init__(self, chat, letters, surprise):
        self.chat, self.letters, self.surprise = chat, itertools.cycle(letters), surprise

    def __call__(self, contexts):
        return [self.reply(self.chat.tokenizer.decode(list(context))) for context in contexts]

    def reply(self, shown):
        ids = self.chat.tokenizer(f"{next(self.letters)}<|end|>", add_special_tokens=False)["input_ids"]
        depth = len(shown.removeprefix("<|user|>").partition("?")[0].strip())
        return Generation(ids=ids, logprobs=[-self.surprise[depth]] * len(ids))


@pytest.fixture(scope="module")
def chat():
    return Chat(tokenizer_of(["a b c x ?"]))


def local(chat, letters="abbacab", surprise=(1.0, 1.0, 1.0)):
    return LocalContext(Engine(Spelling(), chat, Scripted(chat, letters, surprise)))


def told(sample):
    return "".join(decision.action_text for decision in sample.episode.decisions)


def forked_at(collected):
    return [sample.episode.prefix_length for sample in collected.rollouts if sample.source]


def test_a_fork_shares_what_came_before_and_goes_its_own_way(chat):
    context = local(chat)
    collected = RandomForks(trees=2, expansions=2, rounds=2)([{}, {}], context)
    by_id = {one.id: one for sample in collected.rollouts for one in sample.episode.decisions}
    assert len(collected.rollouts) == 2 * 2 * (1 + 2 * 2)
    assert collected.rows == 2
    for sample in collected.rollouts:
        decisions = sample.episode.decisions
        assert sample.trained
        assert sample.episode.outcome == told(sample).count("a")
        assert [one.step for one in decisions] == [0, 1, 2]
        assert [one.state.text for one in decisions] == ["", told(sample)[:1], told(sample)[:2]]
        if sample.source:
            own = decisions[sample.episode.prefix_length]
            beside = by_id[sample.source]
            assert own.id != beside.id
            assert (own.state.text, own.context_ids) == (beside.state.text, beside.context_ids)
            assert sample.episode.metrics["luck"] > 0  # a world of its own ahead


def test_what_was_played_is_in_the_ledger_once(chat):
    context = local(chat)
    collected = RandomForks(trees=1, expansions=3, rounds=1)([{}], context)
    assert context.ledger == Ledger.of(sample.episode for sample in collected.rollouts)
    decisions = {one.id for sample in collected.rollouts for one in sample.episode.decisions}
    assert context.ledger.decisions == {"agent": len(decisions)}
    assert context.ledger.scoring_events == 4


def test_forks_are_of_the_tree_that_they_come_from(chat):
    collected = RandomForks(trees=3, expansions=1, rounds=3)([{}, {}], local(chat))
    numbers = tree_numbers(collected)
    assert sorted(numbers) == sorted([*range(6)] * 4)
    of_decision: dict[str, int] = {}
    for number, sample in zip(numbers, collected.rollouts, strict=True):
        assert not sample.source or of_decision[sample.source] == number
        for decision in sample.episode.decisions:
            assert of_decision.setdefault(decision.id, number) == number


def test_the_next_fork_is_where_the_policy_is_least_sure(chat):
    # Two episodes from the start: H/n is 3/2 there, 1 after one letter and 2 after two. A fork halves it to 2/2.
    context = local(chat, letters="abc", surprise=(3.0, 1.0, 2.0))
    collected = UncertainForks(initial=2, forks=4)([{}], context)
    # After two letters of one and of the other, at the start (3/2), and 1 for all: the first of them.
    assert forked_at(collected)[:3] == [2, 2, 0]
    assert len(collected.rollouts) == 6


def test_the_surprise_of_a_step_is_per_token(chat):
    class Wordy(Spelling):
        def advance(self, state, replies):
            return replace(state, text=state.text + replies[0][0])

    # Of four tokens with the end, two and two: H/n is 1.5/2 at the start and 1 after one letter; in sums 6/2 and 2.
    scripted = Scripted(chat, ["a b c", "a b c", "a", "b", "a", "b"], (1.5, 1.0, 0.1))
    collected = UncertainForks(initial=2, forks=1)([{}], LocalContext(Engine(Wordy(), chat, scripted)))
    assert forked_at(collected) == [1]


@pytest.mark.parametrize("forks_per_round", [1, 2, 5])
def test_every_task_forks_as_often_however_many_a_round(chat, forks_per_round):
    collected = UncertainForks(initial=2, forks=5, forks_per_round=forks_per_round)([{}, {}], local(chat))
    assert sorted(sample.instance for sample in collected.rollouts) == [0] * 7 + [1] * 7


def test_states_of_one_tree_are_chosen_apart_from_those_of_others(chat):
    collected = UncertainForks(initial=2, forks=3)([{}, {}], local(chat, letters="abcab"))
    held = [
        {one.id for s in collected.rollouts if s.instance == task for one in s.episode.decisions} for task in (0, 1)
    ]
    assert not held[0] & held[1]


def test_nothing_forks_from_an_episode_that_failed(chat):
    for collector in RandomForks(trees=2, expansions=2), UncertainForks(initial=2, forks=2):
        collected = collector([{}, {}], local(chat, letters="xx" + "abacab" * 9))
        failed = [sample for sample in collected.rollouts if sample.episode.ending == Ending.ERROR]
        assert [(sample.instance, sample.source) for sample in failed] == [(0, ""), (0, "")]
        assert {sample.instance for sample in collected.rollouts if sample.source} == {1}


def test_a_fork_that_fails_is_kept_and_not_forked_from(chat):
    collected = UncertainForks(initial=2, forks=3)([{}], local(chat, letters="aaaaaax"))
    failed = [sample for sample in collected.rollouts if sample.episode.ending == Ending.ERROR]
    broken = {sample.episode.decisions[-1].id for sample in failed}
    assert failed
    assert not broken & {sample.source for sample in collected.rollouts}


def test_no_tasks_are_played_as_often(chat):
    for collector in RandomForks(), UncertainForks(forks=2):
        assert collector([], local(chat)).rollouts == ()
