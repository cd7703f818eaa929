"""A trainer with a custom method: what is trained, counted, stored in memory, learned by critics and saved."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_runs import ON_A_PROCESSOR, SAMPLED
from transformers import AutoModelForCausalLM

from hf_credit import CreditConfig, CreditTrainer, make, methods
from hf_credit.collaborations.relay import relay
from hf_credit.collectors import Rollout, RolloutBatch
from hf_credit.collectors.base import of_instance
from hf_credit.methods import Credit, CriticTargets, Method
from hf_credit.methods.memory import from_plain, to_plain
from hf_credit.methods.t3 import truncation
from hf_credit.rollouts import EnvironmentInteraction, Generation, RolloutRequest, by_episode
from hf_credit.rollouts.method_context import CriticInput
from hf_credit.rollouts.samplers import CONTINUATIONS
from hf_credit.trainers.callbacks import CreditCallback


@dataclass(frozen=True, kw_only=True)
class Moments:
    mean: float = 0.0
    seen: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WithComparisons:
    """An episode of each row, and a baseline episode of the frozen policy."""

    policy: str = "current"

    def __call__(self, rows: Sequence[Any], context: Any, memory: Any) -> RolloutBatch:
        starts = [RolloutRequest[Any](task=row) for row in rows]
        own = context.play(starts)
        others = context.play([replace(start, seed=7) for start in starts], policy=self.policy)
        samples = [Rollout(episode=of_instance(one, place), instance=place) for place, one in enumerate(own)]
        samples += [
            Rollout(episode=one, instance=place, trained=False, kind="other") for place, one in enumerate(others)
        ]
        return RolloutBatch(rollouts=tuple(samples), rows=len(rows))


@dataclass(frozen=True, kw_only=True)
class Remembering:
    """Credits each token of a decision with its position; its memory counts what it has seen."""

    critic_targets: bool = False
    per_token: bool = True

    def __call__(self, collected: RolloutBatch, context: Any, memory: Moments) -> Credit:
        decisions = {
            one.id: [float(place) + memory.mean for place in range(len(one.action_ids))] if self.per_token else 1.0
            for episode in collected.episodes
            for one in episode.decisions
        }
        taught = []
        if self.critic_targets:
            inputs = [
                CriticInput(
                    ids=one.context_ids + one.action_ids,
                    at=tuple(range(len(one.context_ids), len(one.context_ids) + len(one.action_ids) + 1)),
                )
                for episode in collected.episodes
                for one in episode.decisions
            ]
            values = context.values(inputs)
            taught = [CriticTargets(inputs=inputs, targets=[[0.5] * len(own) for own in values], values=values)]
        after = replace(memory, mean=memory.mean + 0.5, seen=(*memory.seen, len(collected.rollouts)))
        return Credit(decisions=decisions, memory=after, critic_targets=taught)


class Keep(CreditCallback):
    def __init__(self) -> None:
        self.seen: list[tuple[RolloutBatch, Credit]] = []
        self.gradients: list[dict[str, torch.Tensor]] = []

    def on_credit(self, trainer: Any, collected: RolloutBatch, credit: Credit) -> None:
        self.seen.append((collected, credit))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})


@pytest.fixture
def build(tmp_path: Path, micro_policy: Path) -> Callable[..., Any]:
    """`build(method, **settings)`: a trainer with four tasks per update; its records are in `trainer.keep`."""

    def build(
        method: Method,
        given: dict[str, Any] | None = None,
        interaction: Any = None,
        rows: Any = "relay",
        **changed: Any,
    ) -> Any:
        values: dict[str, Any] = {
            **ON_A_PROCESSOR,
            **SAMPLED,
            "output_dir": str(tmp_path),
            "instances_per_update": 4,
            "per_device_train_batch_size": 4,
            "max_steps": 2,
            "max_completion_length": 3,
            "learning_rate": 1e-2,
            "lr_scheduler_type": "constant",
            "warmup_steps": 0,
            "max_grad_norm": 1e9,
        }
        keep = Keep()
        args = CreditConfig(**{**values, **changed})
        trainer: Any = CreditTrainer(
            str(micro_policy),
            relay(size=4) if interaction is None else interaction,
            args,
            relay(4).tasks("train", 16) if rows == "relay" else rows,
            method=method,
            callbacks=[keep],
            **(given or {}),
        )
        trainer.keep = keep
        return trainer

    return build


def sudoku() -> EnvironmentInteraction:
    return EnvironmentInteraction(make("sudoku", size=4, blanks=3), history="current", instructions=False)


@pytest.mark.parametrize("name", ["vineppo", "mc_process_reward"])
def test_another_model_plays_continuations_and_its_tokens_count_apart(build: Callable[..., Any], name: str) -> None:
    asked: list[Sequence[int]] = []

    def player(contexts: Sequence[Sequence[int]]) -> list[Generation]:
        asked.extend(contexts)
        return [Generation(ids=reply)] * len(contexts)

    method = methods.make(name, rollouts=2)
    trainer = build(method, {"samplers": {CONTINUATIONS: player}}, sudoku(), None, max_steps=1)
    reply = trainer.chat.reply_ids("<action>fill 1 1 1</action>")
    trainer.train()
    ((collected, _),) = trainer.keep.seen
    first = [one for rollout in collected.of_kind("continuation") for one in rollout.episode.decisions]
    own = [one for rollout in collected.trained for one in rollout.episode.decisions]
    assert [one.action_ids for one in first] == [tuple(reply)] * len(own) * 2
    assert tuple(reply) not in {one.action_ids for one in own}
    ledger = trainer.ledger
    assert ledger.others == {"continuations": sum(len(one) + len(reply) for one in asked)}
    assert ledger.tokens == sum(len(one.context_ids) + len(one.action_ids) for one in own)
    assert ledger.decisions == {"agent": len(own)}
    assert trainer.state.log_history[0]["budget/others/continuations"] == ledger.others["continuations"]


def test_a_model_of_continuations_is_refused_where_none_are_played(build: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="needs a method with them, got 'grpo'; take vineppo"):
        build(methods.make("grpo"), {"samplers": {CONTINUATIONS: lambda _: []}}, sudoku(), None)


PLAIN = Method(name="plain", collector=WithComparisons(), estimator=Remembering(), memory=Moments())


def test_baseline_samples_are_neither_trained_on_nor_rewarded_but_counted_as_cost(
    build: Callable[..., Any],
) -> None:
    trainer = build(PLAIN, max_steps=1)
    trainer.interaction.scorer = lambda task, text: 0.5
    trainer.train()
    ((collected, credit),) = trainer.keep.seen
    assert len(collected.rollouts) == 8
    assert len(by_episode(collected.episodes, credit.decisions)) == 4
    logged = trainer.state.log_history[0]
    assert logged["reward"] == 0.5
    assert logged["budget/scoring_events"] == 8
    assert logged["tokens/generated"] == sum(episode.generated_tokens for episode in collected.episodes)
    every = [sample.episode for sample in collected.rollouts]
    assert logged["budget/completion_tokens"] == sum(episode.generated_tokens for episode in every)


def test_each_token_is_trained_on_with_its_credit(build: Callable[..., Any], micro_policy: Path) -> None:
    trainer = build(PLAIN, max_steps=1)
    trainer.train()
    ((collected, credit),) = trainer.keep.seen
    model = AutoModelForCausalLM.from_pretrained(micro_policy)
    pairs = [
        (decision, values)
        for episode, own in zip(collected.episodes, by_episode(collected.episodes, credit.decisions), strict=True)
        for decision, values in zip(episode.decisions, own, strict=True)
    ]
    tokens = sum(len(decision.action_ids) for decision, _ in pairs)
    loss = torch.zeros(())
    for decision, values in pairs:
        logprobs = model(torch.tensor([decision.context_ids + decision.action_ids])).logits[0, :-1].log_softmax(-1)
        taken = logprobs[-len(decision.action_ids) :].gather(1, torch.tensor(decision.action_ids)[:, None])[:, 0]
        loss = loss - (torch.tensor(values) * taken).sum() / tokens
    expected = torch.autograd.grad(loss, list(model.parameters()))
    for (name, _), gradient in zip(model.named_parameters(), expected, strict=True):
        torch.testing.assert_close(trainer.keep.gradients[0][name], gradient, rtol=1e-4, atol=1e-6, msg=name)


def test_credit_of_another_number_of_tokens_is_refused(build: Callable[..., Any]) -> None:
    @dataclass(frozen=True)
    class Short:
        def __call__(self, collected: RolloutBatch, context: Any, memory: Any) -> Credit:
            return Credit(decisions={one.id: [1.0] * 9 for own in collected.episodes for one in own.decisions})

    with pytest.raises(ValueError, match="one number for each of a decision's"):
        build(replace(PLAIN, estimator=Short())).train()


def test_an_estimators_memory_is_in_every_checkpoint(build: Callable[..., Any], tmp_path: Path) -> None:
    method = replace(PLAIN, estimator=Remembering(critic_targets=True), critics=("critic",), refresh_frozen_every=2)
    method = replace(method, collector=WithComparisons(policy="frozen"))
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1, "critic_learning_rate": 1e-2}
    whole = build(method, **settings)
    whole.train()
    assert whole.memory == Moments(mean=2.0, seen=(8, 8, 8, 8))
    resumed = build(method, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-3"))
    assert resumed.memory == whole.memory
    assert resumed.ledger == whole.ledger
    assert resumed.updates_collected == 4
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name
    for name, value in whole.frozen.weights.items():
        assert torch.equal(value, resumed.frozen.weights[name]), name
    heads = [trainer.critics["critic"].head.weight for trainer in (whole, resumed)]
    assert torch.equal(*heads)
    assert heads[0].abs().max() > 0


def test_memory_is_restored_from_plain_values() -> None:
    @dataclass(frozen=True)
    class Both:
        inner: Moments
        by_role: dict[str, Moments]

    memory = Both(Moments(mean=1.0, seen=(1, 2)), {"a": Moments(mean=3.0)})
    assert from_plain(to_plain(memory), Both(Moments(), {"a": Moments()})) == memory
    assert from_plain(to_plain(None), None) is None


def test_memory_that_no_checkpoint_gives_back_is_refused_when_it_is_saved() -> None:
    assert type(to_plain(Moments(mean=np.float64(2.0)))["mean"]) is float
    for lost in (deque([1]), {"a": np.zeros(2)}, frozenset({1})):
        with pytest.raises(TypeError, match=r"a method's memory must be plain values and tensors, .* convert it"):
            to_plain(lost)


def test_credit_computed_twice_is_the_same_and_updates_memory_once(build: Callable[..., Any]) -> None:
    method = replace(PLAIN, estimator=Remembering(critic_targets=True), critics=("critic",))
    trainer = build(method, critic_learning_rate=1e-2)
    trainer.model.train()
    collected = trainer.collect([{"problem": "secret 1", "question": "add 1", "answer": "2"}])
    first, second = (method.estimator(collected, trainer.context, trainer.memory) for _ in range(2))
    assert first == second
    before = trainer.critics["critic"].head.weight.clone()
    trainer.credit(collected)
    assert not torch.equal(before, trainer.critics["critic"].head.weight)


def test_the_frozen_policy_plays_with_its_weights_and_the_policys_are_restored(build: Callable[..., Any]) -> None:
    trainer = build(replace(PLAIN, refresh_frozen_every=10), max_steps=1)
    trainer.model.train()
    collected = trainer.collect([{"problem": "secret 1", "question": "add 1", "answer": "2"}])
    decisions = collected.episodes[0].decisions
    before = trainer.context.logprobs(decisions)
    trainer.train()
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    after = trainer.context.logprobs(decisions)
    frozen = trainer.context.logprobs(decisions, "frozen")
    assert torch.tensor(frozen[0]) == pytest.approx(torch.tensor(before[0]), abs=1e-6)
    assert torch.tensor(after[0]) != pytest.approx(torch.tensor(before[0]), abs=1e-3)
    trainer.context.play([RolloutRequest(task={"problem": "secret 1", "question": "add 1", "answer": "2"})], "frozen")
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, weights[name]), name


def test_the_frozen_policy_is_refreshed_before_collection(build: Callable[..., Any]) -> None:
    trainer = build(replace(PLAIN, refresh_frozen_every=2), max_steps=3)
    start = {name: value.clone() for name, value in trainer.frozen.weights.items()}
    seen: list[tuple[bool, bool]] = []
    collect = trainer.method.collector

    def watch(rows: Any, context: Any, memory: Any) -> RolloutBatch:
        policy = dict(trainer.model.named_parameters())
        frozen = trainer.frozen.weights
        seen.append(
            (
                all(torch.equal(frozen[name], policy[name]) for name in frozen),
                all(torch.equal(frozen[name], start[name]) for name in frozen),
            )
        )
        return collect(rows, context, memory)

    trainer.method = replace(trainer.method, collector=watch)
    trainer.train()
    # Whether it is the update's policy, and whether it is the initial one: it is refreshed before updates 1 and 3.
    assert seen == [(True, True), (False, True), (True, False)]


def test_log_probabilities_are_of_the_decisions_tokens(build: Callable[..., Any], micro_policy: Path) -> None:
    trainer = build(PLAIN)
    (episode,) = trainer.context.play(
        [RolloutRequest(task={"problem": "secret 1", "question": "add 1", "answer": "2"})]
    )
    model = AutoModelForCausalLM.from_pretrained(micro_policy)
    for decision, found in zip(episode.decisions, trainer.context.logprobs(episode.decisions), strict=True):
        logits = model(torch.tensor([decision.context_ids + decision.action_ids])).logits[0, :-1].log_softmax(-1)
        taken = logits[-len(decision.action_ids) :].gather(1, torch.tensor(decision.action_ids)[:, None])[:, 0]
        assert list(found) == pytest.approx(taken.tolist(), abs=1e-5)
    assert trainer.context.logprobs([]) == []


def test_a_method_without_a_frozen_copy_cannot_use_one(build: Callable[..., Any]) -> None:
    trainer = build(replace(PLAIN, collector=WithComparisons(policy="frozen")))
    with pytest.raises(ValueError, match="needs a frozen copy of the policy, got refresh_frozen_every=None"):
        trainer.train()


def test_evaluation_may_play_another_interaction(build: Callable[..., Any]) -> None:
    other = relay(size=4)
    other.scorer = lambda task, text: 0.25
    trainer = build(PLAIN, given={"evaluation_interaction": other})
    trainer.interaction.scorer = lambda task, text: 0.75
    assert trainer.evaluate(relay(4).tasks("held_out", 4))["eval_reward"] == 0.25
    trainer.train()
    assert trainer.state.log_history[0]["reward"] == 0.75


def test_without_rows_it_draws_the_interactions_training_tasks(build: Callable[..., Any]) -> None:
    game = EnvironmentInteraction(make("tic_tac_toe"), history="current", instructions=False)
    for interaction in (relay(size=4), game):
        trainer = build("grpo", interaction=interaction, rows=None)
        assert list(trainer.train_dataset) == list(interaction.tasks("train", 4 * 2))
    trainer.train()
    assert trainer.state.global_step == 2


def test_a_method_may_be_named(build: Callable[..., Any]) -> None:
    trainer = build("magrpo")
    assert trainer.method.name == "magrpo"
    with pytest.raises(ValueError, match=r"method must be one of .*magrpo.*, or 'module:object', got 'grpoo'"):
        build("grpoo")


def test_any_method_may_wrap_the_interaction_for_training(build: Callable[..., Any]) -> None:
    method = replace(methods.make("grpo", group_size=2), wrap=truncation("random", probability=1.0))
    trainer = build(method)
    assert trainer.method.fingerprint()["wrap"]["rule"]["probability"] == 1.0
    assert trainer.evaluation_interaction is trainer.interaction.inner
    trainer.train()
    assert trainer.state.log_history[0]["cut/random"] == 1.0
    assert "eval_cut/ratio" not in trainer.evaluate(relay(4).tasks("held_out", 4))
    with pytest.raises(ValueError, match="the rule 'shrink' is for"):
        build(replace(method, wrap=truncation("shrink", window=2)))


def test_a_critic_with_token_values_learns_them(build: Callable[..., Any]) -> None:
    method = replace(PLAIN, estimator=Remembering(critic_targets=True, per_token=False), critics=("critic",))
    trainer = build(method, max_steps=8, learning_rate=1e-9, critic_learning_rate=1e-2, critic_passes=4)
    trainer.train()
    losses = [entry["critic/value_loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < 0.001 < losses[0]  # it said 0, and 0.5 is wanted


@dataclass(frozen=True, kw_only=True)
class Halved:
    """Credits every decision alike; those of one episode weigh half as much, twice."""

    per_start: bool

    def __call__(self, collected: RolloutBatch, context: Any, memory: Any) -> Credit:
        every = [one.id for episode in collected.episodes for one in episode.decisions]
        weights = {one.id: 0.5 for episode in collected.episodes[:2] for one in episode.decisions}
        return Credit(decisions=dict.fromkeys(every, 1.0), weights=weights, per_start=self.per_start)


@pytest.mark.parametrize("per_start", [False, True])
def test_the_loss_divides_by_weights_where_branches_share_them(build: Callable[..., Any], per_start: bool) -> None:
    method = Method(name="halved", collector=WithComparisons(), estimator=Halved(per_start=per_start))
    trainer = build(method, max_steps=1)
    trainer.train()
    ((collected, credit),) = trainer.keep.seen
    lengths = {one.id: len(one.action_ids) for episode in collected.episodes for one in episode.decisions}
    weighed = sum(credit.weights.get(name, 1.0) * length for name, length in lengths.items())
    found = trainer.credit(collected)
    expected = sum(lengths.values()) if per_start else weighed
    assert sum(found[name] * lengths[name] for name in found) == pytest.approx(expected)


def test_the_policy_is_unchanged_during_the_critics_warm_up(build: Callable[..., Any]) -> None:
    method = replace(PLAIN, estimator=Remembering(critic_targets=True, per_token=False), critics=("critic",))
    trainer = build(method, max_steps=2, critic_learning_rate=1e-2, critic_first_updates=2)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.train()
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert trainer.critics["critic"].head.weight.abs().max() > 0
    assert [entry["critics/alone"] for entry in trainer.state.log_history if "loss" in entry] == [1.0, 1.0]
    trainer = build(method, max_steps=2, critic_learning_rate=1e-2, critic_first_updates=1)
    trainer.train()
    assert any(not torch.equal(value, before[name]) for name, value in trainer.model.state_dict().items())
    assert ["critics/alone" in entry for entry in trainer.state.log_history if "loss" in entry] == [True, False]


def test_branches_are_refused_under_a_loss_over_sequences(build: Callable[..., Any]) -> None:
    method = Method(name="halved", collector=WithComparisons(), estimator=Halved(per_start=True))
    with pytest.raises(ValueError, match="weighs branches of one start, got aggregation='sequence'"):
        build(method, max_steps=1, aggregation="sequence").train()
