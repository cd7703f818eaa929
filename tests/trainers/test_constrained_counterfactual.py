"""`ConstrainedCounterfactualTrainer` on evidence: training, frozen copy, resumption and refusals."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from launched import launch
from safetensors.torch import load_file

from hf_credit import ConstrainedCounterfactualConfig, ConstrainedCounterfactualTrainer
from hf_credit.diagnostics.bucket_sampling import BucketPlan
from hf_credit.diagnostics.policy import Tasks, diagnose_training, load_subject
from hf_credit.methods.cvt import LIMITS, replacement_of, verified_success
from hf_credit.methods.memory import to_plain
from hf_credit.oracles.evidence_play import EvidenceOracle
from hf_credit.policies.micro import MicroConfig
from hf_credit.rollouts import Ledger, RolloutRequest, by_episode
from hf_credit.rollouts.method_context import CriticInput
from hf_credit.rollouts.scripts import OraclePlayer
from hf_credit.tasks import TaskSpec
from hf_credit.trainers.callbacks import CreditCallback
from hf_credit.trainers.frozen import FROZEN_FILE
from hf_credit.trainers.micro import init_scripted_policy

SCRIPT = Path(__file__).with_name("constrained_run.py")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def policy(script: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that knows the format of actions and plays badly."""
    starts = [RolloutRequest[Any](task={"seed": seed}, seed=seed) for seed in range(96)]
    config = MicroConfig(
        hidden_size=32, layers=2, heads=2, episodes=96, epochs=6, batch_rows=16, learning_rate=8e-3, quality=0.6
    )
    interaction = script.played()
    player = OraclePlayer(interaction.environment, EvidenceOracle(), config.quality)
    return init_scripted_policy(interaction, player, starts, tmp_path_factory.mktemp("evidence"), config)


