"""C3 from its layout to its gradient, and its baselines with the same budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from hf_credit import CreditConfig, CreditTrainer, ReplayLOOConfig, ReplayLOOTrainer, make
from hf_credit.collaborations import Collaboration, Event
from hf_credit.collaborations.relay import relay
from hf_credit.collaborations.think_solve import think_solve
from hf_credit.collectors import RolloutBatch
from hf_credit.methods import Credit
from hf_credit.methods.base import weighted
from hf_credit.rollouts import EnvironmentInteraction, Episode, by_episode
from hf_credit.trainers.callbacks import CreditCallback


def uneven(task: Any, text: str) -> float:
    """Scores any text, so that an untrained policy's messages have different scores."""
    return sum(map(ord, text)) % 5 / 4


def config(tmp_path: Path, **changed: Any) -> ReplayLOOConfig:
    base = {"output_dir": str(tmp_path), "bf16": False, "use_cpu": True, "report_to": "none"}
    return ReplayLOOConfig(**{**base, **changed})


class Keep(CreditCallback):
    """Gradients, and the collected rollouts with the credit that enters the loss."""

    def __init__(self) -> None:
        self.kept: list[dict[str, torch.Tensor]] = []
        self.played: list[tuple[list[Episode], Any]] = []

    def on_credit(self, trainer: Any, collected: RolloutBatch, credit: Credit) -> None:
        self.played.append((collected.episodes, by_episode(collected.episodes, weighted(credit))))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.kept.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})


@pytest.fixture
def train(tmp_path: Path, micro_policy: Path) -> Callable[..., ReplayLOOTrainer]:
    """`train(**settings)`: two instances per update, sampled; the collected rollouts are in `trainer.played`."""

    def run(
        interaction: Any = None,
        rows: Dataset | None = None,
        build_only: bool = False,
        peft_config: Any = None,
        method: str | None = None,
        **changed: Any,
    ) -> Any:
        values: dict[str, Any] = {
            "instances_per_update": 2,
            "per_device_train_batch_size": 2,
            "max_steps": 1,
            "max_completion_length": 2,
            "max_context_tokens": None,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            "beta": 0.0,
            "learning_rate": 1e-3,
            "warmup_steps": 0,
            "max_grad_norm": 1e9,
            "gradient_checkpointing": False,
            "save_strategy": "no",
            "logging_steps": 1,
            "disable_tqdm": True,
        }
        keep = Keep()
        rows = relay(4).tasks("train", 8) if rows is None else rows
        given: Any = {"callbacks": [keep], "peft_config": peft_config}
        if method is None:
            args = config(tmp_path, **{**values, **changed})
            trainer: Any = ReplayLOOTrainer(str(micro_policy), interaction or relay(size=4), args, rows, **given)
        else:
            base = {"output_dir": str(tmp_path), "bf16": False, "use_cpu": True, "report_to": "none"}
            credit_args = CreditConfig(**{**base, **values, **changed})
            given["method"] = method
            trainer = CreditTrainer(str(micro_policy), interaction or relay(size=4), credit_args, rows, **given)
        trainer.played, trainer.kept = keep.played, keep.kept
        trainer.model.train()
        if not build_only:
            trainer.train()
        return trainer

    return run


def test_an_update_samples_the_papers_tree_and_scores_only_the_leaves(train: Callable[..., Any]) -> None:
    calls = []
    interaction = relay(size=4)
    scorer = interaction.scorer
    interaction.scorer = lambda task, text: calls.append(text) or scorer(task, text)
    trainer = train(interaction=interaction)
    ((episodes, credits),) = trainer.played
    assert len(calls) - 1 == len(episodes) == 2 * 8  # the first is the dry run of the trainer's construction
    assert [episode.branch for episode in episodes[:8]] == [(i, j) for i in range(2) for j in range(4)]
    decisions = [decision for episode in episodes for decision in episode.own_decisions]
    assert [sum(d.event == event for d in decisions) for event in ("reasoner", "actor")] == [2 * 2, 2 * 8]
    credited = [value for values in credits for value in values if value is not None]
    assert len(credited) == 2 * 10
    logged = trainer.state.log_history[0]
    assert logged["tokens/generated"] == sum(len(decision.action_ids) for decision in decisions)
    assert logged["tokens/context"] == sum(len(decision.context_ids) for decision in decisions)


