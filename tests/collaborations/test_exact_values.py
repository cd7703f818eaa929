"""Values by enumeration equal closed forms and means of many episodes of the Engine."""

from __future__ import annotations

from math import sqrt
from statistics import fmean

import pytest
import torch
from small_teams import relay_engine

from hf_credit.collaborations import Collaboration, Event
from hf_credit.collaborations.exact_values import Expectations, exact_values
from hf_credit.collaborations.relay import relay, relay_task
from hf_credit.policies.micro import MicroConfig, build_model, tokenizer_of
from hf_credit.rollouts import Chat, RolloutRequest

SIZE = 3


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A warmed-up policy of the relay of three numbers, its chat and an engine."""
    model, engine = relay_engine(tmp_path_factory.mktemp("relay"), SIZE, 0.6, 400, epochs=8)
    return model, engine.chat, engine


def start(secret, shift):
    return relay(SIZE).start(relay_task(secret, shift, size=SIZE), 0)


def estimate(engine, state, episodes=800):
    torch.manual_seed(0)
    return engine.run([RolloutRequest(state=state)] * episodes)


def assert_agrees(played, exact, error):
    mean, count = fmean(episode.outcome for episode in played), len(played)
    spread = 4 * sqrt(max(exact * (1 - exact), 1 / count) / count)
    assert exact - spread <= mean <= exact + error + spread


def test_values_agree_with_episodes_through_the_engine(policy):
    model, chat, engine = policy
    states = [start(2, 0), start(1, 2)]
    for state, exact in zip(states, exact_values(relay(SIZE), chat, model, states, floor=1e-4), strict=True):
        assert exact.covered == pytest.approx(1, abs=0.01)
        assert exact.error < 0.01
        assert_agrees(estimate(engine, state), exact.value, exact.error)
        after = relay(SIZE).advance(state, ["1"])
        assert_agrees(estimate(engine, after), exact.values["1"], exact.errors["1"])


def test_probabilities_are_those_of_the_sampler(policy):
    model, chat, engine = policy
    state = start(2, 0)
    (exact,) = exact_values(relay(SIZE), chat, model, [state], floor=1e-4)
    said = [episode.decisions[0].action_text for episode in estimate(engine, state)]
    for text, probability in exact.probabilities.items():
        share = said.count(text) / len(said)
        assert share == pytest.approx(probability, abs=4 * sqrt(max(probability, 1 / len(said)) / len(said)))


def test_without_a_floor_all_replies_are_enumerated_and_advantages_have_mean_zero(policy):
    model, chat, _ = policy
    state = relay(SIZE).advance(start(2, 0), ["2"])
    (exact,) = exact_values(relay(SIZE), chat, model, [state])
    assert exact.covered == pytest.approx(1, abs=1e-9)
    assert exact.error == pytest.approx(0, abs=1e-9)
    mean = sum(probability * exact.advantage(text) for text, probability in exact.probabilities.items())
    assert mean == pytest.approx(0, abs=1e-9)
    assert {text.strip() for text, value in exact.values.items() if value} == {"2"}
    assert exact.value == pytest.approx(sum(p for text, p in exact.probabilities.items() if text.strip() == "2"))


def test_a_reply_s_value_is_the_value_of_the_next_state(policy):
    model, chat, _ = policy
    (first,) = exact_values(relay(SIZE), chat, model, [start(1, 1)], floor=1e-4)
    (then,) = exact_values(relay(SIZE), chat, model, [relay(SIZE).advance(start(1, 1), ["0"])], floor=1e-4)
    assert first.values["0"] == pytest.approx(then.value, rel=1e-5)
    assert first.errors["0"] == pytest.approx(then.error, rel=1e-2)


def test_a_lower_floor_only_raises_a_value_and_within_its_error(policy):
    model, chat, _ = policy
    rough, fine = (exact_values(relay(SIZE), chat, model, [start(1, 1)], floor=floor)[0] for floor in (1e-2, 1e-4))
    assert rough.covered < fine.covered
    assert rough.value - 1e-6 <= fine.value <= rough.value + rough.error + 1e-6
    for text, value in rough.values.items():
        assert value - 1e-6 <= fine.values[text] <= value + rough.errors[text] + 1e-6


@pytest.fixture(scope="module")
def uniform():
    """Eleven tokens, six of them special, each always as probable as the others."""
    tokenizer = tokenizer_of(["0", "1", "a", "b", " "])
    model = build_model(tokenizer, MicroConfig(hidden_size=8, layers=1, heads=2))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model, Chat(tokenizer)


def test_a_uniform_policy_has_the_values_of_counting(uniform):
    model, chat = uniform
    size = len(chat.tokenizer)
    assert size == 11
    collaboration = Collaboration(
        roles={"a": "a", "b": "b"},
        events=[Event("first", "a"), Event("second", "b", after="first")],
        final="second",
        scorer=lambda task, text: float(text == "1"),
    )
    state = collaboration.start({"problem": "0"}, 0)
    (exact,) = exact_values(collaboration, chat, model, [state])
    # Seven tokens leave no trace in a trimmed text: the blank and the six special ones, of which one ends the reply.
    # So "1" is said by 1 with any of the seven after it, or with any of the six that do not end before it.
    right = (7 + 6) / size**2
    assert exact.value == pytest.approx(right)
    assert list(exact.values.values()) == pytest.approx([right] * len(exact.values))
    assert exact.advantage("ab") == pytest.approx(0)
    # All of nothing: the end at once, or one of five and then one of six.
    assert exact.probabilities[""] == pytest.approx(1 / size + 5 * 6 / size**2)
    assert exact.probabilities["ab"] == pytest.approx(1 / size**2)
    assert exact.covered == pytest.approx(1)
    (last,) = exact_values(collaboration, chat, model, [collaboration.advance(state, ["a"])])
    assert last.advantage("1") == pytest.approx(1 - right)
    assert last.advantage("a") == pytest.approx(-right)


def test_the_temperature_of_a_reply_of_one_token(uniform):
    model, chat = uniform
    torch.manual_seed(0)
    model = build_model(chat.tokenizer, MicroConfig(hidden_size=8, layers=1, heads=2))
    collaboration = Collaboration({"a": "a"}, [Event("only", "a")], "only", lambda task, text: text == "1")
    state = collaboration.start({"problem": "0"}, 0)
    (exact,) = exact_values(collaboration, chat, model, [state], max_new_tokens=1, temperature=0.5)
    context = chat.context(collaboration.pending(state)[0].messages)
    expected = (model(torch.tensor([context])).logits[0, -1].double() / 0.5).softmax(-1)
    assert exact.value == pytest.approx(expected[chat.tokenizer.convert_tokens_to_ids("1")].item(), rel=1e-5)


def counting(state, after, chances=({"on": 1.0},)):
    """Expectations of play on numbers of which 3 is the end, worth 1."""
    return Expectations(
        lambda states: [chances[0]] * len(states), after, lambda at: (1.0, 0.0) if at == 3 else None
    ).values(state)


def test_values_are_sums_over_all_ways_and_what_is_not_enumerated_is_the_error():
    # A step goes on by 1, a jump by 2, to 3 at most; what else the policy does, with 0.2, is unknown.
    value, error = counting(1, lambda at, how: min(at + len(how), 3), ({"a": 0.6, "bb": 0.2},))
    assert value == pytest.approx(0.6 * 0.8 + 0.2)
    assert error == pytest.approx(0.2 + 0.6 * 0.2)


def test_an_endless_episode_and_probabilities_above_one_have_no_values():
    with pytest.raises(ValueError, match="never return to a state"):
        counting(1, lambda at, _: at)
    with pytest.raises(ValueError, match="sum to at most 1"):
        counting(1, lambda at, _: 3, ({"on": 1.5},))


def test_states_without_a_single_speaker_are_refused(uniform):
    model, chat = uniform
    events = [Event("a", "r"), Event("b", "r"), Event("c", "r", after=("a", "b"))]
    collaboration = Collaboration({"r": "r"}, events, "c", lambda task, text: 0.0)
    state = collaboration.start({"problem": "0"}, 0)
    with pytest.raises(ValueError, match="one speaker at a time, got a, b; "):
        exact_values(collaboration, chat, model, [state])
    over = collaboration.advance(collaboration.advance(state, ["0", "1"]), ["0"])
    with pytest.raises(ValueError, match="one speaker at a time, got nobody; "):
        exact_values(collaboration, chat, model, [over])


def test_an_omitted_reply_has_no_advantage(uniform):
    model, chat = uniform
    (exact,) = exact_values(relay(2), chat, model, [relay(2).start(relay_task(0, 1, size=2), 0)], floor=0.05)
    assert list(exact.values) == [""]
    with pytest.raises(ValueError, match="at least the floor, got '1'; lower the floor"):
        exact.advantage("1")


@pytest.mark.parametrize("options", [{"max_new_tokens": 0}, {"temperature": 0}, {"floor": 1}, {"floor": -0.1}])
def test_numbers_out_of_range_are_refused(uniform, options):
    model, chat = uniform
    with pytest.raises(ValueError, match=rf"{next(iter(options))} must be "):
        exact_values(relay(), chat, model, [relay().start(relay_task(0, 1), 0)], **options)