class Keep(CreditCallback):
    """The collected rollouts, their credit, and the frozen copy at that time."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, Any]] = []
        self.apart: list[bool] = []

    def on_credit(self, trainer: Any, collected: Any, credit: Any) -> None:
        self.seen.append((collected, credit))
        own = dict(trainer.accelerator.unwrap_model(trainer.model).named_parameters())
        frozen = {} if trainer.frozen is None else trainer.frozen.weights
        self.apart.append(any(not torch.equal(weight, own[name]) for name, weight in frozen.items()))


@pytest.fixture
def trained(script: ModuleType, policy: Path, tmp_path: Path) -> Callable[..., Any]:
    """`trained(**settings)`: a trainer after two updates of two steps."""

    def train(resume_from: Path | None = None, **changed: Any) -> Any:
        keep = Keep()
        played = script.played()
        trainer: Any = ConstrainedCounterfactualTrainer(
            str(policy),
            played,
            script.settings(tmp_path, **changed),
            played.tasks("train", 16),
            callbacks=[keep],
        )
        trainer.train(resume_from_checkpoint=None if resume_from is None else str(resume_from))
        trainer.keep = keep
        return trainer

    return train


def test_it_trains_on_sampled_steps_and_not_on_replaced_ones(trained: Callable[..., Any]) -> None:
    trainer = trained()
    assert len(trainer.keep.seen) == 2
    tokens = 0
    for collected, credit in trainer.keep.seen:
        replaced = [one for one in collected.rollouts if one.kind.startswith("counterfactual")]
        assert replaced
        assert not any(one.trained for one in replaced)
        changes = [replacement_of(one) for one in replaced]
        assert all(0 < one.probability <= 1 and one.reply for one in changes)
        assert any(one.features[0] for one in changes)  # how likely steps were, of which this sampler tells nothing
        assert len(by_episode(collected.episodes, credit.decisions)) == len(collected.trained) == 6
        assert all(verified_success(one.episode) is not None for one in collected.rollouts)
        tokens += sum(len(d.context_ids) + len(d.action_ids) for one in replaced for d in one.episode.decisions)
    assert trainer.ledger.counterfactual_tokens == tokens
    assert trainer.ledger.tokens > tokens
    first, second = trainer.state.log_history[:2]
    assert {"verified", "hacks/true", "evidence/f1", "costs/skipped", "multipliers/skipped"} <= first.keys()
    assert {"critic/value_loss", "outcome/value_loss", "belief/accuracy", "tokens/counterfactual"} <= first.keys()
    assert first["trust_region/projected"] == 0.0
    assert second["trust_region/kl"] > 0


def test_the_frozen_copy_continues_episodes_unchanged_until_refreshed(trained: Callable[..., Any]) -> None:
    lagging = trained(refresh_every=2, max_steps=6)
    assert lagging.keep.apart == [False, True, False]
    logged = [one for one in lagging.state.log_history if "overlap/ratio_median" in one]
    assert logged[0]["overlap/effective"] == pytest.approx(1.0, abs=1e-6)  # still the same policy: all ratios are 1
    assert logged[1]["overlap/effective"] < 1 - 1e-4

    following = trained(ema=0.5, max_steps=4)
    assert following.keep.apart == [False, True]
    none = trained(refresh_every=1, max_steps=2)
    assert none.frozen is None
    assert none.method.collector.policy == "current"


def test_a_resumed_run_has_the_state_of_an_uninterrupted_run(trained: Callable[..., Any], tmp_path: Path) -> None:
    # The step between the two of an update, so that what was played and its old policy come from the checkpoint.
    whole = trained(save_strategy="steps", save_steps=1)
    checkpoint = tmp_path / "checkpoint-3"
    names = {path.relative_to(checkpoint).as_posix() for path in checkpoint.rglob("*.safetensors")}
    assert names >= {
        FROZEN_FILE,
        "critic/critic.safetensors",
        "outcome/outcome.safetensors",
        "belief/belief.safetensors",
    }
    kept = load_file(checkpoint / FROZEN_FILE)
    assert all(torch.equal(kept[name], weight) for name, weight in whole.frozen.weights.items())

    resumed = trained(resume_from=checkpoint, save_strategy="steps", save_steps=1)
    for ours, theirs in zip(resumed.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    assert to_plain(resumed.memory) == to_plain(whole.memory)
    assert any(value for _, value in resumed.memory.multipliers)
    assert resumed.memory.updates == whole.memory.updates == 2
    assert resumed.ledger == whole.ledger
    for name, one in whole.frozen.weights.items():
        assert torch.equal(resumed.frozen.weights[name], one)
    for name, one in whole.critics.items():
        ours, theirs = resumed.critics[name].state()["weights"], one.state()["weights"]
        assert all(torch.equal(ours[part], weight) for part, weight in theirs.items()), name

    with pytest.raises(ValueError, match=r"a run must be resumed with the settings of its checkpoint, got .*limits"):
        trained(resume_from=checkpoint, limits={**LIMITS, "budget": 0.5})


def test_state_shared_by_processes_is_restored_for_any_number_of_them(
    trained: Callable[..., Any], tmp_path: Path
) -> None:
    trainer = trained(save_strategy="steps", save_steps=2)
    ledger, memory = trainer.ledger, to_plain(trainer.memory)
    trainer.ledger, trainer.memory = Ledger(), trainer.method.memory
    trainer.load_checkpoint(tmp_path / "checkpoint-4", same=False)
    assert trainer.ledger == ledger
    assert ledger.counterfactual_tokens > 0
    assert to_plain(trainer.memory) == memory


def test_log_probabilities_of_decisions_are_without_dropout(trained: Callable[..., Any]) -> None:
    trainer = trained(max_steps=2)
    decisions = trainer.keep.seen[0][0].episodes[0].decisions
    plain = trainer.decision_logprobs(decisions)
    for module in trainer.model.modules():
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.5
    trainer.model.train()
    assert trainer.decision_logprobs(decisions) == plain
    assert trainer.model.training
    ids = torch.tensor([[*decisions[0].context_ids]])
    assert not torch.equal(trainer.model(ids).logits, trainer.model(ids).logits)  # or this test says nothing


def test_multipliers_move_once_per_update_by_its_mean_costs(trained: Callable[..., Any]) -> None:
    trainer = trained()
    values = dict.fromkeys(LIMITS, 0.0)
    for logged in [one for one in trainer.state.log_history if "costs/skipped" in one]:
        for name, limit in LIMITS.items():
            assert logged[f"multipliers/{name}"] == pytest.approx(values[name])
            values[name] = max(0.0, values[name] + 0.05 * (logged[f"costs/{name}"] - limit))
    assert dict(trainer.memory.multipliers) == pytest.approx(values)
    assert max(values.values()) > 0


def test_mappings_on_the_command_line_are_parsed_and_invalid_ones_refused(tmp_path: Path) -> None:
    own: dict[str, Any] = {"output_dir": str(tmp_path), "bf16": False, "use_cpu": True, "report_to": "none"}
    config = ConstrainedCounterfactualConfig(**own, limits='{"tampering": 0.5}', auditor="evidence")
    assert config.method().estimator.limits == {"tampering": 0.5}  # type: ignore[attr-defined]
    for changed, message in (
        ({"limits": "tampering"}, "limits must be a mapping, got 'tampering'"),
        ({"auditor_options": {"documents": 4}}, "auditor_options need auditor"),
        ({"trust_region": -1.0}, "trust_region must be above 0"),
    ):
        with pytest.raises(ValueError, match=message) as refusal:
            ConstrainedCounterfactualConfig(**own, **changed)
        assert "\n" not in str(refusal.value)


def test_the_papers_settings_are_the_defaults(tmp_path: Path) -> None:
    config = ConstrainedCounterfactualConfig(output_dir=str(tmp_path), bf16=False, use_cpu=True, report_to="none")
    found = {name: getattr(config, name) for name in ("temperature", "top_p", "learning_rate", "critic_learning_rate")}
    assert found == {"temperature": 0.8, "top_p": 0.95, "learning_rate": 8e-7, "critic_learning_rate": 5e-6}
    assert (config.group_size, config.steps, config.branches, config.refresh_every) == (8, 8.0, 4, 200)
    assert (config.gamma, config.lam, config.floor, config.penalty, config.rate) == (0.99, 0.95, 0.15, 2.0, 0.05)
    assert (config.trust_region, config.trust_region_tool, config.trust_region_top) == (0.025, 0.010, 256)
    assert (config.adam_beta1, config.adam_beta2, config.weight_decay, config.max_grad_norm) == (0.9, 0.95, 0.1, 1.0)
    assert config.instances_per_update * config.group_size == 128


def test_two_processes_keep_one_policy_one_copy_and_one_memory(policy: Path, tmp_path: Path) -> None:
    launch(SCRIPT, policy, tmp_path, processes=2, folder=tmp_path, environment={"ACCELERATE_USE_CPU": "true"})
    one, other = (json.loads((tmp_path / f"process_{rank}.json").read_text(encoding="utf-8")) for rank in range(2))
    for what in ("weights", "frozen", "critics", "memory", "tokens"):
        assert one[what] == other[what], what
    updates = [entry for entry in one["log"] if "costs/tampering" in entry]
    held = dict.fromkeys(LIMITS, 0.0)
    for entry in updates[:1] + updates[-1:]:
        held = {name: max(0.0, held[name] + 0.05 * (entry[f"costs/{name}"] - limit)) for name, limit in LIMITS.items()}
    assert dict(one["memory"]["multipliers"]) == pytest.approx(held, abs=1e-6)
    assert any(held.values())


def test_its_credit_is_diagnosed_from_its_folder_with_the_saved_critics(
    trained: Callable[..., Any], tmp_path: Path
) -> None:
    trainer = trained()
    trainer.save_model(str(tmp_path / "saved"))
    plan = BucketPlan(buckets=6, replays=2, value_actions=2)
    setup = TaskSpec.load(tmp_path / "saved")
    assert setup is not None
    subject, starts = load_subject(str(tmp_path / "saved"), setup, plan, tasks=Tasks(episodes=2))
    (found,) = diagnose_training(subject, starts, plan)
    assert found.method == "constrained_counterfactual"
    assert found.cost.counterfactual_tokens > 0
    assert {one.event for one in found.events} == {"agent"}
    assert found.events[0].measured == 6

    reading = CriticInput(ids=(5, 6, 7), at=(3,))
    for name, critic in trainer.critics.items():
        torch.testing.assert_close(subject.critics[name]([reading]), critic([reading]))
    assert trainer.critics["outcome"].rate != 0.5  # otherwise the check does not cover state other than weights


def test_a_frozen_copy_is_refused_with_vllm(script: ModuleType, policy: Path, tmp_path: Path) -> None:
    args, world = script.settings(tmp_path), script.played()
    args.use_vllm = True
    with pytest.raises(ValueError, match="keeps a frozen copy of the policy, got use_vllm=True"):
        ConstrainedCounterfactualTrainer(str(policy), world, args, world.tasks("train", 16))
