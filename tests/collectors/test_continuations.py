"""Rollouts from visited states, where every future can be counted."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

import pytest

from hf_credit.collectors import Continuations, Rollout, RolloutBatch, continuation_values
from hf_credit.rollouts import Ending, Engine, Generation, Interaction, Ledger, LocalContext, Request, RolloutRequest


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
    return continuation_values(collector([], context)), context.ledger


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


@pytest.mark.parametrize("keep", [True, False])
def test_the_first_reply_of_a_rollout_is_to_the_recorded_tokens_or_to_a_fresh_rendering(chat, keep):
    sample = Sampler(chat)
    engine = Engine(Coin(), chat, sample)
    (episode,) = engine.run([RolloutRequest(seed=0)])
    recorded = chat.tokenizer("<|user|>seen otherwise<|assistant|>", add_special_tokens=False)["input_ids"]
    episode = replace(episode, decisions=(replace(episode.decisions[1], context_ids=tuple(recorded)),))
    sample.calls.clear()
    rollout_values([episode], engine, rollouts=4, keep_contexts=keep)
    fresh = chat.context([{"role": "user", "content": "T?"}])
    assert [tuple(context) for context in sample.calls[0]] == [tuple(recorded) if keep else fresh] * 4


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
    assert values[1] == pytest.approx([1 / 3, math.nan, 0.0], nan_ok=True)


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
    assert rollout_values([failed], engine, rollouts=2) == ([None], Ledger())


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