def by_hand(trainer: Any, model: Any) -> Iterable[torch.Tensor]:
    """The gradient of -sum A log pi(a | h) / tokens, one decision at a time."""
    ((episodes, credits),) = trainer.played
    tuples = [
        (decision, value)
        for episode, values in zip(episodes, credits, strict=True)
        for decision, value in zip(episode.decisions, values, strict=True)
        if value is not None
    ]
    tokens = sum(len(decision.action_ids) for decision, _ in tuples)
    loss = torch.zeros(())
    for decision, value in tuples:
        ids = torch.tensor([decision.context_ids + decision.action_ids])
        logprobs = model(ids).logits[0, :-1].log_softmax(dim=-1)
        taken = logprobs[-len(decision.action_ids) :].gather(1, torch.tensor(decision.action_ids)[:, None])
        loss = loss - value * taken.sum() / tokens
    return torch.autograd.grad(loss, list(model.parameters()))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"baseline": "full_mean"},
        {"match_contexts": False},
        {"method": "magrpo"},
        {"reference_rollouts": 1, "contexts": 2, "alternatives": [4]},
        {"per_device_train_batch_size": 1},
    ],
    ids=str,
)
def test_the_gradient_is_that_of_the_credited_messages(
    train: Callable[..., Any], micro_policy: Path, settings: dict[str, Any]
) -> None:
    from transformers import AutoModelForCausalLM

    interaction = relay(size=4)
    interaction.scorer = uneven
    trainer = train(interaction=interaction, **settings)
    ((_, credits),) = trainer.played
    assert any(value for values in credits for value in values)
    model = AutoModelForCausalLM.from_pretrained(micro_policy)
    expected = dict(zip(dict(model.named_parameters()), by_hand(trainer, model), strict=True))
    for name, gradient in trainer.kept[0].items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6, msg=name)


def test_reference_rollouts_are_not_in_the_budget(train: Callable[..., Any]) -> None:
    calls = []
    interaction = relay(size=4)
    scorer = interaction.scorer
    interaction.scorer = lambda task, text: calls.append(text) or scorer(task, text)
    trainer = train(interaction=interaction, reference_rollouts=2, contexts=2, alternatives=[2], num_replays=2)
    ((episodes, _),) = trainer.played
    assert trainer.state.log_history[0]["tokens/reference_rollouts"] > 0
    for instance in range(2):
        own = [episode for episode in episodes if episode.start == instance]
        assert len({episode.decisions[0].context_ids for episode in own}) == 2
        assert len(own) <= 8  # an actor's answer ends the episode, so it has nothing to be replayed with
    assert len(calls) - 1 == len(episodes)  # the first is the dry run of the trainer's construction


def test_three_roles_and_simultaneous_roles_can_be_trained(train: Callable[..., Any]) -> None:
    interaction = Collaboration(
        roles={"planner": "plan", "solver": "solve", "judge": "judge"},
        events=[
            Event("plan", role="planner"),
            Event("left", role="solver", after="plan"),
            Event("right", role="solver", after="plan"),
            Event("judge", role="judge", after=("left", "right")),
        ],
        final="judge",
        scorer=lambda task, text: len(text) % 2,
    )
    rows = Dataset.from_list([{"problem": f"{number}"} for number in range(4)])
    trainer = train(interaction=interaction, rows=rows, alternatives=[2, 2, 2])
    ((episodes, credits),) = trainer.played
    assert len(episodes) == 2 * 8
    credited = [
        decision.event
        for episode, values in zip(episodes, credits, strict=True)
        for decision, value in zip(episode.decisions, values, strict=True)
        if value is not None
    ]
    assert [credited.count(event) for event in ("plan", "left", "right", "judge")] == [4, 8, 8, 16]


def test_environments_can_be_replayed_too(train: Callable[..., Any]) -> None:
    game = EnvironmentInteraction(make("sudoku", size=4, blanks=4), history="current", instructions=False)
    rows = Dataset.from_list([{"seed": seed} for seed in range(4)])
    settings = {
        "reference_rollouts": 1,
        "contexts": 2,
        "alternatives": [2],
        "num_replays": 2,
        "max_completion_length": 12,
    }
    trainer = train(interaction=game, rows=rows, **settings)
    assert trainer.state.log_history[0]["buckets/count"] >= 2


def test_an_error_of_the_scorer_ends_its_episode_and_is_counted(train: Callable[..., Any]) -> None:
    interaction = relay(size=4)
    calls = []

    def moody(task: Any, text: str) -> float:
        calls.append(text)
        if len(calls) % 4 == 0:
            raise TimeoutError("no answer")
        return 2.0 if len(calls) % 4 == 1 else 0.5

    trainer = train(interaction=interaction, build_only=True)
    interaction.scorer = moody
    trainer.train()
    logged = trainer.state.log_history[0]
    assert logged["endings/error"] == 0.5
    ((episodes, _),) = trainer.played
    errors = {episode.error.split(":")[0] for episode in episodes if episode.error}
    assert errors == {"TimeoutError", "ValueError"}
    assert torch.isfinite(torch.tensor(logged["loss"]))


