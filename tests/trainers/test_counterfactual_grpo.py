"""CCPO in training: alternating adapters, optimizer moments in checkpoints, and solos that are not counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig
from small_runs import ON_A_PROCESSOR
from transformers import TrainerCallback

from hf_credit import CounterfactualGRPOConfig, CounterfactualGRPOTrainer, CreditConfig
from hf_credit.collaborations.hinted_relay import hinted_relay
from hf_credit.methods.memory import to_plain
from hf_credit.trainers.arguments import refuse_schedule
from hf_credit.trainers.role_adapters import RoleAdapters

ROLES = ["thinker", "solver"]


def uneven(task: Any, text: str) -> float:
    """Scores any text, so that an untrained policy's messages have different scores."""
    return sum(map(ord, text)) % 5 / 4


class KeepWeights(TrainerCallback):
    """Copies the adapters of all roles, and what the optimizer remembers of them, after each update."""

    def __init__(self) -> None:
        self.kept: list[dict[str, list[torch.Tensor]]] = []
        self.moments: list[dict[str, list[torch.Tensor]]] = []
        self.trainer: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        own = self.trainer.adapters.parameters
        known = self.trainer.optimizer.state
        self.kept.append({role: [one.detach().clone() for one in own[role]] for role in ROLES})
        self.moments.append({
            role: [value.clone() for one in own[role] for value in known.get(one, {}).values()] for role in ROLES
        })  # fmt: skip


def config(output: Path, **changed: Any) -> CounterfactualGRPOConfig:
    values: dict[str, Any] = {
        **ON_A_PROCESSOR,
        "output_dir": str(output),
        "instances_per_update": 2,
        "per_device_train_batch_size": 2,
        "group_size": 3,
        "min_samples": 1,
        "switch_every": 1,
        "max_steps": 3,
        "max_completion_length": 2,
        "max_context_tokens": None,
        "temperature": 5.0,
        "learning_rate": 1e-2,
        "weight_decay": 0.1,
        "lr_scheduler_type": "constant",
    }
    return CounterfactualGRPOConfig(**{**values, **changed})


@pytest.fixture
def build(micro_policy: Path, tmp_path: Path) -> Callable[..., Any]:
    def make(**changed: Any) -> Any:
        team = hinted_relay(4)
        team.scorer = uneven
        keep = KeepWeights()
        trainer: Any = CounterfactualGRPOTrainer(
            str(micro_policy),
            team,
            config(tmp_path, **changed),
            team.tasks("train", 8),
            peft_config=LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False),
            callbacks=[keep],
        )
        keep.trainer, trainer.keep = trainer, keep
        return trainer

    return make


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(torch.equal(first, second) for first, second in zip(one, other, strict=True))


def test_one_role_learns_at_a_time_and_the_others_stay_bitwise_the_same(
    build: Callable[..., Any], tmp_path: Path
) -> None:
    trainer = build(save_strategy="steps", save_steps=2)
    assert list(trainer.roles) == ROLES  # each has an adapter of its own without being named
    before = {role: [one.detach().clone() for one in trainer.adapters.parameters[role]] for role in ROLES}
    trainer.train()
    weights, moments = [before, *trainer.keep.kept], trainer.keep.moments
    for update, (learning, waiting) in enumerate([ROLES, ROLES[::-1], ROLES]):
        assert not same(weights[update][learning], weights[update + 1][learning])
        assert same(weights[update][waiting], weights[update + 1][waiting])
    assert moments[0]["solver"] == []  # it has not stepped at all
    assert same(moments[0]["thinker"], moments[1]["thinker"])  # nor in the second update, by what it remembers
    assert same(moments[1]["solver"], moments[2]["solver"])

    logged = trainer.state.log_history
    assert [entry["role/learning"] for entry in logged[:3]] == [0.0, 1.0, 0.0]
    assert trainer.memory.of("thinker/contribution").seen == 3 * 2 * 3  # whoever learns
    assert trainer.ledger.decisions == {"thinker": 18, "solver": 36}
    assert trainer.ledger.scoring_events == 36
    assert logged[0]["turns/mean"] == 2  # of whole episodes alone

    resumed = build(save_strategy="steps", save_steps=2)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert to_plain(resumed.memory) == to_plain(trainer.memory)
    assert all(same(resumed.keep.kept[-1][role], weights[-1][role]) for role in ROLES)
    with pytest.raises(ValueError, match=r"settings of its checkpoint, got alpha 2\.0 in place of 1\.0"):
        build(alpha=2.0).train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))


def test_all_roles_learn_with_the_synchronous_schedule_and_solos_are_not_counted(build: Callable[..., Any]) -> None:
    trainer = build(role_schedule="synchronous", role_adapters=ROLES, train_solo=True, max_steps=1)
    before = {role: [one.detach().clone() for one in trainer.adapters.parameters[role]] for role in ROLES}
    trainer.train()
    assert not any(same(before[role], trainer.keep.kept[0][role]) for role in ROLES)
    logged = trainer.state.log_history[0]
    assert "role/learning" not in logged
    assert logged["turns/mean"] == 2
    assert 0 < logged["budget/counterfactual_tokens"] < logged["budget/tokens"]
    assert list(trainer.context.end_tokens) == trainer.eos_token_ids
    assert logged["reward"] == pytest.approx(trainer.memory.of("solver/joint").mean)


def test_the_papers_schedule_counts_from_zero_in_blocks(tmp_path: Path) -> None:
    from types import SimpleNamespace

    for step, role in ((0, "a"), (9, "a"), (10, "b"), (19, "b"), (20, "c"), (30, "a")):
        args = SimpleNamespace(role_schedule="alternating", switch_every=10)
        trainer = SimpleNamespace(state=SimpleNamespace(global_step=step))
        adapters: Any = SimpleNamespace(args=args, roles=("a", "b", "c"), trainer=trainer)
        assert RoleAdapters.learning(adapters) == (role,)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"role_schedule": "random"}, "role_schedule must be one of synchronous, alternating, got 'random'; "),
        ({"switch_every": 0}, "switch_every must be at least 1, got 0; "),
        ({"role_adapters": None}, "role_schedule='alternating' must go with role_adapters, got None"),
        (
            {"gradient_accumulation_steps": 2, "steps_per_generation": 3},
            "must not straddle generations, got 3 slices of a generation and 2 of an update; ",
        ),
        ({"num_iterations": 3}, r"a multiple of the updates for each generation \(3 here\), got 10; "),
    ],
)
def test_invalid_schedules_are_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    values = {"role_adapters": ROLES, "switch_every": 10, "role_schedule": "alternating", **changed}
    own = {"output_dir": str(tmp_path), "use_cpu": True, "bf16": False, "report_to": "none"}
    with pytest.raises(ValueError, match=message):
        refuse_schedule(CreditConfig(**own, per_device_train_batch_size=2, **values))


def test_settings_are_refused_before_a_model_is_loaded(tmp_path: Path) -> None:
    args = config(tmp_path, allocation="weighted")
    with pytest.raises(ValueError, match="allocation='weighted' needs a vote"):
        CounterfactualGRPOTrainer("no/such-model", hinted_relay(4), args, hinted_relay(4).tasks("train", 8))
