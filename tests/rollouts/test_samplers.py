"""Every reply comes from the sampler of its role."""

from __future__ import annotations

import pytest

from hf_credit.collaborations.relay import relay, relay_task
from hf_credit.environments import make
from hf_credit.policies.micro import build_tokenizer
from hf_credit.rollouts import Chat, Engine, Generation, RolloutRequest
from hf_credit.rollouts.samplers import honours_seeds, sample


class Says:
    """Replies with one token and keeps the contexts of every call."""

    def __init__(self, token, log=None):
        self.token, self.log = token, [] if log is None else log

    def __call__(self, contexts):
        self.log.append((self.token, [list(context) for context in contexts]))
        return [Generation(ids=[self.token]) for _ in contexts]


class SaysSeeded(Says):
    def seeded(self, contexts, seeds):
        return [Generation(ids=[self.token, seed]) for seed in seeds]


def test_each_sampler_is_called_once_with_the_contexts_of_its_role():
    log = []
    generate = {"actor": Says(7, log), "reasoner": Says(8, log), "judge": Says(9, log)}
    replies = sample(generate, ["reasoner", "actor", "reasoner"], [[1], [2], [3]], [None] * 3)
    assert [reply.ids for reply in replies] == [[8], [7], [8]]
    assert log == [(7, [[2]]), (8, [[1], [3]])]  # in the order of the samplers


def test_one_sampler_of_all_roles_is_called_once():
    says = Says(7)
    assert [reply.ids for reply in sample(says, ["a", "b"], [[1], [2]], [None, None])] == [[7], [7]]
    assert says.log == [(7, [[1], [2]])]


def test_each_context_keeps_its_seed():
    generate = {"a": SaysSeeded(7), "b": SaysSeeded(8)}
    replies = sample(generate, ["b", "a", "b"], [[1], [2], [3]], [10, 20, 30])
    assert [reply.ids for reply in replies] == [[8, 10], [7, 20], [8, 30]]


def test_seeds_are_honoured_only_if_all_samplers_do():
    assert honours_seeds({"a": SaysSeeded(7), "b": SaysSeeded(8)})
    mixed = {"a": SaysSeeded(7), "b": Says(8)}
    assert not honours_seeds(mixed)
    assert [reply.ids for reply in sample(mixed, ["a", "b"], [[1], [2]], [10, 20])] == [[7], [8]]


def test_a_role_without_a_sampler_is_named():
    with pytest.raises(ValueError, match=r"every role must have a sampler, got none for 'b' in a mapping for a; add"):
        sample({"a": Says(7)}, ["a", "b"], [[1], [2]], [None, None])


def test_an_engine_refuses_a_role_without_a_sampler_when_it_is_made():
    chat = Chat(build_tokenizer(make("tic_tac_toe"), episodes=1))
    with pytest.raises(ValueError, match=r"got none for 'actor' in a mapping for reasoner"):
        Engine(relay(size=4), chat, {"reasoner": Says(7)})


def test_an_engine_samples_each_role_with_its_sampler(micro_policy):
    from transformers import AutoTokenizer

    chat = Chat(AutoTokenizer.from_pretrained(micro_policy))
    one, two = chat.tokenizer.convert_tokens_to_ids(["1", "2"])
    engine = Engine(relay(size=4), chat, {"actor": Says(two), "reasoner": Says(one)})
    (episode,) = engine.run([RolloutRequest(task=relay_task(1, 1, size=4))])
    assert [(decision.role, decision.action_text) for decision in episode.decisions] == [
        ("reasoner", "1"),
        ("actor", "2"),
    ]
    assert episode.outcome == 1.0