def test_evaluation_plays_each_task_once(train: Callable[..., Any]) -> None:
    trainer = train(build_only=True)
    collected = trainer.collect
    played: list[int] = []

    def count(rows: Any) -> RolloutBatch:
        found: RolloutBatch = collected(rows)
        played.append(len(found.rollouts))
        return found

    trainer.collect = count
    metrics = trainer.evaluate(relay(4).tasks("held_out", 4))
    assert 0 <= metrics["eval_reward"] <= 1
    assert sum(played) == 4
    assert trainer.ledger.tokens == 0  # evaluation is no cost of training


def test_a_trainer_without_tasks_is_refused(tmp_path: Path, micro_policy: Path) -> None:
    with pytest.raises(ValueError, match=r"training needs task rows, got none for .*, which has no tasks of its own"):
        ReplayLOOTrainer(str(micro_policy), think_solve(uneven), config(tmp_path))


def test_a_critic_values_whole_episodes_and_learns(train: Callable[..., Any]) -> None:
    interaction = relay(size=4)
    interaction.scorer = lambda task, text: 0.5
    trainer = train(
        interaction=interaction,
        method="mappo",
        max_steps=8,
        lr_scheduler_type="constant",
        learning_rate=1e-9,
        critic_learning_rate=1e-2,
        critic_passes=4,
    )
    first, last = (trainer.played[place][1][0][0] for place in (0, -1))
    assert first == 0.5  # a new critic says 0
    assert abs(last) < 0.2
    losses = [entry["critic/value_loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0] / 10
    assert {len(episodes) for episodes, _ in trainer.played} == {16}


@pytest.mark.parametrize("adapters", [False, True], ids=["own", "adapter"])
def test_a_run_with_a_critic_resumes_bitwise(train: Callable[..., Any], tmp_path: Path, adapters: bool) -> None:
    from peft import LoraConfig

    settings = {
        "method": "mappo",
        "max_steps": 2,
        "save_strategy": "steps",
        "save_steps": 1,
        "critic_learning_rate": 1e-2,
        "peft_config": LoraConfig(r=2, target_modules=["q_proj", "v_proj"]) if adapters else None,
    }
    interaction = relay(size=4)
    interaction.scorer = uneven
    whole = train(interaction=interaction, **settings)
    assert (tmp_path / "checkpoint-1" / "critic" / "critic.safetensors").is_file()
    resumed = train(interaction=interaction, build_only=True, **settings)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
    heads = [trainer.critics["critic"].head.weight for trainer in (whole, resumed)]
    assert torch.equal(*heads)
    assert heads[0].abs().max() > 0
    assert whole.ledger == resumed.ledger
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, resumed.model.state_dict()[name]), name


def test_alternatives_can_be_continued_with_common_random_numbers(train: Callable[..., Any]) -> None:
    class Deaf(type(relay())):  # type: ignore[misc]
        """The actor does not see the plan, so its context is the same after both plans."""

        def pending(self, state: Any) -> Any:
            requests = super().pending(state)
            for request in requests:
                request.messages[-1]["content"] = request.messages[-1]["content"].partition("Context:")[0]
            return requests

    interaction = relay(size=4)
    interaction.__class__ = Deaf
    trainer = train(interaction=interaction, common_random_numbers=True, temperature=3.0, reuse_prefixes=True)
    ((episodes, _),) = trainer.played
    instances = [episodes[:8], episodes[8:]]
    for own in instances:
        answers = [episode.decisions[1].action_ids for episode in own]
        plans = {episode.decisions[0].action_ids for episode in own}
        assert (answers[:4] == answers[4:]) == (len(plans) == 2)  # plans that say the same are one plan, replayed on
    assert any(len({one.decisions[0].action_ids for one in own}) == 2 for own in instances)
    assert len({one.decisions[1].action_ids for one in episodes}) > 1
    # Each task draws its own, and so does each update.
    assert [one.decisions[1].action_ids for one in instances[0]] != [
        one.decisions[1].action_ids for one in instances[1]
    ]
    assert trainer.state.log_history[0]["common_random_numbers"] == 1
    without = train(interaction=interaction, common_random_numbers=True, reuse_prefixes=False)
    assert without.state.log_history[0]["common_random_numbers"] == 0
