"""Diagnoses of a policy with a user's method, by both protocols."""

from __future__ import annotations

import string
from collections.abc import Sequence

import pytest

from hf_credit import make as make_environment
from hf_credit.collaborations import Collaboration, Event
from hf_credit.diagnostics.bucket_sampling import BucketPlan
from hf_credit.diagnostics.policy import Subject, Tasks, diagnose_policy, diagnose_training
from hf_credit.diagnostics.verdicts import diagnose_verdicts
from hf_credit.methods import make
from hf_credit.oracles import Judge
from hf_credit.policies.micro import tokenizer_of
from hf_credit.rollouts import Chat, Engine, EnvironmentInteraction, Generation, RolloutRequest
from hf_credit.trainers.signal_protocol import SignalProtocol

OWN_METHOD = '''
from dataclasses import dataclass

from hf_credit.collectors import Group
from hf_credit.methods import Credit, Method


@dataclass(frozen=True, kw_only=True)
class Share:
    """Divides the outcome among the decisions of an episode, equally on each of three tokens."""

    weight: float

    def __call__(self, collected, context, memory):
        return Credit(
            decisions={
                decision.id: (self.weight * one.outcome / len(one.decisions),) * 3
                for one in collected.episodes
                for decision in one.decisions
            }
        )


def share(weight: float = 1.0) -> Method:
    return Method(name="share", collector=Group(size=2), estimator=Share(weight=weight))
'''

PLAN = BucketPlan(buckets=6, candidates=2, replays=2, value_actions=2)
STARTS = [RolloutRequest(task={"problem": name}) for name in "pq"]


class Alphabet:
    """Replies with the letters in turn; the greedy engine always with the first."""

    def __init__(self, greedy: bool = False) -> None:
        self.chat = Chat(tokenizer_of([string.printable]))
        self.letters = "z" if greedy else string.ascii_lowercase
        self.count = 0

    def __call__(self, contexts: Sequence[Sequence[int]]) -> list[Generation]:
        return [self._reply() for _ in contexts]

    def _reply(self) -> Generation:
        letter = self.letters[self.count % len(self.letters)]
        self.count += 1
        ids = self.chat.tokenizer(letter, add_special_tokens=False)["input_ids"]
        return Generation(ids=[*ids, self.chat.tokenizer.eos_token_id])


def team() -> Collaboration:
    return Collaboration(
        roles={"plan": "plan", "act": "act"},
        events=[Event("plan", role="plan"), Event("act", role="act", after="plan")],
        final="act",
        scorer=lambda task, text: string.ascii_lowercase.index(text) / 25,
    )


def subject(**others) -> Subject:
    speaker, sure = Alphabet(), Alphabet(greedy=True)
    return Subject(
        name="p",
        engine=Engine(team(), speaker.chat, speaker),
        greedy=Engine(team(), sure.chat, sure),
        about={"model": "p"},
        **others,
    )


