"""Forks, alternatives and rollouts share what was before them, and start at the right states."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest

from hf_credit.collectors import (
    Continuations,
    RandomForks,
    Rollout,
    RolloutBatch,
    UncertainForks,
    VisitedContexts,
    continuation_values,
    tree_numbers,
)
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import (
    Chat,
    Ending,
    Engine,
    Generation,
    Interaction,
    Ledger,
    LocalContext,
    Request,
    RolloutRequest,
)


@dataclass(frozen=True, kw_only=True)
class Tosses:
    """What fell, and, as binary digits, what will fall."""

    fell: str = ""
    ahead: int = 0


class Coin(Interaction[Tosses]):
    """Three tosses; an outcome is the share of heads. Reseeding with 0 to 7 brings every future in turn."""

    tosses = 3

    def start(self, task, seed):
        return Tosses(ahead=seed)

    def pending(self, state):
        if len(state.fell) == self.tosses:
            return ()
        return (Request(role="agent", messages=[{"role": "user", "content": f"{state.fell}?"}]),)

    def advance(self, state, replies):
        return replace(state, fell=state.fell + "TH"[state.ahead >> len(state.fell) & 1])

    def outcome(self, state):
        return state.fell.count("H") / self.tosses

    def reseed(self, state, seed):
        return replace(state, ahead=seed)


class Sampler:
    def __init__(self, chat):
        self.reply = Generation(ids=chat.tokenizer("ok<|end|>", add_special_tokens=False)["input_ids"])
        self.calls = []

    def __call__(self, contexts):
        self.calls.append(contexts)
        return [self.reply] * len(contexts)


class Given:
    """A collector that has played already."""

    def __init__(self, episodes):
        self.episodes = episodes

    def __call__(self, rows, context, memory=None):
        samples = tuple(Rollout(episode=one, instance=place) for place, one in enumerate(self.episodes))
        return RolloutBatch(rollouts=samples, rows=len(self.episodes))


def rollout_values(episodes, engine, rollouts, keep_contexts=True):
    """The values, and what the rollouts cost."""
    context = LocalContext(engine)
    template = None if keep_contexts else {"enable_thinking": False}
    collector = Continuations(rollouts=rollouts, inner=Given(episodes), template_kwargs=template)
    known = continuation_values(collector([], context))
    return [[known.get(one.id) for one in episode.decisions] for episode in episodes], context.ledger


def expected(fell):
    """The mean outcome over every future, counted one by one."""
    futures = list(product("TH", repeat=Coin.tosses - len(fell)))
    return sum((fell + "".join(future)).count("H") for future in futures) / len(futures) / Coin.tosses


def test_values_are_the_means_over_all_futures(chat):
    engine = Engine(Coin(), chat, Sampler(chat))
    episodes = engine.run([RolloutRequest(seed=seed) for seed in range(8)])
    assert {episode.outcome for episode in episodes} == {0, 1 / 3, 2 / 3, 1}
    values, cost = rollout_values(episodes, engine, rollouts=8)
    for episode, own in zip(episodes, values, strict=True):
        assert own == pytest.approx([expected(decision.state.fell) for decision in episode.decisions])
        assert own[0] == pytest.approx(1 / 2)
    # 8 episodes, 8 rollouts from each of their states, which are 3, 2 and 1 replies of 3 tokens from the end
    assert cost.completion_tokens == 8 * 8 * (3 + 2 + 1) * 3
    assert cost.scoring_events == 8 * 8 * 3


def test_each_rollout_has_a_future_of_its_own(chat):
    engine = Engine(Coin(), chat, Sampler(chat))
    episodes = engine.run([RolloutRequest(seed=0)])
    # the first future is three tails, the second heads and two tails
    assert rollout_values(episodes, engine, rollouts=1)[0] == [[0, 0, 0]]
    assert rollout_values(episodes, engine, rollouts=2)[0] == [pytest.approx([1 / 6, 0, 0])]


def test_the_episodes_are_not_changed_and_may_be_empty(chat):
    engine = Engine(Coin(), chat, Sampler(chat))
    (episode,) = engine.run([RolloutRequest(seed=5)])
    none = replace(episode, decisions=())
    values, _ = rollout_values([none, episode, none], engine, rollouts=2)
    assert [len(own) for own in values] == [0, 3, 0]
    assert rollout_values([none], engine, rollouts=2) == ([[]], Ledger())
    assert rollout_values([], engine, rollouts=2) == ([], Ledger())
    assert episode == engine.run([RolloutRequest(seed=5)])[0]


@dataclass(frozen=True)
class Lines:
    said: tuple[str, ...] = ()


class Duet(Interaction[Lines]):
    """Two roles in turn, twice, each in a conversation of its own."""

    roles = ("ann", "bob")

    def start(self, task, seed):
        return Lines()

    def pending(self, state):
        if len(state.said) == 4:
            return ()
        place = len(state.said) % 2
        messages = [{"role": "user", "content": "?"}]
        for said in state.said[place::2]:
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "?"}]
        return (Request(role=self.roles[place], messages=messages),)

    def advance(self, state, replies):
        return Lines((*state.said, *replies))

    def outcome(self, state):
        return 1.0

    def reseed(self, state, seed):
        return state


@pytest.mark.parametrize("keep", [True, False])
def test_rollouts_continue_the_recorded_tokens_of_all_roles_or_a_fresh_rendering(chat, keep):
    sample = Sampler(chat)
    # The text of a reply has no special token, so a conversation that is rendered afresh lacks it.
    sample.reply = Generation(ids=chat.tokenizer("o<|user|>k<|end|>", add_special_tokens=False)["input_ids"])
    engine = Engine(Duet(), chat, sample)
    (episode,) = engine.run([RolloutRequest()])
    sample.calls.clear()
    rollout_values([episode], engine, rollouts=2, keep_contexts=keep)
    asked = {context for contexts in sample.calls for context in contexts}
    recorded = {decision.context_ids for decision in episode.decisions}
    assert (asked == recorded) == keep


def test_rollouts_are_played_a_bounded_number_at_a_time_and_only_their_first_step_is_kept(chat, monkeypatch):
    sample = Sampler(chat)
    context = LocalContext(Engine(Coin(), chat, sample))
    whole = Continuations(rollouts=3)([{"seed": 0}, {"seed": 6}], context)
    monkeypatch.setattr("hf_credit.collectors.forks.AT_ONCE", 6)
    sample.calls.clear()
    parts = Continuations(rollouts=3)([{"seed": 0}, {"seed": 6}], context)
    assert max(map(len, sample.calls)) == 6
    assert [*continuation_values(parts).values()] == [*continuation_values(whole).values()]
    assert {len(one.episode.decisions) for one in parts.of_kind("continuation")} == {1}


class Fragile(Coin):
    """Fails on every second future; from `T` on, on all."""

    def advance(self, state, replies):
        if state.ahead % 2 or state.fell == "T":
            raise RuntimeError("the coin rolled away")
        return replace(state, fell=state.fell + "TH"[state.ahead >> len(state.fell) + 1 & 1])


def test_rollouts_that_fail_are_left_out_and_where_all_fail_the_value_is_unknown(chat):
    engine = Engine(Fragile(), chat, Sampler(chat))
    recorded = Engine(Coin(), chat, Sampler(chat)).run([RolloutRequest(seed=1), RolloutRequest(seed=0)])
    values, _ = rollout_values(recorded, engine, rollouts=4)
    heads, tails = recorded
    assert [decision.state.fell for decision in heads.decisions] == ["", "H", "HT"]
    # Futures 0 and 2 go on. From nothing, 0 falls on T and fails, 2 falls on H and then twice on T. From "H" on,
    # bits 2 and 3 fall, which are T in both.
    assert values[0] == pytest.approx([1 / 3, 1 / 3, 1 / 3])
    assert [decision.state.fell for decision in tails.decisions] == ["", "T", "TT"]
    assert values[1] == [pytest.approx(1 / 3), None, 0.0]


def test_a_rollout_counts_however_it_ended(chat):
    engine = Engine(Coin(), chat, Sampler(chat), max_context_tokens=4)
    (episode,) = Engine(Coin(), chat, Sampler(chat)).run([RolloutRequest(seed=7)])
    # `<|user|> H ? <|end|> <|assistant|>` is too long: from the first state a rollout stops after one toss.
    values, _ = rollout_values([replace(episode, decisions=episode.decisions[:1])], engine, rollouts=2)
    assert values == [[pytest.approx(1 / 6)]]
    (cut,) = engine.run([RolloutRequest(seed=7)])
    assert cut.ending == Ending.TRUNCATED


def test_nothing_is_rolled_out_from_an_episode_that_failed(chat):
    engine = Engine(Coin(), chat, Sampler(chat))
    (episode,) = engine.run([RolloutRequest(seed=5)])
    failed = replace(episode, ending=Ending.ERROR)
    assert rollout_values([failed], engine, rollouts=2) == ([[None] * 3], Ledger())


def test_rollouts_are_there_for_comparison_only(chat):
    engine = Engine(Coin(), chat, Sampler(chat))
    context = LocalContext(engine)
    collected = Continuations(rollouts=2)([{"seed": 0}, {"seed": 1}], context)
    assert len(collected.trained) == 2
    others = collected.of_kind("continuation")
    assert len(others) == 2 * 3 * 2
    assert not any(sample.trained for sample in others)
    assert [sample.instance for sample in others] == [0] * 6 + [1] * 6
    assert context.ledger.scoring_events == 2 + 12


@dataclass(frozen=True, kw_only=True)
class Talk:
    told: tuple[str, ...] = ()


class Chatter(Interaction[Talk]):
    """Three turns of one event type, each in view of the reply before it."""

    def start(self, task: Any, seed: int) -> Talk:
        return Talk()

    def pending(self, state: Talk) -> tuple[Request, ...]:
        if len(state.told) == 3:
            return ()
        seen = "".join(state.told)
        return (Request(role="agent", messages=[{"role": "user", "content": f"{seen}?"}]),)

    def advance(self, state: Talk, replies: Any) -> Talk:
        return replace(state, told=(*state.told, *replies))

    def outcome(self, state: Talk) -> float:
        return float(len("".join(state.told)))


class Letters:
    """Another letter with every reply."""

    def __init__(self, chat: Any) -> None:
        self.chat, self.count = chat, 0

    def __call__(self, contexts: Any) -> list[Generation]:
        replies = []
        for _ in contexts:
            letter = "defghijklmnpqrstuvwxyz"[self.count % 22]
            self.count += 1
            replies.append(
                Generation(ids=self.chat.tokenizer(f"{letter}<|end|>", add_special_tokens=False)["input_ids"])
            )
        return replies


@pytest.fixture
def context(chat: Any) -> LocalContext:
    return LocalContext(Engine(Chatter(), chat, Letters(chat)))


def collector(**changed: Any) -> VisitedContexts:
    return VisitedContexts(**{"references": 2, "contexts": 3, "alternatives": 2, "replays": 2, **changed})


def test_reference_rollouts_are_unscored_and_never_trained_on(context: LocalContext) -> None:
    collected = collector()([{}, {}], context)
    references = collected.of_kind("reference")
    assert [(sample.instance, sample.trained, sample.episode.scored) for sample in references] == [
        (0, False, False),
        (0, False, False),
        (1, False, False),
        (1, False, False),
    ]
    assert context.metrics["tokens/reference_rollouts"] == [4 * 3 * 2]
    scored = [sample for sample in collected.rollouts if sample.episode.scored]
    assert context.ledger.scoring_events == len(scored) == len(collected.trained)


def test_each_context_is_drawn_once_however_many_there_are_of_its_event(context: LocalContext) -> None:
    collected = collector(contexts=4)([{}], context)
    contexts = {sample.episode.decisions[0].context_ids for sample in collected.trained}
    # The first context is the same in both references, so five are visited; four are drawn.
    assert len(contexts) == 4
    assert len(collector(contexts=9)([{}], context).trained) == 4 + 4 + 4 + 2 + 2  # the last turn has no replay


def test_each_update_and_each_instance_draws_contexts_of_its_own(context: LocalContext) -> None:
    one = collector(references=1, contexts=1, alternatives=2, replays=1)

    def turns() -> list[int]:
        """At which turn the context of each of twelve instances was."""
        played = one([{}] * 12, context).trained
        return [len(played[place].episode.decisions) for place in range(0, 24, 2)]

    first = turns()
    assert len(set(first)) > 1
    assert turns() == first
    context.update = 2
    assert turns() != first


def test_an_instance_over_its_budget_is_rejected(context: LocalContext) -> None:
    with pytest.raises(RuntimeError, match="at most 3 terminal scores"):
        collector(budget=3)([{}], context)


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
def alphabet():
    return Chat(tokenizer_of(["a b c x ?"]))


def local(alphabet, letters="abbacab", surprise=(1.0, 1.0, 1.0)):
    return LocalContext(Engine(Spelling(), alphabet, Scripted(alphabet, letters, surprise)))


def told(sample):
    return "".join(decision.action_text for decision in sample.episode.decisions)


def forked_at(collected):
    return [sample.episode.prefix_length for sample in collected.rollouts if sample.source]


def test_a_fork_shares_what_came_before_and_goes_its_own_way(alphabet):
    context = local(alphabet)
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


def test_what_was_played_is_in_the_ledger_once(alphabet):
    context = local(alphabet)
    collected = RandomForks(trees=1, expansions=3, rounds=1)([{}], context)
    assert context.ledger == Ledger.of(sample.episode for sample in collected.rollouts)
    decisions = {one.id for sample in collected.rollouts for one in sample.episode.decisions}
    assert context.ledger.decisions == {"agent": len(decisions)}
    assert context.ledger.scoring_events == 4


def test_forks_are_of_the_tree_that_they_come_from(alphabet):
    collected = RandomForks(trees=3, expansions=1, rounds=3)([{}, {}], local(alphabet))
    numbers = tree_numbers(collected)
    assert sorted(numbers) == sorted([*range(6)] * 4)
    of_decision: dict[str, int] = {}
    for number, sample in zip(numbers, collected.rollouts, strict=True):
        assert not sample.source or of_decision[sample.source] == number
        for decision in sample.episode.decisions:
            assert of_decision.setdefault(decision.id, number) == number


def test_the_next_fork_is_where_the_policy_is_least_sure(alphabet):
    # Two episodes from the start: H/n is 3/2 there, 1 after one letter and 2 after two. A fork halves it to 2/2.
    context = local(alphabet, letters="abc", surprise=(3.0, 1.0, 2.0))
    collected = UncertainForks(initial=2, forks=4)([{}], context)
    # After two letters of one and of the other, at the start (3/2), and 1 for all: the first of them.
    assert forked_at(collected)[:3] == [2, 2, 0]
    assert len(collected.rollouts) == 6


def test_the_surprise_of_a_step_is_per_token(alphabet):
    class Wordy(Spelling):
        def advance(self, state, replies):
            return replace(state, text=state.text + replies[0][0])

    # Of four tokens with the end, two and two: H/n is 1.5/2 at the start and 1 after one letter; in sums 6/2 and 2.
    scripted = Scripted(alphabet, ["a b c", "a b c", "a", "b", "a", "b"], (1.5, 1.0, 0.1))
    collected = UncertainForks(initial=2, forks=1)([{}], LocalContext(Engine(Wordy(), alphabet, scripted)))
    assert forked_at(collected) == [1]


@pytest.mark.parametrize("forks_per_round", [1, 2, 5])
def test_every_task_forks_as_often_however_many_a_round(alphabet, forks_per_round):
    collected = UncertainForks(initial=2, forks=5, forks_per_round=forks_per_round)([{}, {}], local(alphabet))
    assert sorted(sample.instance for sample in collected.rollouts) == [0] * 7 + [1] * 7


def test_states_of_one_tree_are_chosen_apart_from_those_of_others(alphabet):
    collected = UncertainForks(initial=2, forks=3)([{}, {}], local(alphabet, letters="abcab"))
    held = [
        {one.id for s in collected.rollouts if s.instance == task for one in s.episode.decisions} for task in (0, 1)
    ]
    assert not held[0] & held[1]


class Judged(Spelling):
    """After each letter an untrained judge speaks."""

    untrained = ("judge",)

    def pending(self, state):
        (request,) = super().pending(state) or (None,)
        judged = request is not None and len(state.text) % 2
        return () if request is None else (replace(request, role="judge" if judged else "agent"),)


def test_nothing_forks_at_the_replies_of_untrained_roles(alphabet):
    for collector in RandomForks(trees=2, expansions=2), UncertainForks(initial=2, forks=3):
        collected = collector([{}], LocalContext(Engine(Judged(), alphabet, Scripted(alphabet, "abbacab", (1, 9, 1)))))
        assert {place % 2 for place in forked_at(collected)} == {0}


def test_nothing_forks_from_an_episode_that_failed(alphabet):
    for collector in RandomForks(trees=2, expansions=2), UncertainForks(initial=2, forks=2):
        collected = collector([{}, {}], local(alphabet, letters="xx" + "abacab" * 9))
        failed = [sample for sample in collected.rollouts if sample.episode.ending == Ending.ERROR]
        assert [(sample.instance, sample.source) for sample in failed] == [(0, ""), (0, "")]
        assert {sample.instance for sample in collected.rollouts if sample.source} == {1}


def test_a_fork_that_fails_is_kept_and_not_forked_from(alphabet):
    collected = UncertainForks(initial=2, forks=3)([{}], local(alphabet, letters="aaaaaax"))
    failed = [sample for sample in collected.rollouts if sample.episode.ending == Ending.ERROR]
    broken = {sample.episode.decisions[-1].id for sample in failed}
    assert failed
    assert not broken & {sample.source for sample in collected.rollouts}


def test_no_tasks_are_played_as_often(alphabet):
    for collector in RandomForks(), UncertainForks(forks=2):
        assert collector([], local(alphabet)).rollouts == ()
