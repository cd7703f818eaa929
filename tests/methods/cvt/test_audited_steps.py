"""The draw of steps, their replacements, and rollouts for comparison."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from hf_credit import make
from hf_credit.collectors import Group
from hf_credit.environments.evidence import legal_actions
from hf_credit.methods.cvt import (
    AuditedSteps,
    audit_of,
    counterfactual,
    replacement_of,
    step_features,
    verified_success,
)
from hf_credit.oracles.evidence_audit import EvidenceAuditor
from hf_credit.policies.micro import build_tokenizer
from hf_credit.rollouts import Chat, Ending, Engine, EnvironmentInteraction, Generation, Ledger, LocalContext

WORLD = EnvironmentInteraction(make("evidence"), history="current", instructions=False)


class Reader:
    """Reads, verifies and answers from the first document."""

    def __init__(self, chat: Chat, seed: int = 0) -> None:
        self.chat, self.draws, self.contexts = chat, random.Random(seed), list[str]()

    def __call__(self, contexts: Sequence[Sequence[int]]) -> list[Generation]:
        return [self.reply(self.chat.tokenizer.decode(list(context))) for context in contexts]

    def reply(self, shown: str) -> Generation:
        self.contexts.append(shown)
        action = self.draws.choice(["read 1", "verify 1", "final 1"])
        ids = self.chat.reply_ids(f"<action>{action}</action>")
        return Generation(ids=ids, logprobs=[-0.5] * len(ids))


@pytest.fixture(scope="module")
def chat() -> Chat:
    return Chat(build_tokenizer(make("evidence")))


def context(chat: Chat, seed: int = 0) -> LocalContext:
    engines = [Engine(WORLD, chat, Reader(chat, seed + place)) for place in range(2)]
    return LocalContext(engines[0], seed=seed, frozen=engines[1])


def collect(chat: Chat, rows: int = 6, seed: int = 0, **changed: Any) -> tuple[Any, LocalContext]:
    own = context(chat, seed)
    collector = AuditedSteps(**{"inner": Group(size=2), "steps": 1, "branches": 2, **changed}).bind(WORLD)
    return collector([{"seed": place} for place in range(rows)], own, None), own


def test_every_continuation_has_a_source_decision_and_is_audited(chat: Chat) -> None:
    collected, own = collect(chat)
    decisions = {one.id: one for episode in collected.episodes for one in episode.decisions}
    replaced = [one for one in collected.rollouts if not one.trained]
    assert replaced
    assert {one.source for one in replaced} <= decisions.keys()
    assert all(audit_of(one) is not None for episode in collected.episodes for one in episode.decisions)
    for one in replaced:
        state, action = WORLD.action_of(decisions[one.source].state, decisions[one.source].action_text)
        assert action in legal_actions(state)
        said = chat.tokenizer.decode(list(replacement_of(one).reply), skip_special_tokens=True)
        if one.kind == counterfactual("deletion"):
            assert said == "<action>think</action>"
        if one.kind == counterfactual("perturbation"):
            assert replacement_of(one).reply == decisions[one.source].action_ids
        assert one.episode.ending == Ending.ERROR or verified_success(one.episode) is not None
    tokens = sum(len(d.context_ids) + len(d.action_ids) for one in replaced for d in one.episode.decisions)
    assert own.ledger.counterfactual_tokens == tokens


def test_steps_are_drawn_with_their_probability(chat: Chat) -> None:
    drawn: Counter[int] = Counter()
    expected: Counter[int] = Counter()
    for seed in range(60):
        collected, _ = collect(chat, rows=3, seed=seed, families=("deletion",), gate=False, branches=1)
        sources = {one.source: replacement_of(one).probability for one in collected.rollouts if not one.trained}
        for episode in collected.episodes:
            legal = [one for one in episode.decisions if audit_of(one).kind]
            for one in legal:
                expected[len(episode.decisions)] += 1
                drawn[len(episode.decisions)] += one.id in sources
                assert sources.get(one.id, 1 / len(episode.decisions)) == pytest.approx(1 / len(episode.decisions))
    for length, count in expected.items():
        if count > 100:
            assert drawn[length] / count == pytest.approx(1 / length, abs=0.1)


def test_the_frozen_or_the_current_policy_plays_continuations(chat: Chat) -> None:
    for policy, of_current in (("frozen", False), ("current", True)):
        own = context(chat)
        collector = AuditedSteps(inner=Group(size=2), steps=1, branches=1, policy=policy).bind(WORLD)  # type: ignore[arg-type]
        collector([{"seed": place} for place in range(8)], own, None)
        engine = own.frozen
        assert engine is not None
        assert bool(engine.generate.contexts) != of_current  # type: ignore[union-attr]


def test_drift_is_logged_in_the_update_before_the_copy_is_refreshed(chat: Chat) -> None:
    for update, probed in ((1, False), (2, True)):
        own = context(chat)
        own.update = update
        collector = AuditedSteps(inner=Group(size=2), steps=1, branches=2, probe_every=2).bind(WORLD)
        collected = collector([{"seed": place} for place in range(4)], own, None)
        assert ("branches/drift" in own.metrics) == probed
        kept = [one.episode for one in collected.rollouts]
        assert (own.ledger.tokens > Ledger.of(kept).tokens) == probed  # what was played again is in the ledger
    (drift,) = own.metrics["branches/drift"]
    assert 0 <= drift <= 1


def test_random_counterfactuals_are_compared_with_another_step(chat: Chat) -> None:
    own, _ = collect(chat, rows=4)
    other, _ = collect(chat, rows=4, counterfactuals="random")
    place = {one.id: at for at, one in enumerate(one for e in own.episodes for one in e.decisions)}
    elsewhere = {one.id: at for at, one in enumerate(one for e in other.episodes for one in e.decisions)}
    before = [place[one.source] for one in own.rollouts if not one.trained]
    after = [elsewhere[one.source] for one in other.rollouts if not one.trained]
    assert sorted(set(before)) == sorted(set(after))
    assert all(one != two for one, two in zip(before, after, strict=True))
    drawn = {one.source: replacement_of(one).probability for one in own.rollouts if not one.trained}
    by_place = {place[name]: probability for name, probability in drawn.items()}
    others = [one for one in other.rollouts if not one.trained]
    assert len({*by_place.values()}) > 1
    for one in others:  # the probability of the step that it is compared with
        assert replacement_of(one).probability == pytest.approx(by_place[elsewhere[one.source]])
        assert replacement_of(one).features == ()


def test_extra_episodes_continue_from_drawn_steps_are_trained_on_and_not_counted(chat: Chat) -> None:
    collected, own = collect(chat, counterfactuals="extra")
    extra = [one for one in collected.rollouts if one.kind == "fork"]
    assert extra
    assert all(
        one.trained and not one.counted and one.episode.prefix_length < len(one.episode.decisions) for one in extra
    )
    assert own.ledger.counterfactual_tokens == 0
    assert all(audit_of(one) is not None for sample in extra for one in sample.episode.decisions)


def test_an_auditor_that_raises_ends_its_episode_and_nothing_is_replaced_there(chat: Chat) -> None:
    class Broken(EvidenceAuditor):
        def audit(self, state: Any, action: str) -> Any:
            if action.startswith("final"):
                raise RuntimeError("no")
            return super().audit(state, action)

    collected, _ = collect(chat, auditor=Broken())
    failed = [one for one in collected.trained if one.episode.ending == Ending.ERROR]
    assert failed
    sources = {one.source for one in collected.rollouts if not one.trained}
    assert not sources & {one.id for sample in failed for one in sample.episode.decisions}


def test_steps_are_drawn_by_a_selector_and_their_features_are_stored(chat: Chat) -> None:
    class Surprised:
        """Scores only steps that were less likely than the step before."""

        fitted = True

        def scores(self, features: Sequence[Sequence[float]]) -> list[float]:
            return [float(own[0] > 0) for own in features]

    class Memory:
        selector = Surprised()

    own = context(chat)
    own.critics["critic"] = lambda inputs: [(0.0,)] * len(inputs)
    own._logprobs = lambda decisions: [(-1.0 if "final" in one.action_text else 0.0,) for one in decisions]
    collector = AuditedSteps(inner=Group(size=2), steps=1, families=("deletion",), gate=False).bind(WORLD)
    collected = collector([{"seed": place} for place in range(20)], own, Memory())
    drawn = {one.source: one for one in collected.rollouts if not one.trained}
    after_others = [one.decisions for one in collected.episodes if len(one.decisions) in (2, 3, 4)]
    answers = [drawn[one[-1].id] for one in after_others if "final" in one[-1].action_text and one[-1].id in drawn]
    assert {replacement_of(one).features[0] for one in answers} == {1.0}
    # One step in the mean: the last of n has what the others leave of it, .15 each.
    assert {round(replacement_of(one).probability, 6) for one in answers} <= {0.85, 0.7, 0.55}


def test_the_features_of_a_step(chat: Chat) -> None:
    collected, _ = collect(chat, counterfactuals="none")
    episode = max(collected.episodes, key=lambda one: len(one.decisions))
    logprobs = [(-0.5, -1.5), *[(-0.25,)] * (len(episode.decisions) - 1)]
    features = step_features(episode, [0.25] * len(episode.decisions), logprobs)
    assert [one[0] for one in features[:2]] == [0.0, -0.75][: len(features)]
    assert len(features) == len(episode.decisions)
    first = features[0]
    audit = audit_of(episode.decisions[0])
    after = 0.25 if len(features) > 1 else episode.outcome
    assert first == (
        0.0,
        pytest.approx(abs(after - 0.25)),
        pytest.approx(abs(audit.uncertainty[0] - audit.uncertainty[1])),
        float(len(audit.arguments)),
        float(bool(audit.arguments)),
        1.0,
    )