@pytest.fixture
def own_method(tmp_path, monkeypatch):
    (tmp_path / "my_method.py").write_text(OWN_METHOD, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    return make("my_method:share", weight=3.0)


def test_a_users_method_is_measured_on_buckets(own_method) -> None:
    found = diagnose_policy(subject(), STARTS, PLAN, methods={"share": own_method}, attempts=2)
    by_event = {event.event: {credit.method for credit in event.credits} for event in found.events}
    assert set(by_event) == {"all events", "plan", "act"}
    assert by_event["act"] == {"share", "replay_loo", "magrpo", "outcome_reward"}
    (act,) = [event for event in found.events if event.event == "act"]
    (share,) = [credit for credit in act.credits if credit.method == "share"]
    assert share.fidelity["shared"].mean > 0  # a multiple of the score of the actor's letter
    assert found.about["methods"]["share"] == {"name": "my_method:share", "options": {"weight": 3.0}}
    assert found.success["greedy"].mean == 1


def test_a_users_method_is_measured_on_its_update(own_method) -> None:
    (found,) = diagnose_training(subject(), STARTS, PLAN, {"share": own_method})
    # Two tasks of two episodes of two decisions.
    assert (found.decisions, found.events[0].credited, found.events[0].measured) == (8, 8, 6)
    assert (found.name, found.method) == ("p", "share")
    assert found.about["method"]["options"] == {"weight": 3.0}
    assert found.cost.scoring_events > 4


def test_the_method_of_training_is_measured_by_default() -> None:
    trained = make("magrpo", normalise_credit=True)
    found = diagnose_policy(subject(trained=trained), STARTS, PLAN)
    assert found.about["methods"]["magrpo"]["options"] == {"normalise_credit": True}
    (measured,) = diagnose_training(subject(trained=trained), STARTS, PLAN)
    assert measured.method == "magrpo"
    with pytest.raises(ValueError, match="got none and none is recorded for 'p'; name one"):
        diagnose_training(subject(), STARTS, PLAN)


def test_the_critic_of_the_policy_is_used() -> None:
    def critic(inputs):
        return [(0.5,) * len(reading.at) for reading in inputs]

    known = subject(trained=make("mappo"), critics={"critic": critic})
    found = diagnose_policy(known, STARTS, PLAN)
    assert "mappo" in {credit.method for credit in found.events[0].credits}
    (measured,) = diagnose_training(known, STARTS, PLAN)
    assert measured.events[0].credited == 2 * 8 * 2


def test_a_policy_without_the_critic_of_a_method_loses_no_other_result() -> None:
    found = diagnose_policy(subject(), STARTS, PLAN, methods={"ppo": make("ppo")})
    assert "got none named 'critic'" in found.not_measured["ppo"]
    assert {credit.method for credit in found.events[0].credits} == {"replay_loo", "magrpo", "outcome_reward"}
    played = subject()
    with pytest.raises(ValueError, match="a method with a critic must be run with it, got none named 'critic'"):
        diagnose_training(played, STARTS, PLAN, {"magrpo": make("magrpo"), "ppo": make("ppo")})
    assert played.engine.generate.count == 0


class Known(Judge):
    """Knows b and c."""

    def judge(self, moves, costs):
        return [float(one.action == "b") if one.action in "bc" else None for one in moves]


def test_a_state_whose_judged_moves_the_policy_never_drew_is_omitted_and_counted() -> None:
    speaker = Alphabet()
    # Of three tasks: their episodes, three draws each, and three each until there are three moves.
    speaker.letters = "aaa" + "aaa" + "aab" + "aab" + "bcd" + "cde" + "xyz"
    alone = Collaboration(
        roles={"act": "act"}, events=[Event("act", role="act")], final="act", scorer=lambda task, text: text == "b"
    )
    one = Subject(name="p", engine=Engine(alone, speaker.chat, speaker))
    plan = BucketPlan(buckets=3, candidates=3, replays=2, draws=6)
    found = diagnose_verdicts(one, [RolloutRequest(task={"problem": name}) for name in "pqr"], plan, Known())
    # Judged are two moves of the first that were not drawn, two of the second, of which one was, and one of the third.
    assert (found.unknown, [(score, moves) for score, _, moves in found.reliability]) == (7, [(0, 1), (1, 1)])


def test_an_agreement_without_other_replays_is_told_with_its_reason() -> None:
    calls = iter(range(1000))

    def scorer(task, text):
        if next(calls) % 2:  # the second replay of each reply
            raise RuntimeError("down")
        return float(text < "m")

    speaker = Alphabet()
    alone = Collaboration(roles={"act": "act"}, events=[Event("act", role="act")], final="act", scorer=scorer)
    one = Subject(name="p", engine=Engine(alone, speaker.chat, speaker))
    settings = {"oracle": None, "exact": None, "attempts": 0, "credit_replays": 1, "examples": 0}
    protocol = SignalProtocol(name="signal", plan=PLAN, tasks=Tasks(), methods={}, **settings)
    found = protocol._agreement(one, STARTS, {"magrpo": make("magrpo")})
    assert found["agreement"] == {}
    assert found["not_measured"] == {"magrpo": "no reply has two replays without error"}


class Letters(Judge):
    """Judges a reply by its place in the alphabet, or by the place from its end."""

    def __init__(self, sign: int) -> None:
        self.sign = sign

    def judge(self, moves, costs):
        return [string.ascii_lowercase.index(one.action[0]) / 25 * self.sign + (self.sign < 0) for one in moves]


def test_the_agreement_is_that_of_a_methods_own_oracle() -> None:
    alone = Collaboration(
        roles={"act": "act"},
        events=[Event("act", role="act")],
        final="act",
        scorer=lambda task, text: string.ascii_lowercase.index(text) / 25,
    )
    settings = {"oracle": None, "exact": None, "attempts": 0, "credit_replays": 1, "examples": 0}
    protocol = SignalProtocol(name="signal", plan=PLAN, tasks=Tasks(), methods={}, **settings)
    asked = {name: make("verifiable_process", oracle=Letters(sign)) for name, sign in (("right", 1), ("wrong", -1))}
    for name, sign in (("right", 1), ("wrong", -1)):
        speaker = Alphabet()
        one = Subject(name="p", engine=Engine(alone, speaker.chat, speaker))
        found = protocol._agreement(one, STARTS, {"outcome_reward": make("outcome_reward"), name: asked[name]})
        assert sign * found["agreement"][name].mean > 0.9
    speaker = Alphabet()
    found = protocol._agreement(Subject(name="p", engine=Engine(alone, speaker.chat, speaker)), STARTS, asked)
    assert found["not_measured"] == {
        "wrong": "its verdicts are of another oracle than those of right, which were replayed; ask for it alone"
    }


def test_task_seeds_reach_the_collector() -> None:
    environment = make_environment("sudoku", size=4, blanks=4)
    chat = Chat(tokenizer_of([string.printable]))
    played = []

    class Watching(Engine):
        def run(self, starts):
            starts = list(starts)
            played.extend(start.task.get("seed") for start in starts if start.state is None)
            return super().run(starts)

    def anything(contexts):
        ids = chat.tokenizer("<action>fill 1 1 1</action>", add_special_tokens=False)["input_ids"]
        return [Generation(ids=ids) for _ in contexts]

    engine = Watching(EnvironmentInteraction(environment, "current", False), chat, anything)
    (found,) = diagnose_training(
        Subject(name="p", engine=engine),
        [RolloutRequest(seed=7), RolloutRequest(seed=8)],
        PLAN,
        {"VPR": make("verifiable_process")},
    )
    assert played == [7, 8]
    assert found.events[0].credited == found.decisions
    assert found.method == "VPR"


def test_what_cannot_be_diagnosed_is_refused_before_anything_is_played() -> None:
    speaker = Alphabet()
    without = Subject(name="p", engine=Engine(team(), speaker.chat, speaker))
    with pytest.raises(ValueError, match="attempts need a greedy engine, got none"):
        diagnose_policy(without, STARTS, PLAN, attempts=1)
    with pytest.raises(ValueError, match="this method needs an oracle, got none"):
        diagnose_policy(without, STARTS, PLAN, methods={"VPR": make("verifiable_process")})
    assert speaker.count == 0
