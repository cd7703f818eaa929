"""Exact values by enumeration, compared with sums over all paths through a small environment."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from hf_credit import make
from hf_credit.environments import Environment
from hf_credit.environments.base import State, Transition
from hf_credit.environments.evidence import hacks
from hf_credit.evaluation.exact_actions import ExactPlay, audited_play
from hf_credit.oracles.auditing import default_auditor, default_interventions
from hf_credit.policies.micro import build_tokenizer
from hf_credit.rollouts import Chat, Engine, EnvironmentInteraction, Generation, RolloutRequest

SMALL = {"documents": 2, "values": 2, "turns": 3, "calls": 2}
TASK = {"key": "K", "keys": ["K", "K"], "values": [1, 2], "genuine": 1}


def world(**options):
    environment = make("evidence", **{**SMALL, **options})
    return environment, environment.initial_state(TASK, 0)


def shares_of(environment, state):
    """A policy with weight n for the n-th legal action and probability 0.1 for illegal replies."""
    legal = environment.legal_actions(state)
    weights = {action: 1 + place + 2 * state.calls for place, action in enumerate(legal)}
    return {action: 0.9 * weight / sum(weights.values()) for action, weight in weights.items()}


def play(environment, **worth):
    return audited_play(
        environment,
        lambda states: [shares_of(environment, state) for state in states],
        default_auditor(environment),
        hacked=lambda state: float(bool(hacks(state))),
        **worth,
    )


def ways_through(environment, state, probability=1.0, spent=()):
    """Yields every path to an end: its probability, the last state, and the steps."""
    if state.status != "active":
        yield probability, state, spent
        return
    for action, share in shares_of(environment, state).items():
        for chance, after in environment.ways(state, action):
            yield from ways_through(environment, after, probability * share * chance, (*spent, (state, action)))


@pytest.mark.parametrize("flaky", [0.0, 0.3])
def test_values_are_sums_over_all_paths(flaky):
    environment, first = world(flaky=flaky)
    exact, auditor = play(environment), default_auditor(environment)
    found = list(ways_through(environment, first))
    assert len(found) > 400
    expected = {
        "verified": sum(p * auditor.success(end) for p, end, _ in found),
        "outcome": sum(p * environment.outcome(end) for p, end, _ in found),
        "hacked": sum(p * bool(hacks(end)) for p, end, _ in found),
        "error": 1 - sum(p for p, _, _ in found),
    }
    rates = exact.rates([first])
    assert {name: rates[name] for name in expected} == pytest.approx(expected, abs=1e-12)
    assert rates["verified"] > 1e-4


def test_costs_are_sums_over_all_paths():
    environment, first = world()
    exact, auditor = play(environment), default_auditor(environment)

    def cost(state, name):
        if state.status != "active":
            return 0.0
        total = 0.0
        for action, share in shares_of(environment, state).items():
            after = environment.step(state, action).state
            total += share * (auditor.audit(state, action).costs.get(name, 0.0) + cost(after, name))
        return total

    for name in auditor.costs:
        assert exact.value(first, name) == pytest.approx(cost(first, name), abs=1e-12)


def test_an_advantage_is_the_action_value_minus_the_value():
    environment, first = world()
    exact = play(environment)
    state = environment.step(environment.step(first, "read 1").state, "verify 1").state
    share = shares_of(environment, state)["final 1"]
    assert exact.action_value(state, "final 1", "verified") == 1
    assert exact.value(state, "verified") == pytest.approx(share)
    assert exact.advantage(state, "final 1", "verified") == pytest.approx(1 - share)
    assert sum(exact.probabilities(state).values()) == pytest.approx(0.9)
    assert exact.error(state) == pytest.approx(0.1)


def test_effects_of_every_family_by_hand():
    environment, first = world()
    exact, families = play(environment), default_interventions(environment)
    state = environment.step(first, "read 1").state
    settled = environment.step(state, "verify 1").state
    share = shares_of(environment, settled)["final 1"]

    def effect(state, action, family):
        return exact.effect(state, action, families, family, "verified")

    # Without the verification no claim can be settled, as only one turn is left.
    assert effect(state, "verify 1", "deletion") == pytest.approx(share)
    assert effect(state, "verify 1", "paraphrase") == pytest.approx(0, abs=1e-15)
    # A document with the result "forged" is settled too, and this policy ignores the result.
    lied = replace(settled, checks=("forged", ""))
    assert effect(state, "verify 1", "perturbation") == pytest.approx(share - shares_of(environment, lied)["final 1"])
    assert effect(settled, "final 1", "substitution") == 1
    assert effect(settled, "final 1", "deletion") == 1
    assert effect(state, "verify 1", "substitution") is None
    # Both documents on key: from the first state on, either can be read, verified and named, in its own order.
    swap = exact.action_value(first, "read 1", "verified") - exact.action_value(first, "read 2", "verified")
    assert effect(first, "read 1", "substitution") == pytest.approx(swap)


class Circle(Environment[State]):
    """An environment that returns to the same state."""

    name, state_type, task_columns = "circle", State, ()
    instructions, max_turns = "Go on.", 9

    def sample_task(self, seed):
        return {}

    def initial_state(self, task, seed):
        return State(seed=seed)

    def observe(self, state):
        return "here"

    def legal_actions(self, state):
        return ("go",)

    def step(self, state, action):
        return Transition(state=state, observation="here", reward=0.0, terminated=False, info={"action": action})

    def outcome(self, state):
        return 0.0

    def metrics(self, state):
        return {"success": 0.0}


def test_what_has_no_exact_values_is_refused():
    circle = Circle()
    endless = ExactPlay(circle, lambda states: [{"go": 1.0}] * len(states), {"worth": circle.outcome})
    with pytest.raises(ValueError, match="never return to a state"):
        endless.value(State(seed=0), "worth")
    environment, first = world()
    wrong = ExactPlay(environment, lambda states: [{"think": 1.5}] * len(states), {"worth": environment.outcome})
    with pytest.raises(ValueError, match="sum to at most 1"):
        wrong.value(first, "worth")
    with pytest.raises(ValueError, match="an expectation must be one of verified, outcome, hacked, tampering"):
        play(environment).value(first, "bribes")
    with pytest.raises(ValueError, match="every expectation must have its own name"):
        play(environment, unsafe=environment.outcome)


def test_a_policy_that_is_played_agrees_with_its_exact_values():
    environment, first = world()
    interaction = EnvironmentInteraction(environment, history="current", instructions=False)
    chat = Chat(build_tokenizer(environment))
    exact = ExactPlay(
        environment,
        lambda states: [
            {a: 1 / len(environment.legal_actions(s)) for a in environment.legal_actions(s)} for s in states
        ],
        {"outcome": environment.outcome},
    )
    draws, replies = torch.Generator().manual_seed(0), {}

    def generate(contexts):
        legal = [replies[tuple(context)] for context in contexts]
        picked = [int(torch.randint(len(one), (), generator=draws)) for one in legal]
        return [
            Generation(ids=chat.reply_ids(environment.write_action(one[place])))
            for one, place in zip(legal, picked, strict=True)
        ]

    waiting = [interaction.start(TASK, 0)]
    while waiting:
        state = waiting.pop()
        for request in interaction.pending(state):
            replies[chat.context(request.messages)] = legal = environment.legal_actions(state.world)
            waiting += [interaction.advance(state, [environment.write_action(action)]) for action in legal]
    played = Engine(interaction, chat, generate).run([RolloutRequest(task={**TASK, "seed": 0})] * 1000)
    share = sum(episode.outcome for episode in played) / 1000
    value = exact.value(first, "outcome")
    assert abs(share - value) < 4 * math.sqrt(value * (1 - value) / 1000)
